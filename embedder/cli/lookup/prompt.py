"""Lines to look up, of a prompt or of standard input: keys, sums, commands."""

import bisect
import functools
import heapq
import os
import re
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from embedder.base.terminal import say
from embedder.disk.files import short_reason
from embedder.errors import InputError, install_command, is_installed
from embedder.vectors.white_space import split, strip

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completer
    from prompt_toolkit.history import History

PROMPT = "> "
_COMMANDS = (":help", ":quit", ":topn")
HELP = """A token: its neighbours. Several tokens: those of each.
king - man + woman    neighbours of a sum; + and - stand alone, between blanks
:topn 20              show so many
:help                 show this
:quit                 end; so does Ctrl-D"""
_SIGN = re.compile(r"(?<!\S)[+-](?!\S)", re.ASCII)
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
    """Lines of standard input, without a byte order mark.

    Raises:
      InputError: it is closed, or not UTF-8.
    """
    try:
        for number, line in enumerate(sys.stdin):
            text = line if number else line.removeprefix("\ufeff")
            yield text.rstrip("\r\n")
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
            texts = self._completions.of(word) if word else []
            if before.startswith(":") and word == before:
                texts = [each for each in _COMMANDS if each.startswith(word)]
            for text in texts:
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


class Expression(NamedTuple):
    """A sum of keys."""

    positive: tuple[str, ...]
    negative: tuple[str, ...] = ()

    @property
    def is_key(self) -> bool:
        """Whether it is one key alone."""
        return len(self.positive) == 1 and not self.negative


def parse_line(line: str, known: Container[str]) -> list[Expression]:
    """The expressions of a line: a sum, or each of its words.

    A line that is a key, such as one with blanks, is that key. In a sum the text
    between two signs is one key.

    Raises:
      InputError: a sign has no key after it.
    """
    for key in (line, strip(line)):
        if key in known:
            return [Expression((key,))]
    if not _SIGN.search(line):
        return [Expression((word,)) for word in split(line)]
    return [_sum(strip(line), known)]


def _sum(line: str, known: Container[str]) -> Expression:
    terms: dict[str, list[str]] = {"+": [], "-": []}
    first, *keys = map(strip, _SIGN.split(line))
    signs = _SIGN.findall(line)
    if first:
        signs, keys = ["+", *signs], [first, *keys]
    for sign, key in zip(signs, keys, strict=True):
        if not key:
            raise InputError(f"A sum must have a token after each sign, got {line!r}.")
        terms[sign].append(key if key in known else " ".join(split(key)))
    return Expression(tuple(terms["+"]), tuple(terms["-"]))


class Command(NamedTuple):
    """A line that begins with a colon."""

    name: str
    value: str


def parse_command(line: str) -> Command | None:
    """The command of a line; None: it is none.

    Raises:
      InputError: there is no such command, or it has another number of values.
    """
    name, *values = split(line) or [""]
    if not name.startswith(":"):
        return None
    if name not in _COMMANDS:
        raise InputError(f"Unknown command {name!r}: give :help, :topn N or :quit.")
    if len(values) != (name == ":topn"):
        rule = "one number" if name == ":topn" else "no value"
        raise InputError(f"`{name}` must have {rule}, got {' '.join(values)!r}.")
    return Command(name, "".join(values))


def positive_integer(name: str, text: str) -> int:
    """The integer >= 1 that a text is; InputError: it is none."""
    if text.isascii() and text.isdigit() and int(text) >= 1:
        return int(text)
    raise InputError(f"`{name}` must be an integer >= 1, got {text!r}.")
