"""New examples for a trained encoder, read in the shape and dtype that it knows."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from embedder.config import read_toml
from embedder.disk.arrays import memory_map_npy
from embedder.disk.files import check_utf8_path, name_file_in_errors, short_reason
from embedder.disk.kinds import IMAGES
from embedder.disk.urls import is_url, without_secrets
from embedder.encoders.artefact import EncoderFile, network_options
from embedder.encoders.examples import (
    may_be_pixels,
    warn_of_pixels,
    without_channel,
)
from embedder.encoders.formats import DESCRIPTION, open_examples
from embedder.encoders.images import read_image
from embedder.encoders.options import EncoderOptions
from embedder.engine.prefetch import parallel_map
from embedder.errors import InputError, InputNotFoundError
from embedder.run.workdir import Workdir


class NewExamples(NamedTuple):
    """Examples without labels."""

    keys: list[str]
    features: np.ndarray  # [n, ...], as the encoder takes them


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
                return NewExamples([name], _image(path, model)[np.newaxis])
            if path.is_file() and path.suffix == ".npy":
                found = features_in(path, model)
                rows = [f"{name}:{i}" for i in range(len(found))]
                return NewExamples(rows if len(found) > 1 else [name], found)
        return _data(name, options, model, workers, len(names) > 1)

    parts = [*parallel_map(read, names, workers)]
    keys = [key for each in parts for key in each.keys]
    return NewExamples(keys, np.concatenate([each.features for each in parts]))


def reading_options(run: Path, model: EncoderFile) -> EncoderOptions:
    """Settings to read examples by: columns as of the run, images as of the encoder."""
    config = Workdir(run).config
    found = read_toml(config).encoder if run.is_dir() and config.exists() else None
    options = network_options(model.settings) if found is None else found
    if not _takes_images(model):
        return EncoderOptions(label=options.label, key=options.key)
    return EncoderOptions(
        label=options.label,
        key=options.key,
        image_size=model.example_shape[:2],
        channels="1" if _is_grey(model) else "3",
    )


def features_in(path: Path, model: EncoderFile) -> np.ndarray:
    """The features in an .npy file, [n, ...], in the shape and dtype of the encoder.

    Raises:
      InputError: the file is damaged, or of another shape or dtype.
    """
    try:
        with name_file_in_errors(path):
            found = memory_map_npy(path)
    except ValueError as error:
        reason = short_reason(error)
        raise InputError(f"FILE {path} is not a whole .npy file: {reason}.") from error
    if found.shape == model.example_shape:
        found = found[np.newaxis]
    features = _fitted(found, model, str(path))
    if not np.isfinite(features).all():
        raise InputError(f"FILE {path} has features that are not finite.")
    if may_be_pixels(found):
        warn_of_pixels(str(path))
    return features


def _data(
    name: str, options: EncoderOptions, model: EncoderFile, workers: int, prefix: bool
) -> NewExamples:
    """The examples of data in a format of training."""
    shown = without_secrets(name)
    try:
        found = open_examples(name, options, workers, needs_labels=False)
    except InputNotFoundError as error:
        raise InputNotFoundError(_not_read(shown, error)) from error
    except InputError as error:
        raise InputError(_not_read(shown, error)) from error
    examples = found.read(None)
    features = _fitted(examples.features, model, shown)
    keys = [f"{shown}:{key}" for key in examples.keys] if prefix else examples.keys
    return NewExamples(keys, features)


def _not_read(name: str, error: InputError | InputNotFoundError) -> str:
    """The message for a file of no format, which may be of more than in training."""
    text = str(error.args[0])
    if not text.endswith(f"must be {DESCRIPTION}."):
        return text
    return (
        f"FILE {name} must be an image ({', '.join(IMAGES)}), .npy of features, or "
        f"{DESCRIPTION}."
    )


def _fitted(found: np.ndarray, model: EncoderFile, name: str) -> np.ndarray:
    """Features [n, ...] in the shape and dtype of the encoder.

    Pixels are of u8, and others are not: values of 0 to 255 and of 0 to 1 are never
    taken for each other.

    Raises:
      InputError: they have others.
    """
    expected, kind = model.example_shape, model.example_dtype
    is_same = without_channel(found.shape[1:]) == without_channel(expected)
    if found.ndim < 1 or not is_same or found.dtype.kind not in "iuf":
        raise InputError(
            f"FILE {name} must be {kind} of [n, {', '.join(map(str, expected))}], got "
            f"{found.dtype}{list(found.shape)}."
        )
    if not len(found):
        raise InputError(f"FILE {name} has no examples: it is {list(found.shape)}.")
    if (found.dtype == np.uint8) != (kind == "uint8"):
        range_ = f"{found.min():g} to {found.max():g}"
        scale = " of 0 to 255" if kind == "uint8" else ""
        raise InputError(
            f"FILE {name} must be of {kind}{scale}, as the encoder was trained on, got "
            f"{found.dtype} of {range_}."
        )
    return np.asarray(found, kind).reshape(len(found), *expected)


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
