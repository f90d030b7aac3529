"""Data sets of benches, files of results, and tables."""

import datetime
import importlib.util
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable
from itertools import chain, compress
from pathlib import Path
from typing import Any, NamedTuple

from bench.systems import machine

CHECKOUT = Path(__file__).parents[1]
RESULTS = CHECKOUT / "bench" / "results"
CODE = "embedder", "legacy", "migration", "bench"

Results = dict[str, Any]
"""The content of a file in bench/results."""


class Table(NamedTuple):
    """A table of text."""

    columns: list[str]
    rows: list[list[str]]

    def without(self, names: list[str]) -> "Table":
        """The table without the columns `names`, and the rows with such a cell.

        Raises:
          ValueError: a name is neither a column nor a cell.
        """
        known = {*self.columns, *chain.from_iterable(self.rows)}
        if unknown := [name for name in names if name not in known]:
            raise ValueError(f"`without` must name columns or cells, got {unknown}.")
        kept = [name not in names for name in self.columns]
        rows = [row for row in self.rows if not {*row} & {*names}]
        columns, *rows = ([*compress(x, kept)] for x in (self.columns, *rows))
        return Table(columns, rows)

    def markdown(self) -> str:
        """The table as Markdown."""
        lines = [self.columns, ["---"] * len(self.columns), *self.rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def spread(values: Iterable[float], digits: int | None = None) -> str:
    """The median of `values`, and their range unless it prints as one number.

    Args:
      digits: decimals; None: 1 to 3, fewer for larger values.
    """
    values = sorted(values)
    if digits is None:
        digits = 1 if values[-1] >= 10 else 2 if values[-1] >= 1 else 3
    shown = values[0], statistics.median(values), values[-1]
    low, middle, high = (f"{value:.{digits}f}" for value in shown)
    return middle if low == high else f"{middle} ({low} to {high})"


def grouped(samples: list[dict[str, Any]], key: str) -> dict[Any, list[dict[str, Any]]]:
    """Value of `key` -> its samples, in the order of first appearance."""
    groups: dict[Any, list[dict[str, Any]]] = {}
    for sample in samples:
        groups.setdefault(sample[key], []).append(sample)
    return groups


def data_folder() -> Path:
    """The folder of data sets, from the environment variable EMBEDDER_DATA."""
    folder = os.environ.get("EMBEDDER_DATA")
    if not folder:
        raise SystemExit("bench: set EMBEDDER_DATA to the folder of the data sets.")
    return Path(folder)


def write_results(name: str, **results: Any) -> Results:
    """Writes `results`, date, commit and machine to bench/results/NAME.json.

    Returns the content of the file as read back.
    """
    RESULTS.mkdir(exist_ok=True)
    today = datetime.date.today().isoformat()
    about = {"date": today, "commit": commit(CHECKOUT), "machine": machine()}
    text = json.dumps(about | results, indent=1)
    (RESULTS / f"{name}.json").write_text(text + "\n")
    return read_results(name)


def read_results(name: str) -> Results:
    """The content of bench/results/NAME.json."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def write_picture(name: str, draw: Callable[[Path], None]) -> None:
    """Draws bench/results/NAME.png if matplotlib, which is optional, is installed."""
    if importlib.util.find_spec("matplotlib") is None:
        print(f"bench: {name}.png needs matplotlib, not drawn.", file=sys.stderr)
        return
    RESULTS.mkdir(exist_ok=True)
    draw(RESULTS / f"{name}.png")


def commit(checkout: Path) -> str:
    """Short hash of the commit of a checkout, with "dirty" if its code is changed.

    "unknown" if there is no checkout or no git.
    """
    code = *CODE, ":(exclude)bench/results"  # every bench writes there
    try:
        top, name = _git(checkout, "rev-parse", "--show-toplevel", "--short", "HEAD")
        changed = _git(
            checkout, "status", "--porcelain", "--untracked-files=no", "--", *code
        )
    except (OSError, ValueError, subprocess.CalledProcessError):
        return "unknown"
    if (
        Path(top).resolve() != checkout.resolve()
    ):  # `checkout` is inside another repository
        return "unknown"
    return f"{name} dirty" if changed else name


def _git(checkout: Path, *arguments: str) -> list[str]:
    """Output lines of git."""
    return subprocess.run(
        ["git", "-C", str(checkout), *arguments],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
