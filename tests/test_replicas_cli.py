"""A run with replicas on the command line: what it writes, prints and refuses."""

import re
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from embedder import read_ensemble, read_vectors
from embedder.cli.main import main
from embedder.vectors.ensemble import Ensemble
from embedder.vectors.ensemble_files import write_ensemble
from tests.commands import train_runs

FAST = ["--loader", "memory", "--vector-size", "8", "--min-count", "1"]
TEXT = "the quick brown fox jumps over the lazy dog\n" * 40
LINE = re.compile(r"  ([ -]0\.\d{3})  \[([ -]0\.\d\d), ([ -]0\.\d\d)\]  (\d)/3  (\w+)")


@pytest.fixture(autouse=True)
def own_folder(own_folder):
    Path("text.txt").write_text(TEXT)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A finished run of three replicas, which tests only read."""
    folder = tmp_path_factory.mktemp("replicas")
    (folder / "text.txt").write_text(TEXT)
    train_runs(folder, run=f"text.txt {' '.join(FAST)} --replicas 3 --seed 5")
    return folder / "run"


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


def test_a_run_writes_its_replicas_and_their_mean(run, capsys):
    ensemble = read_ensemble(run)
    assert ensemble.vectors.shape == (3, 8, 8)
    assert ensemble.tokens[0] == "the" and ensemble.counts[0] == 80
    mean = read_vectors(run / "vectors.safetensors")
    np.testing.assert_array_equal(mean.matrix, ensemble.mean().matrix)
    assert not (run / "model.npz").exists()
    assert main(["verify", str(run)]) == 0
    assert "replicas.safetensors: whole" in capsys.readouterr().out
    shutil.copytree(run, "copy")
    assert main(["train", "text.txt", *FAST, "--workdir", "copy", "--overwrite"]) == 0
    assert Path("copy/model.npz").exists()
    assert not Path("copy/replicas.safetensors").exists()


def test_stable_sorts_by_the_lower_end_and_too_little_data_is_marked(run, capsys):
    shutil.copytree(run, "copy")
    cosines = [[0.9, 0.6, 0.0], [0.9, 0.6, 0.0], [0.1, 0.6, 0.2]]
    x = np.array([[1.0, *each] for each in cosines])
    planted = np.stack([x, np.sqrt(1 - x**2)], axis=2)
    ensemble = Ensemble(["q", "a", "b", "c"], planted, np.array([3, 2, 1, 1]))
    write_ensemble(ensemble, "copy/replicas.safetensors")
    _, lines = printed(capsys, "copy", "q", "--topn", "2")
    assert lines == [
        (" 0.633", " 0.10", " 0.90", "2", "a"),
        (" 0.600", " 0.60", " 0.60", "3", "b"),
    ]
    _, lines = printed(capsys, "copy", "q", "--topn", "2", "--stable")
    assert [line[-1] for line in lines] == ["b", "a"]
    vectors = np.random.default_rng(0).standard_normal((3, 200, 8))
    ensemble = Ensemble([f"t{i}" for i in range(200)], vectors, np.arange(200, 0, -1))
    write_ensemble(ensemble, "copy/replicas.safetensors")
    headers, _ = printed(capsys, "copy", "t0", "t199")
    assert re.fullmatch(r"t0: stability 0\.[012]\d, count 200", headers[0])
    message = r"t199: stability 0\.[012]\d, count 1, too little data"
    assert re.fullmatch(message, headers[1])


def test_export_writes_the_mean_all_replicas_or_the_stability(run, capsys):
    expected = read_ensemble(run)
    for options, said in {
        "--to mean.bin": "8 vectors in mean.bin",
        "--to all.safetensors --replicas": "3 x 8 vectors in all.safetensors",
        "--to all.parquet --replicas": "3 x 8 vectors in all.parquet",
        "--to s.csv --stability 2": "stability of 2 tokens in s.csv",
    }.items():
        assert main(["export", str(run), *options.split()]) == 0
        assert capsys.readouterr().out == f"{said}\n"
    mean = read_vectors("mean.bin").matrix
    np.testing.assert_array_equal(mean, expected.mean().matrix)
    found = read_ensemble("all.safetensors")
    np.testing.assert_array_equal(found.vectors, expected.vectors)
    assert len(pl.read_parquet("all.parquet")) == 24
    frame = pl.read_csv("s.csv")
    assert frame["token"][0] == "the" and frame["count"].to_list() == [80, 40]
