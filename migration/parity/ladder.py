"""The parity ladder of tables: compares port and oracle stage by stage on a corpus.

A stage is one part of a training, from the vocabulary to the statistics of whole
trainings. Stages that read the corpus read all of it; stages that train use its first
sequences.
"""

import functools
import gzip
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

import legacy.vocabulary
from embedder.config import Config, resolve, with_options
from embedder.data.corpus import (
    Corpus,
    demo_corpus,
    demo_sequences,
    sequences_corpus,
    text_corpus,
)
from embedder.data.encode import encode, encode_cached
from embedder.data.encoded import Encoded
from embedder.data.table_files import corpus_files
from embedder.errors import InputError
from embedder.tokens import loader
from embedder.tokens.plan import TrainingPlan
from embedder.tokens.row_lr_multipliers import RowLrMultipliers
from embedder.tokens.trainer import TokensTrainer
from migration.parity import continued, data, replicas, training, updates
from migration.parity.difference import Difference
from migration.parity.updates import Sample
from migration.parity.workers import Score, workers_stage


class Subject(NamedTuple):
    """The settings and the corpus that the ladder compares on."""

    config: Config  # not resolved
    corpus: Corpus
    text: legacy.vocabulary.Text  # `corpus` as the oracle reads it
    sequences: list[list[str]]  # the first of the corpus, for training
    encoded: Encoded  # `sequences` as the port reads them
    seeds: Sequence[int]
    scores: dict[str, Score]


def subject(
    config: Config,
    source: str | None,
    *,
    words: int,
    seeds: Sequence[int],
    scores: dict[str, Score] | None = None,
) -> Subject:
    """The subject of the ladder for the corpus at `source`; None: the demo corpus.

    Args:
      words: number of words of the first sequences, for training; 0: all.

    Raises:
      InputError: the corpus is not text, or has no token to train on.
      OSError: it cannot be read.
    """
    corpus = demo_corpus() if source is None else text_corpus(source)  # not a table
    text = read_text(source)
    sequences = _first_sequences(text, words)
    encoded = encode(sequences_corpus(sequences), config.tables.min_count)
    return Subject(config, corpus, text, sequences, encoded, seeds, scores or {})


def ladder(
    subject: Subject, stages: Iterable[str] | None = None
) -> Iterator[Difference]:
    """Yields the differences of `stages` as they are computed; None: of all that there
    are with the settings."""
    if stages is None:
        options = subject.config.tables
        lacking = (
            {"model update"} if options.has_node_output or options.subwords else set()
        )
        if options.subwords:  # no rates of rows, and one worker of the oracle
            lacking |= {"row factors", "workers"}
        stages = [stage for stage in STAGES if stage not in lacking]
    for stage in stages:
        yield from STAGES[stage](subject)


def read_text(source: str | None) -> legacy.vocabulary.Text:
    """The corpus at `source`, read by the oracle as far as it can."""
    if source is None:
        return legacy.vocabulary.read_text(demo_sequences())
    paths = corpus_files(source)
    if len(paths) == 1:
        try:
            return legacy.vocabulary.read_text(paths[0])
        except ValueError as error:  # of the oracle, which has no errors of its own
            raise InputError(str(error)) from error
    return legacy.vocabulary.read_text(_lines(paths))


def _lines(paths: Iterable[Path]) -> Iterator[list[str]]:
    """Token lists of several files, since the oracle reads only one file."""
    for path in paths:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            for number, line in enumerate(file):
                line = line if number else line.removeprefix(b"\xef\xbb\xbf")
                try:
                    yield [token.decode() for token in line.split()]
                except UnicodeDecodeError as error:
                    raise InputError(
                        f"{path} is not UTF-8 text: line {number + 1} has "
                        f"{error.object!r}."
                    ) from error


def _first_sequences(text: legacy.vocabulary.Text, words: int) -> list[list[str]]:
    num_tokens = min(words or text.ids.size, text.ids.size)
    ends = np.cumsum(text.lengths)
    tokens = np.array(text.types, dtype=object)[text.ids[:num_tokens]]
    return [part.tolist() for part in np.split(tokens, ends[ends < num_tokens])]


def _vocabulary(subject: Subject) -> Iterator[Difference]:
    """Compares with the cache on disk that `embedder train` writes."""
    min_count = subject.config.tables.min_count
    with tempfile.TemporaryDirectory() as cache:
        encoded = encode_cached(subject.corpus, min_count, Path(cache))
        yield from data.vocabulary_stage(encoded, subject.text, min_count)


def _distributions(subject: Subject) -> Iterator[Difference]:
    settings = subject.config.tables
    counts = legacy.vocabulary.build_vocabulary(subject.text, settings.min_count).counts
    return data.distributions_stage(counts, settings.sample, settings.ns_exponent)


