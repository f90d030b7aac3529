"""The items that a trained model expects after those of a session."""

from collections.abc import Collection
from pathlib import Path

import numpy as np

from embedder.tables.artefact import read_model
from embedder.vectors.spelling import check_known
from embedder.vectors.vectors import Vectors, check_positive_integer


def next_items(
    model: Path,
    session: tuple[str, ...],
    topn: int = 10,
    *,
    among: Collection[str] | None = None,
) -> list[tuple[str, float]]:
    """The `topn` items with the highest mean v_i.u_c over the items i of a session, and
    these scores, as `evaluation.ranking.next_item` ranks; items of the session are
    excluded.

    Args:
      model: a model file, which has both tables.
      among: only these items can be next; unknown ones are ignored.

    Raises:
      InputKeyError: an item is unknown.
      InputError: `topn` is not an integer >= 1, none of `among` is known, or the file
        is damaged.
    """
    check_positive_integer("topn", topn)
    found = read_model(model)
    check_known(session, found.tokens)
    vectors = Vectors(found.tokens, found.input)
    rows = [vectors.index(item) for item in session]
    scores = found.output @ found.input[rows].mean(axis=0)
    scores[rows] = -np.inf
    hidden = vectors.outside(among)
    if hidden is not None:
        scores[hidden] = -np.inf
    num = min(topn, int((scores > -np.inf).sum()))
    best = np.argsort(-scores, kind="stable")[:num]
    return [(found.tokens[row], float(scores[row])) for row in best]
