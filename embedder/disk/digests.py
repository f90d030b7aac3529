"""SHA-256 sums of files, in a file beside them, of the form that sha256sum has."""

import hashlib
from collections.abc import Iterable
from pathlib import Path, PurePath

from embedder.disk.files import whole_file
from embedder.errors import InputError

SUMS = "SHA256SUMS"


def files_in(folder: Path) -> list[Path]:
    """All files in `folder` and the folders in it, but for the sums."""
    found = (p for p in folder.rglob("*") if p.is_file() and SUMS not in p.name)
    return sorted(found)


def write_sums(
    folder: Path, paths: Iterable[Path], moved: dict[Path, Path] | None = None
) -> None:
    """Writes the sums of files in `folder`.

    Args:
      moved: where a file lies for now that is to get its name later.
    """
    sums = {path: file_digest((moved or {}).get(path, path)) for path in paths}
    with whole_file(folder / SUMS) as part:
        names = {str(path.relative_to(folder)): each for path, each in sums.items()}
        part.write_text(_text(names), encoding="utf-8")


def read_sums(folder: Path) -> dict[str, str]:
    """The sum of each file, by its name in `folder`.

    Raises:
      OSError, ValueError: there are none, or they are damaged.
    """
    path = folder / SUMS
    text = path.read_bytes().decode()
    lines = text.split("\n")[:-1]
    sums = {name: each for each, _, name in (line.partition("  ") for line in lines)}
    is_inside = all(_is_inside(PurePath(name)) for name in sums)
    if _text(sums) != text or not is_inside:
        raise InputError(f"{path.name} is not what was written")
    return sums


def _is_inside(name: PurePath) -> bool:
    """Whether it names something in the folder, not elsewhere."""
    return not name.is_absolute() and ".." not in name.parts


def _text(sums: dict[str, str]) -> str:
    return "".join(f"{each}  {name}\n" for name, each in sums.items())


def file_digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fault(path: Path, expected: str | None) -> str:
    """What is wrong with a file; empty: it has the sum that is expected."""
    if not path.is_file():
        return "is missing"
    if expected is None or file_digest(path) != expected:
        return "is not what was written"
    return ""


def check_file(path: Path, expected: str | None) -> None:
    """ValueError if a file has not the sum that is expected."""
    if found := fault(path, expected):
        raise InputError(f"{path.name} {found}")


def check_folder(folder: Path) -> None:
    """ValueError if `folder` does not hold just the files it has sums of, undamaged."""
    sums = read_sums(folder)
    names = {str(path.relative_to(folder)) for path in files_in(folder)}
    for name in sorted({*sums, *names}):
        if found := fault(folder / name, sums.get(name)):
            raise InputError(f"{name} {found}")
