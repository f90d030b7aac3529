"""Files of labels of nodes."""

import logging
import re
from collections.abc import Container
from pathlib import Path
from typing import NamedTuple

import numpy as np

from embedder.base.limits import check_room
from embedder.base.threads import use_threads
from embedder.data.tables.reader import read_rows
from embedder.data.tables.text_form import Roles, plain_name
from embedder.errors import InputError, check_installed
from embedder.vectors.vectors import short_repr

_log = logging.getLogger(__name__)
_USUAL = {
    "node": ("node", "id", "key", "name", "vertex", "item", "word", "token"),
    "label": ("label", "labels", "class", "category", "community", "group", "club"),
}
_INDEX = "column_1", "Unnamed: 0", "__index_level_0__"
"""Names that an index of pandas has in files; none is its own in CSV."""

_FLOAT = re.compile(r"-?\d+\.0+")


class Labels(NamedTuple):
    """The labels of nodes."""

    rows: np.ndarray  # i64[N], numbers of the nodes that have one, ascending
    has_label: np.ndarray  # bool[N, C]
    names: list[str]  # [C], sorted
    num_unknown: int  # nodes of the file that are not known


def read_labels(path: Path, keys: list[str]) -> Labels:
    """The labels of the nodes `keys` in a file.

    A row is a node and one label or more; the rows of a node add up. Text has them
    separated by tabs, commas, semicolons or white space. A first row with node, id, key
    or name, unless that is a node, is a header, and so is one whose first cell is
    empty: columns with usual names, as node and label, are taken, else the first is the
    node and all others are labels. An index of pandas is the node where no other column
    is.

    Raises:
      InputError: a line has no label; there are fewer than two labels of known nodes,
        or more than fit in memory; or scikit-learn, which predicts them, is missing.
      OSError: the file cannot be read.
    """
    check_installed("sklearn", f"A score of the labels in {path}")
    ids = {key: i for i, key in enumerate(keys)}
    found: dict[str, set[int]] = {}
    unknown: set[str] = set()
    use_threads()
    rows = _rows(path, ids)
    are_floats = all(_FLOAT.fullmatch(node) and node not in ids for node, _ in rows)
    for node, labels in rows:
        if are_floats:
            node = _integer(node)
        if node not in ids:
            unknown.add(node)
            continue
        for label in labels:
            found.setdefault(label, set()).add(ids[node])
    if len(found) < 2:
        raise InputError(
            f"`labels` {path} must have 2 labels or more of known nodes, got "
            f"{len(found)}; unknown nodes: {len(unknown)}."
        )
    names = sorted(found)
    what = f"{len(names)} labels of {len(keys)} nodes in {path} take"
    check_room(len(names) * len(keys), what, "give a file with fewer labels")
    has_label = np.zeros((len(keys), len(names)), bool)
    for column, name in enumerate(names):
        has_label[[*found[name]], column] = True
    labelled = np.flatnonzero(has_label.any(axis=1))
    if len(names) >= len(labelled) > 2:
        text = "%s has %d labels for %d nodes: is a column no label?"
        _log.warning(text, path, len(names), len(labelled))
    return Labels(labelled, has_label[labelled], names, len(unknown))


def _rows(path: Path, nodes: Container[str]) -> list[tuple[str, list[str]]]:
    """The node and the labels of each row."""

    def is_header(rows: list[list[str]]) -> bool:
        if not rows[0][0]:  # pandas' index has no name there
            return True
        names = map(plain_name, rows[0])
        return any(
            name in _USUAL["node"] and cell not in nodes
            for name, cell in zip(names, rows[0], strict=True)
        )

    roles = Roles(_USUAL, asked=_INDEX, is_header=is_header, blanks=True)
    names, numbered = read_rows(path, roles)
    if len(names) == 1:
        raise InputError(
            f"`labels` {path} must have columns of nodes and of labels, got {names[0]} "
            "alone: write an index of pandas as a column, by reset_index()."
        )
    rows = [*numbered]
    node, others = _places(names, [cells for _, cells in rows], nodes)
    pairs = []
    for number, cells in rows:
        found = [x for k, x in enumerate(cells) if x and k != node]
        if others and len(cells) == len(names):
            found = [cells[k] for k in others if cells[k]]
        if len(cells) <= node or not cells[node] or not found:
            raise InputError(
                f"{path} line {number}: must be a node and its labels, got "
                f"{short_repr(' '.join(cells))}."
            )
        pairs.append((cells[node], found))
    return pairs


def _integer(cell: str) -> str:
    """The integer that a program made a float, else the cell."""
    return cell.partition(".")[0] if _FLOAT.fullmatch(cell) else cell


def _places(
    names: list[str], rows: list[list[str]], known: Container[str]
) -> tuple[int, list[int]]:
    """Where the node is in a row, and where its labels are; []: all other cells.

    An index of pandas is the node, unless a column is called so or has more nodes that
    are known.
    """
    nodes, labels = (
        [k for k, name in enumerate(names) if plain_name(name) in _USUAL[kind]]
        for kind in ("node", "label")
    )
    index = next((k for k, name in enumerate(names) if name in _INDEX), None)
    if index is None:
        return next(iter(nodes), 0), labels
    others = [k for k in range(len(names)) if k != index]
    if not nodes:

        def num_known(column: int) -> int:
            cells = [row[column] for row in rows if len(row) > column]
            return sum(x in known or _integer(x) in known for x in cells)

        nodes = [max(others[0], index, key=num_known)]
    return nodes[0], labels or [k for k in others if k != nodes[0]]
