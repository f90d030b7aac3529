"""All that has to be measured on a GPU, by one command, in a fixed time.

`python -m bench gpu --minutes 8 --to FOLDER` runs the parts of
`bench.gpu.parts` in order of worth, each in a process of its own with a limit of time:
a part that fails or hangs costs itself alone. Each result is appended to results.jsonl
of FOLDER at once, with the device and the versions; at the end table.md has them all.
The data and packages are those of `bench gpu kit`.
"""

import argparse
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from bench.results import CHECKOUT, Table

Result = dict[str, Any]
DETERMINISTIC = " ".join(
    f"--xla_gpu_{name}=true"
    for name in ("deterministic_ops", "enable_scatter_determinism_expander")
)
_SHORTEST = 5  # seconds that a part needs
_LARGEST = 1_000_000  # bytes of results
_ABOUT = "part", "versions", "machine"
_ENDS = "part", "seconds", "failed", "end"
_SHOWN = 2_000  # characters of the end of what a failed part printed


class Part(NamedTuple):
    """One process."""

    name: str  # of the part in results
    arguments: tuple[str, ...]  # of Python
    seconds: float  # at most
    environment: dict[str, str] = {}  # noqa: RUF012 - it is immutable


def parts(kit: Path, to: Path, *, is_tiny: bool) -> list[Part]:
    """The parts in order of worth."""

    def part(name: str, seconds: float, of: str = "", **environment: str) -> Part:
        arguments = "-m", "bench.gpu.parts", of or name, str(kit), "--to", str(to)
        if not is_tiny:
            return Part(name, arguments, seconds, environment)
        # Of a CPU, which may be busy: the limits are those of a GPU.
        return Part(name, (*arguments, "--tiny"), 5 * seconds, environment)

    flags = {"XLA_FLAGS": DETERMINISTIC}
    return [
        part("device", 60),
        part("parity", 100),
        part("words-100", 120),
        part("bits, first", 40, "bits"),
        part("bits, second", 40, "bits"),
        part("bits, deterministic, first", 60, "bits", **flags),
        part("bits, deterministic, second", 60, "bits", **flags),
        part("replicas", 60),
        part("networks", 90),
        part("small-networks", 30),
        part("modes", 45),
        part("devices", 60),
        part("words-300", 90),
        part("resume", 60),
        part("torch-eager", 60),
        part("cpu", 45, JAX_PLATFORMS="cpu"),
        part("profile", 40),
        part("torch-compiled", 300),
    ]


def run(given: Iterable[Part], to: Path, seconds: float) -> list[Result]:
    """Runs parts until the time is over; returns and writes their results.

    A part that is not started, fails or is stopped has a result that says so.
    """
    to.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + seconds
    found: list[Result] = []
    about: Result = {}
    with (to / "results.jsonl").open("a") as file:
        for part in given:
            for result in run_part(part, end - time.monotonic()):
                if "device" in result:
                    about = {x: result[x] for x in ("device", "driver", "versions")}
                found.append({"part": part.name} | result)
                line = json.dumps(found[-1] | about) + "\n"
                if file.tell() + len(line) < _LARGEST:
                    file.write(line)
                    file.flush()
                print(json.dumps(found[-1]), flush=True)
            (to / "table.md").write_text(markdown(found))
    return found


def run_part(part: Part, seconds: float):
    """Yields the results of a part as they come; it gets `seconds` at most."""
    limit = min(part.seconds, seconds)
    if seconds < _SHORTEST:
        yield {"failed": "not started: the time is over"}
        return
    started = time.monotonic()
    child = subprocess.Popen(
        [sys.executable, "-u", *part.arguments],
        cwd=CHECKOUT,
        env=os.environ | part.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # so that its children end with it
    )
    assert child.stdout is not None
    lines: queue.Queue[str | None] = queue.Queue()
    reader = threading.Thread(target=_read, args=(child.stdout, lines), daemon=True)
    reader.start()
    others, failed = "", ""
    while True:
        try:
            line = lines.get(timeout=max(0, started + limit - time.monotonic()))
        except queue.Empty:
            failed = f"stopped after {limit:.0f} s"
            break
        if line is None:
            break
        result = _result(line)
        if result is None:
            others = (others + line)[-_SHOWN:]
        else:
            yield result
    if failed or child.poll() is None:
        failed = failed or _wait(child, started + limit - time.monotonic())
    if failed:
        os.killpg(child.pid, signal.SIGKILL)
    code = child.wait()
    reader.join()
    child.stdout.close()
    if code and not failed:
        failed = f"exit code {code}"
    taken = time.monotonic() - started
    yield {"seconds": taken} | ({"failed": failed, "end": others} if failed else {})


def _wait(child: subprocess.Popen, seconds: float) -> str:
    """Waits for the end of a process whose output has ended."""
    try:
        child.wait(max(seconds, 1))
    except subprocess.TimeoutExpired:
        return "did not end"
    return ""


def _read(pipe, lines: queue.Queue) -> None:
    for line in pipe:
        lines.put(line)
    lines.put(None)


def _result(line: str) -> Result | None:
    """The result in a line; None: it is something else that a library printed."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def markdown(found: list[Result]) -> str:
    """The results of each part as tables, one for each set of columns; then the seconds
    of all parts, and what failed."""
    tables: dict[tuple[str, ...], list[list[str]]] = {}
    ends = []
    for result in found:
        if "seconds" in result or "failed" in result:
            ends.append([_shown(result.get(name, "")) for name in _ENDS])
            continue
        columns = [name for name in result if name not in _ABOUT]
        row = [_shown(result[name]) for name in columns]
        tables.setdefault((result["part"], *columns), []).append(row)
    text = []
    for (part, *columns), rows in tables.items():
        text += [f"### {part}", "", Table(columns, rows).markdown(), ""]
    return "\n".join([*text, "### parts", "", Table([*_ENDS], ends).markdown(), ""])


def _shown(value: Any) -> str:
    if isinstance(value, float):
        value = f"{value:.4g}"
    return " ".join(str(value).split()).replace("|", "/")[-300:]


def main(arguments: list[str]) -> None:
    """Reads the command line, runs the parts, and prints the table."""
    parser = argparse.ArgumentParser("python -m bench gpu", description=__doc__)
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--to", type=Path, required=True, help="folder of results")
    parser.add_argument("--kit", type=Path, default=CHECKOUT / "gpu-kit")
    parser.add_argument("--parts", nargs="+", help="names; default: all")
    parser.add_argument("--tiny", action="store_true", help="to try it on a CPU")
    given = parser.parse_args(arguments)
    if not (given.kit / "corpus.npz").exists():
        parser.error(f"{given.kit} is no kit: make it by `python -m bench gpu kit`.")
    kit, to = given.kit.resolve(), given.to.resolve()
    all_parts = parts(kit, to, is_tiny=given.tiny)
    chosen = [x for x in all_parts if not given.parts or x.name in given.parts]
    if unknown := {*(given.parts or ())} - {part.name for part in all_parts}:
        names = ", ".join(part.name for part in all_parts)
        parser.error(f"--parts must be of {names}, got {sorted(unknown)[0]!r}.")
    print(markdown(run(chosen, to, 60 * given.minutes)))
