"""Tables: vectors of tokens, by skip-gram and CBOW with negative sampling.

It may import `data` and what comes before, but not `encoders`. Read `plan.py` first,
then `objective.py` and `train_step.py`: what an update computes.
"""
