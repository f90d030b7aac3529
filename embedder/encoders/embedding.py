"""Embeddings and predicted classes of new examples, by the encoder of a run."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from embedder.encoders.artefact import EncoderFile, read_encoder
from embedder.encoders.new_examples import read_new_examples
from embedder.encoders.predictor import predictor_of
from embedder.encoders.uncertainty import EntropySplit
from embedder.errors import InputNotFoundError
from embedder.run.inputs import check_has_one_model
from embedder.run.workdir import Workdir
from embedder.vectors.vectors import Vectors

if TYPE_CHECKING:
    import polars as pl


class Embedded(NamedTuple):
    """Embeddings and predicted classes of new examples."""

    vectors: Vectors
    predictions: list[tuple[str, str | None, float]]
    """Key, predicted class and its probability; the class is None if the encoder was
    trained without labels."""
    entropies: EntropySplit | None  # of replicas; None: one network

    @property
    def columns(self) -> "pl.DataFrame | None":
        """The predicted class and its probability, a row for each key; None: the
        encoder was trained without labels."""
        import polars as pl

        _, labels, shares = zip(*self.predictions, strict=True)
        if labels[0] is None:
            return None
        return pl.DataFrame({"class": labels, "probability": shares})


def embed_files(run: Path, files: tuple[str, ...]) -> Embedded:
    """Embeddings and classes of the examples in `files`, by the encoder of `run`.

    Of replicas they are means; embeddings are aligned as those of the run.

    Args:
      run: folder of a run, or an encoder file.
      files: images, .npy files or other data, see `read_new_examples`.

    Raises:
      InputNotFoundError: there is no run, no encoder in it, or no such file.
      InputError: a file is damaged, or has another shape or dtype than the encoder.
    """
    model = read_model(run)
    keys, x = read_new_examples(files, run, model, os.cpu_count() or 1)
    predictor = predictor_of(model)
    (split, _), vectors = predictor.predict_and_embed(x, model.rotations)
    classes = [None] if model.is_unlabelled else [*map(str, model.classes)]
    labels = [classes[i] for i in split.probabilities.argmax(axis=1)]
    best = split.probabilities.max(axis=1).tolist()
    return Embedded(
        Vectors(keys, vectors),
        list(zip(keys, labels, best, strict=True)),
        split if predictor.has_replicas else None,
    )


def read_model(run: Path, argument: str = "RUN") -> EncoderFile:
    """The encoder of a run, or in an encoder file.

    Args:
      argument: what names it, for messages.

    Raises:
      InputNotFoundError: there is none.
      InputError: it is damaged, or the run is of tables.
    """
    if not run.exists():
        raise InputNotFoundError(f"{argument} {run} does not exist.")
    if run.is_dir():
        check_has_one_model(Workdir(run), argument)
        return read_encoder(Workdir(run).model)
    return read_encoder(run)
