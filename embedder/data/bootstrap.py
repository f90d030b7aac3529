"""Bootstrap resamples of the sequences of a corpus, or of examples, without a copy.

A resample draws as many sequences as the corpus has, with replacement. The multiplicity
of a sequence is how often it was drawn, a pure function of the seed and of its number.
Sequences that were not drawn are left out; the terms of the others are weighted by
their multiplicities (ALGORITHM.md (56)). Examples are those of one shard.

Reference: Efron 1979, Ann. Statist. 7(1).
"""

import numpy as np

_SPAWN_KEY = 2  # of these draws alone, so that no other draw changes


def expected_share(num_sequences: int) -> float:
    """Probability of a sequence to be in a resample: 1 - (1 - 1 / n)^n, about .632."""
    return 1 - (1 - 1 / num_sequences) ** num_sequences


def draws_of_shards(shard_sequences: np.ndarray, seed: int) -> np.ndarray:
    """How many of the draws of a resample fall to each shard, i64[number of shards].

    They sum to the number of sequences, ALGORITHM.md (55).

    Args:
      shard_sequences: sequences of each shard, i64[number of shards].
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_SPAWN_KEY,)))
    total = shard_sequences.sum()
    return rng.multinomial(total, shard_sequences / total)


def multiplicities(
    shard: int, num_sequences: int, num_draws: int, seed: int
) -> np.ndarray:
    """How often each sequence of a shard was drawn, u8[num_sequences].

    They sum to `num_draws`, ALGORITHM.md (55). More than 255 draws of a sequence do not
    occur: the probability is below 1 / 256!.
    """
    key = _SPAWN_KEY, shard
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))
    drawn = rng.integers(num_sequences, size=num_draws)
    return np.bincount(drawn, minlength=num_sequences).astype(np.uint8)
