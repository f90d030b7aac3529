"""Lines to look up: of a prompt on a terminal, else of standard input."""

import bisect
import functools
import heapq
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from embedder.disk.files import short_reason
from embedder.errors import InputError, install_command, is_installed
from embedder.terminal import say

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completer
    from prompt_toolkit.history import History

PROMPT = "> "
_COMMANDS = (":help", ":quit", ":topn")
_MOST = 50  # completions that are shown


def is_interactive() -> bool:
    """Whether standard input and output are a terminal."""
    return all(
        stream is not None and not stream.closed and stream.isatty()
        for stream in (sys.stdin, sys.stdout)
    )


def prompted_lines(keys: Callable[[], Sequence[str]]) -> Iterator[str]:
    """Lines that the user types, until Ctrl-D; Ctrl-C drops a line.

    With prompt_toolkit they are kept in a history, and keys are completed by Tab.

    Args:
      keys: gives the keys, the most frequent first.
    """
    ask: Callable[[], str] = functools.partial(input, PROMPT)
    if is_installed("prompt_toolkit"):
        ask = _session(keys)
    else:
        say(f"Completion by Tab and a history: {install_command('prompt')}.")
    while True:
        try:
            yield ask()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return


def _session(keys: Callable[[], Sequence[str]]) -> Callable[[], str]:
    from prompt_toolkit import PromptSession

    session: PromptSession[str] = PromptSession(
        PROMPT,
        completer=make_completer(keys),
        complete_while_typing=False,
        history=_history(),
    )
    return session.prompt


def piped_lines() -> Iterator[str]:
    """Lines of standard input.

    Raises:
      InputError: it is closed, or not UTF-8.
    """
    try:
        for line in sys.stdin:
            yield line.rstrip("\r\n")
    except (OSError, ValueError) as error:
        raise InputError(
            f"Standard input cannot be read: {short_reason(error)}."
        ) from error


class Completions:
    """Keys by their start."""

    def __init__(self, keys: Iterable[str]):
        self._keys = [*keys]

    @functools.cached_property
    def _sorted(self) -> list[tuple[str, int]]:
        return sorted((key, row) for row, key in enumerate(self._keys))

    def of(self, start: str) -> list[str]:
        """At most 50 keys that begin with `start`, in the order of `keys`."""
        first = bisect.bisect_left(self._sorted, (start,))
        end = bisect.bisect_left(self._sorted, (start + "\U0010ffff",))
        rows = heapq.nsmallest(_MOST, (row for _, row in self._sorted[first:end]))
        return [self._keys[row] for row in rows]


def make_completer(keys: Callable[[], Sequence[str]]) -> "Completer":
    """A completer of the word before the cursor."""
    from prompt_toolkit.completion import Completer, Completion

    class OfKeys(Completer):
        @functools.cached_property
        def _completions(self) -> Completions:
            return Completions(keys())

        def get_completions(self, document, complete_event):
            before = document.text_before_cursor
            word = before.split(" ")[-1]
            found = self._completions.of(word) if word else []
            if before.startswith(":") and word == before:
                found = [each for each in _COMMANDS if each.startswith(word)]
            for text in found:
                yield Completion(text, start_position=-len(word))

    return OfKeys()


def _history() -> "History":
    """The lines of earlier prompts, in the folder of the user's state."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    try:
        folder = Path(home).expanduser() / "embedder"
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / "history", "ab"):
            return FileHistory(folder / "history")
    except (OSError, RuntimeError):  # no home, a read-only disk
        return InMemoryHistory()
