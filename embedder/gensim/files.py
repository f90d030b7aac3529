"""The file of `save`: safetensors, with facts as JSON in its metadata. No pickle.

Arrays have names such as `wv.vectors`; lists of Python values, such as keys, are JSON
as bytes, in arrays too, because the header of safetensors is limited.
"""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save

from embedder.gensim.corpora import local_path

KINDS: dict[str, Any] = {}
"""`KIND` -> class, of those that `saved` has named."""
_FORMAT = "embedder.gensim 1"
_MMAP_MODES = ("r", "r+", "c")
_TAGGED: dict[type, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    tuple: (list, tuple),
    frozenset: (list, frozenset),
    bytes: (bytes.hex, bytes.fromhex),
    np.datetime64: (str, np.datetime64),
    datetime: (datetime.isoformat, datetime.fromisoformat),
    date: (date.isoformat, date.fromisoformat),
    Decimal: (str, Decimal),
    UUID: (str, UUID),
}
"""Types that JSON lacks -> to JSON, and back; in a file as {name of the type: JSON}."""


class Saved(NamedTuple):
    """The content of a file."""

    kind: str  # the `KIND` of its class
    facts: dict[str, Any]  # JSON values
    arrays: dict[str, np.ndarray]

    def array(self, name: str, ndim: int, kinds: str) -> np.ndarray:
        """An array of `ndim` axes whose dtype is one of `kinds`.

        Raises:
          ValueError: there is none.
        """
        array = self.arrays.get(name)
        if array is None or array.ndim != ndim or array.dtype.kind not in kinds:
            actual = "none" if array is None else f"{array.dtype}{list(array.shape)}"
            raise ValueError(f"`{name}` must have {ndim} axes, got {actual}")
        return array

    def values(self, name: str, kinds: type | tuple[type, ...]) -> list[Any]:
        """A list of Python values that `as_values` made.

        Raises:
          ValueError: there is none, or a value has another type.
        """
        text = self.array(name, 1, "u").tobytes()
        items = json.loads(text, object_hook=_untagged)
        if not isinstance(items, list) or not all(isinstance(x, kinds) for x in items):
            raise ValueError(f"`{name}` must be a list, of other values")
        return items

    def fact(self, name: str, kinds: type | tuple[type, ...]) -> Any:
        """A value of the JSON object.

        Raises:
          ValueError: it has another type.
        """
        value = self.facts.get(name)
        if not isinstance(value, kinds):
            raise ValueError(f"`{name}` must not be {value!r:.40}")
        return value


def saved(kind: Any) -> Any:
    """Names a class as the one that files with its `KIND` are of."""
    KINDS[kind.KIND] = kind
    return kind


def as_values(values: list[Any], name: str) -> np.ndarray:
    """Python values as an array of their JSON in bytes.

    Raises:
      TypeError: a value has no JSON that gives it back.
    """
    plain = str | int | float | None
    try:
        parts = [x if isinstance(x, plain) else _tagged(x) for x in values]
    except TypeError as error:
        raise TypeError(
            f"`{name}` must be text, numbers, bytes, dates, or tuples of these to be "
            f"saved, got {error}: `pickle.dump` takes any."
        ) from None
    return np.frombuffer(json.dumps(parts).encode(), np.uint8)


def as_json(value: Any, name: str) -> Any:
    """A value as a file gives it back: numbers of NumPy as those of Python, and so on.

    Raises:
      TypeError: JSON has no such value.
    """
    try:
        return json.loads(json.dumps(value, default=_plain))
    except (TypeError, ValueError, RecursionError):
        raise TypeError(
            f"`{name}` must be JSON to be saved, got {value!r:.40}."
        ) from None


