"""The arguments of a verb, made from its fields and those of its sections."""

import argparse
import dataclasses
import functools
import itertools
from argparse import BooleanOptionalAction
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

_PLAIN = int, float, str, Path


class Option(NamedTuple):
    """An argument of a verb, made from a field of it or of a section of settings."""

    field: dataclasses.Field
    section: type | None = None
    group: str = "options"  # of help

    @property
    def flag(self) -> str:
        """As --vector-size; of an argument without a flag what help calls it."""
        marks = self.field.metadata
        return marks.get("positional") or marks.get("flag") or flag_of(self.field.name)

    @property
    def is_positional(self) -> bool:
        return "positional" in self.field.metadata

    @property
    def _type(self) -> Any:
        kind: Any = self.field.type
        return get_args(kind)[0] if get_origin(kind) is Annotated else kind

    @property
    def is_switch(self) -> bool:
        return self._type is bool

    @property
    def takes_several(self) -> bool:
        return get_origin(self._type) is tuple

    @property
    def kinds(self) -> list[Any]:
        """The types of a value."""
        kind = get_args(self._type)[0] if self.takes_several else self._type
        is_union = get_origin(kind) in (Union, UnionType)
        return list(get_args(kind)) if is_union else [kind]

    @property
    def choices(self) -> list[str]:
        """The words that it takes; a mark tells those of a table."""
        if words_of := self.field.metadata.get("words"):
            return words_of()
        words = (get_args(kind) for kind in self.kinds if get_origin(kind) is Literal)
        return list(itertools.chain(*words))

    @property
    def metavar(self) -> str:
        """What help calls its value."""
        marks = self.field.metadata
        for name in ("repeated", "metavar", "positional"):
            if name in marks:
                return marks[name]
        if "words" in marks:
            return "{" + ",".join(self.choices) + "}"
        names = [kind.__name__.upper() for kind in self.kinds if kind in _PLAIN]
        if not names:
            return "{" + ",".join(self.choices) + "}"
        return "|".join(names + self.choices)


@functools.cache
def options(verb: type) -> dict[str, Option]:
    """The arguments of a verb by their names, its own and those of its sections."""
    own: dict[str, Option] = {}
    settings: dict[str, Option] = {}
    for field in dataclasses.fields(verb):
        section: Any = field.type
        if hasattr(section, "groups"):
            group = ""
            for each in dataclasses.fields(section):
                group = section.groups.get(each.name, group)
                settings[each.name] = Option(each, section, group)
        else:
            own[field.name] = Option(field)
    return own | settings


def flag_of(name: str) -> str:
    """The flag of a setting, or a flag spelled with dashes."""
    return "--" + name.removeprefix("--").replace("_", "-")


@functools.cache
def parser_of(verb: type) -> argparse.ArgumentParser:
    """The parser of the flags of a verb; those that are not given have no value."""
    parser = argparse.ArgumentParser(
        add_help=False,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
        exit_on_error=False,
    )
    for option in options(verb).values():
        if not option.is_positional:
            add_argument(parser, option, dest=option.field.name)
        if former := option.field.metadata.get("formerly"):
            add_argument(parser, option, flag_of(former), dest=former)
    return parser


def add_argument(
    parser: Any, option: Option, flag: str = "", **more: Any
) -> argparse.Action:
    """Adds an option to a parser, or to a group of one; `flag`: its former one."""
    if option.is_switch:
        more["action"] = BooleanOptionalAction if option.section else "store_true"
    else:
        more["metavar"] = option.metavar
    if "repeated" in option.field.metadata:
        more["action"] = "append"
    elif option.takes_several:
        more["nargs"] = "*"
    return parser.add_argument(flag or option.flag, **more)
