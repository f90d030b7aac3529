"""Files of caches that end with the SHA-256 of what stands before it.

Such a file is read whole or not at all: one that is damaged is removed, and made anew.
"""

import contextlib
import hashlib
import logging
import os
from pathlib import Path

from embedder.disk.files import whole_file

_SIZE = hashlib.sha256().digest_size
_log = logging.getLogger(__name__)


def sealed(content: bytes) -> bytes:
    """`content` with its digest at the end."""
    return content + hashlib.sha256(content).digest()


def write_sealed(path: Path, content: bytes) -> None:
    """Writes a whole file or none; OSError if the disk does not take it."""
    with whole_file(path) as part:
        part.write_bytes(sealed(content))


def read_sealed(path: str | os.PathLike[str]) -> bytes | None:
    """The content of a sealed file; None: it is missing, not readable, or damaged.

    A damaged file is named in the log and removed.
    """
    try:
        found = Path(path).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        _log.warning("Cache file %s is not read (%s).", path, error.strerror)
        return None
    if sealed(found[:-_SIZE]) == found:
        return found[:-_SIZE]
    _log.warning("Cache file %s is damaged: it is made anew.", path)
    with contextlib.suppress(OSError):
        os.unlink(path)
    return None
