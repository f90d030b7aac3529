"""Benches are run from their command line, on small data, into a temporary folder."""

import gzip
import itertools
import json
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest

from bench import __main__, results
from bench.gpu.updates import write_encoded
from embedder.data.corpus import text_corpus
from embedder.data.encode import encode

NUM_TYPES = 60


class Ran(NamedTuple):
    """What a bench printed as a table, and the results that it wrote, by file name."""

    rows: list[list[str]]
    results: dict[str, dict[str, Any]]


@pytest.fixture(scope="session")
def small_data(tmp_path_factory) -> Path:
    """A folder like that of the real data sets, of words from `aa` to `ch`."""
    folder = tmp_path_factory.mktemp("data")
    words = [f"{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(NUM_TYPES)]
    rng = np.random.default_rng(0)
    lines = [" ".join(rng.choice(words, 20)) for _ in range(300)]
    text = "\n".join(lines).encode()
    (folder / "corpus.txt").write_bytes(text)
    for path in ("wiki/wiki17m-0.txt.gz", "small-text/lee_background.txt.gz"):
        (folder / path).parent.mkdir()
        (folder / path).write_bytes(gzip.compress(text))
    _write_scores(folder / "word-eval", words)
    _write_images(folder / "mnist", rng)
    _write_graph(folder / "graphs", rng)
    _write_sessions(folder / "wikispeedia" / "paths.parquet", rng)
    articles = [f"{i},T{i},c{i // 4}|all" for i in range(NUM_TYPES)]
    table = "\n".join(["item,title,categories", *articles])
    (folder / "wikispeedia" / "articles.csv").write_text(table)
    _write_baskets(folder / "online-retail" / "baskets.parquet", rng)
    _write_clicks(folder / "diginetica", rng)
    _write_images(folder / "fashion-mnist", np.random.default_rng(1))
    encoded = encode(text_corpus(folder / "corpus.txt"), 5)
    write_encoded(encoded, folder / "encoded.npz")
    vectors = [f"{word} {number} 1" for number, word in enumerate(words)]
    (folder / "vectors.txt").write_text("\n".join([f"{len(words)} 2", *vectors]))
    return folder


def _write_scores(folder: Path, words: list[str]) -> None:
    folder.mkdir()
    pairs = "".join(
        f"{a}\t{b}\t{n}\n" for n, (a, b) in enumerate(itertools.pairwise(words))
    )
    for name in ("wordsim353.tsv", "simlex999.tsv"):
        (folder / name).write_text(pairs)
    (folder / "questions-words.txt").write_text(f": all\n{' '.join(words[:4])}\n")


def _write_graph(folder: Path, rng, size: int = NUM_TYPES) -> None:
    """A ring of nodes with other edges as BlogCatalog, and one of 34 as the club."""
    folder.mkdir()
    club = "".join(f"{node + 1}\t{(node + 1) % 34 + 1}\n" for node in range(34))
    (folder / "karate.edges.tsv").write_text(club)
    ends = [(node, (node + 1) % size) for node in range(size)]
    ends += rng.integers(0, size, (2 * size, 2)).tolist()
    labels = [(node, label) for node in range(size) for label in (node % 3, 3)]
    for rows, name in ((ends, "edges"), (labels[::2] + labels[1:9:2], "labels")):
        text = "".join(f"{a}\t{b}\n" for a, b in rows)
        path = folder / f"blogcatalog.{name}.tsv.gz"
        path.write_bytes(gzip.compress(text.encode()))
    edges, labels = ("".join(f"{a}\t{b}\n" for a, b in x) for x in (ends, labels[::2]))
    (folder / "cora.edges.tsv").write_text(edges)
    (folder / "cora.labels.tsv").write_text(labels)


def _write_sessions(path: Path, rng, num: int = 600) -> None:
    """Sessions of six neighbours in a ring of items."""
    path.parent.mkdir()
    first = rng.integers(0, NUM_TYPES, num)
    item = (first[:, np.newaxis] + np.arange(6)) % NUM_TYPES
    session, order = np.repeat(np.arange(num), 6), np.tile(np.arange(6), num)
    columns = {"session": session, "item": item.reshape(-1), "order": order}
    pl.DataFrame(columns).write_parquet(path)


def _write_baskets(path: Path, rng, num: int = 600) -> None:
    """Sessions as of `_write_sessions`, on 30 days, with names as text."""
    _write_sessions(path, rng, num)
    frame = pl.read_parquet(path)
    day = pl.col("session") * 30 // num
    columns = pl.col("session", "item").cast(pl.String)
    frame.select(columns, timestamp=day * 86_400 + pl.col("order")).write_parquet(path)


def _write_clicks(folder: Path, rng) -> None:
    """Sessions as of `_write_sessions` to train on and to test, items from 1."""
    _write_sessions(folder / "train.parquet", rng)
    frame = pl.read_parquet(folder / "train.parquet").with_columns(pl.col("item") + 1)
    for name in "train", "test":
        frame.write_parquet(folder / f"{name}.parquet")


def _write_images(folder: Path, rng, num: int = 64) -> None:
    """Files in the format of MNIST; images of a class are alike."""
    folder.mkdir()
    labels = (np.arange(num) % 10).astype(np.uint8)
    means = rng.integers(0, 200, (10, 28, 28))
    images = (means[labels] + rng.integers(0, 50, (num, 28, 28))).astype(np.uint8)
    for array, name in ((images, "images-idx3"), (labels, "labels-idx1")):
        head = np.array([2048 + array.ndim, *array.shape], ">i4").tobytes()
        for part in ("train", "t10k"):
            (folder / f"{part}-{name}-ubyte").write_bytes(head + array.tobytes())


@pytest.fixture
def run_bench(small_data, tmp_path, monkeypatch, capsys):
    """A function that runs a bench by its name and the text of its arguments."""
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results")
    monkeypatch.setenv("EMBEDDER_DATA", str(small_data))

    def run(name: str, arguments: str = "") -> Ran:
        given = arguments.format(data=small_data, tmp=tmp_path)
        __main__.main([name, *shlex.split(given)])
        lines = [x for x in capsys.readouterr().out.splitlines() if x.startswith("| ")]
        rows = [line.strip("| ").split(" | ") for line in lines[2:]]
        written = (tmp_path / "results").glob("*.json")
        return Ran(rows, {path.stem: json.loads(path.read_text()) for path in written})

    return run
