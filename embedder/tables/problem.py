"""Runs of tables over a text: the files they read, and the results they write."""

import hashlib
import logging
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import jax
import numpy as np

from embedder.config import (
    Config,
    common_config,
    options_of,
    read_toml,
    resolve,
)
from embedder.disk.copies import local_copy
from embedder.disk.urls import without_secrets
from embedder.engine.compilation import avoid_slow_scatters
from embedder.engine.epochs import Snapshot
from embedder.engine.rules import row_rule
from embedder.engine.state import TrainState
from embedder.engine.tfdata import (
    check_tensorflow,
    has_tensorflow,
    import_tensorflow,
)
from embedder.errors import InputError, InputNotFoundError
from embedder.problem import Base, copy_of_base
from embedder.run import workdir as folder
from embedder.run.checkpoints import Checkpoints, tree_of
from embedder.run.inputs import (
    check_has_one_model,
    check_sound,
    without_file_secrets,
)
from embedder.run.score_file import write_scores
from embedder.run.workdir import Workdir
from embedder.tables.artefact import ModelFile, model_settings, read_model, write_model
from embedder.tables.columns import NOT_GIVEN, Columns, columns_of
from embedder.tables.corpus import Corpus
from embedder.tables.demo import demo_corpus
from embedder.tables.earlier import (
    EarlierCorpus,
    corpora_of_base,
    files_replayed_twice,
    open_earlier,
)
from embedder.tables.encode import BaseVocabulary, encode, encode_cached
from embedder.tables.encoded import Encoded, TokenSource
from embedder.tables.graph import (
    GraphFiles,
    encode_graph,
    open_graph,
    plan_walks,
    repeats_of,
)
from embedder.tables.huffman import codes_and_points
from embedder.tables.options import TablesOptions
from embedder.tables.sources import file_corpus, is_corpus_file
from embedder.tables.start_files import (
    check_freeze,
    is_vectors_file,
    of_model,
    read_first_vectors,
    read_frozen_keys,
    write_start,
)
from embedder.tables.starting import NO_START, FirstVectors, Starting, plan_start
from embedder.tables.subwords import TABLE, ngram_rule, with_row_shapes
from embedder.tables.training import Training
from embedder.tables.update import state_shapes
from embedder.tables.updating import (
    check_continues,
    check_grow,
    check_replay,
    encoded_earlier,
    joined_factors,
    log_dropped,
    plan_update,
    with_earlier_counts,
)
from embedder.tables.vocabulary import (
    NoTokensError,
    Vocabulary,
    read_vocabulary,
    write_vocabulary,
)
from embedder.vectors.ensemble import Ensemble
from embedder.vectors.ensemble_files import write_ensemble
from embedder.vectors.export import write_vectors
from embedder.vectors.subwords import subwords_of
from embedder.vectors.vectors import Vectors
from embedder.vectors.word2vec import MAX_TOKEN_BYTES, is_key

_NGRAMS = "subwords", "buckets"
_log = logging.getLogger(__name__)


