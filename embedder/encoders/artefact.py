"""An encoder in one `.npz` file, in the format of `legacy`.

Members: `format` (bytes of a name and a version), `settings` and `history` (UTF-8 JSON:
arguments of `FeatureEncoder` and `Network.settings`, metrics of each epoch), `classes`
[C], the parameters (of an MLP `weights_0` [F, .], `biases_0` [.], `weights_1` and so
on), and optionally `shape` i64[] and `kind`, the shape of an example and the bytes of
its dtype, and `columns`, the names of the features (JSON). A setting that a file lacks
has its default. Nothing is pickled, and the checksums of zip show damage.

A file of K replicas has the setting `replicas`, parameters with a first axis K, and
`rotations` [K, E, E], which align the embeddings of each replica to those of the first.
`legacy` reads no such file.
"""

import dataclasses
import json
import math
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from embedder.config.encoder_options import EncoderOptions
from embedder.config.run_options import RunOptions
from embedder.data.examples.examples import UNLABELLED
from embedder.disk.arrays import read_stored_array
from embedder.disk.files import atomic_file, name_file_in_errors, short_reason
from embedder.disk.run_record import check_has_one_model
from embedder.disk.workdir import Workdir
from embedder.encoders.networks.network import Model, Network
from embedder.encoders.networks.registry import network_in
from embedder.engine.replicas import unstack_states
from embedder.errors import InputError, InputNotFoundError

_FORMAT = b"embedder-encoder-model 1"
_MEMBERS = {"format", "settings", "classes", "history", "shape", "kind", "columns"}
_DTYPES = ("uint8", "float32", "float64")  # of an example
_TRAINING = (
    *("optimizer", "optimizer_args", "learning_rate", "batch_size"),
    *("epochs", "validation_fraction", "seed", "workers", "dtype"),
)
ENCODER_SETTINGS = ("layers", *_TRAINING)
"""Settings that every file holds: the arguments of `FeatureEncoder`."""
NETWORK_SETTINGS = (
    *("network", "network_args", "embedding_size", "objective", "objective_args"),
)
"""Settings that the file of another network than an MLP holds, too."""
_REPLICAS = "replicas"  # the setting of files with several networks


class EncoderFile(NamedTuple):
    """Contents of an encoder file."""

    settings: dict[str, Any]
    classes: np.ndarray  # [C]
    arrays: dict[str, np.ndarray]  # see `Network.to_arrays`; of replicas with K first
    history: list[dict[str, float | None]]  # metrics of each epoch
    example_shape: tuple[int, ...]
    example_dtype: str
    rotations: np.ndarray | None = None  # [K, E, E]; None: one network
    columns: tuple[str, ...] = ()  # [F], names of the features; (): they have none

    @property
    def is_unlabelled(self) -> bool:
        """Whether it was trained on examples without labels: no class is predicted."""
        return self.classes.tolist() == [UNLABELLED]

    @property
    def replicas(self) -> list[dict[str, np.ndarray]]:
        """The parameters of each network."""
        has_replicas = self.rotations is not None
        return unstack_states(self.arrays) if has_replicas else [self.arrays]

    @property
    def network(self) -> Network:
        """The network of `arrays`, the same of all replicas."""
        options = network_options(self.settings)
        return network_in(options, self.replicas[0], self.example_shape)

    @property
    def models(self) -> list[Model]:
        """The model of each network."""
        return [*map(self.network.to_model, self.replicas)]


def write_encoder(path: Path, model: EncoderFile) -> None:
    """Writes `model` atomically: the whole file, or nothing."""
    classes = model.classes
    members = {
        "format": np.frombuffer(_FORMAT, np.uint8),
        "settings": _json(model.settings),
        "classes": classes.astype(str) if classes.dtype.hasobject else classes,
        "history": _json(model.history),
        "shape": np.array(model.example_shape, np.int64),
        "kind": np.frombuffer(model.example_dtype.encode(), np.uint8),
        **model.arrays,
    }
    if model.rotations is not None:
        members["rotations"] = model.rotations
    if model.columns:
        members["columns"] = _json(model.columns)
    with atomic_file(path) as part, open(part, "wb") as file:
        # The stub of savez takes every member for its argument `allow_pickle`.
        np.savez(file, **members)  # type: ignore[arg-type]


def read_encoder(path: Path) -> EncoderFile:
    """The encoder in a file that `write_encoder` or `legacy` wrote.

    Raises:
      InputNotFoundError: there is no such file.
      InputError: it is not an encoder file, or it is damaged.
    """
    if not path.exists():
        raise InputNotFoundError(f"Model file {path} does not exist.")
    try:
        with name_file_in_errors(path), zipfile.ZipFile(path) as archive:
            return _read(archive)
    except Exception as error:  # a damaged zip raises nearly anything
        reason = short_reason(error)
        raise InputError(f"{path} is not a whole encoder file: {reason}.") from error


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


