"""Objects behind URLs that fsspec knows: what is there, and reading it with retries.

Credentials come from where each file system looks for them; none are ours.
"""

import datetime
import email.utils
import errno
import importlib
import logging
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from embedder.disk.files import short_reason
from embedder.disk.urls import is_web, text_without_secrets, without_secrets
from embedder.errors import InputError, InputNotFoundError, install_command

_WAITS = 0.5, 1.0, 2.0, 4.0, 8.0  # seconds before each retry
_TRANSIENT = 408, 425, 429  # statuses of HTTP that go away; and all from 500
_GONE = 404, 410
_DISK_FULL = errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS
_DEFINITE = (
    *(FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError),
    *(ValueError, TypeError, NotImplementedError, ImportError, KeyError),
)
"""Errors without a status that come again: of arguments, and of what is there."""

_TAGS = "ETag", "etag", "md5Hash", "Content-MD5", "content_md5", "blob_id"
_TIMES = "LastModified", "Last-Modified", "last_modified", "updated", "mtime", "created"
_COMMANDS = {
    **dict.fromkeys(("s3", "s3a"), install_command("s3")),
    **dict.fromkeys(("gs", "gcs"), install_command("gs")),
    **dict.fromkeys(("http", "https"), install_command("http")),
    "hf": "python -m pip install huggingface_hub",
}
_CHAIN = re.compile(r"^[^/]*::|::[A-Za-z0-9+.-]+://")
_log = logging.getLogger(__name__)
_Value = TypeVar("_Value")


class UnreachableError(InputError):
    """A server does not answer, or not for long enough."""


class ChangedError(InputError):
    """An object changed while it was read."""


class RemoteObject(NamedTuple):
    """An object of a file system, as listed."""

    path: str  # in the file system
    name: str  # relative to the folder of the URL
    size: int | None  # bytes; None: the server does not say
    tag: str | None  # etag, or time of the last change; None: the server has neither
    mtime: int  # seconds since 1970; 0: not known


class Listing(NamedTuple):
    """What is behind a URL."""

    kind: Literal["file", "folder", "glob"]
    objects: list[RemoteObject]  # of a file: it, and perhaps its partner


