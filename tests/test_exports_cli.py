"""`embedder export` by format: cards of runs, smaller vectors, what is refused."""

import inspect
import re
import shlex
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from embedder.cli.arguments import Export
from embedder.cli.main import main, parse
from embedder.cli.parsing import settings
from embedder.vectors.export import format_names, read_vectors
from tests.commands import json_lines, train_runs

FAST = ["--loader", "memory", "--min-count", "1", "--vector-size", "12"]
FAST += ["--backend", "numba"]
TEXT = "the quick brown fox jumps over the lazy dog and runs\n" * 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("exports")
    (folder / "secret-place").mkdir()
    (folder / "secret-place" / "te`xt.txt").write_text(TEXT)
    x = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    np.savez(folder / "points.npz", X=x, y=np.arange(30) % 3)
    (folder / "n.csv").write_text("key,name\nthe,Article\n")
    tokens = f"secret-place/te`xt.txt {' '.join(FAST)}"
    train_runs(
        folder,
        tokens=f"{tokens} --holdout 0.2 --window 3 --epochs 2",
        several=f"{tokens} --replicas 2 --epochs 0",
        encoder="points.npz --model encoder --loader memory --epochs 1",
    )
    return folder


@pytest.fixture(autouse=True)
def here(folder, own_folder):
    """A new folder with links to the runs."""
    for path in folder.iterdir():
        (own_folder / path.name).symlink_to(path)


def export(*arguments: str) -> int:
    return main(["export", *arguments])


def test_the_help_names_every_format():
    known = {*format_names(), "onnx", "stablehlo"}
    assert {name for name in known if name not in inspect.getsource(Export)} == set()


def training_of(card: str) -> list[str]:
    text = Path(card).read_text(encoding="utf-8")
    assert "secret-place" not in text
    (facts,) = re.findall(r"## Training\n\n```text\n(.*?)\n```", text, re.DOTALL)
    return facts.splitlines()


@pytest.mark.row("B55")
def test_the_card_has_the_facts_of_the_run():
    command = ["tokens", "--to", "m", "--format", "model2vec"]
    assert export(*command, "--pca", "5") == 0
    lines = training_of("m/README.md")
    assert re.fullmatch(r"embedder \d.*", lines[0])
    assert f"corpus: te`xt.txt, {len(TEXT):,} bytes" in lines
    vocabulary = pl.read_parquet("tokens/vocab.parquet")["count"].sum()
    assert f"occurrences of these tokens in the corpus: {vocabulary:,}" in lines
    found = [x.removeprefix("setting: ") for x in lines if x.startswith("setting: ")]
    assert dict(line.split(" = ") for line in found) == {
        **{"backend": "'numba'", "window": "3", "min_count": "1", "epochs": "2"},
        **{"vector_size": "12", "holdout": "0.2"},
    }
    last = json_lines("tokens/metrics.jsonl")[-1]
    expected = f"held-out score of the vectors: held_out {last['held_out']:.4f} ["
    assert any(line.startswith(expected) for line in lines)
    assert f"loss at epoch 2: {last['loss']:.4g}" in lines
    assert "dimensions: 5 principal components of 12" in lines
    (trained,) = (x for x in lines if x.startswith("trained by: "))
    command = shlex.split(trained.removeprefix("trained by: "))
    assert command[:3] == ["embedder", "train", "te`xt.txt"]
    given = ["train", "x", *FAST, "--holdout", "0.2", "--window", "3", "--epochs", "2"]
    assert settings(parse(command[1:])) == settings(parse(given))
    (name,) = (each for each in last if " by " in each)
    expected = f"baseline of a score of the vectors: {name} {last[name]:.4f} ["
    assert any(line.startswith(expected) for line in lines)


def test_the_card_of_a_file_has_no_facts_and_of_an_encoder_has_its_own():
    path = "tokens/vectors.txt"
    assert export(path, "--to", "m", "--format", "sentence-transformers") == 0
    (line,) = training_of("m/README.md")
    assert line.startswith("exported by: embedder export vectors.txt --to m --format ")
    assert export("encoder", "--to", "v.txt", "--card") == 0
    lines = training_of("v.txt.README.md")
    assert any(line.startswith("score of training at ep") for line in lines)
    (trained,) = (x for x in lines if x.startswith("trained by: "))
    assert trained.startswith("trained by: embedder train points.npz --model encoder ")


CARDS = """
tokens --to v.txt; vectors of 12 numbers; gensim; len(vectors)
tokens --to v.bin; vectors of 12 numbers; gensim; len(vectors)
tokens --to v.npz; vectors of 12 numbers; numpy; len(vectors)
tokens --to v.parquet --pca 3; of 3 numbers; polars; len(table)
tokens --to v.faiss; of 12 numbers; faiss; index.ntotal
tokens --to g.txt --format glove; of 12 numbers; numpy; len(vectors)
tokens --to v.sql; vectors of 12 numbers; ;
several --to r.safetensors --replicas; 2 x ; safetensors; len(arrays)
several --to s.csv --stability 3; stability of 3; polars; len(table)
encoder --to v.npz; 30 vectors of; numpy; len(vectors)
encoder --to n.onnx; the network; onnxruntime; len(session.get_inputs())
encoder --to n.StableHLO; the network; jax; len(network.in_avals)
encoder --to p.safetensors --parameters; param; numpy; len(arrays)
encoder --to p.parquet --predictions; examples; polars; len(table)
"""
"""Run, file and options; what it holds; package and code that read it."""


@pytest.mark.spread(4)
@pytest.mark.row("B57")
@pytest.mark.parametrize("line", CARDS.strip().splitlines())
def test_a_card_stands_beside_every_file(line):
    given, about, package, code = map(str.strip, line.split(";"))
    file = given.split()[2]
    for name in (package or "numpy", "onnx" if file.endswith(".onnx") else "numpy"):
        pytest.importorskip(name)
    assert export(*given.split(), "--card") == 0
    text = Path(f"{file}.README.md").read_text(encoding="utf-8")
    assert f"{file}: " in text and about in text
    lines = training_of(f"{file}.README.md")
    assert lines[-1] == f"exported by: embedder export {given} --card"
    (use,) = re.findall(r"```python\n(.*?)\n```", text, re.DOTALL)
    found: dict = {}
    if package:
        exec(f"{use}\nresult = {code}", found)
        assert found["result"] > 0
    exported = {path.name for path in Path().iterdir() if not path.is_symlink()}
    assert exported - {f"{file}.keys.parquet"} == {file, f"{file}.README.md"}


@pytest.mark.row("B57")
def test_a_hostile_name_is_text_in_a_card():
    hostile = "```\n# Title `x`.txt"
    assert export("tokens", "--to", hostile, "--card") == 0
    text = Path(f"{hostile}.README.md").read_text(encoding="utf-8")
    assert "\n# Title" not in text


def test_smaller_vectors_are_measured_in_one_line(capsys):
    assert export("tokens", "--to", "v.txt", "--format", "glove") == 0
    (line,) = capsys.readouterr().out.splitlines()  # full ones are not
    assert line.endswith(" vectors in v.txt")
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
    exact, approximate = (each.neighbors(full.keys)[0] for each in (full, small))
    same = exact[..., None] == approximate[:, None]
    assert float(found[1]) == pytest.approx(100 * same.any(axis=2).mean(), abs=0.051)
