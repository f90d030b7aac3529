"""How much memory this process may have: of the machine, its container, its shell."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from embedder.errors import InputError

_MIB = 2**20
# What the program needs before any data, measured: address space, data, of each core.
_PROGRAM = {
    "memory": (1600 * _MIB, 190 * _MIB, 120 * _MIB),
    "tfdata": (2550 * _MIB, 400 * _MIB, 175 * _MIB),
}


class NoRoomError(InputError):
    """Something does not fit in memory."""


class Limit(NamedTuple):
    """So many bytes, and what sets the limit."""

    size: int
    source: str


def memory_limit(root: Path = Path("/")) -> Limit:
    """The most memory that this process may have for its data: the smallest limit.

    `root` is the folder that has `proc` and `sys`.
    """
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [Limit(machine, "this machine"), *_of_groups(root)]
    for limit, needed in _of_shell("memory"):
        room = max(0, limit.size - needed)
        source = f"{limit.source} beside {gib(needed)} for the program"
        limits.append(Limit(room, source))
    return min(limits)


def check_room(needed: int, what: str, advice: str) -> None:
    """Refuses what does not fit in memory; `what` needs so many bytes.

    Raises:
      NoRoomError: as said.
    """
    limit = memory_limit()
    if needed > limit.size:
        raise NoRoomError(
            f"{what} {gib(needed)}, more than the {gib(limit.size)} of "
            f"{limit.source}: {advice}."
        )


def check_program(loader: str) -> None:
    """Refuses limits of the shell that are too small for the program itself.

    Its libraries would abort with pages of messages.

    Raises:
      ValueError: as said.
    """
    for limit, needed in _of_shell(loader):
        if limit.size < needed:
            raise InputError(
                f"The program needs {gib(needed)} with `loader` = {loader!r}, got "
                f"{gib(limit.size)} of {limit.source}: raise that limit."
            )


def gib(size: int) -> str:
    """Bytes, for people."""
    if size < 2**30:
        return f"{size / _MIB:.1f} MiB"
    return f"{size / 2**30:.1f} GiB"


def _of_shell(loader: str) -> Iterator[tuple[Limit, int]]:
    """Limits of `ulimit`, and what the program itself takes of each."""
    try:
        import resource
    except ImportError:  # Windows
        return
    address_space, data, of_core = _PROGRAM[loader]
    is_linux = hasattr(os, "sched_getaffinity")  # elsewhere sizes are not known
    cores = len(os.sched_getaffinity(0)) if is_linux else 0
    for name, source, needed in (
        ("RLIMIT_AS", "address space (ulimit -v)", address_space),
        ("RLIMIT_DATA", "data (ulimit -d)", data),
    ):
        size = resource.getrlimit(getattr(resource, name))[0]
        if is_linux and size != resource.RLIM_INFINITY:
            yield Limit(size, source), needed + cores * of_core


def _of_groups(root: Path) -> Iterator[Limit]:
    """Limits of the control groups of this process and of those above them."""
    folders: tuple[Path, ...]
    groups = root / "sys" / "fs" / "cgroup"
    for controllers, path in _groups(root):
        if not controllers:  # version 2, or both versions beside each other
            folders, name = (groups, groups / "unified"), "memory.max"
        elif "memory" in controllers:
            folders, name = (groups / "memory",), "memory.limit_in_bytes"
        else:
            continue
        for folder in folders:
            own = folder / path.lstrip("/")  # in a container perhaps not there
            for each in (own, *own.parents[: len(Path(path).parts) - 1]):
                size = _number(each / name)
                if size is not None:
                    where = f"/{(each / name).relative_to(root)}"
                    yield Limit(size, f"its container ({where})")


def _groups(root: Path) -> Iterator[tuple[list[str], str]]:
    """Controllers, none for version 2, and the path of each group."""
    try:
        lines = (root / "proc" / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        names = [name for name in controllers.split(",") if name]
        yield names, "/" if ".." in Path(path).parts else path  # beyond the namespace


def _number(path: Path) -> int | None:
    """The number in a file; None: there is none, as where it says max."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
