"""Runs: a folder with settings, checkpoints and results, and how it is resumed."""
