"""The protocol of a family: what a run reads, trains and writes.

A family is a package with a section of settings, a `Task` and a `Trainer`;
`api/families.py` names it. Runs and `run_epochs` use only these protocols.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from embedder.config import Config
from embedder.disk.remote_run import copy_of_base
from embedder.disk.urls import is_url, without_secrets
from embedder.disk.workdir import Workdir
from embedder.engine.epochs import Checkpoint
from embedder.engine.state import TrainState
from embedder.engine.trainer import Trainer
from embedder.errors import InputError
from embedder.vectors.vectors import Vectors

AnyTraining = TypeVar("AnyTraining", bound=Trainer)


class Task(Protocol[AnyTraining]):
    """Some data, opened but not read, and what a family trains on them."""

    name: str
    manifest: list[dict[str, Any]]  # facts about each file, to recognise a changed one

    names: bytes | None  # names.parquet for the run; None: no names are given

    @property
    def base(self) -> dict[str, Any] | None:
        """The run whose vectors are the start, with a digest of them, and digests of
        the files of `run_record.KEPT_FILES`."""

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

    def vectors(self, training: AnyTraining, end: Checkpoint) -> Vectors:
        """The trained vectors."""

    def finish(self, run: Workdir, training: AnyTraining, end: Checkpoint) -> Vectors:
        """Writes all results; the vectors last, since they mark a finished run."""


class PretrainedRun(NamedTuple):
    """The run whose vectors are the start."""

    path: Path  # of the run, or of a model file; of a URL: that of its copy
    grow: bool  # whether new tokens get rows; else they are skipped
    url: str | None = None  # without secrets; None: it is on this machine


def open_base(
    resume: str | Path | None, grow: bool, cache: Path | None = None
) -> PretrainedRun | None:
    """The base that `--resume` and `--grow` name; InputError for `grow` alone.

    Args:
      cache: folder of caches, for the copy of a URL; None: that of the user.
    """
    if resume is not None:
        is_remote = isinstance(resume, str) and is_url(resume)
        url = without_secrets(str(resume)) if is_remote else None
        return PretrainedRun(copy_of_base(resume, cache), grow, url)
    if grow:
        raise InputError("`grow` needs `resume`, the run whose vectors are the start.")
    return None
