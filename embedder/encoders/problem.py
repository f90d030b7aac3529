"""Runs of an encoder: reads the examples, and writes the results."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from embedder.config import Config, options_of
from embedder.disk.files import atomic_file
from embedder.encoders.artefact import ENCODER_SETTINGS, EncoderFile, write_encoder
from embedder.encoders.examples import Examples
from embedder.encoders.formats import DESCRIPTION, open_examples
from embedder.encoders.options import parse_arguments
from embedder.encoders.outputs import embed, probabilities
from embedder.encoders.training import EncoderTraining
from embedder.engine.epochs import Snapshot
from embedder.errors import InputError
from embedder.run import workdir as folder
from embedder.run.workdir import Workdir
from embedder.vectors.vectors import Vectors


class EncoderProblem:
    """Trains an encoder on the examples at `source`; see `Problem`.

    Raises:
      InputNotFoundError, InputError: there are none at `source`.
    """

    def __init__(self, config: Config, source: str | None):
        if source is None:
            raise InputError(f"DATA must be given for an encoder: {DESCRIPTION}.")
        self.base = None
        self._set = open_examples(source, config.encoder, config.run.workers)
        self.name = self._set.name
        self.manifest = self._set.manifest

    def plan(self, config: Config, cache: Path | None) -> EncoderTraining:
        """The training of `config` on these examples.

        Args:
          cache: folder for decoded images; None: they stay in memory.

        Raises:
          OSError, InputError: they cannot be read, or do not fit `config`.
        """
        examples = self._set.read(cache)
        return EncoderTraining(config, examples, range(config.run.epochs))

    def begin(self, run: Workdir, training: EncoderTraining) -> None:
        """Writes nothing: results are known after the training only."""

    def vectors(self, training: EncoderTraining, end: Snapshot) -> Vectors:
        """The embedding of every example, by its key."""
        encoder, examples = training.program.encoder, training.examples
        matrix = embed(encoder, end.state.params, examples.features)
        return Vectors(examples.keys, matrix)

    def finish(self, run: Workdir, training: EncoderTraining, end: Snapshot) -> Vectors:
        """Writes all results, vectors.safetensors last: it marks the run finished."""
        write_encoder(run.model, _model(training, end))
        _write_labels(run.labels, training, end)
        vectors = self.vectors(training, end)
        folder.finish(run, vectors)
        return vectors


def _model(training: EncoderTraining, end: Snapshot) -> EncoderFile:
    names, examples = training.metrics, training.examples
    return EncoderFile(
        settings=model_settings(training.config) | training.network.settings,
        classes=np.array(examples.classes),
        arrays=training.network.to_arrays(end.state.params),
        history=[dict(zip(names, each, strict=True)) for each in end.position.history],
        example_shape=examples.features.shape[1:],
        example_dtype=examples.features.dtype.name,
    )


def model_settings(config: Config) -> dict[str, Any]:
    """The arguments of `FeatureEncoder` that equal `config`; workers are processes."""
    options = options_of(config) | {"workers": 1}
    arguments = parse_arguments(options["optimizer_args"]) or None
    layers = list(options["layers"]) or None
    options |= {"layers": layers, "optimizer_args": arguments}
    return {name: options[name] for name in ENCODER_SETTINGS}


def _write_labels(path: Path, training: EncoderTraining, end: Snapshot) -> None:
    """Writes key, label, predicted, probability and `trained` of each example."""
    examples: Examples = training.examples
    encoder = training.program.encoder
    probability = probabilities(encoder, end.state.params, examples.features)
    best = probability.argmax(axis=1)
    classes = np.array(examples.classes)
    frame = pl.DataFrame(
        {
            "key": examples.keys,
            "label": classes[examples.labels],
            "predicted": classes[best],
            "probability": probability.max(axis=1),
            "trained": np.isin(np.arange(len(best)), training.source.train),
        }
    )
    with atomic_file(path) as part:
        frame.write_parquet(part)
