"""Stages of trainings that do not start anew: from vectors, with rows that are frozen,
and from a finished model, on the text of an update.

The oracle has neither. It takes the same updates, and `updates.oracle_step` scales its
steps by factors; what an update draws from is in `updating`.
"""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import legacy
import legacy.update
from embedder.config import Config, with_options
from embedder.data import shards
from embedder.data.corpus import sequences_corpus
from embedder.data.earlier import EarlierCorpus
from embedder.engine.epochs import run_epochs
from embedder.errors import InputError
from embedder.tokens.plan import TrainingInputs, plan
from embedder.tokens.pretrained import given_start
from embedder.tokens.row_lr_multipliers import RowLrMultipliers
from embedder.tokens.trainer import TokensTrainer
from legacy.huffman import huffman_tree
from legacy.vocabulary import Vocabulary, build_vocabulary, read_text
from migration.parity import updating
from migration.parity.difference import (
    Difference,
    difference,
    difference_of_tokens,
    worst,
)
from migration.parity.short import (
    Shard,
    initial_state,
    named,
    oracle_updates,
    split_words,
    update_shape,
)
from migration.parity.tolerances import TOLERANCE
from migration.parity.training import Sequences, Trainer, model_of, trainer
from migration.parity.updates import by_table, oracle_step

_UPDATES = 100  # of a training, about as many
_FROZEN = slice(None, None, 3)  # rows
_REPLAY = 0.25  # exact in binary, so expected numbers have no rounding error


def frozen_rows_stage(config: Config, sequences: Sequences) -> Iterator[Difference]:
    """A training that starts from the tables of a model in which every third token is
    frozen: the start, tables and accumulators, and frozen rows to the last bit.

    The model is of every other sequence, so that it lacks tokens.
    """
    stage = "row factors"
    config, given, _ = _parts(config, sequences)
    config = with_options(config, min_count=1, epochs=1)
    text, base = read_text(given), _model(config, given[::2])
    tokens, counts = build_vocabulary(text, 1)
    with tempfile.TemporaryDirectory() as folder:
        base.save(path := Path(folder) / "model.npz")
        starting = given_start(path, tokens[_FROZEN])
    source = sequences_corpus(given)
    inputs = TrainingInputs(config=config, source=source, start=starting)
    training = TokensTrainer(plan(inputs))
    state, model = initial_state(config, len(tokens)), model_of(base)
    row_of = {token: row for row, token in enumerate(tokens)}
    rows = [row_of[token] for token in model.tokens]
    state.tables[0, rows] = model.input
    if config.tables.negative:
        state.tables[1, rows] = model.output[: len(rows)]
    yield from _start_lines(stage, training, state, "")
    frozen = state.tables[0, _FROZEN].copy()
    factors = np.ones(len(tokens), np.float32)
    factors[_FROZEN] = 0
    cut = updating.encoded(text, tokens, shards.SHARD_TOKENS)
    _train(
        *(training, state, RowLrMultipliers(input=factors), counts),
        *(cut.shard_tokens(), lambda epoch, shard: cut.shard(shard)),
    )
    found = _trained(training)
    yield from _end_lines(stage, training, found, state, "")
    yield difference(
        stage, "frozen rows", found["input"][_FROZEN], frozen, dtype=config.run.dtype
    )


def update_stage(config: Config, sequences: Sequences) -> Iterator[Difference]:
    """A model of the oracle that grows by an update, without replay and with it."""
    if config.tables.has_node_output:
        raise InputError("`hs` has no `model update` stage: its models do not grow.")
    config, old, new = _parts(config, sequences)
    most = int(build_vocabulary(read_text(old), 1).counts[0])
    min_count = min(config.tables.min_count, most)
    config = with_options(config, min_count=min_count, schedule="continue")
    base = _model(config, old)
    for share in (0.0, _REPLAY):
        yield from _update_lines(with_options(config, replay=share), base, old, new)


