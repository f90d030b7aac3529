"""Reads the command line: argparse takes it apart, by the fields of a verb.

Wrong arguments are an InputError of one line, which names the argument and the value.
"""

import argparse
import dataclasses
import platform
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, NamedTuple

from embedder import __version__
from embedder.base.terminal import say
from embedder.cli.arguments import VERBS, Devices, Parity, Sweep, Train
from embedder.cli.help import print_completion, print_first_steps, print_help
from embedder.cli.options import Option, flag_of, options, parser_of
from embedder.config import (
    FAMILIES,
    Config,
    make_config,
    nearest,
    read_toml,
    with_options,
)
from embedder.config.presets import PRESETS, check_preset, with_preset
from embedder.config.token_options import TokensOptions
from embedder.disk.urls import is_url, without_secrets
from embedder.errors import InputError

if TYPE_CHECKING:
    from embedder.disk.workdir import Workdir


class CommandLine(NamedTuple):
    """A verb and what it is given: texts by the names of options, or a switch."""

    verb: type
    texts: dict[str, list[str] | bool]

    def value(self, name: str) -> Any:
        """The value of an option; None if it is not given."""
        if name not in self.texts:
            return None
        return _read(options(self.verb)[name], self.texts[name])


def parse(arguments: list[str]) -> Any:
    """The verb in `arguments`, with its options; for -h prints help and exits.

    Raises:
      OSError, InputError: they are wrong, or the --config file is.
    """
    if not arguments:
        print_first_steps()
        raise SystemExit(0)
    verb = arguments[0]
    if verb == "--version":
        say(_version())
        raise SystemExit(0)
    if verb == "--print-completion":
        print_completion(arguments[1:])
        raise SystemExit(0)
    if {"-h", "--help"} & {*arguments} and verb in ("-h", "--help", *VERBS):
        print_help(VERBS.get(verb))
        raise SystemExit(0)
    line = _command_line(verb, arguments[1:])
    parsed = _make(line, _defaults(line))
    if isinstance(parsed, Train) and parsed.config is None:
        parsed = _with_schedule(_with_settings_of_a_run(parsed, line), line)
    if isinstance(parsed, Train | Sweep):
        check_preset(parsed.preset, parsed.run.model)
    return parsed


def _version() -> str:
    """The versions of the program and of what it computes with."""
    from importlib import metadata

    names = "jax", "dm-haiku", "optax", "numpy"
    used = ", ".join(f"{name} {metadata.version(name)}" for name in names)
    python = platform.python_version()
    return f"embedder {__version__} (Python {python}, {used})"


def _with_settings_of_a_run(verb: Train, line: CommandLine) -> Train:
    """Defaults come from the run of --resume, or from the run in the workdir."""
    from embedder.disk.run_record import base_of, source_of
    from embedder.disk.workdir import Workdir

    if verb.resume is not None:
        from embedder.disk.remote_run import copy_of_base

        run = Workdir(copy_of_base(verb.resume, verb.cache))
        if not run.config.exists():
            return verb
        command = _with_settings_of_a_base(line, run)
        if verb.corpus is None and run.is_started:
            command = replace(command, corpus=source_of(run))
        return command
    if verb.workdir is None or verb.corpus is not None:
        return verb
    run = Workdir(verb.workdir)
    if not run.is_started:
        return verb
    longer = Workdir(run.longer)
    now = longer if longer.is_started else run
    before = _with_preset(line, read_toml(now.config))
    base, same = base_of(run), _make(line, before)
    if verb.grow and not (base and base["grow"]):
        raise InputError(f"{run.path} was started without --grow: give --resume too.")
    has_base = base is not None and base["path"] is not None
    return replace(
        same,
        corpus=source_of(run),
        resume=str(run.base) if has_base else None,
        grow=base is not None and base["grow"],
        tokens=_with_kept_files(same.tokens, before, run),
    )


def _with_schedule(verb: Train, line: CommandLine) -> Train:
    """`verb` with `schedule` restart if an update is given --alpha and no --schedule:
    the rate of all rows is the one that was asked for."""
    if verb.resume is None or line.value("alpha") is None or "schedule" in line.texts:
        return verb
    tokens = replace(verb.tokens, schedule="restart")
    return replace(verb, tokens=tokens)


def _with_kept_files(
    now: TokensOptions, before: Config, run: "Workdir"
) -> TokensOptions:
    """`now` with the files that the run has kept in place of those it was given."""
    if before.run.model != "tokens":
        return now
    tables, start = before.tables, str(run.start)
    if now.names == tables.names and run.names.exists():
        now = replace(now, names=str(run.names))
    if now.attributes == tables.attributes and run.attributes.exists():
        now = replace(now, attributes=(str(run.attributes), *now.attributes[1:]))
    if not run.start.exists():
        return now
    if now.init_from == tables.init_from != "":
        now = replace(now, init_from=start)
    if now.freeze == tables.freeze not in ("", "all", "known"):
        now = replace(now, freeze=start)
    return now


