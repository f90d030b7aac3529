"""The neighbours of all keys of a file, written to a table."""

import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from embedder.base.stages import report_stage
from embedder.base.threads import use_threads
from embedder.data.tables.key_lists import read_keys
from embedder.disk.copies import local_copy
from embedder.disk.files import atomic_file, check_utf8_path, temporary_path
from embedder.disk.workdir import check_target
from embedder.errors import InputError
from embedder.vectors.array_formats import key_column
from embedder.vectors.ensemble import Ensemble
from embedder.vectors.search import Metric
from embedder.vectors.vectors import KeyType, Vectors

ENDINGS = (".parquet", ".csv")
_KEYS = 2**14  # that are looked up at once
_ROWS = 2**21  # of a part of the result
_SHOWN = 3  # unknown keys in a message


class Batch(NamedTuple):
    """What was looked up."""

    num_known: int  # queries
    num_unknown: int
    unknown: list[str]  # the first of them

    def __str__(self) -> str:
        tokens = "token" if self.num_known == 1 else "tokens"
        text = f"neighbours of {self.num_known:,} {tokens}"
        if not self.num_unknown:
            return text
        shown = ", ".join(map(repr, self.unknown))
        more = ", ..." if self.num_unknown > len(self.unknown) else ""
        others = "1 is" if self.num_unknown == 1 else f"{self.num_unknown:,} are"
        return f"{text}; {others} not in the vocabulary ({shown}{more})"


def check_batch(to: Path | None) -> None:
    """Raises InputError unless a batch can be written to `to`."""
    if to is None:
        raise InputError("`from` needs `to`, the file to write, .parquet or .csv.")
    check_target(to, "`to`")
    if to.suffix.lower() not in ENDINGS:
        raise InputError(
            f"`to` must end in {' or '.join(ENDINGS)} with --from, got {to}."
        )
    check_utf8_path(to, "`to`")


