"""The protocol of a family: what a run reads, trains and writes.

A family is a package with a section of settings (`options.py`), a `Problem` and a
`Training`; `families.py` names it. The run and the engine know these protocols alone.
"""

from pathlib import Path
from typing import NamedTuple, Protocol

from embedder.config import Config
from embedder.engine.epochs import Snapshot, Trainable
from embedder.engine.layout import Layout
from embedder.engine.state import TrainState
from embedder.errors import InputError
from embedder.run.workdir import Workdir
from embedder.vectors.vectors import Vectors


class Training(Trainable, Protocol):
    """A training with all that a run needs of it: settings over data."""

    config: Config  # with nothing left open
    layout: Layout
    superblock_size: int  # updates of a call
    content: str  # digest of the tokens, or of the classes
    start_loss: float  # of the first parameters
    memory: dict[str, int]  # bytes on the host, by what needs them
    device_memory: dict[str, int]  # bytes on each device, by what needs them
    memory_advice: str  # what to do where memory is short
    description: list[str]  # lines about the data and the updates

    def initial_state(self) -> TrainState:
        """The state before the first update."""


class Problem(Protocol):
    """What a run is about: some data, and what is learned from them."""

    name: str
    manifest: list[dict]  # of the files that it reads
    base: dict | None  # the run that it goes on from, and a digest of that

    def plan(self, config: Config, cache: Path | None) -> Training:
        """The training of `config` over the data, prepared in the folder `cache`."""

    def begin(self, run: Workdir, training: Training) -> None:
        """Writes what is known before the first update."""

    def vectors(self, training: Training, end: Snapshot) -> Vectors:
        """The vectors that were learned."""

    def finish(self, run: Workdir, training: Training, end: Snapshot) -> Vectors:
        """Writes all results; the vectors last, with which the run is finished."""


class Base(NamedTuple):
    """The run whose vectors are the start."""

    path: Path  # of the run, or of a model file
    grow: bool  # whether new tokens get rows; else they are left out


def open_base(resume: str | Path | None, grow: bool) -> Base | None:
    """The base that two arguments name; ValueError if one does without the other."""
    if resume is not None:
        return Base(Path(resume), grow)
    if grow:
        raise InputError("`grow` needs `resume`, the run to go on from.")
    return None
