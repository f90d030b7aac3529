"""Sections of settings that all families share."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from embedder.config.settings import (
    Interval,
    Refusal,
    boolean,
    integer,
    interval,
    read_interval,
    setting,
    text,
    validate,
)
from embedder.errors import InputError


def _needs_score(value: str) -> Refusal:
    """A row for a setting that needs a score."""
    message = "`{name}`" + value + " needs {s.scores}, got {value!r}."
    return Refusal(lambda s: not s.is_scored, message, of_run=True)


_NO_EVALUATIONS = Refusal(
    lambda s: read_interval(s.eval_every) == Interval(),
    "`{name}` counts evaluations, got {value} with `eval_every` = {s.eval_every!r}.",
    of_run=True,
)
_NOTHING_TO_EVALUATE = Refusal(
    lambda s: read_interval(s.eval_every) != Interval(epochs=1) and not s.is_scored,
    "`{name}` needs {s.scores}, by which vectors are scored, got {value!r}.",
    of_run=True,
)


_NO_WALKS = Refusal(
    lambda s: s.model == "tokens" and s.walks,
    "`{name}` applies only to texts: walks over a graph are drawn anew by each seed.",
    of_run=True,
)


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What is trained, how, and for how long."""

    groups: ClassVar = {"model": "training", "loader": "batches"}
    model: Literal["tokens", "encoder"] = setting("tokens")
    """tokens: a vector per token of a text. encoder: a network over features or
    images; the vector of an example is the layer before the classes."""
    epochs: int = setting(5, integer(0))
    """Passes over the data; 0 writes the initial vectors."""
    eval_every: str = setting(
        "1epoch", interval, changes_vectors=False, refusals=(_NOTHING_TO_EVALUATE,)
    )
    """Interval between evaluations: a number of updates (100), a time (30s, 10min, 2h),
    a number of epochs (1epoch), or never. The end of the run is always evaluated."""
    patience: int = setting(0, integer(0), refusals=(_needs_score(""), _NO_EVALUATIONS))
    """End the run after this many evaluations in a row without a better score (tokens:
    by --best-by or --holdout, encoder: by validation); 0: train all epochs."""
    seed: int = setting(1, integer(0, 2**64 - 1), is_per_model=True)
    """Seed of all random numbers: initial vectors, order, sampling, noise."""
    replicas: int = setting(1, integer(1, 2**16))
    """Number of models trained side by side, the k-th as with the seed `seed` + k.
    Their spread tells how far to trust a neighbour."""
    bootstrap: bool = setting(False, boolean, refusals=(_NO_WALKS,))
    """Train on a resample of the sequences (encoder: examples): as many as there are,
    drawn with replacement by the seed. Each replica has a resample of its own."""
    dtype: Literal["float32", "float64"] = setting("float32")
    """Type of the vectors and of all arithmetic on them."""
    optimizer: str = setting("sgd", text)
    """Optimizer. For tokens: sgd or adagrad. For an encoder: an optimizer of optax by
    name, such as sgd, adam, adamw, rmsprop or lion; adam if none is given."""
    loader: Literal["auto", "tfdata", "memory"] = setting(
        "auto", changes_vectors=False, is_per_host=True
    )
    """tfdata: batches by tf.data in the background. memory: without TensorFlow, whose
    import takes seconds. auto: memory for tokens on one CPU device, for an encoder if
    its features take at most a quarter of a device's memory, and where TensorFlow is
    not installed; else tfdata. The batches are the same, bit for bit."""
    workers: int = setting(2, integer(1), changes_vectors=False, is_per_host=True)
    """Number of threads that prepare batches."""

    def __post_init__(self):
        validate(self)

    @property
    def evaluation_interval(self) -> Interval:
        """`eval_every`, parsed."""
        return read_interval(self.eval_every)


@dataclass(frozen=True, kw_only=True)
class DeviceOptions:
    """Which devices a run uses."""

    groups: ClassVar = {"mode": "devices"}
    mode: Literal["auto", "jit", "sharded", "pmap"] = setting(
        "auto", changes_vectors=False
    )
    """jit: one device. sharded: jit over a mesh of devices. pmap: the same with pmap.
    auto: sharded if several devices have work or the tables need them, else jit."""
    devices: int = setting(0, integer(0), changes_vectors=False)
    """Number of devices; 0: as many as an update has blocks (encoder: examples) for."""

    def __post_init__(self):
        validate(self)


@dataclass(frozen=True, kw_only=True)
class SaveOptions:
    """When a run saves checkpoints, and which of them it keeps."""

    groups: ClassVar = {"save_every": "checkpoints and results"}
    save_every: str = setting("10min", interval, changes_vectors=False)
    """Interval between checkpoints: a number of updates (100), a time (30s, 10min, 2h),
    a number of epochs (1epoch), or never."""
    keep: int = setting(2, integer(1), changes_vectors=False)
    """Number of newest checkpoints to keep, besides the best."""
    result: Literal["last", "best"] = setting(
        "last", changes_vectors=False, refusals=(_needs_score(" best"),)
    )
    """Write the vectors of the end, or of the best evaluation (tokens: by --best-by
    or --holdout, encoder: by validation)."""
    report: bool = setting(True, boolean, changes_vectors=False)
    """Write report.html, a page about the run, when it ends, and the vectors for the
    projector of TensorBoard."""

    def __post_init__(self):
        validate(self)

    @property
    def interval(self) -> Interval:
        """`save_every`, parsed."""
        return read_interval(self.save_every)


@dataclass(frozen=True, kw_only=True)
class PeersConfig:
    """The processes of a run; by default as mpirun or srun started them."""

    groups: ClassVar = {"coordinator": "several processes"}
    coordinator: str | None = setting(None, text)
    """Address of process 0, as HOST:PORT."""
    num_processes: int | None = setting(None, integer(1))
    """Number of processes of the run. 1 needs no other flag: it trains alone, whatever
    mpirun or srun left in the environment."""
    process_id: int | None = setting(None, integer(0))
    """Number of this process, from 0."""
    init_timeout: int = setting(60, integer(1))
    """Seconds to wait until all processes have connected."""
    lost_after: int = setting(20, integer(1))
    """Seconds without a heartbeat after which another process counts as lost. On a
    loaded machine a healthy one can be silent for some seconds."""

    def __post_init__(self):
        validate(self)
        names = ("coordinator", "num_processes", "process_id")
        known = [name for name in names if getattr(self, name) is not None]
        if not known or (known == ["num_processes"] and self.num_processes == 1):
            return
        if missing := [f"`{name}`" for name in names if name not in known]:
            here = ", ".join(f"`{name}` = {getattr(self, name)!r}" for name in known)
            raise InputError(f"{here} needs {' and '.join(missing)} too.")
        integer(0, (self.num_processes or 1) - 1)(self, "process_id")
        host, _, port = str(self.coordinator).rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
            raise InputError(
                f"`coordinator` must be HOST:PORT, got {self.coordinator!r}."
            )
