"""The way of data of a command: `python docs/trace.py train text.txt`.

A stop is a call from one folder of `embedder` into another that takes at least a
share of the time of the whole command (`--share 0.005`), or that leads to one that
does. Each function is printed once, where it is first called; only the main thread is
looked at. The last lines say how often each folder is entered, without such a share.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NamedTuple

ROOT = Path(__file__).parents[1] / "embedder"


class Stop(NamedTuple):
    """A function that is called from another folder, and the seconds in it."""

    file: str
    function: str
    seconds: float


class Trace:
    """A profiler for `sys.setprofile`: `seconds` of each function that is called from
    another folder, and how often folders are entered."""

    def __init__(self) -> None:
        self.seconds: dict[tuple[str, str], float] = {}
        self.entered: Counter[str] = Counter()
        self._files: dict[str, str] = {}
        self._stack: list[tuple[str, float]] = []

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        file = self._file(frame.f_code.co_filename)
        if not file or frame.f_code.co_name[0] == "<" or event[:2] == "c_":
            return
        if event == "return":
            self._leave(file, frame.f_code.co_qualname)
            return
        if not self._stack or folder(self._stack[-1][0]) != folder(file):
            self.seconds.setdefault((file, frame.f_code.co_qualname), 0.0)
            self.entered[folder(file)] += 1
        self._stack.append((file, time.perf_counter()))

    def _leave(self, file: str, function: str) -> None:
        if self._stack and self._stack[-1][0] == file:
            _, started = self._stack.pop()
            if (file, function) in self.seconds:
                self.seconds[file, function] += time.perf_counter() - started

    def _file(self, name: str) -> str:
        """The path in `embedder`; empty: it is not there."""
        if name not in self._files:
            is_own = name.startswith(f"{ROOT}/")
            self._files[name] = str(Path(name).relative_to(ROOT)) if is_own else ""
        return self._files[name]


def folder(file: str) -> str:
    """The room of a file: its first folder, or its name."""
    return file.split("/")[0].removesuffix(".py")


def stops(call: Callable[[], object], share: float) -> tuple[list[Stop], Counter[str]]:
    """The stops of a call that take `share` of its time, and entries of folders."""
    trace = Trace()
    started = time.perf_counter()
    sys.setprofile(trace)
    try:
        call()
    finally:
        sys.setprofile(None)
    least = share * (time.perf_counter() - started)
    found = [Stop(*name, taken) for name, taken in trace.seconds.items()]
    return [stop for stop in found if stop.seconds >= least], trace.entered


def main(arguments: list[str]) -> None:
    """Runs a command, and prints its stops as a table."""
    parser = argparse.ArgumentParser("python docs/trace.py", description=__doc__)
    parser.add_argument("--share", type=float, default=0.005)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args(arguments)
    from embedder.cli.main import main as command

    found, entered = stops(lambda: command(given.command), given.share)
    print("| stop | file | function | ms |\n| --- | --- | --- | --- |")
    for number, (file, function, seconds) in enumerate(found, 1):
        print(f"| {number} | `{file}` | `{function}` | {1e3 * seconds:,.0f} |")
    print(f"\n{sum(entered.values()):,} entries of folders:", dict(entered))


if __name__ == "__main__":
    main(sys.argv[1:])
