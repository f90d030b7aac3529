"""Where a network starts: parameters of another encoder, by module, name and shape."""

import collections
import hashlib
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from embedder.config import read_toml
from embedder.disk.files import atomic_file
from embedder.disk.urls import without_secrets
from embedder.encoders.embedding import read_model
from embedder.encoders.networks.network import CLASSES, Model
from embedder.errors import InputError
from embedder.run.remote_run import copy_of_base
from embedder.run.workdir import Workdir


class Start(NamedTuple):
    """The encoder that a network starts from."""

    model: Model
    shown: str  # what it was read from, for messages
    content: bytes  # of its file
    classes: tuple[str, ...]

    @property
    def facts(self) -> dict[str, str]:
        """Digests by which a run recognises another start."""
        return {"init_network": hashlib.sha256(self.content).hexdigest()}

    def check(self, model: Model) -> None:
        """Checks that `model`, or its shapes, can start here.

        Raises:
          InputError: no module has all of its own here, or only the last layer.
        """
        found = self._fitting_modules(model)
        if not found or (found == {CLASSES} and len(model.params) > 1):
            which = f" but `{CLASSES}`" if found else ""
            raise InputError(
                f"`init_from` {self.shown} has no module with parameters of the same "
                f"names and shapes as the network{which}: give the --network and "
                "--network-args of that run."
            )

    def into(self, model: Model) -> Model:
        """`model` with the parameters and averages that have the same module, name and
        shape here, in its dtypes."""

        def started(path, first):
            found = self._found(path, first)
            return first if found is None else found.astype(first.dtype)

        return jax.tree_util.tree_map_with_path(started, model)

    def coverage(self, model: Model) -> str:
        """How much of `model` starts here, as a line."""
        num = sum(first.size for _, first in self._matching(model))
        total = sum(leaf.size for leaf in jax.tree.leaves(model.params))
        return (
            f"start: {num} of {total} parameters are those of {self.shown}; the others "
            "are drawn"
        )

    def _fitting_modules(self, model: Model) -> set[str]:
        """The modules of `model` all of whose parameters start here."""
        matching = collections.Counter(module for module, _ in self._matching(model))
        return {m for m, num in matching.items() if num == len(model.params[m])}

    def _matching(self, model: Model) -> list[tuple[str, np.ndarray]]:
        """Module and first values of each parameter of `model` that starts here."""
        leaves, _ = jax.tree_util.tree_flatten_with_path(model.params)
        prefix = (jax.tree_util.GetAttrKey("params"),)
        return [
            (path[0].key, leaf)
            for path, leaf in leaves
            if self._found((*prefix, *path), leaf) is not None
        ]

    def _found(self, path, first) -> np.ndarray | None:
        field, module, name = path[0].name, path[1].key, path[2].key
        values = getattr(self.model, field).get(module, {})
        found = values.get(name)
        if found is None or np.shape(found) != first.shape:
            return None
        return np.asarray(found)


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
    if run is not None and not path.exists() and _kept(run) == shown:
        path = run.start
    model = read_model(path, "`init_from`")
    if model.rotations is not None:
        raise InputError(
            f"`init_from` {shown} has {len(model.replicas)} networks: give a run of "
            "one."
        )
    file = Workdir(path).model if path.is_dir() else path
    arrays = model.network.to_model(model.arrays)
    classes = tuple(map(str, model.classes))
    return Start(arrays, shown, file.read_bytes(), classes)


def write_start(run: Workdir, start: Start) -> None:
    """Keeps the start in the run, which may move to another machine."""
    with atomic_file(run.start) as part:
        part.write_bytes(start.content)


def _kept(run: Workdir) -> str | None:
    """What the run of a workdir started from."""
    if not (run.is_started and run.start.exists()):
        return None
    config = read_toml(run.config)
    return config.encoder.init_network if config.run.model == "encoder" else None
