"""Updates on which port and oracle are compared, each with its hazard by name."""

from typing import NamedTuple

import numpy as np

import legacy.blocks
from embedder.data.blocks import Updates
from embedder.train.update import Batch

WINDOW = 3
NEGATIVE = 5


class Case(NamedTuple):
    """Blocks over a small vocabulary; [S, N, T] tokens in tiles of T / G."""

    name: str
    num_rows: int  # V
    size: tuple[int, int, int]  # S, N, T
    tile: int  # B
    noise: int  # K
    window: int = WINDOW
    sequence_length: int = 7
    padding: int = 0  # tokens at the end of the last block

    def updates(self, seed: int = 0) -> Updates:
        """Random updates of this case's sizes."""
        rng = np.random.default_rng(seed)
        num_updates, num_blocks, block = self.size
        sequence = np.arange(block, dtype=np.int32) // self.sequence_length
        ids = rng.integers(0, self.num_rows, size=self.size, dtype=np.int32)
        sequence = np.broadcast_to(sequence, self.size).copy()
        radius = rng.integers(1, self.window + 1, size=self.size, dtype=np.int8)
        last = np.s_[-1, -1, block - self.padding :]
        ids[last], sequence[last], radius[last] = 0, -1, 0
        return Updates(
            ids=ids,
            sequence=sequence,
            radius=radius,
            noise=rng.integers(
                0,
                self.num_rows,
                size=(num_updates, num_blocks, block // self.tile, self.noise),
                dtype=np.int32,
            ),
            position=np.zeros((num_updates, 3), np.int64),
            progress=np.linspace(0, 0.5, num_updates),
        )

    def tables(self, dtype, vector_size: int = 8) -> tuple[np.ndarray, np.ndarray]:
        """Random input and output tables, [V, D], neither of them zero."""
        rng = np.random.default_rng(1)
        shape = self.num_rows, vector_size
        return tuple(rng.normal(0, 0.3, shape).astype(dtype) for _ in range(2))


CASES = [
    Case("tiled", 40, (1, 1, 32), tile=8, noise=6),
    Case("classic", 40, (1, 1, 32), tile=1, noise=NEGATIVE),
    Case("one_tile", 40, (1, 1, 16), tile=16, noise=6),
    Case("several_blocks", 40, (1, 3, 16), tile=4, noise=6),
    Case("repeated_centre", 3, (1, 1, 16), tile=4, noise=6),
    Case("one_word", 1, (1, 1, 16), tile=4, noise=3),
    Case("short_last_block", 40, (1, 2, 16), tile=4, noise=6, padding=11),
    Case("only_padding", 40, (1, 1, 16), tile=4, noise=6, padding=16),
    Case("window_wider_than_tile", 40, (1, 1, 16), tile=2, noise=6, window=7),
    Case("window_wider_than_block", 40, (1, 1, 4), tile=2, noise=6, window=9),
    Case("sequences_of_one", 40, (1, 1, 16), tile=4, noise=6, sequence_length=1),
]


def batch_of(updates: Updates, rate: np.ndarray) -> Batch:
    """What the port's compiled updates take."""
    return Batch(updates.ids, updates.sequence, updates.radius, updates.noise, rate)


def blocks_of(updates: Updates, index: int) -> legacy.blocks.Blocks:
    """What the oracle takes for update `index`."""
    return legacy.blocks.Blocks(
        updates.ids[index],
        updates.sequence[index],
        updates.radius[index],
        updates.noise[index],
    )
