"""What Python programs call: the estimators, `train`, and what a run has to read.

It may import `report` and what comes before. Read `token_estimator.py` first, or
`train.py`: arguments become a configuration, and that a plan and a training.
"""
