"""Copies of remote data in a folder of this machine: each object is read once.

    objects/DIGEST         an object; the digest is of its URL without a signature, its
                           size and etag
    objects/DIGEST.part    its first pieces, while it is copied; a kill leaves it
    DIGEST/NAME            links to the objects behind a URL, under their names
    DIGEST.json            the links that a URL had last for a use, for when its server
                           is away

Objects get the time at which they changed on the server, so that a copy has the same
fingerprint on each machine.
"""

import glob
import hashlib
import json
import logging
import os
import re
import shutil
import sys
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from embedder.disk.cache_files import user_cache_folder
from embedder.disk.files import atomic_file, name_file_in_errors
from embedder.disk.folders import atomic_folder, remove_unfinished_folders
from embedder.disk.lock import close_to_move, is_at, lock_file
from embedder.disk.remote import Listing, Remote, RemoteObject, UnreachableError
from embedder.disk.urls import HIDDEN, is_url, without_signature
from embedder.errors import InputError

_PIECE_BYTES = 2**23  # of an object, read at once
_THREADS = 8
_LOCAL = re.compile(r"(file|local)://", re.IGNORECASE)
_log = logging.getLogger(__name__)


def local_copy(
    source: str,
    cache: Path | None = None,
    is_wanted: Callable[[str], bool] = lambda name: True,
    partner: Callable[[str], str] = lambda name: name,
    use: str = "",
) -> str:
    """The path of a copy of the data at `source`; `source` itself if it is no URL.

    A URL may be of an object, a folder, or a glob; the path is of the same kind. Only
    objects that are not in the cache, or have changed, are read. If the server does
    not answer, the copy of the last time is used, with a warning.

    Args:
      cache: folder of caches; None: that of the user.
      is_wanted: whether to copy an object of a folder, by its relative name.
      partner: the name of the object that belongs to one, which is copied, too.
      use: a name of `is_wanted`, if the same URL is copied with others, too: the copy
        of the last time is that of the same use.

    Raises:
      InputError: there are no such data, they cannot be read, or an object changed
        while it was read.
      OSError: the disk is full, or the cache cannot be written.
    """
    if not is_url(source):
        return source
    if HIDDEN in source:
        raise InputError(
            f"{source} had credentials or a query, which are not stored: give the "
            "whole URL again."
        )
    if local := _LOCAL.match(source):
        return source[local.end() :]
    remote, folder = Remote(source), _copies_folder(cache)
    key = [without_signature(source), without_signature(remote.path)]
    last = folder / f"{_digest(*key, *([use] if use else []))}.json"
    with name_file_in_errors(folder):
        try:
            links, path = _copied(remote, folder, remote.listing(is_wanted, partner))
        except UnreachableError as error:
            before = _last_copy(folder, last)
            if before is None:
                raise
            _log.warning("%s The copy of the last time is used.", error)
            return before
        with atomic_file(last) as part:
            part.write_text(json.dumps({"links": links, "path": path}))
    return str(folder / path)


def keep_standard_input(source: str | None, cache: Path | None = None) -> str | None:
    """The path of a copy of standard input if `source` is "-"; else `source`.

    Raises:
      InputError: standard input is closed.
      OSError: it cannot be read, or the disk is full.
    """
    if source != "-":
        return source
    if sys.stdin is None or sys.stdin.closed:
        raise InputError("Corpus - is standard input, which is closed.")
    folder = _copies_folder(cache)
    new_folder = folder / f"stdin-{uuid.uuid4().hex[:8]}"
    digest = hashlib.sha256()
    with name_file_in_errors(folder), atomic_folder(new_folder) as part:
        with open(part / "stdin", "wb") as file:
            while data := sys.stdin.buffer.read(_PIECE_BYTES):
                digest.update(data)
                file.write(data)
            os.fsync(file.fileno())
        with open(part / "stdin", "rb") as file:
            name = "stdin.gz" if file.read(2) == b"\x1f\x8b" else "stdin"
        (part / "stdin").rename(part / name)
        os.utime(part / name, (0, 0))  # equal for equal content
    content_folder = folder / digest.hexdigest()
    if content_folder.exists():
        shutil.rmtree(new_folder)
    else:
        new_folder.rename(content_folder)
    return str(content_folder / name)


def _copies_folder(cache: Path | None) -> Path:
    """The folder of copies, which is created; remnants of killed processes go."""
    try:
        folder = (cache or user_cache_folder().expanduser()).absolute() / "remote"
        (folder / "objects").mkdir(parents=True, exist_ok=True)
    except RuntimeError:
        raise InputError("`cache` must be given: there is no home folder.") from None
    remove_unfinished_folders(folder)
    return folder


