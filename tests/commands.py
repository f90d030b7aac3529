"""What tests of the command line and of other processes share."""

import contextlib
import json
import os
import re
import select
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from embedder.base.stages import showing_stages
from embedder.cli.main import main
from embedder.engine.epochs import Status
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


def last_line(capsys) -> str:
    """The line of an error, after what was logged."""
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("embedder: ")
    return line


def json_lines(path: str | Path) -> list[dict[str, Any]]:
    """The objects of a file that has one in each line."""
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def flip(path: Path, at: int | None = None) -> None:
    """Changes a bit of a file, in its middle if no place is given."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 2
    path.write_bytes(data)


def train_runs(folder: Path, **commands: str) -> None:
    """Trains runs in a folder: the data in it and the flags of each, by their names."""
    for name, command in commands.items():
        data, *flags = command.split()
        workdir = ["--workdir", str(folder / name)]
        assert main(["train", str(folder / data), *workdir, *flags]) == 0


def status(progress: float = 0.0, **fields: Any) -> Status:
    """How far a run of two epochs is, as callbacks get it."""
    found = {"epoch": 0, "epochs": 2, "progress": progress, "is_epoch_end": False}
    found |= {"loss": 2.5, "recent_loss": 2.25, "metrics": {}, "scores": {}}
    found |= {"rate": 0.01, "rate_name": "alpha", "updates": 10, "best": None}
    found |= {"unit": "words", "noun": "words", "items": int(1_000_000 * progress)}
    found |= {"items_per_second": 1000.0, "seconds": 5.0, "snapshot": lambda: None}
    found |= {"seconds_of": {"compile": 1.0}}
    return Status(**found | fields)


def run_python(*arguments, **options) -> subprocess.CompletedProcess[str]:
    """What a new interpreter with these arguments did and printed."""
    command = [sys.executable, *map(str, arguments)]
    pipes = {"capture_output": True, "text": True, "timeout": SECONDS}
    return subprocess.run(command, **pipes | options)


def wait_until(condition: Callable[[], object]) -> None:
    """Waits for what a thread or another process does; the limit of a test ends it."""
    while not condition():
        time.sleep(0.01)


def read_until(terminal: int, text: bytes) -> bytes:
    """What a terminal has shown when the text was in it, or when it was closed."""
    data, end = b"", time.monotonic() + SECONDS
    while text not in data:
        assert time.monotonic() < end, data
        if not select.select([terminal], [], [], 1)[0]:
            continue
        try:
            data += os.read(terminal, 65536)
        except OSError:  # how Linux says that the other end is closed
            break
    return data


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
