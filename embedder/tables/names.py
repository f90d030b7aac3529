"""Names of keys, in a table with the columns key, name and others."""

from pathlib import Path

import polars as pl

from embedder.disk.files import short_reason
from embedder.disk.untrusted import UnreadableError
from embedder.errors import InputError
from embedder.limits import check_room
from embedder.tables.table_files import read_first, scan_tables
from embedder.threads import use_threads
from embedder.vectors.spelling import near_keys

_FAULTS = (
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
    UnreadableError,
)
_SHARE = 6  # of memory for Python's text to that of polars


def read_names(path: Path) -> dict[str, str]:
    """Key -> name: the first two columns of a table, in any format of a corpus.

    Of several names of a key the first is taken.

    Raises:
      OSError: the file cannot be read.
      InputError: it is not a table of two columns or more, or does not fit.
    """
    use_threads()
    try:
        frame = scan_tables([path])
        read_first(frame.head(1), [path])
        columns = frame.collect_schema().names()
        if len(columns) < 2:
            raise InputError(
                f"`names` must be a table with the columns key and name, got {path} "
                f"with {columns}."
            )
        named = frame.select(pl.col(columns[:2]).cast(pl.String))
        num_bytes = read_first(named, [path])
        check_room(_SHARE * num_bytes, f"`names` {path} takes", "give fewer names")
        texts = named.collect()
    except _FAULTS as error:
        reason = short_reason(error)
        raise InputError(f"`names` {path} cannot be read: {reason}.") from error
    names: dict[str, str] = {}
    for key, name in texts.drop_nulls().iter_rows():
        names.setdefault(key, name.strip())
    return names


def keys_named(name: str, names: dict[str, str], known: set[str]) -> list[str]:
    """The `known` keys with a name, whatever its case.

    Raises:
      InputError: there is none; the message has near names.
    """
    folded = name.strip().casefold()
    found = [k for k, each in names.items() if each.casefold() == folded and k in known]
    if found:
        return found
    near = near_keys(name.upper(), [names[key] for key in names if key in known])
    near = near or near_keys(name, [names[key] for key in names if key in known])
    hint = f": did you mean {' or '.join(map(repr, near))}?" if near else "."
    raise InputError(f"`name` {name!r} is the name of no key in the vocabulary{hint}")
