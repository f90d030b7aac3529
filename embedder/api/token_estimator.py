"""EmbeddingTrainer: the Python API, and the drop-in for `legacy.EmbeddingTrainer`."""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias, get_args

import jax
import numpy as np

from embedder import config as settings
from embedder.api.fitting import CallbackArgument, Fitting, Lines, fitting
from embedder.api.gensim_names import check_names, missing_attribute, names_successors
from embedder.api.table_epochs import (
    SubwordRows,
    TokenIds,
    TrainedEpochs,
    TrainingTables,
    train_epochs,
)
from embedder.base.threads import in_turn, use_threads
from embedder.config import Config
from embedder.config.presets import PRESETS, Preset
from embedder.config.settings import choice, integer
from embedder.config.token_objectives import OPTIMIZERS
from embedder.config.token_options import NOISE, Schedule, Window
from embedder.data.attribute_tables import given_attributes
from embedder.data.columns import NOT_GIVEN, Columns
from embedder.data.corpus import Corpus, sequences_corpus
from embedder.data.earlier import EarlierCorpus
from embedder.data.encoded import Encoded
from embedder.data.graph import GraphFiles, given_edges
from embedder.data.sessions import frame_corpus
from embedder.data.sources import file_corpus
from embedder.data.tables.frames import lazy_frame
from embedder.data.vocabulary import NoTokensError, Vocabulary
from embedder.engine.epochs import Status
from embedder.engine.replicas import unstack_states
from embedder.engine.rules import row_rule
from embedder.engine.state import TrainState
from embedder.errors import InputError, InputKeyError, InputTypeError
from embedder.metrics.next_item_scores import (
    DEFAULT_WEIGHTS,
    BySeen,
    Mixture,
    NextItems,
    SessionCounts,
)
from embedder.metrics.ranking import Seen
from embedder.metrics.score_table import ScoreTable
from embedder.tokens.artefact import (
    MODEL_SETTINGS,
    KeyType,
    ModelFile,
    model_settings,
    read_model,
    write_model,
)
from embedder.tokens.continue_training import log_dropped, log_restart
from embedder.tokens.initialization import Initialization
from embedder.tokens.plan import TrainingInputs, plan
from embedder.tokens.pretrained import given_start
from embedder.tokens.session_counts import (
    choose_weights,
    count_sessions,
    keeps_next_items,
    next_items_of,
    with_mixture,
)
from embedder.tokens.subwords import TABLE
from embedder.tokens.train_step import host_state
from embedder.tokens.trainer import TokensTrainer
from embedder.vectors.attributes import AttributeRows, Attributes
from embedder.vectors.ensemble import Ensemble
from embedder.vectors.reduce import Dtype
from embedder.vectors.search import cosines, unit_rows
from embedder.vectors.subwords import Ngrams
from embedder.vectors.vectors import Vectors, short_repr, typed_keys

if TYPE_CHECKING:
    from embedder.report.page import Report

Key = str | int
Source = str | os.PathLike | Iterable[Iterable[Key]] | Any
"""Sequences, or a path, or a table of polars, Arrow or pandas."""

Start: TypeAlias = "str | os.PathLike | Vectors | EmbeddingTrainer | None"
"""Vectors that tokens start from: a file, a run, `Vectors`, or a trainer."""


_FLAT, _FEWEST_EPOCHS = 0.01, 5
"""Share of the loss that an epoch of `fold_in` takes off, or it is the last one; and
the fewest epochs."""