class Remote:
    """The file system of a URL, and the path there. Raises InputError if the file
    system is not known, or a package for it is missing."""

    _use = "read"  # what messages say of it
    advice = ": give the same command again when its server answers"
    """The end of the message about a server that does not answer."""

    def __init__(self, url: str):
        self.url = url
        self.shown = without_secrets(url)
        if _CHAIN.search(url):
            raise InputError(
                f"{self.shown}: URLs within URLs (::) are not read: unpack the archive."
            )
        scheme = url.split("://")[0].lower()
        try:
            from fsspec.core import url_to_fs  # costs memory: only for a URL

            self._fs, self.path = url_to_fs(url, **_options(scheme))
        except ImportError as error:
            fix = _COMMANDS.get(scheme) or short_reason(error)
            raise InputError(
                f"{self.shown} needs a package that is not installed: {fix}."
            ) from None
        except Exception as error:  # each file system has its own
            raise self._failed(error) from None
        if scheme in ("s3", "s3a"):
            self._fs.retries = 1  # s3fs retries without a line in the log

    @property
    def magic(self) -> str:
        """The part of the path that is a glob, from its first such folder; or ""."""
        first = min((self.path.find(c) for c in "*[" if c in self.path), default=-1)
        if not is_web(self.url) and "?" in self.path:  # there it begins a query
            mark = self.path.find("?")
            first = mark if first < 0 else min(first, mark)
        return self.path[self.path.rfind("/", 0, first) + 1 :] if first >= 0 else ""

    def listing(
        self,
        is_wanted: Callable[[str], bool],
        partner: Callable[[str], str] = lambda name: name,
    ) -> Listing:
        """The object at the URL, the matches of its glob, or those in its folder.

        Args:
          is_wanted: whether to list the object of a folder, by its relative name.
          partner: the name of the object that belongs to one and is beside it.

        Raises:
          InputNotFoundError: there is none.
          InputError: they cannot be listed; an UnreachableError if that may pass.
        """
        path = self.path if is_web(self.url) else self.path.rstrip("/")
        if self.magic:
            folder = path.removesuffix(self.magic)
            infos = self._call(lambda fs: fs.glob(path, detail=True))
        elif is_web(self.url) and path.endswith("/"):
            folder = path
            infos = self._call(lambda fs: fs.find(path, detail=True))
        else:
            info = self._info(path)
            if info["type"] != "directory":
                name = path.split("?")[0].split("#")[0].rstrip("/").rpartition("/")[2]
                one = _object(path, name, info)
                return Listing("file", [one, *self._partner(one, partner)])
            folder = f"{path}/"
            infos = self._call(lambda fs: fs.find(path, detail=True))
        listed = [*self._listed(infos, folder, is_wanted)]
        if not listed:
            what = "matches no file" if self.magic else "is a folder without such files"
            raise InputNotFoundError(f"{self.shown} {what}.")
        return Listing("glob" if self.magic else "folder", listed)

    def _partner(
        self, entry: RemoteObject, partner: Callable[[str], str]
    ) -> list[RemoteObject]:
        """The partner of an object, if there is one."""
        name = partner(entry.name)
        folder, own, query = entry.path.rpartition(entry.name)
        if name == entry.name or not own:
            return []
        try:
            return [self.look(f"{folder}{name}{query}", name)]
        except InputNotFoundError:
            return []

    def _listed(
        self, infos: dict[str, Any], folder: str, is_wanted: Callable[[str], bool]
    ) -> Iterator[RemoteObject]:
        for path, info in sorted(infos.items()):
            name = path.removeprefix(folder).lstrip("/")
            is_file = info["type"] != "directory" and not path.endswith("/")
            if is_web(self.url):  # a link in a page: its order may be a query
                is_file = is_file and "?" not in name
            if is_file and (self.magic or is_wanted(name)):
                listed = _object(path, name, info)
                is_known = listed.size is not None and listed.tag is not None
                yield listed if is_known else self.look(path, name)

    def look(self, path: str, name: str) -> RemoteObject:
        """The object at `path` as it is now; raises as `listing`."""
        return _object(path, name, self._info(path))

    def check_unchanged(self, before: RemoteObject) -> None:
        """Raises ChangedError if an object is another than `before`, or gone."""
        try:
            if self.look(before.path, before.name) == before:
                return
        except InputNotFoundError:
            pass
        raise ChangedError(
            f"{self.shown}: {before.name} changed while it was read: start again when "
            "nothing writes to it."
        )

    def has_ranges(self, entry: RemoteObject) -> bool:
        """Whether a piece of the object can be read: not every web server does that."""
        size = entry.size
        if not is_web(self.url) or not size:
            return size is not None

        def read_last_byte(fs: Any) -> None:
            options = {"block_size": 1, "cache_type": "none", "size": size}
            with fs.open(entry.path, "rb", **options) as file:
                file.seek(size - 1)
                file.read(1)

        try:
            self._call(read_last_byte, passes=(ValueError,))
        except ValueError as error:
            if isinstance(error, InputError):
                raise
            return False
        return True

    def read(self, entry: RemoteObject, start: int, end: int) -> bytes:
        """The bytes of an object from `start` to `end`; raises as `listing`."""

        def read(fs: Any) -> bytes:
            is_whole = start == 0 and end == entry.size
            limits = {} if is_whole else {"start": start, "end": end}
            data = fs.cat_file(entry.path, **limits)
            self._check_size(entry, len(data), end - start)
            return data

        return self._call(read)

    def download(self, entry: RemoteObject, path: Path) -> None:
        """Writes the object to `path` in one stream; raises as `listing`."""

        def download(fs: Any) -> None:
            fs.get_file(entry.path, str(path))
            if entry.size is not None:
                self._check_size(entry, path.stat().st_size, entry.size)

        self._call(download)

    def _check_size(self, entry: RemoteObject, size: int, expected: int) -> None:
        """Raises ChangedError, or an OSError if another try may give all bytes."""
        if size != expected:
            self.check_unchanged(entry)
            raise OSError(f"{size} bytes came of {expected}")

    def _info(self, path: str) -> dict[str, Any]:
        def info(fs: Any) -> dict[str, Any]:
            fs.invalidate_cache()
            return fs.info(path)

        return self._call(info)

    def _call(
        self, action: Callable[[Any], _Value], passes: tuple[type[Exception], ...] = ()
    ) -> _Value:
        """`action` of the file system, tried again while its errors may pass.

        Args:
          passes: errors that are raised as they are.
        """
        for wait in (*_WAITS, None):
            try:
                return action(self._fs)
            except InputError:
                raise
            except passes:
                raise
            except Exception as error:
                if getattr(error, "errno", None) in _DISK_FULL:
                    raise
                if not _may_pass(error):
                    raise self._failed(error) from None
                reason = self._reason(error)
            if wait is not None:
                _log.warning(
                    "%s: %s: it is tried again in %g s.", self.shown, reason, wait
                )
                time.sleep(wait)
        raise UnreachableError(
            f"{self.shown} cannot be {self._use} after {1 + len(_WAITS)} attempts "
            f"({reason}){self.advice}."
        )

    def _failed(self, error: Exception) -> InputError:
        """The error for one that comes again."""
        status = _status(error)
        if status in _GONE or (status is None and isinstance(error, FileNotFoundError)):
            return InputNotFoundError(f"{self.shown} does not exist.")
        is_denied = status in (401, 403) or isinstance(error, PermissionError)
        if is_denied or "Credentials" in type(error).__name__:
            return InputError(
                f"{self.shown} must not be {self._use} with the credentials of this "
                f"machine ({self._reason(error)})."
            )
        return InputError(f"{self.shown} cannot be {self._use}: {self._reason(error)}.")

    def _reason(self, error: Exception) -> str:
        """The text of the innermost error of a library, without secrets."""
        if isinstance(error, FileNotFoundError) and error.__cause__ is not None:
            return self._reason(error.__cause__)  # type: ignore[arg-type]
        return short_reason(text_without_secrets(str(error), self.url)) or "?"


