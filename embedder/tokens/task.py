"""Runs of tables over a text: the files they read, and the results they write."""

import logging
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from embedder.config import Config
from embedder.config.token_options import TokensOptions
from embedder.data.attribute_tables import attributes_of_setting, write_kept
from embedder.data.columns import NOT_GIVEN, Columns, columns_of
from embedder.data.corpus import Corpus, demo_corpus
from embedder.data.earlier import (
    EarlierCorpus,
    corpora_of_base,
    files_replayed_twice,
    open_earlier,
)
from embedder.data.graph import GraphFiles, open_graph
from embedder.data.huffman import codes_and_points
from embedder.data.kept_names import given_names, names_in, warning_about
from embedder.data.sources import file_corpus, is_corpus_file
from embedder.data.tfdata import check_tensorflow, has_tensorflow, import_tensorflow
from embedder.data.vocabulary import NoTokensError, write_vocabulary
from embedder.disk import workdir as folder
from embedder.disk.copies import local_copy
from embedder.disk.run_record import without_file_secrets
from embedder.disk.workdir import Workdir
from embedder.engine.compilation import prepare_devices
from embedder.engine.epochs import Checkpoint
from embedder.engine.state import TrainState
from embedder.engine.task import PretrainedRun
from embedder.errors import InputError
from embedder.metrics.score_table import write_scores
from embedder.tokens.artefact import ModelFile, model_of_state, read_model, write_model
from embedder.tokens.continue_training import log_dropped
from embedder.tokens.plan import TrainingInputs, plan
from embedder.tokens.pretrained import (
    check_one_start,
    model_digest,
    read_base,
    read_start,
    write_start,
)
from embedder.tokens.session_counts import (
    begin_next_items,
    finish_next_items,
    keeps_next_items,
)
from embedder.tokens.trainer import TokensTrainer
from embedder.vectors.ensemble import Ensemble
from embedder.vectors.ensemble_files import write_ensemble
from embedder.vectors.export import write_run_vectors, write_vectors
from embedder.vectors.vectors import Vectors
from embedder.vectors.word2vec import MAX_TOKEN_BYTES, is_key

_log = logging.getLogger(__name__)


