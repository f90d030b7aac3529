"""A run with replicas on the command line: what it writes, prints and refuses."""

import os
import re
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from embedder import read_ensemble, read_vectors
from embedder.cli import main
from embedder.vectors.ensemble import Ensemble
from embedder.vectors.ensemble_files import write_ensemble
from tests.commands import error_line

FAST = ["--loader", "memory", "--vector-size", "8", "--min-count", "1"]
TEXT = "the quick brown fox jumps over the lazy dog\n" * 40
LINE = re.compile(r"  ([ -]0\.\d{3})  \[([ -]0\.\d\d), ([ -]0\.\d\d)\]  (\d)/3  (\w+)")


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """Every test works in a folder of its own, where text.txt is."""
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text(TEXT)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A finished run of three replicas, which tests only read."""
    folder = tmp_path_factory.mktemp("replicas")
    (folder / "text.txt").write_text(TEXT)
    path = folder / "run"
    arguments = [str(folder / "text.txt"), "--workdir", str(path), *FAST]
    assert main(["train", *arguments, "--replicas", "3", "--seed", "5"]) == 0
    return path


@pytest.mark.slow
def test_a_run_writes_its_replicas_and_their_mean(run, capsys):
    ensemble = read_ensemble(run)
    assert ensemble.vectors.shape == (3, 8, 8)
    assert ensemble.tokens[0] == "the" and ensemble.counts[0] == 80
    mean = read_vectors(run / "vectors.safetensors")
    np.testing.assert_array_equal(mean.matrix, ensemble.mean().matrix)
    np.testing.assert_array_equal(mean.counts, ensemble.counts)
    text = read_vectors(run / "vectors.txt")
    np.testing.assert_allclose(text.matrix, mean.matrix, rtol=1e-6)
    assert not (run / "model.npz").exists()
    assert main(["verify", str(run)]) == 0
    assert "replicas.safetensors: whole" in capsys.readouterr().out


def test_replicas_are_the_runs_of_their_seeds(run):
    alone = ["text.txt", *FAST, "--seed", "7", "--workdir", "alone"]
    assert main(["train", *alone]) == 0
    expected = read_vectors("alone/vectors.safetensors").matrix
    found = read_ensemble(run).vectors
    np.testing.assert_allclose(found[2], expected, rtol=1e-3, atol=1e-5)
    assert np.abs(found[1] - expected).max() > 1e-3


@pytest.mark.row("F39")
def test_verify_finds_damaged_replicas(run, capsys):
    shutil.copytree(run, "copy")
    with open("copy/replicas.safetensors", "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x7f")
    assert main(["verify", "copy"]) == 1
    assert "replicas.safetensors: is not what was written" in capsys.readouterr().out
    assert main(["neighbors", "copy", "fox"]) == 2
    assert "replicas.safetensors is not a whole replicas file" in error_line(capsys)


def test_overwrite_by_one_model_leaves_no_replicas(run):
    shutil.copytree(run, "copy")
    assert main(["train", "text.txt", *FAST, "--workdir", "copy", "--overwrite"]) == 0
    assert Path("copy/model.npz").exists()
    assert not Path("copy/replicas.safetensors").exists()


def test_a_finished_run_returns_the_mean(run, capsys):
    text = str(run.parent / "text.txt")
    again = ["train", text, "--workdir", str(run), *FAST]
    assert main([*again, "--replicas", "3", "--seed", "5"]) == 0
    assert "finished before" in capsys.readouterr().out


# --- neighbors


def printed(capsys, *arguments: str) -> tuple[list[str], list[tuple]]:
    """The headers of `embedder neighbors`, and the fields of the other lines."""
    assert main(["neighbors", *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    headers = [line for line in lines if not line.startswith(" ")]
    rest = [line for line in lines if line.startswith(" ")]
    return headers, [LINE.fullmatch(line).groups() for line in rest]


def test_neighbors_prints_intervals_and_frequencies(run, capsys):
    headers, lines = printed(capsys, str(run), "fox", "dog", "--topn", "3")
    ensemble = read_ensemble(run)
    stability = ensemble.stability(["fox", "dog"])
    assert headers == [
        f"fox: stability {stability[0]:.2f}, count 40",
        f"dog: stability {stability[1]:.2f}, count 40",
    ]
    found = ensemble.neighbors(["fox", "dog"], topn=3)
    expected = [
        (f"{n[1]:6.3f}", f"{n[2]:5.2f}", f"{n[3]:5.2f}", str(n.frequency), n.token)
        for n in [*found[0], *found[1]]
    ]
    assert lines == expected


@pytest.fixture
def planted(run) -> str:
    """A run whose replicas are others: "q" is near "a" in two of three."""
    shutil.copytree(run, "planted")
    cosines = [[0.9, 0.6, 0.0], [0.9, 0.6, 0.0], [0.1, 0.6, 0.2]]
    x = np.array([[1.0, *each] for each in cosines])
    vectors = np.stack([x, np.sqrt(1 - x**2)], axis=2)
    ensemble = Ensemble(["q", "a", "b", "c"], vectors, np.array([3, 2, 1, 1]))
    write_ensemble(ensemble, "planted/replicas.safetensors")
    return "planted"


def test_stable_sorts_by_the_lower_end(planted, capsys):
    _, lines = printed(capsys, planted, "q", "--topn", "2")
    assert lines == [
        (" 0.633", " 0.10", " 0.90", "2", "a"),
        (" 0.600", " 0.60", " 0.60", "3", "b"),
    ]
    _, lines = printed(capsys, planted, "q", "--topn", "2", "--stable")
    assert [line[-1] for line in lines] == ["b", "a"]


def test_a_word_of_too_little_data_is_marked(run, capsys):
    shutil.copytree(run, "other")
    vectors = np.random.default_rng(0).standard_normal((3, 200, 8))
    tokens = [f"t{i}" for i in range(200)]
    ensemble = Ensemble(tokens, vectors, np.arange(200, 0, -1))
    write_ensemble(ensemble, "other/replicas.safetensors")
    headers, _ = printed(capsys, "other", "t0", "t199")
    assert re.fullmatch(r"t0: stability 0\.[012]\d, count 200", headers[0])
    message = r"t199: stability 0\.[012]\d, count 1, too little data"
    assert re.fullmatch(message, headers[1])


# --- export


def test_export_writes_the_mean_or_all_replicas(run, capsys):
    assert main(["export", str(run), "--to", "mean.bin"]) == 0
    assert capsys.readouterr().out == "8 vectors in mean.bin\n"
    expected = read_ensemble(run)
    np.testing.assert_array_equal(
        read_vectors("mean.bin").matrix, expected.mean().matrix
    )
    for name in ("all.safetensors", "all.parquet"):
        assert main(["export", str(run), "--to", name, "--replicas"]) == 0
        assert capsys.readouterr().out == f"3 x 8 vectors in {name}\n"
    found = read_ensemble("all.safetensors")
    np.testing.assert_array_equal(found.vectors, expected.vectors)
    assert len(pl.read_parquet("all.parquet")) == 24


def test_export_writes_the_stability_of_frequent_tokens(run, capsys):
    assert main(["export", str(run), "--to", "s.csv", "--stability", "2"]) == 0
    assert capsys.readouterr().out == "stability of 2 tokens in s.csv\n"
    frame = pl.read_csv("s.csv")
    assert frame["token"][0] == "the" and frame["count"].to_list() == [80, 40]


# --- what is refused


@pytest.fixture
def single() -> None:
    """A run of one model."""
    assert main(["train", "text.txt", *FAST, "--epochs", "0", "--workdir", "one"]) == 0


@pytest.mark.spread(9)
@pytest.mark.row("B25")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["neighbors", "one", "fox", "--stable"],
            "`stable` applies only",
        ),
        (
            ["neighbors", "one/vectors.txt", "fox", "--stable"],
            "`stable` applies only to a run with replicas, got one/vectors.txt.",
        ),
        (
            ["export", "one", "--to", "x.parquet", "--replicas"],
            "`replicas` applies only",
        ),
        (
            ["export", "one", "--to", "x.csv", "--stability", "3"],
            "`stability` applies ",
        ),
        (["export", "RUN", "--to", "x.csv", "--stability", "0"], "`stability` must "),
        (["export", "RUN", "--to", "x.npz", "--replicas"], "must end in .safetensors"),
        (
            ["export", "RUN", "--to", "x.csv", "--replicas", "--stability", "3"],
            "Give one of --replicas, --stability N, --predictions and --parameters.",
        ),
        (["neighbors", "RUN", "cat"], "Token 'cat' is not in the vocabulary."),
        (["neighbors", "none", "fox", "--stable"], "RUN none does not exist."),
        (
            ["train", "text.txt", "--resume", "RUN", "--workdir", "new"],
            "`resume` must be a run of a single model, got RUN, which has 3 replicas.",
        ),
        (
            ["convert", "RUN", "new.npz"],
            "SOURCE must be a run of a single model, got RUN, which has 3 replicas.",
        ),
        (
            ["embed", "RUN", "x.npy"],
            "RUN must be a run of a single model, got RUN, which has 3 replicas.",
        ),
    ],
)
def test_refusals_are_one_line(run, single, capsys, arguments, message):
    capsys.readouterr()
    before = sorted(os.listdir())
    assert main([str(run) if word == "RUN" else word for word in arguments]) == 2
    assert message in error_line(capsys).replace(str(run), "RUN")
    assert sorted(os.listdir()) == before


@pytest.mark.slow
@pytest.mark.row("B25")
def test_an_unfinished_run_with_replicas_is_no_base(stopped, capsys):
    long = ["--replicas", "2", "--epochs", "9", "--sample", "0"]
    stopped("text.txt", "--workdir", "r", *FAST, *long)
    assert main(["train", "text.txt", "--resume", "r", "--workdir", "new"]) == 2
    assert "got r, which has 2 replicas." in error_line(capsys)
