"""Checkpoints: whole or not there, damage found, the right ones kept."""

import resource
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from embedder.cli.main import main
from embedder.engine import checkpoints as checkpoint
from embedder.engine.checkpoints import CheckpointError, Checkpoints, tree_of

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


def test_the_newest_stay(checkpoints):
    assert checkpoints.steps() == [] and checkpoints.newest() is None
    save(checkpoints, 9, 10, 100)
    assert checkpoints.steps() == [100, 10]
    assert checkpoints.newest().step == 100


def test_runs_in_threads_of_one_process_take_turns(tmp_path):
    def write_and_read(run: int) -> list[float]:
        checkpoints = Checkpoints(tmp_path / f"run{run}", keep=5)
        save(checkpoints, *range(3 * run, 3 * run + 3))
        return [
            checkpoints.read(step).arrays["a"].sum() for step in checkpoints.steps()
        ]

    with ThreadPoolExecutor(3) as pool:
        sums = [*pool.map(write_and_read, range(3))]
    steps = [[3 * run + i for i in (2, 1, 0)] for run in range(3)]
    assert sums == [[arrays(step)["a"].sum() for step in each] for each in steps]


@pytest.mark.row("F15")
def test_arrays_of_another_state_are_refused():
    for other, message in (
        ({"a": np.zeros((7, 3), np.float32)}, r"a: float64\[7, 3\] there, float32\[7"),
        ({"c": np.zeros(2)}, r"c: None there, float64\[2\] now"),
    ):
        with pytest.raises(CheckpointError, match=message):
            tree_of(arrays(), arrays() | other)


@pytest.mark.row("F13", "F14")
def test_no_damaged_file_is_read_as_something_else(checkpoints, caplog):
    """Every file: flipped at the beginning, in the middle and at the end, cut, gone."""
    save(checkpoints, 1, 2)
    folder = checkpoints.folder / "2"
    paths = [p for p in folder.rglob("*") if p.is_file() and p.stat().st_size]
    assert len(paths) > 3
    for path in paths:
        data = path.read_bytes()
        damaged: list[bytes | None] = [data[:-1], None]
        for at in sorted({0, len(data) // 2, len(data) - 1}):
            damaged.append(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        for each in damaged:
            path.unlink() if each is None else path.write_bytes(each)
            caplog.clear()
            assert checkpoints.newest().step == 1
            assert each is None or f"{folder} is damaged" in caplog.text
        path.write_bytes(data)
    assert checkpoints.newest().step == 2


@pytest.mark.row("F13")
def test_what_orbax_reads_otherwise_is_found(checkpoints, monkeypatch):
    save(checkpoints, 1)
    monkeypatch.setattr(checkpoint, "check_digests", lambda folder: None)
    path = checkpoints.folder / "1" / "facts" / "metadata"
    whole = path.read_text()
    path.write_text(whole.replace('"epoch": 1', '"epoch": 2'))
    with pytest.raises(CheckpointError, match="its facts are not what was written"):
        checkpoints.read(1)
    path.write_text(whole)
    monkeypatch.setattr(checkpoint, "_digest", lambda array: "another")
    with pytest.raises(CheckpointError, match="1 is damaged .`a` is not what was"):
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


@pytest.mark.usefixtures("own_folder")
def test_a_checkpoint_of_an_mlp_has_the_arrays_that_it_had():
    """So those of earlier runs are read."""
    np.savez("x.npz", X=np.ones((27, 64)), y=np.arange(27) % 3)
    command = "train x.npz --model encoder --loader memory --layers 64 5 3 --epochs 1"
    command += " --save-every 1 --no-report --workdir run"
    assert main(command.split()) == 0
    found = Checkpoints(Path("run/checkpoints"), keep=2).newest()
    names = {
        f"{tree}.{module}.{name}"
        for tree in ("params", "opt_state.0.mu", "opt_state.0.nu")
        for module in ("hidden/~/linear_0", "classes")
        for name in "wb"
    }
    assert {*found.arrays} == {"step", "opt_state.0.count", *names}
