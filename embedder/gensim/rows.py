"""How rows of `KeyedVectors` start, and the factors of their rates."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import float32 as REAL


def row_factors(vectors: Any) -> np.ndarray:
    """`vectors_lockf` as a factor for each row, f32[V]; a shorter one is repeated."""
    factors = np.asarray(getattr(vectors, "vectors_lockf", np.ones(1)), np.float32)
    return factors[np.arange(len(vectors)) % len(factors)]


def pseudorandom_weak_vector(
    size: int, seed_string: str | None = None, hashfxn: Callable[[str], int] = hash
) -> np.ndarray:
    """A vector uniform in [-0.5, 0.5) / size, drawn by the hash of a text if given."""
    source = np.random.SFC64()
    if seed_string:
        source = np.random.SFC64(hashfxn(seed_string) & 0xFFFFFFFF)
    return (np.random.Generator(source).random(size).astype(REAL) - 0.5) / size


def prep_vectors(
    target_shape: tuple[int, int],
    prior_vectors: np.ndarray | None = None,
    seed: int | None = 0,
    dtype: Any = REAL,
) -> np.ndarray:
    """Vectors [V, D] that begin with `prior_vectors`, the rest uniform in [-1, 1) / D.

    These are the numbers that gensim draws from `seed`.
    """
    if prior_vectors is not None and prior_vectors.shape == target_shape:
        return prior_vectors
    rng = np.random.default_rng(seed)
    vectors = (rng.random(target_shape, dtype) * 2 - 1) / target_shape[1]
    if prior_vectors is not None and prior_vectors.size:
        vectors[: len(prior_vectors), : prior_vectors.shape[1]] = prior_vectors
    return vectors.astype(dtype, copy=False)