def _options(scheme: str) -> dict[str, Any]:
    """Options of a file system: retries are ours, and no time limit for a whole."""
    match scheme:
        case "s3" | "s3a":
            return {"config_kwargs": {"retries": {"total_max_attempts": 1}}}
        case "http" | "https":
            try:
                aiohttp = importlib.import_module("aiohttp")
            except ImportError:
                return {}  # fsspec says that it is missing
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=60)
            headers = {"Accept-Encoding": "identity"}  # sizes are those of the object
            return {"client_kwargs": {"timeout": timeout}, "headers": headers}
    return {}


def _status(error: BaseException | None) -> int | None:
    """The HTTP status of an error of a library, or of its cause; None: it has none."""
    if error is None:
        return None
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # of botocore
        return response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    status = getattr(error, "status", None)  # of aiohttp
    if type(error).__name__ == "HttpError":  # of gcsfs
        status = getattr(error, "code", None)
    if response is not None:  # of huggingface_hub
        status = getattr(response, "status_code", None)
    return status if isinstance(status, int) else _status(error.__cause__)


def _may_pass(error: BaseException) -> bool:
    """Whether an error of a library may not come again."""
    status = _status(error)
    if status is not None and status >= 400:
        return status >= 500 or status in _TRANSIENT
    if isinstance(error, FileNotFoundError) and error.__cause__ is not None:
        return _may_pass(error.__cause__)  # of fsspec, whatever happened
    names = {each.__name__ for each in type(error).__mro__}
    if {"NoCredentialsError", "InvalidURL"} & names:
        return False
    return not isinstance(error, _DEFINITE)


def _object(path: str, name: str, info: dict[str, Any]) -> RemoteObject:
    changed = next((info[key] for key in _TIMES if info.get(key)), None)
    tags = (str(info[key]).strip('"') for key in _TAGS if info.get(key))
    seconds = _seconds(changed)
    tag = next(tags, f"{seconds:.3f}" if seconds else None)
    # Whole seconds: the listings of a server have parts of them, its answers may not.
    return RemoteObject(path, name, info.get("size"), tag, int(seconds))


def _seconds(changed: object) -> float:
    """A time in seconds since 1970; 0 if it is not known."""
    try:
        if isinstance(changed, str):
            text = changed.replace("Z", "+00:00")
            is_iso = text[:1].isdigit()
            parse = datetime.datetime.fromisoformat
            changed = (parse if is_iso else email.utils.parsedate_to_datetime)(text)
        if isinstance(changed, datetime.datetime):
            return changed.timestamp()
        return float(changed) if isinstance(changed, int | float) else 0.0
    except ValueError:
        return 0.0
