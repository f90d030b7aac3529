"""EmbeddingTrainer: the Python API, and the drop-in for `legacy.EmbeddingTrainer`."""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias, get_args

import jax
import numpy as np

from embedder import config as settings
from embedder.config import Config
from embedder.engine.epochs import Status
from embedder.engine.replicas import unstack_states
from embedder.engine.rules import row_rule
from embedder.engine.state import TrainState
from embedder.errors import InputError, InputTypeError
from embedder.evaluation.score_table import ScoreTable
from embedder.presets import PRESETS, Preset
from embedder.run.fitting import Fitting, Given, Lines, fitting
from embedder.settings import choice, integer
from embedder.tables.artefact import (
    MODEL_SETTINGS,
    KeyType,
    ModelFile,
    model_settings,
    read_model,
    write_model,
)
from embedder.tables.columns import NOT_GIVEN, Columns
from embedder.tables.corpus import Corpus, sequences_corpus
from embedder.tables.earlier import EarlierCorpus
from embedder.tables.encode import BaseVocabulary, encode
from embedder.tables.encoded import Encoded, TokenSource
from embedder.tables.frames import lazy_frame
from embedder.tables.gensim_names import (
    check_names,
    missing_attribute,
    names_successors,
)
from embedder.tables.given_tables import (
    GivenSubwords,
    GivenTables,
    TokenIds,
    TrainedEpochs,
    train_epochs,
)
from embedder.tables.graph import given_edges, repeats_of, walks_over
from embedder.tables.options import OPTIMIZERS, Schedule, Window
from embedder.tables.sessions import frame_corpus
from embedder.tables.sources import file_corpus
from embedder.tables.start_files import given_start
from embedder.tables.starting import NO_START, Starting, plan_start
from embedder.tables.subwords import TABLE
from embedder.tables.training import Training
from embedder.tables.update import host_state
from embedder.tables.updating import (
    check_continues,
    check_grow,
    check_replay,
    encoded_earlier,
    joined_factors,
    log_dropped,
    log_restart,
    plan_update,
    with_earlier_counts,
)
from embedder.tables.vocabulary import NoTokensError, Vocabulary
from embedder.threads import in_turn, use_threads
from embedder.vectors.ensemble import Ensemble
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


