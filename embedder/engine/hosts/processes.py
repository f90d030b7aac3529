"""Several processes that are one run: they agree on its settings and fail together."""

import errno
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from embedder.engine.hosts.joining import leave
from embedder.errors import InputError

_MESSAGE_BYTES = 2**14
_INTERRUPTED = "-1"  # in place of an errno
_PIECE_BYTES = 2**26  # of an array, broadcast at once


def num_processes() -> int:
    """Number of processes of the run; with one, JAX's devices are not initialized."""
    return jax.process_count() if jax.distributed.is_initialized() else 1


def is_first() -> bool:
    """Whether this is the process that writes."""
    return num_processes() == 1 or jax.process_index() == 0


@contextmanager
def fail_together() -> Iterator[None]:
    """Raises an error of the body in every process when one raises it.

    Raises:
      Exception, KeyboardInterrupt: the error of this process; or, from the message of
        the first process that failed, an OSError or a KeyboardInterrupt if it had one,
        else an InputError.
    """
    if num_processes() == 1:
        yield
        return
    failure: Exception | KeyboardInterrupt | None = None
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:  # others wait below for this one
        failure = error
    messages = _gather_messages(_describe(failure) if failure else "")
    if not any(messages):
        return
    leave()
    if failure:
        raise failure
    process, text = next((i, text) for i, text in enumerate(messages) if text)
    number, _, message = text.partition(" ")
    message = f"Process {process}: {message}"
    if number == _INTERRUPTED:
        raise KeyboardInterrupt(message)
    raise InputError(message) if number == "0" else OSError(int(number), message)


def _describe(failure: Exception | KeyboardInterrupt) -> str:
    """The errno of a disk error, `_INTERRUPTED` or 0, and the message."""
    if isinstance(failure, KeyboardInterrupt):
        return f"{_INTERRUPTED} {str(failure) or 'Interrupted.'}"
    if isinstance(failure, OSError) and failure.errno not in (None, errno.ENOENT):
        where = f"{failure.filename}: " if failure.filename else ""
        return f"{failure.errno} {where}{failure.strerror}"
    return f"0 {str(failure) or type(failure).__name__}"


def broadcast_flag(flag: bool) -> bool:
    """`flag` of the first process, in all processes."""
    if num_processes() == 1:
        return flag
    return bool(multihost_utils.broadcast_one_to_all(np.int32(flag)))


def largest(number: int) -> int:
    """The largest `number` of all processes; each of them must call this."""
    return int(np.max(multihost_utils.process_allgather(np.int32(number))))


def barrier() -> None:
    """Waits until every process has called this."""
    largest(0)


def broadcast_arrays(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays of the first process, in all; others pass some of the same shapes."""
    with jax.enable_x64(True):
        return {name: _broadcast_rows(array) for name, array in arrays.items()}


def _broadcast_rows(array: np.ndarray) -> np.ndarray:
    if array.nbytes <= _PIECE_BYTES or len(array) == 1:
        return np.asarray(multihost_utils.broadcast_one_to_all(array))
    rows = max(1, _PIECE_BYTES // array[:1].nbytes)
    pieces = (array[start : start + rows] for start in range(0, len(array), rows))
    return np.concatenate([_broadcast_rows(piece) for piece in pieces])


def broadcast_facts(facts: Any) -> Any:
    """`facts`, which JSON can hold, of the first process, in all processes."""
    data = np.frombuffer(json.dumps(facts).encode(), np.uint8)
    size = int(multihost_utils.broadcast_one_to_all(np.int32(len(data))))
    mine = data if is_first() else np.zeros(size, np.uint8)
    return json.loads(bytes(_broadcast_rows(mine)))


def check_agreement(facts: Mapping[str, object]) -> None:
    """Refuses to continue if `facts` differ between processes.

    Raises:
      InputError: in every process; it names what differs.
    """
    if num_processes() == 1:
        return
    texts = {name: json.dumps(fact, sort_keys=True) for name, fact in facts.items()}
    digests = {
        name: hashlib.sha256(text.encode()).hexdigest()[:16]
        for name, text in texts.items()
    }
    gathered = [json.loads(text) for text in _gather_messages(json.dumps(digests))]
    names = sorted({name for each in gathered for name in each})
    different = [
        name for name in names if len({each.get(name) for each in gathered}) > 1
    ]
    if different:
        process = jax.process_index()
        leave()
        here = ", ".join(f"{name} {texts.get(name)}"[:100] for name in different)
        raise InputError(
            f"Processes differ in {', '.join(different)}; process {process} has "
            f"{here}: give all of them the same whole command."
        )


def _gather_messages(message: str) -> list[str]:
    """The messages of all processes, cut to 16 KiB."""
    data = np.zeros(_MESSAGE_BYTES, np.uint8)
    text = message.encode(errors="backslashreplace")[:_MESSAGE_BYTES]
    data[: len(text)] = np.frombuffer(text, np.uint8)
    rows = multihost_utils.process_allgather(data)
    return [bytes(row).rstrip(b"\0").decode(errors="replace") for row in rows]
