"""Runs: a folder with settings, checkpoints and results, and how it is resumed.

It may import `engine` and what comes before; no family is known here. Read `train.py`
first: all that a run does, from its command to its results.
"""
