"""Checkpoints: all that resuming needs; each is either whole or ignored.

Each is a folder named by its number of updates, which Orbax writes under a temporary
name and renames. It holds the arrays and, as JSON, facts with a SHA-256 of each array
and of themselves, since Orbax reads damaged arrays without an error. SHA256SUMS, with
checksums of its files, is written last and checked first: Orbax reads no damaged file.
"""

import errno
import glob
import hashlib
import json
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from embedder.disk.digests import DIGESTS_FILE, check_digests, files_in, write_digests
from embedder.disk.files import check_utf8_path
from embedder.disk.workdir import checkpoint_steps
from embedder.errors import InputError

_log = logging.getLogger(__name__)
Tree = TypeVar("Tree")
_ORBAX = threading.Lock()
"""Held while Orbax writes or reads: it numbers its operations for the process, and
runs in other threads would take each other's temporary folders."""


class CheckpointError(InputError):
    """A checkpoint is damaged, or is of another training."""


def check_path(workdir: Path) -> None:
    """Refuses a folder where Orbax would not find the checkpoints that it wrote.

    Raises:
      InputError: its path has wildcards, or is not UTF-8.
    """
    path = os.path.abspath(workdir)
    check_utf8_path(path, "`workdir`")
    if glob.has_magic(path) or "\\" in path:
        raise InputError(
            "`workdir` must be without *, ?, [ and \\ in its name and those of the "
            f"folders above it, which Orbax takes for wildcards, got {path}."
        )


class StoredCheckpoint(NamedTuple):
    """The content of a checkpoint's folder."""

    step: int  # number of updates
    arrays: dict[str, np.ndarray]
    facts: dict[str, Any]  # JSON values


def arrays_of(tree: Any) -> dict[str, np.ndarray]:
    """The leaves of a pytree by their paths, such as params.tables.input."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {_name(path): np.asarray(leaf) for path, leaf in leaves}


def tree_of(arrays: dict[str, np.ndarray], like: Tree) -> Tree:
    """The pytree of `arrays_of(tree)`, with the structure of `like`.

    Raises:
      CheckpointError: `like` has other leaves, shapes or dtypes.
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(like)
    expected = {_name(path): _described(leaf) for path, leaf in leaves}
    actual = {name: _described(array) for name, array in arrays.items()}
    if expected != actual:
        different = sorted(
            f"{name}: {actual.get(name)} there, {expected.get(name)} now"
            for name in {*expected, *actual}
            if expected.get(name) != actual.get(name)
        )
        raise CheckpointError(f"its arrays differ: {'; '.join(different)}")
    return jax.tree_util.tree_unflatten(structure, [arrays[n] for n in expected])


class _Still(np.ndarray):
    """An array that does not change while Orbax writes it: deep copies share it.

    Orbax copies arrays of NumPy before it writes them, and has no public option
    against it.
    """

    def __deepcopy__(self, memo: object) -> "_Still":
        return self


