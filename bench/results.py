"""Where benches find their data and leave what they measured."""

import datetime
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

CHECKOUT = Path(__file__).parents[1]
RESULTS = CHECKOUT / "bench" / "results"
CODE = "embedder", "legacy", "migration", "bench"


class Table(NamedTuple):
    """A table of text."""

    columns: list[str]
    rows: list[list[str]]

    def markdown(self) -> str:
        """The table as Markdown."""
        lines = [self.columns, ["---"] * len(self.columns), *self.rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def data_folder() -> Path:
    """The folder of real data that the variable EMBEDDER_DATA names."""
    folder = os.environ.get("EMBEDDER_DATA")
    if not folder:
        raise SystemExit("bench: set EMBEDDER_DATA to the folder of the data sets.")
    return Path(folder)


def write_results(name: str, **results: Any) -> None:
    """Writes `results` with date and commit to bench/results/NAME.json."""
    RESULTS.mkdir(exist_ok=True)
    today = datetime.date.today().isoformat()
    dated = {"date": today, "commit": commit(CHECKOUT), **results}
    (RESULTS / f"{name}.json").write_text(json.dumps(dated, indent=1) + "\n")


def write_picture(name: str, draw: Callable[[Path], None]) -> None:
    """Draws bench/results/NAME.png where matplotlib is installed: it is an extra."""
    if importlib.util.find_spec("matplotlib") is None:
        print(f"bench: {name}.png needs matplotlib, not drawn.", file=sys.stderr)
        return
    RESULTS.mkdir(exist_ok=True)
    draw(RESULTS / f"{name}.png")


def commit(checkout: Path) -> str:
    """Short hash of the commit of a checkout, and "dirty" where its code is changed.

    "unknown" where there is no checkout or no git.
    """
    code = *CODE, ":(exclude)bench/results"  # every bench changes those
    try:
        top, name = _git(checkout, "rev-parse", "--show-toplevel", "--short", "HEAD")
        changed = _git(
            checkout, "status", "--porcelain", "--untracked-files=no", "--", *code
        )
    except (OSError, ValueError, subprocess.CalledProcessError):
        return "unknown"
    if Path(top).resolve() != checkout.resolve():  # a repository that holds another
        return "unknown"
    return f"{name} dirty" if changed else name


def _git(checkout: Path, *arguments: str) -> list[str]:
    """Lines that git prints."""
    return subprocess.run(
        ["git", "-C", str(checkout), *arguments],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
