"""Runs of an encoder over examples: what is read, and what is left at the end."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from embedder.config import Config, options_of
from embedder.disk.files import atomic_file
from embedder.encoders.artefact import ENCODER_SETTINGS, EncoderFile, write_encoder
from embedder.encoders.examples import Examples, open_examples
from embedder.encoders.networks import layers_of
from embedder.encoders.options import parse_arguments
from embedder.encoders.outputs import embed, probabilities
from embedder.encoders.training import EncoderTraining
from embedder.engine.epochs import Snapshot
from embedder.errors import InputError
from embedder.run import workdir as folder
from embedder.run.workdir import Workdir
from embedder.vectors.vectors import Vectors


class EncoderProblem:
    """Trains an encoder on examples.

    Raises:
      OSError, ValueError: there are none at `source`.
    """

    def __init__(self, config: Config, source: str | None):
        if source is None:
            raise InputError(
                "DATA must be given for an encoder: an idx file, npz, parquet, or a "
                "folder of images."
            )
        self.base = None
        self._set = open_examples(source, config.encoder, config.run.workers)
        self.name = self._set.name
        self.manifest = self._set.manifest

    def plan(self, config: Config, cache: Path | None) -> EncoderTraining:
        """The training of `config` over these examples, with images decoded in `cache`.

        Raises:
          OSError, ValueError: they cannot be read, or do not fit `config`.
        """
        examples = self._set.read(cache)
        return EncoderTraining(config, examples, range(config.run.epochs))

    def begin(self, run: Workdir, training: EncoderTraining) -> None:
        """There is nothing to write before the first update."""

    def vectors(self, training: EncoderTraining, end: Snapshot) -> Vectors:
        """The last hidden layer of every example."""
        network, examples = training.program.encoder, training.examples
        matrix = embed(network, end.state.params, examples.features)
        return Vectors(examples.keys, matrix)

    def finish(self, run: Workdir, training: EncoderTraining, end: Snapshot) -> Vectors:
        """Writes all results; vectors.safetensors is the last."""
        write_encoder(run.model, _model(training, end))
        _write_labels(run.labels, training, end)
        vectors = self.vectors(training, end)
        folder.finish(run, vectors)
        return vectors


def _model(training: EncoderTraining, end: Snapshot) -> EncoderFile:
    names, examples = training.metrics, training.examples
    return EncoderFile(
        settings=model_settings(training.config),
        classes=np.array(examples.classes),
        layers=layers_of(end.state.params),
        history=[dict(zip(names, each, strict=True)) for each in end.position.history],
        shape=examples.features.shape[1:],
        kind=examples.features.dtype.name,
    )


def model_settings(config: Config) -> dict[str, Any]:
    """The arguments of `FeatureEncoder` in `config`; `workers` are processes there."""
    options = options_of(config) | {"workers": 1}
    arguments = parse_arguments(options["optimizer_args"]) or None
    layers = list(options["layers"]) or None
    options |= {"layers": layers, "optimizer_args": arguments}
    return {name: options[name] for name in ENCODER_SETTINGS}


def _write_labels(path: Path, training: EncoderTraining, end: Snapshot) -> None:
    """key, label, predicted, probability, and whether the example was trained on."""
    examples: Examples = training.examples
    network = training.program.encoder
    found = probabilities(network, end.state.params, examples.features)
    best = found.argmax(axis=1)
    classes = np.array(examples.classes)
    frame = pl.DataFrame(
        {
            "key": examples.keys,
            "label": classes[examples.labels],
            "predicted": classes[best],
            "probability": found.max(axis=1),
            "trained": np.isin(np.arange(len(best)), training.source.train),
        }
    )
    with atomic_file(path) as part:
        frame.write_parquet(part)
