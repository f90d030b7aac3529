"""Runs of an encoder: reads the examples, and writes the results."""

import functools
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from embedder.config import Config, common_config, options_of
from embedder.config.encoder_options import parse_arguments
from embedder.data.examples.example_formats import DESCRIPTION, open_examples
from embedder.data.examples.examples import Examples
from embedder.disk.files import atomic_file
from embedder.disk.run_record import without_file_secrets
from embedder.disk.workdir import Workdir
from embedder.encoders.artefact import (
    ENCODER_SETTINGS,
    EncoderFile,
    settings_of,
    write_encoder,
)
from embedder.encoders.plan import TrainingInputs, plan
from embedder.encoders.predicted_labels import write_labels
from embedder.encoders.predictor import Predictor
from embedder.encoders.start import Start, read_start
from embedder.encoders.train_step import model_of
from embedder.encoders.trainer import EncoderTrainer
from embedder.engine.compilation import avoid_slow_scatters
from embedder.engine.epochs import Checkpoint
from embedder.engine.replicas import stack_states, unstack_states
from embedder.engine.state import TrainState
from embedder.errors import InputError
from embedder.metrics.score_table import retrieval_table, write_scores
from embedder.vectors.export import write_run_vectors
from embedder.vectors.vectors import Vectors

_log = logging.getLogger(__name__)
_QUERIES = 1000  # of the scores at the end of a training
_PAIRS = 2e7  # of a query and another example: a second or two


class EncoderTask:
    """Trains an encoder on the examples at `source`; see `Task`.

    Raises:
      InputNotFoundError, InputError: there are none at `source`.
    """

    def __init__(
        self,
        config: Config,
        source: str | None,
        cache: Path | None = None,
        workdir: Path | None = None,
    ):
        avoid_slow_scatters()  # before the first use of a device
        if source is None:
            raise InputError(f"DATA must be given for an encoder: {DESCRIPTION}.")
        self.base: dict[str, Any] | None = None
        self.names: bytes | None = None
        self._start: Start | None = None
        if config.encoder.init_network:
            run = Workdir(workdir or Path())
            self._start = read_start(config.encoder.init_network, cache, run)
            self.base = {"path": None, "grow": False, "sha256": ""} | self._start.facts
        self._set = open_examples(
            *(source, config.encoder, config.run.workers, cache),
            needs_labels=config.encoder.needs_labels,
        )
        self.name, self.manifest = self._set.name, self._set.manifest
        self._examples: Examples | None = None
        self._warn = functools.cache(_log.warning)  # of several trainings once

    def plan(
        self, config: Config, cache: Path | None, models: Sequence[Config] = ()
    ) -> EncoderTrainer:
        """The training of `config` on these examples.

        Args:
          cache: folder for decoded images; None: they stay in memory.
          models: as of `Task.plan`.

        Raises:
          OSError, InputError: they cannot be read, or do not fit `config`.
        """
        config, *models = (without_file_secrets(each) for each in (config, *models))
        if self._examples is None:
            self._examples = self._set.read(cache)
        inputs = TrainingInputs(
            config=common_config(models) if models else config,
            examples=self._examples,
            models=models,
            start=self._start,
            warn=self._warn,
        )
        return EncoderTrainer(plan(inputs))

    def begin(self, run: Workdir, training: EncoderTrainer) -> None:
        """Keeps the start, if there is one, as the run may move to another machine."""
        if self._start is not None:
            with atomic_file(run.start) as part:
                part.write_bytes(self._start.content)

    def end_state(self, run: Workdir, training: EncoderTrainer) -> TrainState | None:
        """None: results of an encoder do not have the optimizer's state."""

    def vectors(self, training: EncoderTrainer, end: Checkpoint) -> Vectors:
        """The embedding of every example, by its key; of replicas the aligned mean."""
        predictor, features = _predictor(training, end), training.examples.features
        matrix = predictor.vectors(features, predictor.rotations(features))
        return Vectors(training.examples.keys, matrix)

    def finish(
        self, run: Workdir, training: EncoderTrainer, end: Checkpoint
    ) -> Vectors:
        """Writes all results, vectors.safetensors last: it marks the run finished.

        The scores are those of retrieval among the validation examples.
        """
        examples, predictor = training.examples, _predictor(training, end)
        rotations = predictor.rotations(examples.features)
        write_encoder(run.model, _model(training, end, rotations))
        predictions, matrix = predictor.predict_and_embed(
            examples.features, rotations, examples.labels
        )
        is_trained = np.isin(np.arange(len(examples.keys)), training.source.train)
        write_labels(
            run.labels, examples, predictions, is_trained, training.has_replicas
        )
        held, labels = matrix[~is_trained], examples.labels[~is_trained]
        queries = min(_QUERIES, int(_PAIRS / max(len(labels), 1)))
        if scores := retrieval_table(held, labels, queries):
            write_scores(run, scores)
        vectors = Vectors(examples.keys, matrix)
        write_run_vectors(run, vectors)
        return vectors


def _predictor(training: EncoderTrainer, end: Checkpoint) -> Predictor:
    encoder, model = training.program.encoder, model_of(end.state)
    return Predictor(encoder, model, training.has_replicas)


def _model(
    training: EncoderTrainer, end: Checkpoint, rotations: np.ndarray | None
) -> EncoderFile:
    examples, config, network = training.examples, training.config, training.network
    model, names = model_of(end.state), training.metrics
    models = unstack_states(model) if training.has_replicas else [model]
    arrays = [*map(network.to_arrays, models)]
    settings = model_settings(config) | network.settings
    settings |= settings_of(network, config.encoder)
    if training.has_replicas:
        settings["replicas"] = len(arrays)
    return EncoderFile(
        settings=settings,
        classes=np.array(examples.classes),
        arrays=stack_states(arrays) if training.has_replicas else arrays[0],
        history=[dict(zip(names, each, strict=True)) for each in end.position.history],
        example_shape=examples.features.shape[1:],
        example_dtype=examples.features.dtype.name,
        rotations=rotations,
        columns=examples.columns,
    )


def model_settings(config: Config) -> dict[str, Any]:
    """The arguments of `FeatureEncoder` that equal `config`; workers are processes."""
    options = options_of(config) | {"workers": 1}
    options["layers"] = [*options["layers"]] or None
    options["optimizer_args"] = parse_arguments(options["optimizer_args"]) or None
    return {name: options[name] for name in ENCODER_SETTINGS}
