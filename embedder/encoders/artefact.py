"""An encoder as one `.npz` file, of the form that `legacy` has.

Members: `format` (bytes of a name and a version), `settings` and `history` (UTF-8 JSON:
arguments of the constructor, metrics of each epoch), `classes` [C], `weights_0` [F, .],
`biases_0` [.], `weights_1` and so on, and perhaps `shape` i64[], of what an example is,
and `kind`, the bytes of its dtype. Nothing is pickled, and zip's checksums tell of
damage.
"""

import itertools
import json
import math
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from embedder.disk.arrays import read_stored_array
from embedder.disk.files import atomic_file, name_file_in_errors, short_reason
from embedder.errors import InputError, InputNotFoundError

_FORMAT = b"embedder-encoder-model 1"
ENCODER_SETTINGS = (
    *("layers", "optimizer", "optimizer_args", "learning_rate", "batch_size"),
    *("epochs", "validation_fraction", "seed", "workers", "dtype"),
)
"""Settings that the file holds: the arguments of `FeatureEncoder`."""


class EncoderFile(NamedTuple):
    """What the file holds."""

    settings: dict[str, Any]
    classes: np.ndarray  # [C]
    layers: list[tuple[np.ndarray, np.ndarray]]  # weights [in, out] and biases [out]
    history: list[dict[str, float | None]]  # of each epoch
    shape: tuple[int, ...]  # of an example
    kind: str  # its dtype


def write_encoder(path: Path, model: EncoderFile) -> None:
    """Writes `model` whole or not at all."""
    classes = model.classes
    members = {
        "format": np.frombuffer(_FORMAT, np.uint8),
        "settings": _json(model.settings),
        "classes": classes.astype(str) if classes.dtype.hasobject else classes,
        "history": _json(model.history),
        "shape": np.array(model.shape, np.int64),
        "kind": np.frombuffer(model.kind.encode(), np.uint8),
    }
    for number, (weights, biases) in enumerate(model.layers):
        members |= {f"weights_{number}": weights, f"biases_{number}": biases}
    with atomic_file(path) as part, open(part, "wb") as file:
        np.savez(file, **members)


def read_encoder(path: Path) -> EncoderFile:
    """The encoder in a file of `write_encoder`, or of `legacy`.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: it is not one, or not a whole one.
    """
    if not path.exists():
        raise InputNotFoundError(f"Model file {path} does not exist.")
    try:
        with name_file_in_errors(path), zipfile.ZipFile(path) as archive:
            return _model(archive)
    except Exception as error:  # a damaged zip raises nearly anything
        reason = short_reason(error)
        raise InputError(f"{path} is not a whole encoder file: {reason}.") from error


def _model(archive: zipfile.ZipFile) -> EncoderFile:
    found = read_stored_array(archive, "format").tobytes()
    if found != _FORMAT:
        raise InputError(f"its format is {found[:40]!r}, not {_FORMAT!r}")
    names = {name.removesuffix(".npy") for name in archive.namelist()}
    settings = json.loads(read_stored_array(archive, "settings").tobytes())
    if not isinstance(settings, dict) or set(settings) != set(ENCODER_SETTINGS):
        raise InputError("`settings` has other names than the arguments of an encoder")
    settings["layers"] = settings["layers"] and tuple(settings["layers"])
    count = sum(name.startswith("weights_") for name in names)
    layers = [
        (
            read_stored_array(archive, f"weights_{i}"),
            read_stored_array(archive, f"biases_{i}"),
        )
        for i in range(count)
    ]
    classes = read_stored_array(archive, "classes")
    known = {f"{kind}_{i}" for kind in ("weights", "biases") for i in range(count)}
    known |= {"format", "settings", "classes", "history", "shape", "kind"}
    if not names <= known:  # checksums are not of names
        raise InputError(f"{sorted(names - known)} are not members of an encoder")
    _check(layers, len(classes), settings["dtype"])
    shape = (len(layers[0][0]),)
    if "shape" in names:
        shape = tuple(read_stored_array(archive, "shape").tolist())
    if min(shape, default=0) < 1 or math.prod(shape) != len(layers[0][0]):
        raise InputError(f"`shape` is {shape}, of {len(layers[0][0])} features")
    kind = settings["dtype"]
    if "kind" in names:
        kind = read_stored_array(archive, "kind").tobytes().decode()
    if kind not in ("uint8", "float32", "float64"):
        raise InputError(f"`kind` is {kind!r}")
    history = json.loads(read_stored_array(archive, "history").tobytes())
    if not isinstance(history, list):
        raise InputError("`history` is no JSON list")
    return EncoderFile(settings, classes, layers, history, shape, kind)


def _check(layers, num_classes: int, dtype: str) -> None:
    if len(layers) < 2:
        raise InputError(f"it has {len(layers)} layers")
    for number, (weights, biases) in enumerate(layers):
        if weights.ndim != 2 or biases.shape != weights.shape[1:]:
            raise InputError(f"layer {number} is {weights.shape} and {biases.shape}")
        for array in (weights, biases):
            if array.dtype != dtype or not np.isfinite(array).all():
                raise InputError(f"layer {number} is not finite numbers of {dtype}")
    for (first, _), (second, _) in itertools.pairwise(layers):
        if first.shape[1] != second.shape[0]:
            raise InputError(f"layers of {first.shape} and {second.shape} do not fit")
    if layers[-1][0].shape[1] != num_classes:
        raise InputError(f"it has {num_classes} classes, its layers another number")


def _json(values: Any) -> np.ndarray:
    text = json.dumps(values, default=np.generic.item)  # settings may be of NumPy
    return np.frombuffer(text.encode(), np.uint8)
