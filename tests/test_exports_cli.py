"""`embedder export` by format: cards of runs, smaller vectors, what is refused."""

import inspect
import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from embedder.arguments import Export
from embedder.cli import main
from embedder.vectors.export import format_names, keys_path, read_vectors
from tests.commands import error_line

FAST = ["--loader", "memory", "--min-count", "1", "--vector-size", "12"]
FAST += ["--backend", "numba"]
TEXT = "the quick brown fox jumps over the lazy dog and runs\n" * 60
REFUSED = [
    # arguments after RUN, a part of the message, row of the matrix
    ("B53", "tokens --to x --format csv", "`format` must be one of word2vec, fasttext"),
    ("B53", "tokens --to x --format csv", "onnx, stablehlo, got 'csv'."),
    ("B53", "tokens --to x.npz --format glove", "must end in .txt, .vec, .txt.gz or "),
    ("B53", "tokens --to x --format onnx", "`to` must end in .onnx with `format` onnx"),
    ("B53", "tokens --to x.stablehlo", "`to` .stablehlo applies only to an encoder"),
    ("B53", "encoder --to x --format model2vec", "only to vectors of tokens, got the"),
    ("B53", "encoder --to x --format sentence-transformers", "got the run of an encod"),
    ("B53", "encoder --to x.stablehlo --names n.csv", "`names` goes with neither"),
    ("B53", "several --to x.npz --replicas --format npz", "`format` goes with neither"),
    ("B53", "several --to x.csv --stability 3 --dtype int8", "`dtype` goes with neith"),
    ("B53", "encoder --to x.parquet --predictions --pca 2", "`pca` goes with neither"),
    (
        "B53",
        "tokens --to x --format model2vec --names n.csv",
        "Names can be written on",
    ),
    (
        "B54",
        "tokens --to x.npz --pca 13",
        "`pca` must be at most 12, the dimensions of",
    ),
    ("B54", "tokens --to x.npz --pca 0", "`pca` must be an integer >= 1, got 0."),
    (
        "B54",
        "tokens --to x.txt --dtype int8",
        "`dtype` must fit `format` word2vec, got",
    ),
    ("B54", "tokens --to x.npz --dtype int4", "int4"),
    ("B54", "encoder --to x.stablehlo --pca 2", "`pca` applies only to vectors, got 2"),
    ("B54", "encoder --to x.onnx --dtype int8", "`dtype` applies only to vectors, got"),
    (
        "B55",
        "tokens --to tokens --format model2vec",
        "must be new with `format` model2",
    ),
    ("B55", "tokens --to none/x --format model2vec", "none does not exist."),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("exports")
    (folder / "secret-place").mkdir()
    text = folder / "secret-place" / "te`xt.txt"
    text.write_text(TEXT)
    x = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    np.savez(folder / "points.npz", X=x, y=np.arange(30) % 3)
    (folder / "n.csv").write_text("key,name\nthe,Article\n")
    encoder = ["--model", "encoder", "--loader", "memory", "--epochs", "1"]
    scored = ["--holdout", "0.2", "--window", "3", "--epochs", "2"]
    for name, data, options in (
        ("tokens", text, [*FAST, *scored]),
        ("several", text, [*FAST, "--replicas", "2", "--epochs", "0"]),
        ("encoder", folder / "points.npz", encoder),
    ):
        run = ["--workdir", str(folder / name), *options]
        assert main(["train", str(data), *run]) == 0
    return folder


@pytest.fixture(autouse=True)
def here(folder, tmp_path, monkeypatch):
    """A new folder with links to the runs."""
    for path in folder.iterdir():
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)


def export(*arguments: str) -> int:
    return main(["export", *arguments])


# --- refused


@pytest.mark.spread(8)
@pytest.mark.row("B53", "B54", "B55")
@pytest.mark.parametrize(
    ("arguments", "message"), [pytest.param(*each[1:], id=each[1]) for each in REFUSED]
)
def test_bad_input_is_one_line(capsys, arguments, message):
    before = {*Path().iterdir()}
    assert export(*arguments.split()) == 2
    assert message in error_line(capsys)
    assert {*Path().iterdir()} == before


