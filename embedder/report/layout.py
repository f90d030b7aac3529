"""A map that keeps neighbours together, by a library of the extra `report`."""

import contextlib
import logging
import os
from collections.abc import Iterator

import numpy as np

from embedder.errors import is_installed
from embedder.report.nearest import Neighbors
from embedder.report.projection import Projection, by_components
from embedder.threads import available_cores

NUM_NEIGHBORS = 15
"""Neighbours of each token that it is drawn to."""
_FEWEST = 100  # tokens; fewer are shown by their components
_MANY = 5_000  # tokens from which several threads are faster than one
_POLICY = "OMP_WAIT_POLICY"


def has_tsne() -> bool:
    """Whether the extra `report` is installed."""
    return is_installed("openTSNE")


def best_projection(units: np.ndarray, neighbors: Neighbors) -> Projection:
    """t-SNE of unit vectors f[P, D] with their neighbours; of few tokens, or without
    openTSNE, `by_components`.

    Each token is drawn with equal weights to its neighbours, and starts from its
    components, so that the whole keeps its shape.

    Reference: van der Maaten and Hinton 2008, JMLR 9; Linderman et al. 2019, Nat.
    Methods 16 (forces by interpolation); Kobak and Berens 2019, Nat. Commun. 10 (the
    start); Böhm et al. 2022, JMLR 23, section 3 (equal weights of 15 neighbours).
    """
    components = by_components(units)
    if len(units) < _FEWEST or not has_tsne():
        return components
    with _waiting_asleep(), _without_lines():
        positions = _tsne(components.positions.astype(np.float64), neighbors)
    return Projection(positions, "t-SNE of their neighbours")


def _tsne(start: np.ndarray, neighbors: Neighbors) -> np.ndarray:
    """Positions f32[P, 2] from `start`, f64[P, 2]."""
    from openTSNE import TSNE
    from openTSNE.affinity import Uniform
    from openTSNE.nearest_neighbors import PrecomputedNeighbors

    near = PrecomputedNeighbors(neighbors.ids, 1 - neighbors.similarity)
    affinities = Uniform(knn_index=near, symmetrize="mean")
    start *= 1e-4 / max(start[:, 0].std(), 1e-30)
    tsne = TSNE(n_jobs=num_jobs(len(start)), random_state=0)
    found = tsne.fit(affinities=affinities, initialization=start)
    return np.asarray(found, np.float32)


def num_jobs(num_tokens: int) -> int:
    """Threads for a map: one of few tokens, since they wait for each other."""
    if num_tokens < _MANY:
        return 1
    return available_cores()


@contextlib.contextmanager
def _waiting_asleep() -> Iterator[None]:
    """Threads of OpenMP, if it is loaded in the body, sleep while they wait for others
    in place of keeping a core busy; a policy that the user has set stays."""
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
