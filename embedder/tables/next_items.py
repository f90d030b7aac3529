"""The items that a trained model expects after those of a session."""

from pathlib import Path

import numpy as np

from embedder.tables.artefact import read_model
from embedder.vectors.spelling import check_known
from embedder.vectors.vectors import check_positive_integer


def next_items(
    model: Path, session: tuple[str, ...], topn: int = 10
) -> list[tuple[str, float]]:
    """The `topn` items with the highest mean v_i.u_c over the items i of a session, and
    these scores, as `heldout.next_item` ranks; items of the session are excluded.

    Args:
      model: a model file, which has both tables.

    Raises:
      InputKeyError: an item is unknown.
      InputError: `topn` is not an integer >= 1, or the file is damaged.
    """
    check_positive_integer("topn", topn)
    found = read_model(model)
    check_known(session, found.tokens)
    row_of = {token: row for row, token in enumerate(found.tokens)}
    rows = [row_of[item] for item in session]
    scores = found.output @ found.input[rows].mean(axis=0)
    scores[rows] = -np.inf
    num = min(topn, len(scores) - len({*rows}))
    best = np.argsort(-scores, kind="stable")[:num]
    return [(found.tokens[row], float(scores[row])) for row in best]
