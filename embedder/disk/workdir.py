"""The folder of a run: its files, and what may be written there.

config.toml          settings, resolved
corpus.json          the corpus: its path and manifest
base.npz             of a run that started from the vectors of another: its tables
start.npz            of a run with `init_from` or a file of `freeze`: what it read of it
attributes.npz       of a run with `attributes`: what it read of them
vocab.parquet        tokens and counts, ordered by id
names.parquet        of a run that was given `names`: that table
cache/               the encoded corpus, if no other cache is given
metrics.jsonl        one JSON object per epoch
progress.jsonl       one every few seconds: the loss and the speed within epochs
tensorboard/         both as TensorBoard events; the vectors for its projector, which
                     are made of the other files, as the report is
checkpoints/         all that resuming needs, by the number of updates
model.npz            the trained model: the file of `EmbeddingTrainer.save`
counts.npz           with `next_items`: what follows what in its sessions, and these
mixture.json         with `next_items`: the weights of vectors and of counts
replicas.safetensors of a run with replicas: the vectors of each, and no model.npz
index/               of `embedder index`: the index of the vectors
longer/              while a finished run is made longer: the longer run
scores.json          of a run that was scored: the scores of the vectors, with
                     intervals, and those of baselines
labels.parquet       of an encoder: label and prediction of each example
vectors.txt          of tables: the vectors as word2vec text
vectors.safetensors  the vectors; written last, so that a run that has it is finished
report.html          the report, made of the other files; no run depends on it
ended.json           of a run that is not finished: why it ended, for the report
SHA256SUMS           checksums of these files, for `sha256sum --check`
.lock                the process that writes here
"""

import contextlib
import json
import logging
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from embedder.disk.digests import DIGESTS_FILE, write_digests
from embedder.disk.files import atomic_file
from embedder.disk.folders import remove_unfinished_folders
from embedder.disk.lock import hold_lock
from embedder.errors import InputError, InputExistsError, InputNotFoundError

REPLICAS_FILE = "replicas.safetensors"
INDEX_FOLDER = "index"
_PART = re.compile(r"\..+\.[0-9a-f]{8}\.tmp")
_log = logging.getLogger(__name__)


