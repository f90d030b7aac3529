"""Memory limits of this process: of the machine, the container and the shell."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from embedder.base.threads import available_cores
from embedder.errors import InputError

_MIB = 2**20
_ALLOCATOR = "_RJEM_MALLOC_CONF"  # variable with the options of polars' allocator
# Bytes that the program needs without data, measured: address space, data, per core.
_PROGRAM = {
    "memory": (1600 * _MIB, 190 * _MIB, 120 * _MIB),
    "tfdata": (2700 * _MIB, 400 * _MIB, 175 * _MIB),
}


class NoRoomError(InputError):
    """Something does not fit in memory."""


class Limit(NamedTuple):
    """A limit of memory."""

    size: int  # bytes
    source: str  # what sets it


def memory_limit(root: Path = Path("/")) -> Limit:
    """The smallest limit of the memory for this process's data.

    `root` is the folder with `proc` and `sys`.
    """
    limits = [Limit(_machine_memory(), "this machine"), *_group_limits(root)]
    for limit, needed in _shell_limits("memory"):
        room = max(0, limit.size - needed)
        source = f"{limit.source} beside {gib(needed)} for the program"
        limits.append(Limit(room, source))
    return min(limits)


def check_room(needed: int, what: str, advice: str) -> None:
    """Refuses what does not fit in memory.

    Args:
      needed: bytes.
      what: the start of the message, with its verb.
      advice: the end of the message.

    Raises:
      NoRoomError: `needed` is above the limit.
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
      InputError: a limit is too small.
    """
    for limit, needed in _shell_limits(loader):
        if limit.size < needed:
            raise InputError(
                f"The program needs {gib(needed)} with `loader` = {loader!r}, got "
                f"{gib(limit.size)} of {limit.source}: raise that limit."
            )


def return_freed_memory() -> None:
    """Has polars return the memory that it frees, unless the user chose otherwise.

    To call before polars is imported. Its allocator keeps freed address space, which
    counts as data (`ulimit -d`): 2.0 GiB rather than 0.7 for a large table.
    """
    options = os.environ.get(_ALLOCATOR, "")  # also what polars set in a parent process
    if "retain:" not in options:
        os.environ[_ALLOCATOR] = f"{options},retain:false".removeprefix(",")


def gib(size: int) -> str:
    """A number of bytes as text, in MiB or GiB."""
    if size < 2**30:
        return f"{size / _MIB:.1f} MiB"
    return f"{size / 2**30:.1f} GiB"


def _machine_memory() -> int:
    """Bytes of memory; more than any data take where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError):  # Windows, or a name that the system lacks
        return sys.maxsize


def _shell_limits(loader: str) -> Iterator[tuple[Limit, int]]:
    """Limits of `ulimit`, and the bytes that the program itself needs of each."""
    try:
        import resource
    except ImportError:  # Windows
        return
    address_space, data, of_core = _PROGRAM[loader]
    is_linux = sys.platform == "linux"  # not measured on other systems
    for name, source, needed in (
        ("RLIMIT_AS", "address space (ulimit -v)", address_space),
        ("RLIMIT_DATA", "data (ulimit -d)", data),
    ):
        size = resource.getrlimit(getattr(resource, name))[0]
        if is_linux and size != resource.RLIM_INFINITY:
            yield Limit(size, source), needed + available_cores() * of_core


def _group_limits(root: Path) -> Iterator[Limit]:
    """Limits of the control groups (cgroups) of this process and of their parents."""
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
            own = folder / path.lstrip("/")  # may be missing in a container
            for each in (own, *own.parents[: len(Path(path).parts) - 1]):
                size = _number(each / name)
                if size is not None:
                    where = f"/{(each / name).relative_to(root)}"
                    yield Limit(size, f"its container ({where})")


def _groups(root: Path) -> Iterator[tuple[list[str], str]]:
    """Controllers (none for version 2) and path of each group."""
    try:
        lines = (root / "proc" / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        names = [name for name in controllers.split(",") if name]
        yield names, "/" if ".." in Path(path).parts else path  # outside the namespace


def _number(path: Path) -> int | None:
    """The number in a file; None: there is no file, or no number, such as max."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
