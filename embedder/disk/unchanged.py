"""Whether a file is the one that was described before."""

import hashlib
from pathlib import Path
from typing import Any

from embedder.disk.files import errors_named
from embedder.errors import InputError


def describe_file(path: Path) -> dict[str, Any]:
    """Name, size, time of change and a digest of both ends."""
    stat = path.stat()
    with errors_named(path), open(path, "rb") as file:
        head = file.read(2**16)
        file.seek(max(0, stat.st_size - 2**16))
        ends = hashlib.sha256(head + file.read()).hexdigest()
    return {
        "file": path.name,
        "bytes": stat.st_size,
        "mtime_ns": stat.st_mtime_ns,
        "ends_sha256": ends,
    }


def check_unchanged(path: Path, described: dict[str, Any]) -> None:
    """Refuses a file that `describe_file` describes in another way than before.

    Raises:
      ValueError: as said.
    """
    now = describe_file(path)
    if now != described:
        size, before = now["bytes"], described["bytes"]
        sizes = f" ({before} bytes before, {size} now)" if size != before else ""
        raise InputError(
            f"{path} changed while it was read{sizes}: start again when nothing writes "
            "to it, or copy it first."
        )
