"""What Python programs call: the estimators, `train`, and what a run has to read."""
