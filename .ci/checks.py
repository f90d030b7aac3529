"""The parts of `.ci/run` and `.ci/nightly`, and what runs them one after the other.

It needs the standard library alone, and makes the environment in which the parts run.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
SCRATCH = "$SCRATCH"
"""The folder, removed at the end, that holds the environments."""

IN_DEV = "dev"
"""The environment with the extra `dev`, which the first part makes."""


class LeftOut(Exception):
    """A part cannot run here, and why."""


class Broken(Exception):
    """A part cannot even begin, and why: it counts as failed."""


@dataclasses.dataclass(frozen=True)
class Part:
    """One row of the table.

    Attributes:
      name: by which it is asked for.
      commands: lines of bash, run in this order until one fails.
      for_files: patterns of paths; a change of such a file needs this part.
      environment: the virtual environment whose programs the commands find first.
        `IN_DEV`, or a name: a new one that has all packages of `IN_DEV` too.
      programs: each must be on the path, else the part is left out. Programs of one
        Debian package `x` that has another name are written `x:program`.
      minutes: after which it is stopped, and has failed.
    """

    name: str
    commands: Callable[[], Iterable[str]]
    for_files: Sequence[str] = ()
    environment: str = IN_DEV
    programs: Sequence[str] = ()
    minutes: float = 30


@dataclasses.dataclass
class Row:
    """What became of a part: passed, failed or left out."""

    part: str
    state: str
    seconds: float = 0
    counts: Mapping[str, int] = dataclasses.field(default_factory=dict)
    notes: Sequence[str] = ()


def line_of(document: str, start: str) -> str:
    """The one line of a document that begins so (a regular expression)."""
    text = (ROOT / document).read_text(encoding="utf-8")
    lines = re.findall(rf"^{start}.*$", text, re.MULTILINE)
    if len(lines) != 1:
        raise Broken(f"{document} has {len(lines)} lines for {start!r}, expected one.")
    return lines[0]


def test_command() -> str:
    """The README's command that runs the tests."""
    return line_of("README.md", r"python -m pip install -e '\.\[dev\]' && ")


def main_command() -> str:
    """The README's command that trains on the demo corpus."""
    return line_of("README.md", r"python -m pip install -e \. && ")


def demo() -> list[str]:
    if (ROOT / "embedder-demo").exists():
        raise Broken("embedder-demo exists, and would not be trained again: move it.")
    return [
        f"trap 'rm -rf embedder-demo' EXIT; {main_command()} && "
        "embedder neighbors embedder-demo list"
    ]


WHEEL = "tests/test_package.py"
INSTALL = Part(
    "install", lambda: [test_command().partition(" && ")[0]], ("pyproject.toml",)
)
# With its cache uv takes seconds, pip two minutes. What README says, `.ci/run` tests.
INSTALL_BY_UV = Part(
    INSTALL.name,
    lambda: [
        "python -m pip install --quiet uv",
        "uv pip install --quiet --compile-bytecode -e '.[dev]'",
    ],
)
LANDING = [
    INSTALL,
    Part("ruff", lambda: ["ruff check .", "ruff format --check ."]),
    Part("mypy", lambda: ["mypy"]),
    Part("tests", lambda: [test_command()], minutes=40),
    Part("demo", demo, minutes=10),
    Part("wheel", lambda: [f"python -m pytest -n 0 -m wheel {WHEEL}"], minutes=15),
]

# The rooms of embedder/ that the slow tests of a folder are for, besides its own name.
ROOMS = {
    "bench": ("bench",),
    "contract": ("embedder",),
    "encoders": ("embedder/engine",),
    "faults": ("embedder/disk", "embedder/run", "embedder/engine"),
    "gensim_interface": ("embedder/gensim", "embedder/api"),
    "graphs": ("embedder/data",),
    "inputs": ("embedder/data", "embedder/disk", "embedder/vectors", "legacy"),
    "migration": ("migration", "legacy"),
    "lookup": ("embedder/cli", "embedder/vectors"),
    "parallel": ("embedder/engine",),
    "parity": ("embedder/encoders", "embedder/tokens", "embedder/engine", "legacy"),
    "tokens": ("embedder/engine",),
}
LONG = "slow/bench", "slow/gensim_interface"
"""Slow tests that are weekly: they are long, and of what seldom changes."""
OTHERS = ("README.md", "docs", "embedder/api", "embedder/base", "embedder/config")


def slow(folder: str, paths: str, *rooms: str) -> Part:
    """The slow tests of a folder."""
    command = f"python -m pytest -m slow --durations=15 {paths}"
    files = ("tests/conftest.py", *rooms)
    return Part(f"slow/{folder}", lambda: [command], files, minutes=90)