def _read(archive: zipfile.ZipFile) -> EncoderFile:
    format_ = read_stored_array(archive, "format").tobytes()
    if format_ != _FORMAT:
        raise InputError(f"its format is {format_[:40]!r}, not {_FORMAT!r}")
    names = {name.removesuffix(".npy") for name in archive.namelist()}
    settings = _settings(archive)
    classes = read_stored_array(archive, "classes")
    arrays = {n: read_stored_array(archive, n) for n in sorted(names - _MEMBERS)}
    shape: tuple[int, ...] | None = None
    if "shape" in names:
        shape = tuple(read_stored_array(archive, "shape").tolist())
    rotations = _take_rotations(arrays, settings.get(_REPLICAS))
    first = arrays if rotations is None else unstack_states(arrays)[0]
    network = network_in(network_options(settings), first, shape)
    for name, array in arrays.items():
        _check_finite(name, array, settings["dtype"])
    if network.num_classes != len(classes):
        raise InputError(f"it has {len(classes)} classes, its layers another number")
    if rotations is not None:
        size = network.vector_size
        if rotations.shape[1:] != (size, size):
            raise InputError(f"`rotations` is {rotations.shape}, of vectors of {size}")
        _check_finite("rotations", rotations, settings["dtype"])
    shape = network.example_shape if shape is None else shape
    num_features = math.prod(network.example_shape)
    if min(shape, default=0) < 1 or math.prod(shape) != num_features:
        raise InputError(f"`shape` is {shape}, of {num_features} features")
    dtype = settings["dtype"]
    if "kind" in names:
        dtype = read_stored_array(archive, "kind").tobytes().decode()
    if dtype not in _DTYPES:
        raise InputError(f"`kind` is {dtype!r}")
    history = json.loads(read_stored_array(archive, "history").tobytes())
    if not isinstance(history, list):
        raise InputError("`history` is no JSON list")
    columns = _columns(archive, num_features) if "columns" in names else ()
    return EncoderFile(
        *(settings, classes, arrays, history, shape, dtype, rotations, columns)
    )


def _columns(archive: zipfile.ZipFile, num_features: int) -> tuple[str, ...]:
    names = json.loads(read_stored_array(archive, "columns").tobytes())
    is_names = isinstance(names, list) and all(isinstance(x, str) for x in names)
    if not is_names or len({*names}) != num_features:
        raise InputError(f"`columns` is no JSON list of {num_features} names")
    return tuple(names)


def _take_rotations(
    arrays: dict[str, np.ndarray], num_replicas: Any
) -> np.ndarray | None:
    """Takes the rotations of replicas out of the members; None: one network."""
    if num_replicas is None:
        return None
    if type(num_replicas) is not int or num_replicas < 2:
        raise InputError(f"`{_REPLICAS}` is {num_replicas!r}")
    if "rotations" not in arrays:
        raise InputError("it has no 'rotations'")
    for name, array in arrays.items():
        if array.shape[:1] != (num_replicas,):
            raise InputError(f"`{name}` is {array.shape}, of {num_replicas} replicas")
    return arrays.pop("rotations")


def _settings(archive: zipfile.ZipFile) -> dict[str, Any]:
    settings = json.loads(read_stored_array(archive, "settings").tobytes())
    options = (f.name for f in dataclasses.fields(EncoderOptions))
    known = {*ENCODER_SETTINGS, _REPLICAS, *options}
    if not isinstance(settings, dict) or not known.issuperset(settings):
        raise InputError("`settings` has other names than those of an encoder")
    layers = network_options(settings).layers or None
    return {"dtype": RunOptions.dtype} | settings | {"layers": layers}


def network_options(settings: dict[str, Any]) -> EncoderOptions:
    """The settings of the network, of those in a file; the others have defaults."""
    others = {*_TRAINING, _REPLICAS}
    options = {n: x for n, x in settings.items() if n not in others and x is not None}
    return EncoderOptions(**options)


def settings_of(network: Network, options: EncoderOptions) -> dict[str, Any]:
    """The `NETWORK_SETTINGS` of a file, unless the network and the objective are those
    of `legacy`, which does not know them."""
    has_default = options.objective == EncoderOptions.objective
    if has_default and "network" not in network.settings:
        return {}
    values = {name: getattr(options, name) for name in NETWORK_SETTINGS}
    return values | {"network": network.name}


def _check_finite(name: str, array: np.ndarray, dtype: str) -> None:
    if array.dtype != dtype or not np.isfinite(array).all():
        raise InputError(f"`{name}` is not finite numbers of {dtype}")


def _json(values: Any) -> np.ndarray:
    text = json.dumps(values, default=np.generic.item)  # settings may be of NumPy
    return np.frombuffer(text.encode(), np.uint8)
