"""Cuts encoded text into shards of whole sequences."""

import logging
from collections.abc import Iterable, Iterator

import numpy as np

SHARD_TOKENS = 2_000_000
_log = logging.getLogger(__name__)

EncodedChunk = tuple[np.ndarray, np.ndarray, bool]
"""ids i32[n], -1 where unknown; lengths i64[m], sequences may be empty; `is_open`: the
last sequence continues in the next chunk."""
Shard = tuple[np.ndarray, np.ndarray]
"""ids i32[n]; lengths of its sequences i32[m], none empty."""


def cut_shards(chunks: Iterable[EncodedChunk]) -> Iterator[Shard]:
    """Shards of at most SHARD_TOKENS known tokens.

    Unknown tokens are dropped. A sequence longer than a shard is cut, and logged.
    """
    ids, lengths = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64)
    for new_ids, new_lengths in _whole_sequences(chunks):
        ids = np.concatenate([ids, new_ids])
        lengths = np.concatenate([lengths, new_lengths])
        while len(ids) > SHARD_TOKENS:
            ends = np.cumsum(lengths)
            num = int(np.searchsorted(ends, SHARD_TOKENS, side="right"))
            cut = int(ends[num - 1])
            yield ids[:cut], lengths[:num].astype(np.int32)
            ids, lengths = ids[cut:], lengths[num:]
    if len(ids):
        yield ids, lengths.astype(np.int32)


def _whole_sequences(
    chunks: Iterable[EncodedChunk],
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Known ids and lengths i64 of whole sequences, none longer than a shard.

    An open sequence is held back until it ends or fills a shard.
    """
    open_ids = np.empty(0, dtype=np.int32)
    for ids, lengths, is_open in chunks:
        is_known = ids >= 0
        lengths = _known_lengths(is_known, lengths)
        ids = np.concatenate([open_ids, ids[is_known]])
        if len(lengths):
            lengths[0] += len(open_ids)
        num_open = int(lengths[-1]) % SHARD_TOKENS if is_open else 0
        open_ids = ids[len(ids) - num_open :]
        lengths = _cut_long(lengths)
        if num_open:
            lengths = lengths[:-1]
        yield ids[: len(ids) - num_open], lengths[lengths > 0]


def _known_lengths(is_known: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Known tokens of each sequence, i64[m]."""
    ends = np.cumsum(lengths)
    total = np.concatenate([[0], np.cumsum(is_known)])
    return total[ends] - total[ends - lengths]


def _cut_long(lengths: np.ndarray) -> np.ndarray:
    """`lengths` with each above SHARD_TOKENS cut into SHARD_TOKENS and a rest."""
    if len(lengths) == 0 or lengths.max() <= SHARD_TOKENS:
        return lengths
    _log.warning(
        "A sequence of %d tokens is cut every %d tokens.", lengths.max(), SHARD_TOKENS
    )
    pieces = -(-lengths // SHARD_TOKENS)
    cut = np.full(int(np.maximum(pieces, 1).sum()), SHARD_TOKENS, dtype=np.int64)
    last = np.cumsum(np.maximum(pieces, 1)) - 1
    cut[last] = lengths - np.maximum(pieces - 1, 0) * SHARD_TOKENS
    return cut
