"""Reads labels of nodes: lines of a node and its labels."""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from embedder.disk.files import name_file_in_errors
from embedder.errors import InputError, check_installed
from embedder.limits import check_room
from embedder.vectors.vectors import short_repr

_MAX_LINE = 2**20  # bytes
_HEADS = {"node", "id", "key", "name"}  # of a header line, in lower case


class Labels(NamedTuple):
    """The labels of nodes."""

    rows: np.ndarray  # i64[N], numbers of the nodes that have one, ascending
    has_label: np.ndarray  # bool[N, C]
    names: list[str]  # [C], sorted
    num_unknown: int  # nodes of the file that are not known


def read_labels(path: Path, keys: list[str]) -> Labels:
    """The labels of the nodes `keys` in a file.

    A line is a node and one label or more, separated by tabs, commas, semicolons or
    white space; the lines of a node add up. Empty lines and lines that start with # or
    % are skipped, and so is a first line that starts with node, id, key or name, unless
    that is a node.

    Raises:
      InputError: a line has no label; there are fewer than two labels of known nodes,
        or more than fit in memory; or scikit-learn, which predicts them, is missing.
      OSError: the file cannot be read.
    """
    check_installed("sklearn", f"A score of the labels in {path}")
    ids = {key: i for i, key in enumerate(keys)}
    found: dict[str, set[int]] = {}
    unknown: set[str] = set()
    for number, line in _numbered_lines(path):
        node, *labels = _cells(line)
        if number == 1 and node.lower() in _HEADS and node not in ids:
            continue
        if not labels:
            raise InputError(
                f"{path} line {number}: must be a node and its labels, got "
                f"{short_repr(line)}."
            )
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
    rows = np.flatnonzero(has_label.any(axis=1))
    return Labels(rows, has_label[rows], names, len(unknown))


def _cells(line: str) -> list[str]:
    for separator in "\t,;":
        if separator in line:
            return [cell.strip() for cell in line.split(separator) if cell.strip()]
    return line.split()


def _numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The number, from 1, and the text of each line that is not empty."""
    with name_file_in_errors(path):
        with open(path, "rb") as file:
            is_packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if is_packed else open(path, "rb") as file:
            number = 0
            try:
                while line := file.readline(_MAX_LINE + 1):
                    number += 1
                    if len(line) > _MAX_LINE:
                        raise InputError(
                            f"{path} line {number}: is longer than {_MAX_LINE} bytes."
                        )
                    text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
                    if text and text[0] not in "#%" and _cells(text):
                        yield number, text
            except UnicodeDecodeError as error:
                raise InputError(f"{path} is not UTF-8 text: {error}.") from error
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise InputError(f"{path} is not a whole .gz file: {error}.") from error
