"""The tutorials run from their first command to their result."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from tests.commands import SECONDS
from tests.test_readme import ROOT, blocks

pytestmark = pytest.mark.slow
PAGES = sorted((ROOT / "docs" / "tutorial").glob("*.md"))
RESULTS = {
    "words": ("embedder-demo/report.html", "mine/vectors.txt"),
    "products": ("retail/report.html", "next.parquet", "retail.parquet"),
    "graph": ("novel/report.html", "scored/scores.json"),
}
"""Files that a page ends with."""
NUM_ROWS = 60_000


def test_each_page_has_a_result():
    assert {path.stem for path in PAGES} == {*RESULTS}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_commands_run_as_written(path, tmp_path):
    if path.stem == "graph":
        pytest.importorskip("networkx")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    if path.stem == "products":
        environment["EMBEDDER_DATA"] = str(first_baskets(tmp_path))
    program = f'embedder() {{ {shlex.quote(sys.executable)} -m embedder "$@"; }}'
    lines = [program, *blocks(path, "shell")]
    done = subprocess.run(
        ["bash", "-euc", "\n".join(lines)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr
    assert [x for x in RESULTS[path.stem] if not (tmp_path / x).exists()] == []


def first_baskets(folder: Path) -> Path:
    """A folder of data with the first baskets."""
    found = os.environ.get("EMBEDDER_DATA")
    if not found:
        pytest.skip("EMBEDDER_DATA does not name the folder of the data sets")
    source, target = Path(found) / "online-retail", folder / "data" / "online-retail"
    target.mkdir(parents=True)
    frame = pl.read_parquet(source / "baskets.parquet")
    frame.head(NUM_ROWS).write_parquet(target / "baskets.parquet")
    (target / "items.csv").write_bytes((source / "items.csv").read_bytes())
    return target.parent
