"""A mirror of a run: a copy elsewhere, from which another machine goes on.

A thread copies each finished checkpoint, and the results at the end. Errors of the
mirror do not stop the training.
"""

import hashlib
import logging
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from embedder.disk.digests import DIGESTS_FILE, file_digest, read_digests
from embedder.disk.files import short_reason
from embedder.disk.run_record import RunInputs, read_inputs, replace_data
from embedder.disk.store import Store
from embedder.disk.workdir import Workdir, temporary_run
from embedder.engine.checkpoints import Checkpoints
from embedder.errors import InputError
from embedder.run.mirror_files import (
    MANIFEST,
    Entry,
    Manifest,
    fetch,
    is_of_run,
    read_manifest,
    restore,
    to_json,
)
from embedder.run.run_state import RestartOptions, differences

_AGAIN = 60.0  # seconds after which a failed copy is tried again
_log = logging.getLogger(__name__)


class _File(NamedTuple):
    """A file of the run, to copy."""

    content: Path | bytes  # bytes of a file that changes
    size: int
    sha256: str


class Mirror:
    """The mirror of the run in `run`, at a URL or in a local folder.

    Raises:
      InputError: nothing can be written there, or it holds something else.
    """

    def __init__(self, target: str, run: Workdir):
        self._store = Store(target, "`mirror`")
        self._store.advice = (
            ": give the same command again when its server answers, or without "
            "--mirror to train without a copy"
        )
        self._run = run
        _check_apart(self._store, run)
        self._manifest = self._read()
        self._writer = uuid.uuid4().hex
        self._digests: dict[tuple, str] = {}
        self._wake = threading.Event()
        self._is_closing = False
        self._thread: threading.Thread | None = None
        self._behind = ""  # why it is behind
        self._bug: BaseException | None = None

    @property
    def is_open(self) -> bool:
        """Whether this process is the one that writes there."""
        return self._manifest.writer == self._writer

    @property
    def shown(self) -> str:
        """Its URL without secrets."""
        return self._store.shown

    def open(self, here: RunInputs, restart: RestartOptions) -> None:
        """Takes over the mirror, and replaces the local run if the mirror is further.

        Args:
          here: inputs of the local run, if there is one, and of the training.

        Raises:
          InputError: it is the mirror of another run, or is damaged.
        """
        self._manifest = self._read()  # another process may have written meanwhile
        if restart.overwrite or not self._manifest.has_run:
            self._claim({} if restart.overwrite else self._manifest.files)
            return
        with temporary_run(self._run) as made:
            for path in (made.config, made.corpus):
                fetch(self._store, self._manifest.files[path.name], path)
            different = differences(read_inputs(made), here, with_times=False)
        if what := different.refused(restart.force):
            raise InputError(
                f"`mirror` {self.shown} has a run with {what}. Give the corpus and the "
                "settings of that run to go on with it, or another --mirror; "
                "--overwrite deletes it and starts anew."
            )
        self._claim(self._manifest.files)
        if self._restore(restart.step):
            replace_data(self._run, here)

    def start(self, checkpoints: Checkpoints) -> None:
        """Starts to copy what the run has, and whenever `notify` is called."""
        self._store.advice = ""  # from here on an error does not end the run
        self._checkpoints = checkpoints
        self._thread = threading.Thread(target=self._work, name="mirror", daemon=True)
        self._thread.start()
        self.notify()

    def notify(self) -> None:
        """A checkpoint is finished."""
        self._wake.set()

    def close(self) -> str:
        """Waits until all is copied; returns why the mirror is behind, "" if not."""
        if self._thread is None:
            return ""
        self._is_closing = True
        self._wake.set()
        self._thread.join(0.1)
        if self._thread.is_alive():
            _log.info(
                "%s: the program waits until all files are copied. A second signal "
                "(Ctrl-C, SIGTERM) ends it at once.",
                self.shown,
            )
        self._thread.join()
        self._thread = None
        if self._bug is not None:
            raise self._bug
        if not self._behind:
            return ""
        finished, step = self._manifest.progress
        there = "the finished run" if finished else f"checkpoint {step}"
        return (
            f"Mirror {self.shown} is behind {self._run.path}: it has "
            f"{there if step >= 0 or finished else 'no checkpoint'} "
            f"({self._behind.removesuffix('.')}). Give the same command again."
        )

    def _read(self) -> Manifest:
        return read_manifest(self._store) or Manifest("", False, {})

    def _claim(self, files: dict[str, Entry]) -> None:
        """From here on this process writes there, and no other."""
        self._write_manifest(self._manifest.finished and bool(files), files)

    def _write_manifest(self, finished: bool, files: dict[str, Entry]) -> None:
        manifest = Manifest(self._writer, finished, files)
        self._store.write(MANIFEST, to_json(manifest))
        self._manifest = manifest

    def _restore(self, step: int | None) -> bool:
        """Replaces the local run if the mirror is further; returns whether it was."""
        run, there = self._run, self._manifest
        if run.is_finished:
            return False
        here = Checkpoints(run.checkpoints)
        newest = here.newest_sound()
        newer: set[int] = set()  # checkpoints for which the mirror is read
        is_further = not run.is_started
        if not is_further and step is not None:
            newer = {step} & {*there.steps} - {*here.steps()}
        elif not is_further and not there.finished:
            newer = {each for each in there.steps if each > newest}
        if is_further or newer or (there.finished and step is None):
            names = self.shown, run.path
            _log.info("%s is further than %s: the run goes on from it.", *names)
            if restore(self._store, there, run, newer):
                return True
            _log.warning("%s is damaged: the run goes on from %s.", *names)
        elif newest > there.progress[1]:
            _log.info(
                "%s is further than %s: the run goes on from it.",
                *(run.path, self.shown),
            )
        return False

    def _work(self) -> None:
        try:
            while True:
                self._wake.wait(_AGAIN if self._behind else None)
                self._wake.clear()
                is_last = self._is_closing
                self._copy_and_log()
                if is_last:
                    return
        except BaseException as error:
            self._bug = error
            _log.warning(
                "%s: copying failed (%s). The mirror is behind; the run goes on.",
                *(self.shown, short_reason(error)),
            )

    def _copy_and_log(self) -> None:
        before = self._behind
        try:
            self._copy()
            self._behind = ""
        except (OSError, InputError) as error:
            self._behind = " ".join(str(error).split())
            reason = self._behind.removesuffix(".")
            _log.warning("%s. The mirror is behind; the run goes on.", reason)
        if before and not self._behind:
            _log.info("%s is no longer behind.", self.shown)

    def _copy(self) -> None:
        """Brings the mirror to what the run has."""
        with self._checkpoints.held() as steps:
            finished = self._run.is_finished
            self._copy_files(dict(self._files(steps, finished)), finished)
            if finished:  # files with digits in their names get their own
                self._copy_files(dict(self._files(steps, finished)), finished)

    def _copy_files(self, files: dict[str, _File], finished: bool) -> None:
        if not self._is_behind(files, finished):
            return
        before = self._checked()  # no file of another process is overwritten
        taken = {entry.path for entry in before.files.values()}
        entries = {}
        for name, file in files.items():
            entry = before.files.get(name)
            path = name if name not in taken else f"{name}.{file.sha256[:16]}"
            if entry is None or entry[1:] != file[1:]:
                entry = self._upload(path, file)
            elif finished and entry.path != name and path == name:
                entry = self._upload(name, file)
            entries[name] = entry
        self._checked()
        self._write_manifest(finished, entries)
        needed = {entry.path for entry in entries.values()}
        for path in self._store.names():
            if path not in needed and is_of_run(path):
                self._store.remove(path)

    def _is_behind(self, files: dict[str, _File], finished: bool) -> bool:
        """Whether the mirror lacks any of the files, or has more."""
        there = {name: entry[1:] for name, entry in self._manifest.files.items()}
        wanted = {name: file[1:] for name, file in files.items()}
        has_digits = any(e.path != name for name, e in self._manifest.files.items())
        return bool(
            self._behind  # files may be left to remove
            or (there, self._manifest.finished) != (wanted, finished)
            or (finished and has_digits)
        )

    def _checked(self) -> Manifest:
        """The manifest that is there: a write that failed may have written it."""
        manifest = self._read()
        if not manifest.writer:
            raise InputError(f"{self.shown}/{MANIFEST} was deleted")
        if manifest.writer != self._writer:
            raise InputError(f"Another process writes to {self.shown} now.")
        return manifest

    def _upload(self, path: str, file: _File) -> Entry:
        if isinstance(file.content, bytes):
            self._store.write(path, file.content)
        else:
            self._store.upload(path, file.content)
        return Entry(path, file.size, file.sha256)

    def _files(self, steps: list[int], finished: bool) -> Iterator[tuple[str, _File]]:
        """Names and content of the files of the run."""
        run = self._run
        for step in sorted(steps):
            yield from self._checkpoint(step)
        results = {run.model, run.replicas, run.scores, run.labels}
        results |= {run.text_vectors, run.vectors}
        changing = run.sums, run.metrics, run.progress, run.report
        report = [run.report] if finished and run.report.exists() else []
        events = sorted(p for p in run.events.glob("*") if p.name[0] != ".")
        for path in (*run.files, *report, *events):
            if finished or path not in results:
                changes = path in changing or path.parent == run.events
                yield self._file(path, path.read_bytes() if changes else path)

    def _checkpoint(self, step: int) -> Iterator[tuple[str, _File]]:
        folder = self._run.checkpoints / str(step)
        for file, digest in read_digests(folder).items():
            path = folder / file
            name = str(path.relative_to(self._run.path))
            yield name, _File(path, path.stat().st_size, digest)
        sums = folder / DIGESTS_FILE
        yield self._file(sums, sums.read_bytes())

    def _file(self, path: Path, content: Path | bytes) -> tuple[str, _File]:
        name = str(path.relative_to(self._run.path))
        if isinstance(content, bytes):
            digest = hashlib.sha256(content).hexdigest()
            return name, _File(content, len(content), digest)
        stat = path.stat()
        key = name, stat.st_size, stat.st_mtime_ns, stat.st_ino
        if key not in self._digests:
            self._digests[key] = file_digest(path)
        return name, _File(content, stat.st_size, self._digests[key])


def _check_apart(store: Store, run: Workdir) -> None:
    """Refuses a mirror in the folder of the run, or around it."""
    if store.local is None:
        return
    mirror, folder = store.local.resolve(), run.path.resolve()
    if mirror == folder or mirror in folder.parents or folder in mirror.parents:
        raise InputError(
            f"`mirror` must be outside of the workdir {run.path}, got {store.shown}."
        )
