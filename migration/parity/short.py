"""Short trainings on the first sequences of a corpus; the oracle takes each update."""

from collections.abc import Callable, Iterator

import numpy as np

import legacy.blocks
import legacy.noise
import legacy.subwords
import legacy.trainer
import legacy.update
import legacy.vocabulary
from embedder.config import Config, resolve
from embedder.data.corpus import sequences_corpus
from embedder.data.encode import encode
from migration.parity.training import Sequences
from migration.parity.updates import by_table

Shard = tuple[np.ndarray, np.ndarray]
"""Ids i32[n], and lengths of sequences [m]."""


def update_shape(config: Config, sequences: Sequences) -> tuple[int, int]:
    """The tokens of a block and the blocks of an update in a training on all
    `sequences`."""
    whole = encode(sequences_corpus(sequences), config.tables.min_count)
    row_updates = whole.vocabulary.row_updates
    resolved = resolve(config, whole.num_tokens, None, row_updates)
    return resolved.tables.update_size


def split_words(sequences: Sequences, num: int) -> tuple[Sequences, Sequences]:
    """The first `num` words, and the others; a sequence is cut if it has both."""
    first, rest = [], []
    for sequence in sequences:
        first.append(sequence[:num])
        rest.append(sequence[num:])
        num = max(num - len(sequence), 0)
    return [*filter(None, first)], [*filter(None, rest)]


def initial_state(
    config: Config, num_rows: int, subwords: legacy.subwords.Subwords | None = None
) -> legacy.update.State:
    """The oracle's state before the first update."""
    size, run = config.tables.vector_size, config.run
    num = 1 + config.tables.num_output_tables
    tables = legacy.trainer.initial_tables(num_rows, size, run.seed, run.dtype, num)
    state = legacy.update.State(tables)
    if run.optimizer == "adagrad":
        zeros = np.zeros(tables.shape[:2], run.dtype)
        state = state._replace(accumulators=zeros)
    if subwords is not None:
        rows = legacy.subwords.initial_rows(subwords, tables[0], run.seed)
        state.tables[0] = legacy.subwords.compose(subwords, rows)
        state = state._replace(subwords=rows)
    return state


def named(state: legacy.update.State) -> dict[str, np.ndarray]:
    """The arrays of a state by the names that the port has for them."""
    found = by_table(state.tables)
    if state.subwords is not None:
        found["subwords"] = state.subwords
    if state.accumulators is not None:
        sums = by_table(state.accumulators)
        found |= {f"{name}_accumulator": each for name, each in sums.items()}
    return found


def oracle_updates(
    config: Config,
    shard_tokens: np.ndarray,
    read: Callable[[int, int], Shard],
    *,
    keep_limit: np.ndarray,
    noise_table: legacy.noise.NoiseTable,
    epochs: range,
) -> Iterator[tuple[legacy.blocks.Blocks, float, int]]:
    """The updates of `epochs`, with the learning rate and the shard of each.

    Args:
      config: resolved.
      shard_tokens: of each shard, by which the rate falls, i64[Z].
      read: epoch, shard -> what it has.
      keep_limit, noise_table: as of the oracle.
    """
    options, seed = config.tables, config.run.seed
    block, num_blocks = options.update_size
    for epoch in epochs:
        before = 0
        order = legacy.blocks.epoch_order(len(shard_tokens), seed=seed, epoch=epoch)
        for shard in order.tolist():
            ids, lengths = read(epoch, shard)
            blocks = legacy.blocks.shard_blocks(
                ids,
                lengths.astype(np.int64),
                **{"seed": seed, "epoch": epoch, "shard": shard},
                **{"keep_limit": keep_limit, "noise_table": noise_table},
                **{"window": options.window, "block": block},
                **{"tile": options.tile, "noise": options.num_noise},
            )
            num_tokens = int(shard_tokens[shard])
            rates = legacy.blocks.learning_rates(
                len(blocks.ids),
                **{"alpha": options.alpha, "min_alpha": options.min_alpha},
                **{"epoch": epoch - epochs.start, "epochs": len(epochs)},
                tokens_before=before,
                shard_tokens=num_tokens,
                corpus_tokens=int(shard_tokens.sum()),
            )
            before += num_tokens
            updates = legacy.blocks.updates(blocks, num_blocks)
            for update, rate in zip(updates, rates[::num_blocks], strict=True):
                yield update, rate, shard
