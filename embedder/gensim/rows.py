"""The rows of `KeyedVectors`, and the attributes of their keys."""

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import float32 as REAL

from embedder.gensim.similar import KEY_TYPES

_log = logging.getLogger("gensim.models.keyedvectors")


def add_rows(
    vectors: Any,
    keys: Any,
    weights: Any,
    extras: dict[str, np.ndarray],
    replace: bool,
) -> None:
    """See `KeyedVectors.add_vectors`."""
    if isinstance(keys, KEY_TYPES):
        keys, weights = [keys], np.asarray(weights).reshape(1, -1)
    weights = np.asarray(weights)
    dtypes = [extra.dtype for extra in extras.values()]
    allocate(vectors, [*extras], dtypes)
    is_known = np.array([key in vectors.key_to_index for key in keys], bool)
    old = [vectors.get_index(keys[i]) for i in np.flatnonzero(is_known)]
    for i in np.flatnonzero(~is_known):
        vectors.key_to_index[keys[i]] = len(vectors.index_to_key)
        vectors.index_to_key.append(keys[i])
    added = weights[~is_known].astype(vectors.vectors.dtype)
    vectors.vectors = np.vstack([vectors.vectors, added])
    allocate(vectors)
    first_new = len(vectors) - len(added)
    for name, extra in extras.items():
        vectors.expandos[name][first_new:] = extra[~is_known]
    if replace and old:
        vectors.vectors[old] = weights[is_known]
        for name, extra in extras.items():
            vectors.expandos[name][old] = extra[is_known]
    vectors.norms = None


def allocate(vectors: Any, attrs: Any = None, types: Any = None) -> None:
    """See `KeyedVectors.allocate_vecattrs`."""
    if attrs is None:
        attrs = [*vectors.expandos]
        types = [vectors.expandos[name].dtype for name in attrs]
    for name, given in zip(attrs, types, strict=True):
        dtype = {int: np.int64, str: object}.get(given, given)
        found = vectors.expandos.setdefault(name, np.zeros(len(vectors), dtype))
        if not np.issubdtype(dtype, found.dtype):
            raise TypeError(
                f"Can't allocate type {dtype} for attribute {name}, conflicts with "
                f"its existing type {found.dtype}"
            )
        if len(found) != len(vectors):
            resized = np.zeros(len(vectors), found.dtype)
            num = min(len(found), len(vectors))
            resized[:num] = found[:num]
            vectors.expandos[name] = resized


def sort_by_count(vectors: Any) -> None:
    """See `KeyedVectors.sort_by_descending_frequency`."""
    if not len(vectors):
        return
    counts = np.asarray(vectors.expandos["count"], np.int64)
    order = len(counts) - 1 - np.argsort(-counts[::-1], kind="stable")
    vectors.index_to_key = [vectors.index_to_key[row] for row in order.tolist()]
    vectors.key_to_index = {key: row for row, key in enumerate(vectors.index_to_key)}
    allocate(vectors)
    for name, array in vectors.expandos.items():
        vectors.expandos[name] = array[order]
    if len(vectors.vectors):
        _log.warning(
            "sorting after vectors have been allocated is expensive & error-prone"
        )
        vectors.vectors = vectors.vectors[order]
        vectors.norms = None


def row_factors(vectors: Any) -> np.ndarray:
    """`vectors_lockf` as a factor for each row, f32[V]; a shorter one is repeated."""
    given = np.asarray(getattr(vectors, "vectors_lockf", np.ones(1)), np.float32)
    return given[np.arange(len(vectors)) % len(given)]


def pseudorandom_weak_vector(
    size: int,
    seed_string: str | None = None,
    hashfxn: Callable[[str], int] = hash,
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