@pytest.mark.row("B55")
def test_a_folder_that_exists_is_refused_and_kept(capsys):
    assert export("tokens", "--to", "m", "--format", "model2vec") == 0
    before = Path("m/config.json").stat().st_mtime_ns
    assert export("tokens", "--to", "m", "--format", "model2vec") == 2
    assert "must be new with `format` model2vec, got m: delete" in error_line(capsys)
    assert Path("m/config.json").stat().st_mtime_ns == before


# --- written


def test_the_card_has_the_facts_of_the_run():
    assert export("tokens", "--to", "m", "--format", "model2vec", "--pca", "5") == 0
    card = Path("m/README.md").read_text(encoding="utf-8")
    (facts,) = re.findall(r"## Training\n\n```text\n(.*?)\n```", card, re.DOTALL)
    lines = facts.splitlines()
    assert re.fullmatch(r"embedder \d.*", lines[0])
    assert f"corpus: te`xt.txt, {len(TEXT):,} bytes" in lines
    vocabulary = pl.read_parquet("tokens/vocab.parquet")["count"].sum()
    assert f"occurrences of these tokens in the corpus: {vocabulary:,}" in lines
    settings = dict(
        line.removeprefix("setting: ").split(" = ")
        for line in lines
        if line.startswith("setting: ")
    )
    assert settings == {
        "backend": "'numba'",
        "window": "3",
        "min_count": "1",
        "vector_size": "12",
        "epochs": "2",
        "holdout": "0.2",
    }
    last = json.loads(Path("tokens/metrics.jsonl").read_text().splitlines()[-1])
    assert f"held-out score at epoch 2: held_out {last['held_out']:.4g}" in lines
    assert f"loss at epoch 2: {last['loss']:.4g}" in lines
    assert "dimensions: 5 principal components of 12" in lines
    assert "secret-place" not in card


def test_the_card_of_a_file_of_vectors_has_no_training():
    path = "tokens/vectors.txt"
    assert export(path, "--to", "m", "--format", "sentence-transformers") == 0
    assert "## Training" not in Path("m/README.md").read_text(encoding="utf-8")


def test_smaller_vectors_are_measured_in_one_line(capsys):
    options = ("--dtype", "int8", "--pca", "6")
    assert export("tokens", "--to", "v.safetensors", *options) == 0
    done, kept = capsys.readouterr().out.splitlines()
    assert done.endswith(" vectors in v.safetensors")
    found = re.fullmatch(
        r"(\d+\.\d) % of the (\d+) nearest keys of (\d+) are those of the full vectors "
        r"\(int8, 6 of 12 dimensions\)\.",
        kept,
    )
    full = read_vectors("tokens/vectors.safetensors")
    small = read_vectors("v.safetensors")
    assert small.matrix.shape == (len(full), 6)
    num = len(full) - 1
    assert [int(x) for x in found.groups()[1:]] == [min(10, num), len(full)]
    same = (
        full.neighbors(full.keys)[0][..., None]
        == small.neighbors(full.keys)[0][:, None]
    )
    assert float(found[1]) == pytest.approx(100 * same.any(axis=2).mean(), abs=0.051)


def test_full_vectors_are_not_measured(capsys):
    assert export("tokens", "--to", "v.txt", "--format", "glove") == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.endswith(" vectors in v.txt")


def test_vectors_of_examples_have_formats_too(capsys):
    pytest.importorskip("faiss")
    assert export("encoder", "--to", "v.faiss") == 0
    assert pl.read_parquet(keys_path("v.faiss"))["key"].to_list() == [
        str(i) for i in range(30)
    ]
    assert export("encoder", "--to", "v.sql") == 0
    assert export("several", "--to", "m", "--format", "model2vec") == 0  # the mean


def test_the_help_names_every_format():
    known = {*format_names(), "onnx", "stablehlo"}
    assert {name for name in known if name not in inspect.getsource(Export)} == set()
