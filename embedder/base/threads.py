"""Calls from several threads, threads without memory, forks, and cores.

JAX and polars keep thread pools, which a fork does not copy: a call in the child would
wait for ever. It is refused instead.
"""

import contextlib
import functools
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeVar

_Self = TypeVar("_Self")
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_Part = TypeVar("_Part")
_NO_MEMORY = b"embedder: Out of memory: a thread could not begin or go on.\n"
_blas_lock = threading.Lock()
_user: int | None = None  # id of the process that first used them


def use_threads() -> None:
    """Notes that this process is about to use JAX or polars.

    Raises:
      RuntimeError: this process is a fork of one that has used them.
    """
    global _user
    if _user not in (None, os.getpid()):
        raise RuntimeError(
            "This process is a fork of one that has trained or read tables, whose "
            "threads it lacks: have multiprocessing start processes by 'spawn' or "
            "'forkserver', or do this in the parent."
        )
    _user = os.getpid()


def _note_jax() -> None:
    """Before a fork: notes whether JAX is in use, by whomever; there is no public way
    to ask (jax-ml/jax issue 23320)."""
    global _user
    bridge = sys.modules.get("jax._src.xla_bridge")
    if _user is None and bridge is not None and bridge.backends_are_initialized():
        _user = os.getpid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_note_jax)


def available_cores() -> int:
    """The cores that this process may use, by its affinity where the system tells."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def map_on_cores(
    function: Callable[[_Part], _Result], parts: Sequence[_Part], most: int
) -> list[_Result]:
    """`function` of each part, in a thread on each core, `most` at most.

    Matrix products have one thread each meanwhile, in the whole process. One call after
    the other is served, so `function` must not come here.
    """
    if len(parts) < 2:
        return [*map(function, parts)]
    from concurrent.futures import ThreadPoolExecutor

    num_threads = min(most, available_cores(), len(parts))
    with _one_blas_thread(), ThreadPoolExecutor(num_threads) as threads:
        return [*threads.map(function, parts)]


@contextlib.contextmanager
def _one_blas_thread() -> Iterator[None]:
    with_scipy = "scipy.linalg" in sys.modules  # it has a library of its own
    with _blas_lock, _blas_threads(with_scipy).limit(limits=1, user_api="blas"):
        yield


@functools.cache
def _blas_threads(with_scipy: bool) -> Any:
    """Of the libraries that are loaded by the first call."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def end_if_threads_lack_memory() -> None:
    """Has a MemoryError that ends a thread end the program, with exit code 3.

    Otherwise the program waits for ever: `Thread.start` for a thread that did not
    begin, or the reader of a result for a thread that is gone.
    """
    on_unraisable, on_exception = sys.unraisablehook, threading.excepthook

    def unraisable(event: "sys.UnraisableHookArgs") -> None:  # a thread did not begin
        _end_if_memory_error(event.exc_type)
        on_unraisable(event)

    def exception(event: threading.ExceptHookArgs) -> None:  # a thread has ended
        _end_if_memory_error(event.exc_type)
        on_exception(event)

    def worker(record: logging.LogRecord) -> bool:  # a thread of an executor has ended
        _end_if_memory_error(record.exc_info and record.exc_info[0])
        return True

    sys.unraisablehook, threading.excepthook = unraisable, exception
    logging.getLogger("concurrent.futures").addFilter(worker)


def _end_if_memory_error(kind: object) -> None:
    if isinstance(kind, type) and issubclass(kind, MemoryError):
        _end()


def _end() -> NoReturn:
    with contextlib.suppress(OSError):  # standard error is closed
        os.write(2, _NO_MEMORY)
    os._exit(3)


def in_turn(
    method: Callable[Concatenate[_Self, _Arguments], _Result],
) -> Callable[Concatenate[_Self, _Arguments], _Result]:
    """`method`, whose calls on one object wait for each other in all threads."""

    @functools.wraps(method)
    def call(
        self: _Self, /, *arguments: _Arguments.args, **options: _Arguments.kwargs
    ) -> _Result:
        use_threads()
        with vars(self).setdefault("_turn", _Turn()):  # atomic: no lock is lost
            return method(self, *arguments, **options)

    return call


class _Turn:
    """A lock that can be pickled and copied with its object; copies are unlocked."""

    def __init__(self):
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[Any, ...]:
        return _Turn, ()
