"""Epochs over tables and ids that the caller keeps, for other front ends.

The caller has the vocabulary, its counts and both tables, and may change them between
epochs. `EmbeddingTrainer` keeps all of that itself.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from embedder.config import Config
from embedder.data.encoded import Encoded
from embedder.data.shards import EncodedChunk, cut_shards
from embedder.data.vocabulary import Vocabulary
from embedder.engine.epochs import Metrics, Progress, Status, run_epochs
from embedder.engine.rules import row_rule
from embedder.errors import InputError, InputTypeError
from embedder.tokens.plan import TrainingInputs, plan
from embedder.tokens.row_lr_multipliers import RowLrMultipliers
from embedder.tokens.subwords import TABLE
from embedder.tokens.train_step import host_state
from embedder.tokens.trainer import TokensTrainer


class TrainingTables(NamedTuple):
    """Tables of V tokens, which are known by their ids alone."""

    input: np.ndarray  # [V, D], in the dtype of the trainer
    output: np.ndarray  # [R, D], see `TokensOptions.num_output_tables`
    counts: np.ndarray  # i64[V], of which draws and the Huffman tree depend
    rates: np.ndarray | None = None  # f32[V], from 0 to 1, of input rows; None: all 1
    subwords: "SubwordRows | None" = None  # which `input` is made of


class SubwordRows(NamedTuple):
    """Rows of words and of n-grams, of a model with subwords."""

    tokens: list[str]  # [V]
    words: np.ndarray  # [V, D]
    buckets: np.ndarray  # [number of buckets, D], of which those of tokens learn


class TokenIds(NamedTuple):
    """Sequences as ids; -1: a token without a row, which is left out."""

    ids: np.ndarray  # i32[n]
    lengths: np.ndarray  # i64[m], of the sequences; they sum up to n


class TrainedEpochs(NamedTuple):
    """The tables after some epochs, and what an epoch trained on, in the mean."""

    input: np.ndarray  # [V, D]
    output: np.ndarray  # [R, D]
    loss: float  # mean of a pair; of cbow, of a centre
    num_terms: int  # pairs; of cbow, centres; estimated where few updates report
    num_tokens: int  # that subsampling keeps, expected
    subwords: SubwordRows | None = None  # after the epochs


class _Counted(TokensTrainer):
    """A training that remembers how many terms its epochs reported."""

    reported_terms = 0.0

    def summary(self, sums: tuple[float, ...]) -> Metrics:
        self.reported_terms += (*sums, 0.0, 0.0)[1]
        return super().summary(sums)


def train_epochs(
    config: Config,
    tables: TrainingTables,
    sequences: TokenIds,
    epochs: range,
    schedule: range,
    on_status: Callable[[Status], None] = lambda status: None,
) -> TrainedEpochs:
    """Trains `epochs` of `schedule`, the epochs over which the rate falls.

    `on_status` is called after each call of updates and each epoch.

    Raises:
      InputTypeError, InputError: the arrays do not fit each other or `config`.
      FloatingPointError: training diverged.
    """
    _check(config, tables, sequences)
    if not epochs or epochs.step != 1 or not {*epochs} <= {*schedule}:
        raise InputError(
            f"`epochs` must be consecutive ones of `schedule`, {schedule}, got "
            f"{epochs}."
        )
    subwords = tables.subwords
    encoded = _encoded(tables.counts, sequences, subwords and subwords.tokens)
    if not encoded.num_tokens:
        return TrainedEpochs(tables.input, tables.output, 0.0, 0, 0, subwords)
    multipliers = None
    if tables.rates is not None and (tables.rates != 1).any():
        multipliers = RowLrMultipliers(input=tables.rates)
    inputs = TrainingInputs(
        config=config, source=encoded, epochs=schedule, row_multipliers=multipliers
    )
    training = _Counted(plan(inputs))
    state = host_state(row_rule(config.run.optimizer), tables.input, tables.output)
    trained = training.plan.subwords
    if trained is not None:
        assert subwords is not None, "`_check` asks for it"
        rows = np.concatenate(
            [subwords.words, subwords.buckets[trained.subwords.buckets]]
        )
        state = trained.with_rows(state, rows)
    start = Progress(epochs.start)
    end = run_epochs(training, state, on_status, start=start, until=epochs.stop)
    after, updates = end.state.params["tables"], end.position.updates / len(epochs)
    reports = math.ceil(updates / training.plan.loss_interval)
    reported_terms = training.reported_terms / len(epochs)
    if trained is not None and subwords is not None:
        rows, num_words = after[TABLE], len(subwords.words)
        buckets = subwords.buckets.copy()
        buckets[trained.subwords.buckets] = rows[num_words:]
        subwords = subwords._replace(words=rows[:num_words], buckets=buckets)
    return TrainedEpochs(
        after["input"],
        after["output"],
        sum(end.position.losses) / len(epochs),
        round(reported_terms * updates / max(reports, 1)),
        round(training.plan.kept_tokens),
        subwords,
    )


def _encoded(
    counts: np.ndarray, sequences: TokenIds, tokens: list[str] | None
) -> Encoded:
    lengths = sequences.lengths.astype(np.int64)
    parts = [*cut_shards([EncodedChunk(sequences.ids, lengths, is_open=False)])]
    return Encoded(
        Vocabulary(tokens or [*map(str, range(len(counts)))], counts.astype(np.int64)),
        np.array([len(part.ids) for part in parts], np.int64),
        np.array([len(part.lengths) for part in parts], np.int64),
        lambda shard: (parts[shard].ids, parts[shard].lengths),
        len(sequences.ids),
    )


def _check(config: Config, tables: TrainingTables, sequences: TokenIds) -> None:
    if row_rule(config.run.optimizer).row_arrays:  # they are no argument
        raise InputError(
            "`optimizer` must be 'sgd' for tables that the caller keeps, got "
            f"{config.run.optimizer!r}."
        )
    options, dtype = config.tables, np.dtype(config.run.dtype)
    num_rows = len(tables.counts)
    output_rows = num_rows * options.num_output_tables
    for name, rows in (("input", num_rows), ("output", output_rows)):
        table, shape = getattr(tables, name), (rows, options.vector_size)
        if table.shape != shape or table.dtype != dtype or num_rows == 0:
            raise InputError(
                f"`{name}` must be {dtype}{list(shape)}, V at least 1, got "
                f"{table.dtype}{list(table.shape)}."
            )
    _check_subwords(config, tables)
    if tables.counts.dtype.kind not in "iu" or (tables.counts < 0).any():
        raise InputTypeError("`counts` must be integers >= 0.")
    rates = tables.rates
    if rates is not None and not (
        rates.shape == (num_rows,) and ((rates >= 0) & (rates <= 1)).all()
    ):
        raise InputError(
            f"`rates` must be {num_rows} numbers from 0 to 1, got {rates.dtype}"
            f"{list(rates.shape)} from {rates.min(initial=0)} to "
            f"{rates.max(initial=0)}."
        )
    ids, lengths = sequences
    if ids.dtype != np.int32 or ids.ndim != 1 or (ids.size and ids.max() >= num_rows):
        raise InputError(f"`ids` must be i32 below {num_rows}, got {ids.dtype}.")
    if lengths.dtype.kind not in "iu" or lengths.sum() != len(ids):
        raise InputError(f"`lengths` must sum up to {len(ids)}, got {lengths.sum()}.")


def _check_subwords(config: Config, tables: TrainingTables) -> None:
    options, subwords = config.tables, tables.subwords
    if bool(options.subwords) != (subwords is not None):
        raise InputError(
            "`subwords` of the tables must be given where the trainer has `subwords`, "
            f"and only there, got {'none' if subwords is None else 'some'}."
        )
    if subwords is None:
        return
    if tables.rates is not None and (tables.rates != 1).any():
        raise InputError("`rates` must be 1 with subwords, whose rows words share.")
    shape = len(tables.counts), options.vector_size
    wanted = {"words": shape, "buckets": (options.buckets, shape[1])}
    for name, expected in wanted.items():
        rows = getattr(subwords, name)
        if rows.shape != expected or rows.dtype != np.dtype(config.run.dtype):
            raise InputError(
                f"`{name}` must be {config.run.dtype}{list(expected)}, got "
                f"{rows.dtype}{list(rows.shape)}."
            )
    if len(subwords.tokens) != len(tables.counts):
        raise InputError(
            f"`tokens` must be {len(tables.counts)}, got {len(subwords.tokens)}."
        )