class EmbeddingTrainer:
    """Skip-gram and CBOW embeddings of tokens, trained with negative sampling or
    hierarchical softmax.

    Args:
      vector_size: dimensions of a vector.
      window: largest distance of a context; each token draws its own from 1 to it.
        "session": the context of an item is its whole sequence; give noise=None then.
      negative: negative samples per pair; 0, only with `hs`: none.
      min_count: tokens that occur less often are dropped.
      sample: tokens more frequent than this share of the corpus are downsampled.
      ns_exponent: noise is drawn in proportion to count ** ns_exponent.
      alpha, min_alpha: learning rate at the start and at the end, linear between; alpha
        None: by the updates that rows get, and the size of an update, 0.025 to 0.17,
        of walks at most 0.025, less where they return to their nodes often; for cbow
        four times that, by sums at most once; of adagrad 0.2.
      epochs: passes over the corpus.
      architecture: "skipgram" or "cbow".
      seed: of the initial vectors and all draws.
      workers: threads that make blocks; any number gives the same vectors.
      block: tokens of a block; None: 64, raised to a multiple of `tile`; with window
        "session" 128, rounded down.
      tile: tokens that share `noise` noise ids; tile=1 with noise=negative is the
        form of word2vec.
      noise: noise ids of a tile; None: 32, with window "session" 2 x `block`.
      cap: of SGD: a row moves in one update at most as far as this many pairs would
        move it; None: 1.6 / alpha, at most 128, and less with window "session" and
        on walks; math.inf: no limit.
      blocks_per_update: blocks whose gradients are summed into one update; None: by the
        size of the corpus, 1 to 256.
      dtype: "float32" or "float64".
      optimizer: "sgd", or "adagrad" with one accumulator a row.
      hs: hierarchical softmax, beside negative sampling if `negative` is not 0.
      subwords: (MIN, MAX): vectors of words are made of those of their n-grams of MIN
        to MAX characters, as in fastText, and unknown words have vectors, too; (): each
        word has a row of its own.
      buckets: numbers that n-grams are hashed to.
      cbow_mean: of cbow: the mean of the vectors of contexts; False: their sum.

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
        noise: int | None = 32,
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

        `noise` is None, as without a preset in the command. The walks of a graph are
        the defaults of `fit_graph`.

        Args:
          arguments: of `EmbeddingTrainer`; they override the preset.

        Raises:
          TypeError, ValueError: there is no such preset, or an argument is out of its
            bounds.
        """
        choice(tuple(PRESETS))(SimpleNamespace(preset=name), "preset")
        of_walks = {"walks", "walk_length"}
        found = {k: v for k, v in PRESETS[name].items() if k not in of_walks}
        return cls(**({"noise": None} | found | arguments))

    def __repr__(self) -> str:
        arguments = ", ".join(f"{k}={v!r}" for k, v in self._settings().items())
        return f"EmbeddingTrainer({arguments})"

    @in_turn
    def fit(
        self,
        sequences_or_path: Source,
        *,
        holdout: float = 0.0,
        session: str = "",
        item: str = "",
        order: str = "",
        items: str = "",
        weights: str = "",
        init_from: Start = None,
        freeze: str | Iterable[Key] = "",
        verbose: bool | None = None,
        callbacks: Given = (),
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
            seed; `held_out_history` has the scores on them.
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
        config = settings.with_options(self._config(), holdout=holdout)
        columns = Columns(session, item, order, items, weights)
        with fitting(verbose, callbacks) as run:
            self._fit(run, config, sequences_or_path, columns, init_from, freeze)
        return self

    @in_turn
    def fit_ensemble(
        self,
        sequences_or_path: Source,
        replicas: int = 10,
        *,
        bootstrap: bool = False,
        holdout: float = 0.0,
        session: str = "",
        item: str = "",
        order: str = "",
        items: str = "",
        weights: str = "",
        init_from: Start = None,
        freeze: str | Iterable[Key] = "",
        verbose: bool | None = None,
        callbacks: Given = (),
    ) -> "EmbeddingTrainer":
        """Trains `replicas` models side by side from the start; returns the trainer.

        The k-th, from 0, is the model that `fit` trains with `seed` + k. All of them
        are `ensemble_` then; everything else is of the first, but for `loss_history`
        and `held_out_history`, which have their means.

        Args:
          sequences_or_path, session, item, order, items, weights: as for `fit`.
          replicas: number of models, at least 2.
          bootstrap: each trains on a resample of the sequences of its own.
          holdout, init_from, freeze: as for `fit`, of all models.
          verbose, callbacks: as for `fit`.

        Raises:
          as `fit`; ValueError: `replicas` is less than 2.
        """
        given = SimpleNamespace(replicas=replicas, bootstrap=bootstrap, holdout=holdout)
        integer(2)(given, "replicas")
        config = settings.with_options(self._config(), **vars(given))
        columns = Columns(session, item, order, items, weights)
        with fitting(verbose, callbacks) as run:
            self._fit(run, config, sequences_or_path, columns, init_from, freeze)
        return self

    def _fit(
        self,
        run: Fitting,
        config: Config,
        source: Source,
        columns: Columns,
        init_from: Start,
        freeze: str | Iterable[Key],
    ) -> None:
        """Trains on sequences from the start; see `fit` and `fit_ensemble`."""
        corpus, starting = _corpus(source, columns), self._starting(init_from, freeze)
        encoded, epochs = _encoded(corpus, self.min_count), range(self.epochs)
        kind = corpus.key_type
        self._train(run, encoded, config, None, epochs, kind, starting=starting)
        self._key_type = kind

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
        init_from: Start = None,
        freeze: str | Iterable[Key] = "",
        verbose: bool | None = None,
        callbacks: Given = (),
    ) -> "EmbeddingTrainer":
        """Trains on random walks from the start; returns the trainer. An error leaves
        it as it was.

        Every node has a vector, whatever `min_count` is.

        Args:
          graph: the path of an edge list, a graph of networkx or igraph, or a sparse
            matrix of scipy.
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
          init_from, freeze: as for `fit`, of nodes.
          verbose, callbacks: as for `fit`.

        Raises:
          FileNotFoundError, TypeError, ValueError: `graph` or a setting is wrong.
          FloatingPointError: training diverged.
        """
        numbers = SimpleNamespace(walks=walks, replicas=replicas)
        integer(1)(numbers, "walks")
        integer(1)(numbers, "replicas")
        given = {
            "replicas": replicas,
            "walks": walks,
            "walk_length": walk_length,
            "p": p,
            "q": q,
            "holdout": holdout,
        }
        given |= {"directed": False if directed is None else directed}
        given |= {"walks_fixed": walks_fixed, "min_count": 1}
        columns = {"source": source, "target": target, "weight": weight}
        config = settings.with_options(self._config(), **given, **columns)
        with fitting(verbose, callbacks) as run:
            edges, is_directed = given_edges(graph, config.tables)
            if directed is None:
                config = settings.with_options(config, directed=is_directed)
            starting = self._starting(init_from, freeze)
            encoded, epochs = walks_over(edges, config.tables), range(self.epochs)
            self._train(run, encoded, config, None, epochs, starting=starting)
        self._key_type = "text"
        return self

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
        init_from: Start = None,
        freeze: str | Iterable[Key] = "",
        verbose: bool | None = None,
        callbacks: Given = (),
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
          init_from: as for `fit`, only of a trainer that is not trained yet.
          freeze: as for `fit`; "known": the tokens that the trainer has already.
          verbose, callbacks: as for `fit`.

        Raises:
          as `fit`; ValueError: the trainer is trained, and `init_from` is given; or
            `replay` without `earlier`, a trained trainer, or "continue".
        """
        schedule = _schedule(schedule, grow)
        self._check_replay(replay, earlier, schedule)
        starting = self._starting(init_from, freeze, self._state is not None)
        columns, config = Columns(session, item, order, items, weights), self._config()
        with fitting(verbose, callbacks) as run:
            corpus = _corpus(sequences_or_path, columns)
            if self._state is None:
                encoded = _encoded(corpus, self.min_count)
                self._train(run, encoded, config, None, range(1), starting=starting)
            else:
                before = [] if earlier is None else [_corpus(earlier, columns)]
                for each in (corpus, *before):
                    self._check_key_type(each)
                replayed = [*map(EarlierCorpus, before)], replay
                self._continue(run, corpus, grow, schedule, starting, *replayed)
        self._key_type = corpus.key_type
        return self

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
        of_words = None if subwords is None else GivenSubwords(*subwords)
        given = GivenTables(*tables, of_words), TokenIds(*sequences)
        use_threads()
        with _cap_named():
            return train_epochs(config, *given, epochs, schedule, on_status)

    def _continue(
        self,
        run: Fitting,
        corpus: Corpus,
        grow: bool,
        schedule: Schedule,
        starting: Starting,
        earlier: list[EarlierCorpus],
        replay: float,
    ) -> None:
        """Trains one more epoch on `corpus`, and on the share `replay` of `earlier`."""
        table = self.vectors
        config = settings.with_options(
            self._config(),
            block=self._block,
            vector_size=table.shape[1],
            dtype=table.dtype.name,
        )
        check_grow(grow, config.tables)
        of_update = settings.with_options(config, schedule=schedule, replay=replay)
        check_continues(of_update.tables, is_update=True)
        known = BaseVocabulary(self._trained(), grow)
        if grow and earlier:
            known = with_earlier_counts(known, earlier)
        new, base = _encoded(corpus, self.min_count, known), self._model()
        encoded: TokenSource = new
        factors = of_output = None
        if schedule == "restart" and not config.tables.subwords:
            log_restart("`schedule='continue'`")
        if schedule == "continue":
            replayed = encoded_earlier(BaseVocabulary(new.vocabulary), earlier)
            update = plan_update(base, new, replayed, of_update.tables)
            encoded, base, factors, of_output = update
        log_dropped(encoded, grow, "`grow=True`")
        epochs = range(len(self.loss_history), len(self.loss_history) + 1)
        self._train(
            *(run, encoded, config, base, epochs),
            starting=starting,
            of_update=factors,
            of_output=of_output,
        )

    def _check_replay(
        self, replay: float, earlier: Source | None, schedule: Schedule
    ) -> None:
        """Raises InputError unless `replay` goes with the other arguments."""
        given = settings.with_options(self._config(), schedule=schedule, replay=replay)
        check_replay(given)
        if (replay > 0) != (earlier is not None):
            raise InputError(
                "`replay` and `earlier`, the sequences to replay, need each other, got "
                f"`replay` {replay!r} and `earlier` {short_repr(earlier)}."
            )
        if replay and self._state is None:
            raise InputError(f"`replay` needs a trained trainer, got {replay!r}.")

    def _check_key_type(self, corpus: Corpus) -> None:
        if corpus.key_type != self._key_type:
            raise InputTypeError(
                f"Tokens must be {self._key_type}, as those of `fit`, got "
                f"{corpus.key_type}."
            )

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
        if isinstance(key, list):
            rows = [self[each] for each in key]
            return np.array(rows, self.vectors.dtype).reshape(-1, self.vectors.shape[1])
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
        if isinstance(positive, np.ndarray) and positive.dtype.kind == "f":
            found = self._nearest_to(positive, negative, topn)
        else:
            found = self._lookup().most_similar(
                self._texts(positive), self._texts(negative), topn
            )
        return [(self._key(key), score) for key, score in found]

    def _nearest_to(
        self, vector: np.ndarray, negative: Any, topn: int
    ) -> list[tuple[str, float]]:
        shape = self.vectors.shape[1:]
        if vector.shape != shape or negative is not None:
            beside = "" if negative is None else f" beside negative={negative!r}"
            raise InputError(
                f"`positive` must be tokens, or a vector {[*shape]} alone, got a "
                f"vector {[*vector.shape]}{beside}."
            )
        (found,) = self._lookup().nearest_to(vector[np.newaxis], topn)
        return found

    def doesnt_match(self, keys: Iterable[Key]) -> Any:
        """The token whose cosine with the mean of the unit vectors of all is lowest.

        Raises:
          KeyError: a token is not in the vocabulary.
          ValueError: there is none.
        """
        given = list(keys)
        if not given:
            raise InputError("`keys` must have a token, got none.")
        lookup = self._lookup()
        unit = unit_rows(np.stack([lookup[key] for key in self._texts(given)]))
        return given[int(np.argmin(unit @ unit.mean(axis=0)))]

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
        found = {"hs": self.hs, "negative": self.negative > 0}
        return found | {"subwords": self.subwords, "buckets": buckets}

    @property
    def _has_integers(self) -> bool:
        return self._key_type == "integer"

    def _key(self, token: str) -> Any:
        """A token in the type in which it was given."""
        return int(token) if self._has_integers else token

    def _texts(self, keys: Any) -> Any:
        """A key, a list of keys or None, with integers as text."""
        if not self._has_integers or keys is None:
            return keys
        if isinstance(keys, str | int | np.integer):
            return str(keys)
        return [str(key) for key in keys]

    def save(self, path: str | os.PathLike) -> None:
        """Writes one `.npz` file, from which training can be resumed.

        `legacy.EmbeddingTrainer` reads it as well.
        """
        write_model(Path(path), self._model())

    @classmethod
    def load(cls, path: str | os.PathLike) -> "EmbeddingTrainer":
        """The trainer in a file of `save`, of this package or of `legacy`.

        Raises:
          FileNotFoundError: there is no such file.
          ValueError: it is not a whole model file.
        """
        with _cap_named():
            model = read_model(Path(path))
        trainer = cls(**model.settings)
        trainer._keep(model)
        return trainer

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copy: all but the cache of normalised vectors."""
        return vars(self) | {"_vectors": None}

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
        self._lines = self._times = ()

    def _model(self) -> ModelFile:
        vocabulary, table = self._trained(), self.vectors
        # Attributes may be set: a file must be one that `load` reads.
        config = settings.with_options(self._config(), block=self._block)
        self._check_objective()
        of_table = {"vector_size": table.shape[1], "dtype": table.dtype.name}
        of_table |= {"noise": config.tables.num_noise}  # `legacy` knows no None
        return ModelFile(
            settings=self._settings() | of_table,
            block=self._block,
            tokens=vocabulary.tokens,
            counts=vocabulary.counts,
            input=self._table("input"),
            output=self._table("output"),
            loss_history=self._loss_history,
            row_state=row_rule(self.optimizer).row_state(
                self._state_to_train().opt_state
            ),
            key_type=self._key_type,
            subwords=self._trained_state().params["tables"].get(TABLE),
        )

    def _check_objective(self) -> None:
        """Raises InputError if attributes were set that the tables do not fit."""
        before, now = self._objective, self._objective_now
        names = [k for k in before | now if before.get(k) != now.get(k)]
        if not names:
            return
        shown = before | {"negative": "above 0" if before["negative"] else 0}
        rules = " and ".join(f"`{k}` {shown[k]}" for k in names)
        given = " and ".join(repr(getattr(self, name)) for name in names)
        raise InputError(
            f"{rules.replace('` ', '` must be ', 1)}, as when the tables were trained, "
            f"got {given}."
        )

    def _state_to_train(self) -> TrainState:
        """The state; a state of another optimizer than `optimizer` is replaced."""
        state = self._trained_state()
        tables = self._table("input"), self._table("output")
        start = host_state(row_rule(self.optimizer), *tables).opt_state
        optimizers = jax.tree.structure(start), jax.tree.structure(state.opt_state)
        return state if len({*optimizers}) == 1 else state._replace(opt_state=start)

    def _settings(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in MODEL_SETTINGS}

    def _config(self) -> Config:
        """The settings as they are now: attributes may be set between trainings."""
        with _cap_named():
            return settings.with_options(Config(), loader="memory", **self._settings())

    def _starting(
        self, init_from: Start, freeze: str | Iterable[Key], is_trained: bool = False
    ) -> Starting:
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

    def _train(
        self,
        run: Fitting,
        encoded: TokenSource,
        config: Config,
        base: ModelFile | None,
        epochs: range,
        key_type: KeyType = "text",
        *,
        starting: Starting = NO_START,
        of_update: np.ndarray | None = None,
        of_output: np.ndarray | None = None,
    ) -> None:
        """Trains `base`, None: a new model, and keeps the result.

        Args:
          key_type: of the tokens of an ensemble.
          starting: vectors of the initial state, and frozen rows.
          of_update, of_output: see `joined_factors`.
        """
        num_tokens = int(encoded.vocabulary.counts.sum())
        row_updates = encoded.vocabulary.row_updates
        facts = row_updates, repeats_of(encoded)
        config = settings.resolve(config, num_tokens, epochs.stop, *facts)
        dtype = config.run.dtype
        num_old = None if base is None else len(base.tokens)
        starting = starting.for_model(config.tables.negative > 0)
        start, frozen = plan_start(starting, encoded.vocabulary, dtype, num_old)
        factors = joined_factors(frozen, of_update, of_output)
        training = Training(
            *(config, encoded, epochs, base),
            start=start,
            factors=factors,
            call_limit=run.callbacks.updates_per_call,
        )
        history = [] if base is None else self._loss_history
        with _cap_named():
            end = run.run(training, training.initial_state())
        assert config.tables.block is not None, "`config` is resolved"
        self._state, self._ensemble = end.state, None
        self._objective = self._objective_now
        if training.has_replicas:
            known, tables = encoded.vocabulary, end.state.params["tables"]
            tokens = typed_keys(known.tokens, key_type)
            self._ensemble = Ensemble(tokens, tables["input"], known.counts)
            self._state = unstack_states(end.state)[0]
        self._block = config.tables.block
        self._vocabulary = dataclasses.replace(encoded.vocabulary, text_counts=None)
        self._vectors, self._noun = None, encoded.noun
        self._loss_history = history + end.position.losses
        if base is None:
            self._lines = self._times = ()
        self._lines, self._times = run.after(self._lines, self._times)
        self._score_history = [
            dict(zip(training.scores, scores, strict=True))
            for _, *scores in end.position.history
            if training.scores
        ]
        self._scores = training.scores_with_intervals(end.state)

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
        """The rows of n-grams of a model with subwords."""
        found = self._model().ngrams
        assert found is not None, "the state has rows of subwords"
        return found

    def _lookup(self) -> Vectors:
        if self._vectors is None:
            vocabulary = self._trained()
            table = self._table("input")
            rows = self._trained_state().params["tables"].get(TABLE)
            self._vectors = Vectors(
                *(vocabulary.tokens, table, vocabulary.counts),
                ngrams=None if rows is None else self._ngrams,
            )
        return self._vectors


