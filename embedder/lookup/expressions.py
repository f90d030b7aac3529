"""Sums of keys, as `king - man + woman`, and the commands of the prompt."""

from collections.abc import Container
from typing import NamedTuple

from embedder.errors import InputError

HELP = """A token: its neighbours. Several tokens: those of each.
king - man + woman    neighbours of a sum; + and - stand alone, between blanks
:topn 20              show so many
:help                 show this
:quit                 end; so does Ctrl-D"""


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

    A line that is a key, such as one with blanks, is that key. In a sum the words
    between two signs are one key.

    Raises:
      InputError: a sign has no key after it.
    """
    line = line.strip()
    if line in known:
        return [Expression((line,))]
    words = line.split()
    if not {"+", "-"} & {*words}:
        return [Expression((word,)) for word in words]
    return [_sum(words, line)]


def _sum(words: list[str], line: str) -> Expression:
    if words[0] not in ("+", "-"):
        words = ["+", *words]
    terms: dict[str, list[str]] = {"+": [], "-": []}
    starts = [i for i, word in enumerate(words) if word in terms]
    for start, stop in zip(starts, [*starts[1:], len(words)], strict=True):
        if start + 1 == stop:
            raise InputError(f"A sum must have a token after each sign, got {line!r}.")
        terms[words[start]].append(" ".join(words[start + 1 : stop]))
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
    name, *values = line.split() or [""]
    if not name.startswith(":"):
        return None
    if name not in (":help", ":topn", ":quit"):
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