class TablesProblem:
    """Trains tables over a text or a graph, from initial tables or those of a `base`.

    It implements `embedder.problem.Problem`.

    Raises:
      OSError, InputError: there is no text at `source`, or no model at `base`.
    """

    def __init__(
        self,
        source: str | None,
        base: Base | None = None,
        options: TablesOptions = TablesOptions(),  # noqa: B008 - it is immutable
        cache: Path | None = None,
        workdir: Path | None = None,
    ):
        _check_one_start(options, base)
        if source is not None:
            source = local_copy(source, cache, is_corpus_file)
        self._corpus: Corpus | GraphFiles
        if options.walks:
            self._corpus = open_graph(source, options)
        else:
            columns = columns_of(options)
            self._corpus = open_corpus(source, options.unicode_errors, columns)
        self._base: ModelFile | None = None
        self._grow = base is not None and base.grow
        self.name = self._corpus.name
        self.manifest = self._corpus.manifest
        self.base: dict | None = None
        self._earlier: list[EarlierCorpus] = []
        if base is not None:
            self._base = _read_base(base)
            corpora = corpora_of_base(base.path, len(self._base.tokens))
            self.base = {
                "path": base.url or os.path.abspath(base.path),
                "grow": base.grow,
                "sha256": _digest(self._base),
                "corpora": corpora,
            }
            if options.replay:
                self._earlier = open_earlier(corpora, cache)
        elif options.replay:
            raise InputError(
                f"`replay` needs `resume`, the run to train on, got {options.replay}."
            )
        run = Workdir(workdir or folder.default_workdir(self.name))
        self._starting = _read_starting(options, cache, run)
        if facts := self._starting.facts:
            self.base = {"path": None, "grow": False, "sha256": ""} | (self.base or {})
            self.base |= facts

    def plan(
        self, config: Config, cache: Path | None, models: Sequence[Config] = ()
    ) -> Training:
        """See `plan`."""
        if config.run.loader == "tfdata":
            check_tensorflow()
        if _uses_tensorflow(config):  # takes seconds: it loads while we encode
            threading.Thread(target=import_tensorflow).start()
        config, *models = (without_file_secrets(each) for each in (config, *models))
        return plan(
            *(config, self._corpus, cache, self._base, self._grow, models),
            starting=self._starting,
            earlier=self._earlier,
        )

    def begin(self, run: Workdir, training: Training) -> None:
        """Writes the vocabulary, and the base model; called before the first update."""
        encoded = training.encoded
        paths = training.tree and codes_and_points(training.tree)
        write_vocabulary(encoded.vocabulary, run.vocabulary, paths)
        if self._base is not None:
            write_model(run.base, self._base)  # so the run no longer needs the other
            _log.info(
                "Starts from the vectors of %d tokens; %d are new; %.1f %% of the text "
                "is in the vocabulary.",
                len(self._base.tokens),
                len(encoded.vocabulary) - len(self._base.tokens),
                100 * encoded.num_tokens / encoded.raw_tokens,
            )
            log_dropped(encoded, self._grow, "--grow")
            _log_optimizer(self._base, training.config.run.optimizer)
        if self._earlier:
            _log.info("Replays %s.", ", ".join(x.corpus.source for x in self._earlier))
        if twice := files_replayed_twice(self.manifest, self._earlier):
            _log.warning(
                "Files of the corpus are also replayed, and their tokens count twice: "
                "%s.",
                ", ".join(twice),
            )
        if self._starting.vectors is not None or self._starting.frozen is not None:
            write_start(run.start, self._starting, encoded.vocabulary)

    def end_state(self, run: Workdir, training: Training) -> TrainState | None:
        """The state in the model file of a finished run; None: replicas have none."""
        if training.has_replicas:
            return None
        return training.state_of(read_model(run.model))

    def vectors(self, training: Training, end: Snapshot) -> Vectors:
        """The vectors at `end`; of replicas the mean."""
        if training.has_replicas:
            return _ensemble(training, end).mean()
        return Vectors(*_tokens_and_table(training, end))

    def finish(self, run: Workdir, training: Training, end: Snapshot) -> Vectors:
        """Writes scores, the model file and the vectors; the run is finished then.

        Replicas have no model file: they write the vectors of each, and their mean.
        """
        if training.has_replicas:
            ensemble = _ensemble(training, end)
            write_ensemble(ensemble, run.replicas)
            return _write_vectors(run, ensemble.mean())
        if scores := training.scores_with_intervals(end.state):
            write_scores(run, scores)
        before = self._base.loss_history if self._base else []
        model = _model(training, end, before)._replace(key_type=self._corpus.key_type)
        write_model(run.model, model)
        return write_results(run, model)


def _uses_tensorflow(config: Config) -> bool:
    """Whether the run is likely to load batches by tf.data."""
    if config.run.loader != "auto":
        return config.run.loader == "tfdata"
    avoid_slow_scatters()  # before the first use of a device
    has_many_devices = jax.default_backend() != "cpu" or jax.device_count() > 1
    return has_many_devices and has_tensorflow()


