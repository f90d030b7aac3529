"""Which sequences are held out: a hash of their position, not of the seed.

So all runs on an encoded corpus hold out the same sequences, and a larger share holds
out those of a smaller one too (ALGORITHM.md (57)).
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from embedder.data.encoded import TokenSource
from embedder.errors import InputError

_SPAWN_KEY = 3  # of this hash alone
_MAX_TOKENS = 200_000


class Sequences(NamedTuple):
    """Sequences of ids, one after the other."""

    ids: np.ndarray  # i32[n]
    lengths: np.ndarray  # i64[m], none 0


def sequence_hashes(shard: int, num_sequences: int) -> np.ndarray:
    """The hash of each sequence of a shard, u32[num_sequences]: uniform."""
    key = _SPAWN_KEY, shard
    rng = np.random.default_rng(np.random.SeedSequence(0, spawn_key=key))
    return rng.integers(0, 2**32, size=num_sequences, dtype=np.uint32)


def held_out(shard: int, num_sequences: int, share: float) -> np.ndarray:
    """Whether each sequence of a shard is held out, bool[num_sequences], (57)."""
    return sequence_hashes(shard, num_sequences) < round(share * 2**32)


def held_out_of(
    encoded: TokenSource, shard: int, num_sequences: int, share: float
) -> np.ndarray:
    """Whether each of the `num_sequences` of a shard in an epoch is held out,
    bool[num_sequences]: replayed ones, which are last, never are."""
    mask = np.zeros(num_sequences, bool)
    num = int(encoded.own_sequences[shard])
    mask[:num] = held_out(shard, num, share)
    return mask


def num_held_out(shard_sequences: np.ndarray, share: float) -> np.ndarray:
    """Held-out sequences of each shard, i64[number of shards].

    Args:
      shard_sequences: sequences of each shard, i64[number of shards].

    Raises:
      InputError: `share` > 0 holds out no sequence, or all of them.
    """
    if share == 0:
        return np.zeros(len(shard_sequences), np.int64)
    masks = (held_out(z, int(n), share) for z, n in enumerate(shard_sequences))
    numbers = np.array([np.count_nonzero(mask) for mask in masks], np.int64)
    total = int(shard_sequences.sum())
    if numbers.sum() in (0, total):
        which, change = ("all", "smaller") if numbers.any() else ("none", "larger")
        raise InputError(
            f"`holdout` = {share} holds out {which} of the {total} sequences of the "
            f"corpus: give a {change} share, or a corpus of more lines."
        )
    return numbers


def trained_share(encoded: TokenSource, share: float) -> float:
    """Share of the tokens that are not held out, from the number of sequences that
    each shard holds out.

    Raises:
      InputError: see `num_held_out`.
    """
    if share == 0:  # also of a corpus without tokens
        return 1.0
    tokens, sequences = encoded.shard_tokens, encoded.shard_sequences
    trained = 1 - num_held_out(encoded.own_sequences, share) / sequences
    return float((tokens * trained).sum() / tokens.sum())


def trained_sequences(
    encoded: TokenSource, share: float, with_replayed: bool = True
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Ids and lengths of the sequences of each shard that are not held out."""
    for shard in range(len(encoded.own_sequences)):
        ids, lengths = encoded.shard(shard, seed=0, epoch=0)
        is_trained = ~held_out_of(encoded, shard, len(lengths), share)
        if not with_replayed:
            is_trained[int(encoded.own_sequences[shard]) :] = False
        yield ids[np.repeat(is_trained, lengths)], lengths[is_trained].astype(np.int64)


def held_out_sequences(
    encoded: TokenSource, share: float
) -> Iterator[tuple[Sequences, np.ndarray]]:
    """The held-out sequences of each shard, in the order of the corpus, and which of
    all its own sequences they are, bool[n]."""
    for shard, num in enumerate(encoded.own_sequences):
        ids, lengths = encoded.shard(shard, seed=0, epoch=0)
        mask = held_out_of(encoded, shard, len(lengths), share)
        part = Sequences(ids[np.repeat(mask, lengths)], lengths[mask].astype(np.int64))
        yield part, mask[: int(num)]


def sequences(
    encoded: TokenSource, share: float, limit: int = _MAX_TOKENS
) -> Sequences:
    """The held-out sequences of a corpus, ALGORITHM.md (57), in the order of hashes.

    So a smaller `limit` gives the first ones. Reads all shards of a text.

    Args:
      limit: tokens at most; the last sequence is cut.
    """
    ids, lengths = np.empty(0, np.int32), np.empty(0, np.int64)
    hashes = np.empty(0, np.uint32)
    for shard, num in enumerate(encoded.own_sequences):
        new_ids, new_lengths = encoded.shard(shard, seed=0, epoch=0)
        mask = held_out_of(encoded, shard, len(new_lengths), share)
        ids = np.concatenate([ids, new_ids[np.repeat(mask, new_lengths)]])
        lengths = np.concatenate([lengths, new_lengths[mask]])
        own = sequence_hashes(shard, int(num))[mask[:num]]
        hashes = np.concatenate([hashes, own])
        ids, lengths, hashes = _first_tokens(ids, lengths, hashes, limit)
    return Sequences(ids, lengths)


def _first_tokens(
    ids: np.ndarray, lengths: np.ndarray, hashes: np.ndarray, limit: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The sequences sorted by hashes, up to `limit` tokens."""
    order = np.argsort(hashes, kind="stable")
    starts = np.repeat((np.cumsum(lengths) - lengths)[order], lengths[order])
    lengths, hashes = lengths[order], hashes[order]
    ends = np.cumsum(lengths)
    within = np.arange(len(ids)) - np.repeat(ends - lengths, lengths)
    ids = ids[starts + within][:limit]
    lengths = np.minimum(lengths, limit - (ends - lengths))
    is_left = lengths > 0
    return ids, lengths[is_left], hashes[is_left]
