"""Reads the attributes of items: columns of a table whose values have rows of their
own, `vectors.attributes`."""

import logging
import os
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from embedder.base.limits import check_room
from embedder.base.threads import use_threads
from embedder.config import read_toml
from embedder.data.names import KEY_COLUMNS
from embedder.data.tables.frames import lazy_frame
from embedder.data.tables.reader import (
    Table,
    key_text,
    named_faults,
    open_table,
    table_of_frame,
)
from embedder.data.tables.text_form import Roles
from embedder.disk.arrays import read_stored_array
from embedder.disk.copies import local_copy
from embedder.disk.files import atomic_file, name_file_in_errors, short_reason
from embedder.disk.urls import without_secrets
from embedder.disk.workdir import Workdir
from embedder.errors import InputError, InputNotFoundError
from embedder.vectors.attributes import ATTRIBUTE, KEY, Attributes

_log = logging.getLogger(__name__)
_SPLITS = {
    "words:": lambda text: text.str.to_lowercase().str.extract_all(r"[\w'’]+"),
    "list:": lambda text: text.str.split("|").list.eval(pl.element().str.strip_chars()),
}
"""Prefix of a column -> how its text is split into values."""
_SHARE = 8  # memory of pairs and their sort, to that of the columns
_ROLES = Roles({KEY: KEY_COLUMNS}, needed=(KEY,))


def read_attributes(path: Path, columns: Sequence[str] = ()) -> Attributes:
    """The attributes in columns of a table, in any format of a corpus.

    The column of the keys has a usual name, as item or id, else it is the first. Each
    value of a column is an attribute, of a list each element; nothing is one where a
    cell is empty.

    Args:
      columns: names. Of `words:NAME` each word of the text is an attribute, whatever
        its case; of `list:NAME` each part between `|`. (): all columns but that of the
        keys.

    Raises:
      OSError: the file does not exist, or cannot be read.
      InputError: it is no table, lacks a column, or has no value.
    """
    use_threads()
    if not path.exists():
        raise InputNotFoundError(f"`attributes` {path} does not exist.")
    asked = tuple(_split(column)[1] for column in columns)
    with named_faults(f"`attributes` {path}"):
        table = open_table([path], _ROLES._replace(asked=asked, least=1))
        return _attributes(table, columns, path.stat().st_size)


def given_attributes(given: Any) -> Attributes | None:
    """What the argument `attributes` of Python is: a path; a path and columns; a frame
    of polars, pandas or Arrow; or a mapping from a key to texts as "category=mugs".

    Raises:
      OSError, InputError: see `read_attributes`; or it is something else.
    """
    if isinstance(given, Attributes):
        return given
    if given is None or (isinstance(given, list | tuple) and not given):
        return None
    if isinstance(given, str | os.PathLike):
        given = [given]
    if isinstance(given, Mapping):
        return _of_mapping(given)
    if (frame := lazy_frame(given)) is not None:
        with named_faults("`attributes`"):
            return _attributes(table_of_frame(frame), ())
    parts = given if isinstance(given, list | tuple) else []
    if not parts or not all(isinstance(x, str | os.PathLike) for x in parts):
        raise InputError(
            "`attributes` must be a path, a path and columns, a frame, or a mapping "
            f"from keys to texts, got {type(given).__name__}."
        )
    path, *columns = map(os.fspath, parts)
    return read_attributes(Path(local_copy(path)), columns)


def attributes_of_setting(
    setting: Sequence[str], run: Workdir, cache: Path | None
) -> Attributes | None:
    """Those that the setting `attributes` names; of a run that lost the file, what it
    kept.

    Raises:
      OSError, InputError: see `read_attributes`.
    """
    if not setting:
        return None
    given, *columns = setting
    is_kept = False
    if run.is_started and run.attributes.exists():
        before = getattr(read_toml(run.config).family, "attributes", ())
        is_kept = before == (without_secrets(given), *columns)
    try:
        path = Path(local_copy(given, cache))
    except (OSError, InputError):
        if not is_kept:
            raise
        path = run.attributes
    if is_kept and not path.exists():
        path = run.attributes
    if path.name != run.attributes.name or not path.exists():
        return read_attributes(path, columns)
    kept = read_kept(path)
    for name in (_split(column)[1] for column in columns):
        if not any(each.startswith(f"{name}=") for each in kept.names):
            raise InputError(
                f"`attributes` must name columns of {path}, got {name!r}, of which it "
                "has no value."
            )
    return kept


