"""The command line of the benches, made from the signatures of their functions."""

import argparse
import inspect
from typing import Any, Literal, get_args, get_origin

from bench.registry import OWN_COMMANDS, collected
from bench.render import render_tables

BENCHES = collected("BENCHES")
"""All benches but those of `OWN_COMMANDS`, by name."""


def main(arguments: list[str]) -> None:
    """Runs the bench named in `arguments`, and prints its table."""
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=f"Benches; {', '.join(OWN_COMMANDS)} have their own --help.",
    )
    verbs = parser.add_subparsers(required=True)
    for name, function in (BENCHES | {"render": render_tables}).items():
        text = str(inspect.getdoc(function)).replace("%", "%%")
        verb = verbs.add_parser(
            name,
            help=text.splitlines()[0],
            description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            argument_default=argparse.SUPPRESS,
        )
        for each in inspect.signature(function).parameters.values():
            _add_argument(verb, each)
        verb.set_defaults(function=function)
    given = vars(parser.parse_args(arguments))
    table = given.pop("function")(**given)
    if table is not None:
        print(table.markdown())


def _add_argument(parser: argparse.ArgumentParser, given: inspect.Parameter) -> None:
    """Adds the flag of an argument of a function to the parser of its bench."""
    kind, flag = given.annotation, f"--{given.name.replace('_', '-')}"
    if kind is bool:
        parser.add_argument(flag, action=argparse.BooleanOptionalAction)
        return
    takes_several = get_origin(kind) is tuple
    if takes_several or get_origin(kind) not in (None, Literal):
        kind = get_args(kind)[0]  # of a tuple, or of what may be None
    is_choice = get_origin(kind) is Literal
    more: dict[str, Any] = {"choices": get_args(kind)} if is_choice else {"type": kind}
    if takes_several:
        more |= {"nargs": "*", "action": _Tuple}
    needed = given.default is inspect.Parameter.empty
    shown = None if needed else f"default: {given.default}".replace("%", "%%")
    parser.add_argument(flag, required=needed, help=shown, **more)


class _Tuple(argparse.Action):
    """Keeps several values as a tuple, as functions take them."""

    def __call__(self, parser, namespace, values, option_string=None):
        setattr(namespace, self.dest, tuple(values or ()))
