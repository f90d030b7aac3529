"""Scores of embeddings on held-out data, and of baselines from counting: on arrays.

It may import `vectors` and what comes before; no data are read here. Read `scores.py`
first: the table of all scores, with what each needs.
"""
