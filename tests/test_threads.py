"""Forks of processes that have trained: what hangs is refused, what works goes on."""

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
        signal.alarm(250)
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


CASES = {
    "what needs no threads goes on": (
        """
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
""",
        "done\n0\n" + 7 * REFUSED,
    ),
    "the first training may be in a fork and the parent goes on": (
        """
in_fork(lambda: (trainer().fit(text), in_fork(lambda: trainer().fit(text))))
trainer().fit(text)
in_fork(lambda: print("read"))
trainer().fit(text)
""",
        f"{REFUSED}done\n0\nread\ndone\n0\n",
    ),
    "the error comes through a pool": (
        """
import multiprocessing
trained = trainer().fit(text)
with multiprocessing.get_context("fork").Pool(1) as pool:
    try:
        pool.map(trained.fit, [text])
    except RuntimeError as error:
        print(error)
        print(0)
""",
        REFUSED,
    ),
}


@pytest.mark.slow
@pytest.mark.row("F31")
@pytest.mark.parametrize(("code", "expected"), CASES.values(), ids=CASES)
def test_what_would_hang_in_a_fork_is_refused(tmp_path, code, expected):
    done = run_python("-c", PARENT + code, cwd=tmp_path)
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert done.stdout == expected


LACKING = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.thread import _WorkItem
from embedder.cli.main import prepare_process

def lack(*arguments):
    raise MemoryError

prepare_process()
sys.stdout.write("waits\\n")
sys.stdout.flush()
"""
WAITING = {
    "before it begins": """
threading.Thread._bootstrap_inner = lack
threading.Thread(target=print).start()
""",
    "while it works": """
reader, found = threading.Event(), []
threading.Thread(target=lack).start()
reader.wait()
""",
    "before it tells its result": """
_WorkItem.run = lack
ThreadPoolExecutor(1).submit(print).result()
""",
}


@pytest.mark.row("B41")
@pytest.mark.parametrize("work", WAITING.values(), ids=WAITING)
def test_a_thread_without_memory_ends_the_program(work):
    """Who waits for it would wait for ever: the test without `prepare_process`."""
    done = run_python("-c", LACKING + work)
    line = "embedder: Out of memory: a thread could not begin or go on.\n"
    assert (done.returncode, done.stdout, done.stderr) == (3, "waits\n", line)


def test_threads_on_cores_have_one_of_each_library_of_matrix_products(monkeypatch):
    """Also of those loaded after the first call: SciPy comes with its own."""
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    done = run_python(
        "-c",
        """
import numpy
from threadpoolctl import threadpool_info
from embedder.base.threads import map_on_cores

def numbers(part):
    return sorted(x["num_threads"] for x in threadpool_info())

map_on_cores(numbers, [0, 1], 2)
import scipy.linalg
print(numbers(0), map_on_cores(numbers, [0, 1], 2)[0])
""",
    )
    assert (done.stdout, done.returncode) == ("[2, 2] [1, 1]\n", 0), done.stderr
