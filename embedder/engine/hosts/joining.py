"""How the processes of a run connect, and how they end.

The runtime is `jax.distributed`. It reports a failure by aborting the process with
pages of text; here that becomes one line and an exit code.
"""

import contextlib
import ctypes
import logging
import math
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

from embedder.config.run_options import PeersConfig
from embedder.engine.compilation import avoid_slow_scatters
from embedder.engine.hosts.watch import Watch
from embedder.errors import InputError

LOST = "Lost another process of the run, which ended or was stopped: see its own log."
_LAST_WAIT = 3600  # seconds that a finished process waits for the others
_FATAL = b"Terminating process because the JAX distributed service detected fatal"
_c_callbacks: list[object] = []  # that C has pointers to


class _Member(NamedTuple):
    """This process in the run: the arguments of `jax.distributed.initialize`."""

    coordinator: str
    num_processes: int
    process_id: int
    local_devices: list[int] | None
    launched_by: str = ""  # the variable of a launcher that says so, with its value


class _Joined(NamedTuple):
    """Set when this process has joined others."""

    ending: "_Ending"
    lost_after: float


_joined: _Joined | None = None


def join(peers: PeersConfig) -> None:
    """Joins the run that `peers` or a launcher's variables name; else does nothing.

    Must be called before JAX is used.

    Raises:
      InputError: the arguments are wrong, or the others were not found in time.
    """
    global _joined
    member = _member(peers)
    if member is None or member.num_processes == 1:
        return
    if member.process_id == 0:
        _check_port(member.coordinator)
    avoid_slow_scatters()
    # Otherwise JAX handles SIGTERM, as a notice of preemption.
    jax.config.update("jax_enable_preemption_service", False)
    message = (
        f"Process {member.process_id} could not join the others at "
        f"{member.coordinator} within `init_timeout` = {peers.init_timeout} s: is the "
        f"address right, are all {member.num_processes} of them up, and has each an id "
        "of its own?"
    )
    if member.launched_by:
        message += (
            f" {member.launched_by} in the environment says so: --num-processes 1 "
            "trains alone."
        )
    ending = _Ending(message, 2)
    _watch_aborts(ending)
    with _limit(peers.init_timeout, ending):
        try:
            jax.distributed.initialize(
                *member[:4],
                cluster_detection_method="deactivate",
                initialization_timeout=peers.init_timeout,
                heartbeat_timeout_seconds=peers.lost_after,
                shutdown_timeout_seconds=_LAST_WAIT,
            )
        except (RuntimeError, ValueError) as error:
            raise InputError(ending.message) from error
    ending.message, ending.code = LOST, 3
    _joined = _Joined(ending, peers.lost_after)


def watch() -> Watch:
    """A watch over the calls of updates; a process alone is never ended by it."""
    limit = math.inf if _joined is None else _joined.lost_after
    over_calls = Watch(limit, on_hang=_end_hanging)
    over_calls.start()
    return over_calls


def _end_hanging(seconds: float) -> None:
    message = (
        f"No update for {seconds:.0f} s: a process of the run hangs. If updates take "
        "that long, raise --lost-after."
    )
    _Ending(message, code=3, error=sys.stderr.fileno())()


def leave() -> None:
    """Waits until all processes have called this; a signal ends the process."""
    if not jax.distributed.is_initialized():
        return
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    try:
        jax.distributed.shutdown()
    except RuntimeError:
        if _joined is None:
            raise
        _joined.ending()


def _member(peers: PeersConfig) -> _Member | None:
    """This process as a member of a run; None: it is alone."""
    match peers.coordinator, peers.num_processes, peers.process_id:
        case str(coordinator), int(num_processes), int(process_id):
            return _Member(coordinator, num_processes, process_id, local_devices=None)
        case None, 1, None:
            return None
    launched_by = _launched_by()
    if not launched_by:
        return None
    try:
        address, num, number, local = ClusterEnv.auto_detect_unset_distributed_params(
            None, None, None, None, None, peers.init_timeout
        )
        if address is None or num is None or number is None:
            raise ValueError("they are incomplete")
        devices = None if local is None else list(local)
        num = _number(launched_by)  # of this step, where JAX may take that of the job
        shown = f"{launched_by}={num}"
        return _Member(address, num, number, devices, shown)
    except (RuntimeError, KeyError, ValueError) as error:
        raise InputError(
            f"The variables of the launcher name no coordinator ({error}): give "
            "--coordinator, --num-processes and --process-id."
        ) from error


def _launched_by() -> str:
    """The variable by which mpirun or srun says that it has started several processes;
    "": neither has.

    Raises:
      InputError: it has, and does not name the host of the first.
    """
    if _number("OMPI_COMM_WORLD_SIZE") > 1:
        if "OMPI_MCA_orte_hnp_uri" not in os.environ:
            raise InputError(
                "This version of mpirun names no coordinator: give --coordinator "
                "HOST:PORT, --num-processes $OMPI_COMM_WORLD_SIZE and --process-id "
                "$OMPI_COMM_WORLD_RANK."
            )
        return "OMPI_COMM_WORLD_SIZE"
    # Without a list of nodes this is the batch script itself, not started by srun. An
    # interactive step of one task has the number of tasks of its job, too.
    tasks = "SLURM_NTASKS"
    if "SLURM_STEP_NUM_TASKS" in os.environ:
        tasks = "SLURM_STEP_NUM_TASKS"
    is_step = "SLURM_STEP_NODELIST" in os.environ
    return tasks if _number(tasks) > 1 and is_step else ""


def _number(variable: str) -> int:
    value = os.environ.get(variable, "1")
    if not value.isdecimal():
        raise InputError(f"The variable {variable} must be a number, got {value!r}.")
    return int(value)


def _check_port(coordinator: str) -> None:
    """Refuses a port that another program uses: JAX would abort the process."""
    port = int(coordinator.rpartition(":")[2])
    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual else socket.AF_INET
    try:
        with socket.create_server(("", port), family=family, dualstack_ipv6=dual):
            pass
    except OSError as error:
        raise InputError(
            f"`coordinator` {coordinator}: port {port} cannot be opened here "
            f"({os.strerror(error.errno or 0)}): does another run use it?"
        ) from error


@dataclass
class _Ending:
    """Ends the process with one line and an exit code, as JAX's runtime fails."""

    message: str
    code: int
    error: int = 2  # file descriptor of standard error

    def __call__(self) -> NoReturn:
        with contextlib.suppress(OSError):  # there is still the exit code
            os.write(self.error, f"embedder: {self.message}\n".encode())
        os._exit(self.code)


def _watch_aborts(ending: _Ending) -> None:
    """Calls `ending` where JAX's runtime would abort the process.

    When processes do not find each other, or one of them is lost, the runtime writes
    pages to standard error and calls abort; its option for a Python callback fails
    (jaxlib 0.10: it cannot convert the argument). So what compiled code prints goes to
    a temporary file, which a handler of SIGABRT reads. Python's output stays as it is.
    Windows has no C library of the process to set the handler by: the pages stay.
    """
    if os.name == "nt":
        return
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
    _c_callbacks.append(function)
    ctypes.CDLL(None).signal(signal.SIGABRT, function)


@contextlib.contextmanager
def _limit(seconds: int, ending: _Ending) -> Iterator[None]:
    """Ends the process if the body takes longer; the runtime itself waits longer."""
    timer = threading.Timer(seconds, ending)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
