"""How processes find each other to be one run, and how they end.

The runtime is JAX's own (`jax.distributed`). It reports what goes wrong by ending the
process with pages of text; here that becomes one line and an exit code.
"""

import contextlib
import ctypes
import logging
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

import jax
from jax._src.clusters import ClusterEnv  # there is no public way to ask a launcher

from embedder.engine.compilation import avoid_slow_scatters
from embedder.errors import InputError
from embedder.hosts.watch import Watch
from embedder.options import PeersConfig

LOST = (
    "Lost another process of the run, which ended or was stopped: see what it says "
    "itself."
)
_LAST_WAIT = 3600  # seconds that a finished process waits for the others to finish
_FATAL = b"Terminating process because the JAX distributed service detected fatal"
_kept: list[object] = []  # what C has pointers to


class _Place(NamedTuple):
    """What `jax.distributed.initialize` takes."""

    coordinator: str
    num_processes: int
    process_id: int
    local_devices: list[int] | None


def join(peers: PeersConfig) -> None:
    """Joins the run that `peers` or a launcher's variables name; else does nothing.

    To be called before JAX is used.

    Raises:
      ValueError: the arguments are wrong, or the others were not found in time.
    """
    place = _place(peers)
    if place is None or place.num_processes == 1:
        return
    if place.process_id == 0:
        _check_port(place.coordinator)
    avoid_slow_scatters()
    # It would take SIGTERM for a note that the run is to be saved.
    jax.config.update("jax_enable_preemption_service", False)
    ending = _Ending(_not_joined(place, peers.init_timeout), 2)
    _watch_aborts(ending)
    with _limit(peers.init_timeout, ending):
        try:
            jax.distributed.initialize(
                *place,
                cluster_detection_method="deactivate",
                initialization_timeout=peers.init_timeout,
                heartbeat_timeout_seconds=peers.lost_after,
                shutdown_timeout_seconds=_LAST_WAIT,
            )
        except (RuntimeError, ValueError) as error:
            raise InputError(ending.message) from error
    ending.message, ending.code = LOST, 3
    _kept.extend([ending, peers])


def watch() -> Watch:
    """A watch over the steps; it ends nothing where this process is alone."""
    limits = [each.lost_after for each in _kept if isinstance(each, PeersConfig)]
    found = Watch(*limits, on_hang=_end_hanging)
    found.start()
    return found


def _end_hanging(seconds: float) -> None:
    message = (
        f"No step has come for {seconds:.0f} s: a process of the run hangs. Where "
        "steps take that long, raise --lost-after."
    )
    _Ending(message, code=3, error=sys.stderr.fileno())()


def leave() -> None:
    """Waits until all processes have come here; a signal ends the waiting."""
    if not jax.distributed.is_initialized():
        return
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    try:
        jax.distributed.shutdown()
    except RuntimeError:
        next(each for each in _kept if isinstance(each, _Ending))()


def _place(peers: PeersConfig) -> _Place | None:
    """Where this process belongs; None: it is alone."""
    if peers.coordinator is not None:
        return _Place(
            peers.coordinator, peers.num_processes, peers.process_id, local_devices=None
        )
    if not _is_launched():
        return None
    try:
        return _Place(
            *ClusterEnv.auto_detect_unset_distributed_params(
                None, None, None, None, None, peers.init_timeout
            )
        )
    except (RuntimeError, KeyError, ValueError) as error:
        raise InputError(
            f"The variables of the launcher name no coordinator ({error}): give "
            "--coordinator, --num-processes and --process-id."
        ) from error


def _is_launched() -> bool:
    """Whether mpirun or srun has started several processes.

    Raises:
      ValueError: it has, and does not say where the first is.
    """
    if _number("OMPI_COMM_WORLD_SIZE") > 1:
        if "OMPI_MCA_orte_hnp_uri" not in os.environ:
            raise InputError(
                "This version of mpirun names no coordinator: give --coordinator "
                "HOST:PORT, --num-processes $OMPI_COMM_WORLD_SIZE and --process-id "
                "$OMPI_COMM_WORLD_RANK."
            )
        return True
    # Without a list of nodes this is the script of a job, and not a step of it.
    return _number("SLURM_NTASKS") > 1 and "SLURM_STEP_NODELIST" in os.environ


def _number(variable: str) -> int:
    value = os.environ.get(variable, "1")
    if not value.isdecimal():
        raise InputError(f"The variable {variable} must be a number, got {value!r}.")
    return int(value)


def _check_port(coordinator: str) -> None:
    """Refuses a port that another program has: JAX would end the process."""
    port = int(coordinator.rpartition(":")[2])
    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual else socket.AF_INET
    try:
        with socket.create_server(("", port), family=family, dualstack_ipv6=dual):
            pass
    except OSError as error:
        raise InputError(
            f"`coordinator` {coordinator}: port {port} cannot be opened here "
            f"({os.strerror(error.errno)}): is another run on it?"
        ) from error


def _not_joined(place: _Place, timeout: int) -> str:
    return (
        f"Process {place.process_id} could not join the others at {place.coordinator} "
        f"within `init_timeout` = {timeout} s: is the address right, are all "
        f"{place.num_processes} of them up, and has each an id of its own?"
    )


@dataclass
class _Ending:
    """What is said when the runtime of JAX ends the process, and the exit code."""

    message: str
    code: int
    error: int = 2  # where standard error goes

    def __call__(self) -> NoReturn:
        with contextlib.suppress(OSError):  # the exit code still tells
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
    before = sys.stderr
    for name, number in (("stdout", 1), ("stderr", 2)):
        getattr(sys, name).flush()
        own = open(os.dup(number), "w", buffering=1, errors="backslashreplace")
        setattr(sys, name, own)
        os.dup2(written.fileno(), number)
    for handler in logging.getLogger("jax").handlers:
        if isinstance(handler, logging.StreamHandler) and handler.stream is before:
            handler.setStream(sys.stderr)
    ending.error = sys.stderr.fileno()

    def end(signal_number: int) -> None:
        size = written.seek(0, os.SEEK_END)
        written.seek(max(0, size - 2**16))
        text = written.read()
        if _FATAL in text:
            ending()
        os.write(ending.error, text)
        os._exit(128 + signal_number)

    function = ctypes.CFUNCTYPE(None, ctypes.c_int)(end)
    _kept.append(function)
    ctypes.CDLL(None).signal(signal.SIGABRT, function)


@contextlib.contextmanager
def _limit(seconds: int, ending: _Ending) -> Iterator[None]:
    """Ends the process if the body takes longer: the runtime's own limit is later."""
    timer = threading.Timer(seconds, ending)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
