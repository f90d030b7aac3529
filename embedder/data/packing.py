"""Packing: the position of each kept token of a shard in blocks of T.

Either consecutive tokens fill the blocks, ALGORITHM.md (29), or whole sequences are
packed, (64) to (66), where the context of a token is its whole sequence.
"""

from typing import NamedTuple

import numpy as np


class Packing(NamedTuple):
    """Where the kept tokens of a shard are in its blocks."""

    num_blocks: int
    block: int  # T
    positions: np.ndarray | slice  # i64[M]: T times the block, and the place in it

    def pack(self, values: np.ndarray, fill: int) -> np.ndarray:
        """Blocks of the values of tokens, padded, and one of padding after them,
        [num_blocks + 1, T]."""
        packed = np.full((self.num_blocks + 1, self.block), fill, dtype=values.dtype)
        packed.reshape(-1)[self.positions] = values
        return packed


def consecutive(num_tokens: int, block: int) -> Packing:
    """Blocks of consecutive tokens; only the last is padded, (29)."""
    return Packing(-(-num_tokens // block), block, slice(0, num_tokens))


def whole_sequences(
    lengths: np.ndarray, block: int, rng: np.random.Generator
) -> Packing:
    """Blocks of whole sequences; one longer than a block is cut into pieces of tokens
    drawn without replacement.

    The draws come in a fixed order: the tokens of long sequences, the order of pieces.

    Args:
      lengths: kept tokens of each sequence, i64[m].
    """
    num_pieces = -(-lengths // block)
    order = _shuffled(lengths, block, rng)  # token -> its place among all pieces
    ends = np.cumsum(num_pieces)
    number = np.arange(num_pieces.sum()) - np.repeat(ends - num_pieces, num_pieces)
    whole, rest = np.divmod(lengths, np.maximum(num_pieces, 1))
    # Tokens of the pieces of all sequences, which differ by at most one, (64).
    pieces = np.repeat(whole, num_pieces) + (number < np.repeat(rest, num_pieces))
    shuffled = rng.permutation(len(pieces))
    longest_first = shuffled[np.argsort(-pieces[shuffled], kind="stable")]
    starts, num_blocks = _best_fit(pieces[longest_first], block)
    positions = np.empty(len(pieces), np.int64)
    positions[longest_first] = starts
    first = np.cumsum(pieces) - pieces
    of_tokens = np.repeat(positions - first, pieces) + np.arange(pieces.sum())
    return Packing(num_blocks, block, of_tokens[order])


def filled_share(lengths: np.ndarray, kept_share: float, block: int) -> float:
    """Expected share of the places in blocks of whole sequences that have a token.

    Args:
      lengths: of some sequences, i64[m].
      kept_share: share of the tokens that is kept.
    """
    rng = np.random.default_rng(0)
    lengths = rng.binomial(lengths, min(kept_share, 1.0))
    places = whole_sequences(lengths, block, rng).num_blocks * block
    return float(lengths.sum() / places) if places else 1.0


def _shuffled(lengths: np.ndarray, block: int, rng: np.random.Generator) -> np.ndarray:
    """i64[M], where each token is once the tokens of long sequences are shuffled."""
    order = np.arange(lengths.sum())
    is_long = lengths > block
    tokens = np.flatnonzero(np.repeat(is_long, lengths))
    key = rng.integers(0, 2**32, size=len(tokens), dtype=np.uint64)
    key += np.repeat(np.arange(is_long.sum(), dtype=np.uint64) << 32, lengths[is_long])
    order[tokens[np.argsort(key, kind="stable")]] = tokens
    return order


def _best_fit(pieces: np.ndarray, block: int) -> tuple[np.ndarray, int]:
    """The position of each piece, i64[P], and the number of blocks, (65).

    Pieces of one length are put into all blocks with the same room at once.

    Args:
      pieces: their lengths, longest first.
    """
    starts = np.empty(len(pieces), np.int64)
    with_room: list[np.ndarray] = [np.empty(0, np.int64) for _ in range(block + 1)]
    num_blocks = done = 0
    sizes, counts = (each[::-1] for each in np.unique(pieces, return_counts=True))
    for length, left in zip(sizes.tolist(), counts.tolist(), strict=True):
        while left:
            room = length
            while room <= block and not len(with_room[room]):
                room += 1
            if room > block:
                new = -(-left // (block // length))
                with_room[block] = np.arange(num_blocks, num_blocks + new)
                num_blocks, room = num_blocks + new, block
            num = min(left, len(with_room[room]))
            used, with_room[room] = with_room[room][:num], with_room[room][num:]
            starts[done : done + num] = used * block + block - room
            with_room[room - length] = np.append(with_room[room - length], used)
            done, left = done + num, left - num
    return starts, num_blocks