def slow_parts() -> list[Part]:
    folders = sorted(
        each.parent.name
        for each in (ROOT / "tests").glob("*/test_*.py")
        if re.search(r"mark\.(slow|spread)", each.read_text(encoding="utf-8"))
    )
    parts = [
        slow(each, f"tests/{each}", f"tests/{each}", f"embedder/{each}", *rooms)
        for each in dict.fromkeys(folders)
        for rooms in [ROOMS.get(each, ())]
    ]
    others = ("tests/test_*.py", "embedder/cli", *OTHERS)
    return [*parts, slow("others", "tests/test_*.py", *others)]


def with_oldest() -> list[str]:
    """The oldest releases that pyproject.toml allows, in an environment of uv's."""
    python = f"{SCRATCH}/uv/bin/python"
    install = f"uv pip install --quiet --compile-bytecode --python {python}"
    return [
        f"uv venv --quiet --python python {SCRATCH}/uv",
        f"{install} --resolution lowest-direct -e '.[dev]'",
        f"{python} -m pytest",
    ]


def with_newest() -> list[str]:
    """The newest releases, also above the bounds of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    wanted = [*project["project"]["dependencies"], *extras["dev"]]
    names = {re.split(r"[<>=!~;\[ ]", each)[0] for each in wanted}
    newest = shlex.join(sorted(names - {"embedder-jax"}))
    return [
        f"python -m pip install --quiet --upgrade {newest}",
        "python -m pip list",
        "python -m pytest",
    ]


def with_other_pythons() -> list[str]:
    """Debian's stable release has an older Python, testing the newest."""
    if os.geteuid() != 0:
        raise LeftOut("needs root, for a chroot")
    return [
        f"python -m tests.versions {suite} --to {SCRATCH}/{suite}"
        for suite in ("stable", "testing")
    ]


def of_bench(start: str) -> str:
    """The one command of bench/README.md that begins so."""
    return line_of("bench/README.md", start)


NIGHTLY = [
    *(each for each in slow_parts() if each.name not in LONG),
    Part(
        "browser",
        lambda: ["python -m pytest -m 'slow or not slow' -k browser tests/report"],
        ("embedder/report", "tests/report"),
        programs=("chromium", "chromium-driver:chromedriver"),
    ),
    Part(
        "mpi",
        lambda: ["python -m pytest -m 'slow or not slow' -k mpirun tests/parallel"],
        ("embedder/engine", "tests/parallel"),
        programs=("openmpi-bin:mpirun",),
    ),
]
WEEKLY = [
    *(each for each in slow_parts() if each.name in LONG),
    Part(
        "fasttext",  # the wheel is of Python 3.11 and older; `fasttext` compiles C++
        lambda: [
            "python -m pip install --no-deps 'fasttext-wheel==0.9.2'",
            "python -m pytest -m 'slow or not slow' tests/vectors/test_fasttext_bin.py",
        ],
        ("embedder/vectors", "embedder/gensim"),
        environment="fasttext",
    ),
    Part(
        "judges",  # they ask for older packages, so they are in no extra
        lambda: [
            of_bench(r"python -m pip install --no-deps pecanpy"),
            "python -m pytest -m slow tests/bench/test_judges.py",
        ],
        ("bench/judge*", "embedder/gensim"),
        environment="judges",
    ),
    Part(
        "onnx",
        lambda: [
            "python -m pip install -e '.[onnx]'",
            "python -m pytest -m 'slow or not slow' -k onnx tests",
        ],
        ("embedder/encoders",),
        environment="onnx",
    ),
    Part(
        "gpu-offline",
        lambda: [
            "python -m pip install -e '.[gpu-offline]'",
            "python -m pytest -m 'slow or not slow' tests/bench/test_gpu_offline.py",
        ],
        ("bench/gpu",),
        environment="gpu-offline",
        minutes=60,
    ),
    Part(
        "mutations",
        lambda: ["python -m tests.mutations"],
        ("tests/mutations",),
        minutes=240,
    ),
    Part(
        "cold",
        lambda: [f"XDG_CACHE_HOME={SCRATCH}/cold-caches python -m pytest"],
        ("tests/conftest.py",),
        minutes=60,
    ),
    # Results of another kind of processor: sums in another order, no AVX, no FMA.
    Part(
        "old-cpu",
        lambda: [
            "OPENBLAS_CORETYPE=Nehalem XLA_FLAGS=--xla_cpu_max_isa=SSE4_2 "
            "NPY_DISABLE_CPU_FEATURES='X86_V3 X86_V4' NUMBA_CPU_NAME=nehalem "
            "python -m pytest tests/encoders tests/engine tests/lookup tests/metrics "
            "tests/parity tests/tokens tests/vectors"
        ],
        ("embedder/engine", "embedder/encoders", "embedder/tokens", "embedder/vectors"),
    ),
    Part("random", lambda: ["python -m pytest --hypothesis-profile random"]),
    Part("oldest", with_oldest, ("pyproject.toml",), minutes=60),
    Part("newest", with_newest, ("pyproject.toml",), "newest", minutes=60),
    Part(
        "versions",
        with_other_pythons,
        ("pyproject.toml", "tests/versions"),
        programs=("debootstrap", "util-linux:unshare"),
        minutes=120,
    ),
]


