"""Calls from several threads, and forks of a process that has threads.

JAX and polars keep threads, which a fork does not copy: what the child gives them to do
is never done, and it waits for ever. Here it is refused instead.
"""

import functools
import os
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

_Method = TypeVar("_Method", bound=Callable)
_user: int | None = None  # id of the process that first used them


def use_threads() -> None:
    """Says that JAX or polars is about to be used in this process.

    Raises:
      RuntimeError: it is a fork of a process that has used them.
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
    """Before a fork: somebody else may have used JAX."""
    global _user
    bridge = sys.modules.get("jax._src.xla_bridge")
    if _user is None and bridge is not None and bridge.backends_are_initialized():
        _user = os.getpid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_note_jax)


def in_turn(method: _Method) -> _Method:
    """A method that trains its object: one call after the other, whatever the threads.

    The first in line goes on with what the one before has left.
    """

    @functools.wraps(method)
    def call(self, *arguments, **options):
        use_threads()
        with vars(self).setdefault("_turn", _Turn()):  # one step: no lock is lost
            return method(self, *arguments, **options)

    return call


class _Turn:
    """A lock that may be pickled and copied with its object; copies are open."""

    def __init__(self):
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error) -> None:
        self._lock.release()

    def __reduce__(self):
        return _Turn, ()
