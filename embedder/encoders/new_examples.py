"""Examples for a trained encoder: new ones, or those that it was trained on; the
embeddings and predicted classes of new ones."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from embedder.base.prefetch import parallel_map
from embedder.config import Config, read_toml
from embedder.config.encoder_options import EncoderOptions
from embedder.data.examples.example_formats import DESCRIPTION, open_examples
from embedder.data.examples.examples import Examples, warn_of_pixels, without_channel
from embedder.data.examples.images import read_image
from embedder.disk.arrays import memory_map_npy
from embedder.disk.files import (
    IMAGES,
    check_utf8_path,
    name_file_in_errors,
    short_reason,
)
from embedder.disk.run_record import changed_data, manifest_of, source_of
from embedder.disk.urls import is_url, without_secrets
from embedder.disk.workdir import Workdir
from embedder.encoders.artefact import EncoderFile, network_options, read_model
from embedder.encoders.predictor import predictor_of
from embedder.errors import InputError, InputNotFoundError
from embedder.metrics.uncertainty import EntropySplit
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


NewExamples = tuple[list[str], np.ndarray]
"""Keys, and features [n, ...] as the encoder takes them; there are no labels."""


def read_new_examples(
    names: tuple[str, ...], run: Path, model: EncoderFile, workers: int
) -> NewExamples:
    """The examples in files, folders and URLs.

    The key of an image is the name that is given; those in an .npy file are NAME:ROW;
    those of other data are as in training, and NAME:KEY if several names are given.

    Args:
      names: images, one example each, .npy files of features [n, ...], or data as
        for training, which need no labels.
      run: the folder of the run of `model`, or the encoder file.
      workers: threads that decode images.

    Raises:
      InputNotFoundError: there is no such file.
      InputError: a file is damaged, or has another shape or dtype than the encoder.
    """
    options = reading_options(run, model)

    def read(name: str) -> NewExamples:
        check_utf8_path(name, "FILE")  # it is the key of a vector
        path = Path(name)
        if not is_url(name):
            if not path.exists():
                raise InputNotFoundError(f"FILE {name} does not exist.")
            if path.is_file() and path.suffix.lower() in IMAGES:
                return [name], _image(path, model)[np.newaxis]
            if path.is_file() and path.suffix.lower() == ".npy":
                features = features_in(path, model)
                rows = [f"{name}:{i}" for i in range(len(features))]
                return (rows if len(features) > 1 else [name]), features
        return _data(name, options, model, workers, len(names) > 1)

    keys, features = zip(*parallel_map(read, names, workers), strict=True)
    return [key for each in keys for key in each], np.concatenate(features)


def reading_options(run: Path, model: EncoderFile) -> EncoderOptions:
    """Settings to read examples by: columns as of the run, images as of the encoder."""
    config, options = Workdir(run).config, network_options(model.settings)
    if run.is_dir() and config.exists():
        options = read_toml(config).encoder
    shown: dict[str, Any] = {}
    if _takes_images(model):
        size, is_grey = model.example_shape[:2], _is_grey(model)
        shown = {"image_size": size, "channels": "1" if is_grey else "3"}
    return EncoderOptions(label=options.label, key=options.key, **shown)


def features_in(path: Path, model: EncoderFile) -> np.ndarray:
    """The features in an .npy file, [n, ...], in the shape and dtype of the encoder.

    Raises:
      InputError: the file is damaged, or of another shape or dtype.
    """
    try:
        with name_file_in_errors(path):
            array = memory_map_npy(path)
    except ValueError as error:
        reason = short_reason(error)
        raise InputError(f"FILE {path} is not a whole .npy file: {reason}.") from error
    if array.shape == model.example_shape:
        array = array[np.newaxis]
    features = _fitted(array, model, str(path))
    if not np.isfinite(features).all():
        raise InputError(f"FILE {path} has features that are not finite.")
    warn_of_pixels(array, str(path))
    return features


def _data(
    name: str, options: EncoderOptions, model: EncoderFile, workers: int, prefix: bool
) -> NewExamples:
    """The examples of data in a format of training."""
    shown = without_secrets(name)
    try:
        data = open_examples(
            *(name, options, workers), needs_labels=False, columns=model.columns
        )
    except InputNotFoundError as error:
        raise InputNotFoundError(_not_read(shown, error)) from error
    except InputError as error:
        raise InputError(_not_read(shown, error)) from error
    examples = data.read(None)
    features = _fitted(examples.features, model, shown)
    keys = [f"{shown}:{key}" for key in examples.keys] if prefix else examples.keys
    return keys, features


def _not_read(name: str, error: InputError | InputNotFoundError) -> str:
    """The message for a file of no format, which may be of more than in training."""
    text = str(error.args[0])
    if not text.endswith(f"must be {DESCRIPTION}."):
        return text
    return (
        f"FILE {name} must be an image ({', '.join(IMAGES)}), .npy of features, or "
        f"{DESCRIPTION}."
    )


def _fitted(features: np.ndarray, model: EncoderFile, name: str) -> np.ndarray:
    """Features [n, ...] in the shape and dtype of the encoder.

    Pixels are of u8, and others are not: values of 0 to 255 and of 0 to 1 are never
    taken for each other.
    """
    expected, kind = model.example_shape, model.example_dtype
    is_same = without_channel(features.shape[1:]) == without_channel(expected)
    if features.ndim < 1 or not is_same or features.dtype.kind not in "iuf":
        raise InputError(
            f"FILE {name} must be {kind} of [n, {', '.join(map(str, expected))}], got "
            f"{features.dtype}{list(features.shape)}."
        )
    if not len(features):
        raise InputError(f"FILE {name} has no examples: it is {list(features.shape)}.")
    if (features.dtype == np.uint8) != (kind == "uint8"):
        range_ = f"{features.min():g} to {features.max():g}"
        scale = " of 0 to 255" if kind == "uint8" else ""
        raise InputError(
            f"FILE {name} must be of {kind}{scale}, as the encoder was trained on, got "
            f"{features.dtype} of {range_}."
        )
    return np.asarray(features, kind).reshape(len(features), *expected)


def _takes_images(model: EncoderFile) -> bool:
    """Whether examples of the encoder are pixels of images, grey or RGB."""
    shape = model.example_shape
    is_image = len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 3))
    return is_image and model.example_dtype == "uint8"


def _image(path: Path, model: EncoderFile) -> np.ndarray:
    """The image in the size of the encoder's examples, in colour if they are."""
    shape = model.example_shape
    if not _takes_images(model):
        raise InputError(
            f"FILE {path} is an image, and the encoder was trained on "
            f"{model.example_dtype} {list(shape)}: give .npy."
        )
    image = read_image(path, shape[:2], "L" if _is_grey(model) else "RGB")
    return image.reshape(shape)


def _is_grey(model: EncoderFile) -> bool:
    return len(without_channel(model.example_shape)) == 2


def read_examples(run: Path) -> tuple[Config, Examples]:
    """The settings of a run, and its examples, which its manifest must describe.

    Raises:
      InputError: the examples have changed.
      InputNotFoundError: they are gone.
    """
    workdir = Workdir(run)
    config, source = read_toml(workdir.config), source_of(workdir)
    assert source is not None, "an encoder has no demo corpus"
    options = config.encoder
    data = open_examples(
        source, options, config.run.workers, needs_labels=options.needs_labels
    )
    if changed := changed_data(manifest_of(workdir), data.manifest):
        raise InputError(
            f"DATA {source} has changed since RUN {run} was trained ({changed}): train "
            "again."
        )
    return config, data.read(workdir.cache if workdir.cache.is_dir() else None)
