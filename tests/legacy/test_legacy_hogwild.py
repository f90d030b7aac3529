"""Workers: what they compute together, and that nothing is left of them."""

import math
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import numpy as np
import pytest

from legacy import EmbeddingTrainer, hogwild
from legacy.hogwild import run_workers

ROOT = Path(__file__).parents[2]
posix = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")

# What the workers run has to be in a module that they can import.
WORK = """
import os, signal, time

def add(state, arrays, plan, worker, num_workers):
    tables = state[0]
    tables[worker] += sum(array.sum() for array in arrays) + plan
    return worker, num_workers, tables.dtype.str, os.environ["OPENBLAS_NUM_THREADS"]

def fail(state, arrays, plan, worker, num_workers):
    state[0] += 1
    if worker == 1:
        raise ValueError("bad plan")
    time.sleep(60)

def die(state, arrays, plan, worker, num_workers):
    state[0] += 1
    if worker == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)
"""


@pytest.fixture
def work(tmp_path, monkeypatch):
    """The module of what workers run."""
    (tmp_path / "hogwild_work.py").write_text(WORK)
    monkeypatch.syspath_prepend(tmp_path)
    import hogwild_work

    yield hogwild_work
    del sys.modules["hogwild_work"]


@pytest.fixture
def shared_names(monkeypatch):
    """Names of the shared memory made; after the test none may be left."""
    names = []

    def recorded(*args, **options):
        shared = SharedMemory(*args, **options)
        names.append(shared.name)
        return shared

    monkeypatch.setattr(hogwild, "SharedMemory", recorded)
    yield names
    assert names and multiprocessing.active_children() == []
    for name in names:
        with pytest.raises(FileNotFoundError):
            SharedMemory(name)


@pytest.fixture
def tables() -> np.ndarray:
    return np.arange(8, dtype=np.float32).reshape(2, 2, 2)


def test_run_workers(work, shared_names, tables):
    arrays = [np.array([1, 2], np.int32), np.zeros(0), np.array(3, np.uint8)]
    before, threads = tables.copy(), os.environ.get("OPENBLAS_NUM_THREADS")
    results = run_workers(work.add, [tables], arrays, 10, 2)
    assert results == [(worker, 2, "<f4", "1") for worker in (0, 1)]
    np.testing.assert_array_equal(tables, before + 16)
    assert os.environ.get("OPENBLAS_NUM_THREADS") == threads


def test_an_exception_in_a_worker(work, shared_names, tables):
    before = tables.copy()
    with pytest.raises(RuntimeError) as error:
        run_workers(work.fail, [tables], [], None, 2)
    assert str(error.value) == "Worker 1 failed: ValueError: bad plan"
    assert "hogwild_work.py" in error.value.__notes__[0]
    np.testing.assert_array_equal(tables, before)


@posix
def test_a_killed_worker(work, shared_names, tables):
    before = tables.copy()
    with pytest.raises(RuntimeError, match=r"^Worker 1 died with exit code -9\.$"):
        run_workers(work.die, [tables], [], None, 2)
    np.testing.assert_array_equal(tables, before)


def test_a_plan_that_does_not_pickle(work, shared_names, tables):
    errors = AttributeError, TypeError, pickle.PicklingError
    with pytest.raises(errors, match="pickle"):
        run_workers(work.add, [tables], [], lambda: None, 2)


def test_too_little_shared_memory(tables, monkeypatch):
    monkeypatch.setattr(hogwild, "_SHARED_FOLDER", str(ROOT))
    monkeypatch.setattr(hogwild.shutil, "disk_usage", lambda _: Free())
    with pytest.raises(
        MemoryError, match="needs 32 bytes of shared memory, .* 31 free"
    ):
        run_workers(len, [tables], [], None, 2)


class Free:
    free = 31


def sequences(num_sequences: int) -> list[list[str]]:
    rng = np.random.default_rng(0)
    probability = 1 / np.arange(1, 301)
    probability /= probability.sum()
    ids = rng.choice(300, (num_sequences, 20), p=probability)
    return [[f"w{i}" for i in row] for row in ids]


