"""Runs: what they leave, that they repeat, and when they are refused or stopped."""

import json
import math

import numpy as np
import polars as pl
import pytest

from embedder.config import Config, read_toml, resolve, with_options
from embedder.engine.epochs import run_epochs
from embedder.engine.memory import check_memory
from embedder.run.preview import preview
from embedder.run.train import train
from embedder.run.workdir import Workdir
from embedder.tables.corpus import sequences_corpus
from embedder.tables.encode import encode
from embedder.tables.memory import memory_needed
from embedder.tables.problem import open_corpus, plan
from embedder.tables.training import Training
from embedder.vectors.export import read_vectors

SMALL = with_options(
    Config(),
    loader="memory",
    vector_size=4,
    epochs=2,
    block=64,
    blocks_per_update=1,
    min_count=2,
)


def train_small(workdir, source, **options):
    return train(with_options(SMALL, **options), workdir, str(source))


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Workdir:
    """A finished run, which tests only read."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "text.txt").write_text("a b c a b a d d e\n" * 30)
    train_small(folder / "run", folder / "text.txt")
    return Workdir(folder / "run")


def test_train_leaves_every_file_it_names(finished):
    names = sorted(path.name for path in finished.path.iterdir())
    assert names == [
        *(
            "SHA256SUMS",
            "cache",
            "config.toml",
            "corpus.json",
            "metrics.jsonl",
            "model.npz",
            "progress.jsonl",
            "report.html",
        ),
        *("tensorboard", "vectors.safetensors", "vectors.txt", "vocab.parquet"),
    ]
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
    lines = [json.loads(x) for x in finished.metrics.read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2]
    assert [line["words"] for line in lines] == [270, 540]
    assert lines[-1]["alpha"] == pytest.approx(1e-4)
    assert 0 < lines[1]["loss"] <= lines[0]["loss"] <= 6 * math.log(2) + 1e-6


@pytest.mark.spread(1)
@pytest.mark.parametrize("loader", ["memory", "tfdata"])
def test_train_repeats_itself_to_the_bit(finished, tmp_path, loader):
    train_small(tmp_path / "run", finished.path.parent / "text.txt", loader=loader)
    again = tmp_path / "run" / "vectors.safetensors"
    assert again.read_bytes() == finished.vectors.read_bytes()


def test_train_again_returns_the_vectors_that_are_there(finished):
    before = finished.vectors.stat().st_mtime_ns
    vectors = train_small(finished.path, finished.path.parent / "text.txt")
    assert vectors.keys == ["a", "b", "d", "c", "e"]
    assert finished.vectors.stat().st_mtime_ns == before


def test_train_with_another_seed_gives_other_vectors(finished, tmp_path):
    text = finished.path.parent / "text.txt"
    vectors = train_small(tmp_path / "run", text, seed=2)
    assert not np.array_equal(vectors.matrix, read_vectors(finished.vectors).matrix)


@pytest.mark.row("B8")
def test_train_with_no_epochs_writes_the_first_vectors(finished, tmp_path):
    text = finished.path.parent / "text.txt"
    vectors = train_small(tmp_path / "run", text, epochs=0)
    assert np.abs(vectors.matrix).max() <= 0.5 / 4
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_train_uses_a_cache_elsewhere(finished, tmp_path):
    text, config = finished.path.parent / "text.txt", with_options(SMALL, epochs=0)
    for run in ("first", "second"):
        train(config, tmp_path / run, str(text), cache=tmp_path / "cache")
    assert len(list((tmp_path / "cache").iterdir())) == 1
    assert not (tmp_path / "first" / "cache").exists()


def test_run_epochs_reports_progress_that_ends_at_one(sequences):
    encoded = encode(sequences_corpus(sequences), 2)
    config = with_options(SMALL, alpha=0.03, max_pairs_per_row=128.0)
    training = Training(config, encoded, range(2))
    seen = []
    _, place = run_epochs(training, training.initial_state(), seen.append)
    progress = [status.progress for status in seen]
    assert progress == sorted(progress) and progress[-1] == 1.0
    ends = [status for status in seen if status.is_epoch_end]
    assert [status.loss for status in ends] == place.losses
    assert [status.epoch for status in ends] == [0, 1]
    assert seen[-1].items == 2 * encoded.raw_tokens


@pytest.mark.row("B7")
def test_run_epochs_says_that_there_are_no_pairs(caplog):
    encoded = encode(sequences_corpus([["a"], ["b"]] * 20), 1)
    config = with_options(SMALL, alpha=0.03, max_pairs_per_row=128.0)
    training = Training(config, encoded, range(1))
    _, place = run_epochs(training, training.initial_state())
    assert place.losses == [0.0] and "nothing is learned" in caplog.text


def test_plan_resolves_by_the_corpus(tmp_path):
    corpus = sequences_corpus([["a", "b"] * 1_600_000])
    config = with_options(SMALL, block=None, blocks_per_update=None)
    training = plan(config, corpus, tmp_path)
    assert training.config.tables.update_size == (64, 16)
    alpha = 0.025 * 16**0.1  # each row gets many updates
    assert training.config.tables.alpha == alpha
    assert (
        training.config.tables.max_pairs_per_row == 1.6 / training.config.tables.alpha
    )


def test_open_corpus_without_a_source_is_the_demo():
    assert open_corpus(None).name == "demo"


def test_preview_writes_nothing_but_a_cache_that_is_given(finished, tmp_path):
    text = str(finished.path.parent / "text.txt")
    assert "vocabulary: 5 tokens, 270 of 270" in preview(SMALL, text)
    preview(SMALL, text, cache=tmp_path / "cache")
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_memory_needed_counts_both_tables_and_what_is_written():
    encoded = encode(sequences_corpus([["a", "b", "c"]]), 1)
    config = with_options(SMALL, vector_size=100, dtype="float64")
    needed = memory_needed(config, encoded, superblock_size=16)
    assert needed["tables"] == needed["vectors to write"] == 2 * 3 * 112 * 8
    assert needed["first vectors"] == 3 * 112 * 8
    assert needed["checkpoints"] == 4 * 3 * 112 * 8
    threads = with_options(config, blocks_per_update=64, threads=8)
    many = memory_needed(threads, encoded, superblock_size=16)["gradients"]
    assert many > 64 * 256 * (112 * 8 + 8 * 44) > needed["gradients"]
    never = with_options(config, save_every="never")
    assert memory_needed(never, encoded, superblock_size=16)["checkpoints"] == 0
    # A shard of 3 tokens and 3 superblocks of 16 * 64, each token 25 + 4 * 32 / 16.
    assert needed["blocks"] == (1 * 3 + 3 * 16 * 64) * 33
    assert needed["TensorFlow"] == 0


def test_memory_needed_counts_the_accumulators_of_adagrad():
    encoded = encode(sequences_corpus([["a", "b", "c"]]), 1)
    sgd = with_options(SMALL, vector_size=100, dtype="float64", max_pairs_per_row=None)
    adagrad = with_options(sgd, optimizer="adagrad")
    before, needed = (
        memory_needed(resolve(config, 3), encoded, superblock_size=16)
        for config in (sgd, adagrad)
    )
    assert (before["accumulators"], needed["accumulators"]) == (0, 4 * 3 * 8)
    assert needed["checkpoints"] - before["checkpoints"] == 4 * 3 * 8


def test_check_memory_refuses_more_than_the_machine_has():
    check_memory({"tables": 2**20}, "give less.")
    with pytest.raises(ValueError, match=r"got 1048576.0 GiB \(tables 1048576.0 GiB\)"):
        check_memory({"tables": 2**50}, "give less.")


def test_train_writes_events_for_tensorboard(finished):
    """Read as TensorBoard does, by its protocol buffers."""
    from tensorboardX.proto.event_pb2 import Event

    (path,) = (finished.path / "tensorboard").iterdir()
    data, found = path.read_bytes(), {}
    while data:  # a record: its length, a check of that, itself, a check of it
        size = int.from_bytes(data[:8], "little")
        event = Event.FromString(data[12 : 12 + size])
        data = data[16 + size :]
        for value in event.summary.value:
            found[value.tag, event.step] = value.simple_value
    lines = [json.loads(x) for x in finished.metrics.read_text().splitlines()]
    assert lines
    for line in lines:
        for name in ("loss", "alpha"):
            expected = pytest.approx(line[name], rel=1e-6)
            assert found[name, line["updates"]] == expected
