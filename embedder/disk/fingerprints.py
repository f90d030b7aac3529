"""Fingerprints of files, which tell whether a file has changed since."""

import hashlib
from pathlib import Path
from typing import Any

from embedder.disk.files import name_file_in_errors
from embedder.errors import InputError

_END_BYTES = 2**16  # that are hashed at each end: a digest of all would read it twice


def file_fingerprint(path: Path) -> dict[str, Any]:
    """Name, size, modification time and a SHA-256 of both ends, ready for JSON."""
    stat = path.stat()
    with name_file_in_errors(path), open(path, "rb") as file:
        head = file.read(_END_BYTES)
        file.seek(max(0, stat.st_size - _END_BYTES))
        ends = hashlib.sha256(head + file.read()).hexdigest()
    return {
        "file": path.name,
        "bytes": stat.st_size,
        "mtime_ns": stat.st_mtime_ns,
        "ends_sha256": ends,
    }


def check_unchanged(path: Path, before: dict[str, Any]) -> None:
    """Raises InputError if the fingerprint of `path` is another than `before`."""
    now = file_fingerprint(path)
    if now != before:
        old_size, size = before["bytes"], now["bytes"]
        sizes = f" ({old_size} bytes before, {size} now)" if size != old_size else ""
        raise InputError(
            f"{path} changed while it was read{sizes}: start again when nothing writes "
            "to it, or copy it first."
        )
