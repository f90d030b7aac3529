"""Parts of benches: programs, scores, tables, files of results."""

import importlib.util
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from bench import cpu, gpu, quality, results, small, systems
from embedder import Vectors, read_vectors
from embedder.tables.corpus import text_corpus
from embedder.tables.encode import encode
from tests.commands import run_python

ROOT = Path(__file__).parents[2]
SETTINGS = {"epochs": 1, "min_count": 1, "vector_size": 8}


@pytest.mark.slow
@pytest.mark.parametrize("train", [systems.train_port, systems.train_oracle])
def test_a_program_trains_and_reports_its_times(tmp_path, text_file, train):
    path = tmp_path / "vectors.bin"
    done = systems.Measured(**train(text_file, path, **SETTINGS), peak_bytes=1)
    assert done.train_seconds > 0 and done.vocabulary_seconds > 0
    words = sum(len(line.split()) for line in text_file.read_text().splitlines())
    assert done.words == words and done.compile_seconds >= 0
    assert read_vectors(path).matrix.shape == (60, 8)


def test_machine_names_cpu_and_versions():
    machine = systems.machine()
    assert machine["numpy"] == np.__version__
    assert "cores" in machine["cpu"]


def test_neighbour_score_is_the_reference_cosine_of_neighbours(monkeypatch):
    """Two pairs of equal vectors: the nearest is right where the reference agrees."""
    monkeypatch.setattr(small, "TOPN", 1)
    matrix = np.array([[1, 0], [1, 0.1], [0, 1], [0.1, 1]], np.float32)
    vectors = Vectors(["A,", "b", "c", "d"], matrix)
    reference = Vectors(["a", "b", "c", "d"], matrix)
    score, chance = small.neighbour_score(vectors, reference)
    assert score == pytest.approx(vectors.similarity("A,", "b"))
    assert chance < score
    crossed = Vectors(["a", "c", "b", "d"], matrix)
    assert small.neighbour_score(vectors, crossed)[0] < 0.25


def test_table_has_median_range_and_ratios_within_a_seed():
    sample = {"vocabulary_seconds": 1.0, "compile_seconds": 0.5, "peak_bytes": 2**30}
    sample |= {"ws353": 0.5, "simlex": 0.3, "analogies": 36.0, "epochs": 1}
    rates = {"embedder": (1.0, 3.0, 2.0), cpu.BASELINE: (0.5, 0.5, 1.0)}
    samples = [
        sample | {"program": program, "seed": seed, "words_per_second": rate * 1e6}
        for program, of_seeds in rates.items()
        for seed, rate in enumerate(of_seeds)
    ]
    table = cpu.table({"samples": samples})
    assert table.rows[0][1:3] == ["2.00 (1.00 to 3.00)", "2.00 (2.00 to 6.00)"]
    assert table.markdown().splitlines()[0].startswith("| program | M words/s | to ")


