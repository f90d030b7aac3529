"""`embedder` in one process with two devices of a CPU, many times."""

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path

from tests.commands import SECONDS
from tests.memory import forget_programs


class TwoDevices(contextlib.AbstractContextManager["TwoDevices"]):
    """A process that runs commands in the current folder, one after the other."""

    def __init__(self) -> None:
        flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.contract.devices"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | flags,
        )

    def main(self, arguments: list[str]) -> tuple[int, str]:
        """The exit code of `embedder` with these arguments, and its standard error."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        print(json.dumps([str(Path.cwd()), arguments]), file=stdin, flush=True)
        code, text = json.loads(stdout.readline())
        return code, text

    def __exit__(self, *error: object) -> None:
        self._process.communicate(timeout=SECONDS)


def serve() -> None:
    """Answers each line of standard input with a line."""
    from embedder.cli.main import main

    for line in sys.stdin:
        folder, arguments = json.loads(line)
        os.chdir(folder)
        output, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            code = main(arguments)
        print(json.dumps([code, errors.getvalue()]), flush=True)
        forget_programs()


if __name__ == "__main__":
    serve()