def _blocks(subject: Subject) -> Iterator[Difference]:
    min_count, epochs = subject.config.tables.min_count, subject.config.run.epochs
    with tempfile.TemporaryDirectory() as cache:
        encoded = encode_cached(subject.corpus, min_count, Path(cache))
        row_updates = encoded.vocabulary.row_updates
        config = resolve(subject.config, encoded.num_tokens, None, row_updates)
        training = TokensTrainer(TrainingPlan(config, encoded, range(max(epochs, 1))))
        for kind in data.loaders():
            yield from data.blocks_stage(
                training.sources[0],
                kind,
                size=training.updates_per_call,
                workers=config.run.workers,
                alpha=config.tables.alpha,
                min_alpha=config.tables.min_alpha,
            )


def _on_sample(stage: Callable, num_updates: int):
    def climb(subject: Subject) -> Iterator[Difference]:
        for config in _dtypes(subject.config):
            yield from stage(first_updates(config, subject.encoded, num_updates))

    return climb


def _in_each_dtype(stage: Callable):
    def climb(subject: Subject) -> Iterator[Difference]:
        for config in _dtypes(subject.config):
            yield from stage(config, subject.sequences)

    return climb


def _epoch(subject: Subject) -> Iterator[Difference]:
    for config in _dtypes(subject.config):
        yield from training.epoch_stage(config, subject.encoded, subject.sequences)


def _row_factors(subject: Subject) -> Iterator[Difference]:
    """Factors of both tables in some updates, and frozen rows in a training."""
    num_tables = subject.config.tables.num_output_tables
    factors = updates.random_factors(len(subject.encoded.vocabulary), num_tables)
    for config in _dtypes(subject.config):
        sample = first_updates(config, subject.encoded, 100, factors)
        for line in updates.updates_stage("row factors", sample):
            yield line._replace(quantity=f"{line.quantity}, 0, 0.3 or 1")
        yield from continued.frozen_rows_stage(config, subject.sequences)


def _workers(subject: Subject) -> Iterator[Difference]:
    config = subject.config
    if config.run.epochs == 0:
        raise InputError("`epochs` must be an integer >= 1 for `workers`, got 0.")
    return workers_stage(config, subject.sequences, subject.seeds, subject.scores)


STAGES: dict[str, Callable[[Subject], Iterator[Difference]]] = {
    "vocabulary": _vocabulary,
    "distributions": _distributions,
    "blocks": _blocks,
    "loss": _on_sample(updates.loss_stage, 1),
    "row gradients": _on_sample(updates.gradients_stage, 1),
    "one update": _on_sample(functools.partial(updates.updates_stage, "one update"), 1),
    "100 updates": _on_sample(
        functools.partial(updates.updates_stage, "100 updates"), 100
    ),
    "whole epoch": _epoch,
    "replicas": _in_each_dtype(replicas.replicas_stage),
    "bootstrap": _in_each_dtype(replicas.bootstrap_stage),
    "row factors": _row_factors,
    "model update": _in_each_dtype(continued.update_stage),
    "resume": _in_each_dtype(training.resume_stage),
    "converters": _in_each_dtype(training.converters_stage),
    "neighbours": _in_each_dtype(training.neighbours_stage),
    "workers": _workers,
}


def _dtypes(config: Config) -> Iterator[Config]:
    """`config` in float64, which shows small errors, and in its own dtype."""
    for dtype in dict.fromkeys(("float64", config.run.dtype)):
        yield with_options(config, dtype=dtype)


def first_updates(
    config: Config,
    encoded: Encoded,
    num_updates: int,
    factors: RowLrMultipliers = updates.NO_FACTORS,
) -> Sample:
    """The first updates of the first epoch, padded to a chunk."""
    row_updates = encoded.vocabulary.row_updates
    config = resolve(config, encoded.num_tokens, None, row_updates)
    epochs = range(max(config.run.epochs, 1))
    training = TokensTrainer(
        TrainingPlan(config, encoded, epochs, row_multipliers=factors)
    )
    chunks = loader.epoch_chunks(
        training.loader,
        training.sources[0],
        0,
        size=training.updates_per_call,
        workers=config.run.workers,
    )
    found = next(chunks, None)
    if found is None:
        raise InputError(f"`sample` = {config.tables.sample} leaves no token to train.")
    first, num_real = found
    chunks.close()
    num_updates = min(num_updates, num_real)
    shape = len(encoded.vocabulary), config.tables.vector_size
    num_tables = config.tables.num_output_tables
    return Sample(
        config,
        training.program,
        loader.pad(loader.cut(first, 0, num_updates), first.num_updates),
        num_updates,
        *updates.random_tables(shape, config.run.dtype, num_tables),
        factors,
        encoded.vocabulary.counts if config.tables.has_node_output else None,
        encoded.vocabulary.tokens if config.tables.subwords else None,
        encoded.vocabulary.counts if config.tables.subwords else None,
    )
