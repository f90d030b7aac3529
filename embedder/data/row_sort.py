"""Sorts more rows than memory holds, by samples (a sample sort).

Keys are text, short ones first: so numbers, and names that end with one, are in the
order of the numbers. A first character that stands for the length does it.

Runs of rows are sorted and written to a folder. Samples of their keys cut all keys into
ranges, and the rows of one range, from all runs, are sorted at a time.
"""

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

import polars as pl

from embedder.base.limits import check_room

RUN_ROWS = 2**19  # of a run, which is sorted in memory
_SAMPLES = 256  # keys of a run
_BATCH_ROWS = 2**11  # rows that are read at least, from each run for each range
_COPIES = 4  # of rows in memory while they are sorted and encoded; measured: 3.6
_RUN_COPIES = 8  # of a run in memory while runs are read, sorted and written; measured
_NAME = 80  # characters of a key in a message
_LENGTHS = pl.Series([chr(33 + number) for number in range(94)])  # the last: or more


def sorted_groups(
    batches: Iterable[pl.DataFrame], key: str, by: list[str], folder: Path
) -> Iterator[pl.DataFrame]:
    """All rows sorted by `key`, text, and `by`; equal ones stay in their order.

    Rows of one `key` come in one frame. The frames of any RUN_ROWS, joined, are the
    same rows. Memory is bounded by RUN_ROWS or by the rows of the most frequent key.

    Args:
      folder: for temporary files, which are removed at the end.

    Raises:
      NoRoomError: RUN_ROWS, or the rows of one key, do not fit in memory.
    """
    size = pl.col(key).str.len_bytes().clip(upper_bound=len(_LENGTHS) - 1)
    keys = pl.concat_str(pl.lit(_LENGTHS).gather(size), pl.col(key)).alias(key)
    keyed = (batch.with_columns(keys) for batch in batches)
    for rows in _sorted(keyed, [key, *by], folder):
        yield rows.with_columns(pl.col(key).str.slice(1))


def _sorted(
    batches: Iterable[pl.DataFrame], order: list[str], folder: Path
) -> Iterator[pl.DataFrame]:
    """Of `sorted_groups`, by keys that are in the order of text."""
    key, runs = order[0], _runs(batches)
    first = [*itertools.islice(runs, 1)]
    if first and len(first[0]) >= RUN_ROWS:
        _check_room_for_runs(first[0])
    first += itertools.islice(runs, 1)
    if len(first) < 2:
        yield from (run.sort(order, maintain_order=True) for run in first)
        return
    paths: list[Path] = []
    samples = []
    for run in _chained(first, runs):
        paths.append(folder / f"rows-{len(paths)}.arrow")
        run = run.sort(order, maintain_order=True)
        sample = run[key].gather_every(-(-len(run) // _SAMPLES))
        samples.append(pl.Series(sample.to_list()))  # a copy: text shares memory
        run.write_ipc(paths[-1], record_batch_size=_BATCH_ROWS)
        del run  # while the next is read
    ordered, num = pl.concat(samples).sort(), len(paths)
    cuts = [len(ordered) * i // num for i in range(1, num)]
    yield from _merged(paths, order, ordered.gather(cuts).unique().sort())
    for path in paths:
        path.unlink()


def _runs(batches: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Frames of about RUN_ROWS rows."""
    frames: list[pl.DataFrame] = []
    for batch in batches:
        frames.append(batch)
        del batch  # it may share memory with rows that are read later
        if sum(map(len, frames)) >= RUN_ROWS:
            yield _joined(frames)
    if frames:
        yield _joined(frames)


def _joined(frames: list[pl.DataFrame]) -> pl.DataFrame:
    """The rows of `frames`, which are taken out of the list: nobody else has them."""
    rows = pl.concat(frames)
    frames.clear()
    return rows


def _chained(
    first: list[pl.DataFrame], rest: Iterator[pl.DataFrame]
) -> Iterator[pl.DataFrame]:
    """Those of `first`, which are taken out of the list, and of `rest`."""
    while first:
        yield first.pop(0)
    yield from rest


def _merged(
    paths: list[Path], order: list[str], splitters: pl.Series
) -> Iterator[pl.DataFrame]:
    """The sorted rows of all runs, a range of keys at a time.

    Args:
      splitters: the largest key of each range but the last; fewer where keys are
        frequent.
    """
    ends = []  # where the ranges of each run begin, and its number of rows
    for path in paths:
        keys = pl.scan_ipc(path, glob=False).select(order[0]).collect().to_series()
        starts = keys.search_sorted(splitters, side="right").to_list()
        ends.append([0, *starts, len(keys)])
    total_bytes = sum(path.stat().st_size for path in paths)
    row_bytes = total_bytes / sum(of_run[-1] for of_run in ends)
    for number in range(len(splitters) + 1):
        parts, num_rows = [], 0
        for path, of_run in zip(paths, ends, strict=True):
            size = of_run[number + 1] - of_run[number]
            parts.append(pl.scan_ipc(path, glob=False).slice(of_run[number], size))
            num_rows += size
        if num_rows > 2 * RUN_ROWS:
            _check_room(parts, order[0], int(_COPIES * row_bytes * num_rows))
        rows = pl.concat(part.collect() for part in parts)
        del parts
        rows = rows.sort(order, maintain_order=True)
        if len(rows):
            yield rows
        del rows  # while the next are read


def _check_room_for_runs(run: pl.DataFrame) -> None:
    """Raises NoRoomError if runs as large as this one do not fit in memory, without
    which Polars would end the process."""
    text_bytes = 16 * len(run) * run.width  # which polars does not count
    size = int(_RUN_COPIES * (run.estimated_size() + text_bytes))
    check_room(size, "Sorting the rows of the table takes", "raise that limit")


def _check_room(parts: list[pl.LazyFrame], key: str, num_bytes: int) -> None:
    """Raises NoRoomError if the rows of a range, most of one key, do not fit."""
    counts = pl.concat(
        part.select(pl.col(key).value_counts()).unnest(key).collect() for part in parts
    )
    most = counts.group_by(key).sum().sort("count", key).row(-1, named=True)
    check_room(
        num_bytes,
        f"The {key} {most[key][1:][:_NAME]!r} has {most['count']} rows, and sorting "
        "them takes",
        f"leave that {key} out, or cut it into several",
    )
