"""Sections of settings that all families share."""

from dataclasses import dataclass
from typing import Literal

from embedder.errors import InputError
from embedder.settings import (
    Interval,
    integer,
    interval,
    read_interval,
    setting,
    text,
    validate,
)


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What is trained, and for how long."""

    model: Literal["tokens", "encoder"] = setting(
        "tokens", former_values={"tables": "tokens"}
    )
    """tokens: a vector for each token of a text; encoder: a network over features or
    images with labels, whose last hidden layer is the vector."""
    epochs: int = setting(5, integer(0))
    """Passes over the data; 0 writes the initial vectors."""
    seed: int = setting(1, integer(0, 2**64 - 1))
    """Of the initial vectors and of every draw."""
    dtype: Literal["float32", "float64"] = setting("float32")
    """Of the vectors and of all arithmetic on them."""
    optimizer: str = setting("sgd", text, formerly_in="encoder")
    """Rule of the updates: sgd or adagrad for tables; for an encoder any of optax by
    its name, as sgd, adam, adamw, rmsprop or lion."""
    loader: Literal["tfdata", "memory"] = setting(
        "tfdata", changes_vectors=False, is_per_host=True
    )
    """Both yield the same batches, bit for bit; memory does without TensorFlow."""
    workers: int = setting(2, integer(1), changes_vectors=False, is_per_host=True)
    """Threads that make batches."""

    def __post_init__(self):
        validate(self)


@dataclass(frozen=True, kw_only=True)
class DeviceOptions:
    """Which devices take part."""

    mode: Literal["auto", "jit", "sharded", "pmap"] = setting(
        "auto", changes_vectors=False
    )
    """jit: one device; sharded: jit over a mesh of devices; pmap: the same by pmap;
    auto: jit, or sharded where several devices have work or tables need them."""
    devices: int = setting(0, integer(0), changes_vectors=False)
    """How many devices; 0: all that an update has blocks for."""

    def __post_init__(self):
        validate(self)


@dataclass(frozen=True, kw_only=True)
class SaveOptions:
    """When a run saves a checkpoint, and which it keeps."""

    save_every: str = setting("10min", interval, changes_vectors=False)
    """So many updates, as 100; or a time or epochs, as 30s, 10min, 2h, 1epoch; or
    never."""
    keep: int = setting(2, integer(1), changes_vectors=False)
    """How many of these checkpoints are kept, the newest; besides the best."""
    result: Literal["last", "best"] = setting("last", changes_vectors=False)
    """Whether the run ends with the vectors of the last epoch, or of the best."""

    def __post_init__(self):
        validate(self)

    @property
    def interval(self) -> Interval:
        """`save_every`, parsed."""
        return read_interval(self.save_every)


@dataclass(frozen=True, kw_only=True)
class PeersConfig:
    """Several processes that are one run; none given: as mpirun or srun says."""

    coordinator: str | None = setting(None, text)
    """HOST:PORT of process 0."""
    num_processes: int | None = setting(None, integer(1))
    """How many processes take part."""
    process_id: int | None = setting(None, integer(0))
    """Which of them this is, from 0."""
    init_timeout: int = setting(60, integer(1))
    """Seconds to wait for the others."""
    lost_after: int = setting(20, integer(1))
    """Seconds without a sign of life, until another process counts as lost."""

    def __post_init__(self):
        validate(self)
        names = ("coordinator", "num_processes", "process_id")
        given = [name for name in names if getattr(self, name) is not None]
        if not given:
            return
        if missing := [f"`{name}`" for name in names if name not in given]:
            here = ", ".join(f"`{name}` = {getattr(self, name)!r}" for name in given)
            raise InputError(f"{here} needs {' and '.join(missing)} too.")
        integer(0, (self.num_processes or 1) - 1)(self, "process_id")
        host, _, port = str(self.coordinator).rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
            raise InputError(
                f"`coordinator` must be HOST:PORT, got {self.coordinator!r}."
            )
