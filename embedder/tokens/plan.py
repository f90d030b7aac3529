"""The plan of a training of tokens: what every way to train makes before it trains.

`TrainingInputs` are the settings and the data as they are given. `plan` reads the data
and resolves the settings: `TrainingPlan` has all that a training depends on, and
allocates no table.
"""

import dataclasses
import functools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from embedder.config import Config, common_config, replicas_of, resolve, with_options
from embedder.data.bootstrap import expected_share
from embedder.data.corpus import Corpus
from embedder.data.earlier import EarlierCorpus
from embedder.data.encode import BaseVocabulary, encode
from embedder.data.encoded import Encoded, TokenSource
from embedder.data.graph import GraphFiles, Walks, encode_graph, plan_walks, repeats_of
from embedder.data.huffman import Tree, huffman_tree
from embedder.data.packing import filled_share
from embedder.data.split import trained_share
from embedder.data.vocabulary import Vocabulary, expected_tokens
from embedder.engine.devices import Demand
from embedder.errors import InputError
from embedder.tokens import loader
from embedder.tokens.artefact import ModelFile
from embedder.tokens.attribute_rows import (
    attributes_with_base,
    check_attributes,
    known_attributes,
)
from embedder.tokens.continue_training import (
    Update,
    check_base,
    check_continues,
    check_grow,
    encoded_earlier,
    plan_update,
    with_earlier_counts,
)
from embedder.tokens.initialization import (
    NO_ROWS,
    NO_START,
    Initialization,
    InitialRows,
    plan_start,
)
from embedder.tokens.memory import demand
from embedder.tokens.row_lr_multipliers import RowLrMultipliers, product
from embedder.tokens.subwords import SubwordTable, ngram_rule, subword_table
from embedder.tokens.train_step import TableParts
from embedder.vectors.attributes import Attributes


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingInputs:
    """What a training is planned from."""

    config: Config
    source: Corpus | GraphFiles | Encoded  # an encoded one has its vocabulary
    cache: Path | None = None  # folder of encoded corpora; None: encode in memory
    base: ModelFile | None = None  # the model to start from
    grow: bool = False  # tokens that `base` lacks get rows; else they are skipped
    models: Sequence[Config] = ()  # as of `Task.plan`
    earlier: Sequence[EarlierCorpus] = ()  # corpora to replay
    start: Initialization = NO_START
    attributes: Attributes | None = None  # of items; None: those of `base`
    row_multipliers: RowLrMultipliers | None = None  # of the input table; None: all 1
    epochs: range | None = None  # None: those of `config`, after those of `base`
    call_limit: float = math.inf  # updates of a call at most
    is_fold_in: bool = False
    """Only rows that `base` lacks learn, of both tables."""
    is_partial_fit: bool = False
    """Updates are as large as for all tokens that the rows were trained on, and the
    text may have no known token."""

    @property
    def continues(self) -> bool:
        """Whether rows of a base learn the less, the more they were trained."""
        return self.base is not None and self.config.tables.schedule == "continue"


