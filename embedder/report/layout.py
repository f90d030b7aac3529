"""A map by a library of the extra `report`; without it, by principal components."""

import numpy as np

from embedder.report.nearest import Neighbors
from embedder.report.projection import Projection, by_components


def best_projection(units: np.ndarray, neighbors: Neighbors) -> Projection:
    return by_components(units)
