"""Training of tables in memory: resolved settings over an encoded corpus."""

import dataclasses
import functools
import importlib
import logging
import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, Literal

import numpy as np

from embedder.config import Config, replicas_of, with_options
from embedder.engine.bootstrap import expected_share
from embedder.engine.compilation import avoid_slow_scatters, enable_compilation_cache
from embedder.engine.devices import devices_line, pick_layout
from embedder.engine.epochs import Metrics
from embedder.engine.feed import local_blocks, sharded_batches
from embedder.engine.layout import ONE_DEVICE, Layout
from embedder.engine.loop import CallResult, run_calls
from embedder.engine.program import PlacedState, Program
from embedder.engine.replicas import (
    Call,
    on_threads,
    side_by_side,
    stack_batches,
    stack_states,
    unstack_states,
)
from embedder.engine.rules import RowRule, linear_rate, row_rule
from embedder.engine.state import TrainState
from embedder.errors import InputError
from embedder.evaluation.score_table import ScoreTable
from embedder.tables import cpu, loader
from embedder.tables.artefact import ModelFile
from embedder.tables.blocks import BlockShape, BlockSource, Updates, block_source
from embedder.tables.encoded import TokenSource
from embedder.tables.huffman import Tree, huffman_tree, path_lengths
from embedder.tables.lookup import tables
from embedder.tables.measures import Measures, measures
from embedder.tables.memory import check_tables_fit, demand, memory_needed
from embedder.tables.options import MOST_DISTANCE, TablesOptions
from embedder.tables.packing import filled_share
from embedder.tables.placement import REPLICA_AXES, TABLE_AXES, place
from embedder.tables.prepare import Batch, Model, objective_of
from embedder.tables.row_factors import RowFactors, factored_program
from embedder.tables.split import num_held_out, trained_share
from embedder.tables.starting import NO_ROWS, FirstRows
from embedder.tables.subwords import (
    SubwordSizes,
    SubwordTable,
    ngram_rule,
    subword_program,
    subword_table,
)
from embedder.tables.update import RowState, initial_state
from embedder.tables.vocabulary import expected_tokens

_log = logging.getLogger(__name__)
_LONG_RUN = 10_000_000  # words of all epochs: worth the compilation by Numba
_WHOLE = 5  # words that one with a whole session as its context counts for
_SUBWORDS = 3  # words that one with n-grams counts for


