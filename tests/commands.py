"""What tests of the command line and of other processes share."""

import contextlib
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console

from embedder.base.stages import showing_stages
from embedder.run import progress

SECONDS = 250
"""That a process may take however busy the machine is; a whole test has 300."""

OF_A_RUN = re.compile("devices: |graph: |.*; [0-9,]+ epochs?$")


def error_line(capsys) -> str:
    """The one line of an error; what a run says of itself may stand before it."""
    *before, line = capsys.readouterr().err.splitlines()
    assert line.startswith("embedder: ")
    assert [each for each in before if not OF_A_RUN.match(each)] == []
    return line


def run_python(*arguments, **options) -> subprocess.CompletedProcess[str]:
    """What a new interpreter with these arguments did and printed."""
    command = [sys.executable, *map(str, arguments)]
    pipes = {"capture_output": True, "text": True, "timeout": SECONDS}
    return subprocess.run(command, **pipes | options)


def wait_until(condition: Callable[[], object]) -> None:
    """Waits for what a thread or another process does; the limit of a test ends it."""
    while not condition():
        time.sleep(0.01)


@contextlib.contextmanager
def no_new_threads() -> Iterator[None]:
    """Fails if a thread that began in the body is still there."""
    before = {*threading.enumerate()}
    yield
    assert {*threading.enumerate()} <= before


def record_stages(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The stages that verbs will show on a terminal after a second, as they come."""
    seen: list[str] = []

    @contextlib.contextmanager
    def display(console: Console, after: float) -> Iterator[None]:
        assert after == 1
        with showing_stages(seen.append):
            yield

    monkeypatch.setattr(progress, "display", display)
    return seen


def copy_checkout(folder: Path) -> None:
    """Copies the files of the checkout that git does not ignore, as they are now."""
    root = Path(__file__).parents[1]
    shutil.rmtree(folder, ignore_errors=True)
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listed, cwd=root, capture_output=True, check=True).stdout
    for name in filter(None, names.decode().split("\0")):
        if (root / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / name, folder / name)
