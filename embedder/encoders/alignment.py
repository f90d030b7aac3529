"""The mean of the vectors of several networks, after their rotation onto the first.

Networks of other seeds have their own axes: their vectors are comparable only after an
orthogonal map.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from embedder.vectors.ensemble import nearest_orthogonal


class Aligned(NamedTuple):
    """The mean of aligned vectors, and the rotation of each replica."""

    mean: np.ndarray  # [n, E]
    rotations: np.ndarray  # [K, E, E], orthogonal; the first is the identity


def aligned_mean(vectors: Iterable[np.ndarray]) -> Aligned:
    """The mean over replicas of their vectors [n, E], each aligned to the first.

    Args:
      vectors: [K, n, E], or an iterator over replicas.
    """
    replicas = iter(vectors)
    first = next(replicas)
    rotations, total = [np.eye(first.shape[1], dtype=first.dtype)], first
    for each in replicas:
        rotations.append(rotation(each, first))
        total = total + each @ rotations[-1]
    return Aligned(total / first.dtype.type(len(rotations)), np.stack(rotations))


def rotated_mean(vectors: Iterable[np.ndarray], rotations: np.ndarray) -> np.ndarray:
    """The mean [n, E] of the vectors of each replica by its rotation."""
    pairs = zip(vectors, rotations, strict=True)
    total = sum(each @ matrix for each, matrix in pairs)
    return np.asarray(total / rotations.dtype.type(len(rotations)))


def rotation(vectors: np.ndarray, target: np.ndarray) -> np.ndarray:
    """The orthogonal R that minimises |vectors R - target|, [E, E] in their dtype."""
    product = (vectors.T @ target).astype(np.float64)
    return nearest_orthogonal(product).astype(vectors.dtype)
