"""The protocol of a family: what a run reads, trains and writes.

A family is a package with a section of settings (`options.py`), a `Problem` and a
`Training`; `families.py` names it. The run and the engine use only these protocols.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from embedder.config import Config
from embedder.disk.urls import is_url, without_secrets
from embedder.engine.epochs import Snapshot, Trainable
from embedder.engine.layout import Layout
from embedder.engine.state import TrainState
from embedder.errors import InputError
from embedder.run.remote_run import copy_of_base
from embedder.run.workdir import Workdir
from embedder.vectors.vectors import Vectors


class Training(Trainable, Protocol):
    """Resolved settings over data, ready to train."""

    config: Config  # resolved
    layout: Layout
    superblock_size: int  # updates per call
    memory_advice: str  # what to change where memory is short

    @property
    def content(self) -> str:
        """Digest of the tokens, or of the labels."""

    @property
    def start_loss(self) -> float:
        """Loss of the initial parameters."""

    @property
    def baselines(self) -> dict[str, float]:
        """What the scores of an evaluation are beside, by "SCORE by MODEL"."""

    @property
    def memory(self) -> dict[str, int]:
        """Bytes needed on the host, by purpose."""

    @property
    def device_memory(self) -> dict[str, int]:
        """Bytes needed on each device, by purpose."""

    @property
    def description(self) -> list[str]:
        """Lines about the data and the updates."""

    @property
    def start_lines(self) -> tuple[str, ...]:
        """Those of them about what it starts from."""

    @property
    def corpus_facts(self) -> dict[str, float]:
        """Numbers about the data for the report, of `run.inputs.CORPUS_FACTS`."""

    def initial_state(self) -> TrainState:
        """The state before the first update."""


AnyTraining = TypeVar("AnyTraining", bound=Training)


class Problem(Protocol[AnyTraining]):
    """Some data, opened but not read, and what a family trains on them."""

    name: str
    manifest: list[dict[str, Any]]  # facts about each file, to recognise a changed one

    @property
    def base(self) -> dict[str, Any] | None:
        """The run whose vectors are the start, with a digest of them, and digests of
        the files of `inputs.START_FILES`."""

    def plan(
        self, config: Config, cache: Path | None, models: Sequence[Config] = ()
    ) -> AnyTraining:
        """The training of `config` over the data, which are encoded into `cache`.

        Args:
          models: the settings of models to train side by side; they may differ from
            `config` in `per_model_names()`. (): `replicas_of(config)`.
        """

    def begin(self, run: Workdir, training: AnyTraining) -> None:
        """Writes what is known before the first update."""

    def end_state(self, run: Workdir, training: AnyTraining) -> TrainState | None:
        """The state at the end of a finished run, by its results; None: they do not
        have all of it."""

    def vectors(self, training: AnyTraining, end: Snapshot) -> Vectors:
        """The trained vectors."""

    def finish(self, run: Workdir, training: AnyTraining, end: Snapshot) -> Vectors:
        """Writes all results; the vectors last, since they mark a finished run."""


class Base(NamedTuple):
    """The run whose vectors are the start."""

    path: Path  # of the run, or of a model file; of a URL: that of its copy
    grow: bool  # whether new tokens get rows; else they are skipped
    url: str | None = None  # without secrets; None: it is on this machine


def open_base(
    resume: str | Path | None, grow: bool, cache: Path | None = None
) -> Base | None:
    """The base that `--resume` and `--grow` name; InputError for `grow` alone.

    Args:
      cache: folder of caches, for the copy of a URL; None: that of the user.
    """
    if resume is not None:
        is_remote = isinstance(resume, str) and is_url(resume)
        url = without_secrets(str(resume)) if is_remote else None
        return Base(copy_of_base(resume, cache), grow, url)
    if grow:
        raise InputError("`grow` needs `resume`, the run whose vectors are the start.")
    return None
