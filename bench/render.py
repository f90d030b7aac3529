"""Writes the tables of README.md, bench/README.md and docs from bench/results.

A table is between the lines `<!-- table: NAME -->`, with NAME of a file in
bench/results, and `<!-- end -->`. `<!-- table: NAME without "TEXT" -->` omits the
column of this name, or the rows that have this cell.
"""

import os
import re
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path

from bench.registry import collected
from bench.results import CHECKOUT, Results, Table, read_results

READMES = (
    CHECKOUT / "README.md",
    CHECKOUT / "bench" / "README.md",
    *sorted(CHECKOUT.glob("docs/how-to/*.md")),
)
TABLES: dict[str, Callable[[Results], Table]] = collected("TABLES")
"""Name of a file in bench/results -> the function that makes its table."""

_MARKED = re.compile(r"^<!-- table: (.*) -->\n(?:\|.*\n)*<!-- end -->$", re.M)
_MARKER = re.compile(r"^<!-- (?:table\b|end\b).*$", re.M)


def render_tables(check: bool = False) -> None:
    """Write the tables of README.md, bench/README.md and docs from bench/results.

    Args:
      check: change nothing; exit with 1 if a table differs from its results.
    """
    try:
        different = differences(READMES)
        if not check:
            render(READMES)
    except (OSError, ValueError) as error:
        raise SystemExit(f"bench: {error}") from error
    action = "differs from its results" if check else "written"
    for table in different:
        print(f"{table}: {action}")
    if check and different:
        raise SystemExit(1)


def render(readmes: Iterable[Path]) -> None:
    """Writes the tables between all markers of `readmes` from bench/results.

    Raises:
      ValueError: a marker is malformed.
    """
    for path in readmes:
        text = path.read_text(encoding="utf-8")
        _marked_tables(text)
        path.write_text(_MARKED.sub(_with_table, text), encoding="utf-8")


def differences(readmes: Iterable[Path]) -> list[str]:
    """README and marker of each table that differs from its results.

    Raises:
      ValueError: a marker is malformed.
    """
    return [
        f"{os.path.relpath(path)}: {marked[1]}"
        for path in readmes
        for marked in _marked_tables(path.read_text(encoding="utf-8"))
        if marked[0] != _with_table(marked)
    ]


def _marked_tables(text: str) -> list[re.Match[str]]:
    if alone := _MARKER.findall(_MARKED.sub("", text)):
        raise ValueError(
            "Between <!-- table: NAME --> and <!-- end --> must be a table and nothing"
            f" else, got {alone[0]} alone."
        )
    return [*_MARKED.finditer(text)]


def _with_table(marked: re.Match[str]) -> str:
    table = _make_table(marked[1]).markdown()
    return f"<!-- table: {marked[1]} -->\n{table}\n<!-- end -->"


def _make_table(marker: str) -> Table:
    name, *rest = shlex.split(marker) or [""]
    if name not in TABLES or rest[:1] not in ([], ["without"]):
        raise ValueError(
            'A marker must be `table: NAME` or `table: NAME without "TEXT"`, with a'
            f" NAME of `TABLES` in a file of bench, got `table: {marker}`."
        )
    return TABLES[name](read_results(name)).without(rest[1:])
