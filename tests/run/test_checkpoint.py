"""Checkpoints: whole or not there, damage found, the right ones kept."""

import resource
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

from embedder.engine.rules import capped_sgd, rowwise_adagrad
from embedder.engine.state import TrainState
from embedder.run import checkpoints as checkpoint
from embedder.run.checkpoints import (
    CheckpointError,
    Checkpoints,
    arrays_of,
    tree_of,
)
from embedder.tables.update import host_state

FACTS = {"place": {"epoch": 1, "losses": [0.1, 1 / 3]}, "origin": {"backend": "xla"}}


def arrays(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "a": rng.random((7, 3)),
        "b": rng.random((5, 2), dtype=np.float32),
        "step": np.array(seed, np.int32),
    }


@pytest.fixture
def checkpoints(tmp_path) -> Checkpoints:
    return Checkpoints(tmp_path / "checkpoints", keep=2)


def save(checkpoints: Checkpoints, *steps: int) -> None:
    for step in steps:
        checkpoints.save(step, arrays(step), FACTS)
    checkpoints.wait()


def test_what_is_saved_is_read_bit_for_bit(checkpoints):
    save(checkpoints, 12)
    found = checkpoints.read(12)
    assert (found.step, found.facts) == (12, FACTS)
    assert {*found.arrays} == {"a", "b", "step"}
    for name, array in arrays(12).items():
        np.testing.assert_array_equal(found.arrays[name], array, strict=True)


def test_the_newest_stay(checkpoints):
    save(checkpoints, 9, 10, 100)
    assert checkpoints.steps() == [100, 10]
    assert checkpoints.newest().step == 100


def test_a_sound_one_is_not_written_again(checkpoints):
    save(checkpoints, 5)
    before = checkpoints.folder.joinpath("5").stat().st_ino
    save(checkpoints, 5)
    assert checkpoints.folder.joinpath("5").stat().st_ino == before


def test_there_may_be_none(checkpoints):
    assert checkpoints.steps() == []
    assert checkpoints.newest() is None


def test_a_state_is_taken_apart_and_put_together():
    table = np.arange(6.0).reshape(3, 2)
    state = host_state(capped_sgd(1.0), table, -table)
    parts = arrays_of(state)
    assert {*parts} == {"params.tables.input", "params.tables.output", "step"}
    again = tree_of(parts, state)
    assert isinstance(again, TrainState)
    assert again.params["tables"]["output"] is parts["params.tables.output"]


def test_a_state_of_adagrad_has_accumulators():
    table = np.arange(6.0).reshape(3, 2)
    rule = rowwise_adagrad()
    state = host_state(rule, table, -table)
    parts = arrays_of(state)
    names = {f"opt_state.0.accumulators.tables.{name}" for name in ("input", "output")}
    assert names == {*parts} - {*arrays_of(host_state(capped_sgd(1.0), table, table))}
    parts["opt_state.0.accumulators.tables.output"] = np.ones(3)
    again = tree_of(parts, state)
    found = rule.row_state(again.opt_state)["output_accumulator"]
    np.testing.assert_array_equal(found, [1, 1, 1])
    with pytest.raises(CheckpointError, match="accumulators.tables.input: None there"):
        tree_of(arrays_of(host_state(capped_sgd(1.0), table, table)), state)


@pytest.mark.row("F15")
@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"a": np.zeros((7, 3), np.float32)}, r"a: float64\[7, 3\] there, float32\[7"),
        ({"b": np.zeros((6, 2), np.float32)}, r"b: float32\[5, 2\] there, float32\[6"),
        ({"c": np.zeros(2)}, r"c: None there, float64\[2\] now"),
    ],
)
def test_arrays_of_another_state_are_refused(other, message):
    with pytest.raises(CheckpointError, match=message):
        tree_of(arrays(), arrays() | other)


def files(checkpoints: Checkpoints, step: int) -> list[Path]:
    folder = checkpoints.folder / str(step)
    found = sorted(p for p in folder.rglob("*") if p.is_file() and p.stat().st_size)
    assert len(found) > 3
    return found


