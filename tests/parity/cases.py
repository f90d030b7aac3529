"""Updates on which port and oracle are compared, each with its hazard by name."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from embedder.config import Config, with_options
from embedder.data.attribute_tables import given_attributes
from embedder.data.blocks import Blocks, StepBatches
from embedder.data.huffman import huffman_tree
from embedder.engine.mesh_layout import ONE_DEVICE, MeshLayout
from embedder.tokens.backends import make_program
from embedder.tokens.row_lr_multipliers import RowLrMultipliers, factored_program
from embedder.tokens.subwords import ngram_rule, subword_program, subword_table
from embedder.tokens.train_step import TableParts
from embedder.vectors.attributes import Attributes
from migration.parity.difference import Difference
from migration.parity.updates import Sample, random_tables

NO_FACTORS = RowLrMultipliers()
WINDOW = 3
NEGATIVE = 5


def assert_pass(lines: Iterable[Difference]) -> None:
    """Fails where a line of the ladder does."""
    lines = list(lines)
    failed = [line for line in lines if not line.passed]
    assert lines and not failed, "\n".join(map(str, failed))


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

    def updates(self, seed: int = 0) -> StepBatches:
        """Random updates of this case's sizes."""
        rng = np.random.default_rng(seed)
        num_updates, num_blocks, block = self.size
        sequence = np.arange(block, dtype=np.int32) // self.sequence_length
        ids = rng.integers(0, self.num_rows, size=self.size, dtype=np.int32)
        sequence = np.broadcast_to(sequence, self.size).copy()
        radius = rng.integers(1, self.window + 1, size=self.size, dtype=np.int8)
        last = np.s_[-1, -1, block - self.padding :]
        ids[last], sequence[last], radius[last] = 0, -1, 0
        size = num_updates, num_blocks, block // self.tile, self.noise
        noise = rng.integers(0, self.num_rows, size=size, dtype=np.int32)
        return StepBatches(
            Blocks(ids, sequence, radius, noise),
            position=np.zeros((num_updates, 3), np.int64),
            progress=np.linspace(0, 0.5, num_updates),
        )

    def sample(
        self,
        architecture: str = "skipgram",
        dtype: str = "float64",
        *,
        update: str = "rows",
        cap: float = 2.5,
        optimizer: str = "sgd",
        vector_size: int = 8,
        layout: MeshLayout = ONE_DEVICE,
        factors: RowLrMultipliers = NO_FACTORS,
        hs: bool = False,
        negative: int = NEGATIVE,
        subwords: tuple[int, ...] = (),
        attributes: Attributes | None = None,
        cbow_mean: bool = True,
    ) -> Sample:
        """The updates of this case with the program that a run would apply them by.

        `cap` applies to SGD. With `hs`, `subwords` or `attributes` the counts of the
        vocabulary are random.
        """
        num_updates, num_blocks, block = self.size
        config = with_options(
            Config(),
            window=self.window,
            block=block,
            tile=self.tile,
            noise=self.noise,
            blocks_per_update=num_blocks,
            architecture=architecture,
            cbow_mean=cbow_mean,
            vector_size=vector_size,
            negative=negative,
            hs=hs,
            subwords=subwords,
            buckets=50,
            dtype=dtype,
            **UPDATES[update],
            max_pairs_per_row=cap if optimizer == "sgd" else None,
            optimizer=optimizer,
            alpha=0.05,
        )
        counts = self.counts if hs else None
        depth = huffman_tree(counts).depth if counts is not None else 0
        shared, table = attributes or ngram_rule(config.tables), None
        tokens = None if shared is None else self.tokens
        if shared is not None:
            table = subword_table(self.tokens, self.counts, shared)
        program = make_program(
            *(self.num_rows, 1, config, layout),
            parts=TableParts(factors.tables, depth, table and table.sizes),
        )
        program = factored_program(program, factors)
        program = subword_program(program, table, has_replicas=False)
        num_tables = config.tables.num_output_tables
        tables = random_tables((self.num_rows, vector_size), dtype, num_tables)
        return Sample(
            *(config, program, self.updates(), num_updates, *tables, factors, counts),
            *(tokens, self.counts, attributes),
        )

    @property
    def tokens(self) -> list[str]:
        """Words that share n-grams, one of them of one letter, one not ASCII."""
        letters = "ab\u00e4"
        return [letters[n % 3] + f"{n:b}" * (n > 0) for n in range(self.num_rows)]

    @property
    def attributes(self) -> Attributes:
        """Attributes of most tokens, and of one that is none."""
        of_keys = {
            token: [
                f"rest={n % 3}",
                *[f"size={n // 8}"] * (n % 2),
                *["odd=1"] * (n % 4 > 2),
            ]
            for n, token in enumerate(self.tokens)
            if n % 7
        }
        attributes = given_attributes(of_keys | {"another": ["rest=1", "rest=9"]})
        assert attributes is not None
        return attributes.known(self.tokens)

    @property
    def counts(self) -> np.ndarray:
        """Counts of the vocabulary, descending, some of them equal, i64[V]."""
        counts = np.random.default_rng(3).zipf(1.5, self.num_rows)
        return np.sort(np.minimum(counts, 1000))[::-1].astype(np.int64)


UPDATES = {
    "rows": {"backend": "xla"},
    "dense": {"backend": "xla", "update": "dense"},
    "kernel": {"backend": "numba"},
}
"""The ways to apply an update, as options of the config."""

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
