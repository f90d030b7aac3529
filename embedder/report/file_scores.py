"""The scores of vectors on the file of `best_by`, with their intervals.

Values are those that `embedder evaluate RUN --pairs` or `--analogies` has.
"""

import numpy as np

from embedder.disk.files import short_reason
from embedder.errors import InputError
from embedder.evaluation.correlation import correlations
from embedder.evaluation.intervals import mean_estimates
from embedder.report.intervals import shown
from embedder.report.text import short
from embedder.vectors.evaluate import (
    AnalogyQuestions,
    ScoredPairs,
    is_analogies,
    looks_like_pairs,
)
from embedder.vectors.search import unit_rows
from embedder.vectors.vectors import Vectors

_HEAD = 1000  # lines that tell a similarity set
_CANDIDATES = 30_000  # of the answers, the most frequent tokens, as of `evaluate`

Rows = list[tuple[str, str]]
"""Names of scores, and their values with intervals."""


def file_scores(vectors: Vectors, path: str, products: float) -> tuple[Rows, str]:
    """The scores on a similarity set or on analogy questions, and a note: why there are
    none, as of labels; "": there are.

    Args:
      products: multiplications at most.
    """
    why = f"Scores on {short(path)} have no intervals here: "
    try:
        if is_analogies(path):
            rows = _of_analogies(vectors, path, products)
            return rows, "" if rows else f"{why}`embedder report RUN` computes them."
        if looks_like_pairs(path, _HEAD):
            return _of_pairs(vectors, path), ""
    except (OSError, InputError) as error:  # gone, or another one by now
        return [], f"{why}{short(short_reason(error))}."
    return [], f"{why}`embedder evaluate RUN --labels FILE` has them."


def _of_pairs(vectors: Vectors, path: str) -> Rows:
    pairs = ScoredPairs(path, vectors.keys)
    found = correlations(pairs.cosines(vectors.matrix), pairs.scores)
    of = f"of {len(pairs.scores):,} of {pairs.num_pairs:,} pairs"
    return [
        (f"Spearman {of}", shown(found.spearman)),
        (f"Pearson {of}", shown(found.pearson)),
    ]


def _of_analogies(vectors: Vectors, path: str, products: float) -> Rows:
    """[]: it takes more than `products`."""
    questions = AnalogyQuestions(path, vectors.keys, _CANDIDATES)
    questions.check_known()
    frequent = vectors.matrix[:_CANDIDATES]
    if 2.0 * questions.num_known * frequent.size > products:
        return []
    found = questions.answers(unit_rows(frequent))
    right = np.stack([found.is_right, found.is_nearest], axis=1)[found.is_known]
    model, nearest = mean_estimates(right.astype(np.float64))
    of = f"of {len(right):,} of {len(found.is_known):,} questions"
    return [
        (f"accuracy {of}", shown(model)),
        (f"accuracy {of} by the nearest to c alone", shown(nearest)),
    ]
