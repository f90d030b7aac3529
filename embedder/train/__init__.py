"""Optimizer, update and the training loop."""
