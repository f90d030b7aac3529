"""Runs of an encoder: reads the examples, and writes the results."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from embedder.config import Config, common_config, options_of
from embedder.encoders.artefact import (
    ENCODER_SETTINGS,
    NETWORK_SETTINGS,
    EncoderFile,
    write_encoder,
)
from embedder.encoders.formats import DESCRIPTION, open_examples
from embedder.encoders.labels import write_labels
from embedder.encoders.networks.network import Model
from embedder.encoders.options import parse_arguments
from embedder.encoders.predictor import Predictor
from embedder.encoders.start import Start, read_start, write_start
from embedder.encoders.training import EncoderTraining
from embedder.encoders.update import model_of
from embedder.engine.compilation import avoid_slow_scatters
from embedder.engine.epochs import Snapshot
from embedder.engine.replicas import stack_states, unstack_states
from embedder.engine.state import TrainState
from embedder.errors import InputError
from embedder.evaluation.retrieval import retrieval_table
from embedder.evaluation.score_table import ScoreTable
from embedder.run import workdir as folder
from embedder.run.score_file import write_scores
from embedder.run.workdir import Workdir
from embedder.vectors.vectors import Vectors

_QUERIES = 1000  # of the scores at the end of a training
_PAIRS = 2e7  # of a query and another example: a second or two


class EncoderProblem:
    """Trains an encoder on the examples at `source`; see `Problem`.

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
        self._start: Start | None = None
        if config.encoder.init_network:
            run = Workdir(workdir or Path())
            self._start = read_start(config.encoder.init_network, cache, run)
            self.base = {"path": None, "grow": False, "sha256": ""} | self._start.facts
        options = config.encoder
        self._set = open_examples(
            source,
            options,
            config.run.workers,
            cache,
            needs_labels=options.needs_labels,
        )
        self.name = self._set.name
        self.manifest = self._set.manifest

    def plan(
        self, config: Config, cache: Path | None, models: Sequence[Config] = ()
    ) -> EncoderTraining:
        """The training of `config` on these examples.

        Args:
          cache: folder for decoded images; None: they stay in memory.
          models: as of `Problem.plan`.

        Raises:
          OSError, InputError: they cannot be read, or do not fit `config`.
        """
        examples = self._set.read(cache)
        common = common_config(models) if models else config
        epochs = range(config.run.epochs)
        return EncoderTraining(common, examples, epochs, models, self._start)

    def begin(self, run: Workdir, training: EncoderTraining) -> None:
        """Keeps the start, if there is one."""
        if self._start is not None:
            write_start(run, self._start)

    def end_state(self, run: Workdir, training: EncoderTraining) -> TrainState | None:
        """None: results of an encoder do not have the optimizer's state."""

    def vectors(self, training: EncoderTraining, end: Snapshot) -> Vectors:
        """The embedding of every example, by its key; of replicas the aligned mean."""
        predictor, features = _predictor(training, end), training.examples.features
        matrix = predictor.vectors(features, predictor.rotations(features))
        return Vectors(training.examples.keys, matrix)

    def finish(self, run: Workdir, training: EncoderTraining, end: Snapshot) -> Vectors:
        """Writes all results, vectors.safetensors last: it marks the run finished.

        The scores are those of retrieval among the validation examples.
        """
        examples, predictor = training.examples, _predictor(training, end)
        rotations = predictor.rotations(examples.features)
        write_encoder(run.model, _model(training, end, rotations))
        found, matrix = predictor.predict_and_embed(
            examples.features, rotations, examples.labels
        )
        is_trained = np.isin(np.arange(len(examples.keys)), training.source.train)
        write_labels(run.labels, examples, found, is_trained, training.has_replicas)
        if scores := _scores(matrix[~is_trained], examples.labels[~is_trained]):
            write_scores(run, scores)
        vectors = Vectors(examples.keys, matrix)
        folder.finish(run, vectors)
        return vectors


def _scores(vectors: np.ndarray, labels: np.ndarray) -> ScoreTable:
    queries = min(_QUERIES, int(_PAIRS / max(len(labels), 1)))
    return retrieval_table(vectors, labels, queries)


def _predictor(training: EncoderTraining, end: Snapshot) -> Predictor:
    encoder, model = training.program.encoder, model_of(end.state)
    return Predictor(encoder, model, training.has_replicas)


def _networks(training: EncoderTraining, end: Snapshot) -> list[Model]:
    """The model of each network."""
    model = model_of(end.state)
    return unstack_states(model) if training.has_replicas else [model]


def _model(
    training: EncoderTraining, end: Snapshot, rotations: np.ndarray | None
) -> EncoderFile:
    names, examples = training.metrics, training.examples
    arrays = [training.network.to_arrays(each) for each in _networks(training, end)]
    settings = model_settings(training.config) | training.network.settings
    options = training.config.encoder
    if options.network != "mlp" or options.objective != "softmax":
        settings |= {name: getattr(options, name) for name in NETWORK_SETTINGS}
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
    )


def model_settings(config: Config) -> dict[str, Any]:
    """The arguments of `FeatureEncoder` that equal `config`; workers are processes."""
    options = options_of(config) | {"workers": 1}
    arguments = parse_arguments(options["optimizer_args"]) or None
    layers = list(options["layers"]) or None
    options |= {"layers": layers, "optimizer_args": arguments}
    return {name: options[name] for name in ENCODER_SETTINGS}
