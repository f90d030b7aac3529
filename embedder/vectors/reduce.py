"""Smaller vectors: fewer dimensions, fewer bits, and how many neighbours they keep.

Axis letters: V keys, D dimensions, N principal components.
"""

import dataclasses
from typing import Literal, NamedTuple

import numpy as np

from embedder.errors import InputError
from embedder.vectors.ensemble import CHUNK_VALUES
from embedder.vectors.search import row_chunks
from embedder.vectors.vectors import Vectors, check_positive_integer

Dtype = Literal["float16", "int8"]
NUM_SAMPLED = 1000  # keys whose neighbours are compared
NUM_NEIGHBORS = 10
_LARGEST = 127  # of int8, also negative


class Packed(NamedTuple):
    """Vectors as they are stored."""

    values: np.ndarray  # [V, D]
    scales: np.ndarray | None = None  # f32[V] of int8: the vector is scale * values


class Kept(NamedTuple):
    """How many of the nearest neighbours smaller vectors keep."""

    share: float  # mean over keys, in [0, 1]
    num_neighbors: int
    num_keys: int


def pack(matrix: np.ndarray, dtype: Dtype | None) -> Packed:
    """f[V, D] in `dtype`; None: as it is.

    int8 has a scale for each row, its largest absolute value divided by 127, so that
    cosines depend on the shape of each row alone.

    Raises:
      InputError: a value is too large for `dtype`.
    """
    if dtype is None:
        return Packed(matrix)
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype == "float16":
            packed = Packed(matrix.astype(np.float16))
        else:
            largest = np.maximum(matrix.max(axis=1), -matrix.min(axis=1))
            scales = (largest / _LARGEST).astype(np.float32)
            levels = matrix / np.where(scales > 0, scales, 1)[:, None]
            levels = np.rint(levels).clip(-_LARGEST, _LARGEST)
            packed = Packed(levels.astype(np.int8), scales)
        is_finite = np.isfinite(unpack(packed))
    if not is_finite.all():
        wrong = matrix[~is_finite]  # of int8 also others of the row
        largest = wrong[np.abs(wrong).argmax()]
        raise InputError(f"`dtype` {dtype} cannot hold the value {largest}.")
    return packed


def unpack(packed: Packed) -> np.ndarray:
    """The vectors f[V, D] that a reader gets, float32 of float16 and int8."""
    values, scales = packed
    if scales is not None:
        return values.astype(np.float32) * scales[:, None]
    return values.astype(np.float32) if values.dtype == np.float16 else values


def rounded(vectors: Vectors, dtype: Dtype | None) -> Vectors:
    """`vectors` as a file in `dtype` holds them."""
    if dtype is None:
        return vectors
    return dataclasses.replace(vectors, matrix=unpack(pack(vectors.matrix, dtype)))


def principal(vectors: Vectors, num: int) -> Vectors:
    """`vectors` in the `num` directions in which they are longest, f[V, N].

    The directions are the eigenvectors with the largest eigenvalues of X^T X, X the
    matrix of vectors: principal components without a subtracted mean, which keep the
    inner products best (Eckart and Young 1936). The largest value of a direction is
    positive, so that equal vectors give equal results.

    Raises:
      InputError: `num` is below 1, or above D.
      InputTypeError: it is no integer.
    """
    check_positive_integer("pca", num)
    size = vectors.matrix.shape[1]
    if num > size:
        raise InputError(
            f"`pca` must be at most {size}, the dimensions of the vectors, got {num}."
        )
    largest = np.abs(vectors.matrix).max() or 1.0
    gram = np.zeros((size, size))
    for rows in row_chunks(vectors.matrix, CHUNK_VALUES):
        scaled = rows.astype(np.float64) / largest  # no square overflows
        gram += scaled.T @ scaled
    axes = np.linalg.eigh(gram).eigenvectors[:, ::-1][:, :num]  # [D, N]
    axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(num)])
    dtype, chunks = vectors.matrix.dtype, row_chunks(vectors.matrix, CHUNK_VALUES)
    matrix = [(x.astype(np.float64) @ axes).astype(dtype) for x in chunks]
    return dataclasses.replace(vectors, matrix=np.concatenate(matrix))


def kept_neighbors(full: Vectors, smaller: Vectors) -> Kept | None:
    """The share of the nearest neighbours in `full` that are so in `smaller`, too.

    Neighbours are by cosine and exact, of a random sample of keys.

    Args:
      full, smaller: of the same keys.

    Returns:
      None for a single key, which has no neighbour.
    """
    if len(full) < 2:
        return None
    num = min(NUM_SAMPLED, len(full))
    sample = np.random.default_rng(0).choice(len(full), num, replace=False)
    keys = [full.keys[row] for row in np.sort(sample)]
    before, _ = full.neighbors(keys, NUM_NEIGHBORS)
    after, _ = smaller.neighbors(keys, NUM_NEIGHBORS)
    same = (before[:, :, None] == after[:, None, :]).any(axis=2)
    return Kept(float(same.mean()), before.shape[1], num)