def open_corpus(
    source: str | None,
    errors: Literal["strict", "replace"] = "strict",
    columns: Columns = NOT_GIVEN,
) -> Corpus:
    """The corpus at `source`: a file, a glob or a folder; None: the demo corpus.

    Args:
      columns: of sessions in tables.

    Raises:
      OSError, InputError: see `file_corpus`.
    """
    if source is not None:
        return file_corpus(source, errors, columns)
    if columns.weights:
        raise InputError(
            "`weights` applies only to sessions in tables, got "
            f"{columns.weights!r} for the demo corpus: give a table as the corpus."
        )
    return demo_corpus()


def _check_one_start(options: TablesOptions, base: Base | None) -> None:
    """Refuses two starts, and frozen rows of none.

    Raises:
      InputError: the settings do not go together.
    """
    if options.init_from and base is not None:
        raise InputError(
            "`init_from` and `resume` both name vectors to start from: give one of "
            "them."
        )
    check_freeze(options.freeze, bool(options.init_from or base))


def _read_starting(
    options: TablesOptions, cache: Path | None, run: Workdir
) -> Starting:
    """What `init_from` and `freeze` name; of a run that lost their files, what it kept.

    Raises:
      OSError, InputError: there are no such files, or they are damaged.
    """
    before = TablesOptions()
    if run.is_started and run.start.exists():
        config = read_toml(run.config)
        before = config.tables if config.run.model == "tokens" else before
    vectors = frozen = None
    if options.init_from:
        shown = without_secrets(options.init_from)
        path = copy_of_base(options.init_from, cache)
        if not path.exists() and before.init_from == shown:
            path = run.start
        _check_apart(run, path)
        vectors = _read_first_vectors(path, shown)
    if options.freeze not in ("", "all", "known"):
        shown = without_secrets(options.freeze)
        path = Path(local_copy(options.freeze, cache))
        if not path.exists() and before.freeze == shown:
            path = run.start
        frozen = read_frozen_keys(path, shown)
    return Starting(vectors, frozen, options.freeze)


def _check_apart(run: Workdir, path: Path) -> None:
    """Refuses vectors in the folder of the run, which would overwrite them."""
    real, here = path.resolve(), run.path.resolve()
    if here in (real, *real.parents) and real != run.start.resolve():
        raise InputError(
            f"`workdir` must be another folder than that of `init_from` {path}: give "
            "--workdir NEW."
        )


def _read_first_vectors(path: Path, shown: str) -> FirstVectors:
    """The vectors of a run, a model file, or a file of vectors."""
    if path.is_dir():
        return of_model(_read_base(Base(path, False), "`init_from`"), shown)
    if not path.exists():
        raise InputNotFoundError(
            "`init_from` must be a file of vectors, a model file or a run of tables: "
            f"{shown} does not exist."
        )
    return read_first_vectors(path, shown)


def _read_base(base: Base, argument: str = "`resume`") -> ModelFile:
    """The model of `base`.

    Raises:
      OSError, InputError: there is none, or it is damaged; it names `argument`.
    """
    run, path = Workdir(base.path), base.path
    if path.is_dir():
        check_has_one_model(run, argument)
        path = run.model
        if run.is_started and not path.exists():
            return _from_checkpoint(run, argument)
    if not path.exists():
        raise InputNotFoundError(
            f"{argument} must be a run of tables, or a model file: {path} does not "
            "exist."
        )
    if is_vectors_file(path):
        raise InputError(
            f"{argument} must be a run of tables, or a model file, got {path}: if it "
            f"has vectors, give --init-from {path} to start from them."
        )
    return read_model(path)