def _with_settings_of_a_base(line: CommandLine, run: "Workdir") -> Train:
    """The command with the settings of the run of --resume as defaults."""
    from embedder.disk.run_record import open_settings

    before = _with_default_blocks(line, run)
    if before.run.model == "tokens":  # a base has no other start
        names = str(run.names) if run.names.exists() else ""
        before = with_options(before, init_from="", freeze="", names=names)
        if run.attributes.exists():
            attributes = str(run.attributes), *before.tables.attributes[1:]
            before = with_options(before, attributes=attributes)
        of_corpus = {"holdout", "result"} & {*(opened := open_settings(run))}
        before = with_options(before, **{name: opened[name] for name in of_corpus})
    optimizer = line.value("optimizer")
    if before.run.model == "tokens" and optimizer not in (None, before.run.optimizer):
        # The rates and the limit of the run are not meant for another optimizer.
        rates = {"alpha": None, "min_alpha": TokensOptions().min_alpha}
        before = with_options(before, **rates, max_pairs_per_row=None)
    return _make(line, _with_preset(line, before))


def _with_default_blocks(line: CommandLine, run: "Workdir") -> Config:
    """The settings of a run; if it has whole sequences and the command has a window of
    numbers, or the other way, those that follow from this have their defaults."""
    from embedder.disk.run_record import open_settings

    before = read_toml(run.config)
    if before.run.model != "tokens":
        return before
    preset = PRESETS[line.value("preset") or "none"]
    window = line.value("window") or preset.get("window")
    if not window or (window == "session") == before.tables.has_whole_sequences:
        return before
    names = {"block", "noise", "max_pairs_per_row"} & {*open_settings(run)}
    return with_options(before, **dict.fromkeys(names))


def _command_line(name: str, arguments: list[str]) -> CommandLine:
    """The verb `name` and what it is given in `arguments`.

    Raises:
      InputError: there is no such verb or argument, or one has no value or is missing.
    """
    if name not in VERBS:
        raise InputError(
            f"Unknown verb `{name}`{nearest(name, VERBS)} The verbs are "
            f"{', '.join(VERBS)}."
        )
    verb = VERBS[name]
    if verb is Parity and arguments and not arguments[0].startswith("-"):
        raise InputError(f"Give the corpus as --corpus {arguments[0]}.")
    end = arguments.index("--") if "--" in arguments else len(arguments)
    flags, words = arguments[:end], arguments[end + 1 :]
    marked, values = _marked(verb, flags)
    try:
        numbers, rest = parser_of(verb).parse_known_args(marked)
    except argparse.ArgumentError as error:
        raise InputError(
            f"Missing value for argument '{error.argument_name}'."
        ) from None
    texts = _texts(verb, vars(numbers), values)
    words = [values[int(x)] for x in rest if x[0] != "-"] + words
    for option in filter(lambda x: x.is_positional, options(verb).values()):
        count = len(words) if option.takes_several else 1
        if words or option.takes_several:
            texts[option.field.name], words = words[:count], words[count:]
    if unknown := [x for x in rest if x[0] == "-"] + words:
        raise InputError(f"Not understood: {' '.join(unknown)}")
    if missing := [
        option.flag if option.is_positional else f"{option.flag} {option.metavar}"
        for name, option in options(verb).items()
        if name not in texts
        and option.field.default is option.field.default_factory is dataclasses.MISSING
    ]:
        raise InputError(f"Missing from embedder {name}: {' '.join(missing)}")
    return CommandLine(verb, texts)


_FLAG = re.compile(r"-(?!\.?\d|(inf|infinity|nan)$)\S+", re.IGNORECASE)
"""What is taken for a flag, as -x; not a number, nor - itself."""


def _marked(verb: type, arguments: list[str]) -> tuple[list[str], list[str]]:
    """`arguments` with flags as a verb has them, and in place of values their numbers:
    argparse takes -inf for a flag; and the values.

    Raises:
      InputError: there is no such flag, or one that takes no value is given one.
    """
    known = options(verb).values()
    flags = {x.flag: x.is_switch for x in known if not x.is_positional}
    flags |= {f"--no{x.flag[1:]}": True for x in known if x.is_switch and x.section}
    flags["--help"] = True
    former = {flag_of(x.field.metadata.get("formerly", "")) for x in known}
    marked, values = list[str](), list[str]()
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not name.startswith("--"):
            is_flag = _FLAG.fullmatch(argument)
            marked.append(argument if is_flag else str(len(values)))
            values += [] if is_flag else [argument]
            continue
        flag = flag_of(name)
        if flag not in flags and flag not in former:
            positional = {flag_of(x.field.name) for x in known if x.is_positional}
            hint = ": give it without." if flag in positional else nearest(flag, flags)
            raise InputError(f"Unknown option `{name}`{hint}")
        if equals and flags.get(flag):
            raise InputError(f"`{name}` must be without a value, got {value!r}.")
        marked.append(f"{flag}={len(values)}" if equals else flag)
        values += [value] if equals else []
    return marked, values


