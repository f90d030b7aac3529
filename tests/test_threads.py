"""Forks of processes that have trained: what hangs is refused, what works goes on."""

from pathlib import Path

import pytest

from tests.commands import run_python

PARENT = """
import os, pickle, signal, sys, warnings
warnings.simplefilter("ignore")  # JAX warns of every fork
import numpy as np
from embedder import EmbeddingTrainer, FeatureEncoder, Vectors
from embedder import read_vectors, write_vectors

def trainer():
    return EmbeddingTrainer(vector_size=4, min_count=1, epochs=1, sample=0)

def encoder():
    return FeatureEncoder((2, 2, 2), epochs=1)

text = [["a", "b", "c"]] * 20
x, y = np.eye(2, dtype=np.float32), [0, 1]

def in_fork(work):
    child = os.fork()
    if not child:
        signal.alarm(30)
        try:
            work()
            print("done", flush=True)
        except RuntimeError as error:
            print(error, flush=True)
        finally:
            os._exit(0)
    print(os.waitpid(child, 0)[1])
"""
REFUSED = (
    "This process is a fork of one that has trained or read tables, whose threads it "
    "lacks: have multiprocessing start processes by 'spawn' or 'forkserver', or do "
    "this in the parent.\n0\n"
)


def output(tmp_path: Path, code: str) -> str:
    done = run_python("-c", PARENT + code, cwd=tmp_path)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.row("F31")
def test_what_would_hang_is_refused_and_what_needs_no_threads_goes_on(tmp_path):
    code = """
trained, fitted = trainer().fit(text), encoder().fit(x, y)
nearest = trained.most_similar("a")
vectors = Vectors(trained.index_to_key, trained.vectors)

def work():
    assert trained.most_similar("a") == nearest
    trained.save("model.npz")
    copied = pickle.loads(pickle.dumps(trained))
    for other in (EmbeddingTrainer.load("model.npz"), copied):
        assert other.most_similar("a") == nearest
    for name in ("vectors.npz", "vectors.safetensors", "vectors.bin"):
        write_vectors(vectors, name)
        assert read_vectors(name).most_similar("a") == nearest

in_fork(work)
in_fork(lambda: trained.fit(text))
in_fork(lambda: trained.partial_fit(text))
in_fork(lambda: encoder().fit(x, y))
in_fork(lambda: fitted.transform(x))
in_fork(lambda: fitted.predict(x))
in_fork(lambda: write_vectors(vectors, "vectors.txt"))
in_fork(lambda: write_vectors(vectors, "vectors.parquet"))
"""
    assert output(tmp_path, code) == "done\n0\n" + 7 * REFUSED


@pytest.mark.slow
@pytest.mark.row("F31")
def test_jax_that_somebody_else_has_used_counts(tmp_path):
    code = "import jax; jax.devices()\nin_fork(lambda: trainer().fit(text))"
    assert output(tmp_path, code) == REFUSED


@pytest.mark.slow
@pytest.mark.row("F31")
def test_the_first_training_may_be_in_a_fork_and_the_parent_goes_on(tmp_path):
    code = """
in_fork(lambda: (trainer().fit(text), in_fork(lambda: trainer().fit(text))))
trainer().fit(text)
in_fork(lambda: print("read"))
trainer().fit(text)
"""
    lines = output(tmp_path, code).splitlines()
    assert lines == [*REFUSED.splitlines(), "done", "0", "read", "done", "0"]


@pytest.mark.slow
@pytest.mark.row("F31")
def test_the_error_comes_through_a_pool(tmp_path):
    code = """
import multiprocessing
trained = trainer().fit(text)
with multiprocessing.get_context("fork").Pool(1) as pool:
    try:
        pool.map(trained.fit, [text])
    except RuntimeError as error:
        print(error)
        print(0)
"""
    assert output(tmp_path, code) == REFUSED


LACKING = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.thread import _WorkItem
from embedder.cli import prepare_process

def lack(*arguments):
    raise MemoryError

prepare_process()
sys.stdout.write("waits\\n")
sys.stdout.flush()
"""
DIES_BEFORE_IT_BEGINS = """
threading.Thread._bootstrap_inner = lack
threading.Thread(target=print).start()
"""
DIES_WHILE_IT_WORKS = """
reader, found = threading.Event(), []
threading.Thread(target=lack).start()
reader.wait()
"""
DIES_BEFORE_IT_TELLS_ITS_RESULT = """
_WorkItem.run = lack
ThreadPoolExecutor(1).submit(print).result()
"""


@pytest.mark.row("B41")
@pytest.mark.parametrize(
    "work",
    [DIES_BEFORE_IT_BEGINS, DIES_WHILE_IT_WORKS, DIES_BEFORE_IT_TELLS_ITS_RESULT],
    ids=["before it begins", "while it works", "before it tells its result"],
)
def test_a_thread_without_memory_ends_the_program(work):
    """Who waits for it would wait for ever: the test without `prepare_process`."""
    done = run_python("-c", LACKING + work, timeout=30)
    line = "embedder: Out of memory: a thread could not begin or go on.\n"
    assert (done.returncode, done.stdout, done.stderr) == (3, "waits\n", line)


def test_other_errors_of_threads_are_printed_as_ever():
    work = "t = threading.Thread(target=lambda: 1 / 0); t.start(); t.join()"
    done = run_python("-c", LACKING + work)
    assert done.returncode == 0 and "ZeroDivisionError" in done.stderr
