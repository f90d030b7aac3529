"""What tests of the command line and of other processes share."""

import re
import subprocess
import sys

OF_A_RUN = re.compile("devices: |graph: |.*; [0-9]+ epochs?$")


def error_line(capsys) -> str:
    """The one line of an error; what a run says of itself may stand before it."""
    *before, line = capsys.readouterr().err.splitlines()
    assert line.startswith("embedder: ")
    assert [each for each in before if not OF_A_RUN.match(each)] == []
    return line


def run_python(*arguments, **options) -> subprocess.CompletedProcess[str]:
    """What a new interpreter with these arguments did and printed."""
    command = [sys.executable, *map(str, arguments)]
    pipes = {"capture_output": True, "text": True, "timeout": 120}
    return subprocess.run(command, **pipes | options)
