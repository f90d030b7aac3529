"""The smallest limit of memory counts, and is named."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from embedder import limits
from embedder.limits import Limit, check_program, check_room, memory_limit
from tests.commands import run_python

GROUPS = "sys/fs/cgroup"
NONE = "9223372036854771712\n"  # what version 1 says where there is no limit


@pytest.fixture
def tree(tmp_path):
    """A function that makes the files of control groups, by their names."""

    def make(groups: str, **files: str) -> Path:
        own = {"proc/self/cgroup": groups} | files
        for name, text in own.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return make


def of(root: Path) -> tuple[int, str]:
    found = memory_limit(root)
    return found.size, found.source


@pytest.mark.row("F33")
@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("0::/\n", {"memory.max": "1000\n"}, (1000, "memory.max")),
        (
            "0::/a/b\n",
            {"a/b/memory.max": "max\n", "a/memory.max": "3000", "memory.max": "4000"},
            (3000, "a/memory.max"),
        ),
        (
            "0::/a/b\n",
            {"a/b/memory.max": "2000", "a/memory.max": "3000"},
            (2000, "a/b/memory.max"),
        ),
        # without a namespace of its own the path is that of the host
        ("0::/docker/1f\n", {"memory.max": "5000"}, (5000, "memory.max")),
        ("0::/../..\n", {"memory.max": "6000"}, (6000, "memory.max")),
        (
            "5:cpu,cpuacct:/x\n4:memory:/a\n0::/\n",
            {
                "memory/a/memory.limit_in_bytes": NONE,
                "memory/memory.limit_in_bytes": "7000\n",
                "cpu/x/memory.limit_in_bytes": "1",
            },
            (7000, "memory/memory.limit_in_bytes"),
        ),
        ("0::/c\n", {"unified/c/memory.max": "8000"}, (8000, "unified/c/memory.max")),
        ("0::/\n", {"memory.max": "0x\n"}, None),
        ("4:memory:/\n", {"memory/memory.limit_in_bytes": NONE}, None),
        ("strange", {}, None),
        ("", {}, None),
    ],
)
def test_limits_of_control_groups(tree, groups, files, expected):
    root = tree(groups, **{f"{GROUPS}/{name}": text for name, text in files.items()})
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if expected is None:
        assert of(root) == (machine, "this machine")
    else:
        size, name = expected
        assert of(root) == (size, f"its container (/{GROUPS}/{name})")


def test_where_there_is_no_proc_the_machine_counts(tmp_path):
    assert of(tmp_path)[1] == "this machine"


@pytest.fixture
def shell(monkeypatch):
    """A function that sets limits of the shell, for two cores."""

    def limited(**sizes: int) -> None:
        def getrlimit(which):
            names = {getattr(resource, name): size for name, size in sizes.items()}
            return names.get(which, resource.RLIM_INFINITY), resource.RLIM_INFINITY

        monkeypatch.setattr(resource, "getrlimit", getrlimit)
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})

    return limited


@pytest.mark.row("F33")
def test_limits_of_the_shell_less_the_program_itself(shell, tmp_path):
    shell(RLIMIT_AS=3 * 2**30)
    size, source = of(tmp_path)
    assert size == 3 * 2**30 - (1600 + 2 * 120) * 2**20
    assert source == "address space (ulimit -v) beside 1.8 GiB for the program"
    shell(RLIMIT_AS=3 * 2**30, RLIMIT_DATA=2**30)
    size, source = of(tmp_path)
    assert size == 2**30 - (190 + 2 * 120) * 2**20
    assert source == "data (ulimit -d) beside 430.0 MiB for the program"
    shell(RLIMIT_AS=2**30)
    assert of(tmp_path)[0] == 0


@pytest.mark.row("F33")
@pytest.mark.parametrize(
    ("loader", "name", "needed"),
    [
        ("memory", "RLIMIT_AS", 1840),
        ("tfdata", "RLIMIT_AS", 3050),
        ("memory", "RLIMIT_DATA", 430),
        ("tfdata", "RLIMIT_DATA", 750),
    ],
)
def test_too_little_for_the_program_is_refused(shell, loader, name, needed):
    shell(**{name: needed * 2**20})
    check_program(loader)
    shell(**{name: needed * 2**20 - 1})
    with pytest.raises(ValueError, match=f"with `loader` = '{loader}', got .* raise"):
        check_program(loader)


def test_room_is_what_the_limit_says(monkeypatch):
    limit = Limit(3 * 2**20, "its container")
    monkeypatch.setattr(limits, "memory_limit", lambda: limit)
    check_room(3 * 2**20, "This takes", "give less")
    message = "This takes 4.0 MiB, more than the 3.0 MiB of its container: give less."
    with pytest.raises(ValueError) as error:
        check_room(4 * 2**20, "This takes", "give less")
    assert str(error.value) == message


def train_within(folder: Path, size: int, *options: str):
    """`embedder train` whose address space may have `size` bytes."""
    (folder / "text.txt").write_text("a b c d\n" * 20)
    limit = ["bash", "-c", 'ulimit -v "$0"; exec "$@"', str(size // 1024)]
    command = [sys.executable, "-m", "embedder.cli", "train", "text.txt"]
    return subprocess.run(
        [*limit, *command, "--workdir", "run", *options],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
    )


@pytest.mark.row("F33")
@pytest.mark.parametrize("loader", ["memory", "tfdata"])
def test_a_small_address_space_is_one_line_and_no_abort(tmp_path, loader):
    done = train_within(tmp_path, 1_500_000 * 1024, "--loader", loader)
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert "of address space (ulimit -v): raise that limit." in line
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.row("F33")
@pytest.mark.parametrize("loader", ["memory", "tfdata"])
def test_what_is_asked_for_the_program_is_enough(tmp_path, loader):
    address_space, _, of_core = limits._PROGRAM[loader]
    size = address_space + len(os.sched_getaffinity(0)) * of_core + 64 * 2**20
    options = ["--epochs", "1", "--min-count", "1", "--vector-size", "8"]
    done = train_within(tmp_path, size, "--loader", loader, *options)
    assert done.returncode == 0, done.stderr


@pytest.mark.row("B41")
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("", "retain:false"),
        ("narenas:2", "narenas:2,retain:false"),
        ("retain:true,narenas:2", "retain:true,narenas:2"),
    ],
)
def test_polars_returns_memory_unless_the_user_chose_otherwise(
    monkeypatch, given, expected
):
    """The variable counts when polars is imported: not before."""
    monkeypatch.setenv("_RJEM_MALLOC_CONF", given)
    program = (
        "import os, sys; from embedder import cli; cli.prepare_process();"
        "assert 'polars' not in sys.modules; print(os.environ['_RJEM_MALLOC_CONF'])"
    )
    done = run_python("-c", program)
    assert done.stdout == f"{expected}\n", done.stderr
