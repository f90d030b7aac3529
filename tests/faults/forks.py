"""Processes that are forked from one that has imported the program.

Starting Python and importing JAX take longer than what tests of killed runs train. No
device of JAX has been used before the fork, and no thread has been started in Python.

`python -m tests.faults.forks` serves requests of `Forks`: a line of JSON each.
"""

import contextlib
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

SECONDS = 300
"""After which a process is ended by SIGALRM."""

_OF_TRAINING = (
    "embedder.api.train",
    "embedder.encoders.task",
    "embedder.tokens.task",
    "orbax.checkpoint",
    "scipy.optimize",
    "tensorboardX.proto.event_pb2",
)
"""What a training imports, at its start or later; `embedder.cli` imports hardly any."""


class Forks(contextlib.AbstractContextManager["Forks"]):
    """Runs modules in processes that need not import the program."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.faults.forks"]
        pipe = subprocess.PIPE
        self._server = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def run(
        self, module: str, *arguments: Any, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """What `python -m module arguments` does and prints, in this folder.

        Args:
          variables: added to the environment.
        """
        stdin, stdout = self._server.stdin, self._server.stdout
        assert stdin is not None and stdout is not None
        command = [module, *map(str, arguments)]
        with tempfile.TemporaryDirectory() as folder:
            outputs = [f"{folder}/out", f"{folder}/err"]
            request = command, os.getcwd(), dict(os.environ | variables), outputs
            print(json.dumps(request), file=stdin, flush=True)
            code = int(stdout.readline())
            texts = [Path(path).read_text() for path in outputs]
        return subprocess.CompletedProcess(command, code, *texts)

    def __exit__(self, *error: object) -> None:
        self._server.communicate(timeout=SECONDS)


def serve() -> None:
    """Forks a process for each request, and prints its exit code when it has ended."""
    for name in _OF_TRAINING:
        importlib.import_module(name)
    assert threading.active_count() == 1
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            become(*json.loads(line))
        _, status = os.waitpid(process, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def become(
    command: list[str], folder: str, environment: dict[str, str], outputs: list[str]
) -> None:
    """Runs the module of the command as a program, and ends this process."""
    signal.alarm(SECONDS)
    for number, path in enumerate((os.devnull, *outputs)):
        flags = os.O_WRONLY | os.O_CREAT if number else os.O_RDONLY
        os.dup2(os.open(path, flags), number)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    module, *sys.argv[1:] = command
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    sys.exit(0)


if __name__ == "__main__":
    serve()
