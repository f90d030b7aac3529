"""The program: runs the verb of a command line, and turns errors into exit codes.

Exit codes: 0 done, 1 `parity` found a difference or `verify` damage, 2 wrong usage or
input, 3 training failed or the result could not be written, 70 a bug of the program;
stopped after saving: 130 by Ctrl-C, 143 by SIGTERM, 129 by SIGHUP, 141 because the
reader of the log has gone. `--debug` prints the traceback of any error.
"""

import errno
import io
import os
import signal
import sys
import traceback
from typing import NoReturn

from embedder.base.limits import return_freed_memory
from embedder.base.terminal import (
    SIGPIPE,
    LogStream,
    flush_output,
    open_standard_streams,
    say,
)
from embedder.base.threads import end_if_threads_lack_memory
from embedder.cli.parsing import parse
from embedder.cli.verbs import run_verb
from embedder.errors import InputError, check_docstrings

_DISK_ERRORS = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EBADF),
    None,  # a library's own, without a number
)

_OUT_OF_MEMORY = "RESOURCE_EXHAUSTED", "can't start new thread"


def program() -> NoReturn:
    """Runs `main` and exits at once: threads may still be importing TensorFlow."""
    open_standard_streams()
    prepare_process()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # if it is not UTF-8
    code = main()
    if code == 0 and _is_of_several():
        from embedder.engine.hosts.joining import leave

        leave()
    LogStream(sys.stderr).flush()
    os._exit(code)


def prepare_process() -> None:
    """Makes this process return memory that is free, and end if there is none."""
    return_freed_memory()
    end_if_threads_lack_memory()


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns the exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    is_debugged = "--debug" in arguments
    if is_debugged:
        arguments.remove("--debug")
    try:
        return _run_and_flush(arguments)
    except BaseException as error:
        if is_debugged:
            traceback.print_exc(file=LogStream(sys.stderr))
        return _exit_code(error)


def _exit_code(error: BaseException) -> int:
    """The exit code for an error, which is printed as one line if it is no bug."""
    match error:
        case BrokenPipeError():  # the reader of standard output has gone
            return 128 + SIGPIPE
        case InputError():
            return _fail(_message(error), 2)
        case OSError():  # of the system, about a file
            is_disk = type(error) is OSError and error.errno in _DISK_ERRORS
            return _fail(_message(error), 3 if is_disk else 2)
        case FloatingPointError() | MemoryError():
            return _fail(_message(error), 3)
        case RuntimeError() if any(sign in str(error) for sign in _OUT_OF_MEMORY):
            return _fail(f"Out of memory: {_message(error)[:200]}", 3)
        case RuntimeError() if _is_of_several():
            return _fail(_fault_of_several(error), 3)
        case KeyboardInterrupt():
            number = getattr(error, "number", signal.SIGINT)
            return _fail(str(error) or "Interrupted.", 128 + number)
        case Exception():
            return _report_bug(error)
    raise error


def _report_bug(error: Exception) -> int:
    """Prints what a bug report needs."""
    traceback.print_exception(error, file=LogStream(sys.stderr))
    return _fail(
        "This is a bug of embedder, not of your input. Please report the lines above "
        "and the command to its maintainers.",
        70,
    )


def _run_and_flush(arguments: list[str]) -> int:
    """The exit code, once standard output has been written.

    Raises:
      OSError: it cannot be written.
    """
    check_docstrings()
    try:
        code = run_verb(parse(arguments))
    except SystemExit as stop:  # after --help
        code = int(stop.code or 0)
    flush_output()
    return code


def _fail(message: str, code: int) -> int:
    say(f"embedder: {message}", LogStream(sys.stderr))
    return code


def _message(error: BaseException) -> str:
    """One line; KeyError puts its message in quotes, OSError has it in parts."""
    text = str(error.args[0]) if isinstance(error, KeyError) else str(error)
    if isinstance(error, OSError) and error.strerror:
        where = "" if error.filename is None else f"{error.filename}: "
        text = f"{where}{error.strerror}."
    return " ".join(text.split()) or type(error).__name__


def _is_of_several() -> bool:
    """Whether this process is one of several; JAX is not imported to find out."""
    jax = sys.modules.get("jax")
    return jax is not None and jax.distributed.is_initialized()


def _fault_of_several(error: RuntimeError) -> str:
    """The message of a failed exchange between devices: most often a lost process."""
    from embedder.engine.hosts.joining import LOST

    signs = "Gloo", "NCCL", "UNAVAILABLE", "DEADLINE_EXCEEDED", "coordination service"
    message = _message(error)
    is_lost = any(sign in message for sign in signs)
    return f"{LOST} ({message[:200]})" if is_lost else message


if __name__ == "__main__":
    program()
