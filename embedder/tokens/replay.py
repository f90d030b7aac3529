"""Replay: an update also trains on a part of the corpora that came before.

Each epoch draws other sequences of them. The draw is a pure function of (seed, epoch,
shard), ALGORITHM.md (71), so a run resumes by arithmetic as every other one. Sequences
with tokens that are new to the model are in each epoch, (78).
"""

import dataclasses
import functools
import hashlib

import numpy as np

from embedder.data.encoded import Encoded
from embedder.data.shards import Shard
from embedder.data.vocabulary import Vocabulary

_SPAWN_KEY = 6  # of this draw alone


def drawn_sequences(
    seed: int, epoch: int, shard: int, num_sequences: int, fraction: float
) -> np.ndarray:
    """Which sequences of a shard an epoch replays, bool[num_sequences], (71)."""
    sequence = np.random.SeedSequence([seed, epoch], spawn_key=(_SPAWN_KEY, shard))
    hashes = np.random.default_rng(sequence).integers(
        0, 2**32, size=num_sequences, dtype=np.uint32
    )
    return hashes < round(fraction * 2**32)


def has_new_token(shard: Shard, num_old: int) -> np.ndarray:
    """Which sequences of a shard have a token with the id `num_old` or a larger one,
    bool[m]."""
    ids, lengths = shard
    if not len(lengths):
        return np.zeros(0, bool)
    return np.maximum.reduceat(ids, np.cumsum(lengths) - lengths) >= num_old


@dataclasses.dataclass(frozen=True, eq=False)
class Replay:
    """A corpus, and a part of earlier ones that each epoch draws: a `TokenSource`.

    Sequences that have a token which is new to the model are in each epoch, (78).

    Shard j of the earlier ones is drawn from in shard j mod Z of the Z shards of `new`,
    so that blocks of both are mixed. All corpora have one vocabulary.
    """

    new: Encoded
    earlier: list[Encoded]
    fraction: float  # of the sequences of `earlier`, in (0, 1]
    num_old: int  # tokens of the model; new ones have larger ids

    @property
    def vocabulary(self) -> Vocabulary:
        """See `TokenSource`."""
        return self.new.vocabulary

    @property
    def shard_tokens(self) -> np.ndarray:
        """See `TokenSource`; of the earlier corpora expected ones."""
        return self._expected("shard_tokens")

    @property
    def shard_sequences(self) -> np.ndarray:
        """See `TokenSource`; of the earlier corpora expected ones."""
        return self._expected("shard_sequences")

    @property
    def own_sequences(self) -> np.ndarray:
        """See `TokenSource`: those of the new corpus come first."""
        return self.new.shard_sequences

    def _expected(self, name: str) -> np.ndarray:
        sizes = getattr(self.new, name).astype(np.float64)
        for index, (source, shard) in enumerate(self._earlier_shards):
            drawn = self.fraction * getattr(source, name)[shard]
            drawn += (1 - self.fraction) * self._sizes_with_new_tokens[index][name]
            sizes[index % len(sizes)] += drawn
        return np.ceil(sizes).astype(np.int64)

    @functools.cached_property
    def _sizes_with_new_tokens(self) -> list[dict[str, int]]:
        """Of each earlier shard the sequences with new tokens, and their tokens."""
        by_shard = []
        for source, shard in self._earlier_shards:
            ids, lengths = source.read(shard)
            is_new = has_new_token((ids, lengths), self.num_old)
            sizes = {"shard_tokens": int(lengths[is_new].sum())}
            by_shard.append(sizes | {"shard_sequences": int(is_new.sum())})
        return by_shard

    def counts(self) -> np.ndarray:
        """Expected occurrences in an epoch, of earlier corpora rounded up, i64[V]."""
        counts = np.zeros(len(self.vocabulary))
        for source, shard in self._earlier_shards:
            ids, lengths = source.read(shard)
            is_new = has_new_token((ids, lengths), self.num_old)
            weights = np.where(np.repeat(is_new, lengths), 1, self.fraction)
            counts += np.bincount(ids, weights, len(counts))
        return self.new.occurrences() + np.ceil(counts.round(6)).astype(np.int64)

    @functools.cached_property
    def _earlier_shards(self) -> list[tuple[Encoded, int]]:
        return [(x, z) for x in self.earlier for z in range(len(x.shard_tokens))]

    @property
    def num_tokens(self) -> int:
        """See `TokenSource`; expected ones of the earlier corpora."""
        return int(self.shard_tokens.sum())

    @property
    def raw_tokens(self) -> int:
        """See `TokenSource`."""
        earlier = sum(x.raw_tokens for x in self.earlier)
        return self.new.raw_tokens + round(self.fraction * earlier)

    @property
    def dropped_types(self) -> int:
        """Distinct tokens of the new corpus without an id."""
        return self.new.dropped_types

    @property
    def item_key(self) -> str:
        """See `TokenSource`."""
        return self.new.item_key

    @property
    def item_name(self) -> str:
        """See `TokenSource`."""
        return self.new.item_name

    @functools.cached_property
    def content(self) -> str:
        """Digest of the tokens and their counts, of each corpus."""
        digest = hashlib.sha256(str(self.fraction).encode())
        for each in self.earlier:
            digest.update(each.shard_tokens.tobytes() + each.shard_sequences.tobytes())
            digest.update(each.occurrences().tobytes())
        return f"{self.new.content} replay {digest.hexdigest()}"

    @property
    def description(self) -> str:
        """See `TokenSource`, with the words of an epoch that are replayed."""
        replayed = self.num_tokens - self.new.num_tokens
        return (
            f"{self.new.description}; about {replayed:,} {self.item_name} of "
            f"{len(self.earlier)} earlier corpora are replayed in an epoch"
        )

    @property
    def memory(self) -> dict[str, int]:
        """See `TokenSource`: the corpora are counted one after the other."""
        counting = [x.memory["counting tokens"] for x in (self.new, *self.earlier)]
        return {"counting tokens": max(counting)}

    def shard(self, number: int, seed: int, epoch: int) -> Shard:
        """See `TokenSource`: one of `new`, and what is drawn of its earlier ones."""
        parts = [self.new.read(number)]
        num_shards = len(self.new.shard_tokens)
        for index in range(number, len(self._earlier_shards), num_shards):
            source, shard = self._earlier_shards[index]
            ids, lengths = source.read(shard)
            mask = drawn_sequences(seed, epoch, index, len(lengths), self.fraction)
            mask |= has_new_token((ids, lengths), self.num_old)
            parts.append((ids[np.repeat(mask, lengths)], lengths[mask]))
        ids, lengths = map(np.concatenate, zip(*parts, strict=True))
        return ids, lengths

    @property
    def has_weights(self) -> bool:
        """See `TokenSource`: corpora with weights are not replayed."""
        return False

    def weights(self, number: int) -> np.ndarray | None:
        """See `TokenSource`."""
        return None
