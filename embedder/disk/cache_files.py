"""Files of a cache, each with the SHA-256 of its content appended.

A damaged file is removed and counts as missing, so that it is computed again.
"""

import contextlib
import hashlib
import logging
import os
from pathlib import Path

from embedder.disk.files import atomic_file

_DIGEST_BYTES = hashlib.sha256().digest_size
_log = logging.getLogger(__name__)


def user_cache_folder() -> Path:
    """`$XDG_CACHE_HOME/embedder`, else `~/.cache/embedder`: ~ is not expanded."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "embedder"


def with_digest(content: bytes) -> bytes:
    """`content` with its SHA-256 appended: the bytes of a cache file."""
    return content + hashlib.sha256(content).digest()


def write_cache_file(path: Path, content: bytes) -> None:
    """Writes `content` and its digest atomically; OSError if the disk is full."""
    with atomic_file(path) as temporary:
        temporary.write_bytes(with_digest(content))


def read_cache_file(path: str | os.PathLike[str]) -> bytes | None:
    """The content of a cache file; None if it is missing, unreadable or damaged.

    Logs a file that is unreadable or damaged, and removes a damaged one.
    """
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        _log.warning("Cache file %s is not read (%s).", path, error.strerror)
        return None
    content = data[:-_DIGEST_BYTES]
    if with_digest(content) == data:
        return content
    _log.warning("Cache file %s is damaged: it is rebuilt.", path)
    with contextlib.suppress(OSError):
        os.unlink(path)
    return None
