"""The help of the command line, and scripts by which shells complete it."""

import argparse
import dataclasses
import shutil
import textwrap
from pathlib import Path

from embedder.base.terminal import say
from embedder.cli.arguments import VERBS, VERBS_BY_PURPOSE
from embedder.cli.options import Option, add_argument, flag_of, options
from embedder.config.settings import texts
from embedder.errors import InputError

_FIRST = (
    *("workdir", "preset", "config", "resume", "model"),
    *("vector_size", "window", "epochs", "min_count", "alpha"),
)
"""The options of a training that help shows first."""


_ALWAYS = """\
embedder VERB --help            the options of a verb
embedder VERB ... --debug       also the traceback of an error
embedder --version              the versions of embedder and of its packages
embedder --print-completion S   completion for the shell S: bash, zsh or fish
"""


_FIRST_STEPS = """\
Trains embeddings of words, items of sessions, graph nodes and images, and uses them.
  embedder train                             a demo, the words of Python's documentation
  embedder train books.txt                   your text: a file, a folder, a URL
  embedder train orders.csv --preset items   what is bought or seen together
  embedder train edges.tsv --preset graph    the nodes of a graph
  embedder neighbors RUN WORD                what is near; RUN is a folder of `train`
  embedder doctor                            what is installed, and what is missing
  embedder --help                            all verbs; embedder VERB --help: one
"""


def print_first_steps() -> None:
    """Prints what a newcomer can do."""
    say(_FIRST_STEPS.rstrip())


def print_help(verb: type | None) -> None:
    """Prints the help of a verb; None: of the program."""
    parser = _program() if verb is None else _help_of(verb)
    say(parser.format_help().rstrip())


def summary(verb: type) -> str:
    """The first sentence about a verb."""
    return " ".join(str(verb.__doc__).split()).partition(". ")[0].rstrip(".") + "."


def _program() -> argparse.ArgumentParser:
    """The verbs by what they are for."""
    lines = []
    width = min(shutil.get_terminal_size().columns - 2, 100)
    for purpose, verbs in VERBS_BY_PURPOSE.items():
        lines += ["", f"{purpose}:"]
        for verb in verbs:
            start, after = f"  {verb.__name__.lower():<11}", " " * 13
            lines += textwrap.wrap(
                f"{start}{summary(verb)}", width, subsequent_indent=after
            )
    return argparse.ArgumentParser(
        prog="embedder",
        usage="embedder VERB ...",
        description="\n".join(["Trains embeddings and uses them.", *lines]),
        epilog=_ALWAYS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
    )


def _help_of(verb: type) -> argparse.ArgumentParser:
    """A parser with the help of all options of a verb, in groups."""
    by_name, name = options(verb), verb.__name__.lower()
    words = [option.flag for option in by_name.values() if option.is_positional]
    parser = argparse.ArgumentParser(
        usage=" ".join(["embedder", name, *words, "[OPTIONS]"]),
        description=" ".join(str(verb.__doc__).split()),
        formatter_class=lambda prog: argparse.HelpFormatter(prog, 4, 28),
        add_help=False,
    )
    groups: dict[str, list[Option]] = {"arguments": [], "most used": []}
    first = _FIRST if "vector_size" in by_name else ()
    for name, option in by_name.items():
        title = "arguments" if option.is_positional else option.group
        groups.setdefault("most used" if name in first else title, []).append(option)
    groups["most used"].sort(key=lambda option: first.index(option.field.name))
    for title, members in groups.items():
        group = parser.add_argument_group(title)
        for option in members:
            add_argument(group, option, help=help_text(verb, option).replace("%", "%%"))
    return parser


def help_text(verb: type, option: Option) -> str:
    """What an option does, and its default."""
    text = texts(option.section or verb)[option.field.name]
    if also := option.field.metadata.get("also"):
        text += f" {flag_of(also)} is the same."
    default = option.field.default
    if default is False or default in (None, (), "", dataclasses.MISSING):
        return text
    return f"{text} (default: {str(default).lower() if default is True else default})"


def print_completion(arguments: list[str]) -> None:
    """Prints the script of a shell that completes verbs, flags, their words and files.

    Raises:
      InputError: `arguments` are not one of bash, zsh and fish.
    """
    import shtab

    shell = " ".join(arguments)
    if shell not in (shells := ("bash", "zsh", "fish")):
        known = ", ".join(shells)
        raise InputError(f"`--print-completion` must be one of {known}, got {shell!r}.")
    program = argparse.ArgumentParser(prog="embedder")
    program.add_argument("--version", action="store_true", help="Print versions.")
    verbs = program.add_subparsers()
    for name, verb in VERBS.items():
        about = summary(verb).replace("%", "per cent")  # argparse takes it for a format
        parser = verbs.add_parser(name, help=about)
        for option in options(verb).values():
            text = help_text(verb, option).partition(". ")[0].replace("%", "%%")
            action = add_argument(parser, option, help=text)
            if option.choices:
                action.choices = option.choices
            elif {str, Path} & {*option.kinds}:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    say(shtab.complete(program, shell).rstrip())
