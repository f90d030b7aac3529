"""The benches run, at a size that measures nothing."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bench import (
    cpu,
    dropin,
    gpu,
    loader,
    modes,
    parts,
    quality,
    results,
    small,
    stages,
    systems,
    vocabulary,
)
from embedder import Vectors, read_vectors
from embedder.data.corpus import text_corpus
from embedder.data.encode import encode

ROOT = Path(__file__).parents[2]
SETTINGS = {"epochs": 1, "min_count": 1, "vector_size": 8}


@pytest.mark.slow
@pytest.mark.parametrize("train", [systems.train_port, systems.train_oracle])
def test_a_program_trains_and_says_what_it_took(tmp_path, text_file, train):
    path = tmp_path / "vectors.bin"
    done = systems.Measured(**train(text_file, path, **SETTINGS), peak_bytes=1)
    assert done.train_seconds > 0 and done.vocabulary_seconds > 0
    words = sum(len(line.split()) for line in text_file.read_text().splitlines())
    assert done.words == words and done.compile_seconds >= 0
    assert read_vectors(path).matrix.shape == (60, 8)


def test_machine_names_what_a_figure_was_measured_on():
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


def test_table_shows_median_and_range_and_ratios_within_a_seed():
    sample = {"vocabulary_seconds": 1.0, "compile_seconds": 0.5, "peak_bytes": 2**30}
    sample |= {"ws353": 0.5, "simlex": 0.3, "analogies": 36.0, "epochs": 1}
    rates = {"embedder": (1.0, 3.0, 2.0), cpu.BASELINE: (0.5, 0.5, 1.0)}
    samples = [
        sample | {"program": program, "seed": seed, "words_per_second": rate * 1e6}
        for program, of_seeds in rates.items()
        for seed, rate in enumerate(of_seeds)
    ]
    table = cpu.table(list(rates), samples)
    assert table.rows[0][1:3] == ["2.00 (1.00 to 3.00)", "2.00 (2.00 to 6.00)"]
    assert table.markdown().splitlines()[0].startswith("| program | M words/s | to ")


def test_results_are_kept_with_their_date(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results")
    results.write_results("one", samples=[1, 2])
    kept = json.loads((tmp_path / "results" / "one.json").read_text())
    assert kept["samples"] == [1, 2] and len(kept["date"]) == 10


@pytest.mark.parametrize("program", ["legacy", "drop-in, first"])
def test_a_small_fit_is_timed_in_its_parts(tmp_path, text_file, program):
    sample = dropin._sample(dropin.PROGRAMS[program], text_file, tmp_path / "cache")
    assert sample["fit"] > sample["compile"] and sample["import"] > 0
    assert (sample["compile"] > 0) == (program != "legacy")


@pytest.mark.slow
def test_every_stage_is_timed(tmp_path, monkeypatch, text_file):
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    table = stages.run(text_file, 1, {"vector_size": 8, "min_count": 1})
    assert [row[0] for row in table.rows] == [
        *("import TensorFlow", "vocabulary and encoding", "loader, tfdata"),
        *("loader, memory", "xla: trace", "xla: compile", "xla: updates alone"),
        *("xla: training, all together", "numba: compile, or find in the cache"),
        *("numba: updates alone", "numba: training, all together"),
    ]
    kept = json.loads((tmp_path / "stages.json").read_text())
    assert all(seconds > 0 for times in kept["samples"].values() for seconds in times)


def test_updates_are_timed_with_every_size(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    monkeypatch.setattr(vocabulary, "_UPDATES", 16)
    table = vocabulary.run(1, sizes=(100, 200))
    assert [row[0] for row in table.rows] == ["100", "200"]
    assert [table.rows[0][column] for column in (2, 4)] == ["1.00", "1.00"]


@pytest.mark.slow
def test_parts_of_an_update_are_timed(tmp_path, monkeypatch, text_file):
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    table = parts.run(text_file, 1, 8)
    names = [row[0] for row in table.rows]
    assert names[:4] == [
        *("gradients, rows at hand", "of these the products"),
        *("rows, gradients at hand", "all, 1 threads"),
    ]
    assert all(float(row[1]) > 0 for row in table.rows)


@pytest.mark.slow
def test_every_mode_is_timed(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    sizes = {"vector_size": 8, "vocabulary": 100, "blocks": 2, "updates": 16}
    table = modes.run([1], 1, sizes)
    assert [row[:3] for row in table.rows] == [
        ["strong", "1", mode] for mode in ("jit", "sharded", "pmap")
    ]
    assert table.rows[0][5] == "1.00"


def test_both_ways_of_loading_are_timed(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    table = loader.run([2], 1, {"rows": 4, "tokens": 8, "images": 4})
    assert [row[:2] for row in table.rows] == [
        ["blocks in memory", "2"],
        ["images in files", "2"],
    ]
    assert all(float(row[4]) > 0 and float(row[7]) > 0 for row in table.rows)


def test_quality_is_drawn(tmp_path, monkeypatch):
    samples = [
        {"program": program, "epochs": epochs, "words": 1e6 * epochs, "seed": 1}
        | {"train_seconds": epochs, "ws353": 0.5, "simlex": 0.3, "analogies": 36.0}
        for program in ("embedder", "gensim, 2 workers")
        for epochs in (1, 2)
    ]
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    monkeypatch.setattr(quality, "RESULTS", tmp_path)
    monkeypatch.setattr(cpu, "train", lambda *_: samples)
    drawn = importlib.util.find_spec("matplotlib") is not None  # an extra
    if not drawn:
        monkeypatch.setattr(quality, "draw", lambda *_: None)
    table = quality.run(["embedder", "gensim, 2 workers"], [1, 2], [1])
    assert [row[:3] for row in table.rows[:2]] == [
        ["embedder", "1", "1.00"],
        ["embedder", "2", "2.00"],
    ]
    if drawn:
        assert (tmp_path / "quality.png").read_bytes().startswith(b"\x89PNG")


WITHOUT = """
import sys
for name in "polars tyro tensorflow rich scipy numba safetensors tomli_w".split():
    sys.modules[name] = None
from pathlib import Path
from bench import gpu, results
results.RESULTS = Path(sys.argv[2])
gpu.main([sys.argv[1], *"--blocks 1 2 --samples 1 --vector-size 8".split()])
"""


@pytest.mark.slow
def test_gpu_bench_runs_with_jax_numpy_haiku_and_optax_alone(tmp_path, text_file):
    encoded = encode(text_corpus(text_file), 1)
    path = tmp_path / "corpus.npz"
    gpu.write_encoded(encoded, path)
    again = gpu.read_encoded(path)
    for shard in range(len(encoded.shard_tokens)):
        for one, other in zip(encoded.read(shard), again.read(shard), strict=True):
            np.testing.assert_array_equal(one, other, strict=True)
    assert again.vocabulary.tokens == encoded.vocabulary.tokens
    assert again.raw_tokens == encoded.raw_tokens
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, path, tmp_path],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    rows = done.stdout.splitlines()[-2:]
    assert [row.split(" | ")[:2] for row in rows] == [["| 1", "1"], ["| 1", "2"]]
    kept = json.loads((tmp_path / "gpu.json").read_text())
    assert kept["machine"]["device"].endswith("cpu")