@dataclass(frozen=True, eq=False)
class TrainingPlan:
    """Resolved settings over encoded tokens, and where the tables start.

    Args:
      models: the resolved settings of each model that is trained side by side, which
        differ from `config` where `setting` has `is_per_model`; its window is the
        largest. (): `replicas_of(config)`.
    """

    config: Config  # resolved
    encoded: TokenSource
    epochs: range
    base: ModelFile | None = None  # whose rows are the first ones at the start
    models: Sequence[Config] = ()
    start: InitialRows = NO_ROWS  # that start from vectors without a model
    row_multipliers: RowLrMultipliers | None = None  # of the rates; None: all are 1
    call_limit: float = math.inf  # as of `choose_updates_per_call`
    attributes: Attributes | None = None  # that a token has

    @functools.cached_property
    def replicas(self) -> list[Config]:
        """The settings of each model."""
        return [*self.models] or replicas_of(self.config)

    @functools.cached_property
    def tree(self) -> Tree | None:
        """The tree of hierarchical softmax."""
        is_needed = self.config.tables.has_node_output
        return huffman_tree(self.encoded.vocabulary.counts) if is_needed else None

    @functools.cached_property
    def subwords(self) -> SubwordTable | None:
        """The n-grams or the attributes of the vocabulary."""
        shared = self.attributes or ngram_rule(self.config.tables)
        if shared is None:
            return None
        vocabulary = self.encoded.vocabulary
        return subword_table(vocabulary.tokens, vocabulary.counts, shared)

    @functools.cached_property
    def parts(self) -> TableParts:
        """What the tables have besides vectors."""
        multipliers, tree = self.row_multipliers, self.tree
        return TableParts(
            () if multipliers is None else multipliers.tables,
            tree.depth if tree else 0,
            None if self.subwords is None else self.subwords.sizes,
        )

    @property
    def shape(self) -> tuple[int, int]:
        """Of the input table, [V, D]."""
        return len(self.encoded.vocabulary), self.config.tables.vector_size

    @property
    def tokens_per_update(self) -> int:
        """Positions in the blocks of an update."""
        return math.prod(self.config.tables.update_size)

    @property
    def loss_interval(self) -> int:
        """The loss is computed in every n-th update."""
        return loader.loss_interval(self.encoded.num_tokens, self.tokens_per_update)

    @functools.cached_property
    def updates_per_call(self) -> int:
        """Updates of a call, at most."""
        limit = min(self.config.updates_per_call, self.call_limit)
        tokens, size = self.packed_tokens, self.tokens_per_update
        return loader.choose_updates_per_call(tokens, size, limit=limit)

    @property
    def demand(self) -> Demand:
        """What the tables and an update require of the devices."""
        return demand(self.config, self.shape, self.updates_per_call, self.parts)

    @functools.cached_property
    def kept_tokens(self) -> float:
        """Expected number of tokens of the corpus that an epoch keeps, at most."""
        encoded, counts = self.encoded, self.encoded.vocabulary.counts
        samples = {each.tables.sample for each in self.replicas}
        most = max(expected_tokens(counts, sample) for sample in samples)
        share = most / counts.sum()
        if self.config.run.bootstrap:
            share *= expected_share(int(encoded.shard_sequences.sum()))
        trained = trained_share(encoded, self.config.tables.sequence_holdout)
        return share * trained * encoded.num_tokens

    @functools.cached_property
    def packed_tokens(self) -> float:
        """`kept_tokens`, with the padding of blocks of whole sequences."""
        options, tokens = self.config.tables, self.kept_tokens
        if not options.has_whole_sequences or not tokens:
            return tokens
        share = tokens / self.encoded.num_tokens
        return tokens / filled_share(self.first_lengths, share, options.update_size[0])

    @functools.cached_property
    def first_lengths(self) -> np.ndarray:
        """Lengths of the sequences of the first shard, i64[m]; of walks the largest."""
        encoded, options = self.encoded, self.config.tables
        if options.walks:
            return np.full(encoded.shard_sequences[:1].sum(), options.walk_length)
        if not len(encoded.shard_tokens):
            return np.empty(0, np.int64)
        return encoded.shard(0, seed=0, epoch=0)[1].astype(np.int64)


def plan(inputs: TrainingInputs) -> TrainingPlan:
    """The plan of a training, whose tokens are read and encoded here.

    Raises:
      OSError, InputError: the tokens cannot be read, or none is left to train on; or
        settings do not fit each other, the base, or the vectors to start from.
    """
    inputs = _checked(inputs)
    encoded, epochs = _encoded(inputs), inputs.epochs
    if epochs is None:  # they follow those of the base
        first = 0 if inputs.base is None else len(inputs.base.loss_history)
        epochs = range(first, first + inputs.config.run.epochs)
    config, models = _resolved(inputs, encoded, epochs.stop)
    update = _update(inputs, encoded)
    start, frozen = plan_start(
        inputs.start.for_model(config.tables.has_token_output),
        encoded.vocabulary,
        config.run.dtype,
        None if inputs.base is None else len(inputs.base.tokens),
    )
    key_type = getattr(inputs.source, "key_type", "text")
    new_rows = _new_rows(inputs, encoded) if inputs.is_fold_in else None
    reasons = frozen, inputs.row_multipliers, update.row_multipliers, new_rows
    multipliers = product(*reasons)
    return TrainingPlan(
        *(config, update.encoded, epochs, update.base, models),
        *(start, multipliers, inputs.call_limit),
        known_attributes(inputs.attributes, encoded.vocabulary.tokens, key_type),
    )


