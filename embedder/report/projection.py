"""Vectors in two dimensions: principal components, or t-SNE by openTSNE, which keeps
neighbours together and comes with the extra `report`."""

import contextlib
import logging
import os
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from embedder.base.threads import available_cores
from embedder.errors import is_installed
from embedder.report.nearest import Neighbors

NUM_NEIGHBORS = 15
"""Neighbours of each token that it is drawn to."""
_FEWEST = 100  # tokens; fewer are shown by their components
_MANY = 5_000  # tokens from which several threads are faster than one
_LONG = (250, 500)  # iterations with exaggerated forces, and without
_QUICK = (50, 150)
_POLICY = "OMP_WAIT_POLICY"


class Projection(NamedTuple):
    """Positions of a map, and how they were found."""

    positions: np.ndarray  # f32[P, 2]
    method: str  # for the user


def by_components(units: np.ndarray) -> Projection:
    """The first two principal components of unit vectors f[P, D].

    The method says which share of the variance they have. The largest loading of each
    is positive.

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


def has_tsne() -> bool:
    """Whether the extra `report` is installed."""
    return is_installed("openTSNE")


def best_projection(
    units: np.ndarray, neighbors: Neighbors, *, is_quick: bool = False
) -> Projection:
    """t-SNE of unit vectors f[P, D] with their neighbours, with about a quarter of the
    updates if it `is_quick`. Few tokens, or those without openTSNE, are placed
    `by_components`.

    Each token starts from its components, so that the whole keeps its shape, and is
    drawn with equal weights to its neighbours.

    Reference: van der Maaten and Hinton 2008, JMLR 9; Linderman et al. 2019, Nat.
    Methods 16 (forces by interpolation); Kobak and Berens 2019, Nat. Commun. 10 (the
    start); Böhm et al. 2022, JMLR 23, section 3 (equal weights of 15 neighbours).
    """
    components = by_components(units)
    if len(units) < _FEWEST or not has_tsne():
        return components
    with _waiting_asleep(), _without_lines():
        start = components.positions.astype(np.float64)
        positions = _tsne(start, neighbors, _QUICK if is_quick else _LONG)
    return Projection(positions, "t-SNE of their neighbours")


def _tsne(
    start: np.ndarray, neighbors: Neighbors, iterations: tuple[int, int]
) -> np.ndarray:
    """Positions f32[P, 2] from `start`, f64[P, 2]."""
    from openTSNE import TSNE
    from openTSNE.affinity import Uniform
    from openTSNE.nearest_neighbors import PrecomputedNeighbors

    near = PrecomputedNeighbors(neighbors.ids, 1 - neighbors.similarity)
    affinities = Uniform(knn_index=near, symmetrize="mean")
    start *= 1e-4 / max(start[:, 0].std(), 1e-30)
    exaggerated, others = iterations
    is_small = len(start) < _MANY
    tsne = TSNE(
        n_jobs=1 if is_small else available_cores(),  # few wait for each other
        random_state=0,
        early_exaggeration_iter=exaggerated,
        n_iter=others,
        negative_gradient_method="bh" if is_small else "fft",
    )
    positions = tsne.fit(affinities=affinities, initialization=start)
    return np.asarray(positions, np.float32)


@contextlib.contextmanager
def _waiting_asleep() -> Iterator[None]:
    """If the body loads OpenMP, its threads sleep while they wait, in place of keeping
    a core busy; a policy that the user has set stays."""
    if _POLICY in os.environ:
        yield
        return
    os.environ[_POLICY] = "passive"
    try:
        yield
    finally:
        os.environ.pop(_POLICY, None)


@contextlib.contextmanager
def _without_lines() -> Iterator[None]:
    """Keeps INFO lines of openTSNE out of the log of the user, who did not call it."""
    log = logging.getLogger("openTSNE")
    before = log.level
    if before == logging.NOTSET:
        log.setLevel(logging.WARNING)
    try:
        yield
    finally:
        log.setLevel(before)