def _copied(
    remote: Remote, folder: Path, listing: Listing
) -> tuple[dict[str, str], str]:
    """Copies what is missing: name -> digest of each object, and the path of a link."""
    for name in (each.name for each in listing.objects):
        if "\0" in name or {"", ".", ".."} & {*name.split("/")}:
            raise InputError(
                f"{remote.shown}: an object must have a name of a file, got {name!r}."
            )
    links = {each.name: _object_digest(remote, each) for each in listing.objects}
    _copy_missing(remote, listing.objects, folder / "objects")
    name = "."
    if listing.kind != "file":
        name = remote.path.removesuffix(remote.magic).rstrip("/").rpartition("/")[2]
        name = name if name not in ("", ".", "..") else "remote"
    view = _digest(name, json.dumps(links))
    if not (folder / view).exists():
        with atomic_folder(folder / view) as part:
            _make_links(remote, part, name, links)
    match listing.kind:
        case "file":
            return links, f"{view}/{listing.objects[0].name}"
        case "folder":
            return links, f"{view}/{name}"
    return links, f"{view}/{glob.escape(name)}/{remote.magic}"


def _copy_missing(remote: Remote, listed: list[RemoteObject], objects: Path) -> None:
    """Copies the objects that are not there, several at the same time."""
    paths = [objects / _object_digest(remote, each) for each in listed]
    missing = [
        (each, path)
        for each, path in zip(listed, paths, strict=True)
        if each.tag is None or not path.exists()
    ]
    if not missing:
        return
    size = sum(each.size or 0 for each, _ in missing)
    _log.info(
        "Copies %s: %d files, %.1f MiB, into %s.",
        *(remote.shown, len(missing), size / 2**20, objects.parent),
    )
    threads = min(_THREADS, len(missing))
    with _pool(threads) as pool:
        inner = _THREADS // threads
        copies = [pool.submit(_copy, remote, *each, inner) for each in missing]
        for copy in copies:
            copy.result()


def _copy(remote: Remote, entry: RemoteObject, path: Path, threads: int) -> None:
    """Copies an object, or waits for another process that does."""
    part = path.with_suffix(".part")
    with _locked(part) as file:
        if path.exists() and entry.tag is not None:
            close_to_move(file)
            part.unlink()
            return
        try:
            is_small = entry.size is not None and entry.size <= _PIECE_BYTES
            if is_small or remote.has_ranges(entry):
                _append(remote, entry, file, threads)
            else:
                remote.download(entry, part)
            remote.check_unchanged(entry)
        except UnreachableError:
            raise  # its pieces are kept
        except InputError:
            close_to_move(file)
            part.unlink()
            remote.check_unchanged(entry)
            raise
        os.fsync(file.fileno())
        close_to_move(file)
        os.utime(part, (entry.mtime, entry.mtime))
        part.replace(path)


def _append(remote: Remote, entry: RemoteObject, file: BinaryIO, threads: int) -> None:
    """Appends the missing pieces of an object to its `file`.

    Each piece is on the disk before the next is written, so that after a crash of the
    machine only the last one can be damaged: it is read again.
    """
    assert entry.size is not None, "it has ranges"
    whole = max(0, os.fstat(file.fileno()).st_size // _PIECE_BYTES - 1)
    start = whole * _PIECE_BYTES if entry.tag is not None else 0
    file.truncate(start)
    file.seek(start)
    with _pool(threads) as pool:
        waiting: deque[Future[bytes]] = deque()
        for first in range(start, entry.size, _PIECE_BYTES):
            end = min(first + _PIECE_BYTES, entry.size)
            waiting.append(pool.submit(remote.read, entry, first, end))
            while len(waiting) > (threads if end < entry.size else 0):
                file.write(waiting.popleft().result())
                file.flush()
                os.fsync(file.fileno())


@contextmanager
def _pool(threads: int) -> Iterator[ThreadPoolExecutor]:
    """Threads whose work that has not begun is dropped on an error.

    They are waited for, except where the user interrupts.
    """
    pool = ThreadPoolExecutor(threads, "copies")
    try:
        yield pool
    except BaseException as error:
        is_interrupted = not isinstance(error, Exception)
        pool.shutdown(wait=not is_interrupted, cancel_futures=True)
        raise
    pool.shutdown()


@contextmanager
def _locked(part: Path) -> Iterator[BinaryIO]:
    """The open file `part`, which no other process writes; waits for one that does."""
    while True:
        file = open(os.open(part, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
        try:
            lock_file(file, wait=True)
            if is_at(file, part):  # else the other has renamed it
                yield file
                return
        finally:
            file.close()


def _make_links(remote: Remote, view: Path, folder: str, links: dict[str, str]) -> None:
    """Makes relative links in `view`/`folder` to the objects beside `view`."""
    for name, digest in links.items():
        link = view / folder / name
        depth = len(link.relative_to(view).parts)
        try:
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(Path(*[".."] * depth, "objects", digest))
        except (FileExistsError, NotADirectoryError):
            raise InputError(
                f"{remote.shown}: {name} is the name of an object and of a folder, or "
                "of two objects: no folder on a disk can hold both."
            ) from None


def _last_copy(folder: Path, last: Path) -> str | None:
    """The path of the last copy of a URL; None: there is none, or it is not whole."""
    try:
        record = json.loads(last.read_text())
        paths = [folder / "objects" / digest for digest in record["links"].values()]
        path = folder / record["path"]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return str(path) if paths and all(each.exists() for each in paths) else None


def _object_digest(remote: Remote, entry: RemoteObject) -> str:
    scheme = remote.url.split("://")[0].lower()
    path = without_signature(entry.path)
    return _digest(scheme, path, str(entry.size), str(entry.tag))


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode(errors="surrogatepass")).hexdigest()
