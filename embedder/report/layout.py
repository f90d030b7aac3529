"""A map that keeps neighbours together, by a library of the extra `report`."""

import importlib.util
import os

import numpy as np

from embedder.report.nearest import Neighbors
from embedder.report.projection import Projection, by_components

NUM_NEIGHBORS = 15
"""Neighbours of each token that it is drawn to."""
_FEWEST = 100  # tokens; fewer are shown by their components


def has_tsne() -> bool:
    """Whether the extra `report` is installed."""
    return importlib.util.find_spec("openTSNE") is not None


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
    from openTSNE import TSNE
    from openTSNE.affinity import Uniform
    from openTSNE.nearest_neighbors import PrecomputedNeighbors

    near = PrecomputedNeighbors(neighbors.ids, 1 - neighbors.similarity)
    affinities = Uniform(knn_index=near, symmetrize="mean")
    start = components.positions.astype(np.float64)
    start *= 1e-4 / max(start[:, 0].std(), 1e-30)
    tsne = TSNE(n_jobs=os.cpu_count() or 1, random_state=0)
    found = tsne.fit(affinities=affinities, initialization=start)
    return Projection(np.asarray(found, np.float32), "t-SNE of their neighbours")
