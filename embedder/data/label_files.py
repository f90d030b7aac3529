"""Files of labels of nodes."""

import re
from collections.abc import Container, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from embedder.base.limits import check_room
from embedder.base.threads import use_threads
from embedder.data.tables.reader import read_rows
from embedder.data.tables.text_form import Roles, plain_name
from embedder.errors import InputError, check_installed
from embedder.vectors.vectors import short_repr

_USUAL = {
    "node": ("node", "id", "key", "name", "vertex", "item", "word", "token"),
    "label": ("label", "labels", "class", "category", "community", "group", "club"),
}
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
    or name, unless that is a node, is a header: columns with usual names, as node and
    label, are taken, else the first is the node and all others are labels.

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
    rows = [*_rows(path, ids)]
    are_floats = all(_FLOAT.fullmatch(node) and node not in ids for node, _ in rows)
    for node, labels in rows:
        if are_floats:  # integers that a program made floats
            node = node.partition(".")[0]
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
    return Labels(labelled, has_label[labelled], names, len(unknown))


def _rows(path: Path, nodes: Container[str]) -> Iterator[tuple[str, list[str]]]:
    """The node and the labels of each row."""

    def is_header(rows: list[list[str]]) -> bool:
        names = map(plain_name, rows[0])
        return any(
            name in _USUAL["node"] and cell not in nodes
            for name, cell in zip(names, rows[0], strict=True)
        )

    names, rows = read_rows(path, Roles(_USUAL, is_header=is_header, blanks=True))
    node, labels = _places(names)
    for number, cells in rows:
        found = [x for k, x in enumerate(cells) if x and k != node]
        if labels and len(cells) == len(names):
            found = [cells[k] for k in labels if cells[k]]
        if len(cells) <= node or not cells[node] or not found:
            raise InputError(
                f"{path} line {number}: must be a node and its labels, got "
                f"{short_repr(' '.join(cells))}."
            )
        yield cells[node], found


def _places(names: list[str]) -> tuple[int, list[int]]:
    """Where the node is in a row, and where its labels are; []: all other cells."""
    nodes, labels = (
        [k for k, name in enumerate(names) if plain_name(name) in _USUAL[kind]]
        for kind in ("node", "label")
    )
    return next(iter(nodes), 0), labels
