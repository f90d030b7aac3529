"""Training of tables in memory: the compiled updates of a `TrainingPlan`."""

import functools
import logging
import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from embedder.config import Config, with_options
from embedder.config.token_options import MOST_DISTANCE, TokensOptions
from embedder.data.blocks import (
    BlockShape,
    BlockSource,
    Sampling,
    StepBatches,
    block_source,
)
from embedder.data.encoded import TokenSource
from embedder.data.huffman import Tree, path_lengths
from embedder.data.split import num_held_out
from embedder.data.vocabulary import expected_tokens
from embedder.engine.compilation import prepare_devices
from embedder.engine.compiled_step import PlacedState
from embedder.engine.devices import devices_line, pick_layout
from embedder.engine.epochs import Metrics
from embedder.engine.feed import local_blocks, sharded_batches
from embedder.engine.loop import CallResult, run_calls
from embedder.engine.mesh_layout import MeshLayout
from embedder.engine.replicas import (
    Call,
    side_by_side,
    stack_batches,
    stack_states,
    unstack_states,
)
from embedder.engine.rules import linear_rate
from embedder.engine.state import TrainState
from embedder.metrics.score_table import ScoreTable
from embedder.tokens import loader
from embedder.tokens.artefact import ModelFile
from embedder.tokens.backends import (
    READ_FROM_BATCHES,
    REPLICA_AXES,
    TABLE_AXES,
    model_of,
    pick_backend,
    program_of,
)
from embedder.tokens.memory import check_tables_fit, memory_needed
from embedder.tokens.plan import TrainingPlan
from embedder.tokens.prepare import Batch, log_noise
from embedder.tokens.train_step import RowState, initial_state
from embedder.tokens.training_scores import TrainingScores, training_scores

_log = logging.getLogger(__name__)


