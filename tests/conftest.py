"""Settings and fixtures of all tests."""

import collections
import gc
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import jax
import numpy as np
import orbax.checkpoint  # noqa: F401  see below
import pytest

from embedder.cli.main import main
from embedder.data.tfdata import has_tensorflow
from embedder.engine import compilation, epochs
from embedder.tokens import backends
from tests.commands import SECONDS
from tests.memory import forget_programs

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "standard")
# The same examples each time, however long one takes; `.ci/nightly` looks for others by
# `--hypothesis-profile random`.
hypothesis.settings.register_profile(
    "random",
    deadline=None,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile(
    "tests", hypothesis.settings.get_profile("random"), derandomize=True
)
hypothesis.settings.load_profile("tests")
USUAL_LONG_RUN = backends.LONG_RUN
gc.set_threshold(50_000, 20, 100)  # a full collection looks at all of JAX: 0.3 s
# Orbax is imported above because a run imports it in a thread that saves: pytest parses
# `orbax.checkpoint.test_utils` to rewrite its assertions, and two threads that parse at
# once can fail in CPython 3.11 (AST constructor recursion depth mismatch).
os.environ["PYTHONPATH"] = str(Path(__file__).parents[1])  # whose packages are these
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As under nohup. Processes of tests inherit it, and tests interrupt them.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure():
    """Makes JAX and Numba load what any session of any checkout compiled before.

    It is in `embedder-tests` of the user's cache folder. The key of a program is all of
    its code and of the compiler's options: a changed program is compiled.

    Numba compiles what `backend` auto leaves open, as it does for long runs: one kernel
    serves vocabularies of all sizes, and XLA would compile a program for each.
    """
    caches = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    if caches.name != "embedder-tests":  # as in the processes that a session starts
        os.environ["XDG_CACHE_HOME"] = str(caches / "embedder-tests")
    compilation.enable_compilation_cache()
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    backends.LONG_RUN = 0


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Marks cells of tests as slow, all but the number that `spread` names, and skips
    those of tf.data where TensorFlow is not installed."""
    if not has_tensorflow():
        skip = pytest.mark.skip(reason="TensorFlow, which tf.data is of, is missing")
        for item in items:
            values = item.callspec.params.values() if hasattr(item, "callspec") else ()
            texts = [x for x in values if isinstance(x, str)]  # others may have no text
            if item.get_closest_marker("tfdata") or "tfdata" in texts:
                item.add_marker(skip)
    cells = collections.defaultdict(list)
    for item in items:
        if item.get_closest_marker("spread") and not item.get_closest_marker("slow"):
            cells[item.nodeid.split("[")[0]].append(item)
    for some in cells.values():
        (number,) = some[0].get_closest_marker("spread").args
        fast = {(len(some) - 1) * i // max(1, number - 1) for i in range(number)}
        for place, item in enumerate(some):
            if place not in fast:
                item.add_marker(pytest.mark.slow)


@pytest.fixture
def usual_backend(monkeypatch):
    """`backend` auto is what it is for users: XLA for short runs."""
    monkeypatch.setattr(backends, "LONG_RUN", USUAL_LONG_RUN)


@pytest.fixture(scope="session", autouse=True)
def first_program():
    """With its first program JAX decides on its cache: before a bench turns it off."""
    jax.jit(lambda: 0)()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown():
    """Programs of former tests are forgotten when they take much memory."""
    yield
    forget_programs()


@pytest.fixture(scope="module")
def quick_compilation():
    """Programs that are run a few times need not be fast. JAX would take those of one
    module for another: how they were compiled is no part of their key in memory."""
    jax.clear_caches()
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
    jax.clear_caches()


@pytest.fixture
def sighup():
    """SIGHUP ends processes, also those of tests under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def own_folder(tmp_path, monkeypatch) -> Path:
    """The working folder, in which a test is alone."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Real data sets, where the variable EMBEDDER_DATA says they are."""
    folder = os.environ.get("EMBEDDER_DATA")
    if not folder:
        pytest.skip("needs real data: set EMBEDDER_DATA to their folder")
    return Path(folder)


@pytest.fixture
def sequences() -> list[list[str]]:
    """300 sequences of 0 to 40 tokens, Zipf-distributed over some 60 types."""
    rng = np.random.default_rng(0)
    probability = 1 / np.arange(1, 61)
    probability /= probability.sum()
    lengths = rng.integers(0, 41, size=300)
    return [
        [f"w{i}" for i in rng.choice(60, size=length, p=probability)]
        for length in lengths
    ]


@pytest.fixture
def text_file(tmp_path, sequences) -> Path:
    """The sequences as a text file."""
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(" ".join(sequence) for sequence in sequences))
    return path


@pytest.fixture
def stopped(monkeypatch, capsys):
    """A function that runs `embedder train` until SIGTERM comes, amid an epoch."""

    def train_until(*arguments: str, epoch: int = 1) -> None:
        def tell(self, place, *rest):
            if place.epoch == epoch and place.position:
                signal.raise_signal(signal.SIGTERM)
            return before(self, place, *rest)

        with monkeypatch.context() as patch:
            before = epochs._Reporter._status
            patch.setattr(epochs._Reporter, "_status", tell)
            assert main(["train", *arguments]) == 143
        message = "embedder: Stopped after [0-9]+ updates, which are saved."
        assert re.fullmatch(message, capsys.readouterr().err.splitlines()[-1])

    return train_until


@pytest.fixture
def run_notebook(tmp_path, monkeypatch) -> Callable[[Any], None]:
    """Runs the cells of a notebook in `tmp_path`, by a kernel of this Python."""
    needed = "ipykernel.kernelspec", "nbclient", "nbformat"
    kernelspec, client, _ = (
        pytest.importorskip(name, reason="needs the extra `dev`") for name in needed
    )
    kernelspec.install(kernel_name="here", prefix=str(tmp_path))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share" / "jupyter"))
    path = os.pathsep.join(path for path in sys.path if path)
    monkeypatch.setenv("PYTHONPATH", path)

    def run(book: Any) -> None:
        resources = {"metadata": {"path": tmp_path}}
        client.NotebookClient(
            book, kernel_name="here", timeout=SECONDS, resources=resources
        ).execute()

    return run
