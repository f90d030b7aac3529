"""CBOW with sums of contexts: an objective, as `cbow.py`, with h_t of (97) for (8)."""

import functools

from embedder.tables import cbow

row_ids, num_terms = cbow.row_ids, cbow.num_terms
row_weights = functools.partial(cbow.row_weights, is_mean=False)
loss = functools.partial(cbow.loss, is_mean=False)