def _from_checkpoint(run: Workdir, argument: str) -> ModelFile:
    """The model in the newest checkpoint of an unfinished run.

    The run may have diverged after it.
    """
    found = Checkpoints(run.checkpoints).newest()
    check_sound(run)
    if found is None or "params.tables.input" not in found.arrays:
        raise InputNotFoundError(
            f"{argument} must be a run of tables, got {run.path}, which is not "
            "finished and has no checkpoint of tables."
        )
    _log.info("%s is not finished: its checkpoint %d is used.", run.path, found.step)
    config = read_toml(run.config)
    vocabulary = read_vocabulary(run.vocabulary)
    before = read_model(run.base).loss_history if run.base.exists() else []
    history = found.facts["place"]["history"]
    rule = row_rule(config.run.optimizer)
    shape = len(vocabulary), config.tables.vector_size
    output_rows = shape[0] * config.tables.num_output_tables
    shapes = state_shapes(rule, shape, config.run.dtype, output_rows)
    ngrams = ngram_rule(config.tables)
    if ngrams is not None:
        rows = subwords_of(vocabulary.tokens, ngrams).num_rows
        shapes = with_row_shapes(shapes, rows)
    state = tree_of(found.arrays, shapes)
    assert config.tables.block is not None, "a run writes resolved settings"
    return ModelFile(
        settings=model_settings(config) | {"workers": 1},
        block=config.tables.block,
        tokens=vocabulary.tokens,
        counts=vocabulary.counts,
        input=state.params["tables"]["input"],
        output=state.params["tables"]["output"],
        loss_history=before + [metrics[0] for metrics in history],
        row_state=rule.row_state(state.opt_state),
        subwords=state.params["tables"].get(TABLE),
    )


def _log_optimizer(base: ModelFile, optimizer: str) -> None:
    """Logs that the optimizer is another than that of the base."""
    before = base.settings["optimizer"]
    if optimizer != before:
        _log.info(
            "The optimizer is %s, that of the base %s: the state of that one is not "
            "used.",
            optimizer,
            before,
        )


def _digest(model: ModelFile) -> str:
    """SHA-256 of all that a run reads from a model, independent of its file."""
    digest = hashlib.sha256(Vocabulary(model.tokens, model.counts).digest.encode())
    for array in (
        model.input,
        model.output,
        *([] if model.subwords is None else [model.subwords]),
        *model.row_state.values(),
        np.array(model.loss_history),
    ):
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def plan(
    config: Config,
    corpus: Corpus | GraphFiles,
    cache: Path | None,
    base: ModelFile | None = None,
    grow: bool = False,
    models: Sequence[Config] = (),
    *,
    earlier: Sequence[EarlierCorpus] = (),
    starting: Starting = NO_START,
) -> Training:
    """The training of `config` over `corpus`, which is encoded here.

    Args:
      cache: folder of encoded corpora; None: encode in memory.
      base: the model to start from.
      grow: tokens that `base` lacks get rows; else they are skipped.
      models: as of `Problem.plan`.
      earlier: corpora to replay.
      starting: the vectors to start from, and the rows that are frozen.

    Raises:
      OSError, InputError: the corpus cannot be read, or leaves no token to train, or
        `base` has another architecture, vector size or dtype, or `starting` has no
        token of the corpus.
    """
    starting.check_size(config.tables.vector_size)
    starting = starting.for_model(config.tables.negative > 0)
    check_grow(grow, config.tables)
    check_continues(config.tables, base is not None)
    if isinstance(corpus, GraphFiles):
        config, *models = (plan_walks(one, base) for one in (config, *models))
    check_replay(config)
    of_update: np.ndarray | None = None
    of_output: np.ndarray | None = None
    first, known = 0, None
    if base is not None:
        _check_base(config, base)
        first = len(base.loss_history)
        known = BaseVocabulary(Vocabulary(base.tokens, base.counts), grow)
        if grow and earlier:
            known = with_earlier_counts(known, earlier, cache)
    encoded = _encoded(config.tables, corpus, cache, known)
    if not encoded.num_tokens:
        raise InputError(
            f"Corpus {corpus.source} has no token of the vocabulary of `resume`: give "
            "--grow."
        )
    epochs = range(first, first + config.run.epochs)
    num_tokens, row_updates = encoded.num_tokens, encoded.vocabulary.row_updates
    if base is not None and config.tables.schedule == "continue":
        assert isinstance(encoded, Encoded), "`plan_walks` refuses a base"
        num_tokens = int(encoded.vocabulary.counts.sum())
        vocabulary = BaseVocabulary(encoded.vocabulary)
        replayed = encoded_earlier(vocabulary, earlier, cache)
        update = plan_update(base, encoded, replayed, config.tables)
        encoded, base, of_update, of_output = update
    facts = row_updates, repeats_of(encoded)
    common, *each = (
        resolve(one, num_tokens, epochs.stop, *facts) for one in (config, *models)
    )
    if each:
        largest = max((one.tables for one in (common, *each)), key=_max_distance)
        common = common_config(each, window=largest.window)
    num_old = None if base is None else len(base.tokens)
    start, frozen = plan_start(starting, encoded.vocabulary, common.run.dtype, num_old)
    factors = joined_factors(frozen, of_update, of_output)
    return Training(common, encoded, epochs, base, each, start=start, factors=factors)


