"""Cuts encoded text into shards of whole sequences."""

import logging
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

SHARD_TOKENS = 2_000_000
_log = logging.getLogger(__name__)

Shard = tuple[np.ndarray, np.ndarray]
"""ids i32[n]; lengths of its sequences i32[m], none empty."""


class EncodedChunk(NamedTuple):
    """Sequences of ids, the last of which may continue in the next chunk."""

    ids: np.ndarray  # i32[n], -1 where unknown
    lengths: np.ndarray  # i64[m], may be 0
    is_open: bool  # the last sequence continues in the next chunk
    weights: np.ndarray | None = None  # f32[m]; None: all are 1


class CutShard(NamedTuple):
    """A shard, and the weights of its sequences."""

    ids: np.ndarray  # i32[n]
    lengths: np.ndarray  # i32[m], while shards are cut i64[m]; none 0
    weights: np.ndarray | None  # f32[m]; None: all are 1


def cut_shards(chunks: Iterable[EncodedChunk]) -> Iterator[CutShard]:
    """Shards of at most SHARD_TOKENS known tokens.

    Unknown tokens are dropped. A sequence longer than a shard is cut, and logged; its
    parts keep its weight.
    """
    pending = None
    for new in _whole_sequences(chunks):
        pending = new if pending is None else _joined(pending, new)
        while len(pending.ids) > SHARD_TOKENS:
            ends = np.cumsum(pending.lengths)
            num = int(np.searchsorted(ends, SHARD_TOKENS, side="right"))
            first, pending = _split(pending, int(ends[num - 1]), num)
            yield _with_short_lengths(first)
    if pending is not None and len(pending.ids):
        yield _with_short_lengths(pending)


def _joined(first: CutShard, second: CutShard) -> CutShard:
    weights = None
    if first.weights is not None and second.weights is not None:
        weights = np.concatenate([first.weights, second.weights])
    return CutShard(
        np.concatenate([first.ids, second.ids]),
        np.concatenate([first.lengths, second.lengths]),
        weights,
    )


def _split(whole: CutShard, num_ids: int, num: int) -> tuple[CutShard, CutShard]:
    """The first `num` sequences, which have `num_ids` ids, and the others."""
    ids, lengths, weights = whole
    first, rest = (None, None) if weights is None else (weights[:num], weights[num:])
    return (
        CutShard(ids[:num_ids], lengths[:num], first),
        CutShard(ids[num_ids:], lengths[num:], rest),
    )


def _with_short_lengths(shard: CutShard) -> CutShard:
    return shard._replace(lengths=shard.lengths.astype(np.int32))


def _whole_sequences(chunks: Iterable[EncodedChunk]) -> Iterator[CutShard]:
    """Known ids and lengths i64 of whole sequences, none longer than a shard.

    An open sequence is held back until it ends or fills a shard.
    """
    open_ids = np.empty(0, dtype=np.int32)
    for ids, lengths, is_open, weights in chunks:
        is_known = ids >= 0
        ends = np.cumsum(lengths)
        total = np.concatenate([[0], np.cumsum(is_known)])
        lengths = total[ends] - total[ends - lengths]  # known tokens of each sequence
        ids = np.concatenate([open_ids, ids[is_known]])
        if len(lengths):
            lengths[0] += len(open_ids)
        num_open = int(lengths[-1]) % SHARD_TOKENS if is_open else 0
        open_ids = ids[len(ids) - num_open :]
        if weights is not None:
            weights = weights.repeat(_pieces(lengths))
        lengths = _cut_long(lengths)
        whole = lengths > 0
        whole[len(lengths) - bool(num_open) :] = False
        yield CutShard(
            ids[: len(ids) - num_open],
            lengths[whole],
            None if weights is None else weights[whole],
        )


def _cut_long(lengths: np.ndarray) -> np.ndarray:
    """`lengths` with each above SHARD_TOKENS cut into SHARD_TOKENS and a rest."""
    if len(lengths) == 0 or lengths.max() <= SHARD_TOKENS:
        return lengths
    _log.warning(
        "A sequence of %d tokens is cut every %d tokens.", lengths.max(), SHARD_TOKENS
    )
    pieces = _pieces(lengths)
    cut = np.full(int(pieces.sum()), SHARD_TOKENS, dtype=np.int64)
    cut[np.cumsum(pieces) - 1] = lengths - (pieces - 1) * SHARD_TOKENS
    return cut


def _pieces(lengths: np.ndarray) -> np.ndarray:
    """Into how many sequences each is cut, i64[m], at least 1."""
    return np.maximum(-(-lengths // SHARD_TOKENS), 1)