class Training:
    """A training of tables, without its state: resolved settings and a corpus."""

    rate_name = "alpha"
    memory_advice = "give a smaller `vector_size` or `block`, or a larger `min_count`."
    zero_loss_message = (
        "No token has another in its window, after subsampling (`sample`): nothing is "
        "learned."
    )

    def __init__(
        self,
        config: Config,
        encoded: TokenSource,
        epochs: range,
        base: ModelFile | None = None,
        models: Sequence[Config] = (),
        *,
        start: FirstRows = NO_ROWS,
        factors: RowFactors | None = None,
        call_limit: float = math.inf,
    ):
        """Plans; nothing is allocated.

        Args:
          base: the model whose rows are the first rows at the start.
          start: rows that start from vectors without a model.
          factors: of the rates of rows; None: all are 1.
          call_limit: updates of a call at most, rounded up to a multiple of 16.
          models: the resolved settings of each model that is trained side by side,
            which differ from `config` where `setting` has `is_per_model`; its window is
            the largest. (): `replicas_of(config)`.
        """
        self.replicas = [*models] or replicas_of(config)
        self.may_diverge = bool(models)
        options = config.tables
        tokens_per_update = math.prod(options.update_size)
        interval = loader.loss_interval(encoded.num_tokens, tokens_per_update)
        self.config = config
        self._tokens_per_update = tokens_per_update
        has_limit = options.max_pairs_per_row is not None
        smaller = "`alpha` or `max_pairs_per_row`" if has_limit else "`alpha`"
        self.divergence_message = f"training diverged. Give a smaller {smaller}."
        self.encoded = encoded
        self._base = base
        self._start = start
        # models with settings of their own are scored by a sweep
        self._measures = Measures(()) if models else measures(options, encoded)
        counts = encoded.vocabulary.counts
        self.tree: Tree | None = huffman_tree(counts) if options.hs else None
        self.subwords: SubwordTable | None = None
        if (rule := ngram_rule(options)) is not None:
            self.subwords = subword_table(encoded.vocabulary.tokens, counts, rule)
        self.scores = self._measures.names
        self.metrics: tuple[str, ...] = ("loss", *self.scores)
        self.epochs = epochs
        self.superblock_size = loader.superblock_size(
            self._packed_tokens,
            tokens_per_update,
            limit=min(config.updates_per_call, call_limit),
        )
        if options.has_whole_sequences and not models:
            self._log_long_sequences()
        avoid_slow_scatters()  # before the first use of a device
        shape = len(encoded.vocabulary), options.vector_size
        self._factored = () if factors is None else factors.tables
        self._demand = demand(
            *(config, shape, self.superblock_size, self._factored),
            path_rows=self._depth,
            subwords=self.subwords,
        )
        self.layout, self._why = pick_layout(config.devices, self._demand)
        self.loader = loader.pick_loader(config.run.loader, self.layout)
        self.config = with_options(config, loader=self.loader)  # as it was picked
        self.sources = _sources(self.replicas, encoded, epochs, self.layout)
        num_words = encoded.raw_tokens * len(epochs)  # of one model: see `replicas_of`
        self.backend: str = pick_backend(config, num_words, self.layout)
        check_tables_fit(shape, self._demand, self.layout)
        self._has_own_settings = len(models) > 1
        program_config = config
        if self._has_own_settings:  # other models have the same program
            read = _READ_FROM_BATCHES | {"negative": min(options.negative, 1)}
            program_config = with_options(_program_config(config), **read)
        self.program = make_program(
            shape[0],
            interval,
            with_options(program_config, backend=self.backend),
            self.layout,
            tuple(map(_program_config, models)) if self.backend == "numba" else (),
            self._factored,
            self._depth,
            self.subwords and self.subwords.sizes,
        )
        self.program = factored_program(self.program, factors)
        self.program = subword_program(self.program, self.subwords, self.has_replicas)

    @property
    def _depth(self) -> int:
        """Nodes of the longest path of hierarchical softmax; 0: there is none."""
        return self.tree.depth if self.tree else 0

    @property
    def content(self) -> str:
        """Digest of the tokens and their counts, or of the graph."""
        return self.encoded.content

    @property
    def unit(self) -> str:
        """Words, or nodes of walks."""
        return self.encoded.unit

    @property
    def noun(self) -> str:
        """Words, items of sessions, or nodes of walks, in messages."""
        return self.encoded.noun

    @property
    def items(self) -> int:
        """Words of the corpus, or nodes of the walks of an epoch."""
        return self.encoded.raw_tokens

    @property
    def start_loss(self) -> float:
        """Loss of the initial vectors, whose scores are all 0."""
        negative = self.config.tables.negative
        terms = (1.0 + negative) if negative else 0.0
        if self.tree:
            kept = self.encoded.vocabulary.kept_counts(self.config.tables.sample)
            terms += np.average(path_lengths(self.tree), weights=kept)
        return terms * math.log(2)

    def summary(self, sums: tuple[float, ...]) -> Metrics:
        """The mean loss of an epoch, of replicas the mean."""
        loss, num_terms = sums or (0.0, 0.0)
        return (loss / num_terms if num_terms else 0.0,)

    def evaluate(self, state: PlacedState) -> Metrics:
        """The scores of the vectors, see `measures`; of replicas the means."""
        whole = self.program.whole_state(state)
        models = unstack_states(whole) if self.has_replicas else [whole]
        return self._measures.means([model.params["tables"] for model in models])

    def scores_with_intervals(self, state: TrainState) -> ScoreTable:
        """The scores of the vectors of a whole state, and of baselines; {}: nothing
        measures them, or they are of replicas."""
        if self.has_replicas or not self.scores:
            return {}
        return self._measures.with_intervals(state.params["tables"])

    def score(self, scores: Metrics) -> float | None:
        """The score that `best_by` chooses; None without one."""
        return dict(zip(self.scores, scores, strict=True)).get(self._measures.best)

    def score_text(self, score: float) -> str:
        """A score with the name that the log has."""
        return f"{self._measures.best} {score:.4f}"

    @property
    def baselines(self) -> dict[str, float]:
        """What counting scores, by "SCORE by MODEL"."""
        return self._measures.baselines

    @property
    def description(self) -> list[str]:
        """The corpus, the updates and the learning rate, as lines of text."""
        encoded, kept, tokens = self.encoded, self.kept_tokens, self._tokens_per_update
        updates = -int(-self._packed_tokens // tokens)
        rates = ", ".join(f"{self.rate(p):.4g}" for p in (0, 0.25, 0.5, 0.75, 1))
        return [
            encoded.description,
            *self.start_lines,
            f"updates: {updates:,} an epoch on average, "
            f"{updates * len(self.epochs):,} in all, of {tokens:,} tokens each, "
            f"compiled by {self.backend}; {self._kept_by} "
            f"{kept / encoded.num_tokens:.1%}",
            f"learning rate at 0, 25, 50, 75, 100 %: {rates}",
            *self._held_out_lines,
            *self._replicas_lines,
        ]

    @property
    def corpus_facts(self) -> dict[str, float]:
        """See `problem.Training`."""
        encoded, sample = self.encoded, self.config.tables.sample
        counts = encoded.vocabulary.counts
        return {
            "sequences": int(encoded.shard_sequences.sum()),
            "tokens": int(encoded.raw_tokens),
            "known_tokens": int(encoded.num_tokens),
            "kept_share": round(expected_tokens(counts, sample) / counts.sum(), 6),
        }

    @property
    def start_lines(self) -> tuple[str, ...]:
        """Which rows start from vectors, and which are frozen."""
        return self._start.lines

    @property
    def _kept_by(self) -> str:
        """The settings that leave out tokens, as the subject of a sentence."""
        names = ["bootstrap"] * self.config.run.bootstrap
        names += ["holdout"] * bool(self.config.tables.sequence_holdout)
        if not names:
            return "sample keeps"
        return f"{', '.join(['sample', *names[:-1]])} and {names[-1]} keep"

    @property
    def _held_out_lines(self) -> list[str]:
        if not (share := self.config.tables.sequence_holdout):
            return []
        sequences = self.encoded.own_sequences
        num = num_held_out(sequences, share).sum()
        return [f"held out: {num:,} of {sequences.sum():,} sequences"]

    @property
    def _replicas_lines(self) -> list[str]:
        if not self.has_replicas:
            return []
        seeds = f"{self.replicas[0].run.seed} to {self.replicas[-1].run.seed}"
        return [f"replicas: {len(self.replicas)}, trained as with the seeds {seeds}"]

    @property
    def kept_tokens(self) -> float:
        """Expected number of tokens of the corpus that an epoch keeps, at most."""
        counts = self.encoded.vocabulary.counts
        samples = {each.tables.sample for each in self.replicas}
        most = max(expected_tokens(counts, sample) for sample in samples)
        share = most / counts.sum()
        if self.config.run.bootstrap:
            share *= expected_share(int(self.encoded.shard_sequences.sum()))
        return share * self._trained_share * self.encoded.num_tokens

    @functools.cached_property
    def _packed_tokens(self) -> float:
        """`kept_tokens`, with the padding of blocks of whole sequences."""
        options, kept = self.config.tables, self.kept_tokens
        if not options.has_whole_sequences or not kept:
            return kept
        share = kept / self.encoded.num_tokens
        return kept / filled_share(self._first_lengths, share, options.update_size[0])

    @functools.cached_property
    def _first_lengths(self) -> np.ndarray:
        """Lengths of the sequences of the first shard, i64[m]; of walks the largest."""
        encoded, options = self.encoded, self.config.tables
        if options.walks:
            return np.full(encoded.shard_sequences[:1].sum(), options.walk_length)
        if not len(encoded.shard_tokens):
            return np.empty(0, np.int64)
        return encoded.shard(0, seed=0, epoch=0)[1].astype(np.int64)

    def _log_long_sequences(self) -> None:
        """Logs how many sequences are not whole in a block."""
        options, lengths = self.config.tables, self._first_lengths
        block, _ = options.update_size
        if num := np.count_nonzero(lengths > block):
            most = options.tile * ((MOST_DISTANCE + 1) // options.tile)
            _log.info(
                "%d of the first %d sequences have more than `block` = %d tokens: an "
                "epoch trains a random part of their pairs.%s",
                *(num, len(lengths), block),
                f" `block` may be up to {most}." if block < most else "",
            )

    @functools.cached_property
    def _trained_share(self) -> float:
        """Share of the tokens that are not held out."""
        return trained_share(self.encoded, self.config.tables.sequence_holdout)

    @property
    def memory(self) -> dict[str, int]:
        """Host memory in bytes that a run needs at most, by purpose."""
        needed = memory_needed(
            self.config,
            self.encoded,
            self.superblock_size,
            self._factored,
            self._depth,
            self.subwords,
        )
        return needed | {"vectors to start from": self._start.num_bytes}

    @property
    def device_memory(self) -> dict[str, int]:
        """Memory in bytes that a run needs on each device, by purpose."""
        return self._demand.device_bytes(self.layout)

    @property
    def devices_line(self) -> str:
        """The layout and the reason for it, as one line."""
        return devices_line(self._demand, self.layout, self._why)

    def initial_state(self) -> TrainState:
        """The state before the first update; of replicas with a first axis K."""
        states = [self._initial_state(each) for each in self.replicas]
        return stack_states(states) if self.has_replicas else states[0]

    @property
    def has_replicas(self) -> bool:
        """Whether there are several models."""
        return len(self.replicas) > 1

    def _initial_state(self, config: Config) -> TrainState:
        num_rows, options = len(self.encoded.vocabulary), config.tables
        shape = num_rows, options.vector_size
        output_rows = num_rows * options.num_output_tables
        model = _model(shape, output_rows, config, depth=0)
        state = initial_state(model, self.program.optimizer)
        if self.subwords is not None:
            state = self.subwords.with_first_rows(state, config.run.seed)
        self._start.begin(state.params["tables"])
        return state if self._base is None else self._begun_with(state, self._base)

    def state_of(self, model: ModelFile) -> TrainState:
        """The state at the end of a training of one model, by its model file."""
        return self._begun_with(self._initial_state(self.replicas[0]), model)

    def _begun_with(self, state: TrainState, model: ModelFile) -> TrainState:
        """`state` with the rows of `model` as the first ones."""
        if self.subwords is not None:
            assert model.subwords is not None, "a model with subwords"
            state = self.subwords.with_rows(state, model.subwords)
        tables = {"input": model.input, "output": model.output}
        _begin_with(state.params["tables"], tables)
        if model.settings["optimizer"] != self.config.run.optimizer:
            return state
        rule = self.program.optimizer
        row_state = rule.row_state(state.opt_state)
        _begin_with(row_state, model.row_state)
        opt_state = rule.with_row_state(state.opt_state, row_state)
        return state._replace(opt_state=opt_state)

    def rate(self, progress):
        """Learning rate at `progress` of the first model."""
        return _rate(self.replicas[0])(progress)

    def calls(
        self, state: PlacedState, epoch: int, after: tuple[int, ...] = ()
    ) -> Iterator[CallResult]:
        """The calls of one epoch, a superblock each; see `engine.loop.run_calls`.

        `after` is the position of the last update that `state` includes; (): none.
        """
        host = self.host_calls(epoch, after)
        _, num_blocks = self.config.tables.update_size
        apply, place = self.program.apply_updates, self.program.place_batch
        if self.layout.mode == "sharded":
            replica_axes = REPLICA_AXES if self.has_replicas else None
            batches = sharded_batches(
                host, self.layout, num_blocks, TABLE_AXES, replica_axes
            )
            return run_calls(apply, state, batches)
        placed = ((updates, num, place(batch)) for updates, num, batch in host)
        return run_calls(apply, state, placed)

    def host_calls(self, epoch: int, after: tuple[int, ...] = ()) -> Generator[Call]:
        """The updates of each call after the positions `after` of the replicas, how
        many are real, and their batch, which is not placed."""
        size = len(loader.START)
        after = after or len(self.replicas) * loader.START
        positions = [after[k : k + size] for k in range(0, len(after), size)]
        calls = [
            self._calls_of(model, source, epoch, position)
            for model, source, position in zip(
                self.replicas, self.sources, positions, strict=True
            )
        ]
        if not self.has_replicas:
            return calls[0]
        together = side_by_side(calls, positions, self._empty)
        if self.backend == "numba":
            return together
        return (
            (updates, num, stack_batches(batches, REPLICA_AXES))
            for updates, num, batches in together
        )

    def _calls_of(
        self, model: Config, source: BlockSource, epoch: int, after: tuple[int, ...]
    ) -> Generator[tuple[Updates, int, Batch]]:
        shard, block = after
        superblocks = loader.epoch_superblocks(
            self.loader,
            source,
            epoch,
            size=self.superblock_size,
            workers=loader.loader_workers(self.config.run),
            after=(shard, block),
        )
        dtype = np.dtype(self.config.run.dtype)
        batches = host_batches(superblocks, _rate(model), dtype, self.tree)
        if self._has_own_settings and self.backend == "xla":
            return _with_own_settings(batches, model.tables, dtype)
        return batches

    def _empty(self, call: tuple[Updates, int, Batch]) -> tuple[Updates, int, Batch]:
        """A call like `call`, of no real updates."""
        updates, _, batch = call
        empty = loader.pad(loader.cut(updates, 0, 0), updates.num_updates)
        return empty, 0, batch._replace(blocks=empty.blocks)


def _rate(config: Config) -> Callable[[Any], Any]:
    """The learning rate at a progress, a number or an array."""
    options = config.tables
    assert options.alpha is not None, "`config` must be resolved"
    return functools.partial(
        linear_rate, alpha=options.alpha, min_alpha=options.min_alpha
    )


def _with_own_settings(
    batches: Iterable[tuple[Updates, int, Batch]],
    options: TablesOptions,
    dtype: np.dtype,
) -> Generator[tuple[Updates, int, Batch]]:
    """`batches` with the settings of their model that XLA is given as arrays."""
    limit = options.max_pairs_per_row
    negative = np.array([options.negative], dtype)
    cap = np.array([math.inf if limit is None else limit], dtype)
    for updates, num_updates, batch in batches:
        yield updates, num_updates, batch._replace(negative=negative, cap=cap)


_READ_FROM_BATCHES: dict[str, Any] = {"negative": 1, "max_pairs_per_row": None}
"""Settings that the program of models with settings of their own reads from batches."""


def _program_config(config: Config) -> Config:
    """`config` without the settings that only sources and rates read."""
    defaults = {"sample": 0.0, "ns_exponent": 0.75, "alpha": None, "min_alpha": 0.0}
    return with_options(config, seed=1, **defaults)


def _begin_with(arrays: dict[str, np.ndarray], first: RowState) -> None:
    """Replaces the first rows of each of `arrays`."""
    for name, rows in first.items():
        arrays[name] = np.concatenate([rows, arrays[name][len(rows) :]])


def pick_backend(
    config: Config, num_words: int, layout: Layout
) -> Literal["xla", "numba"]:
    """The compiler of the updates of a run over `num_words` in all its epochs.

    Raises:
      InputError: `backend` is numba, which is not installed or has no such kernel.
    """
    options = config.tables
    if options.backend == "numba" and not _has_numba():
        raise InputError(
            "`backend` is 'numba', which cannot be imported: pip install numba."
        )
    lacks = _lacks_kernel(options, config.run.optimizer)
    if options.backend == "numba" and lacks:
        raise InputError(f"`backend` must be 'xla' with {lacks}, got 'numba'.")
    if options.backend != "auto":
        return options.backend
    if options.has_whole_sequences:
        num_words *= _WHOLE
    if options.subwords:
        num_words *= _SUBWORDS
    is_long = num_words >= _LONG_RUN and options.update == "rows" and not lacks
    if is_long and loader.is_one_cpu(layout) and _has_numba():
        return "numba"
    return "xla"


def _lacks_kernel(options: TablesOptions, optimizer: str) -> str:
    """The setting that no kernel has; empty: there is a kernel."""
    if options.architecture not in cpu.OBJECTIVES:
        return f"`architecture` {options.architecture!r}"
    if optimizer not in cpu.OPTIMIZERS:
        return f"`optimizer` {optimizer!r}"
    return ""


def _has_numba() -> bool:
    """Whether Numba can be imported, with this version of NumPy."""
    try:
        importlib.import_module("numba")
    except ImportError:
        return False
    return True


@dataclasses.dataclass(frozen=True, kw_only=True)
class TablesProgram(Program):
    """The compiled part of a run of tables."""

    model: Model  # of whole tables
    optimizer: RowRule


@functools.lru_cache(maxsize=8)
def make_program(
    num_rows: int,
    interval: int,
    config: Config,
    layout: Layout = ONE_DEVICE,
    models: tuple[Config, ...] = (),
    factored: tuple[str, ...] = (),
    depth: int = 0,
    subwords: SubwordSizes | None = None,
) -> TablesProgram:
    """The compiled updates of a run; the same arguments return the same program.

    XLA compiles them unless `backend` is "numba". `config` is resolved.

    Args:
      models: the settings of each model, for the kernel; (): those of `config`. XLA
        reads them from the batches.
      factored: names of the tables whose rows have factors; see `factored_program`.
      depth: of the tree of hierarchical softmax; 0: there is none.
      subwords: of a model with subwords; see `subword_program`.
    """
    enable_compilation_cache()
    options, has_replicas = config.tables, config.run.replicas > 1
    shape = num_rows, options.vector_size
    output_rows = num_rows * options.num_output_tables
    whole = _model(shape, output_rows, config, depth)
    optimizer = row_rule(config.run.optimizer, options.max_pairs_per_row)
    if options.backend == "numba":
        from embedder.tables.cpu import kernel

        threads = options.threads or kernel.available_cores()

        @functools.cache
        def program(window: int, negative: int, cap: float | None) -> Program:
            return kernel.place(
                whole._replace(window=window, negative=negative),
                cap,
                loss_interval=interval,
                threads=1 if has_replicas else threads,
                optimizer=config.run.optimizer,
            )

        each = [
            program(one.max_distance, one.negative, one.max_pairs_per_row)
            for one in (model.tables for model in models or replicas_of(config))
        ]
        placed = on_threads(each, min(threads, len(each))) if has_replicas else each[0]
    else:
        placed = place(
            _model(
                layout.device_shape(*shape),
                layout.device_shape(output_rows, shape[1])[0],
                config,
                depth,
            ),
            optimizer,
            layout,
            shape,
            update=options.update,
            loss_interval=interval,
            has_replicas=has_replicas,
            factored=factored,
            output_rows=output_rows,
            subwords=subwords,
        )
    return TablesProgram(model=whole, optimizer=optimizer, **vars(placed))


def _model(
    shape: tuple[int, int], output_rows: int, config: Config, depth: int
) -> Model:
    options, dtype = config.tables, np.dtype(config.run.dtype)
    is_sampled = options.negative > 0
    return Model(
        tables(*shape, dtype=dtype, seed=config.run.seed, output_rows=output_rows),
        objective_of(options.architecture, depth, is_sampled, options.cbow_mean),
        options.max_distance,
        options.negative,
    )


def host_batches(
    superblocks: Iterable[tuple[Updates, int]],
    rate: Callable[[np.ndarray], np.ndarray],
    dtype: np.dtype,
    tree: Tree | None = None,
) -> Generator[tuple[Updates, int, Batch]]:
    """Superblocks as batches of NumPy, each with its updates and how many are real.

    `rate` maps the progress of updates to their learning rates, f64[S].
    """
    above = None if tree is None else tree.above
    for updates, num_updates in superblocks:
        rates = rate(updates.progress).astype(dtype)
        yield updates, num_updates, Batch(updates.blocks, rates, above=above)


def _sources(
    models: Sequence[Config], encoded: TokenSource, epochs: range, layout: Layout
) -> list[BlockSource]:
    """The source of each model; models with equal settings share its tables."""

    @functools.cache
    def source(config: Config) -> BlockSource:
        return _source(config, encoded, epochs, layout)

    return [
        source(with_options(each, **_NOT_OF_SOURCES)).with_seed(each.run.seed)
        for each in models
    ]


_NOT_OF_SOURCES: dict[str, Any] = {
    **_READ_FROM_BATCHES,
    **{"seed": 1, "alpha": None, "min_alpha": 0.0},
}
"""Settings of a model on which its source does not depend, with any value."""


def _source(
    config: Config, encoded: TokenSource, epochs: range, layout: Layout
) -> BlockSource:
    options = config.tables
    block, num_blocks = options.update_size
    return block_source(
        encoded,
        BlockShape(
            window=options.max_distance,
            block=block,
            tile=options.tile,
            noise=options.num_noise,
            blocks_per_update=num_blocks,
            whole_sequences=options.has_whole_sequences,
            shrink_windows=options.shrink_windows,
        ),
        sample=options.sample,
        ns_exponent=options.ns_exponent,
        seed=config.run.seed,
        epochs=epochs,
        share=local_blocks(layout, num_blocks),
        bootstrap=config.run.bootstrap,
        holdout=options.sequence_holdout,
    )
