"""`embedder export` by format: cards of runs, smaller vectors, what is refused."""

import inspect
import json
import re
import shlex
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from embedder.arguments import Export
from embedder.cli import main, parse
from embedder.parsing import settings
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
    expected = f"held-out score of the vectors: held_out {last['held_out']:.4f} ["
    assert any(line.startswith(expected) for line in lines)
    assert f"loss at epoch 2: {last['loss']:.4g}" in lines
    assert "dimensions: 5 principal components of 12" in lines
    assert "secret-place" not in card


def test_the_card_of_a_file_of_vectors_has_no_facts_of_a_training():
    path = "tokens/vectors.txt"
    assert export(path, "--to", "m", "--format", "sentence-transformers") == 0
    (line,) = training_of(Path("m/README.md"))
    assert line.startswith("exported by: embedder export vectors.txt --to m --format ")


def training_of(card: Path) -> list[str]:
    text = card.read_text(encoding="utf-8")
    (facts,) = re.findall(r"## Training\n\n```text\n(.*?)\n```", text, re.DOTALL)
    return facts.splitlines()


CARDS = [
    # run, file, options, what it holds, package and code that read it
    ("tokens", "v.txt", "", " vectors of 12 numbers", "gensim", "len(vectors)"),
    ("tokens", "v.bin", "", " vectors of 12 numbers", "gensim", "len(vectors)"),
    ("tokens", "v.npz", "", " vectors of 12 numbers", "numpy", "len(vectors)"),
    ("tokens", "v.parquet", "--pca 3", " of 3 numbers", "polars", "len(table)"),
    ("tokens", "v.faiss", "", " of 12 numbers", "faiss", "index.ntotal"),
    ("tokens", "g.txt", "--format glove", " of 12 numbers", "numpy", "len(vectors)"),
    ("tokens", "v.sql", "", " vectors of 12 numbers", "", ""),
    ("several", "r.safetensors", "--replicas", "2 x ", "safetensors", "len(arrays)"),
    ("several", "s.csv", "--stability 3", "stability of 3", "polars", "len(table)"),
    ("encoder", "v.npz", "", "30 vectors of ", "numpy", "len(vectors)"),
    (
        "encoder",
        "n.onnx",
        "",
        "the network",
        "onnxruntime",
        "len(session.get_inputs())",
    ),
    ("encoder", "n.stablehlo", "", "the network", "jax", "len(network.in_avals)"),
    ("encoder", "p.safetensors", "--parameters", " parameters", "numpy", "len(arrays)"),
    ("encoder", "p.parquet", "--predictions", " examples", "polars", "len(table)"),
]


@pytest.mark.spread(4)
@pytest.mark.row("B57")
@pytest.mark.parametrize(("run", "file", "options", "about", "package", "code"), CARDS)
def test_a_card_stands_beside_every_file(run, file, options, about, package, code):
    if package:
        pytest.importorskip(package)
    if file.endswith(".onnx"):
        pytest.importorskip("onnx")
    given = [run, "--to", file, *options.split()]
    assert export(*given, "--card") == 0
    card = Path(f"{file}.README.md")
    text = card.read_text(encoding="utf-8")
    assert f"{file}: " in text and about in text
    lines = training_of(card)
    assert lines[-1] == f"exported by: embedder export {' '.join(given)} --card"
    assert "secret-place" not in text
    (use,) = re.findall(r"```python\n(.*?)\n```", text, re.DOTALL)
    found: dict = {}
    if package:
        exec(f"{use}\nresult = {code}", found)
        assert found["result"] > 0
    exported = {path.name for path in Path().iterdir() if not path.is_symlink()}
    assert exported - {f"{file}.keys.parquet"} == {file, card.name}


def test_a_card_has_the_command_of_the_training_and_baselines():
    assert export("tokens", "--to", "v.txt", "--card") == 0
    lines = training_of(Path("v.txt.README.md"))
    (trained,) = (x for x in lines if x.startswith("trained by: "))
    command = shlex.split(trained.removeprefix("trained by: "))
    assert command[:3] == ["embedder", "train", "te`xt.txt"]
    found = parse(command[1:])
    assert settings(found) == settings(
        parse(
            ["train", "x", *FAST, "--holdout", "0.2", "--window", "3", "--epochs", "2"]
        )
    )
    last = json.loads(Path("tokens/metrics.jsonl").read_text().splitlines()[-1])
    (name,) = (each for each in last if " by " in each)
    expected = f"baseline of a score of the vectors: {name} {last[name]:.4f} ["
    assert any(line.startswith(expected) for line in lines)
    assert export("encoder", "--to", "v.txt", "--card") == 0
    lines = training_of(Path("v.txt.README.md"))
    assert any(line.startswith("score of training at ep") for line in lines)
    (trained,) = (x for x in lines if x.startswith("trained by: "))
    assert trained.startswith("trained by: embedder train points.npz --model encoder ")


@pytest.mark.row("B57")
def test_a_card_is_no_file_of_a_run_and_a_hostile_name_is_text(capsys):
    hostile = "```\n# Title `x`.txt"
    assert export("tokens", "--to", hostile, "--card") == 0
    text = Path(f"{hostile}.README.md").read_text(encoding="utf-8")
    assert "\n# Title" not in text
    assert export("tokens", "--to", "none/v.txt", "--card") == 2
    assert "none does not exist" in error_line(capsys)


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