def _checked(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments as Python int, float, str or None."""
    given = SimpleNamespace(**arguments)
    choice(OPTIMIZERS)(given, "optimizer")  # RunOptions allows more
    with _cap_named():
        config = settings.with_options(Config(), **vars(given))
        checked = model_settings(config) | {"noise": config.tables.noise}
    return {name: checked[name] for name in arguments}


@contextlib.contextmanager
def _cap_named() -> Iterator[None]:
    """Errors of the body call `max_pairs_per_row` by its name in this class, `cap`."""
    try:
        yield
    except (InputError, FloatingPointError) as error:
        if "`max_pairs_per_row`" not in str(error):
            raise
        message = str(error).replace("`max_pairs_per_row`", "`cap`")
        raise type(error)(message) from error


def _schedule(given: Schedule | None, grow: bool) -> Schedule:
    """`schedule` of `partial_fit`, checked."""
    found = given or ("continue" if grow else "restart")
    choice(get_args(Schedule))(SimpleNamespace(schedule=found), "schedule")
    return found


def _encoded(
    corpus: Corpus, min_count: int, known: BaseVocabulary | None = None
) -> Encoded:
    """The corpus with a vocabulary of its own, or a given one."""
    try:
        return encode(corpus, min_count, known)
    except NoTokensError as error:
        raise InputError(str(error)) from None


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