def test_results_have_date_and_commit(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(results, "commit", lambda checkout: f"of {checkout}")
    written = results.write_results("one", samples=(1, 2))
    kept = json.loads((tmp_path / "results" / "one.json").read_text())
    assert kept == written
    assert kept["samples"] == [1, 2] and len(kept["date"]) == 10
    assert kept["commit"] == f"of {ROOT}"


def git(folder: Path, *arguments: str) -> str:
    options = "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"
    command = ["git", "-C", str(folder), *options, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.fixture
def checkout(tmp_path) -> Path:
    """A repository with a file in each folder of code, a result, and another file."""
    if shutil.which("git") is None:
        pytest.skip("needs git")
    folder = tmp_path / "checkout"
    for path in (*results.CODE, "bench/results", "tests"):
        (folder / path).mkdir(parents=True, exist_ok=True)
        (folder / path / "file").write_text("before")
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "all")
    return folder


def test_a_commit_is_named_by_its_short_hash(checkout):
    name = git(checkout, "rev-parse", "--short", "HEAD")
    assert name and results.commit(checkout) == name


@pytest.mark.parametrize("path", ["bench/results/file", "tests/file", "bench/new"])
def test_a_commit_with_unchanged_code_is_not_dirty(checkout, path):
    (checkout / path).write_text("after")
    assert "dirty" not in results.commit(checkout)


@pytest.mark.parametrize("folder", results.CODE)
def test_a_commit_with_changed_code_is_dirty(checkout, folder):
    (checkout / folder / "file").write_text("after")
    name = git(checkout, "rev-parse", "--short", "HEAD")
    assert results.commit(checkout) == f"{name} dirty"


def test_a_commit_is_unknown_without_a_checkout_or_git(checkout, monkeypatch):
    outside = checkout.parent / "outside"
    outside.mkdir()
    assert results.commit(outside) == "unknown"
    assert results.commit(checkout / "bench") == "unknown"  # of another's checkout
    monkeypatch.setenv("PATH", "")
    assert results.commit(checkout) == "unknown"


def quality_results() -> results.Results:
    samples = [
        {"program": program, "epochs": epochs, "words": 1e6 * epochs, "seed": 1}
        | {"train_seconds": epochs, "ws353": 0.5, "simlex": 0.3, "analogies": 36.0}
        for program in ("embedder", "gensim, 2 workers")
        for epochs in (1, 2)
    ]
    return {"samples": samples}


def test_quality_has_a_row_for_each_program_and_number_of_epochs():
    table = quality.table(quality_results())
    assert [row[:3] for row in table.rows] == [
        [program, words, f"{words}.00"]
        for program in ("embedder", "gensim, 2 workers")
        for words in ("1", "2")
    ]


def test_quality_is_drawn(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="needs the extra `bench`")
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results")
    results.write_picture("q", lambda path: quality.draw(quality_results(), path))
    assert (tmp_path / "results/q.png").read_bytes().startswith(b"\x89PNG")


def test_no_plot_without_matplotlib(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    results.write_picture("q", lambda path: pytest.fail("it is drawn"))
    assert capsys.readouterr().err == "bench: q.png needs matplotlib, not drawn.\n"


WITHOUT = """
import sys
for name in "polars tyro tensorflow rich scipy numba safetensors tomli_w".split():
    sys.modules[name] = None
from pathlib import Path
from bench import __main__, results
results.RESULTS = Path(sys.argv[2])
sizes = "--blocks 1 2 --samples 1 --vector-sizes 8 --vectors".split()
__main__.main(["gpu", sys.argv[1], *sizes, sys.argv[2]])
"""


def test_a_corpus_survives_a_file_of_ids(tmp_path, text_file):
    encoded = encode(text_corpus(text_file), 1)
    gpu.write_encoded(encoded, tmp_path / "corpus.npz")
    again = gpu.read_encoded(tmp_path / "corpus.npz")
    for shard in range(len(encoded.shard_tokens)):
        for one, other in zip(encoded.read(shard), again.read(shard), strict=True):
            np.testing.assert_array_equal(one, other, strict=True)
    assert again.vocabulary.tokens == encoded.vocabulary.tokens
    assert again.raw_tokens == encoded.raw_tokens


@pytest.mark.slow
def test_gpu_bench_runs_with_jax_numpy_haiku_and_optax_alone(tmp_path, small_data):
    done = run_python("-c", WITHOUT, small_data / "encoded.npz", tmp_path)
    assert done.returncode == 0, done.stderr
    rows = done.stdout.splitlines()[-2:]
    assert [row.split(" | ")[:2] for row in rows] == [["| 8", "1"], ["| 8", "1"]]
    kept = json.loads((tmp_path / "gpu.json").read_text())
    assert kept["machine"]["device"].endswith("cpu")
    for blocks in (1, 2):
        vectors = read_vectors(tmp_path / f"vectors-8-1-{blocks}.npz")
        assert vectors.matrix.shape == (len(vectors.keys), 8)