def write(path_or_file: Any, saved: Saved) -> None:
    """Writes a file, by another name that is renamed at the end; or to an open one. A
    device or a named pipe is written into, and a file that is replaced keeps its mode.
    """
    facts = {"kind": saved.kind, "facts": saved.facts}
    arrays = {
        name: np.ascontiguousarray(array, array.dtype.newbyteorder("="))
        for name, array in saved.arrays.items()
    }
    metadata = {"format": _FORMAT, "json": json.dumps(facts, default=_plain)}
    data = save(arrays, metadata)
    if hasattr(path_or_file, "write"):
        path_or_file.write(data)
        return
    path = Path(local_path(path_or_file))
    path = Path(os.path.realpath(path))  # of a link its target
    if path.exists() and not (path.is_file() or path.is_dir()):
        path.write_bytes(data)
        return
    if not path.parent.is_dir():
        raise FileNotFoundError(f"Folder {path.parent} does not exist.")
    part = path.with_name(f".{path.name[:60]}.{os.getpid()}.part")
    try:
        part.write_bytes(data)
        if path.is_file():
            shutil.copymode(path, part)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def is_saved(path: Any) -> bool:
    """Whether a file begins as one of `write` does."""
    with open(path, "rb") as file:
        return file.read(9)[8:] == b"{"


def read(path: Any, mmap: str | None = None) -> Saved:
    """The content of a file of `write`.

    Args:
      mmap: None: arrays in memory; "r", "r+", "c": on disk, as of `numpy.memmap`.

    Raises:
      OSError: there is no such file.
      ValueError: it is damaged, or of another program.
    """
    if mmap not in (None, *_MMAP_MODES):
        raise ValueError(f"`mmap` must be None or one of {_MMAP_MODES}, got {mmap!r}.")
    try:
        with safe_open(path, "numpy") as file:
            metadata = file.metadata() or {}
            if (name := metadata.get("format")) != _FORMAT:
                raise ValueError(f"its format is {name!r:.40}, not {_FORMAT!r}")
            names = file.keys()
            arrays = {} if mmap else {name: file.get_tensor(name) for name in names}
        known = json.loads(metadata["json"])
        kind, facts = known["kind"], known["facts"]
        if not isinstance(facts, dict):
            raise ValueError("its facts are no JSON object")
        return Saved(kind, facts, _mapped(path, mmap) if mmap else arrays)
    except OSError:
        raise
    except Exception as error:  # a damaged file raises nearly anything
        raise damaged(path, error) from None


def damaged(path: Any, error: Exception) -> ValueError:
    """The error for a file that `write` did not make."""
    reason = " ".join(str(error).split()).removesuffix(".")
    return ValueError(f"{path} is not a whole file of `save`: {reason:.200}.")


def _mapped(path: Any, mode: Any) -> dict[str, np.ndarray]:
    """The arrays of a valid file, mapped into memory."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header: Mapping[str, Any] = json.loads(file.read(size))
    dtypes = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "BOOL": "?"}
    arrays: dict[str, np.ndarray] = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        code, shape = entry["dtype"], tuple(entry["shape"])
        dtype = dtypes.get(code) or f"<{code[0].lower()}{int(code[1:]) // 8}"
        start, end = entry["data_offsets"]
        if start == end:  # an empty array cannot be mapped
            arrays[name] = np.empty(shape, dtype)
            continue
        offset = 8 + size + start
        arrays[name] = np.memmap(path, dtype, mode, offset, shape)
    return arrays


def _plain(value: Any) -> Any:
    """A value of NumPy as JSON has it."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value)} is no JSON")


def _tagged(value: Any) -> Any:
    """A value as JSON from which `_untagged` makes an equal one.

    Raises:
      TypeError: there is none.
    """
    for kind, (to_json, to_value) in _TAGGED.items():
        if isinstance(value, kind) and to_value(to_json(value)) in {value}:
            parts = to_json(value)
            is_list = isinstance(parts, list)
            return {kind.__name__: [*map(_tagged, parts)] if is_list else parts}
    plain = value.item() if isinstance(value, np.number | np.bool) else value
    if isinstance(plain, str | int | float | None):
        return plain
    raise TypeError(f"{value!r:.40}")


def _untagged(tagged: dict[str, Any]) -> Any:
    """The value in an object of JSON that `_tagged` made."""
    (name, parts), *more = tagged.items()
    for kind, (_, to_value) in _TAGGED.items():
        if kind.__name__ == name and not more:
            return to_value(parts)
    raise ValueError(f"{name!r:.40} is no type of keys")
