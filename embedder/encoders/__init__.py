"""Encoders: networks over features or images, whose embedding is the vector.

It may import `data` and what comes before, but not `tokens`. Read `plan.py` first,
then `objectives.py` and `train_step.py`: what an update computes.
"""
