"""The items that a trained model expects after those of a session."""

from collections.abc import Collection
from pathlib import Path

import numpy as np

from embedder.evaluation.ranking import DECAY, by_vectors, check_decay
from embedder.tables.artefact import read_model
from embedder.vectors.spelling import check_known
from embedder.vectors.vectors import Vectors, check_positive_integer


def next_items(
    model: Path,
    session: tuple[str, ...],
    topn: int = 10,
    *,
    among: Collection[str] | None = None,
    decay: float = DECAY,
) -> list[tuple[str, float]]:
    """The `topn` items that a model file, with both tables, ranks first after a
    session, and their scores; see `ranked_items`. Of hierarchical softmax alone, which
    has no output rows of items, scores are cosines."""
    found = read_model(model)
    vectors = Vectors(found.tokens, found.input)
    return ranked_items(
        vectors, session, topn, output=found.token_output, among=among, decay=decay
    )


def ranked_items(
    vectors: Vectors,
    session: tuple[str, ...],
    topn: int = 10,
    *,
    output: np.ndarray | None = None,
    among: Collection[str] | None = None,
    decay: float = DECAY,
) -> list[tuple[str, float]]:
    """The `topn` items that are ranked first after those of a session, without these,
    and their scores; see `evaluation.ranking.by_vectors`.

    Args:
      session: the items, the newest last.
      output: output table, [V, D]; None: scores are cosines.
      among: only these items can be next; unknown ones are ignored.
      decay: as of `evaluation.ranking.recency_weights`.

    Raises:
      InputKeyError: an item is unknown.
      InputError: `topn` is not an integer >= 1, `decay` not in (0, 1], or none of
        `among` is known.
    """
    check_positive_integer("topn", topn)
    check_decay(decay)
    check_known(session, vectors.keys)
    rows = [vectors.index(item) for item in session]
    query = np.array(rows), np.array([len(rows)])
    scores = by_vectors(vectors.matrix, output, decay)(query)[0]
    scores[rows] = -np.inf
    hidden = vectors.outside(among)
    if hidden is not None:
        scores[hidden] = -np.inf
    num = min(topn, int((scores > -np.inf).sum()))
    best = np.argsort(-scores, kind="stable")[:num]
    return [(vectors.keys[row], float(scores[row])) for row in best]
