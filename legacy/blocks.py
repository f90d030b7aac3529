"""Shards, blocks and updates: what is trained on, in which order, at which rate.

Everything here is a pure function of the corpus, the seed and the position (epoch,
shard, block), so that any worker can make any part of it.

Letters as in `legacy/objective.py`: T tokens in a block, B in a tile, G = T / B tiles,
K noise ids of a tile; M is the number of blocks of a shard.
"""

import logging
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from legacy.noise import NoiseTable, draw_noise

SHARD_TOKENS = 2_000_000

_logger = logging.getLogger(__name__)


class Corpus(NamedTuple):
    """Encoded sequences, cut into shards of whole sequences."""

    ids: np.ndarray  # i32[tokens]
    lengths: np.ndarray  # i64[sequences]
    shard_ends: np.ndarray  # i64[shards]: the sequence after the last of each shard

    @property
    def num_shards(self) -> int:
        return self.shard_ends.size

    def shard(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Ids and lengths of one shard, as views."""
        first = self.shard_ends[index - 1] if index else 0
        lengths = self.lengths[first : self.shard_ends[index]]
        start = self.lengths[:first].sum()
        return self.ids[start : start + lengths.sum()], lengths

    def shard_tokens(self) -> np.ndarray:
        """Tokens of each shard, i64[shards], before any is dropped."""
        ends = np.concatenate([[0], np.cumsum(self.lengths)])[self.shard_ends]
        return np.diff(ends, prepend=0)


class Blocks(NamedTuple):
    """Blocks of a shard, in the order of their visit, or those of one update.

    Padding, at the end of the last packed block, has id 0, sequence -1 and radius 0.
    """

    ids: np.ndarray  # i32[M, T]
    sequence: np.ndarray  # i32[M, T]: number of the token's sequence in its shard
    radius: np.ndarray  # i8[M, T]: largest distance of a context, 1..W
    noise: np.ndarray  # i32[M, G, K]


def cut_shards(
    ids: np.ndarray, lengths: np.ndarray, shard_tokens: int = SHARD_TOKENS
) -> Corpus:
    """The corpus in shards of `shard_tokens` at most; longer sequences are cut."""
    num_long = int((lengths > shard_tokens).sum())
    if num_long:
        _logger.info("Cut %d sequences longer than %d tokens.", num_long, shard_tokens)
        lengths = _cut(lengths, shard_tokens)
    ends, token_ends = [], np.cumsum(lengths)
    done = 0
    while done < ids.size:
        end = int(np.searchsorted(token_ends, done + shard_tokens, side="right"))
        ends.append(end)
        done = int(token_ends[end - 1])
    return Corpus(ids, lengths, np.array(ends, np.int64))


def epoch_order(num_shards: int, *, seed: int, epoch: int) -> np.ndarray:
    """Order in which `epoch` visits the shards, i64[num_shards]."""
    entropy = np.random.SeedSequence([seed, epoch], spawn_key=(0,))
    return np.random.default_rng(entropy).permutation(num_shards)


def shard_blocks(
    ids: np.ndarray,
    lengths: np.ndarray,
    *,
    seed: int,
    epoch: int,
    shard: int,
    keep_limit: np.ndarray,
    noise_table: NoiseTable,
    window: int,
    block: int,
    tile: int,
    noise: int,
) -> Blocks:
    """The blocks of one shard in one epoch, in the order of their visit.

    Args:
        ids, lengths: the shard, i32[n], and the lengths of its sequences.
        keep_limit: u32[V], from `vocabulary.keep_limit`.
        window, block, tile, noise: W, T, B and K.
    """
    rng = np.random.default_rng([seed, epoch, shard])
    kept = rng.integers(0, 2**32, size=ids.size, dtype=np.uint32) <= keep_limit[ids]
    sequence = np.repeat(np.arange(lengths.size, dtype=np.int32), lengths)[kept]
    packed_ids = _pack(ids[kept], block, padding=0)
    num_blocks = len(packed_ids)
    order = rng.permutation(num_blocks)
    radius = rng.integers(1, window + 1, size=(num_blocks, block), dtype=np.int8)
    num_tiles = block // tile
    noise_ids = draw_noise(noise_table, rng, num_blocks * num_tiles * noise)
    sequence = _pack(sequence, block, padding=-1)[order]
    radius[sequence < 0] = 0
    return Blocks(
        packed_ids[order],
        sequence,
        radius,
        noise_ids.reshape(num_blocks, num_tiles, noise),
    )


def updates(blocks: Blocks, blocks_per_update: int) -> Iterator[Blocks]:
    """The blocks of each update in turn, as views.

    The last update of a shard may have fewer: the empty blocks that the port fills it
    with change nothing.
    """
    for start in range(0, len(blocks.ids), blocks_per_update):
        yield Blocks(*(field[start : start + blocks_per_update] for field in blocks))


def learning_rates(
    num_blocks: int,
    *,
    alpha: float,
    min_alpha: float,
    epoch: int,
    epochs: int,
    tokens_before: int,
    shard_tokens: int,
    corpus_tokens: int,
) -> np.ndarray:
    """Rate of an update that begins with each block of a shard, f64[num_blocks].

    Args:
        epoch, epochs: of the schedule, from 0.
        tokens_before: tokens of the shards visited before in this epoch.
    """
    share = shard_tokens * np.arange(num_blocks) / num_blocks
    progress = (epoch + (tokens_before + share) / corpus_tokens) / epochs
    return alpha - (alpha - min_alpha) * progress


def default_block(tile: int) -> int:
    """Tokens in a block: 64, raised to a multiple of `tile`.

    Larger blocks are faster, and lose where words are to be told apart that are used
    alike: SimLex first.
    """
    return -(-64 // tile) * tile


def loss_interval(num_tokens: int, tokens_per_update: int) -> int:
    """Updates from one report of the loss to the next: few report in a large corpus."""
    return 16 if num_tokens // tokens_per_update >= 1024 else 1


def _cut(lengths: np.ndarray, longest: int) -> np.ndarray:
    pieces = -(-lengths // longest)
    cut = np.full(pieces.sum(), longest, np.int64)
    cut[np.cumsum(pieces) - 1] = lengths - (pieces - 1) * longest
    return cut


def _pack(values: np.ndarray, block: int, *, padding: int) -> np.ndarray:
    """[n] -> [ceil(n / block), block]."""
    packed = np.full((-(-values.size // block), block), padding, values.dtype)
    packed.reshape(-1)[: values.size] = values
    return packed
