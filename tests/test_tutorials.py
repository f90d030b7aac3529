"""The tutorials run from their first command to their result, and the commands of the
page about looking, searching and handing on as written."""

import gzip
import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image

from embedder.cli.main import main
from tests.commands import SECONDS
from tests.test_readme import DOCS, ROOT, blocks

pytestmark = pytest.mark.slow
PAGES = sorted((DOCS / "tutorial").glob("*.md"))
PROGRAM = f'embedder() {{ {shlex.quote(sys.executable)} -m embedder "$@"; }}'
RESULTS = {
    "words": ("embedder-demo/report.html", "mine/vectors.txt"),
    "products": ("retail/report.html", "next.parquet", "retail.parquet"),
    "graph": ("novel/report.html", "scored/scores.json"),
}
"""Files that a page ends with."""
NUM_ROWS, NUM_LINES, NUM_IMAGES = 60_000, 300, 150
WORDS = "king", "man", "woman", "guitar"  # of the commands


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
    lines = [PROGRAM, *blocks(path, "shell")]
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
    book = nbformat.read(DOCS / "tutorial" / f"{name}.ipynb", as_version=4)
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


@pytest.fixture
def data(tmp_path) -> Path:
    """The first part of each data set, in files of the same names."""
    target, source = first_baskets(tmp_path), Path(os.environ["EMBEDDER_DATA"])
    for name in ("wiki", "fashion-mnist"):
        (target / name).mkdir()
    with gzip.open(source / "wiki/wiki17m-0.txt.gz", "rt", encoding="utf-8") as file:
        lines = [line for line, _ in zip(file, range(40_000), strict=False)]
    few = lines[:NUM_LINES]
    for word in WORDS:
        few += [line for line in lines if f" {word} " in line][:50]
    path = target / "wiki/wiki17m-0.txt.gz"
    path.write_bytes(gzip.compress("".join(few).encode()))
    for name, head, size in (("images-idx3", 16, 28 * 28), ("labels-idx1", 8, 1)):
        file_name = f"fashion-mnist/t10k-{name}-ubyte.gz"
        raw = gzip.decompress((source / file_name).read_bytes())
        cut = (
            raw[:4] + NUM_IMAGES.to_bytes(4, "big") + raw[8 : head + NUM_IMAGES * size]
        )
        (target / file_name).write_bytes(gzip.compress(cut))
    return target


def test_commands_after_a_training_write_what_they_say(
    data, tmp_path, monkeypatch, capfd
):
    for package in ("usearch", "bokeh"):
        pytest.importorskip(package)
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("EMBEDDER_DATA", str(data))
    (block,) = blocks(DOCS / "how-to" / "train-from-python.md", "shell")
    lines = [line for line in block.splitlines() if line.strip()]
    assert 12 <= sum("embedder" in line.split() for line in lines) <= 16
    for line in lines:
        run(line)
    shown = capfd.readouterr().out
    for name in ("wiki/report.html", "retail.html", "fashion/report.html"):
        assert Path(name).read_text(encoding="utf-8").startswith("<!doctype html")
    assert "Comparison of runs" in Path("retail.html").read_text(encoding="utf-8")
    near = pl.read_parquet("near.parquet")
    assert len(near) == 10 * len(Path("words.txt").read_text().split())
    with Image.open("sheet.png") as sheet:
        assert np.asarray(sheet).std() > 10
    assert "Procrustes" in shown or "cosine" in shown
    table = pl.read_parquet("retail.parquet")
    assert {"key", "vector", "count", "description"} <= {*table.columns}
    for name in ("retail.parquet", "fashion.stablehlo"):
        card = Path(f"{name}.README.md").read_text(encoding="utf-8")
        assert "exported by: embedder export " in card
    assert Path("wiki-st/README.md").exists()


def run(line: str) -> None:
    """A line of the section, of trainings with small settings; its exit code is 0."""
    words = shlex.split(os.path.expandvars(line), comments=True)
    if words[0] == "embedder":
        if words[1] == "train":
            is_encoder = "encoder" in words
            small = ["--network", "mlp"] if is_encoder else ["--vector-size", "16"]
            words += ["--epochs", "1", *small]
        assert main(words[1:]) == 0, line
        return
    subprocess.run(
        ["bash", "-c", f"{PROGRAM}\n{line}"],
        check=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        timeout=SECONDS,
    )
