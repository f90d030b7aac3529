"""Updates of a finished model in plain NumPy, ALGORITHM.md (69) to (71) and (78).

The oracle has no growing vocabulary, no factors and no replay: here is what it needs to
be one, with its own text, shards and tables.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

import legacy.blocks
import legacy.noise
import legacy.vocabulary
from legacy.blocks import Corpus
from legacy.vocabulary import Text, Vocabulary
from migration.parity.short import Shard

_KEEPS = 10  # of (69)
_SPAWN_KEY = 6  # of (71)


class Grown(NamedTuple):
    """The vocabulary of an updated model."""

    tokens: list[str]  # those of the model, then new ones
    counts: np.ndarray  # i64[V], of all texts
    text_counts: np.ndarray  # i64[V], of the text of the update
    num_old: int


def grown_vocabulary(
    known: Vocabulary, text: Text, earlier: Sequence[Text], min_count: int
) -> Grown:
    """`known` with the new tokens that occur `min_count` times in all texts, (78).

    Args:
      text: of the update; new tokens are ordered by their counts in it.
      earlier: the texts that are replayed.
    """
    here = _counts(text)
    before = [_counts(each) for each in earlier]
    old = {*known.tokens}
    total = {x: here[x] + sum(each.get(x, 0) for each in before) for x in here}
    new = [x for x in here if x not in old and total[x] >= min_count]
    new.sort(key=lambda token: -here[token])  # stable: ties by first appearance
    tokens = [*known.tokens, *new]
    of_text = np.array([here.get(token, 0) for token in tokens], np.int64)
    counts = np.array([total[token] for token in new], np.int64)
    old_counts = known.counts + of_text[: len(known.tokens)]
    return Grown(
        tokens, np.append(old_counts, counts), of_text, num_old=len(known.tokens)
    )


def _counts(text: Text) -> dict[str, int]:
    """Occurrences of each token, by first appearance."""
    counts = np.bincount(text.ids, minlength=len(text.types)).tolist()
    return dict(zip(text.types, counts, strict=True))


def factors(grown: Grown) -> np.ndarray:
    """The factor of the rate of each row, f32[V], (69)."""
    new = grown.text_counts
    old = grown.counts - new
    old[grown.num_old :] = 0  # new rows, whatever earlier texts have
    return (new / np.maximum(_KEEPS * old + new, 1)).astype(np.float32)


def grown_tables(first: np.ndarray, model: np.ndarray) -> np.ndarray:
    """`first` with the rows of a model first, and new output rows at its mean, (70).

    Args:
      first: input and output table as they are drawn, [2, V, D].
      model: those of the model, [2, V_old, D].
    """
    found, num_old = first.copy(), model.shape[1]
    found[:, :num_old] = model
    found[1, num_old:] = model[1].astype(np.float64).sum(axis=0) / num_old
    return found


class Replayed(NamedTuple):
    """The text of an update and the earlier ones, as ids in shards."""

    new: Corpus
    earlier: list[Corpus]
    fraction: float
    num_old: int
    seed: int

    @property
    def parts(self) -> list[Shard]:
        """Ids and lengths of each shard of the earlier texts."""
        return [x.shard(z) for x in self.earlier for z in range(x.num_shards)]

    def is_new(self, part: Shard) -> np.ndarray:
        """Which sequences have a token that is new to the model, bool[m]."""
        ids, lengths = part
        cuts = np.cumsum(lengths)[:-1]
        return np.array([any(x >= self.num_old) for x in np.split(ids, cuts)], bool)

    def shard(self, epoch: int, shard: int) -> Shard:
        """What an epoch has in a shard, (71) and (78)."""
        found = [self.new.shard(shard)]
        for number, part in enumerate(self.parts):
            if number % self.new.num_shards == shard:
                key = np.random.SeedSequence(
                    [self.seed, epoch], spawn_key=(_SPAWN_KEY, number)
                )
                rng = np.random.default_rng(key)
                hashes = rng.integers(2**32, size=len(part[1]), dtype=np.uint32)
                is_drawn = hashes < round(self.fraction * 2**32)
                found.append(_chosen(part, is_drawn | self.is_new(part)))
        ids, lengths = zip(*found, strict=True)
        return np.concatenate(ids), np.concatenate(lengths)

    def shard_tokens(self) -> np.ndarray:
        """Expected tokens of each shard, rounded up, i64[Z]."""
        found = self.new.shard_tokens().astype(np.float64)
        for number, part in enumerate(self.parts):
            found[number % len(found)] += self._shares(part).sum()
        return np.ceil(found).astype(np.int64)

    def counts(self, text_counts: np.ndarray) -> np.ndarray:
        """Expected occurrences in an epoch, those of earlier texts rounded up, (70)."""
        found = np.zeros(len(text_counts))
        for part in self.parts:
            np.add.at(found, part[0], self._shares(part))
        return text_counts + np.ceil(found).astype(np.int64)

    def _shares(self, part: Shard) -> np.ndarray:
        """The probability that an epoch has each token, f64[n]."""
        return np.where(np.repeat(self.is_new(part), part[1]), 1.0, self.fraction)


def _chosen(part: Shard, is_chosen: np.ndarray) -> Shard:
    """Those sequences of a shard."""
    ids, lengths = part
    return ids[np.repeat(is_chosen, lengths)], lengths[is_chosen]


def encoded(text: Text, tokens: list[str], shard_tokens: int) -> Corpus:
    """The known tokens of `text` in shards."""
    return legacy.blocks.cut_shards(
        *legacy.vocabulary.encode(text, tokens), shard_tokens
    )


def keep_limit(counts: np.ndarray, sample: float) -> np.ndarray:
    """That of the oracle by counts that may be 0: tokens that are not there."""
    found, is_there = np.zeros(len(counts), np.uint32), counts > 0
    found[is_there] = legacy.vocabulary.keep_limit(counts[is_there], sample)
    return found


def noise_table(counts: np.ndarray, exponent: float) -> legacy.noise.NoiseTable:
    """That of the oracle by counts that may be 0, which are never drawn."""
    weights, is_there = np.zeros(len(counts)), counts > 0
    weights[is_there] = counts[is_there] ** float(exponent)
    return legacy.noise.build_noise_table(weights, 1.0)
