"""The commands of the page about looking, searching and handing on run as written."""

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

TOKENS, ENCODER = ["--vector-size", "16"], ["--network", "mlp"]
NUM_LINES, NUM_ROWS, NUM_IMAGES = 300, 10_000, 150
WORDS = "king", "man", "woman", "guitar"  # of the commands


def section() -> list[str]:
    """The shell lines of the page, each with a command."""
    (block,) = blocks(DOCS / "how-to" / "train-from-python.md", "shell")
    return [line for line in block.splitlines() if line.strip()]


@pytest.fixture
def data(tmp_path) -> Path:
    """The first part of each data set, in files of the same names."""
    found = os.environ.get("EMBEDDER_DATA")
    if not found:
        pytest.skip("EMBEDDER_DATA does not name the folder of the data sets")
    source, target = Path(found), tmp_path / "data"
    for name in ("wiki", "online-retail", "fashion-mnist"):
        (target / name).mkdir(parents=True)
    with gzip.open(source / "wiki/wiki17m-0.txt.gz", "rt", encoding="utf-8") as file:
        lines = [line for line, _ in zip(file, range(40_000), strict=False)]
    few = lines[:NUM_LINES]
    for word in WORDS:
        few += [line for line in lines if f" {word} " in line][:50]
    path = target / "wiki/wiki17m-0.txt.gz"
    path.write_bytes(gzip.compress("".join(few).encode()))
    baskets = pl.read_parquet(source / "online-retail/baskets.parquet")
    baskets.head(NUM_ROWS).write_parquet(target / "online-retail/baskets.parquet")
    items = (source / "online-retail/items.csv").read_bytes()
    (target / "online-retail/items.csv").write_bytes(items)
    for name, head, size in (("images-idx3", 16, 28 * 28), ("labels-idx1", 8, 1)):
        file_name = f"fashion-mnist/t10k-{name}-ubyte.gz"
        raw = gzip.decompress((source / file_name).read_bytes())
        cut = (
            raw[:4] + NUM_IMAGES.to_bytes(4, "big") + raw[8 : head + NUM_IMAGES * size]
        )
        (target / file_name).write_bytes(gzip.compress(cut))
    return target


def test_they_run_and_write_what_they_say(data, tmp_path, monkeypatch, capfd):
    for package in ("usearch", "bokeh"):
        pytest.importorskip(package)
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("EMBEDDER_DATA", str(data))
    lines = section()
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
            small = ENCODER if "encoder" in words else TOKENS
            words += ["--epochs", "1", *small]
        assert main(words[1:]) == 0, line
        return
    program = f'embedder() {{ "{sys.executable}" -m embedder.cli.main "$@"; }}\n{line}'
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run(
        ["bash", "-c", program], check=True, env=environment, timeout=SECONDS
    )
