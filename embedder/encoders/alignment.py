"""The mean of the vectors of several networks, after their rotation onto the first.

Networks of other seeds have their own axes: their vectors are comparable only after an
orthogonal map.

Axis letters: K replicas, n examples, E values of a vector.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from embedder.vectors.ensemble import nearest_orthogonal


class Aligned(NamedTuple):
    """The mean of aligned vectors, and the rotation of each replica."""

    mean: np.ndarray  # [n, E]
    rotations: np.ndarray  # [K, E, E], orthogonal; the first is the identity


def aligned_mean(vectors: np.ndarray) -> Aligned:
    """The mean over replicas of their vectors [K, n, E], each aligned to the first."""
    rotations = rotations_to_first([vectors])
    return Aligned(rotated_mean(vectors, rotations), rotations)


def rotations_to_first(groups: Iterable[np.ndarray]) -> np.ndarray:
    """The orthogonal R_k that minimise |U_k R_k - U_0|, [K, E, E] in the dtype of U.

    The first is the identity. Orthogonal Procrustes: `nearest_orthogonal`.

    Args:
      groups: U [K, n, E], as groups of examples, [K, m, E] each; one or more.
    """
    products: np.ndarray | None = None
    for each in groups:
        found = (each.mT @ each[0]).astype(np.float64)
        products = found if products is None else products + found
        dtype = each.dtype
    assert products is not None, "there are examples"
    rotations = nearest_orthogonal(products).astype(dtype)
    rotations[0] = np.eye(len(rotations[0]))
    return rotations


def rotated_mean(vectors: np.ndarray, rotations: np.ndarray) -> np.ndarray:
    """The mean [n, E] over replicas of their vectors [K, n, E] by their rotations."""
    return (vectors @ rotations).mean(axis=0)