class EmbeddingTrainer:
    """Skip-gram and CBOW embeddings of tokens, trained with negative sampling or
    hierarchical softmax. Equations are those of ALGORITHM.md.

    Args:
      vector_size: Dimensions of the vectors.
      window: Largest distance of a context. Each token draws its distance from 1 to
        this; see `shrink_windows`. session: each item of a session is a context of each
        other one. Equations (3) and (66).
      negative: Negative samples per pair; 0, only with `hs`: none. Equations (7) and
        (8).
      min_count: Ignore tokens that occur less often than this.
      sample: Randomly drop tokens more frequent than this share of the corpus; 0: none.
        Equation (1).
      ns_exponent: Draw noise tokens in proportion to count ** ns_exponent. Equation
        (2).
      alpha: Learning rate at the start; None: chosen for the corpus, by the updates
        that rows get and the size of an update. It is 0.025 to 0.17 for texts, and for
        walks at most 0.025, less where they often return to their nodes. For cbow it is
        four times that, for sums at most once; for adagrad it is 0.2. Equation (43).
      min_alpha: Learning rate at the end. It falls linearly. Equation (19).
      epochs: Passes over the data; 0 writes the initial vectors.
      architecture: "skipgram" or "cbow" or "cbow-softmax". skipgram: predict the
        contexts from a token. cbow: predict a token from the mean of its contexts, or
        their sum; see `cbow_mean`. cbow-softmax: cbow in which near contexts count
        more, by a softmax over the token and the noise; equation (99).
      seed: Seed of all random numbers: initial vectors, order, sampling, noise.
      workers: Number of threads that prepare batches.
      block: Tokens in a block; None: 64, rounded up to a multiple of the tile; with
        `window` session 128, rounded down. Equation (29).
      tile: Tokens that share noise tokens. It must divide the block. Equation (30).
      noise: Noise tokens of a tile, shared by its pairs; None: 32, with window session
        twice the tokens of a block, with `negative` 0 one.
      cap: Of sgd: a row moves in one update at most as far as this many pairs would
        move it; None: 1.6 / alpha, at most 128, and less with `window` session and on
        walks; inf: no limit. Equations (18) and (44).
      blocks_per_update: Blocks whose gradients are summed in one update; None: by the
        size of the corpus, 1 to 256. Larger updates keep more cores and GPUs busy.
        Equation (54).
      dtype: "float32" or "float64". Type of the vectors and of all arithmetic on them.
      optimizer: Optimizer. For tokens: sgd or adagrad. For an encoder: an optimizer of
        optax by name, such as sgd, adam, adamw, rmsprop or lion; adam if none is given.
      hs: Hierarchical softmax: predict a token by its path in a Huffman tree; with
        `negative` 0 instead of negative sampling, else beside it. Equations (89) to
        (92).
      subwords: Vectors of words from n-grams of MIN to MAX characters, as fastText,
        such as 3 6: unknown words have vectors, too. (): each word has a row of its
        own. Equations (93) to (96).
      buckets: Of `subwords`: numbers that n-grams are hashed to. Those that the
        vocabulary has take memory.
      cbow_mean: Of cbow: the mean of the vectors of contexts; without it, their sum.
        Equations (8) and (97).

    Raises:
      TypeError, ValueError: an argument is out of its bounds; the message names it.
    """

    min_count: int
    epochs: int
    negative: int
    optimizer: str
    hs: bool
    subwords: tuple[int, ...]
    buckets: int
    _lines: Lines = ()  # of the last epochs, as in metrics.jsonl
    _noun = ""  # what messages call the tokens that it was trained on
    _scores: ScoreTable = {}  # pickles of earlier versions have none
    _counts: SessionCounts | None = None  # of `fit` with `next_items`
    _weights: BySeen = DEFAULT_WEIGHTS
    _next: NextItems | None = None  # of the state, once asked for
    _attributes: Attributes | None = None  # of the state
    _times: Lines = ()  # of the first call of each training, as in progress.jsonl

    @names_successors
    def __init__(
        self,
        *,
        vector_size: int = 100,
        window: Window = 5,
        negative: int = 5,
        min_count: int = 5,
        sample: float = 1e-3,
        ns_exponent: float = 0.75,
        alpha: float | None = None,
        min_alpha: float = 1e-4,
        epochs: int = 5,
        architecture: str = "skipgram",
        seed: int = 1,
        workers: int = 1,
        block: int | None = None,
        tile: int = 16,
        noise: int | None = None,
        cap: float | None = None,
        blocks_per_update: int | None = None,
        dtype: str = "float32",
        optimizer: str = "sgd",
        hs: bool = False,
        subwords: Sequence[int] = (),
        buckets: int = 2_000_000,
        cbow_mean: bool = True,
    ):
        arguments = {name: value for name, value in locals().items() if name != "self"}
        vars(self).update(_checked(arguments))
        self._loss_history: list[float] = []
        self._score_history: list[dict[str, float | None]] = []
        self._vocabulary: Vocabulary | None = None
        self._key_type: KeyType = "text"
        self._block = 0  # tokens of a block, resolved when the vocabulary is made
        self._state: TrainState | None = None
        self._objective = self._objective_now  # of the state
        self._vectors: Vectors | None = None  # of the state, once asked for
        self._ensemble: Ensemble | None = None  # of the last training

    @classmethod
    def preset(cls, name: Preset, **arguments: Any) -> "EmbeddingTrainer":
        """An untrained trainer with the settings of a preset: items, words or graph.

        The walks of a graph are the defaults of `fit_graph`; `next_items` of items is
        an argument of `fit`.

        Args:
          arguments: of `EmbeddingTrainer`; they override the preset.

        Raises:
          TypeError, ValueError: there is no such preset, or an argument is out of its
            bounds.
        """
        choice(tuple(PRESETS))(SimpleNamespace(preset=name), "preset")
        others = "walks", "walk_length", "next_items"  # of `fit_graph` and `fit`
        own = {k: v for k, v in PRESETS[name].items() if k not in others}
        return cls(**(own | arguments))

    def __repr__(self) -> str:
        arguments = ", ".join(f"{k}={v!r}" for k, v in self._settings().items())
        return f"EmbeddingTrainer({arguments})"

    @in_turn
    def fit(
        self,
        sequences_or_path: Source,
        *,
        holdout: float | None = None,
        next_items: bool = False,
        attributes: Any = None,
        session: str = "",
        item: str = "",
        order: str = "",
        items: str = "",
        weights: str = "",
        init_from: Start = None,
        freeze: str | Iterable[Key] = "",
        verbose: bool | None = None,
        callbacks: CallbackArgument = (),
    ) -> "EmbeddingTrainer":
        """Trains from the start; returns the trainer. An error leaves it as it was.

        Args:
          sequences_or_path: lists of tokens, all of them text or all integers, read
            once; a table of sessions: a frame of polars or pandas, or of Arrow; or the
            path of a text file (.txt, .gz) with a sequence a line, of a table (Parquet,
            Arrow, CSV, JSON lines), a glob of such files, or a folder.
          session, item, order: columns of a table with a row for each item; those that
            are not given are found by their names; order "none": that of the rows.
          items: column of a table whose rows are sessions.
          weights: column of the weights of sessions: each pair of a session counts as
            often as its weight.
          holdout: share of the sequences that is not trained on, the same for every
            seed; `held_out_history` has the scores on them. None: 0, but with
            `next_items` 0.05, at most 20,000 sequences.
          next_items: keep what `next_items` needs: counts of the sequences, and the
            weights of a mixture of them and the vectors.
          attributes: of items, whose vectors are made of their own rows and those of
            their attributes: the path of a table, whose columns are attributes; a list
            of a path and columns, as ["items.csv", "category", "words:title"]; a frame;
            or a mapping from keys to texts, as {"a": ["category=mugs"]}. Items without
            a sequence have vectors then, too.
          init_from: vectors that tokens start from: a file, a run, `Vectors` or a
            trainer; other tokens start as without.
          freeze: tokens whose vectors stay as they start: "all"; "known", those of
            `init_from`; keys, or the path of a file with a key a line.
          verbose: True shows a bar on a terminal or in a notebook, and lines elsewhere;
            False nothing; None a bar, if the training takes more than a second.
          callbacks: functions that get a `Status` after each epoch; `every(N, f)`
            calls f after N updates each. One that returns True stops the training,
            which is kept as it is then; `loss_history` has the whole epochs.

        Raises:
          FileNotFoundError: there is no such file.
          TypeError: a sequence is a string, or a token is not one.
          ValueError: nothing is left after `min_count`, or a file is not text.
          FloatingPointError: training diverged.
        """
        columns = Columns(session, item, order, items, weights)
        return self._fit(
            lambda config: (_corpus(sequences_or_path, columns), config),
            *((init_from, freeze), (verbose, callbacks)),
            attributes=attributes,
            holdout=holdout,
            next_items=next_items,
        )

    def _fit(
        self,
        open_data: Callable[[Config], tuple[Corpus | GraphFiles, Config]],
        start: tuple[Start, str | Iterable[Key]],
        watch: tuple[bool | None, CallbackArgument],
        attributes: Any = None,
        **options: Any,
    ) -> "EmbeddingTrainer":
        """Trains from the start with the settings `options`; returns the trainer.

        Args:
          open_data: settings -> the data, and the settings with what these say.
          start: `init_from` and `freeze`.
          watch: `verbose` and `callbacks`.
          attributes: of items, as of `fit`.
        """
        config = settings.with_options(self._config(), **options)
        with fitting(*watch) as run:
            data, config = open_data(config)
            begin = self._starting(*start)
            inputs = TrainingInputs(
                config=config,
                source=data,
                start=begin,
                attributes=given_attributes(attributes),
            )
            self._train(run, inputs)
        return self

    @in_turn
    def fit_ensemble(
        self,
        sequences_or_path: Source,
        replicas: int = 10,
        *,
        bootstrap: bool = False,
        holdout: float = 0.0,
        attributes: Any = None,
        session: str = "",
        item: str = "",
        order: str = "",
        items: str = "",
        weights: str = "",
        init_from: Start = None,
        freeze: str | Iterable[Key] = "",
        verbose: bool | None = None,
        callbacks: CallbackArgument = (),
    ) -> "EmbeddingTrainer":
        """Trains `replicas` models side by side from the start; returns the trainer.

        The k-th, from 0, is the model that `fit` trains with `seed` + k. All of them
        are `ensemble_` then; everything else is of the first, but for `loss_history`
        and `held_out_history`, which have their means.

        Args:
          sequences_or_path, session, item, order, items, weights: as for `fit`.
          replicas: number of models, at least 2.
          bootstrap: each trains on a resample of the sequences of its own.
          holdout, attributes, init_from, freeze: as for `fit`, of all models.
          verbose, callbacks: as for `fit`.

        Raises:
          as `fit`; ValueError: `replicas` is less than 2.
        """
        numbers = SimpleNamespace(replicas=replicas)
        integer(2)(numbers, "replicas")
        columns = Columns(session, item, order, items, weights)
        return self._fit(
            lambda config: (_corpus(sequences_or_path, columns), config),
            *((init_from, freeze), (verbose, callbacks)),
            attributes=attributes,
            replicas=numbers.replicas,
            bootstrap=bootstrap,
            holdout=holdout,
        )

    @in_turn
    def fit_graph(
        self,
        graph: Any,
        walks: int = 10,
        walk_length: int = 80,
        *,
        directed: bool | None = None,
        p: float = 1.0,
        q: float = 1.0,
        walks_fixed: bool = False,
        holdout: float = 0.0,
        source: str = "",
        target: str = "",
        weight: str = "",
        replicas: int = 1,
        attributes: Any = None,
        init_from: Start = None,
        freeze: str | Iterable[Key] = "",
        verbose: bool | None = None,
        callbacks: CallbackArgument = (),
    ) -> "EmbeddingTrainer":
        """Trains on random walks from the start; returns the trainer. An error leaves
        it as it was.

        Every node has a vector, whatever `min_count` is.

        Args:
          graph: the path of an edge list, a graph of networkx or igraph, or a sparse
            matrix of scipy. Nodes of an object that are integers stay integers.
          walks: from each node in an epoch.
          walk_length: nodes of a walk.
          directed: None: as the object says; of a path or a matrix False.
          p, q: of node2vec, ALGORITHM.md (63).
          walks_fixed: make the same walks in each epoch.
          holdout: share of the edges that no walk takes, the same for every seed,
            ALGORITHM.md (77); `score_history` has `link_auc` and `link_ap` of them.
          source, target, weight: columns of an edge list; "": by their order.
          replicas: models to train side by side, as `fit_ensemble` does; of several
            `ensemble_` has all. Each has the walks of its own seed.
          attributes, init_from, freeze: as for `fit`, of nodes.
          verbose, callbacks: as for `fit`.

        Raises:
          FileNotFoundError, TypeError, ValueError: `graph` or a setting is wrong.
          FloatingPointError: training diverged.
        """
        numbers = SimpleNamespace(walks=walks, replicas=replicas)
        integer(1)(numbers, "walks")
        integer(1)(numbers, "replicas")

        def open_data(config: Config) -> tuple[GraphFiles, Config]:
            edges, is_directed, key_type = given_edges(graph, config.tables)
            if directed is None:
                config = settings.with_options(config, directed=is_directed)
            files = GraphFiles("graph", "the graph", [], lambda: edges, key_type)
            return files, config

        return self._fit(
            *(open_data, (init_from, freeze), (verbose, callbacks), attributes),
            walks=walks,
            walk_length=walk_length,
            directed=False if directed is None else directed,
            p=p,
            q=q,
            walks_fixed=walks_fixed,
            holdout=holdout,
            source=source,
            target=target,
            weight=weight,
            replicas=replicas,
            min_count=1,
        )

    @property
    def ensemble_(self) -> Ensemble:
        """The vectors of all replicas of the last `fit_ensemble`, [K, V, D]; its tokens
        are `str` or `int` as they were given.

        Raises:
          RuntimeError: it was not the last training.
        """
        if self._ensemble is None:
            raise RuntimeError(
                "The trainer has no ensemble: call `fit_ensemble` first."
            )
        return self._ensemble

    @in_turn
    def partial_fit(
        self,
        sequences_or_path: Source,
        *,
        session: str = "",
        item: str = "",
        order: str = "",
        items: str = "",
        weights: str = "",
        grow: bool = False,
        schedule: Schedule | None = None,
        replay: float = 0.0,
        earlier: Source | None = None,
        attributes: Any = None,
        init_from: Start = None,
        freeze: str | Iterable[Key] = "",
        verbose: bool | None = None,
        callbacks: CallbackArgument = (),
    ) -> "EmbeddingTrainer":
        """Trains one more epoch; returns the trainer. An error leaves it as it was.

        On a trainer that is not trained yet, the vocabulary is made from these
        sequences.

        Args:
          grow: new tokens that occur `min_count` times get rows, and counts are added
            up; without it the vocabulary stays, and other tokens are left out.
          schedule: "continue": the more a row was trained, the lower its rate,
            ALGORITHM.md (69), and noise is drawn from these sequences. "restart": the
            rate falls from `alpha` to `min_alpha` for all rows, as in
            `legacy.EmbeddingTrainer`; on little text that unlearns the rest. None:
            "continue" with `grow`, else "restart".
          replay: the share of the sequences of `earlier` that is trained on, too, other
            ones in each call, ALGORITHM.md (71), with those that have new tokens, (78);
            only with "continue".
          earlier: what the trainer was trained on before, or a part of it, as sequences
            or a path, or a table with the same columns; also what `fit` held out of it.
          attributes: as for `fit`, of items that the trainer has none of, or others;
            only of a trainer that was fitted with some, and with schedule "restart".
          init_from: as for `fit`, only of a trainer that is not trained yet.
          freeze: as for `fit`; "known": the tokens that the trainer has already.
          verbose, callbacks: as for `fit`.

        Raises:
          as `fit`; ValueError: the trainer is trained, and `init_from` is given; or
            `replay` without `earlier`, a trained trainer, or "continue".
        """
        continues = grow and self._attributes is None
        schedule = schedule or ("continue" if continues else "restart")
        choice(get_args(Schedule))(SimpleNamespace(schedule=schedule), "schedule")
        self._check_replay(replay, earlier, schedule)
        is_trained = self._state is not None
        start = self._starting(init_from, freeze, is_trained)
        columns = Columns(session, item, order, items, weights)
        config = settings.with_options(self._config(), epochs=1)
        with fitting(verbose, callbacks) as run:
            corpus = _corpus(sequences_or_path, columns)
            before = [] if earlier is None else [_corpus(earlier, columns)]
            if is_trained:
                for each in (corpus, *before):
                    self._check_key_type(each)
                options = {"block": self._block, "schedule": schedule, "replay": replay}
                config = settings.with_options(config, **options, **self._of_table)
                has_shared_rows = self.subwords or self._attributes is not None
                if schedule == "restart" and not has_shared_rows:
                    log_restart("`schedule='continue'`")
            inputs = TrainingInputs(
                config=config,
                source=corpus,
                base=self._model() if is_trained else None,
                grow=grow and is_trained,
                earlier=[*map(EarlierCorpus, before)],
                start=start,
                attributes=given_attributes(attributes),
                is_partial_fit=True,
            )
            self._train(run, inputs)
        return self

    @in_turn
    def fold_in(
        self,
        sequences_or_path: Source,
        *,
        epochs: int = 20,
        session: str = "",
        item: str = "",
        order: str = "",
        items: str = "",
        weights: str = "",
        verbose: bool | None = None,
        callbacks: CallbackArgument = (),
    ) -> "EmbeddingTrainer":
        """Adds tokens, and trains their rows alone; returns the trainer. An error
        leaves it as it was.

        Rows of before stay to the last bit, in both tables: so it takes seconds, and
        needs only the sequences with new tokens. `partial_fit` with `grow` trains all
        rows. Counts of `next_items` are added up.

        Args:
          sequences_or_path, session, item, order, items, weights: as for `fit`.
          epochs: passes over these sequences, at most; after five of them it ends when
            one lowers the loss by less than one in a hundred.
          verbose, callbacks: as for `fit`.

        Raises:
          as `fit`; RuntimeError: the trainer is not trained yet; ValueError: there is
            no new token, or the trainer has `hs`, `subwords` or attributes, whose rows
            tokens share.
        """
        self._trained()
        for name, value in (
            *(("subwords", self.subwords), ("hs", self.hs)),
            ("attributes", self._attributes is not None),
        ):
            if value:
                raise InputError(
                    f"`fold_in` does not go with `{name}`, whose rows tokens share: "
                    "call `partial_fit`."
                )
        options = {"block": self._block, "epochs": epochs} | self._of_table
        config = settings.with_options(self._config(), **options)
        losses: list[float] = []

        def is_flat(status: Status) -> bool:
            losses.append(status.loss)
            is_early = len(losses) <= _FEWEST_EPOCHS
            return not is_early and losses[-1] > (1 - _FLAT) * losses[-2]

        with fitting(verbose, callbacks, is_flat) as run:
            corpus = _corpus(
                sequences_or_path, Columns(session, item, order, items, weights)
            )
            self._check_key_type(corpus)
            inputs = TrainingInputs(
                config=config,
                source=corpus,
                base=self._model(),
                grow=True,
                is_fold_in=True,
                is_partial_fit=True,
            )
            self._train(run, inputs)
        return self

    def _check_key_type(self, corpus: Corpus) -> None:
        """Refuses tokens that are integers where those of `fit` are text, and so on."""
        if corpus.key_type != self._key_type:
            raise InputTypeError(
                f"Tokens must be {self._key_type}, as those of `fit`, got "
                f"{corpus.key_type}."
            )

    def train_epochs(
        self,
        tables: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None],
        sequences: tuple[np.ndarray, np.ndarray],
        epochs: range,
        schedule: range,
        *,
        shrink_windows: bool = True,
        subwords: tuple[list[str], np.ndarray, np.ndarray] | None = None,
        on_status: Callable[[Status], None] = lambda status: None,
    ) -> TrainedEpochs:
        """Trains tables that the caller keeps; returns the new ones.

        It has the settings of this trainer, and neither reads nor changes its state.
        For programs that keep a vocabulary of their own.

        Args:
          tables: input [V, D] and output [R, D] in `dtype`, counts i64[V], and the
            factor of the rate of each input row, f32[V] from 0 to 1; None: all are 1.
            Output rows are those of the V tokens; with `hs` those of the V - 1 inner
            nodes of the tree of the counts, and one that stays, after those of the
            tokens or, with negative=0, alone. `huffman_codes` has the paths.
          sequences: ids i32[n], -1: left out; and the length of each sequence, i64[m].
          epochs: consecutive numbers of those to train, on which draws depend.
          schedule: all epochs: the rate falls from `alpha` to `min_alpha` over them.
          shrink_windows: False: each token has all contexts up to `window`.
          subwords: of a trainer with `subwords`: the tokens, their own rows [V, D], and
            the rows of all buckets; input rows then follow from these.
          on_status: called with a `Status` after each call of updates and each epoch.

        Raises:
          TypeError, ValueError: an array does not fit; the message names it.
          FloatingPointError: training diverged.
        """
        config = settings.with_options(self._config(), shrink_windows=shrink_windows)
        of_words = None if subwords is None else SubwordRows(*subwords)
        use_threads()
        with _own_errors():
            return train_epochs(
                *(config, TrainingTables(*tables, of_words), TokenIds(*sequences)),
                *(epochs, schedule, on_status),
            )

    def _check_replay(
        self, replay: float, earlier: Source | None, schedule: Schedule
    ) -> None:
        """Raises InputError unless `replay` goes with the other arguments."""
        settings.with_options(self._config(), schedule=schedule, replay=replay)
        if (replay > 0) != (earlier is not None):
            raise InputError(
                "`replay` and `earlier`, the sequences to replay, need each other, got "
                f"`replay` {replay!r} and `earlier` {short_repr(earlier)}."
            )
        if replay and self._state is None:
            raise InputError(f"`replay` needs a trained trainer, got {replay!r}.")

    @property
    def vectors(self) -> np.ndarray:
        """The input table, [V, D] in `dtype`, a row a token; it is read-only."""
        return self._table("input")

    @property
    def index_to_key(self) -> list[Any]:
        """Tokens by descending count, `str` or `int` as they were given."""
        tokens = self._trained().tokens
        return [*map(int, tokens)] if self._has_integers else tokens

    @property
    def key_to_index(self) -> dict[Any, int]:
        """Index of each token."""
        ids = self._trained().ids
        return {int(key): i for key, i in ids.items()} if self._has_integers else ids

    @property
    def loss_history(self) -> list[float]:
        """Mean loss of a pair (cbow: of a centre) in each epoch trained."""
        return self._loss_history

    @property
    def held_out_history(self) -> list[float | None]:
        """Log likelihood of held-out pairs after each epoch of the last training, in
        nats (`heldout.log_likelihood`); [] if nothing was held out."""
        return [x["held_out"] for x in self._score_history if "held_out" in x]

    @property
    def score_history(self) -> list[dict[str, float | None]]:
        """Scores on what was held out after each epoch of the last training, by their
        names in metrics.jsonl: `held_out`, of graphs `link_auc` and `link_ap`, (73);
        of items also `hr@10`, `ndcg@10` and `mrr`, (72), where ranking takes seconds;
        None: not finite. [] if nothing was held out."""
        return self._score_history

    @property
    def scores(self) -> ScoreTable:
        """Scores of the vectors on what was held out of the last training, and those of
        baselines: score -> model -> (value, lower, upper), ends of a 95 % interval,
        (75); "vectors" is the model itself. {} if nothing was held out, and of an
        ensemble."""
        return self._scores

    def __len__(self) -> int:
        """The number of tokens; 0 before the first training."""
        return 0 if self._vocabulary is None else len(self._vocabulary)

    def __bool__(self) -> bool:
        return True  # also before it is trained

    def __contains__(self, key: object) -> bool:
        """Whether `key`, given in the type of the tokens, is in the vocabulary."""
        is_text = isinstance(key, str)
        if self._vocabulary is None or is_text == self._has_integers:
            return False
        return str(key) in self._vocabulary.ids

    def __iter__(self) -> Iterator[Any]:
        """The tokens, as `index_to_key` has them; none before the first training."""
        return iter(self.index_to_key if len(self) else ())

    if not TYPE_CHECKING:  # for names that there are not, which checkers find

        def __getattr__(self, name: str) -> Any:
            raise missing_attribute(self, name)

    def __getitem__(self, key: Key | list[Key]) -> np.ndarray:
        """The vector of a token, read-only, [D]; with `subwords` of any word that has
        an n-gram. Of a list of n tokens [n, D].

        Raises:
          KeyError: it is not in the vocabulary.
        """
        return self._lookup()[self._texts(key)]

    def vector(self, key: Key) -> np.ndarray:
        """As `trainer[key]`."""
        return self[key]

    def most_similar(
        self,
        positive: Key | list[Any] | np.ndarray | None = None,
        negative: Key | list[Any] | None = None,
        topn: int = 10,
    ) -> list[tuple[Any, float]]:
        """The `topn` tokens nearest to the mean of +`positive` and -`negative`.

        Args:
          positive: tokens, or a vector [D] alone.

        Raises:
          KeyError: a token is not in the vocabulary.
          ValueError: a vector has another size, or is given beside tokens.
        """
        is_vector = isinstance(positive, np.ndarray) and positive.dtype.kind == "f"
        plus: Any = positive if is_vector else self._texts(positive)
        neighbors = self._lookup().most_similar(plus, self._texts(negative), topn)
        typed = int if self._has_integers else str
        return [(typed(key), score) for key, score in neighbors]

    def doesnt_match(self, keys: Iterable[Key]) -> Any:
        """The token whose cosine with the mean of the unit vectors of all is lowest.

        Raises:
          KeyError: a token is not in the vocabulary.
          ValueError: there is none.
        """
        tokens = list(keys)
        if not tokens:
            raise InputError("`keys` must have a token, got none.")
        lookup = self._lookup()
        unit = unit_rows(np.stack([lookup[key] for key in self._texts(tokens)]))
        return tokens[int(np.argmin(unit @ unit.mean(axis=0)))]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments of the constructor, as scikit-learn's `clone` reads them."""
        return self._settings()

    def set_params(self, **arguments: Any) -> "EmbeddingTrainer":
        """Sets arguments of the constructor; returns the trainer.

        Raises:
          TypeError, ValueError: one is unknown or out of its bounds.
        """
        check_names("set_params", arguments)
        known = self._settings()
        if unknown := [name for name in arguments if name not in known]:
            raise InputTypeError(
                f"set_params() got an unexpected keyword argument {unknown[0]!r}."
            )
        vars(self).update(_checked(known | arguments))
        return self

    def similarity(self, a: Key | np.ndarray, b: Key | np.ndarray) -> float:
        """Cosine of the vectors of two tokens, or of vectors [D]; 0.0 if one is zero.

        Raises:
          KeyError: a token is not in the vocabulary.
          ValueError: a vector has another size.
        """
        first, second = (
            self._checked_vector(x) if isinstance(x, np.ndarray) else self[x]
            for x in (a, b)
        )
        return float(cosines(*unit_rows(np.stack([first, second]).astype(np.float64))))

    def _checked_vector(self, vector: np.ndarray) -> np.ndarray:
        shape = self.vectors.shape[1:]
        if vector.shape != shape or vector.dtype.kind not in "fiu":
            raise InputError(
                f"A vector must be numbers {[*shape]}, got {vector.dtype}"
                f"{[*vector.shape]}."
            )
        return vector

    def report(self, names: Mapping[Any, str] | None = None) -> "Report":
        """A page about the training and its vectors: Jupyter shows it, and its `save`
        writes it to a file; see `embedder report`.

        Args:
          names: of tokens, to show and to search.
        """
        from embedder.report.trained import report_of_tokens

        lines = self._lines
        before = self._loss_history[: len(self._loss_history) - len(lines)]
        history = [*({"loss": loss} for loss in before), *lines]  # of a file: no more
        return report_of_tokens(
            *(self._config(), history, self._lookup(), self._ensemble, names),
            *(self._times, self._noun, self._scores),
        )

    @property
    def _objective_now(self) -> dict[str, Any]:
        """What tables are of, besides their shapes."""
        buckets = self.buckets if self.subwords else 0
        return {
            "hs": self.hs,
            "negative": self.negative > 0,
            "subwords": self.subwords,
            "buckets": buckets,
        }

    @property
    def _has_integers(self) -> bool:
        return self._key_type == "integer"

    def _texts(self, keys: Any) -> Any:
        """A key, a list of keys or None, with integers as text."""
        if not self._has_integers or keys is None:
            return keys
        if isinstance(keys, str | int | np.integer):
            return _integer_as_text(keys)
        return [_integer_as_text(key) for key in keys]

    def save(self, path: str | os.PathLike) -> None:
        """Writes one `.npz` file, from which training can be resumed.

        `legacy.EmbeddingTrainer` reads it as well.
        """
        write_model(Path(path), self._model())

    def export(
        self,
        path: str | os.PathLike[str],
        *,
        format: str | None = None,
        dtype: Dtype | None = None,
    ) -> None:
        """Writes keys, vectors and counts for other programs, as `embedder export`.

        Args:
          path: its ending tells the format: .txt, .bin, .parquet, .safetensors and the
            others of docs/reference/formats.md.
          format: the name of the format, where the ending does not tell it.
          dtype: of the values; None: that of `vectors`.

        Raises:
          ValueError: the ending or the format is unknown, or cannot hold a key or
            `dtype`.
          OSError: the disk is full, say; an existing file at `path` stays.
        """
        from embedder.vectors.export import write_vectors

        with _own_errors():
            vectors = dataclasses.replace(self._lookup(), key_type=self._key_type)
            write_vectors(vectors, path, format=format, dtype=dtype)

    @classmethod
    def load(cls, path: str | os.PathLike) -> "EmbeddingTrainer":
        """The trainer in a file of `save`, of this package or of `legacy`.

        Raises:
          FileNotFoundError: there is no such file.
          ValueError: it is not a whole model file.
        """
        with _own_errors():
            model = read_model(Path(path))
        trainer = cls(**model.settings)
        trainer._keep(model)
        return trainer

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copy: all but the cache of normalised vectors."""
        return vars(self) | {"_vectors": None, "_next": None}

    def _keep(self, model: ModelFile) -> None:
        self._vocabulary = Vocabulary(model.tokens, model.counts)
        self._key_type = model.key_type
        self._block = model.block
        self._state = host_state(
            row_rule(self.optimizer), model.input, model.output, model.row_state
        )
        if model.subwords is not None:
            tables = self._state.params["tables"] | {TABLE: model.subwords}
            self._state = self._state._replace(params={"tables": tables})
        self._objective = self._objective_now
        self._loss_history = model.loss_history
        self._score_history, self._scores = [], {}
        self._counts = self._next = None
        self._attributes = model.attributes
        self._lines = self._times = ()

    def _model(self) -> ModelFile:
        vocabulary = self._trained()
        # Attributes may be set: a file must be one that `load` reads.
        config = settings.with_options(self._config(), block=self._block)
        self._check_objective()
        noise = {"noise": config.tables.num_noise}  # `legacy` knows no None
        rule, state = row_rule(self.optimizer), self._trained_state()
        start = host_state(rule, self._table("input"), self._table("output"))
        if len({jax.tree.structure(each.opt_state) for each in (start, state)}) > 1:
            state = start  # `optimizer` is another one now
        return ModelFile(
            settings=self._settings() | self._of_table | noise,
            block=self._block,
            tokens=vocabulary.tokens,
            counts=vocabulary.counts,
            input=self._table("input"),
            output=self._table("output"),
            loss_history=self._loss_history,
            row_state=rule.row_state(state.opt_state),
            key_type=self._key_type,
            subwords=self._trained_state().params["tables"].get(TABLE),
            attributes=self._attributes,
        )

    @property
    def _of_table(self) -> dict[str, Any]:
        """The settings that the table has; attributes may be others."""
        table = self.vectors
        return {"vector_size": table.shape[1], "dtype": table.dtype.name}

    def _check_objective(self) -> None:
        """Raises InputError if attributes were set that the tables do not fit."""
        before, now = self._objective, self._objective_now
        names = [k for k in before | now if before.get(k) != now.get(k)]
        if not names:
            return
        shown = before | {"negative": "above 0" if before["negative"] else 0}
        rules = " and ".join(f"`{k}` {shown[k]}" for k in names)
        values = " and ".join(repr(getattr(self, name)) for name in names)
        raise InputError(
            f"{rules.replace('` ', '` must be ', 1)}, as when the tables were trained, "
            f"got {values}."
        )

    def _settings(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in MODEL_SETTINGS}

    def _config(self) -> Config:
        """The settings as they are now: attributes may be set between trainings."""
        with _own_errors():
            return settings.with_options(Config(), loader="memory", **self._settings())

    def _starting(
        self, init_from: Start, freeze: str | Iterable[Key], is_trained: bool = False
    ) -> Initialization:
        """What `init_from` and `freeze` name; `is_trained`: the training goes on."""
        if is_trained and init_from is not None:
            raise InputError(
                "`init_from` applies only to a trainer that is not trained yet, got "
                f"{short_repr(init_from)}: call `fit`, or leave it out."
            )
        if isinstance(init_from, EmbeddingTrainer):
            starting = given_start(init_from._model(), freeze)
        else:
            starting = given_start(init_from, freeze, is_trained)
        starting.check_size(self._config().tables.vector_size)
        return starting

    def _train(self, run: Fitting, inputs: TrainingInputs) -> None:
        """Trains on the base, None: a new model, and keeps the result."""
        limit = run.callbacks.updates_per_call
        with _own_errors():
            training = TokensTrainer(
                plan(dataclasses.replace(inputs, call_limit=limit))
            )
            if inputs.base is not None:
                log_dropped(training.encoded, inputs.grow, "`grow=True`")
            end = run.run(training)
        vocabulary, block = training.encoded.vocabulary, training.config.tables.block
        assert block is not None, "its settings are resolved"
        assert not isinstance(inputs.source, Encoded), "keys are given as they are"
        self._block, self._key_type = block, inputs.source.key_type
        self._state, self._ensemble = end.state, None
        self._objective = self._objective_now
        if training.has_replicas:
            tokens = typed_keys(vocabulary.tokens, self._key_type)
            table = end.state.params["tables"]["input"]
            self._ensemble = Ensemble(tokens, table, vocabulary.counts)
            self._state = unstack_states(end.state)[0]
        self._vocabulary = dataclasses.replace(vocabulary, text_counts=None)
        self._attributes = training.plan.attributes
        self._vectors, self._next, self._noun = None, None, training.item_name
        if inputs.base is None:
            self._loss_history, self._lines, self._times = [], (), ()
        self._loss_history = self._loss_history + end.position.losses
        self._lines, self._times = run.after(self._lines, self._times)
        self._score_history = [
            dict(zip(training.scores, scores, strict=True))
            for _, *scores in end.position.history
            if training.scores
        ]
        self._scores = training.scores_with_intervals(end.state)
        self._keep_next_items(training, inputs)

    def _keep_next_items(self, training: TokensTrainer, inputs: TrainingInputs) -> None:
        """Counts the sequences, after those of before, and chooses the weights."""
        goes_on = inputs.base is not None and self._counts is not None
        if not (keeps_next_items(training.config) or goes_on):
            self._counts = None
            return
        holdout = training.config.tables.sequence_holdout
        before = self._counts if goes_on else None
        self._counts = count_sessions(training.encoded, before)
        if not goes_on:
            mixture = self._mixture()
            chosen = choose_weights(mixture, training.encoded, holdout)
            self._weights = dict(chosen.weights)  # a proxy cannot be pickled
            self._scores = with_mixture(self._scores, chosen.scores)

    def _mixture(self) -> Mixture:
        output = self._model().token_output
        assert output is not None and self._counts is not None, "it keeps them"
        return Mixture(self._table("input"), output, self._counts)

    def next_items(
        self,
        session: Sequence[Key],
        topn: int = 10,
        *,
        seen: Seen = "excluded",
        among: Collection[Key] | None = None,
        new_items: float | None = None,
    ) -> list[tuple[Key, float]]:
        """The items that come next after those of `session`, the newest last, and their
        scores, ALGORITHM.md (101), by a trainer that was fitted with `next_items`.

        Args:
          topn: number of items.
          seen: "included": items of the session can be the next.
          among: only these can be the next; unknown ones are ignored.
          new_items: how often sessions count for items that `partial_fit` added with
            `grow`, ALGORITHM.md (102): above 1 these items come up more often; None: 2.

        Raises:
          RuntimeError: it was not fitted with `next_items`.
          KeyError: an item is unknown.
          ValueError: the session is empty, or an argument is out of its bounds.
        """
        if self._counts is None:
            raise RuntimeError(
                "The trainer has no counts of sessions: call `fit` with "
                "`next_items=True`."
            )
        if self._next is None:
            self._next = next_items_of(self._model(), self._counts, self._weights)
        choice(get_args(Seen))(SimpleNamespace(seen=seen), "seen")
        return self._next.next_items(
            session, topn, seen=seen, among=among, new_items=new_items
        )

    def _trained(self) -> Vocabulary:
        if self._vocabulary is None:
            raise RuntimeError("The trainer is not trained yet: call `fit` first.")
        return self._vocabulary

    def _table(self, name: str) -> np.ndarray:
        return self._trained_state().params["tables"][name]

    def _trained_state(self) -> TrainState:
        self._trained()
        assert self._state is not None
        return self._state

    def _ngrams(self) -> Ngrams:
        ngrams = self._model().ngrams
        assert ngrams is not None, "the state has rows of subwords"
        return ngrams

    def _attribute_rows(self) -> AttributeRows:
        rows = self._model().attribute_rows
        assert rows is not None, "the state has rows of attributes"
        return rows

    def _lookup(self) -> Vectors:
        if self._vectors is None:
            vocabulary = self._trained()
            table, has_attributes = self._table("input"), self._attributes is not None
            has_shared_rows = TABLE in self._trained_state().params["tables"]
            has_ngrams = has_shared_rows and not has_attributes
            self._vectors = Vectors(
                *(vocabulary.tokens, table, vocabulary.counts),
                ngrams=self._ngrams if has_ngrams else None,
                attributes=self._attribute_rows if has_attributes else None,
            )
        return self._vectors


def _integer_as_text(key: Any) -> str:
    """A key of a trainer whose tokens are integers, as its vocabulary has it."""
    if isinstance(key, str):
        raise InputKeyError(f"Token {key!r} is text, and the tokens are integers.")
    return str(key)


def _checked(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments as Python int, float, str or None."""
    values = SimpleNamespace(**arguments)
    choice(OPTIMIZERS)(values, "optimizer")  # RunOptions allows more
    with _own_errors():
        config = settings.with_options(Config(), **vars(values))
        options = config.tables
        noise = options.noise if options.has_whole_sequences else options.noise or NOISE
        checked = model_settings(config) | {"noise": noise}
    return {name: checked[name] for name in arguments}


@contextlib.contextmanager
def _own_errors() -> Iterator[None]:
    """Errors of the body are those of this class, which says `cap` for
    `max_pairs_per_row`."""
    try:
        yield
    except NoTokensError as error:
        raise InputError(str(error)) from None
    except (InputError, FloatingPointError) as error:
        if "`max_pairs_per_row`" not in str(error):
            raise
        message = str(error).replace("`max_pairs_per_row`", "`cap`")
        raise type(error)(message) from error


def _corpus(source: Source, columns: Columns = NOT_GIVEN) -> Corpus:
    if isinstance(source, str | os.PathLike):
        return file_corpus(source, columns=columns)
    frame = lazy_frame(source)
    if frame is not None:
        return frame_corpus(frame, columns)
    if any(columns):
        raise InputError(
            "`session`, `item`, `order`, `items` and `weights` apply only to tables, "
            f"got {tuple(filter(None, columns))} for sequences."
        )
    return sequences_corpus(source)
