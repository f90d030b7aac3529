"""Stages of several models of tables: replicas, and those of bootstrap resamples."""

from collections.abc import Iterator

import numpy as np

import legacy
import legacy.blocks
import legacy.noise
import legacy.update
import legacy.vocabulary
from embedder.config import Config, resolve, with_options
from embedder.data.corpus import sequences_corpus
from embedder.data.encode import encode
from embedder.data.encoded import Encoded
from embedder.engine.epochs import run_epochs
from embedder.engine.replicas import unstack_states
from embedder.tokens.plan import TrainingPlan
from embedder.tokens.trainer import TokensTrainer
from legacy.huffman import huffman_tree
from migration.parity.difference import Difference, difference, worst
from migration.parity.equations import resample
from migration.parity.short import (
    Shard,
    initial_state,
    named,
    oracle_updates,
    split_words,
    update_shape,
)
from migration.parity.tolerances import TOLERANCE
from migration.parity.training import Sequences, model_of, trainer
from migration.parity.updates import oracle_step, oracle_subwords

REPLICAS = 3
_UPDATES = 100  # in each replica, about as many


def replicas_stage(config: Config, sequences: Sequences) -> Iterator[Difference]:
    """Tables and accumulators of each replica, trained side by side.

    Replica k is compared with the oracle's trainer of the seed + k.
    """
    training, given = _training(config, sequences, bootstrap=False)
    desired = []
    for alone in oracle_configs(training.config):
        model = model_of(trainer(legacy.EmbeddingTrainer, alone).fit(given))
        tables = {"input": model.input, "output": model.output}
        desired.append(tables | model.row_state)
    yield from _compared("replicas", training, desired)


def bootstrap_stage(config: Config, sequences: Sequences) -> Iterator[Difference]:
    """Tables and accumulators of replicas, each of a resample of the sequences.

    The oracle has no weights: it gets copies of the blocks, see `copies`.
    """
    training, _ = _training(config, sequences, bootstrap=True)
    yield from updates_stage("bootstrap", training)


def updates_stage(stage: str, training: TokensTrainer) -> Iterator[Difference]:
    """Tables and accumulators of each replica of `training`, and those that the
    oracle's updates make of the same corpus as ids."""
    desired = []
    for alone in oracle_configs(training.config):
        desired.append(named(_oracle_state(alone, training.encoded)))
    yield from _compared(stage, training, desired)


def oracle_configs(config: Config) -> list[Config]:
    """The config of the oracle of each replica: seed + k, modulo 2^64."""
    seeds = [(config.run.seed + k) % 2**64 for k in range(config.run.replicas)]
    return [with_options(config, seed=seed, replicas=1) for seed in seeds]


def _training(
    config: Config, sequences: Sequences, *, bootstrap: bool
) -> tuple[TokensTrainer, Sequences]:
    """A training of about 100 updates in each replica, and the sequences it is on.

    These are the first of `sequences`, with all of their tokens.
    """
    block, num_blocks = update_shape(config, sequences)
    per_update = block * num_blocks
    given, _ = split_words(sequences, _UPDATES * per_update)
    config = with_options(
        config,
        **{"replicas": REPLICAS, "bootstrap": bootstrap, "min_count": 1, "epochs": 1},
        blocks_per_update=num_blocks,
    )
    encoded = encode(sequences_corpus(given), 1)
    kept = _resolved(config, encoded).plan.kept_tokens
    epochs = int(np.clip(np.ceil(_UPDATES * per_update / kept), 1, _UPDATES))
    return _resolved(with_options(config, epochs=epochs), encoded), given


def _resolved(config: Config, encoded: Encoded) -> TokensTrainer:
    row_updates = encoded.vocabulary.row_updates
    config = resolve(config, encoded.num_tokens, None, row_updates)
    return TokensTrainer(TrainingPlan(config, encoded, range(config.run.epochs)))


def _compared(
    stage: str, training: TokensTrainer, desired: list[dict[str, np.ndarray]]
) -> Iterator[Difference]:
    """The largest difference of all replicas, for each array."""
    dtype = training.config.run.dtype
    end = run_epochs(training, training.initial_state())
    optimizer, ours = training.program.optimizer, []
    for state in unstack_states(end.state):
        tables = state.params["tables"]
        ours.append({**tables, **optimizer.row_state(state.opt_state)})
    for name in desired[0]:
        quantity = f"{name.replace('_', ' ')}, {len(ours)} replicas"
        tolerance = TOLERANCE[stage, dtype]
        yield worst(
            difference(
                stage, quantity, a[name], b[name], dtype=dtype, tolerance=tolerance
            )
            for a, b in zip(ours, desired, strict=True)
        )


def _oracle_state(config: Config, encoded: Encoded) -> legacy.update.State:
    """What the oracle has after all epochs; with `bootstrap` on the resample of the
    seed of `config`."""
    counts = encoded.vocabulary.counts
    subwords = oracle_subwords(config, encoded.vocabulary.tokens, counts)
    state = initial_state(config, len(counts), subwords)
    tree = huffman_tree(counts) if config.tables.has_node_output else None
    for update, rate in _oracle_updates(config, encoded):
        oracle_step(state, update, rate, config, tree=tree, subwords=subwords)
    return state


def _oracle_updates(
    config: Config, encoded: Encoded
) -> Iterator[tuple[legacy.blocks.Blocks, float]]:
    """The updates of all epochs, on a resample with `bootstrap`, and the learning rate
    of each.

    Tokens of sequences that were not drawn get an id of their own, V, that subsampling
    leaves out (but for a draw of 0 in 2^32, which no table has a row for).
    """
    options, counts = config.tables, encoded.vocabulary.counts
    times = [np.ones(num, np.int64) for num in encoded.shard_sequences]
    if config.run.bootstrap:
        times = resample(encoded.shard_sequences, config.run.seed)

    def read(epoch: int, shard: int) -> Shard:
        ids, lengths = encoded.read(shard)
        drawn = np.repeat(times[shard] > 0, lengths)
        return np.where(drawn, ids, np.int32(len(counts))), lengths

    keep_limit = legacy.vocabulary.keep_limit(counts, options.sample)
    updates = oracle_updates(
        config,
        encoded.shard_tokens,
        read,
        keep_limit=np.append(keep_limit, np.zeros(1, keep_limit.dtype)),
        noise_table=legacy.noise.build_noise_table(counts, options.ns_exponent),
        epochs=range(config.run.epochs),
    )
    for update, rate, shard in updates:
        yield copies(update, times[shard]), rate


def copies(blocks: legacy.blocks.Blocks, times: np.ndarray) -> legacy.blocks.Blocks:
    """Blocks whose update is the weighted update of `blocks`, by ALGORITHM.md (56).

    Copy m of a block has the tokens of the sequences that were drawn m times or more;
    its other tokens are padding. So a term of a sequence that was drawn m times is in m
    copies, with the same windows and noise.

    Args:
      times: how often each sequence of the shard was drawn.
    """
    weight = np.where(blocks.sequence < 0, 0, times[blocks.sequence])
    found = []
    for m in range(1, weight.max() + 1):
        has = weight >= m
        found.append(
            legacy.blocks.Blocks(
                np.where(has, blocks.ids, np.int32(0)),
                np.where(has, blocks.sequence, np.int32(-1)),
                np.where(has, blocks.radius, np.int8(0)),
                blocks.noise,
            )
        )
    return legacy.blocks.Blocks(*map(np.concatenate, zip(*found, strict=True)))