class Workdir:
    """Paths of a run."""

    def __init__(self, path: str | os.PathLike):
        self.path = Path(path)
        self.lock = self.path / ".lock"
        self.sums = self.path / DIGESTS_FILE
        self.config = self.path / "config.toml"
        self.corpus = self.path / "corpus.json"
        self.vocabulary = self.path / "vocab.parquet"
        self.cache = self.path / "cache"
        self.events = self.path / "tensorboard"
        self.checkpoints = self.path / "checkpoints"
        self.longer = self.path / "longer"
        self.index = self.path / INDEX_FOLDER
        self.metrics = self.path / "metrics.jsonl"
        self.progress = self.path / "progress.jsonl"
        self.scores = self.path / "scores.json"
        self.labels = self.path / "labels.parquet"
        self.base = self.path / "base.npz"
        self.start = self.path / "start.npz"
        self.attributes = self.path / "attributes.npz"
        self.names = self.path / "names.parquet"
        self.model = self.path / "model.npz"
        self.counts = self.path / "counts.npz"
        self.mixture = self.path / "mixture.json"
        self.replicas = self.path / REPLICAS_FILE
        self.text_vectors = self.path / "vectors.txt"
        self.vectors = self.path / "vectors.safetensors"
        self.report = self.path / "report.html"
        self.ended = self.path / "ended.json"

    @property
    def parts(self) -> list[Path]:
        """Temporary files that a killed run left here; those of its cache not."""
        paths = self.path.glob(".*.tmp")
        return sorted(path for path in paths if _PART.fullmatch(path.name))

    @property
    def files(self) -> list[Path]:
        """The files that a run has written here, oldest first; not its report, which is
        made of them."""
        return [path for path in self.written if path.exists()]

    @property
    def written(self) -> tuple[Path, ...]:
        """The files that a run writes here, in this order, existing or not."""
        return (
            *(self.sums, self.corpus, self.config, self.base, self.start),
            *(self.vocabulary, self.names, self.attributes, self.counts),
            *(self.metrics, self.progress),
            *(self.model, self.mixture, self.replicas, self.scores, self.labels),
            self.text_vectors,
            self.vectors,  # the last: with it the run is finished
        )

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders that a run may write here, except its cache."""
        return self.checkpoints, self.events, self.longer, self.index

    @property
    def event_files(self) -> list[Path]:
        """The TensorBoard events; not what is there for its projector."""
        return sorted(self.events.glob("events.out.tfevents.*"))

    @property
    def is_started(self) -> bool:
        """Whether a run was started here."""
        return self.config.exists()

    @property
    def is_finished(self) -> bool:
        """Whether a run has written all its files here."""
        return self.vectors.exists()


def default_workdir(name: str) -> Path:
    """embedder-NAME, the folder of a run on the corpus `name`."""
    name = name.encode(errors="ignore").decode()  # paths of runs are UTF-8
    return Path(f"embedder-{name or 'corpus'}")


@contextmanager
def locked(workdir: Workdir, force: bool = False) -> Iterator[None]:
    """Locks the folder, which is created if it is missing, against other processes.

    A folder that was created and stayed empty is removed. `force`: see `hold_lock`.
    Raises LockedError if another process writes here.
    """
    missing = _missing(workdir.path)
    _make(workdir.path)
    try:
        with hold_lock(workdir.lock, force):
            yield
    finally:
        _remove_empty(missing)


def check_free(workdir: Workdir, argument: str = "`workdir`") -> None:
    """Raises InputExistsError, which names `argument`, for a folder with files that no
    run has written."""
    path = workdir.path
    if not path.exists() or workdir.is_started:
        return
    if not path.is_dir():
        raise InputExistsError(f"{argument} must be a folder, got the file {path}.")
    listed = [*path.iterdir()]  # first: a run may begin here in these moments
    own = {workdir.lock, workdir.cache, workdir.report, workdir.ended, *workdir.written}
    own |= {path for path in workdir.folders if path.is_dir()}
    if any(each not in own and not _PART.fullmatch(each.name) for each in listed):
        raise InputExistsError(
            f"{argument} must be a run, or empty, or new: {path} holds other files."
        )


def check_target(path: Path, argument: str) -> None:
    """Raises InputError, which names `argument`, for a path of a file of a run, however
    it is spelled. Other names in the folder of a run are free: a run ignores them."""
    real = Path(os.path.realpath(path))  # what would be written to
    for parent in real.parents:
        run = Workdir(parent)
        own = {each.name.casefold() for each in {*vars(run).values()} - {parent}}
        # Others have a config.toml, too.
        is_run = run.is_started and run.corpus.exists()
        if is_run and real.relative_to(parent).parts[0].casefold() in own:
            raise InputError(
                f"{argument} must not be a file of a run, got {path} in the run "
                f"{parent}: give another name."
            )


def write_checksums(workdir: Workdir) -> None:
    """Writes checksums of the files that exist."""
    write_digests(workdir.path, [p for p in workdir.files if p != workdir.sums])


def clear(workdir: Workdir) -> None:
    """Removes the files of a run except its cache, and no others."""
    workdir.vectors.unlink(missing_ok=True)  # from here on it is unfinished
    workdir.sums.unlink(missing_ok=True)  # else a run killed below would seem damaged
    workdir.report.unlink(missing_ok=True)
    workdir.ended.unlink(missing_ok=True)
    for path in workdir.folders:
        if path.exists():
            shutil.rmtree(path)
    for path in reversed(workdir.files):  # the settings last: until then it is a run
        path.unlink()


def remove_parts(workdir: Workdir) -> None:
    """Removes and logs the temporary files that a killed run left."""
    remove_unfinished_folders(workdir.cache)
    for path in workdir.parts:
        _log.info("%s was not finished: it is removed.", path)
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


@contextmanager
def temporary_run(workdir: Workdir) -> Iterator[Workdir]:
    """A temporary run inside this one; its files are moved here when all are whole."""
    temporary = Workdir(workdir.path / f".run.{uuid.uuid4().hex[:8]}.tmp")
    temporary.path.mkdir()
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary.path, ignore_errors=True)


def copy_curves(source: Workdir, target: Workdir) -> None:
    """Copies the metrics and the TensorBoard events, which `target` goes on with."""
    for path in (source.metrics, source.progress):
        if path.exists():  # a run of 0 epochs has no metrics
            shutil.copyfile(path, target.path / path.name)
    for path in source.event_files:
        target.events.mkdir(exist_ok=True)
        shutil.copy2(path, target.events / path.name)


def truncate_metrics(workdir: Workdir, epochs: int, updates: int) -> None:
    """Keeps only the first `epochs` lines of metrics.jsonl, and those of progress.jsonl
    up to `updates`."""
    for path in (workdir.metrics, workdir.progress):
        if path.exists():
            lines = path.read_bytes().splitlines(keepends=True)
            before = (x for x in lines if _is_before(x, updates))
            with atomic_file(path) as part:
                remaining = lines[:epochs] if path == workdir.metrics else before
                part.write_bytes(b"".join(remaining))


def checkpoint_steps(folder: Path) -> list[int]:
    """The complete checkpoints in `folder`, newest first, by their numbers of updates;
    their files may still be damaged."""
    if not folder.is_dir():
        return []
    names = (path.parent.name for path in folder.glob(f"*/{DIGESTS_FILE}"))
    return sorted((int(name) for name in names if name.isdecimal()), reverse=True)


def _is_before(line: bytes, updates: int) -> bool:
    """Whether a line of progress.jsonl is whole, and not after `updates`."""
    try:
        return line.endswith(b"\n") and json.loads(line)["updates"] <= updates
    except (ValueError, LookupError, TypeError, RecursionError):
        return False


def append_metrics(workdir: Workdir, metrics: dict[str, Any]) -> None:
    """Adds one line to metrics.jsonl."""
    with open(workdir.metrics, "a", encoding="utf-8") as file:
        file.write(json.dumps(metrics) + "\n")


def write_text(path: Path, text: str) -> None:
    """Writes `text` as UTF-8, the whole file or none."""
    with atomic_file(path) as part:
        part.write_text(text, encoding="utf-8")


@contextmanager
def created_folder(folder: Path, is_shared: bool = False) -> Iterator[None]:
    """Creates `folder` for the body; if that fails, removes what was created.

    Of a shared folder, only folders that are still empty.
    """
    missing = _missing(folder)
    _make(folder)
    try:
        yield
    except BaseException:
        if missing and not is_shared:
            shutil.rmtree(missing[-1], ignore_errors=True)
        elif is_shared:
            _remove_empty(missing)  # others may have put something there
        raise


def _make(folder: Path) -> None:
    """Creates a folder, unless it exists."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        if not os.path.islink(error.filename):
            raise
        raise InputNotFoundError(
            f"{error.filename} is a link to {os.readlink(error.filename)}, which does "
            "not exist: create that folder, or remove the link."
        ) from None


def _remove_empty(folders: list[Path]) -> None:
    """Removes `folders`, innermost first, up to one that is not empty."""
    with contextlib.suppress(OSError):
        for path in folders:
            path.rmdir()


def _missing(folder: Path) -> list[Path]:
    """`folder` and its parents that do not exist, innermost first."""
    return [path for path in (folder, *folder.parents) if not path.exists()]
