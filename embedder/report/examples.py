"""The map of the embeddings of examples."""

from collections.abc import Sequence

import numpy as np

from embedder.report.points import Effort, Map, Source, make_map


def map_of_examples(
    keys: Sequence[str],
    matrix: np.ndarray,
    labels: Sequence[str] | None,
    effort: Effort,
) -> Map | None:
    """The map of a random sample of embeddings f[n, E]; None: there are too few."""
    num = min(len(keys), effort.points)
    rows = np.sort(np.random.default_rng(0).choice(len(keys), num, replace=False))
    source = Source(
        [keys[i] for i in rows],
        matrix[rows][np.newaxis],
        labels=labels and [labels[i] for i in rows],
        what="examples",
    )
    return make_map(source, effort)
