"""A corpus as ids: what training needs of it."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from embedder.tables.vocabulary import Vocabulary


@dataclass(frozen=True, eq=False)
class Encoded:
    """A corpus as ids, cut into shards of whole sequences."""

    vocabulary: Vocabulary
    shard_tokens: np.ndarray  # i64[number of shards]
    shard_sequences: np.ndarray  # i64[number of shards]
    read: Callable[[int], tuple[np.ndarray, np.ndarray]]
    """Number of a shard -> its ids i32[n], lengths of its sequences i32[m]."""
    raw_tokens: int  # tokens of the corpus, known or unknown
    counting_bytes: int = 0  # of memory that counting took; 0: read from a cache

    @property
    def num_tokens(self) -> int:
        """Number of known tokens of the corpus."""
        return int(self.shard_tokens.sum())