def _update_lines(
    config: Config, base: Trainer, old: Sequences, new: Sequences
) -> Iterator[Difference]:
    """The update of `base`, of the sequences `old`, by `new`, in two epochs."""
    stage, options, model = "model update", config.tables, model_of(base)
    of = ", replay" if options.replay else ""
    config = with_options(config, epochs=2)
    replayed = [old] if options.replay else []
    corpus, *before = (sequences_corpus(each) for each in (new, *replayed))
    earlier = [*map(EarlierCorpus, before)]
    inputs = TrainingInputs(
        config=config, source=corpus, base=model, grow=True, earlier=earlier
    )
    training = TokensTrainer(plan(inputs))

    texts = [read_text(each) for each in (new, *replayed)]
    known = Vocabulary(model.tokens, model.counts)
    grown = updating.grown_vocabulary(known, texts[0], texts[1:], options.min_count)
    cuts = [updating.encoded(x, grown.tokens, shards.SHARD_TOKENS) for x in texts]
    num_old, seed = len(model.tokens), config.run.seed
    source = updating.Replayed(cuts[0], cuts[1:], options.replay, num_old, seed)

    def line(quantity: str, actual, desired) -> Difference:
        dtype = config.run.dtype
        return difference(stage, quantity + of, actual, desired, dtype=dtype)

    vocabulary = training.encoded.vocabulary
    found = difference_of_tokens(
        stage, vocabulary.tokens, grown.tokens, dtype=config.run.dtype
    )
    yield found._replace(quantity=f"tokens{of}")
    if not found.passed:
        return
    yield line("counts", vocabulary.counts, grown.counts)
    drawn = source.counts(grown.text_counts)
    yield line("counts of draws", vocabulary.drawn_counts, drawn)
    sizes = source.shard_tokens()
    yield line("tokens of shards", training.encoded.shard_tokens, sizes)
    for index, name in enumerate(("ids", "lengths of sequences")):
        yield worst(
            line(
                name,
                training.encoded.shard(shard, seed, epoch)[index].astype(np.int64),
                source.shard(epoch, shard)[index].astype(np.int64),
            )
            for epoch in training.epochs
            for shard in range(len(sizes))
        )
    state = initial_state(config, len(grown.tokens))
    state.tables[:] = updating.grown_tables(
        state.tables, np.stack([model.input, model.output])
    )
    if state.accumulators is not None:
        for name, sums in zip(("input", "output"), state.accumulators, strict=True):
            sums[:num_old] = model.row_state[f"{name}_accumulator"]
    yield from _start_lines(stage, training, state, of)
    factors = updating.factors(grown)
    lacking = np.flatnonzero(factors == 0)
    before = state.tables[:, lacking].copy()
    both = RowLrMultipliers(factors, factors)
    _train(training, state, both, drawn, sizes, source.shard)
    ends = _trained(training)
    yield from _end_lines(stage, training, ends, state, of)
    found = np.stack([ends["input"], ends["output"]])[:, lacking]
    yield line("rows that the text lacks", found, before)


def _parts(config: Config, sequences: Sequences) -> tuple[Config, Sequences, Sequences]:
    """Sequences of about 100 updates, those of the next 50, and settings by which that
    many are trained in an epoch, and in two."""
    block, num_blocks = update_shape(config, sequences)
    total = sum(map(len, sequences))
    num = min(_UPDATES * block * num_blocks, -(-2 * total // 3))
    first, rest = split_words(sequences, num)
    return (
        with_options(config, blocks_per_update=num_blocks),
        first,
        split_words(rest, -(-num // 2))[0],
    )


def _model(config: Config, sequences: Sequences) -> Trainer:
    """A model of the oracle."""
    return trainer(legacy.EmbeddingTrainer, config, epochs=1).fit(sequences)


def _train(
    training: TokensTrainer,
    state: legacy.update.State,
    factors: RowLrMultipliers,
    counts: np.ndarray,
    shard_tokens: np.ndarray,
    read: Callable[[int, int], Shard],
) -> None:
    """Trains `state` as the oracle does, in place, with draws by `counts`."""
    options = training.config.tables
    updates = oracle_updates(
        *(training.config, shard_tokens, read),
        keep_limit=updating.keep_limit(counts, options.sample),
        noise_table=updating.noise_table(counts, options.ns_exponent),
        epochs=training.epochs,
    )
    tree = (
        huffman_tree(training.encoded.vocabulary.counts)
        if options.has_node_output
        else None
    )
    for update, rate, _ in updates:
        oracle_step(state, update, rate, training.config, factors, tree)


def _trained(training: TokensTrainer) -> dict[str, np.ndarray]:
    """Tables and accumulators of the port at the end."""
    end = run_epochs(training, training.initial_state()).state
    row_state = training.program.optimizer.row_state(end.opt_state)
    return {**end.params["tables"], **row_state}


def _start_lines(
    stage: str, training: TokensTrainer, state: legacy.update.State, of: str
) -> Iterator[Difference]:
    """The tables before the first update: all is copied or drawn, but means."""
    first, dtype = training.initial_state().params["tables"], training.config.run.dtype
    for name, expected in by_table(state.tables).items():
        yield difference(
            *(stage, f"{name} at the start{of}", first[name], expected),
            dtype=dtype,
            tolerance=TOLERANCE["start", dtype],
        )


def _end_lines(
    stage: str,
    training: TokensTrainer,
    found: dict[str, np.ndarray],
    state: legacy.update.State,
    of: str,
) -> Iterator[Difference]:
    dtype = training.config.run.dtype
    for name, expected in named(state).items():
        yield difference(
            *(stage, f"{name.replace('_', ' ')}{of}", found[name], expected),
            dtype=dtype,
            tolerance=TOLERANCE[stage, dtype],
        )
