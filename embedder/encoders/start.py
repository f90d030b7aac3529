"""Where a network starts: parameters of another encoder, by module, name and shape."""

import hashlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from embedder.config import read_toml
from embedder.data.examples.examples import name_difference
from embedder.disk.remote_run import copy_of_base
from embedder.disk.urls import without_secrets
from embedder.disk.workdir import Workdir
from embedder.encoders.artefact import read_model
from embedder.encoders.networks.network import (
    CLASSES,
    Model,
    Network,
    named_arrays,
    named_model,
)
from embedder.errors import InputError


class Start(NamedTuple):
    """The encoder that a network starts from."""

    network: Network
    model: Model
    shown: str  # what it was read from, for messages
    content: bytes  # of its file
    columns: tuple[str, ...] = ()  # names of its features; (): none

    def for_columns(self, columns: tuple[str, ...]) -> "Start":
        """This start for features of these names, whose order may be another.

        Raises:
          InputError: other features have names.
        """
        own = self.columns
        if not columns or not own or columns == own:
            return self
        if difference := name_difference(own, columns):
            raise InputError(
                f"`init_from` {self.shown} was trained on other columns: the examples "
                f"{difference}."
            )
        rows = [own.index(name) for name in columns]
        return self._replace(model=self.network.with_features(self.model, rows))

    @property
    def facts(self) -> dict[str, str]:
        """Digests by which a run recognises another start."""
        return {"init_network": hashlib.sha256(self.content).hexdigest()}

    def check(self, model: Model) -> None:
        """Checks that `model`, or its shapes, can start here.

        Raises:
          InputError: no module has all of its own here, or only the last layer.
        """
        matching = self._matching(model)
        modules = {
            module
            for module, values in model.params.items()
            if all(f"params/{module}/{name}" in matching for name in values)
        }
        if not modules or (modules == {CLASSES} and len(model.params) > 1):
            which = f" but `{CLASSES}`" if modules else ""
            raise InputError(
                f"`init_from` {self.shown} has no module with parameters of the same "
                f"names and shapes as the network{which}: give the --network and "
                "--network-args of that run."
            )

    def into(self, model: Model) -> Model:
        """`model` with the parameters and averages that have the same module, name and
        shape here, in its dtypes."""
        matching = self._matching(model)
        values = named_arrays(model)
        for name, first in values.items():
            if name in matching:
                values[name] = np.asarray(matching[name]).astype(first.dtype)
        return named_model(values)

    def coverage(self, model: Model) -> str:
        """How much of `model` starts here, as a line."""
        params = named_arrays(Model(model.params))
        matching, total = self._matching(model), sum(x.size for x in params.values())
        num = sum(x.size for name, x in params.items() if name in matching)
        return (
            f"start: {num} of {total} parameters are those of {self.shown}; the others "
            "are drawn"
        )

    def _matching(self, model: Model) -> dict[str, np.ndarray]:
        """The arrays that are here in the shapes that they have in `model`."""
        shapes = {name: x.shape for name, x in named_arrays(model).items()}
        arrays = named_arrays(self.model)
        return {n: x for n, x in arrays.items() if np.shape(x) == shapes.get(n)}


def read_start(
    source: str, cache: Path | None = None, run: Workdir | None = None
) -> Start:
    """The encoder of a run or model file, which may be a URL; what `run` kept of it if
    it is gone.

    Raises:
      OSError, InputError: there is none, it is damaged, or is of replicas.
    """
    shown = without_secrets(source)
    path = copy_of_base(source, cache)
    if run is not None and not path.exists() and run.is_started and run.start.exists():
        config = read_toml(run.config)
        if config.run.model == "encoder" and config.encoder.init_network == shown:
            path = run.start
    model = read_model(path, "`init_from`")
    if model.rotations is not None:
        raise InputError(
            f"`init_from` {shown} has {len(model.replicas)} networks: give a run of "
            "one."
        )
    file = Workdir(path).model if path.is_dir() else path
    content = file.read_bytes()
    return Start(model.network, model.models[0], shown, content, model.columns)
