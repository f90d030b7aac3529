"""Where benches find their data and leave what they measured."""

import datetime
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

RESULTS = Path(__file__).parent / "results"


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
    """Writes `results` with the date to bench/results/NAME.json."""
    RESULTS.mkdir(exist_ok=True)
    dated = {"date": datetime.date.today().isoformat(), **results}
    (RESULTS / f"{name}.json").write_text(json.dumps(dated, indent=1) + "\n")