def write_batch(
    source: str | list[str],
    to: Path,
    known: Callable[[str], bool],
    neighbors: Callable[[list[str]], pl.DataFrame],
    topn: int,
) -> Batch:
    """Writes the neighbours of the keys in `source` to a .parquet or .csv file.

    Keys are looked up some thousands at a time, and the result is written in parts, so
    memory does not grow with them. Unknown keys are left out and counted.

    Args:
      source: path or URL of a text with a key in each line (.gz is unpacked), which
        may be a pipe or "-", standard input, or of a table with a column `key`; or the
        keys.
      known: whether a key is in the vocabulary.
      neighbors: the rows of the result for known keys, at most `topn` for each.

    Raises:
      InputError: the source cannot be read, or none of its keys is known.
      OSError: the disk is full, say; an existing file at `to` stays.
    """
    num_known, num_unknown, unknown = 0, 0, list[str]()

    def frames() -> Iterator[pl.DataFrame]:
        nonlocal num_known, num_unknown
        size = max(1, min(_KEYS, _ROWS // topn))
        for keys in told_keys(source, size):
            mine, others = _split(keys, known)
            num_known, num_unknown = num_known + len(mine), num_unknown + len(others)
            unknown.extend(others[: _SHOWN - len(unknown)])
            if mine:
                yield neighbors(mine)
        if not num_known:
            first = f", the first is {unknown[0]!r}" if unknown else ""
            raise InputError(
                f"`from` must have a token of the vocabulary, got {source} with "
                f"{num_unknown} others{first}."
            )

    write_frames(frames(), to)
    return Batch(num_known, num_unknown, unknown)


def _split(keys: list[str], known: Callable[[str], bool]) -> tuple[list[str], ...]:
    """The known keys, and the others."""
    parts: tuple[list[str], list[str]] = [], []
    for key in keys:
        parts[not known(key)].append(key)
    return parts


def told_keys(source: str | list[str], size: int = _KEYS) -> Iterator[list[str]]:
    """The keys of a file, or given ones, `size` at a time; tells how many are done."""
    num, batches = _keys(source, size)
    done, of_all = 0, f" of {num:,}" if num else ""
    report_stage(f"neighbours: 0{of_all} queries")
    for keys in batches:
        yield keys
        done += len(keys)
        report_stage(f"neighbours: {done:,}{of_all} queries")


def _keys(source: str | list[str], size: int) -> tuple[int, Iterator[list[str]]]:
    """How many keys there are, 0 if that is not known, and the keys."""
    if isinstance(source, list):
        starts = range(0, len(source), size)
        return len(source), (source[k : k + size] for k in starts)
    report_stage(f"reading {source}")
    path = Path("/dev/stdin" if source == "-" else local_copy(source))
    return read_keys(path, size, f"`from` {path}")


def with_names(
    find: Callable[[list[str]], pl.DataFrame], names: dict[str, str]
) -> Callable[[list[str]], pl.DataFrame]:
    """`find` with the columns `query_name` and `name`, those of query and key."""
    keys, texts = [*names], pl.Series([*names.values()], dtype=pl.String)

    def named(column: str) -> pl.Expr:
        text = pl.col(column).cast(pl.String)
        return text.replace_strict(keys, texts, default=None, return_dtype=pl.String)

    def found(wanted: list[str]) -> pl.DataFrame:
        query_name, name = named("query"), named("key")
        return find(wanted).with_columns(query_name=query_name, name=name)

    return found


def write_frames(frames: Iterable[pl.DataFrame], to: Path) -> None:
    """Writes all frames to a file, atomically; parts of it are beside it until then."""
    use_threads()
    to = Path(os.path.realpath(to))
    parts = temporary_path(to)
    try:
        with atomic_file(to) as whole:
            parts.mkdir()
            _write_parts(frames, parts)
            report_stage(f"writing {to}")
            rows = pl.scan_parquet(sorted(parts.iterdir()), glob=False)
            if to.suffix.lower() == ".csv":
                rows.sink_csv(whole)
            else:
                rows.sink_parquet(whole)
    except pl.exceptions.PolarsError as error:
        raise OSError(f"A table cannot be written to {to.parent}: {error}") from error
    finally:
        shutil.rmtree(parts, ignore_errors=True)


def _write_parts(frames: Iterable[pl.DataFrame], folder: Path) -> None:
    held: list[pl.DataFrame] = []
    number = 0
    for frame in frames:
        held.append(frame)
        if sum(map(len, held)) >= _ROWS:
            pl.concat(held).write_parquet(folder / f"{number:06d}.parquet")
            number, held = number + 1, []
    if held or not number:
        pl.concat(held).write_parquet(folder / f"{number:06d}.parquet")


def of_vectors(
    vectors: Vectors,
    key_type: KeyType,
    topn: int,
    among: np.ndarray | None,
    metric: Metric,
) -> Callable[[list[str]], pl.DataFrame]:
    """A function that gives the neighbours of keys as a table.

    Args:
      among: ids that can be neighbours, ascending; None: all.
    """
    column = key_column(vectors.keys, key_type)
    name = "similarity" if metric == "cosine" else "product"

    def find(keys: list[str]) -> pl.DataFrame:
        ids, scores = vectors.neighbors_among(keys, topn, among, metric)
        query, place = np.nonzero(ids >= 0)
        queries = pl.Series(keys, dtype=pl.String).gather(query)
        return pl.DataFrame(
            {
                "query": queries.cast(column.dtype),
                "key": column.gather(ids[query, place]),
                "rank": (place + 1).astype(np.int32),
                name: scores[query, place].astype(np.float32),
            }
        )

    return find


def of_ensemble(
    ensemble: Ensemble,
    topn: int,
    order: Literal["mean", "lower"],
    among: Collection[str] | None,
) -> Callable[[list[str]], pl.DataFrame]:
    """As `of_vectors`, with the interval of the similarity and the replicas."""
    column = key_column(ensemble.texts, ensemble.key_type)

    def find(keys: list[str]) -> pl.DataFrame:
        neighbors = ensemble.neighbors(keys, topn, order=order, among=among)
        query = np.repeat([ensemble.index(key) for key in keys], [*map(len, neighbors)])
        near = [each for row in neighbors for each in row]
        ids = np.array([ensemble.index(each.token) for each in near], np.int64)
        ranks = [rank for row in neighbors for rank in range(1, len(row) + 1)]
        numbers = {
            name: np.array([getattr(each, name) for each in near], np.float32)
            for name in ("similarity", "lower", "upper")
        }
        return pl.DataFrame(
            {
                "query": column.gather(query.astype(np.int64)),
                "key": column.gather(ids),
                "rank": np.array(ranks, np.int32),
                **numbers,
                "replicas": np.array([each.frequency for each in near], np.int32),
            }
        )

    return find
