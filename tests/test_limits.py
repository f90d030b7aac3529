"""The smallest limit of memory counts, and is named."""

import os
import resource
import subprocess
import sys

import pytest

from embedder.base import limits
from embedder.base.limits import Limit, check_program, memory_limit
from tests.commands import SECONDS, run_python

GROUPS = "sys/fs/cgroup"
NONE = "9223372036854771712\n"  # what version 1 says where there is no limit
V1 = "memory.limit_in_bytes"
MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


OF_GROUPS = [
    ("0::/\n", {"memory.max": "1000\n"}, 1000, "memory.max"),
    ("0::/a/b\n", {"a/b/memory.max": "2", "a/memory.max": "3"}, 2, "a/b/memory.max"),
    ("0::/a/b\n", {"a/b/memory.max": "max\n", "a/memory.max": "3"}, 3, "a/memory.max"),
    # without a namespace of its own the path is that of the host
    ("0::/docker/1f\n", {"memory.max": "5000"}, 5000, "memory.max"),
    ("0::/../..\n", {"memory.max": "6000"}, 6000, "memory.max"),
    (
        "5:cpu,cpuacct:/x\n4:memory:/a\n0::/\n",
        {f"memory/a/{V1}": NONE, f"memory/{V1}": "7000\n", f"cpu/x/{V1}": "1"},
        7000,
        f"memory/{V1}",
    ),
    ("0::/c\n", {"unified/c/memory.max": "8000"}, 8000, "unified/c/memory.max"),
    ("0::/\n", {"memory.max": "0x\n"}, MACHINE, None),
    ("4:memory:/\n", {f"memory/{V1}": NONE}, MACHINE, None),
    ("strange", {}, MACHINE, None),
    (None, {}, MACHINE, None),
]


@pytest.mark.row("F33")
@pytest.mark.parametrize(("groups", "files", "size", "source"), OF_GROUPS)
def test_limits_of_control_groups(tmp_path, groups, files, size, source):
    own = {} if groups is None else {"proc/self/cgroup": groups}
    for name, text in (own | {f"{GROUPS}/{x}": y for x, y in files.items()}).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    named = f"its container (/{GROUPS}/{source})" if source else "this machine"
    assert memory_limit(tmp_path) == Limit(size, named)


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


@pytest.mark.row("B41")
@pytest.mark.parametrize("given", ["narenas:2", "retain:true,narenas:2"])
def test_polars_returns_memory_unless_the_user_chose_otherwise(monkeypatch, given):
    """The variable counts when polars is imported: not before."""
    monkeypatch.setenv("_RJEM_MALLOC_CONF", given)
    program = (
        "import os, sys; from embedder.cli.main import prepare_process as p; p();"
        "assert 'polars' not in sys.modules; print(os.environ['_RJEM_MALLOC_CONF'])"
    )
    done = run_python("-c", program)
    expected = given if "retain" in given else f"{given},retain:false"
    assert done.stdout == f"{expected}\n", done.stderr


@pytest.mark.row("F33")
def test_limits_of_the_shell_less_the_program_itself(shell, tmp_path):
    shell(RLIMIT_AS=3 * 2**30)
    source = "address space (ulimit -v) beside 1.8 GiB for the program"
    limit = Limit(3 * 2**30 - (1600 + 2 * 120) * 2**20, source)
    assert memory_limit(tmp_path) == limit
    shell(RLIMIT_AS=3 * 2**30, RLIMIT_DATA=2**30)
    source = "data (ulimit -d) beside 430.0 MiB for the program"
    assert memory_limit(tmp_path) == Limit(2**30 - (190 + 2 * 120) * 2**20, source)
    shell(RLIMIT_AS=2**30)
    assert memory_limit(tmp_path).size == 0
    for loader, name, needed in (
        *(("memory", "RLIMIT_AS", 1840), ("tfdata", "RLIMIT_AS", 3050)),
        *(("memory", "RLIMIT_DATA", 430), ("tfdata", "RLIMIT_DATA", 750)),
    ):
        shell(**{name: needed * 2**20})
        check_program(loader)
        shell(**{name: needed * 2**20 - 1})
        with pytest.raises(ValueError, match=f"with `loader` = '{loader}', got .* rai"):
            check_program(loader)


@pytest.mark.row("F33")
@pytest.mark.parametrize("loader", ["memory", "tfdata"])
@pytest.mark.parametrize(
    "is_enough", [False, pytest.param(True, marks=pytest.mark.slow)]
)
def test_a_small_address_space_is_one_line_and_no_abort(tmp_path, loader, is_enough):
    """What is asked for the program is enough."""
    address_space, _, of_core = limits._PROGRAM[loader]
    cores = len(os.sched_getaffinity(0))
    needed = address_space + cores * of_core + 64 * 2**20
    size = needed if is_enough else 1_500_000 * 1024
    (tmp_path / "text.txt").write_text("a b c d\n" * 20)
    limit = ["bash", "-c", 'ulimit -v "$0"; exec "$@"', str(size // 1024)]
    flags = "text.txt --workdir run --epochs 1 --min-count 1 --vector-size 8".split()
    command = [sys.executable, "-m", "embedder.cli.main", "train", *flags]
    done = subprocess.run(
        [*limit, *command, "--loader", loader],
        **{"cwd": tmp_path, "capture_output": True, "text": True, "timeout": SECONDS},
    )
    assert done.returncode == (0 if is_enough else 2), done.stderr
    if not is_enough:
        (line,) = done.stderr.splitlines()
        assert "of address space (ulimit -v): raise that limit." in line
        assert not (tmp_path / "run").exists()