def write_kept(path: Path, attributes: Attributes) -> None:
    """Writes the attributes that a run was given, whole or not at all."""
    with atomic_file(path) as part, open(part, "wb") as file:
        np.savez(file, **attributes.arrays())  # type: ignore[arg-type]


def read_kept(path: Path) -> Attributes:
    """What `write_kept` wrote.

    Raises:
      OSError, InputError: it cannot be read, or is damaged.
    """
    try:
        with name_file_in_errors(path), zipfile.ZipFile(path) as archive:
            return Attributes.of_arrays(lambda x: read_stored_array(archive, x))
    except (ValueError, KeyError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} is damaged: {short_reason(error)}.") from error


def _attributes(table: Table, columns: Sequence[str], num_bytes: int = 0) -> Attributes:
    key = [*_ROLES.columns(KEY, table.names), *table.names][0]
    columns = columns or [name for name in table.names if name != key]
    names = [_split(column)[1] for column in columns]
    for name in names:
        if name not in table.names or name == key:
            known = ", ".join(each for each in table.names if each != key)
            raise InputError(
                f"`attributes` must name columns of {table.source}, got {name!r}: it "
                f"has {known}, and the keys are {key!r}."
            )
    if not columns:
        raise InputError(
            f"`attributes` {table.source} has no column besides that of the keys, "
            f"{key!r}."
        )
    wanted = [key, *dict.fromkeys(names)]
    check_room(
        _SHARE * max(table.check_rows(wanted), num_bytes),
        f"`attributes` {table.source} takes",
        "give fewer columns",
    )
    is_key = pl.col(key).is_not_null() & (pl.col(key) != "")
    frame = table.read(wanted, keys=[key]).filter(is_key)
    pairs = pl.concat(_pairs(frame, key, column) for column in columns)
    if not len(pairs):
        raise InputError(
            f"`attributes` {table.source} has no value in {', '.join(names)}."
        )
    _log.info(
        "%s: attributes are %s of %r.", table.source, ", ".join(map(repr, names)), key
    )
    return Attributes.of_pairs(pairs)


def _split(column: str) -> tuple[str, str]:
    """The prefix of a column, "" without one, and its name."""
    prefix = next((each for each in _SPLITS if column.startswith(each)), "")
    return prefix, column.removeprefix(prefix)


def _pairs(frame: pl.DataFrame, key: str, column: str) -> pl.DataFrame:
    """The key and the attribute of each value of a column."""
    prefix, name = _split(column)
    each = frame.select(pl.col(key).alias(KEY), pl.col(name).alias(ATTRIBUTE))
    while isinstance(dtype := each.schema[ATTRIBUTE], pl.List | pl.Array):
        each = each.explode(ATTRIBUTE)
    if isinstance(dtype, pl.Struct) or dtype == pl.Binary:
        raise InputError(
            f"`attributes` must name columns of texts, numbers or lists, got {name!r} "
            f"with {dtype}."
        )
    each = each.with_columns(key_text(ATTRIBUTE, dtype).str.strip_chars())
    if prefix:
        each = each.with_columns(_SPLITS[prefix](pl.col(ATTRIBUTE))).explode(ATTRIBUTE)
    value = pl.col(ATTRIBUTE)
    named = (pl.lit(f"{name}=") + value).alias(ATTRIBUTE)
    return each.filter(value.is_not_null() & (value != "")).select(KEY, named)


def _of_mapping(given: Mapping[Any, Iterable[str]]) -> Attributes:
    pairs = [
        (_key(key), name) for key, names in given.items() for name in _texts(names)
    ]
    pairs = [pair for pair in pairs if all(pair)]
    if not pairs:
        raise InputError("`attributes` must have an attribute, got none.")
    schema = {KEY: pl.String, ATTRIBUTE: pl.String}
    try:
        return Attributes.of_pairs(pl.DataFrame(pairs, schema, orient="row"))
    except UnicodeError as error:
        raise InputError(f"`attributes` must be Unicode text: {error}.") from error


def _key(key: Any) -> str:
    if isinstance(key, bool) or not isinstance(key, str | int | np.integer):
        raise InputError(
            f"`attributes` must have text or integers as keys, got {key!r}."
        )
    return str(key)


def _texts(names: Iterable[str]) -> list[str]:
    texts = (
        [names]
        if isinstance(names, str) or not isinstance(names, Iterable)
        else [*names]
    )
    if wrong := [x for x in texts if not isinstance(x, str)]:
        raise InputError(f"`attributes` must be texts, got {wrong[0]!r}.")
    return texts