def _checked(inputs: TrainingInputs) -> TrainingInputs:
    """`inputs`, those of walks with a vector for every node."""
    config, models, base = inputs.config, inputs.models, inputs.base
    inputs.start.check_size(config.tables.vector_size)
    check_grow(inputs.grow, config.tables)
    check_continues(config.tables, base is not None)
    attributes = attributes_with_base(inputs.attributes, base)
    check_attributes(attributes, config, inputs.start, base is not None)
    if isinstance(inputs.source, GraphFiles):
        config, *models = (plan_walks(x, base is not None) for x in (config, *models))
    if base is not None:
        check_base(config, base)
    return dataclasses.replace(
        inputs, config=config, models=models, attributes=attributes
    )


def _encoded(inputs: TrainingInputs) -> Encoded | Walks:
    """The tokens as ids, of a training on a model with the ids of its tokens."""
    source, base, cache = inputs.source, inputs.base, inputs.cache
    options, known = inputs.config.tables, None
    if isinstance(source, Encoded):
        return source
    if isinstance(source, GraphFiles):
        return encode_graph(source, options, cache)
    if base is not None:
        known = BaseVocabulary(Vocabulary(base.tokens, base.counts), inputs.grow)
        if inputs.grow and inputs.earlier:
            known = with_earlier_counts(known, inputs.earlier, cache)
    encoded = encode(source, options.min_count, known, cache)
    if not (encoded.num_tokens or inputs.is_partial_fit):
        raise InputError(
            f"Nothing in {source.source} is in the vocabulary of `resume`: give --grow."
        )
    return encoded


def _new_rows(inputs: TrainingInputs, encoded: Encoded | Walks) -> RowLrMultipliers:
    """Factor 1 of the rows that the base lacks, 0 of its own.

    Raises:
      InputError: there is no such row.
    """
    assert inputs.base is not None, "the caller has it"
    is_new = np.arange(len(encoded.vocabulary)) >= len(inputs.base.tokens)
    if not is_new.any():
        least = inputs.config.tables.min_count
        raise InputError(
            f"There are no new {encoded.item_name} that occur `min_count` = {least} "
            "times."
        )
    factors = is_new.astype(np.float32)
    return RowLrMultipliers(factors, factors)


def _resolved(
    inputs: TrainingInputs, encoded: Encoded | Walks, epochs: int
) -> tuple[Config, list[Config]]:
    """The settings that all models share, and those of each, for `epochs` in all."""
    vocabulary, num_tokens = encoded.vocabulary, encoded.num_tokens
    if (inputs.continues or inputs.is_partial_fit) and not inputs.is_fold_in:
        num_tokens = int(vocabulary.counts.sum())
    facts = num_tokens, epochs, vocabulary.row_updates, repeats_of(encoded)
    configs = (_with_holdout(x, encoded) for x in (inputs.config, *inputs.models))
    config, *models = (resolve(x, *facts) for x in configs)
    if models:
        every = (x.tables for x in (config, *models))
        largest = max(every, key=operator.attrgetter("max_distance"))
        config = common_config(models, window=largest.window)
    return config, models


def _with_holdout(config: Config, encoded: Encoded | Walks) -> Config:
    """`config`, for `next_items` with a `holdout` for the corpus; where that holds
    sequences out, the result is the best evaluation."""
    options = config.tables
    if not options.may_hold_out or config.run.replicas > 1:
        return config
    share = options.holdout_of(int(encoded.own_sequences.sum()))
    result = "best" if share else config.save.result
    return with_options(config, holdout=share, result=result)


def _update(inputs: TrainingInputs, encoded: Encoded | Walks) -> Update:
    """What is trained on, from which base, and with which multipliers of rates."""
    base, options = inputs.base, inputs.config.tables
    if base is None or not inputs.continues:
        return Update(encoded, base, None)
    assert isinstance(encoded, Encoded), "`plan_walks` refuses a base"
    known = BaseVocabulary(encoded.vocabulary)
    earlier = encoded_earlier(known, inputs.earlier, inputs.cache)
    return plan_update(base, encoded, earlier, options)
