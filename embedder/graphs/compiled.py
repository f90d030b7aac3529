"""Loops over the rows of a graph, compiled by Numba; they release the GIL.

Without fast maths, so that every machine computes the same bits. Arrays are those of
`csr.Graph`; no index is checked.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numpy as np
from numba import njit

from embedder.engine.kernel_cache import kept

P = ParamSpec("P")
Result = TypeVar("Result")


def compiled(function: Callable[P, Result]) -> Callable[P, Result]:
    """`function`, compiled when it is first called; the code is kept in files."""
    made = kept(njit(nogil=True, error_model="numpy")(function))
    return cast(Callable[P, Result], made)


@compiled
def sum_rows(offsets, weights):
    """Replaces the weights of each row by their cumulative sums."""
    for v in range(len(offsets) - 1):
        total = 0.0
        for k in range(offsets[v], offsets[v + 1]):
            total += weights[k]
            weights[k] = total


@compiled
def spread(offsets, neighbors, cumulative, mass, after):
    """One step of first-order walks: moves `mass` f64[V] to `after` f64[V]."""
    after[:] = 0
    for v in range(len(offsets) - 1):
        first, last = offsets[v], offsets[v + 1]
        if len(cumulative) == 0:
            for k in range(first, last):
                after[neighbors[k]] += mass[v] / (last - first)
        else:
            before = 0.0
            for k in range(first, last):
                share = (cumulative[k] - before) / cumulative[last - 1]
                after[neighbors[k]] += mass[v] * share
                before = cumulative[k]


@compiled
def relabel_rows(
    offsets,
    neighbors,
    cumulative,
    order,
    rank,
    new_offsets,
    new_neighbors,
    new_cumulative,
):
    """Writes row order[i] to row i, with node v as rank[v], ascending."""
    for i in range(len(order)):
        first, start = offsets[order[i]], new_offsets[i]
        size = new_offsets[i + 1] - start
        labels = rank[neighbors[first : first + size]]
        places = np.argsort(labels)
        total = 0.0
        for j in range(size):
            k = places[j]
            new_neighbors[start + j] = labels[k]
            if len(cumulative) > 0:
                before = cumulative[first + k - 1] if k > 0 else 0.0
                total += cumulative[first + k] - before
                new_cumulative[start + j] = total
