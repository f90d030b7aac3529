"""Embeddings and predicted classes of new examples, by the encoder of a run."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from embedder.disk.arrays import memory_map_npy
from embedder.disk.files import check_utf8_path, name_file_in_errors, short_reason
from embedder.encoders.artefact import EncoderFile, read_encoder
from embedder.encoders.images import IMAGES, read_image
from embedder.encoders.predictor import predictor_of
from embedder.encoders.uncertainty import EntropySplit
from embedder.errors import InputError, InputNotFoundError
from embedder.run.inputs import check_has_one_model
from embedder.run.workdir import Workdir
from embedder.vectors.vectors import Vectors


class Embedded(NamedTuple):
    """Embeddings and predicted classes of new examples."""

    vectors: Vectors
    predictions: list[tuple[str, str, float]]  # key, predicted class, its probability
    entropies: EntropySplit | None  # of replicas; None: one network


def embed_files(run: Path, files: tuple[str, ...]) -> Embedded:
    """Embeddings and classes of the examples in `files`, by the encoder of `run`.

    Of replicas they are means; embeddings are aligned as those of the run.

    Args:
      run: folder of a run, or an encoder file.
      files: images, one example each, or .npy files of features [n, ...].

    Raises:
      InputNotFoundError: there is no run, no encoder in it, or no such file.
      InputError: a file is damaged, or has another shape or dtype than the encoder.
    """
    model = read_model(run)
    keys, parts = [], []
    for name in files:
        check_utf8_path(name, "FILE")  # it is the key of a vector
        features = _features(Path(name), model)
        single = len(features) == 1
        keys.extend([name] if single else [f"{name}:{i}" for i in range(len(features))])
        parts.append(features)
    x = np.concatenate(parts)
    predictor = predictor_of(model)
    split = predictor.predict(x)
    labels = [str(model.classes[i]) for i in split.probabilities.argmax(axis=1)]
    best = split.probabilities.max(axis=1).tolist()
    return Embedded(
        Vectors(keys, predictor.vectors(x, model.rotations)),
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


def _features(path: Path, model: EncoderFile) -> np.ndarray:
    """The features in a file, [n, ...], in the shape and dtype of the encoder."""
    if not path.exists():
        raise InputNotFoundError(f"FILE {path} does not exist.")
    if path.suffix.lower() in IMAGES:
        return _image(path, model)[np.newaxis]
    if path.suffix != ".npy":
        raise InputError(
            f"FILE {path} must be an image ({', '.join(IMAGES)}) or .npy of features."
        )
    try:
        with name_file_in_errors(path):
            found = memory_map_npy(path)
    except ValueError as error:
        reason = short_reason(error)
        raise InputError(f"FILE {path} is not a whole .npy file: {reason}.") from error
    if found.shape == model.example_shape:
        found = found[np.newaxis]
    if found.shape[1:] != model.example_shape or found.dtype.kind not in "iuf":
        raise InputError(
            f"FILE {path} must be {model.example_dtype} of [n, "
            f"{', '.join(map(str, model.example_shape))}], got {found.dtype}"
            f"{list(found.shape)}."
        )
    if (found.dtype == np.uint8) != (model.example_dtype == "uint8"):
        raise InputError(
            f"FILE {path} must be of {model.example_dtype}, as the encoder was trained "
            f"on, got {found.dtype}."
        )
    if not len(found):
        raise InputError(f"FILE {path} has no examples: it is {list(found.shape)}.")
    features = np.asarray(found, model.example_dtype)
    if not np.isfinite(features).all():
        raise InputError(f"FILE {path} has features that are not finite.")
    return features


def _image(path: Path, model: EncoderFile) -> np.ndarray:
    """The image in the size of the encoder's examples, in colour if they are."""
    if model.example_dtype != "uint8" or len(model.example_shape) not in (2, 3):
        raise InputError(
            f"FILE {path} is an image, and the encoder was trained on "
            f"{model.example_dtype} {list(model.example_shape)}: give .npy."
        )
    image = read_image(
        path, model.example_shape[:2], "L" if len(model.example_shape) == 2 else "RGB"
    )
    if image.shape != model.example_shape:
        raise InputError(
            f"FILE {path} is {list(image.shape)}, and the encoder was trained on "
            f"{list(model.example_shape)}."
        )
    return image