class Checkpoints:
    """The checkpoints in `folder`; the newest `keep` are kept.

    A thread writes them; its errors are raised by the next `save`, `is_written` or
    `wait`. It calls `on_written` after each.
    """

    def __init__(
        self, folder: Path, keep: int = 2, on_written: Callable[[], None] = lambda: None
    ):
        self.folder = Path(os.path.abspath(folder))  # Orbax wants it so
        self._keep = keep
        self._on_written = on_written
        self._removing = threading.Lock()  # of the next two, and while removing
        self._held: set[int] = set()
        self._postponed: set[int] = set()  # removed when they are no longer held
        self._thread = ThreadPoolExecutor(1)
        self._pending: Future[None] | None = None
        self._work: tuple[StoredCheckpoint, int | None] | None = None
        """A checkpoint that is being written, or failed, and the best one."""

    def save(
        self,
        step: int,
        arrays: dict[str, np.ndarray],
        facts: dict[str, Any],
        best: int | None = None,
    ) -> None:
        """Starts to write a checkpoint, once the previous one is whole.

        `arrays` must not change until `wait` has returned. Checkpoint `best` is kept
        besides the newest.

        Raises:
          OSError: the previous one could not be written.
        """
        if not self.is_written():
            _log.warning(
                "The checkpoint before is still being written: training waits. Save "
                "less often, or on a faster disk."
            )
        self.wait()
        if not self._is_sound(step):
            self._work = StoredCheckpoint(step, arrays, facts), best
            self._pending = self._thread.submit(self._write, *self._work)

    def retry(self) -> bool:
        """Whether the failed checkpoint is the best: it is then written again."""
        if self._work is None or self._work[0].step != self._work[1]:
            return False
        self._pending = self._thread.submit(self._write, *self._work)
        return True

    def is_written(self) -> bool:
        """Whether nothing is being written; raises the error of the thread."""
        if self._pending is not None and self._pending.done():
            self.wait()
        return self._pending is None

    def wait(self) -> None:
        """Waits until all is written; raises the error of the thread."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()
            self._work = None

    def steps(self) -> list[int]:
        """The complete checkpoints, newest first; their files may still be damaged."""
        return checkpoint_steps(self.folder)

    @contextmanager
    def held(self) -> Iterator[list[int]]:
        """`steps()`, none of which is removed during the body."""
        with self._removing:
            steps = self.steps()
            self._held = {*steps}
        try:
            yield steps
        finally:
            with self._removing:
                for step in self._postponed:
                    self._remove(step)
                self._held, self._postponed = set(), set()

    def newest_sound(self) -> int:
        """The number of the newest checkpoint with undamaged files; -1: none."""
        return next((step for step in self.steps() if self._is_sound(step)), -1)

    def newest(self) -> StoredCheckpoint | None:
        """The newest undamaged checkpoint; logs the damaged ones."""
        for step in self.steps():
            try:
                return self.read(step)
            except CheckpointError as error:
                _log.warning("%s: the one before it is taken.", error)
        return None

    def read(self, step: int) -> StoredCheckpoint:
        """The checkpoint after `step` updates.

        Raises:
          CheckpointError: it is damaged.
          InputError: Orbax would not find it.
        """
        check_path(self.folder.parent)
        path = self.folder / str(step)
        ocp = _orbax()
        try:
            check_digests(path)
            args = ocp.args.Composite(
                state=ocp.args.StandardRestore(), facts=ocp.args.JsonRestore()
            )
            with _ORBAX, _checkpointer() as checkpointer:
                content = checkpointer.restore(path, args=args)
            arrays, sealed = dict(content.state), content.facts
            _check_digests(arrays, sealed)
        except Exception as error:  # damage makes Orbax raise nearly anything
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise CheckpointError(
                f"Checkpoint {path} is damaged ({reason.removesuffix('.')})"
            ) from error
        return StoredCheckpoint(step, arrays, sealed["facts"])

    def remove_parts(self) -> None:
        """Removes the incomplete checkpoints of a killed run."""
        for path in self.parts():
            _log.info("%s was not finished: it is removed.", path)
            shutil.rmtree(path, ignore_errors=True)

    def parts(self) -> list[Path]:
        """Folders of incomplete checkpoints."""
        if not self.folder.is_dir():
            return []
        return [
            path
            for path in sorted(self.folder.iterdir())
            if path.is_dir()
            and not (path.name.isdecimal() and (path / DIGESTS_FILE).exists())
        ]

    def _is_sound(self, step: int) -> bool:
        """Whether it exists and is undamaged: then it is not written again."""
        try:
            check_digests(self.folder / str(step))
        except (OSError, ValueError):
            return False
        return True

    def _write(self, checkpoint: StoredCheckpoint, best: int | None) -> None:
        ocp, (step, arrays, facts) = _orbax(), checkpoint
        digests = {name: _digest(array) for name, array in arrays.items()}
        sealed = {"facts": facts, "arrays": digests, "sha256": _seal(facts, digests)}
        path = self.folder / str(step)
        still = {name: array.view(_Still) for name, array in arrays.items()}
        args = ocp.args.Composite(
            state=ocp.args.StandardSave(still),
            facts=ocp.args.JsonSave(sealed),
        )
        try:
            self.folder.mkdir(exist_ok=True)
            with _ORBAX, _checkpointer() as checkpointer:
                checkpointer.save(path, args=args, force=True)
            write_digests(path, files_in(path))
        except Exception as error:  # Orbax raises disk errors as ValueError, too
            self.remove_parts()
            raise _disk_error(error, path) from error
        self._forget(step, best)
        self._on_written()

    def _forget(self, newest: int, best: int | None) -> None:
        """Removes old checkpoints, and later ones that were damaged and passed over."""
        with self._removing:
            steps = self.steps()
            before = [step for step in steps if step <= newest]
            old = {*steps} - {*before[: self._keep], best}
            self._postponed = old & self._held
            for step in old - self._held:
                self._remove(step)

    def _remove(self, step: int) -> None:
        shutil.rmtree(self.folder / str(step), ignore_errors=True)


def _name(path) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _described(array) -> str:
    return f"{array.dtype}{list(array.shape)}"


def _orbax():
    """Orbax, imported on use: it takes seconds, and short runs save nothing."""
    import orbax.checkpoint as ocp

    return ocp


def _checkpointer():
    """A checkpointer of this process alone, also in a run of several."""
    ocp = _orbax()
    alone = ocp.options.MultiprocessingOptions(
        primary_host=jax.process_index(),
        active_processes={jax.process_index()},
        barrier_sync_key_prefix=f"process{jax.process_index()}",
    )
    return ocp.Checkpointer(
        ocp.CompositeCheckpointHandler(
            state=ocp.StandardCheckpointHandler(multiprocessing_options=alone),
            facts=ocp.JsonCheckpointHandler(multiprocessing_options=alone),
            composite_options=ocp.CompositeOptions(multiprocessing_options=alone),
        ),
        multiprocessing_options=alone,
    )


def _seal(facts: dict[str, Any], digests: dict[str, str]) -> str:
    """A digest of the facts and of the digests of arrays."""
    text = json.dumps([facts, digests], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _digest(array: np.ndarray) -> str:
    """SHA-256 of the values, the shape and the dtype."""
    digest = hashlib.sha256(_described(array).encode())
    digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _check_digests(arrays: dict[str, np.ndarray], sealed: dict[str, Any]) -> None:
    if _seal(sealed["facts"], sealed["arrays"]) != sealed["sha256"]:
        raise InputError("its facts are not what was written")
    if {*arrays} != {*sealed["arrays"]}:
        raise InputError("it has other arrays than were written")
    for name, array in arrays.items():
        if _digest(array) != sealed["arrays"][name]:
            raise InputError(f"`{name}` is not what was written")


def _disk_error(error: Exception, path: Path) -> OSError:
    """`error` as an OSError that names the checkpoint."""
    number = error.errno if isinstance(error, OSError) else None
    for code in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EROFS, errno.EACCES):
        if number is None and os.strerror(code).lower() in str(error).lower():
            number = code
    reason = os.strerror(number) if number else " ".join(str(error).split())[:200]
    return OSError(
        number or errno.EIO, f"The checkpoint was not written: {reason}", str(path)
    )
