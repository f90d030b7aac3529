"""SHA-256 digests of the files of a folder, in the format of `sha256sum`."""

import hashlib
from collections.abc import Iterable
from pathlib import Path, PurePath

from embedder.disk.files import atomic_file
from embedder.errors import InputError

DIGESTS_FILE = "SHA256SUMS"


def files_in(folder: Path) -> list[Path]:
    """All files in `folder` and its subfolders, sorted, except the file of digests."""
    found = (p for p in folder.rglob("*") if p.is_file() and DIGESTS_FILE not in p.name)
    return sorted(found)


def write_digests(
    folder: Path, paths: Iterable[Path], temporary: dict[Path, Path] | None = None
) -> None:
    """Writes the digests of `paths`, which lie in `folder`, to its SHA256SUMS.

    Args:
      temporary: final path -> temporary path, for files that are renamed later.
    """
    digests = {path: file_digest((temporary or {}).get(path, path)) for path in paths}
    with atomic_file(folder / DIGESTS_FILE) as unfinished:
        names = {str(path.relative_to(folder)): each for path, each in digests.items()}
        unfinished.write_text(_text(names), encoding="utf-8")


def read_digests(folder: Path) -> dict[str, str]:
    """File name relative to `folder` -> its SHA-256 in hexadecimal digits.

    Raises:
      OSError: the folder has no readable SHA256SUMS.
      InputError: it is damaged, or names a file outside the folder.
      UnicodeDecodeError: it is not UTF-8.
    """
    path = folder / DIGESTS_FILE
    text = path.read_bytes().decode()
    parts = [line.partition("  ") for line in text.split("\n")[:-1]]
    digests = {name: digest for digest, _, name in parts}
    is_inside = all(_is_inside(PurePath(name)) for name in digests)
    if _text(digests) != text or not is_inside:
        raise InputError(f"{path.name} is not what was written")
    return digests


def _is_inside(name: PurePath) -> bool:
    """Whether a relative path stays in its folder: untrusted names may not."""
    return not name.is_absolute() and ".." not in name.parts


def _text(digests: dict[str, str]) -> str:
    return "".join(f"{digest}  {name}\n" for name, digest in digests.items())


def file_digest(path: Path) -> str:
    """SHA-256 of a file's content, in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def describe_damage(path: Path, expected: str | None) -> str:
    """How a file differs from its `expected` digest, for a message; "" if it does not.

    Args:
      expected: None for a file that has no digest, which is damage, too.
    """
    if not path.is_file():
        return "is missing"
    if expected is None or file_digest(path) != expected:
        return "is not what was written"
    return ""


def check_digest(path: Path, expected: str | None) -> None:
    """Raises InputError unless the file at `path` has the `expected` digest."""
    if damage := describe_damage(path, expected):
        raise InputError(f"{path.name} {damage}")


def check_digests(folder: Path) -> None:
    """Checks every file of `folder` against its SHA256SUMS.

    Raises:
      InputError: a file is damaged, missing or has no digest; or see `read_digests`.
    """
    digests = read_digests(folder)
    names = {str(path.relative_to(folder)) for path in files_in(folder)}
    for name in sorted({*digests, *names}):
        if damage := describe_damage(folder / name, digests.get(name)):
            raise InputError(f"{name} {damage}")
