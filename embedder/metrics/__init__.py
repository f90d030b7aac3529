"""Scores of embeddings on held-out data, and of baselines from counting: on arrays."""