class TokensTask:
    """Trains tables over a text or a graph, from initial tables or those of a `base`.

    It implements `embedder.engine.task.Task`.

    Raises:
      OSError, InputError: there is no text at `source`, or no model at `base`.
    """

    def __init__(
        self,
        source: str | None,
        base: PretrainedRun | None = None,
        options: TokensOptions = TokensOptions(),  # noqa: B008 - it is immutable
        cache: Path | None = None,
        workdir: Path | None = None,
    ):
        check_one_start(options, base is not None)
        self._corpus = _open_source(source, options, cache)
        self.name, self.manifest = self._corpus.name, self._corpus.manifest
        self._base: ModelFile | None = None
        self._grow = base is not None and base.grow
        self._base_path = None if base is None else base.path
        self.base: dict[str, Any] | None = None
        if base is not None:
            self._base = read_base(base.path)
            corpora = corpora_of_base(base.path, len(self._base.tokens))
            self.base = {
                "path": base.url or os.path.abspath(base.path),
                "grow": base.grow,
                "sha256": model_digest(self._base),
                "corpora": corpora,
            }
        if options.replay and self.base is None:
            raise InputError(
                f"`replay` needs `resume`, the run to train on, got {options.replay}."
            )
        self._earlier: list[EarlierCorpus] = []
        if options.replay and self.base is not None:
            self._earlier = open_earlier(self.base["corpora"], cache)
        run = Workdir(workdir or folder.default_workdir(self.name))
        self.names = given_names(options.names, run, cache)
        self._start = read_start(options, cache, run)
        self._attributes = attributes_of_setting(options.attributes, run, cache)
        facts = self._start.facts
        if self._attributes is not None:
            facts["attributes"] = self._attributes.digest
        if facts:
            self.base = {"path": None, "grow": False, "sha256": ""} | (self.base or {})
            self.base |= facts

    def plan(
        self, config: Config, cache: Path | None, models: Sequence[Config] = ()
    ) -> TokensTrainer:
        """See `Task.plan`."""
        prepare_devices()
        if config.run.loader == "tfdata":
            check_tensorflow()
        if _uses_tensorflow(config):  # takes seconds: it loads while we encode
            threading.Thread(target=import_tensorflow).start()
        config, *models = (without_file_secrets(each) for each in (config, *models))
        inputs = TrainingInputs(
            config=config,
            source=self._corpus,
            cache=cache,
            base=self._base,
            grow=self._grow,
            models=models,
            earlier=self._earlier,
            start=self._start,
            attributes=self._attributes,
        )
        try:
            return TokensTrainer(plan(inputs))
        except NoTokensError as error:
            raise InputError(f"Corpus {self._corpus.source}: {error}") from error

    def begin(self, run: Workdir, training: TokensTrainer) -> None:
        """Writes the vocabulary, and the base model; called before the first update."""
        encoded = training.encoded
        tree = training.plan.tree
        paths = tree and codes_and_points(tree)
        write_vocabulary(encoded.vocabulary, run.vocabulary, paths)
        if self._base is not None:
            write_model(run.base, self._base)  # so the run no longer needs the other
            _log.info(
                "Starts from the vectors of %d %s; %d are new; %.1f %% of the data is "
                "in the vocabulary.",
                len(self._base.tokens),
                encoded.item_name,
                len(encoded.vocabulary) - len(self._base.tokens),
                100 * encoded.num_tokens / encoded.raw_tokens,
            )
            log_dropped(encoded, self._grow, "--grow")
            before = self._base.settings["optimizer"]
            if (optimizer := training.config.run.optimizer) != before:
                _log.info(
                    "The optimizer is %s, that of the base %s: the state of that one "
                    "is not used.",
                    *(optimizer, before),
                )
        if keeps_next_items(training.config):
            begin_next_items(run, training.encoded, self._base_path)
        if self._earlier:
            _log.info("Replays %s.", ", ".join(x.corpus.source for x in self._earlier))
        if twice := files_replayed_twice(self.manifest, self._earlier):
            _log.warning(
                "Files of the corpus are also replayed, and their tokens count twice: "
                "%s.",
                ", ".join(twice),
            )
        if self.names is not None:
            names = names_in(self.names, run.names)
            if warning := warning_about(names, encoded.vocabulary.tokens):
                _log.warning("%s", warning)
        if self._start.vectors is not None or self._start.frozen is not None:
            write_start(run.start, self._start, encoded.vocabulary)
        if self._attributes is not None:
            write_kept(run.attributes, self._attributes)

    def end_state(self, run: Workdir, training: TokensTrainer) -> TrainState | None:
        """The state in the model file of a finished run; None: replicas have none."""
        if training.has_replicas:
            return None
        return training.state_of(read_model(run.model))

    def vectors(self, training: TokensTrainer, end: Checkpoint) -> Vectors:
        """The vectors at `end`; of replicas the mean."""
        if training.has_replicas:
            return Ensemble(*_tokens_and_table(training, end)).mean()
        return Vectors(*_tokens_and_table(training, end))

    def finish(self, run: Workdir, training: TokensTrainer, end: Checkpoint) -> Vectors:
        """Writes scores, the model file and the vectors; the run is finished then.

        Replicas have no model file: they write the vectors of each, and their mean.
        """
        if training.has_replicas:
            ensemble = Ensemble(*_tokens_and_table(training, end))
            write_ensemble(ensemble, run.replicas)
            return _write_vectors(run, ensemble.mean())
        scores = training.scores_with_intervals(end.state)
        losses = self._base.loss_history if self._base else []
        vocabulary, losses = training.encoded.vocabulary, losses + end.position.losses
        model = model_of_state(
            training.config, vocabulary, end.state, losses, training.plan.attributes
        )
        model = model._replace(key_type=self._corpus.key_type)
        if keeps_next_items(training.config):
            holdout = training.config.tables.sequence_holdout
            scores = finish_next_items(
                *(run, model, training.encoded, holdout, scores),
                is_update=self._base is not None,
            )
        if scores:
            write_scores(run, scores)
        write_model(run.model, model)
        return write_results(run, model)


def _uses_tensorflow(config: Config) -> bool:
    """Whether the run is likely to load batches by tf.data."""
    if config.run.loader != "auto":
        return config.run.loader == "tfdata"
    has_many_devices = jax.default_backend() != "cpu" or jax.device_count() > 1
    return has_many_devices and has_tensorflow()


def _open_source(
    source: str | None, options: TokensOptions, cache: Path | None
) -> Corpus | GraphFiles:
    """The corpus or the graph at `source`, of a URL at its copy."""
    if source is not None:
        source = local_copy(source, cache, is_corpus_file)
    if options.walks:
        return open_graph(source, options)
    return open_corpus(source, options.unicode_errors, columns_of(options))


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
    write_run_vectors(run, vectors)
    return vectors


def _tokens_and_table(
    training: TokensTrainer, end: Checkpoint
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Tokens, input table [V, D], of replicas [K, V, D], and counts i64[V]."""
    vocabulary = training.encoded.vocabulary
    table = np.asarray(end.state.params["tables"]["input"])
    return vocabulary.tokens, table, vocabulary.counts
