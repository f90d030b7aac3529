"""Several processes that are one run: all mean the same, and fail together."""

import errno
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from embedder.errors import InputError
from embedder.hosts.joining import leave

_MESSAGE_BYTES = 2**14
_PIECE_BYTES = 2**26  # of what goes from one to all at once


def num_processes() -> int:
    """How many take part; JAX's devices are not touched where there is one."""
    return jax.process_count() if jax.distributed.is_initialized() else 1


def is_first() -> bool:
    """Whether this is the process that writes."""
    return num_processes() == 1 or jax.process_index() == 0


@contextmanager
def together() -> Iterator[None]:
    """Makes an error of the body in one process an error in all, and the end of them.

    Raises:
      Exception: as raised here; else, with the message of the first process that has
        one, an OSError if that has, or a ValueError.
    """
    if num_processes() == 1:
        yield
        return
    failure: Exception | None = None
    try:
        yield
    except Exception as error:
        failure = error
    told = _tell_all(_describe(failure) if failure else "")
    if not any(told):
        return
    leave()
    if failure:
        raise failure
    process, text = next((i, text) for i, text in enumerate(told) if text)
    number, _, message = text.partition(" ")
    message = f"Process {process}: {message}"
    raise InputError(message) if number == "0" else OSError(int(number), message)


def _describe(failure: Exception) -> str:
    """Number of an error of the disk, or 0, and what it says."""
    if isinstance(failure, OSError) and failure.errno not in (None, errno.ENOENT):
        where = f"{failure.filename}: " if failure.filename else ""
        return f"{failure.errno} {where}{failure.strerror}"
    return f"0 {failure or type(failure).__name__}"


def first_says(flag: bool) -> bool:
    """What `flag` is in the first process."""
    if num_processes() == 1:
        return flag
    return bool(multihost_utils.broadcast_one_to_all(np.int32(flag)))


def largest(number: int) -> int:
    """The largest `number` of all processes, which have to come here together."""
    return int(np.max(multihost_utils.process_allgather(np.int32(number))))


def from_first(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays of the first process, in all; the others give such of any values."""
    with jax.enable_x64(True):
        return {name: _rows_from_first(array) for name, array in arrays.items()}


def _rows_from_first(array: np.ndarray) -> np.ndarray:
    if array.nbytes <= _PIECE_BYTES or len(array) == 1:
        return np.asarray(multihost_utils.broadcast_one_to_all(array))
    rows = max(1, _PIECE_BYTES // array[:1].nbytes)
    pieces = (array[start : start + rows] for start in range(0, len(array), rows))
    return np.concatenate([_rows_from_first(piece) for piece in pieces])


def facts_from_first(facts) -> Any:
    """What JSON can hold, of the first process, in all."""
    data = np.frombuffer(json.dumps(facts).encode(), np.uint8)
    size = int(multihost_utils.broadcast_one_to_all(np.int32(len(data))))
    mine = data if is_first() else np.zeros(size, np.uint8)
    return json.loads(bytes(_rows_from_first(mine)))


def check_same(facts: Mapping[str, object]) -> None:
    """Refuses to go on where processes have different `facts`.

    Raises:
      ValueError: names what differs, in every process.
    """
    if num_processes() == 1:
        return
    texts = {name: json.dumps(fact, sort_keys=True) for name, fact in facts.items()}
    digests = {
        name: hashlib.sha256(text.encode()).hexdigest()[:16]
        for name, text in texts.items()
    }
    everybody = [json.loads(text) for text in _tell_all(json.dumps(digests))]
    names = sorted({name for each in everybody for name in each})
    different = [
        name for name in names if len({each.get(name) for each in everybody}) > 1
    ]
    if different:
        process = jax.process_index()
        leave()
        here = ", ".join(f"{name} {texts.get(name)}"[:100] for name in different)
        raise InputError(
            f"Processes differ in {', '.join(different)}; process {process} has "
            f"{here}: give all of them the same whole command."
        )


def _tell_all(message: str) -> list[str]:
    """The messages of all processes, cut to 16 kilobytes."""
    data = np.zeros(_MESSAGE_BYTES, np.uint8)
    text = message.encode(errors="backslashreplace")[:_MESSAGE_BYTES]
    given = np.frombuffer(text, np.uint8)
    data[: len(given)] = given
    every = multihost_utils.process_allgather(data)
    return [bytes(row).rstrip(b"\0").decode(errors="replace") for row in every]