def _texts(
    verb: type, flags: dict[str, Any], values: list[str]
) -> dict[str, list[str] | bool]:
    """The texts of options, by the numbers in `flags`, without former names."""
    texts: dict[str, list[str] | bool] = {}
    for name, option in options(verb).items():
        former = option.field.metadata.get("formerly")
        if name in flags and former in flags:
            raise InputError(
                f"`{option.flag}` and its former name are both given: leave out the "
                "former."
            )
        value = flags.get(name, flags.get(former or name))
        if isinstance(value, bool):
            texts[name] = value
        elif value is not None:
            numbers = [value] if isinstance(value, str) else value
            texts[name] = [values[int(x)] for x in numbers]
    return texts


def _make(line: CommandLine, defaults: Config) -> Any:
    """The verb with what it is given, and with `defaults` for the other settings."""
    texts, values = dict(line.texts), {}
    model = line.value("model")
    if model is not None and model != defaults.run.model:
        defaults = with_options(defaults, model=model)
    sections = _sections(defaults)
    family, known = FAMILIES[defaults.run.model], options(line.verb)
    for field in dataclasses.fields(family):
        if (also := field.metadata["also"]) in texts and field.name in known:
            texts.setdefault(field.name, texts.pop(also))
    for field in dataclasses.fields(line.verb):
        section: Any = field.type
        name = field.name
        if hasattr(section, "groups"):
            changed = {
                each.name: _read(Option(each), texts[each.name])
                for each in dataclasses.fields(section)
                if each.name in texts
            }
            values[name] = replace(sections.get(name) or section(), **changed)
        elif name in texts:
            values[name] = _read(Option(field), texts[name])
    return line.verb(**values)


def _sections(config: Config) -> dict[str, Any]:
    """The sections of all families, by the names that verbs have for them."""
    families = {name: section() for name, section in FAMILIES.items()}
    families[config.run.model] = config.family
    shared = {"run": config.run, "devices": config.devices, "save": config.save}
    return families | shared


def settings(verb: Train | Sweep | Devices | Parity) -> Config:
    """The config from the sections of a verb; sections that it lacks have defaults.

    Raises:
      InputError: a setting of another family is given.
    """
    values: dict[str, Any] = {}
    for name in _sections(Config()):
        if section := getattr(verb, name, None):
            values |= vars(section)
    return make_config(values)


def _defaults(line: CommandLine) -> Config:
    """The defaults for the flags: of --config, or else of --preset."""
    path = line.value("config")
    defaults = _with_preset(line, Config())
    return defaults if path is None else read_toml(path, defaults)


def _with_preset(line: CommandLine, defaults: Config) -> Config:
    """`defaults` with the settings of --preset."""
    preset = line.value("preset") or "none"
    check_preset(preset, line.value("model") or defaults.run.model)
    return with_preset(defaults, preset)


def _read(option: Option, texts: list[str] | bool) -> Any:
    """The value of what is given for an option; InputError if it is of another type."""
    if isinstance(texts, bool):
        return texts
    if not option.takes_several:
        return _read_one(option, texts[-1])
    try:
        return tuple(_read_one(option, text) for text in texts)
    except InputError:
        if int not in option.kinds:
            raise
        values = ", ".join(map(repr, texts))
        raise InputError(f"`{option.flag}` must be numbers, got {values}.") from None


def _read_one(option: Option, text: str) -> Any:
    if {NoneType, str} & {*option.kinds} == {NoneType} and text.lower() == "none":
        return None
    choices, flag = option.choices, option.flag
    if text in choices:
        return text
    rules = []
    for kind in filter(_READERS.get, option.kinds):
        rule, read = _READERS[kind]
        rules.append(rule)
        try:
            return read(text)
        except InputError as error:
            raise InputError(f"`{flag}` {error}") from None
        except ValueError:
            pass
    if not rules and NoneType not in option.kinds:
        raise InputError(
            f"invalid choice {text!r} for argument '{flag}'. Expected one of "
            f"{tuple(choices)}."
        )
    rules += map(repr, choices) if rules else choices
    raise InputError(f"`{flag}` must be {' or '.join(rules)}, got {text!r}.")


def _path(text: str) -> Path:
    if not text:
        raise ValueError("an empty path means the current folder: write . for that")
    if is_url(text) and not Path(text).exists():
        raise InputError(
            f"{without_secrets(text)} is a URL, where a path on this machine is needed:"
            " copy it first, or a run by --mirror."
        )
    return Path(text)


_READERS: dict[Any, tuple[str, Callable[[str], Any]]] = {
    int: ("an integer", int),
    float: ("a number", float),
    Path: ("a path", _path),
    str: ("text", str),
}
"""Type of a value -> what messages call it, and what reads it."""
