"""The table of names that a run keeps, names.parquet, as bytes."""

import logging

from embedder.disk.digests import change_digest, describe_damage, read_digests
from embedder.disk.files import atomic_file
from embedder.disk.workdir import Workdir
from embedder.errors import InputError

_log = logging.getLogger(__name__)


def read_content(run: Workdir, *, is_checked: bool = True) -> bytes | None:
    """The content of names.parquet; None: the run has none. Raises InputError if it
    differs from its checksum, and `is_checked`."""
    if not run.names.exists():
        return None
    expected = read_digests(run.path) if is_checked and run.sums.exists() else {}
    name = run.names.name
    if name in expected and (damage := describe_damage(run.names, expected[name])):
        raise damaged(run, f"it {damage}")
    return run.names.read_bytes()


def damaged(run: Workdir, reason: str) -> InputError:
    """The error about a damaged names.parquet."""
    return InputError(
        f"{run.names} is damaged ({reason}): delete it, and give --names again."
    )


def keep_names(run: Workdir, content: bytes | None) -> None:
    """Writes names.parquet and its checksum; that other names are replaced is logged.

    A kill leaves the names of before or after, or none.

    Args:
      content: of the file; None: the run stays as it is.
    """
    before = read_content(run, is_checked=False)
    if content is None or content == before:
        return
    change_digest(run.names, is_written=False)  # until both are written there is none
    with atomic_file(run.names) as part:
        part.write_bytes(content)
    change_digest(run.names)
    if before is not None:
        done = run.is_finished and run.report.exists()
        again = f" `embedder report {run.path}` shows them." if done else ""
        _log.info("%s: other names replace those of before.%s", run.names, again)
