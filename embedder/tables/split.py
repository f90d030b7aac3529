"""Which sequences are held out: a hash of their position, not of the seed.

So all runs on an encoded corpus hold out the same sequences, and a larger share holds
out those of a smaller one too (ALGORITHM.md (57)).
"""

import numpy as np

from embedder.errors import InputError

_SPAWN_KEY = 3  # of this hash alone


def sequence_hashes(shard: int, num_sequences: int) -> np.ndarray:
    """The hash of each sequence of a shard, u32[num_sequences]: uniform."""
    key = _SPAWN_KEY, shard
    rng = np.random.default_rng(np.random.SeedSequence(0, spawn_key=key))
    return rng.integers(0, 2**32, size=num_sequences, dtype=np.uint32)


def held_out(shard: int, num_sequences: int, share: float) -> np.ndarray:
    """Whether each sequence of a shard is held out, bool[num_sequences], (57)."""
    return sequence_hashes(shard, num_sequences) < round(share * 2**32)


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
    found = np.array([np.count_nonzero(mask) for mask in masks], np.int64)
    total = int(shard_sequences.sum())
    if found.sum() in (0, total):
        which, change = ("all", "smaller") if found.any() else ("none", "larger")
        raise InputError(
            f"`holdout` = {share} holds out {which} of the {total} sequences of the "
            f"corpus: give a {change} share, or a corpus of more lines."
        )
    return found


def trained_share(
    shard_tokens: np.ndarray, shard_sequences: np.ndarray, share: float
) -> float:
    """Share of the tokens that are not held out, from the number of sequences that
    each shard holds out.

    Raises:
      InputError: see `num_held_out`.
    """
    if share == 0:  # also of a corpus without tokens
        return 1.0
    trained = 1 - num_held_out(shard_sequences, share) / shard_sequences
    return float((shard_tokens * trained).sum() / shard_tokens.sum())
