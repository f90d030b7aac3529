"""ended.json: why the last process that trained a run ended before it was finished.

Only the report and its reader depend on it: a run resumes without it. A process that is
killed writes none.
"""

import contextlib
import json
from typing import Literal, NamedTuple, get_args

from embedder.run.workdir import Workdir, write_text

How = Literal["diverged", "stopped", "failed"]
_LONGEST = 2000  # characters of a message that are kept


class Ending(NamedTuple):
    """How a process ended, and what it said."""

    how: How
    message: str


def write_ending(run: Workdir, error: BaseException) -> None:
    """Writes how `error` ended the training of `run`; nothing where none was started.

    What cannot be written is left out: the error itself must reach the user.
    """
    if not run.is_started or run.is_finished:
        return
    found = Ending(_how(error), (str(error) or type(error).__name__)[:_LONGEST])
    with contextlib.suppress(OSError):
        write_text(run.ended, json.dumps(found._asdict()) + "\n")


def read_ending(run: Workdir) -> Ending | None:
    """What `write_ending` wrote; None: there is none, or it is damaged."""
    try:
        values = json.loads(run.ended.read_text(encoding="utf-8"))
        how, message = values["how"], values["message"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    if how not in get_args(How) or not isinstance(message, str):
        return None
    return Ending(how, message[:_LONGEST])


def _how(error: BaseException) -> How:
    if isinstance(error, KeyboardInterrupt):  # as `Stopped` is
        return "stopped"
    return "diverged" if isinstance(error, FloatingPointError) else "failed"
