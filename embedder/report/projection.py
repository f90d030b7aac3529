"""Vectors in two dimensions."""

from typing import NamedTuple

import numpy as np


class Projection(NamedTuple):
    """Positions of a map, and how they were found."""

    positions: np.ndarray  # f32[P, 2]
    method: str  # for the user


def by_components(units: np.ndarray) -> Projection:
    """The first two principal components of unit vectors f[P, D].

    The method says which share of the variance they have. Signs are such that the
    loading of the largest size is positive.

    Reference: Hotelling 1933, J. Educ. Psychol. 24.
    """
    centred = units.astype(np.float64) - units.mean(axis=0, dtype=np.float64)
    values, axes = np.linalg.eigh(centred.T @ centred)
    axes = axes[:, ::-1][:, :2]
    largest = np.abs(axes).argmax(axis=0)
    axes = axes * np.where(axes[largest, np.arange(axes.shape[1])] < 0, -1.0, 1.0)
    positions = centred @ axes
    if positions.shape[1] < 2:  # vectors of one number
        positions = np.pad(positions, ((0, 0), (0, 1)))
    total = values.sum()
    share = values[::-1][:2].sum() / total if total > 0 else 0.0
    method = f"principal components, which have {100 * share:.0f} % of the variance"
    return Projection(positions.astype(np.float32), method)