@pytest.mark.row("F13")
def test_no_flipped_bit_is_read_as_something_else(checkpoints, caplog):
    """In every file, at the beginning, in the middle and at the end."""
    save(checkpoints, 1, 2)
    for path in files(checkpoints, 2):
        data = path.read_bytes()
        for at in sorted({0, len(data) // 2, len(data) - 1}):
            path.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
            caplog.clear()
            assert checkpoints.newest().step == 1
            assert f"{checkpoints.folder / '2'} is damaged" in caplog.text
        path.write_bytes(data)
    assert checkpoints.newest().step == 2


@pytest.mark.row("F14")
def test_no_missing_or_short_file_is_read_as_something_else(checkpoints):
    save(checkpoints, 1, 2)
    for path in files(checkpoints, 2):
        data = path.read_bytes()
        for change in (lambda p: p.unlink(), lambda p, d=data: p.write_bytes(d[:-1])):
            change(path)
            assert checkpoints.newest().step == 1
            path.write_bytes(data)
    assert checkpoints.newest().step == 2


@pytest.mark.row("F13")
def test_arrays_that_orbax_reads_otherwise_are_found(checkpoints, monkeypatch):
    save(checkpoints, 1)
    monkeypatch.setattr(checkpoint, "check_digests", lambda folder: None)
    monkeypatch.setattr(checkpoint, "_digest", lambda array: "another")
    with pytest.raises(CheckpointError, match="1 is damaged .`a` is not what was"):
        checkpoints.read(1)


def test_facts_that_orbax_reads_otherwise_are_found(checkpoints, monkeypatch):
    save(checkpoints, 1)
    monkeypatch.setattr(checkpoint, "check_digests", lambda folder: None)
    path = checkpoints.folder / "1" / "facts" / "metadata"
    path.write_text(path.read_text().replace('"epoch": 1', '"epoch": 2'))
    with pytest.raises(CheckpointError, match="its facts are not what was written"):
        checkpoints.read(1)


def test_a_damaged_one_makes_room_for_what_comes_after_it(checkpoints):
    save(checkpoints, 1, 2, 3)
    shutil.rmtree(checkpoints.folder / "3" / "facts")
    assert checkpoints.newest().step == 2
    checkpoints.save(3, arrays(4), FACTS)
    checkpoints.wait()
    assert checkpoints.newest().arrays["step"] == 4
    shutil.rmtree(checkpoints.folder / "3" / "facts")
    save(checkpoints, 4)  # from 2 another way, past 3
    assert checkpoints.newest().step == 4


def test_what_was_not_finished_is_removed(checkpoints, caplog):
    save(checkpoints, 1)
    part = checkpoints.folder / "2.orbax-checkpoint-tmp"
    shutil.copytree(checkpoints.folder / "1", part)
    assert checkpoints.newest().step == 1
    with caplog.at_level("INFO"):
        checkpoints.remove_parts()
    assert f"{part} was not finished: it is removed." in caplog.text
    assert [path.name for path in checkpoints.folder.iterdir()] == ["1"]


@pytest.mark.row("F11")
def test_a_full_disk_is_told_by_the_next_save_and_loses_nothing(checkpoints):
    save(checkpoints, 1)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        big = {"a": np.random.default_rng(0).random(100_000)}
        checkpoints.save(2, big, FACTS)
        with pytest.raises(OSError, match="was not written: File too large") as caught:
            checkpoints.save(3, big, FACTS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert caught.value.filename == str(checkpoints.folder / "2")
    assert [path.name for path in checkpoints.folder.iterdir()] == ["1"]
    checkpoints.save(3, big, FACTS)
    checkpoints.wait()
    assert checkpoints.newest().step == 3


def test_no_folder_is_told(tmp_path):
    checkpoints = Checkpoints(tmp_path / "missing" / "checkpoints")
    checkpoints.save(1, arrays(), FACTS)
    with pytest.raises(OSError, match="was not written: No such file or directory"):
        checkpoints.wait()
    assert checkpoints.is_written()
