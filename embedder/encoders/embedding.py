"""Vectors of new examples, by the encoder of a run."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from embedder.disk.arrays import memory_map_npy
from embedder.disk.files import check_utf8_path, name_file_in_errors, short_reason
from embedder.encoders.artefact import EncoderFile, read_encoder
from embedder.encoders.images import IMAGES, read_image
from embedder.encoders.outputs import embed, network_of, probabilities
from embedder.errors import InputError, InputNotFoundError
from embedder.run.workdir import Workdir
from embedder.vectors.vectors import Vectors


class Embedded(NamedTuple):
    """New examples and what they are taken for."""

    vectors: Vectors
    predictions: list[tuple[str, str, float]]  # key, label and its probability


def embed_files(run: Path, files: tuple[str, ...]) -> Embedded:
    """The examples in `files`: an image each, or .npy files of features [n, ...].

    Raises:
      FileNotFoundError: there is no run, no encoder in it, or no such file.
      ValueError: a file holds something else than the encoder was trained on.
    """
    model = _model(run)
    keys, parts = [], []
    for name in files:
        check_utf8_path(name, "FILE")  # it is the key of a vector
        features = _features(Path(name), model)
        single = len(features) == 1
        keys.extend([name] if single else [f"{name}:{i}" for i in range(len(features))])
        parts.append(features)
    x = np.concatenate(parts)
    network, params = network_of(model.layers)
    found = probabilities(network, params, x)
    labels = [str(model.classes[i]) for i in found.argmax(axis=1)]
    shares = found.max(axis=1)
    return Embedded(
        Vectors(keys, embed(network, params, x)),
        list(zip(keys, labels, shares.tolist(), strict=True)),
    )


def _model(run: Path) -> EncoderFile:
    if not run.exists():
        raise InputNotFoundError(f"RUN {run} does not exist.")
    return read_encoder(Workdir(run).model if run.is_dir() else run)


def _features(path: Path, model: EncoderFile) -> np.ndarray:
    """[n, ...] of the shape and dtype that the encoder was trained on."""
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
    if found.shape == model.shape:
        found = found[np.newaxis]
    if found.shape[1:] != model.shape or found.dtype.kind not in "iuf":
        raise InputError(
            f"FILE {path} must be {model.kind} of [n, "
            f"{', '.join(map(str, model.shape))}], got {found.dtype}"
            f"{list(found.shape)}."
        )
    if (found.dtype == np.uint8) != (model.kind == "uint8"):
        raise InputError(
            f"FILE {path} must be of {model.kind}, as the encoder was trained on, got "
            f"{found.dtype}."
        )
    if not len(found):
        raise InputError(f"FILE {path} has no examples: it is {list(found.shape)}.")
    features = np.asarray(found, model.kind)
    if not np.isfinite(features).all():
        raise InputError(f"FILE {path} has features that are not finite.")
    return features


def _image(path: Path, model: EncoderFile) -> np.ndarray:
    """In the size that the encoder knows, with colours or without them."""
    if model.kind != "uint8" or len(model.shape) not in (2, 3):
        raise InputError(
            f"FILE {path} is an image, and the encoder was trained on {model.kind} "
            f"{list(model.shape)}: give .npy."
        )
    image = read_image(path, model.shape[:2], "L" if len(model.shape) == 2 else "RGB")
    if image.shape != model.shape:
        raise InputError(
            f"FILE {path} is {list(image.shape)}, and the encoder was trained on "
            f"{list(model.shape)}."
        )
    return image
