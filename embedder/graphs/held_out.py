"""Which edges of a graph are held out: a hash of their ends, not of the seed.

A node keeps the edge with its largest hash, so each node is left with one. Both
directions, and repeated edges, are held out together, and a larger share holds out the
edges of a smaller one too, ALGORITHM.md (77).
"""

import numpy as np

from embedder.errors import InputError
from embedder.graphs.csr import Edges
from embedder.graphs.walks import GOLDEN, mixed


def split_edges(
    edges: Edges, share: float, *, directed: bool
) -> tuple[Edges, np.ndarray]:
    """The edges to train on, and different held-out ones, i64[n, 2], by their hashes.

    Self loops are not held out. Undirected pairs have the smaller node first.

    Raises:
      InputError: no edge is held out.
    """
    num_nodes = len(edges.nodes)
    first = np.minimum(edges.source, edges.target).astype(np.uint64)
    second = np.maximum(edges.source, edges.target).astype(np.uint64)
    hashes = mixed(first * np.uint64(num_nodes) + second + GOLDEN)
    is_loop = edges.source == edges.target
    largest = np.zeros(num_nodes, np.uint64)
    for ends in (edges.source, edges.target):
        np.maximum.at(largest, ends, np.where(is_loop, np.uint64(0), hashes))
    is_kept = (hashes == largest[edges.source]) | (hashes == largest[edges.target])
    limit = np.uint64(min(round(share * 2**64), 2**64 - 1))
    is_held_out = (hashes < limit) & ~is_kept & ~is_loop
    if not is_held_out.any():
        raise InputError(
            f"`holdout` = {share} holds out none of {len(hashes)} edges, of which each "
            "node keeps one: give a larger share, or a larger graph."
        )
    one, other = (edges.source, edges.target) if directed else (first, second)
    pairs = np.stack([one[is_held_out], other[is_held_out]], axis=1).astype(np.int64)
    order = np.lexsort((*pairs.T, hashes[is_held_out]))
    pairs = pairs[order]
    is_new = np.append(True, (pairs[1:] != pairs[:-1]).any(axis=1))
    weight = None if edges.weight is None else edges.weight[~is_held_out]
    kept = Edges(
        edges.nodes, edges.source[~is_held_out], edges.target[~is_held_out], weight
    )
    return kept, pairs[is_new]
