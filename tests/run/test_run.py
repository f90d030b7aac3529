"""Runs: what they leave, that they repeat, and when they are refused or stopped."""

import math

import numpy as np
import polars as pl
import pytest

from embedder.api.preview import preview
from embedder.api.train import train
from embedder.config import Config, read_toml, with_options
from embedder.disk.workdir import Workdir
from embedder.vectors.export import read_vectors
from tests.commands import json_lines

SETTINGS = {"loader": "memory", "vector_size": 4, "epochs": 2, "block": 64}
SMALL = with_options(Config(), **SETTINGS, blocks_per_update=1, min_count=2)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Workdir:
    """A finished run, which tests only read."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "text.txt").write_text("a b c a b a d d e\n" * 30)
    train(SMALL, folder / "run", str(folder / "text.txt"))
    return Workdir(folder / "run")


def test_train_leaves_every_file_it_names(finished):
    names = sorted(path.name for path in finished.path.iterdir())
    assert " ".join(names) == (
        "SHA256SUMS cache config.toml corpus.json metrics.jsonl model.npz "
        "progress.jsonl report.html tensorboard vectors.safetensors vectors.txt "
        "vocab.parquet"
    )
    frame = pl.read_parquet(finished.vocabulary)
    assert frame["token"].to_list() == ["a", "b", "d", "c", "e"]
    assert frame["count"].to_list() == [90, 60, 60, 30, 30]
    whole, text = read_vectors(finished.vectors), read_vectors(finished.text_vectors)
    assert whole.keys == text.keys == frame["token"].to_list()
    np.testing.assert_array_equal(whole.matrix, text.matrix, strict=True)
    assert whole.counts.tolist() == frame["count"].to_list()
    tables = read_toml(finished.config).tables
    assert (tables.block, tables.alpha, tables.max_pairs_per_row) == (64, 0.1, 16)


def test_train_writes_a_line_of_metrics_an_epoch(finished):
    lines = json_lines(finished.metrics)
    assert [line["epoch"] for line in lines] == [1, 2]
    assert [line["words"] for line in lines] == [270, 540]
    assert lines[-1]["alpha"] == pytest.approx(1e-4)
    assert 0 < lines[1]["loss"] <= lines[0]["loss"] <= 6 * math.log(2) + 1e-6


def test_train_uses_a_cache_elsewhere(finished, tmp_path):
    """As a preview does."""
    text, config = finished.path.parent / "text.txt", with_options(SMALL, epochs=0)
    for run in ("first", "second"):
        train(config, tmp_path / run, str(text), cache=tmp_path / "cache")
    assert "vocabulary: 5 tokens, 270 of 270" in preview(SMALL, str(text))
    preview(SMALL, str(text), cache=tmp_path / "cache")
    assert len(list((tmp_path / "cache").iterdir())) == 1
    assert not (tmp_path / "first" / "cache").exists()
