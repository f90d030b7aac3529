"""Sequences of ids in shards: what training needs of a text, or of walks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from embedder.data.shards import Shard
from embedder.data.vocabulary import Vocabulary


class TokenSource(Protocol):
    """Sequences of ids in shards. A shard is a pure function of (seed, epoch, shard);
    that of a text is the same in all epochs."""

    @property
    def vocabulary(self) -> Vocabulary:
        """Tokens and counts."""

    @property
    def shard_tokens(self) -> np.ndarray:
        """Tokens of each shard, of walks expected ones, i64[number of shards]."""

    @property
    def shard_sequences(self) -> np.ndarray:
        """Sequences of each shard, i64[number of shards]."""

    @property
    def own_sequences(self) -> np.ndarray:
        """How many of each shard, the first ones, may be held out, i64[number of
        shards]: all but replayed ones."""

    @property
    def num_tokens(self) -> int:
        """Number of known tokens of an epoch."""

    @property
    def raw_tokens(self) -> int:
        """Number of tokens of an epoch, known or unknown."""

    @property
    def item_key(self) -> str:
        """What progress counts, as files of a run name it, in the plural."""

    @property
    def item_name(self) -> str:
        """The same, as messages name it."""

    @property
    def content(self) -> str:
        """Digest of what is trained on."""

    @property
    def description(self) -> str:
        """What is trained on, as a line of text."""

    @property
    def memory(self) -> dict[str, int]:
        """Bytes of host memory that it takes at most, by purpose."""

    def shard(self, number: int, seed: int, epoch: int) -> Shard:
        """The ids and lengths of the sequences of a shard in an epoch."""

    @property
    def has_weights(self) -> bool:
        """Whether sequences have weights, ALGORITHM.md (67)."""

    def weights(self, number: int) -> np.ndarray | None:
        """The weights of the sequences of a shard, f32[m]; None: all are 1."""


class SequenceWeights(NamedTuple):
    """The weights of the sequences of a corpus."""

    read: Callable[[int], np.ndarray]
    """Number of a shard -> weights of its sequences f32[m], finite and above 0."""
    digest: str
    mean: float


@dataclass(frozen=True, eq=False)
class Encoded:
    """A text as ids, cut into shards of whole sequences: a `TokenSource`."""

    vocabulary: Vocabulary
    shard_tokens: np.ndarray  # i64[number of shards]
    shard_sequences: np.ndarray  # i64[number of shards]
    read: Callable[[int], Shard]
    """Number of a shard -> its ids i32[n], lengths of its sequences i32[m]."""
    raw_tokens: int  # tokens of the corpus, known or unknown
    counting_bytes: int = 0  # of memory that counting took; 0: read from a cache
    sequence_weights: SequenceWeights | None = None  # None: all are 1
    dropped_types: int = 0  # distinct tokens of the corpus without an id
    item_name: str = "words"  # see `TokenSource`; of sessions "items"
    item_key = "words"

    @property
    def own_sequences(self) -> np.ndarray:
        return self.shard_sequences

    @property
    def num_tokens(self) -> int:
        return int(self.shard_tokens.sum())

    @property
    def content(self) -> str:
        """Digest of the tokens and their counts, and of the weights of sequences."""
        weights = self.sequence_weights
        return self.vocabulary.digest + (f" {weights.digest}" if weights else "")

    @property
    def description(self) -> str:
        weights = self.sequence_weights
        mean = f"; mean weight of a session {weights.mean:.4g}" if weights else ""
        noun = "items" if self.item_name == "items" else "tokens"
        return (
            f"vocabulary: {len(self.vocabulary):,} {noun}, {self.num_tokens:,} of "
            f"{self.raw_tokens:,} occurrences{mean}"
        )

    @property
    def memory(self) -> dict[str, int]:
        return {"counting tokens": self.counting_bytes}

    def occurrences(self) -> np.ndarray:
        """How often each token of the vocabulary occurs in the corpus, i64[V].

        Reads all shards.
        """
        counts = np.zeros(len(self.vocabulary), np.int64)
        for shard in range(len(self.shard_tokens)):
            counts += np.bincount(self.read(shard)[0], minlength=len(counts))
        return counts

    def shard(self, number: int, seed: int, epoch: int) -> Shard:
        return self.read(number)

    @property
    def has_weights(self) -> bool:
        return self.sequence_weights is not None

    def weights(self, number: int) -> np.ndarray | None:
        return self.sequence_weights.read(number) if self.sequence_weights else None
