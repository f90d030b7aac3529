"""Several processes, on one host or on many, as one run.

The runtime is JAX's own: processes find each other by `jax.distributed`, and devices of
all of them make one mesh. Here is only what is around it: who takes part, that all mean
the same run, and that an error of one is an error of all.
"""

import ctypes
import hashlib
import json
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

import jax
import numpy as np
from jax.experimental import multihost_utils

from embedder.train.compilation import avoid_slow_scatters

LOST = "Lost another process of the run, which ended or hangs: see what it says itself."
_LAST_WAIT = 3600  # seconds that a finished process waits for the others to finish
_MESSAGE_BYTES = 2**14
_kept: list[object] = []  # what C has pointers to
_LAUNCHERS = {
    "OMPI_COMM_WORLD_SIZE": "OMPI_COMM_WORLD_RANK",  # mpirun of Open MPI
    "SLURM_NTASKS": "SLURM_PROCID",  # srun
}
"""Variables of launchers: how many processes there are, and which this is."""


class Peers(NamedTuple):
    """Who takes part in a run, as said on the command line."""

    coordinator: str | None = None  # HOST:PORT of process 0
    num_processes: int | None = None
    process_id: int | None = None
    init_timeout: int = 60  # seconds to wait for the others
    lost_after: int = 20  # seconds without a sign of life, until one counts as lost


def join(peers: Peers) -> None:
    """Joins the run that `peers` or a launcher's variables name; else does nothing.

    To be called before JAX is used.

    Raises:
      ValueError: the arguments are wrong, or the others were not found in time.
    """
    given = peers.coordinator, peers.num_processes, peers.process_id
    for name in ("init_timeout", "lost_after"):
        if getattr(peers, name) < 1:
            raise ValueError(
                f"`{name}` must be an integer >= 1, got {getattr(peers, name)}."
            )
    if any(value is not None for value in given):
        _check(*given)
    elif not _is_launched():
        return
    coordinator, num_processes, process_id = given
    if num_processes == 1:
        return
    avoid_slow_scatters()
    ending = _Ending(_not_joined(peers), 2)
    _watch_aborts(ending)
    with _limit(peers.init_timeout, ending):
        try:
            jax.distributed.initialize(
                coordinator,
                num_processes,
                process_id,
                initialization_timeout=peers.init_timeout,
                heartbeat_timeout_seconds=peers.lost_after,
                shutdown_timeout_seconds=_LAST_WAIT,
            )
        except (RuntimeError, ValueError) as error:
            raise ValueError(ending.message) from error
    ending.message, ending.code = LOST, 3


def leave() -> None:
    """Waits until all processes have come to their end."""
    if jax.distributed.is_initialized():
        jax.distributed.shutdown()


def num_processes() -> int:
    """How many take part; JAX's devices are not touched where there is one."""
    return jax.process_count() if jax.distributed.is_initialized() else 1


def is_first() -> bool:
    """Whether this is the process that writes."""
    return num_processes() == 1 or jax.process_index() == 0


@contextmanager
def together() -> Iterator[None]:
    """Makes an error of the body in one process an error in all.

    Raises:
      OSError, ValueError: as raised here; or a ValueError with the message of the first
        process that has one.
    """
    if num_processes() == 1:
        yield
        return
    failure: Exception | None = None
    try:
        yield
    except (OSError, ValueError) as error:
        failure = error
    messages = _tell_all(str(failure) if failure else "")
    if failure:
        raise failure
    for process, message in enumerate(messages):
        if message:
            raise ValueError(f"Process {process}: {message}")


def first_says(flag: bool) -> bool:
    """What `flag` is in the first process."""
    if num_processes() == 1:
        return flag
    return bool(multihost_utils.broadcast_one_to_all(np.int32(flag)))


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
        here = ", ".join(f"{name} {texts.get(name)}"[:100] for name in different)
        raise ValueError(
            f"Processes differ in {', '.join(different)}; process "
            f"{jax.process_index()} has {here}."
        )