def _max_distance(options: TablesOptions) -> int:
    return options.max_distance


def _encoded(
    options: TablesOptions,
    corpus: Corpus | GraphFiles,
    cache: Path | None,
    known: BaseVocabulary | None,
) -> TokenSource:
    """The corpus as ids, in memory or in a folder of `cache`."""
    if isinstance(corpus, GraphFiles):
        return encode_graph(corpus, options, cache)
    try:
        if cache is None:
            return encode(corpus, options.min_count, known)
        return encode_cached(corpus, options.min_count, cache, known)
    except NoTokensError as error:
        raise InputError(f"Corpus {corpus.source}: {error}") from error


def _check_base(config: Config, base: ModelFile) -> None:
    """Raises InputError if `base` has another architecture, objective, vector size or
    dtype."""
    options = options_of(config)
    for name in ("architecture", "cbow_mean", "vector_size", "dtype", "hs", *_NGRAMS):
        if (there := base.settings[name]) != (here := options[name]):
            raise InputError(
                f"`{name}` must be that of the run to start from, {there!r}, got "
                f"{here!r}."
            )
    there, here = base.settings["negative"], config.tables.negative
    if bool(there) != bool(here):
        rule = "above 0" if there else "0"
        raise InputError(
            f"`negative` must be {rule}, as that of the run to start from, {there}, "
            f"got {here}."
        )


def write_results(run: Workdir, model: ModelFile) -> Vectors:
    """Writes the vectors of a trained model, and marks the run as finished."""
    return _write_vectors(run, Vectors(model.tokens, model.input, model.counts))


def _write_vectors(run: Workdir, vectors: Vectors) -> Vectors:
    if not all(map(is_key, vectors.keys)):
        _log.warning(
            "vectors.txt is not written: a token has white space or more than %d "
            "bytes.",
            MAX_TOKEN_BYTES,
        )
    else:
        write_vectors(vectors, run.text_vectors)
    folder.finish(run, vectors)
    return vectors


def _ensemble(training: Training, end: Snapshot) -> Ensemble:
    return Ensemble(*_tokens_and_table(training, end))


def _tokens_and_table(
    training: Training, end: Snapshot
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Tokens, input table [V, D], of replicas [K, V, D], and counts i64[V]."""
    vocabulary = training.encoded.vocabulary
    table = np.asarray(end.state.params["tables"]["input"])
    return vocabulary.tokens, table, vocabulary.counts


def _model(training: Training, end: Snapshot, before: list[float]) -> ModelFile:
    """The model file of a run; `workers` is 1: those of `legacy` are processes."""
    tables = end.state.params["tables"]
    assert training.config.tables.block is not None, "its settings are resolved"
    return ModelFile(
        settings=model_settings(training.config) | {"workers": 1},
        block=training.config.tables.block,
        tokens=training.encoded.vocabulary.tokens,
        counts=training.encoded.vocabulary.counts,
        input=np.asarray(tables["input"]),
        output=np.asarray(tables["output"]),
        loss_history=before + end.position.losses,
        row_state=training.program.optimizer.row_state(end.state.opt_state),
        subwords=tables.get(TABLE),
    )
