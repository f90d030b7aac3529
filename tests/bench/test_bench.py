"""Parts of benches: programs, scores, tables, files of results."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from bench import checkpoints, cpu, graphs, items, memory, processes, results, threads
from bench.checkpoints import Mark
from bench.collectives import Collective, collectives
from bench.gpu import updates
from bench.stages import first_chunks
from bench.timed import Timed, TimedUpdates
from embedder import read_vectors
from embedder.config import Config, resolve, with_options
from embedder.data import split
from embedder.data.corpus import sequences_corpus, text_corpus
from embedder.data.encode import encode
from embedder.metrics.label_scores import by_regression
from embedder.tokens.cpu import kernel
from embedder.tokens.plan import TrainingPlan
from embedder.tokens.trainer import TokensTrainer
from tests.commands import run_python

ROOT = Path(__file__).parents[2]


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
    pipes = {"capture_output": True, "text": True, "check": True}
    return subprocess.run(command, **pipes).stdout.strip()


def test_a_commit_is_dirty_where_code_has_changed(tmp_path, monkeypatch):
    if shutil.which("git") is None:
        pytest.skip("needs git")
    checkout, others = tmp_path / "checkout", ("bench/results", "tests")
    for folder in (*results.CODE, *others):
        (checkout / folder).mkdir(parents=True, exist_ok=True)
        (checkout / folder / "file").write_text("before")
    git(checkout, "init", "--quiet")
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "--message", "all")
    name = git(checkout, "rev-parse", "--short", "HEAD")
    for path in [f"{folder}/file" for folder in others] + ["bench/new"]:
        (checkout / path).write_text("after")
        assert name and results.commit(checkout) == name
    for folder in results.CODE:
        (checkout / folder / "file").write_text("after")
        assert results.commit(checkout) == f"{name} dirty"
        (checkout / folder / "file").write_text("before")
    (tmp_path / "outside").mkdir()
    assert results.commit(tmp_path / "outside") == "unknown"
    assert results.commit(checkout / "bench") == "unknown"  # of another's checkout
    monkeypatch.setenv("PATH", "")
    assert results.commit(checkout) == "unknown"


WITHOUT = """
import sys, types
for name in "tensorflow rich scipy numba safetensors tomli_w".split():
    sys.modules[name] = None
from bench.gpu.kit import STAND_IN
sys.modules["polars"] = types.ModuleType("polars")
exec(STAND_IN, vars(sys.modules["polars"]))
from pathlib import Path
from bench.gpu.updates import make_training, read_encoded, time_training, time_updates
settings = {"vector_size": 8, "blocks_per_update": 2, "epochs": 1}
training = make_training(read_encoded(Path(sys.argv[1])), settings)
assert time_updates(training, 1)["words_per_update"] > 100
print(time_training(training, Path(sys.argv[2]))["training_words_per_second"])
"""


def test_a_corpus_survives_a_file_of_ids(tmp_path, text_file):
    encoded = encode(text_corpus(text_file), 1)
    updates.write_encoded(encoded, tmp_path / "corpus.npz")
    again = updates.read_encoded(tmp_path / "corpus.npz")
    for shard in range(len(encoded.shard_tokens)):
        for one, other in zip(encoded.read(shard), again.read(shard), strict=True):
            np.testing.assert_array_equal(one, other, strict=True)
    assert again.vocabulary.tokens == encoded.vocabulary.tokens
    assert again.raw_tokens == encoded.raw_tokens


@pytest.mark.slow
def test_updates_are_timed_with_jax_numpy_haiku_and_optax_alone(tmp_path, small_data):
    done = run_python("-c", WITHOUT, small_data / "encoded.npz", tmp_path / "v.npz")
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.splitlines()[-1]) > 0
    vectors = read_vectors(tmp_path / "v.npz")
    assert vectors.matrix.shape == (len(vectors.keys), 8)


def test_a_child_process_has_other_variables_and_its_last_line_is_parsed(monkeypatch):
    monkeypatch.setenv("ONE", "1")
    script = "import os; print('words'); print(os.environ['ONE'] + os.environ['TWO'])"
    assert processes.run_python("-c", script, environment={"TWO": "2"}) == 12
    script = "import sys; sys.exit('no room')"
    with pytest.raises(subprocess.CalledProcessError) as failed:
        processes.run_python("-c", script, stderr=subprocess.PIPE)
    assert failed.value.stderr == "no room\n"
    monkeypatch.setenv("XLA_FLAGS", "--one")
    flags = "--one --xla_force_host_platform_device_count=3"
    assert processes.cpu_devices(3) == {"XLA_FLAGS": flags}


HLO = """
  %all-gather.1 = f32[100,10]{1,0} all-gather(%p0), channel_id=1, dimensions={0}
  %s = (f32[25,10]{1,0}, f32[100,10]{1,0}) all-gather-start(%p0), channel_id=2
  %d = f32[100,10]{1,0} all-gather-done(%s)
  %r = (s32[8,2]{1,0}, pred[3]{0}) all-reduce(%a, %b), channel_id=3, to_apply=%sum
  ROOT %t = f32[] all-reduce-start(%c), channel_id=4, to_apply=%sum
  %g = f32[100,10]{1,0} gather(%p0, %p1), offset_dims={1}
