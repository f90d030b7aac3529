"""`train`, and what the verbs call: a run of any family, with its pages."""

from collections.abc import Callable
from pathlib import Path

from embedder.api.families import open_task
from embedder.config import Config
from embedder.engine.epochs import Status
from embedder.engine.task import open_base
from embedder.report import projector_files, run_page
from embedder.run.run_state import RestartOptions
from embedder.run.run_training import Command, Result, run_training
from embedder.run.stopping import Stop
from embedder.vectors.vectors import Vectors


def train(
    config: Config,
    workdir: str | Path,
    source: str | None = None,
    *,
    resume: str | Path | None = None,
    grow: bool = False,
    cache: Path | None = None,
    mirror: str | Path | None = None,
    overwrite: bool = False,
    step: int | None = None,
    force: bool = False,
    force_lock: bool = False,
    on_status: Callable[[Status], None] = lambda status: None,
    stop: Stop | None = None,
) -> Vectors | None:
    """Trains on the corpus at `source`, writes all results to `workdir`, returns them.

    An unfinished run with the same settings resumes from its last checkpoint; of a
    finished one the vectors are read, or None in a process that does not see them. Of
    several processes the first writes.

    Args:
      source: a text file, glob or folder, or examples, or a URL of them; "-" is
        standard input; None: the demo corpus.
      resume: the run, or model file, whose vectors are the start.
      grow: tokens that are new to `resume` get rows; else they are skipped.
      cache: folder of encoded corpora and copies of remote data; None: cache in
        `workdir`, for copies the cache folder of the user.
      mirror: folder or URL that gets a copy of the run, and from which it goes on if
        the copy is further than `workdir`.
      overwrite: start anew where there is a run.
      step: resume from the checkpoint after this many updates instead of the newest.
      force: resume although the corpus files have changed; tokens must be the same.
      force_lock: write to `workdir` although its lock names another host.
      on_status: called after each call of the compiled updates.
      stop: tells when to save and stop.

    Raises:
      OSError, InputError: bad input, or `workdir` holds something else, or another
        process writes there; nothing is lost.
      FloatingPointError: training diverged.
      Stopped: `stop` was requested, and the run is saved.
    """
    command = Command(
        *(config, Path(workdir), source, open_base(resume, grow, cache), cache),
        RestartOptions(overwrite, step, force, force_lock),
        mirror=None if mirror is None else str(mirror),
    )
    return train_run(command, on_status, stop).vectors


def train_run(
    command: Command,
    on_status: Callable[[Status], None] = lambda status: None,
    stop: Stop | None = None,
) -> Result:
    """`train` with its arguments parsed."""
    return run_training(open_task, _write_pages, command, on_status, stop)


def _write_pages(path: Path, vectors: Vectors) -> bool:
    """Writes the report and TensorBoard's projector; whether there is a report."""
    is_written = run_page.write_after_training(path, vectors)
    projector_files.write_after_training(path, vectors)
    return is_written
