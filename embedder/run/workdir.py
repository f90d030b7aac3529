"""The folder of a run: what lies in it, and when it may be written.

config.toml          the settings, none left open
corpus.json          the corpus: where it was, and digests of it
base.npz             of a run that goes on from another: the tables of that
vocab.parquet        tokens and counts, in the order of ids
cache/               the encoded corpus, where no other cache is given
metrics.jsonl        one JSON object an epoch
tensorboard/         the same as events for TensorBoard
checkpoints/         all that it takes to go on, by the number of updates done
model.npz            all that training has made: the file of `EmbeddingTrainer.save`
labels.parquet       of an encoder: label and prediction of every example
vectors.txt          the vectors as word2vec text, of tables
vectors.safetensors  the vectors; written last: a run that has it is finished
SHA256SUMS           sums of these files, as sha256sum --check reads them
.lock                which process writes here
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

from embedder.config import Config, differences, read_toml, to_toml
from embedder.disk.digests import (
    DIGESTS_FILE,
    check_digest,
    read_digests,
    write_digests,
)
from embedder.disk.files import atomic_file, short_reason
from embedder.disk.folders import remove_unfinished_folders
from embedder.disk.lock import hold_lock
from embedder.errors import InputError, InputExistsError
from embedder.vectors.export import write_vectors
from embedder.vectors.vectors import Vectors

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
        self.metrics = self.path / "metrics.jsonl"
        self.labels = self.path / "labels.parquet"
        self.base = self.path / "base.npz"
        self.model = self.path / "model.npz"
        self.text_vectors = self.path / "vectors.txt"
        self.vectors = self.path / "vectors.safetensors"

    @property
    def parts(self) -> list[Path]:
        """What a run left here that died while it was writing, but for its cache."""
        found = self.path.glob(".*.tmp")
        return sorted(path for path in found if _PART.fullmatch(path.name))

    @property
    def files(self) -> list[Path]:
        """The files that a run has written here, in the order of their writing."""
        written = (
            self.sums,
            self.corpus,
            self.config,
            self.base,
            self.vocabulary,
            self.metrics,
            self.model,
            self.labels,
            self.text_vectors,
            self.vectors,  # the last: with it the run is finished
        )
        return [path for path in written if path.exists()]

    @property
    def is_begun(self) -> bool:
        """Whether a run was begun here."""
        return self.config.exists()

    @property
    def is_finished(self) -> bool:
        """Whether a run has written all it writes here."""
        return self.vectors.exists()


@contextmanager
def locked(workdir: Workdir, force: bool = False) -> Iterator[None]:
    """Keeps other processes from writing here; makes the folder if there is none.

    A folder that was made and got no files is removed. `force` is as in `hold_lock`.

    Raises:
      LockedError: another process writes here.
    """
    missing = _missing(workdir.path)
    workdir.path.mkdir(parents=True, exist_ok=True)
    try:
        with hold_lock(workdir.lock, force):
            yield
    finally:
        _remove_empty(missing)


def check_free(workdir: Workdir, argument: str = "`workdir`") -> None:
    """Refuses a folder that holds something else than a run, named as `argument`.

    Raises:
      FileExistsError: as said.
    """
    path = workdir.path
    if not path.exists() or workdir.is_begun:
        return
    if not path.is_dir():
        raise InputExistsError(f"{argument} must be a folder, got the file {path}.")
    own = {workdir.lock, workdir.cache, *workdir.files, *workdir.parts}
    own |= {p for p in (workdir.checkpoints, workdir.events) if p.is_dir()}
    if not own.issuperset(path.iterdir()):
        raise InputExistsError(
            f"{argument} must be a run, or empty, or new: {path} holds other files."
        )


def check_target(path: Path, argument: str) -> None:
    """Refuses to write over a part of a run, whatever its path is spelled like.

    Other names in the folder of a run are free: a run takes no notice of them.

    Raises:
      ValueError: as said; the message names `argument`.
    """
    real = Path(os.path.realpath(path))  # what would be written to
    for parent in real.parents:
        run = Workdir(parent)
        own = {each.name.casefold() for each in {*vars(run).values()} - {parent}}
        is_run = run.is_begun and run.corpus.exists()  # others have a config.toml, too
        if is_run and real.relative_to(parent).parts[0].casefold() in own:
            raise InputError(
                f"{argument} must not be a part of a run, got {path}, which {parent} "
                "keeps for itself: give another name."
            )


def check_same(
    workdir: Workdir,
    config: Config,
    manifest: list[dict],
    base: dict | None = None,
    *,
    force: bool = False,
) -> None:
    """Refuses settings or a corpus other than those that the run here was begun with.

    With `force` another corpus is let through, and the log says so.

    Raises:
      ValueError: they differ; the message names what does.
    """
    found = differences(read_toml(workdir.config), config)
    if _content(base_of(workdir)) != _content(base):
        found.append("`resume` of another run (--workdir alone goes on with its own)")
    if _corpus(workdir, "manifest", (list,)) != manifest:
        if force:
            _log.warning("%s was begun with another corpus.", workdir.path)
        else:
            found.append("another corpus")
    if found:
        raise InputError(
            f"{workdir.path} holds a run with other settings: "
            f"{', '.join(found)}. Give another --workdir, or --overwrite "
            "to start anew."
        )


def source_of(workdir: Workdir) -> str | None:
    """The corpus that the run here was begun with; None: the demo corpus."""
    return _corpus(workdir, "source", (str, type(None)))


def base_of(workdir: Workdir) -> dict | None:
    """The run that the one here goes on from: path, grow, and sha256 of its model."""
    return _corpus(workdir, "resume", (dict, type(None)))


def _content(base: dict | None) -> tuple | None:
    """What matters of a base: not where it lies."""
    return base and (base["grow"], base["sha256"])


def check_apart(workdir: Workdir, base: Path) -> None:
    """Refuses a base that the run here would write over.

    Raises:
      ValueError: as said.
    """
    path, own = base.resolve(), workdir.path.resolve()
    if own in (path, *path.parents) and path != workdir.base.resolve():
        raise InputError(
            "`workdir` must be another folder than that of the run to go on from, "
            f"{base}: give --workdir NEW."
        )


def _corpus(workdir: Workdir, key: str, kinds: tuple[type, ...]) -> Any:
    try:
        value = json.loads(workdir.corpus.read_text(encoding="utf-8")).get(key)
        if not isinstance(value, kinds):
            raise InputError(f"`{key}` is {value!r}")
        return value
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        reason = short_reason(error)
        raise InputError(
            f"{workdir.corpus} is damaged ({reason}): give another --workdir, or "
            "--overwrite to start anew."
        ) from error


def check_sound(workdir: Workdir) -> None:
    """Refuses to go on with a run whose settings are not those that it wrote.

    Raises:
      ValueError: as said.
    """
    try:
        sums = read_digests(workdir.path)
        for path in (workdir.config, workdir.corpus, workdir.base, workdir.vocabulary):
            if path.name in sums:
                check_digest(path, sums[path.name])
    except FileNotFoundError:
        return  # it was killed before it had written them
    except ValueError as error:
        raise InputError(
            f"{workdir.path} is damaged: {error}. `embedder verify` tells more; give "
            "another --workdir, or --overwrite to start anew."
        ) from error


def write_settings(
    workdir: Workdir, config: Config, source, manifest, base: dict | None = None
) -> None:
    """Writes config.toml and corpus.json."""
    corpus = {
        "source": source and os.path.abspath(source),
        "manifest": manifest,
        "resume": base,
    }
    write_text(workdir.corpus, json.dumps(corpus, indent=2) + "\n")
    write_text(workdir.config, to_toml(config))


def seal(workdir: Workdir) -> None:
    """Writes sums of the files that are here."""
    write_digests(workdir.path, [p for p in workdir.files if p != workdir.sums])


def finish(workdir: Workdir, vectors: Vectors) -> None:
    """Writes the vectors, with which the run is finished, and sums of all files."""

    def seal_all(part: Path) -> None:
        others = {*workdir.files, *workdir.events.glob("*")} - {workdir.sums}
        paths = sorted({*others, workdir.vectors})
        write_digests(workdir.path, paths, temporary={workdir.vectors: part})

    write_vectors(vectors, workdir.vectors, before=seal_all)


def clear(workdir: Workdir) -> None:
    """Removes what a run wrote here, and nothing else; the cache stays."""
    workdir.vectors.unlink(missing_ok=True)  # it is not finished from here on
    for path in (workdir.checkpoints, workdir.events):
        if path.exists():
            shutil.rmtree(path)
    for path in reversed(workdir.files):  # the settings last: it is a run until then
        path.unlink()


def remove_parts(workdir: Workdir) -> None:
    """Removes what a run left that died while it was writing, and says so."""
    remove_unfinished_folders(workdir.cache)
    for path in workdir.parts:
        _log.info("%s was not finished: it is removed.", path)
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


@contextmanager
def part(workdir: Workdir) -> Iterator[Workdir]:
    """A run within this one, for files that are to be moved here when all are whole."""
    made = Workdir(workdir.path / f".run.{uuid.uuid4().hex[:8]}.tmp")
    made.path.mkdir()
    try:
        yield made
    finally:
        shutil.rmtree(made.path, ignore_errors=True)


def cut_metrics(workdir: Workdir, epochs: int) -> None:
    """Leaves the lines of the first `epochs` in metrics.jsonl."""
    if workdir.metrics.exists():
        lines = workdir.metrics.read_bytes().splitlines(keepends=True)
        with atomic_file(workdir.metrics) as part:
            part.write_bytes(b"".join(lines[:epochs]))


def append_metrics(workdir: Workdir, metrics: dict[str, Any]) -> None:
    """Adds one line to metrics.jsonl."""
    with open(workdir.metrics, "a", encoding="utf-8") as file:
        file.write(json.dumps(metrics) + "\n")


def write_text(path: Path, text: str) -> None:
    """Writes a whole file or none."""
    with atomic_file(path) as part:
        part.write_text(text, encoding="utf-8")


@contextmanager
def made(folder: Path, is_shared: bool = False) -> Iterator[None]:
    """Makes `folder` for what follows; if that fails, removes what was made.

    Of a shared one, what is empty.
    """
    missing = _missing(folder)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        if missing and not is_shared:
            shutil.rmtree(missing[-1], ignore_errors=True)
        elif is_shared:
            _remove_empty(missing)  # others may have put something there
        raise


def _remove_empty(folders: list[Path]) -> None:
    """Removes them, the innermost first, up to one with something in it."""
    with contextlib.suppress(OSError):
        for path in folders:
            path.rmdir()


def _missing(folder: Path) -> list[Path]:
    """The folders that have to be made for it, the innermost first."""
    return [path for path in (folder, *folder.parents) if not path.exists()]
