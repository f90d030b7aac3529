"""Scores of a run on held-out files: what the verb `evaluate` reads and prints."""