class TokensTrainer:
    """A training of tables, without its state: resolved settings and a corpus."""

    rate_name, base_flag = "alpha", "--resume"
    memory_advice = "give a smaller `vector_size` or `block`, or a larger `min_count`."
    zero_loss_message = (
        "No token has another in its window, after subsampling (`sample`): nothing is "
        "learned."
    )

    def __init__(self, plan: TrainingPlan):
        prepare_devices()
        config, encoded, models = plan.config, plan.encoded, plan.models
        options = config.tables
        self.plan = plan
        self.encoded, self.epochs = encoded, plan.epochs
        self.item_key, self.item_name = encoded.item_key, encoded.item_name
        self.start_lines = plan.start.lines
        self.replicas, self.has_replicas = plan.replicas, len(plan.replicas) > 1
        self.may_diverge = bool(models)
        has_limit = options.max_pairs_per_row is not None
        smaller = "`alpha` or `max_pairs_per_row`" if has_limit else "`alpha`"
        self.divergence_message = f"training diverged. Give a smaller {smaller}."
        # models with settings of their own are scored by a sweep
        self._scores = (
            TrainingScores(options)
            if models
            else training_scores(options, encoded, config.needs_best)
        )
        self.scores = self._scores.names
        self.metrics: tuple[str, ...] = ("loss", *self.scores)
        self.updates_per_call = plan.updates_per_call
        if options.has_whole_sequences and not models:
            _log_long_sequences(plan)
        self._demand = plan.demand
        self.layout, self._why = pick_layout(config.devices, self._demand)
        self.loader = loader.pick_loader(config.run.loader, self.layout)
        self.config = with_options(config, loader=self.loader)  # as it was picked
        self.sources = _sources(self.replicas, encoded, self.epochs, self.layout)
        num_words = encoded.raw_tokens * len(self.epochs)  # of one model
        self.backend: str = pick_backend(config, num_words, self.layout)
        check_tables_fit(plan.shape, self._demand, self.layout)
        self.program = program_of(plan, self.backend, self.layout)

    @property
    def content(self) -> str:
        """Digest of the tokens and their counts, or of the graph."""
        return self.encoded.content

    @property
    def items(self) -> int:
        """Words of the corpus, or nodes of the walks of an epoch."""
        return self.encoded.raw_tokens

    @property
    def start_loss(self) -> float:
        """Loss of the initial vectors, whose scores are all 0."""
        options, path_length = self.config.tables, 0.0
        if tree := self.plan.tree:
            counts = self.encoded.vocabulary.kept_counts(options.sample)
            path_length = np.average(path_lengths(tree), weights=counts)
        objective = self.program.model.objective
        return objective.start_loss(options.negative, options.num_noise, path_length)

    @property
    def usual_loss(self) -> float:
        """That of the initial vectors."""
        return self.start_loss

    def summary(self, sums: tuple[float, ...]) -> Metrics:
        """The mean loss of an epoch, of replicas the mean."""
        loss, num_terms = sums or (0.0, 0.0)
        return (loss / num_terms if num_terms else 0.0,)

    def evaluate(self, state: PlacedState) -> Metrics:
        """The scores of the vectors, see `training_scores`; of replicas the means."""
        whole = self.program.whole_state(state)
        models = unstack_states(whole) if self.has_replicas else [whole]
        return self._scores.means([model.params["tables"] for model in models])

    def scores_with_intervals(self, state: TrainState) -> ScoreTable:
        """The scores of the vectors of a whole state, and of baselines; {}: nothing
        measures them, or they are of replicas."""
        if self.has_replicas or not self.scores:
            return {}
        return self._scores.with_intervals(state.params["tables"])

    def score(self, scores: Metrics) -> float | None:
        """The score that tells the best evaluation; None without one."""
        return self._scores.best_of(scores)

    def score_text(self, score: float) -> str:
        """A score with the name that the log has."""
        return self._scores.best_text(score)

    @property
    def baselines(self) -> dict[str, float]:
        """What counting scores, by "SCORE by MODEL"."""
        return self._scores.baselines

    @property
    def description(self) -> list[str]:
        """The corpus, the updates and the learning rate, as lines of text."""
        encoded, tokens = self.encoded, self.plan.tokens_per_update
        updates = -int(-self.plan.packed_tokens // tokens)
        rates = ", ".join(f"{self.rate(p):.4g}" for p in (0, 0.25, 0.5, 0.75, 1))
        share = self.config.tables.sequence_holdout
        others = ["bootstrap"] * self.config.run.bootstrap + ["holdout"] * bool(share)
        kept_by = "sample keeps"  # and others that leave out tokens
        if others:
            kept_by = f"{', '.join(['sample', *others[:-1]])} and {others[-1]} keep"
        lines = [
            encoded.description,
            *self.start_lines,
            f"updates: {updates:,} an epoch on average, "
            f"{updates * len(self.epochs):,} in all, of {tokens:,} tokens each, "
            f"compiled by {self.backend}; {kept_by} "
            f"{self.plan.kept_tokens / encoded.num_tokens:.1%}",
            f"learning rate at 0, 25, 50, 75, 100 %: {rates}",
        ]
        if share:
            sequences = encoded.own_sequences
            num = num_held_out(sequences, share).sum()
            lines.append(f"held out: {num:,} of {sequences.sum():,} sequences")
        if self.has_replicas:
            first, last = self.replicas[0].run.seed, self.replicas[-1].run.seed
            text = f"{len(self.replicas)}, trained as with the seeds {first} to {last}"
            lines.append(f"replicas: {text}")
        return lines

    @property
    def corpus_facts(self) -> dict[str, float]:
        """See `Trainer`."""
        encoded, sample = self.encoded, self.config.tables.sample
        counts = encoded.vocabulary.counts
        return {
            "sequences": int(encoded.shard_sequences.sum()),
            "tokens": int(encoded.raw_tokens),
            "known_tokens": int(encoded.num_tokens),
            "kept_share": round(expected_tokens(counts, sample) / counts.sum(), 6),
        }

    @property
    def memory(self) -> dict[str, int]:
        """Host memory in bytes that a run needs at most, by purpose."""
        size, parts = self.updates_per_call, self.plan.parts
        needed = memory_needed(self.config, self.encoded, size, parts)
        attributes = self.plan.attributes
        return needed | {
            "vectors to start from": self.plan.start.num_bytes,
            "attributes": 0 if attributes is None else 2 * attributes.num_bytes,
        }

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

    def _initial_state(self, config: Config) -> TrainState:
        base, model = self.plan.base, model_of(self.plan.shape, config)
        state = initial_state(model, self.program.optimizer)
        if self.plan.subwords is not None:
            state = self.plan.subwords.with_first_rows(state, config.run.seed)
        self.plan.start.begin(state.params["tables"])
        return state if base is None else self._begun_with(state, base)

    def state_of(self, model: ModelFile) -> TrainState:
        """The state at the end of a training of one model, by its model file."""
        return self._begun_with(self._initial_state(self.replicas[0]), model)

    def _begun_with(self, state: TrainState, model: ModelFile) -> TrainState:
        """`state` with the rows of `model` as the first ones."""
        if self.plan.subwords is not None:
            assert model.subwords is not None, "a model with subwords"
            num_words, attributes = len(model.tokens), model.attributes
            state = self.plan.subwords.begun_with(
                state, model.subwords, num_words, attributes
            )
        tables = {"input": model.input, "output": model.output}
        if model.attributes is not None:  # its items may have other ones now
            del tables["input"]
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
        """The calls of one epoch, a chunk each; see `training.loop.run_calls`.

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

        def empty(call: tuple[StepBatches, int, Batch]):
            """A call like `call`, of no real updates."""
            updates, _, batch = call
            none = loader.pad(loader.cut(updates, 0, 0), updates.num_updates)
            return none, 0, batch._replace(blocks=none.blocks)

        together = side_by_side(calls, positions, empty)
        if self.backend == "numba":
            return together
        return (
            (updates, num, stack_batches(batches, REPLICA_AXES))
            for updates, num, batches in together
        )

    def _calls_of(
        self, model: Config, source: BlockSource, epoch: int, after: tuple[int, ...]
    ) -> Generator[tuple[StepBatches, int, Batch]]:
        chunks = loader.epoch_chunks(
            *(self.loader, source, epoch),
            size=self.updates_per_call,
            workers=loader.loader_workers(self.config.run),
            after=(after[0], after[1]),
        )
        dtype = np.dtype(self.config.run.dtype)
        of_noise = log_noise(model.tables, self.encoded.vocabulary.counts, dtype)
        batches = host_batches(chunks, _rate(model), dtype, self.plan.tree, of_noise)
        if len(self.plan.models) > 1 and self.backend == "xla":
            return _with_own_settings(batches, model.tables, dtype)
        return batches


def _log_long_sequences(plan: TrainingPlan) -> None:
    """Logs how many sequences are not whole in a block."""
    options, lengths = plan.config.tables, plan.first_lengths
    block, _ = options.update_size
    if num := np.count_nonzero(lengths > block):
        most = options.tile * ((MOST_DISTANCE + 1) // options.tile)
        _log.info(
            "%d of the first %d sequences have more than `block` = %d tokens: an "
            "epoch trains a random part of their pairs.%s",
            *(num, len(lengths), block),
            f" `block` may be up to {most}." if block < most else "",
        )


def _rate(config: Config) -> Callable[[Any], Any]:
    """The learning rate at a progress, a number or an array."""
    options = config.tables
    assert options.alpha is not None, "`config` must be resolved"
    return functools.partial(
        linear_rate, alpha=options.alpha, min_alpha=options.min_alpha
    )


def _with_own_settings(
    batches: Iterable[tuple[StepBatches, int, Batch]],
    options: TokensOptions,
    dtype: np.dtype,
) -> Generator[tuple[StepBatches, int, Batch]]:
    """`batches` with the settings of their model that XLA is given as arrays."""
    limit = options.max_pairs_per_row
    negative = np.array([options.negative], dtype)
    cap = np.array([math.inf if limit is None else limit], dtype)
    for updates, num_updates, batch in batches:
        yield updates, num_updates, batch._replace(negative=negative, cap=cap)


def _begin_with(arrays: dict[str, np.ndarray], first: RowState) -> None:
    """Replaces the first rows of each of `arrays`."""
    for name, rows in first.items():
        arrays[name] = np.concatenate([rows, arrays[name][len(rows) :]])


def host_batches(
    chunks: Iterable[tuple[StepBatches, int]],
    rate: Callable[[np.ndarray], np.ndarray],
    dtype: np.dtype,
    tree: Tree | None = None,
    of_noise: np.ndarray | None = None,
) -> Generator[tuple[StepBatches, int, Batch]]:
    """Chunks as batches of NumPy, each with its updates and how many are real.

    `rate` maps the progress of updates to their learning rates, f64[S].
    """
    above = None if tree is None else tree.above
    for updates, num_updates in chunks:
        rates = rate(updates.progress).astype(dtype)
        batch = Batch(updates.blocks, rates, above=above, log_noise=of_noise)
        yield updates, num_updates, batch


def _sources(
    models: Sequence[Config], encoded: TokenSource, epochs: range, layout: MeshLayout
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
    **READ_FROM_BATCHES,
    **{"seed": 1, "alpha": None, "min_alpha": 0.0},
}
"""Settings of a model on which its source does not depend, with any value."""


def _source(
    config: Config, encoded: TokenSource, epochs: range, layout: MeshLayout
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
        Sampling(options.sample, options.ns_exponent),
        seed=config.run.seed,
        epochs=epochs,
        share=local_blocks(layout, num_blocks),
        bootstrap=config.run.bootstrap,
        holdout=options.sequence_holdout,
    )