"""


def test_every_collective_is_found_with_its_results():
    assert collectives(HLO) == [
        Collective("all-gather", (100, 10), 4000),
        Collective("all-gather", (100, 10), 4000),
        Collective("all-reduce", (8, 2), 64),
        Collective("all-reduce", (3,), 3),
        Collective("all-reduce", (), 4),
    ]


def test_a_save_costs_the_extra_time_of_its_interval():
    """100 updates a second; half as many for 10 s after the save at 20."""
    marks, updates = [], 0
    for second in range(61):
        marks.append(Mark(updates, float(second)))
        updates += 50 if 20 <= second < 30 else 100
    assert checkpoints.lost(marks, [0, 20, 40], 10) == pytest.approx([5, 0])
    # No update ends within an interval: the next mark ends it.
    marks = [Mark(second // 10, float(second)) for second in range(0, 71, 10)]
    assert checkpoints.lost(marks, [0, 20, 40], 0.5) == pytest.approx([0, 0])
    assert checkpoints.lost(marks, [0, 90], 0.5) == pytest.approx([0])


def test_micro_f1_of_one_label_each_is_the_accuracy():
    accuracy_score = pytest.importorskip("sklearn.metrics").accuracy_score
    rng = np.random.default_rng(0)
    label = rng.integers(3, size=60)
    vectors = rng.normal(size=(60, 4)) + 2 * np.eye(4)[label]
    has_label = np.eye(3, dtype=bool)[label]
    known: list[np.ndarray] = []

    def predict(train: np.ndarray, test: np.ndarray) -> np.ndarray:
        scores = by_regression(vectors, has_label)(train, test)
        known.append(accuracy_score(label[test], scores.argmax(axis=1)))
        return scores

    found = graphs.f1_scores(predict, has_label, [50], splits=2)
    assert [*found] == ["share", "accuracy", "macro F1"]
    np.testing.assert_allclose(found["accuracy"], [100 * np.array(known)], atol=1e-3)
    has_label[0] = True
    assert "micro F1" in graphs.f1_scores(predict, has_label, [50], splits=1)


@pytest.mark.slow
def test_a_training_is_measured_and_fails_under_a_low_limit(text_file):
    options = {"epochs": 1, "min_count": 1, "vector_size": 8, "loader": "memory"}
    found = memory.measure(0, text_file, **options)
    assert found["code"] == 0 and 2**26 < found["peak"] < 2**34
    assert memory.estimate(text_file, **options) < found["peak"]
    assert memory.measure(2**26, text_file, **options)["code"] != 0


def test_other_programs_train_on_the_sessions_that_are_not_held_out():
    sessions = [[f"a{i}", f"b{i}", f"c{i % 7}"] for i in range(200)]
    encoded = encode(sequences_corpus(sessions), min_count=1)
    trained = {tuple(each) for each in items.training_sessions(encoded)}
    held_out = split.sequences(encoded, items.HOLDOUT)
    tokens = np.array(encoded.vocabulary.tokens)
    ends = np.cumsum(held_out.lengths)[:-1]
    tested = {tuple(tokens[ids]) for ids in np.split(held_out.ids, ends)}
    assert tested and trained and not trained & tested
    assert trained | tested == {*map(tuple, sessions)}


# --- the kernel with a clock between its parts, and the model of more threads


def timed(blocks, buckets, keys=(), block_of=(), bucket_of=()) -> Timed:
    """With one part of a block, and one of a bucket."""
    times = [np.array(each, np.int64)[:, np.newaxis] for each in (blocks, buckets)]
    return Timed(*times, *(np.array(x, int) for x in (keys, block_of, bucket_of)))


@pytest.mark.slow
@pytest.mark.parametrize("team", [1, 4])
def test_updates_with_a_clock_are_those_of_the_kernel(team):
    given = {"backend": "numba", "loader": "memory", "vector_size": 20, "sample": 0}
    given |= {"min_count": 1, "block": 16, "blocks_per_update": 4}
    config = with_options(Config(), **given)
    encoded = encode(sequences_corpus([[*"abc"], [*"abcd"], [*"ea"] * 40] * 10), 1)
    training = TokensTrainer(
        TrainingPlan(resolve(config, encoded.num_tokens), encoded, range(1))
    )
    batch = first_chunks(training)[0][0]
    with_clock = TimedUpdates(training, team)
    for s in range(len(batch.rate)):
        update = with_clock.apply(batch, s)
        assert (update.blocks[:, 2] > 0).all() and (update.buckets >= 0).all()
    apply = kernel.place(
        training.program.model,
        training.config.tables.max_pairs_per_row,
        loss_interval=1,
        threads=1,
    ).apply_updates
    state = training.program.place_state(training.initial_state())
    tables = apply(state, batch)[0].params["tables"]
    expected = np.concatenate([tables["input"], tables["output"]])
    np.testing.assert_array_equal(with_clock.tables[:, :20], expected)
    assert {*update.bucket_of} <= {*range(4 * team)}
    assert {*update.block_of} <= {*range(4)}


def test_a_thread_takes_its_next_block_when_a_quarter_of_one_is_done():
    found = threads.take(timed([10, 10, 10, 10], [1] * 8), 4)
    np.testing.assert_array_equal(found.blocks, [0, 1, 2, 3])
    assert found.longest == pytest.approx(12e-9)
    found = threads.take(timed([8, 40, 8, 8, 8], [1] * 8), 2)
    np.testing.assert_array_equal(found.blocks, [0, 1, 0, 0, 1])
    found = threads.take(timed([1, 1], [30, 10, 10, 5]), 2)  # so buckets, when free
    np.testing.assert_array_equal(found.buckets, [0, 1, 1, 1])
    assert found.longest == pytest.approx(31e-9)
