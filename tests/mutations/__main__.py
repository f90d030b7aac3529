"""Plants one fault at a time into a copy of the checkout: does a test fail?

`python -m tests.mutations [--only TEXT] [--jobs N] [--to FILE]` plants each fault of
faults.toml whose promise or file has the text, and runs the tests that should catch it.
It prints a line for each, and ends with 1 if one was not caught.
"""

import argparse
import concurrent.futures
import os
import queue
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import NamedTuple

from tests.commands import copy_checkout

LIMIT = 600
"""Seconds after which tests that have not ended count as hanging."""


class Fault(NamedTuple):
    """A fault of one line: `text`, once in the file, is replaced."""

    promise: str
    file: str
    text: str
    instead: str
    tests: list[str]


def catcher(fault: Fault, checkout: Path) -> str | None:
    """The first test that fails with the fault; None: all pass."""
    path = checkout / fault.file
    before = path.read_text()
    if before.count(fault.text) != 1:
        raise ValueError(f"{fault.file} does not have this text once: {fault.text!r}")
    path.write_text(before.replace(fault.text, fault.instead))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0"]
    command += ["-p", "no:cacheprovider", "-m", "slow or not slow", *fault.tests]
    variables = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command,
            cwd=checkout,
            env=variables,
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
    except subprocess.TimeoutExpired:
        return "hangs"
    finally:
        path.write_text(before)
    if done.returncode == 0:
        return None
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    if failed is None:
        raise RuntimeError(f"{fault}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return failed[1]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations")
    parser.add_argument("--only", default="", help="a text of promises or files")
    parser.add_argument("--jobs", type=int, default=2, help="faults at a time")
    parser.add_argument("--to", type=Path, help="a file for the table, as Markdown")
    options = parser.parse_args()
    found = tomllib.loads(Path(__file__).with_name("faults.toml").read_text())
    faults = [Fault(**each) for each in found["fault"]]
    faults = [each for each in faults if options.only in f"{each.promise} {each.file}"]
    with (
        tempfile.TemporaryDirectory() as folder,
        concurrent.futures.ThreadPoolExecutor(options.jobs) as pool,
    ):
        checkouts: queue.Queue[Path] = queue.Queue()
        for number in range(options.jobs):
            copy_checkout(Path(folder, str(number)))
            checkouts.put(Path(folder, str(number)))

        def plant(fault: Fault) -> str | None:
            checkout = checkouts.get()
            try:
                return catcher(fault, checkout)
            finally:
                checkouts.put(checkout)

        rows = []
        for fault, found in zip(faults, pool.map(plant, faults), strict=True):
            rows.append(f"| {fault.promise} | {fault.file} | {found or 'NOT CAUGHT'} |")
            print(rows[-1], flush=True)
    if options.to:
        head = ["| promise | file with the fault | fails |", "| --- | --- | --- |"]
        options.to.write_text("\n".join([*head, *rows]) + "\n")
    missed = sum("NOT CAUGHT" in row for row in rows)
    print(f"{len(rows) - missed} of {len(rows)} faults were caught.")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
