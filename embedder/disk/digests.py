"""SHA-256 digests of the files of a folder, in the format of `sha256sum`."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path, PurePath
from typing import Any

from embedder.disk.files import atomic_file
from embedder.errors import InputError

DIGESTS_FILE = "SHA256SUMS"


def files_in(folder: Path) -> list[Path]:
    """All files in `folder` and its subfolders, sorted, except the file of digests."""
    files = (p for p in folder.rglob("*") if p.is_file() and DIGESTS_FILE not in p.name)
    return sorted(files)


def write_digests(
    folder: Path, paths: Iterable[Path], temporary: dict[Path, Path] | None = None
) -> None:
    """Writes the digests of `paths`, which lie in `folder`, to its SHA256SUMS.

    Args:
      temporary: final path -> temporary path, for files that are renamed later.
    """
    now = temporary or {}
    names = {str(path.relative_to(folder)): now.get(path, path) for path in paths}
    _write(folder, {name: file_digest(path) for name, path in names.items()})


def change_digest(path: Path, *, is_written: bool = True) -> None:
    """Writes the digest of the file at `path` to the SHA256SUMS of its folder, if there
    is one; those of other files stay.

    Args:
      is_written: False: the file gets no digest.
    """
    folder = path.parent
    if not (folder / DIGESTS_FILE).exists():
        return
    digests = read_digests(folder)
    digests.pop(path.name, None)
    if is_written:
        digests[path.name] = file_digest(path)
    _write(folder, digests)


def _write(folder: Path, digests: dict[str, str]) -> None:
    with atomic_file(folder / DIGESTS_FILE) as unfinished:
        unfinished.write_text(_text(digests), encoding="utf-8")


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
    paths = map(PurePath, digests)  # untrusted names may leave the folder
    is_inside = all(not x.is_absolute() and ".." not in x.parts for x in paths)
    if _text(digests) != text or not is_inside:
        raise InputError(f"{path.name} is not what was written")
    return digests


def _text(digests: dict[str, str]) -> str:
    return "".join(f"{digest}  {name}\n" for name, digest in digests.items())


def file_digest(path: Path) -> str:
    """SHA-256 of a file's content, in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def json_digest(value: Any) -> str:
    """SHA-256 of a value as JSON, whatever the order of keys, in hexadecimal digits."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


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
    """Raises InputError if a file of `folder` is damaged or missing, or has no digest
    in its SHA256SUMS; or as `read_digests`."""
    digests = read_digests(folder)
    names = {str(path.relative_to(folder)) for path in files_in(folder)}
    for name in sorted({*digests, *names}):
        if damage := describe_damage(folder / name, digests.get(name)):
            raise InputError(f"{name} {damage}")