@pytest.mark.spread(1)
@pytest.mark.parametrize("architecture", ["skipgram", "cbow"])
def test_training_with_workers(architecture, shared_names):
    options = {"vector_size": 16, "epochs": 3, "cap": 16.0}
    corpus = sequences(2000)
    alone = EmbeddingTrainer(architecture=architecture, **options).fit(corpus)
    trainer = EmbeddingTrainer(architecture=architecture, workers=2, **options)
    trainer.fit(corpus)
    assert trainer.index_to_key == alone.index_to_key
    assert np.isfinite(trainer.vectors).all()
    history = trainer.loss_history
    assert len(history) == 3
    assert history[-1] < history[0] < 6 * math.log(2)
    # Asynchronous, but the same algorithm: about the same loss.
    np.testing.assert_allclose(history, alone.loss_history, rtol=0.1)
    trainer.partial_fit(corpus[:50])
    assert len(trainer.loss_history) == 4


def test_training_that_diverges_in_a_worker(shared_names):
    trainer = EmbeddingTrainer(workers=2, alpha=1e30, cap=math.inf, min_count=1)
    with pytest.raises(
        RuntimeError, match=r"Worker \d failed: FloatingPointError: Trai"
    ):
        trainer.fit(sequences(50))
    with pytest.raises(RuntimeError, match="not trained yet"):
        trainer.vectors  # noqa: B018


@posix
def test_training_whose_worker_is_killed(shared_names):
    def kill_one():
        while len(multiprocessing.active_children()) < 2:
            time.sleep(0.01)
        time.sleep(0.3)
        os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_one)
    killer.start()
    with pytest.raises(RuntimeError, match=r"^Worker \d died with exit code -9\.$"):
        EmbeddingTrainer(workers=2, epochs=100_000).fit(sequences(500))
    killer.join()


# Trains for ever; prints the name of its shared memory and its workers' process ids.
ENDLESS = """
import sys
from legacy import EmbeddingTrainer, hogwild

def recorded(function, attribute):
    def call(*args, **options):
        result = function(*args, **options)
        print(attribute(result), flush=True)
        return result
    return call

if __name__ == "__main__":
    hogwild.SharedMemory = recorded(hogwild.SharedMemory, lambda x: x.name)
    hogwild._start = recorded(hogwild._start, lambda x: x.process.pid)
    corpus = [[f"w{i % 97}" for i in range(j, j + 20)] for j in range(500)]
    EmbeddingTrainer(workers=2, epochs=10**6, cap=16.0).fit(corpus)
"""


@pytest.fixture
def endless(tmp_path):
    """A training in its own session; its shared memory's name and its workers."""
    script = tmp_path / "endless.py"
    script.write_text(ENDLESS)
    process = subprocess.Popen(
        [sys.executable, "-W", "error", str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )
    name = process.stdout.readline().strip()
    pids = [int(process.stdout.readline()) for _ in range(2)]
    yield process, name, pids
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def wait_until_gone(name: str, pids: list[int], seconds: float = 10) -> None:
    """Fails unless the shared memory and the processes go away in time."""
    path, end = Path("/dev/shm") / name, time.monotonic() + seconds
    while path.exists() or any(map(is_alive, pids)):
        assert time.monotonic() < end, "something is left"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.spread(1)
@posix
@pytest.mark.parametrize("seconds", [0.05, 1.5], ids=["starting", "training"])
def test_ctrl_c(endless, seconds):
    process, name, pids = endless
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of them
    _, messages = process.communicate(timeout=20)
    assert process.returncode == -signal.SIGINT
    assert messages.count("Traceback") == 1
    assert messages.endswith("KeyboardInterrupt\n")
    assert "resource_tracker" not in messages
    wait_until_gone(name, pids, seconds=0)


@posix
@pytest.mark.parametrize("seconds", [0.0, 1.5], ids=["starting", "training"])
def test_workers_end_with_their_parent(endless, seconds):
    process, name, pids = endless
    time.sleep(seconds)
    process.kill()
    process.wait()
    wait_until_gone(name, pids)