class Checks:
    """Runs parts one after the other.

    Args:
      scratch: a folder for environments, empty at first.
      results: a folder that gets a log for each part and the table; None: neither.
    """

    def __init__(self, scratch: Path, results: Path | None):
        self.scratch = scratch
        self.results = results
        self.rows: list[Row] = []

    def run(self, parts: Sequence[Part]) -> int:
        """Runs the parts and prints the table; returns 1 if one failed, else 0."""
        for part in parts:
            print(f"== {part.name}", flush=True)
            started = time.monotonic()
            try:
                row = self.run_part(part)
            except LeftOut as reason:
                row = Row(part.name, "left out", notes=[str(reason)])
            except Broken as reason:
                row = Row(part.name, "FAILED", notes=[str(reason)])
            row.seconds = time.monotonic() - started
            self.rows.append(row)
            if self.results:
                (self.results / "table.md").write_text(self.table(), encoding="utf-8")
        print(f"\n{self.table()}", flush=True)
        return int(any(row.state == "FAILED" for row in self.rows))

    def run_part(self, part: Part) -> Row:
        for program in part.programs:
            package, _, name = program.rpartition(":")
            if not shutil.which(name):
                raise LeftOut(f"no {name}: apt-get install {package or name}")
        commands = [*part.commands()]
        variables = self.environment(part.environment)
        name = part.name.replace("/", "-") + ".log"
        log = (self.results or self.scratch) / name
        last_failed = ROOT / ".pytest_cache" / "v" / "cache" / "lastfailed"
        last_failed.unlink(missing_ok=True)
        end = time.monotonic() + 60 * part.minutes
        with open(log, "wb") as file:
            for command in commands:
                print(f"+ {command}", flush=True)
                code = run_bash(command, variables, file.fileno(), log, end)
                if code != 0:
                    break
        printed = log.read_text(encoding="utf-8", errors="replace")
        row = Row(part.name, "passed", counts=counts(printed))
        if code != 0:
            why = f"exit code {code}"
            if code is None:
                why = f"stopped after {part.minutes:g} minutes"
            row.state, row.notes = "FAILED", [f"`{command}`: {why}"]
        if last_failed.exists() and code != 0:
            tests = json.loads(last_failed.read_text(encoding="utf-8"))
            row.notes = [
                *row.notes,
                *(f"python -m pytest -n 0 -m '' {shlex.quote(x)}" for x in tests),
            ]
        return row

    def environment(self, name: str) -> dict[str, str]:
        """The variables in which the commands of a part run."""
        folder = self.scratch / name
        if not folder.exists():
            if name != IN_DEV and not (self.scratch / IN_DEV).exists():
                raise Broken(f"it needs the part {INSTALL.name}.")
            make = [sys.executable, "-m", "venv", str(folder)]
            if subprocess.run(make).returncode != 0:
                raise Broken(f"`{shlex.join(make)}` failed.")
            if name != IN_DEV:  # its packages come after those of the new one
                (packages,) = (self.scratch / IN_DEV).glob("lib/python*/site-packages")
                (own,) = folder.glob("lib/python*/site-packages")
                line = f"import site; site.addsitedir({str(packages)!r})\n"
                (own / "below.pth").write_text(line, encoding="utf-8")
        path = [str(folder / "bin"), str(self.scratch / IN_DEV / "bin")]
        variables = {
            **os.environ,
            "VIRTUAL_ENV": str(folder),
            "PATH": os.pathsep.join([*path, os.environ.get("PATH", "")]),
            "SCRATCH": str(self.scratch),
        }
        # With it each process of tests compiles all that it imports.
        variables.pop("PYTHONDONTWRITEBYTECODE", None)
        data = ROOT.parent / "shared" / "data"
        if data.is_dir():
            variables.setdefault("EMBEDDER_DATA", str(data))
        return variables

    def table(self) -> str:
        """The rows as Markdown, and below them what failed or was left out, and why."""
        lines = [
            "| part | seconds | passed | failed | skipped | result |",
            "| --- | ---: | ---: | ---: | ---: | --- |",
        ]
        for row in self.rows:
            failed = row.counts.get("failed", 0) + row.counts.get("error", 0)
            numbers = row.counts.get("passed", 0), failed, row.counts.get("skipped", 0)
            cells = [str(x) if row.counts else "" for x in numbers]
            cells = [row.part, f"{row.seconds:.0f}", *cells, row.state]
            lines.append(f"| {' | '.join(cells)} |")
        for row in self.rows:
            if row.notes:
                lines += ["", f"{row.part} {row.state}:"]
                lines += [f"    {note}" for note in row.notes]
        return "\n".join(lines) + "\n"