@dataclass
class _Ending:
    """What is said when the runtime of JAX ends the process, and the exit code."""

    message: str
    code: int
    error: int = 2  # where standard error goes

    def __call__(self) -> NoReturn:
        os.write(self.error, f"embedder: {self.message}\n".encode())
        os._exit(self.code)


def _watch_aborts(ending: _Ending) -> None:
    """Lets `ending` come where JAX's runtime would end the process.

    When processes do not find each other, or one of them is lost, the runtime writes
    pages to standard error and calls abort; that it takes a function of Python's to do
    something else does not work (jaxlib 0.10: it cannot convert the argument). So what
    compiled code prints goes to a file without a name, and a handler of SIGABRT reads
    that. Python's own output goes where it went.
    """
    written = tempfile.TemporaryFile()
    for name, number in (("stdout", 1), ("stderr", 2)):
        getattr(sys, name).flush()
        own = open(os.dup(number), "w", buffering=1, errors="backslashreplace")
        setattr(sys, name, own)
        os.dup2(written.fileno(), number)
    ending.error = sys.stderr.fileno()

    def end(signal_number: int) -> None:
        written.seek(0)
        text = written.read()
        if b"JAX distributed service" in text:
            ending()
        os.write(ending.error, text)
        os._exit(128 + signal_number)

    handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(end)
    _kept.append(handler)
    ctypes.CDLL(None).signal(signal.SIGABRT, handler)


@contextmanager
def _limit(seconds: int, ending: _Ending) -> Iterator[None]:
    """Ends the process if the body takes longer: the runtime's own limit is later."""
    timer = threading.Timer(seconds, ending)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _tell_all(message: str) -> list[str]:
    """The messages of all processes, cut to 16 kilobytes."""
    data = np.zeros(_MESSAGE_BYTES, np.uint8)
    given = np.frombuffer(message.encode()[:_MESSAGE_BYTES], np.uint8)
    data[: len(given)] = given
    every = multihost_utils.process_allgather(data)
    return [bytes(row).rstrip(b"\0").decode(errors="replace") for row in every]


def _is_launched() -> bool:
    return any(
        rank in os.environ and int(os.environ.get(size, 1)) > 1
        for size, rank in _LAUNCHERS.items()
    )


def _check(coordinator, num_processes, process_id) -> None:
    flags = {
        "--coordinator": coordinator,
        "--num-processes": num_processes,
        "--process-id": process_id,
    }
    missing = [name for name, value in flags.items() if value is None]
    if missing:
        given = ", ".join(f"{n} {v}" for n, v in flags.items() if v is not None)
        raise ValueError(f"{given} needs {' and '.join(missing)} too.")
    if num_processes < 1:
        raise ValueError(
            f"`num_processes` must be an integer >= 1, got {num_processes}."
        )
    if not 0 <= process_id < num_processes:
        raise ValueError(
            f"`process_id` must be from 0 to {num_processes - 1}, got {process_id}."
        )
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise ValueError(f"`coordinator` must be HOST:PORT, got {coordinator!r}.")
    if process_id == 0 and num_processes > 1:
        _check_port(coordinator, int(port))


def _check_port(coordinator: str, port: int) -> None:
    """Refuses a port that another program has: JAX would end the process."""
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    try:
        with socket.create_server(
            ("", port), family=family, dualstack_ipv6=family == socket.AF_INET6
        ):
            pass
    except OSError as error:
        raise ValueError(
            f"`coordinator` {coordinator}: port {port} cannot be opened here "
            f"({os.strerror(error.errno)}): is another run on it?"
        ) from error


def _not_joined(peers: Peers) -> str:
    where = peers.coordinator or "the coordinator that the launcher names"
    who = "This process" if peers.process_id is None else f"Process {peers.process_id}"
    return (
        f"{who} could not join the others at {where} within `init_timeout` = "
        f"{peers.init_timeout} s: is the address right, are all of them up, and has "
        "each an id of its own?"
    )
