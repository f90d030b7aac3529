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


@pytest.mark.parametrize("name", RESULTS)
def test_notebooks_print_as_many_lines_as_before(
    name, tmp_path, run_notebook, monkeypatch
):
    nbformat = pytest.importorskip("nbformat", reason="needs the extra `dev`")
    if name == "graph":
        pytest.importorskip("networkx")
    if name == "products":
        monkeypatch.setenv("EMBEDDER_DATA", str(first_baskets(tmp_path)))
    book = nbformat.read(ROOT / "docs" / "tutorial" / f"{name}.ipynb", as_version=4)
    expected = [num_lines(cell) for cell in book.cells]
    run_notebook(book)
    assert [num_lines(cell) for cell in book.cells] == expected


def num_lines(cell) -> int:
    """Lines that a cell prints; of another output, or an error, -1."""
    outputs = cell.get("outputs", [])
    if any(output.output_type != "stream" for output in outputs):
        return -1
    printed = [each.text for each in outputs if each.name == "stdout"]
    return "".join(printed).count("\n")


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