def counts(printed: str) -> dict[str, int]:
    """Sums of the last lines of pytest: passed, failed, error, skipped."""
    found: dict[str, int] = {}
    for line in re.findall(r"^=+ (.*\d+ \w+.*) in [\d.]+s.*=+$", printed, re.MULTILINE):
        for number, word in re.findall(r"(\d+) (passed|failed|error|skipped)", line):
            found[word] = found.get(word, 0) + int(number)
    return found


def run_bash(
    command: str, variables: Mapping[str, str], output: int, log: Path, end: float
) -> int | None:
    """Runs a line of bash in the checkout, and prints what it writes meanwhile.

    Its output goes to a file, so that nobody waits for a process that it left behind.

    Returns:
      Its exit code; None: it was stopped at `end`, a time of `time.monotonic`.
    """
    process = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=ROOT,
        env=dict(variables),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    code = None
    with open(log, "rb") as written:
        written.seek(0, os.SEEK_END)
        try:
            while code is None and time.monotonic() < end:
                try:
                    code = process.wait(timeout=0.2)
                except subprocess.TimeoutExpired:
                    pass
                sys.stdout.write(written.read().decode(errors="replace"))
                sys.stdout.flush()
        finally:
            with contextlib.suppress(ProcessLookupError):  # what is left of its group
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return code


def chosen(parts: Sequence[Part], names: Sequence[str], ref: str | None) -> list[Part]:
    """The parts with these names, or that a change since `ref` needs; else all."""
    if ref is not None:
        diff = ["git", "diff", "--name-only", "-z", ref, "--"]
        done = subprocess.run(diff, cwd=ROOT, capture_output=True, text=True)
        if done.returncode != 0:
            raise ValueError(f"`--changed` must be a commit of this checkout: {ref!r}.")
        files = [each for each in done.stdout.split("\0") if each]
        return [x for x in parts if any(is_for(x, file) for file in files)]
    for name in names:
        if not [x for x in parts if is_named(x, name)]:
            known = ", ".join(x.name for x in parts)
            raise ValueError(f"`PART` must be one of slow, {known}; got {name!r}.")
    return [x for x in parts if not names or any(is_named(x, y) for y in names)]


def is_for(part: Part, file: str) -> bool:
    return any(
        PurePosixPath(file).match(each) or file.startswith(f"{each}/")
        for each in part.for_files
    )


def is_named(part: Part, name: str) -> bool:
    return part.name == name or part.name.startswith(f"{name}/")


def main(arguments: Sequence[str]) -> int:
    script, *arguments = arguments
    parser = argparse.ArgumentParser(prog=f".ci/{script}")
    is_nightly = script == "nightly"
    if is_nightly:
        parser.add_argument("parts", nargs="*", metavar="PART", help="parts to run")
        parser.add_argument("--all", action="store_true", help="weekly ones, too")
        parser.add_argument("--changed", metavar="REF", help="for changes since REF")
        parser.add_argument("--list", action="store_true", help="print the parts alone")
    options = parser.parse_args(arguments)
    results, parts = None, LANDING
    if is_nightly:
        try:
            is_any = any([options.parts, options.changed, options.all, options.list])
            parts = [*NIGHTLY, *WEEKLY] if is_any else NIGHTLY
            parts = chosen(parts, options.parts, options.changed)
        except ValueError as error:
            print(f".ci/nightly: {error}", file=sys.stderr)
            return 2
        if options.list:
            for part in parts:
                when = "nightly" if part in NIGHTLY else "weekly"
                print(f"{part.name:24} {when:8} {' '.join(part.for_files)}")
            return 0
        if not parts:
            print(f"Nothing that changed since {options.changed} needs a part.")
            return 0
        parts = [INSTALL_BY_UV, *parts]
        results = ROOT / ".ci" / "results"
        shutil.rmtree(results, ignore_errors=True)
        results.mkdir()
    # So that what is running is ended and the scratch folder removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory() as scratch:
        return Checks(Path(scratch), results).run(parts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
