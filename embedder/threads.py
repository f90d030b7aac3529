"""Calls from several threads, and forks of a process that has threads.

JAX and polars keep thread pools, which a fork does not copy: a call in the child would
wait for ever. It is refused instead.
"""

import functools
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

_Self = TypeVar("_Self")
_Arguments = ParamSpec("_Arguments")
_Found = TypeVar("_Found")
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
    """Before a fork: notes whether JAX is in use, by whomever."""
    global _user
    bridge = sys.modules.get("jax._src.xla_bridge")
    if _user is None and bridge is not None and bridge.backends_are_initialized():
        _user = os.getpid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_note_jax)


def in_turn(
    method: Callable[Concatenate[_Self, _Arguments], _Found],
) -> Callable[Concatenate[_Self, _Arguments], _Found]:
    """`method`, whose calls on one object wait for each other in all threads."""

    @functools.wraps(method)
    def call(
        self: _Self, /, *arguments: _Arguments.args, **options: _Arguments.kwargs
    ) -> _Found:
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
