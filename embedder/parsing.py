"""Reads the command line with tyro.

Wrong arguments are an InputError of one line. Names are checked here; tyro reports
wrong values in a box of several lines, of which the message is kept.
"""

import argparse
import contextlib
import dataclasses
import io
import itertools
import os
import platform
import re
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
)

from embedder import __version__
from embedder.arguments import (
    VERBS,
    Analogy,
    Compare,
    Convert,
    Devices,
    Embed,
    Evaluate,
    Export,
    Index,
    Neighbors,
    Parity,
    Phrases,
    Report,
    Sweep,
    Train,
    Verb,
    Verify,
    Watch,
)
from embedder.config import (
    FAMILIES,
    Config,
    make_config,
    nearest,
    read_toml,
    with_options,
)
from embedder.disk.urls import is_url, without_secrets
from embedder.errors import InputError
from embedder.presets import PRESETS, check_preset, with_preset
from embedder.tables.options import TablesOptions, Window
from embedder.terminal import say

if TYPE_CHECKING:
    from embedder.run.workdir import Workdir

_POSITIONAL = (
    "--space",
    "--corpus",
    "--run",
    "--word",
    "--words",
    "--source",
    "--target",
)


def parse(arguments: list[str]) -> Verb:
    """The verb in `arguments`, with its options; for -h prints help and exits.

    Raises:
      OSError, InputError: they are wrong, or the --config file is.
    """
    if arguments[:1] == ["--version"]:
        say(_version())
        raise SystemExit(0)
    if arguments and arguments[0] in VERBS:
        arguments = _with_flags_of_now(arguments, VERBS[arguments[0]])
    _check_names(arguments)
    if {"-h", "--help"} & set(arguments):
        return _parse(arguments, Config())
    with _one_line_errors():
        verb = _parse(arguments, _defaults(arguments))
        if isinstance(verb, Train) and verb.config is None:
            verb = _with_settings_of_a_run(verb, arguments)
            verb = _with_schedule(verb, arguments)
    if isinstance(verb, Train | Sweep):
        check_preset(verb.preset, verb.run.model)
    return verb


def _version() -> str:
    """The versions of the program and of what it computes with."""
    names = "jax", "dm-haiku", "optax", "numpy"
    used = ", ".join(f"{name} {metadata.version(name)}" for name in names)
    python = platform.python_version()
    return f"embedder {__version__} (Python {python}, {used})"


def _with_settings_of_a_run(verb: Train, arguments: list[str]) -> Train:
    """Defaults come from the run of --resume, or from the run in the workdir."""
    from embedder.run.inputs import base_of, source_of
    from embedder.run.workdir import Workdir

    if verb.resume is not None:
        from embedder.run.remote_run import copy_of_base

        run = Workdir(copy_of_base(verb.resume, verb.cache))
        if not run.config.exists():
            return verb
        found = _with_settings_of_a_base(arguments, run)
        if verb.corpus is None and run.is_started:
            found = dataclasses.replace(found, corpus=source_of(run))
        return found
    if verb.workdir is None or verb.corpus is not None:
        return verb
    run = Workdir(verb.workdir)
    if not run.is_started:
        return verb
    longer = Workdir(run.longer)
    now = longer if longer.is_started else run
    before = _with_preset(arguments, read_toml(now.config))
    base, same = base_of(run), _parse(arguments, before)
    assert isinstance(same, Train)  # as before, with other defaults
    if verb.grow and not (base and base["grow"]):
        raise InputError(f"{run.path} was started without --grow: give --resume too.")
    has_base = base is not None and base["path"] is not None
    return dataclasses.replace(
        same,
        corpus=source_of(run),
        resume=str(run.base) if has_base else None,
        grow=base is not None and base["grow"],
        tokens=_with_kept_files(same.tokens, before, run),
    )


def _with_schedule(verb: Train, arguments: list[str]) -> Train:
    """`verb` with `schedule` restart if an update is given --alpha and no --schedule:
    the rate of all rows is the one that was asked for."""
    alpha = _flag_value(arguments, "--alpha", float)
    given = _flag_value(arguments, "--schedule", str)
    if verb.resume is None or alpha is None or given is not None:
        return verb
    tokens = dataclasses.replace(verb.tokens, schedule="restart")
    return dataclasses.replace(verb, tokens=tokens)


def _with_kept_files(
    now: TablesOptions, before: Config, run: "Workdir"
) -> TablesOptions:
    """`now` with the files that the run has kept in place of those it was given."""
    if before.run.model != "tokens" or not run.start.exists():
        return now
    given, kept = before.tables, str(run.start)
    if now.init_from == given.init_from != "":
        now = dataclasses.replace(now, init_from=kept)
    if now.freeze == given.freeze not in ("", "all", "known"):
        now = dataclasses.replace(now, freeze=kept)
    return now


def _with_settings_of_a_base(arguments: list[str], run: "Workdir") -> Train:
    """The command with the settings of the run of --resume as defaults."""
    before = _with_default_blocks(arguments, run)
    if before.run.model == "tokens":  # a base has no other start
        before = with_options(before, init_from="", freeze="")
    optimizer = _flag_value(arguments, "--optimizer", str)
    if before.run.model == "tokens" and optimizer not in (None, before.run.optimizer):
        # The rates and the limit of the run are not meant for another optimizer.
        rates = {"alpha": None, "min_alpha": TablesOptions().min_alpha}
        before = with_options(before, **rates, max_pairs_per_row=None)
    found = _parse(arguments, _with_preset(arguments, before))
    assert isinstance(found, Train)
    return found


def _with_default_blocks(arguments: list[str], run: "Workdir") -> Config:
    """The settings of a run; if it has whole sequences and the command has a window of
    numbers, or the other way, those that follow from this have their defaults."""
    from embedder.run.inputs import open_settings

    before = read_toml(run.config)
    if before.run.model != "tokens":
        return before
    preset = PRESETS.get(_flag_value(arguments, "--preset", str) or "none", {})
    window = _flag_value(arguments, "--window", _window) or preset.get("window")
    if not window or (window == "session") == before.tables.has_whole_sequences:
        return before
    names = {"block", "noise", "max_pairs_per_row"} & {*open_settings(run)}
    return with_options(before, **dict.fromkeys(names))


def _parse(arguments: list[str], defaults: Config) -> Verb:
    model = _flag_value(arguments, "--model", str)
    if model in FAMILIES and model != defaults.run.model:
        defaults = with_options(defaults, model=model)
    arguments = _with_flags_of_family(arguments, defaults.run.model)
    sections = _sections(defaults)
    arguments = _without_defaults(arguments, sections)
    parity = {name: value for name, value in sections.items() if name != "save"}
    devices = {name: value for name, value in parity.items() if name != "encoder"}
    command = tyro.conf.subcommand
    sweep = Sweep(space=tyro.MISSING, **sections)
    verbs = (
        Annotated[Train, command("train", default=Train(**sections))]
        | Annotated[Sweep, command("sweep", default=sweep)]
        | Annotated[Phrases, command("phrases")]
        | Annotated[Devices, command("devices", default=Devices(**devices))]
        | Annotated[Neighbors, command("neighbors")]
        | Annotated[Analogy, command("analogy")]
        | Annotated[Index, command("index")]
        | Annotated[Compare, command("compare")]
        | Annotated[Evaluate, command("evaluate")]
        | Annotated[Embed, command("embed")]
        | Annotated[Export, command("export")]
        | Annotated[Report, command("report")]
        | Annotated[Watch, command("watch")]
        | Annotated[Convert, command("convert")]
        | Annotated[Verify, command("verify")]
        | Annotated[Parity, command("parity", default=Parity(**parity))]
    )
    return tyro.cli(
        verbs,
        prog="embedder",
        description="Trains embeddings and uses them. --debug, with any verb, prints "
        "the traceback of an error. --version prints the versions.",
        args=arguments,
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff),
        registry=_registry(),
    )


def _without_defaults(arguments: list[str], sections: dict[str, Any]) -> list[str]:
    """`arguments` without flags that give a setting True or False as its default is.

    tyro has the flag of the other value alone.
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    repeated = {
        _switches(field.name)[0 if getattr(section, field.name) else 1]
        for section in sections.values()
        for field in dataclasses.fields(section)
        if field.type is bool
    }
    kept = [
        x for x in arguments[:end] if not x.startswith("--") or _flag(x) not in repeated
    ]
    return kept + arguments[end:]


def _switches(name: str) -> tuple[str, str]:
    """The flags of a setting for True and for False."""
    return _flag(name), _flag(f"no-{name}")


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
    sections = [getattr(verb, name, None) for name in _sections(Config())]
    values: dict[str, Any] = {}
    for section in filter(None, sections):
        values |= {
            f.name: getattr(section, f.name) for f in dataclasses.fields(section)
        }
    return make_config(values)


def _check_names(arguments: list[str]) -> None:
    """Refuses an unknown verb or flag, and a value for a flag that takes none."""
    verb = arguments[0] if arguments else ""
    if verb in ("", "-h", "--help") or verb.startswith("--tyro-"):
        return
    if verb not in VERBS:
        raise InputError(
            f"Unknown verb `{verb}`{nearest(verb, VERBS)} The verbs are "
            f"{', '.join(VERBS)}."
        )
    if verb == "parity" and arguments[1:2] and not arguments[1].startswith("-"):
        raise InputError(f"Give the corpus as --corpus {arguments[1]}.")
    flags = _flags(VERBS[verb]) | {"--help": bool}
    switches = (_switches(f.name) for f in _settings(VERBS[verb]) if f.type is bool)
    flags |= dict.fromkeys(itertools.chain(*switches), bool)
    for argument in itertools.takewhile(lambda a: a != "--", arguments[1:]):
        name, equals, value = argument.partition("=")
        flag = name.replace("_", "-")
        if flag.startswith("--") and flag not in flags:
            is_positional = flag in _POSITIONAL
            hint = ": give it without." if is_positional else nearest(flag, flags)
            raise InputError(f"Unknown option `{name}`{hint}")
        if equals and flags.get(flag) is bool:
            raise InputError(f"`{name}` must be without a value, got {value!r}.")


def _with_flags_of_now(arguments: list[str], verb: type) -> list[str]:
    """`arguments` with former flags and values replaced by those of now.

    Raises:
      InputError: a flag is given by both its names.
    """
    settings = list(_settings(verb))
    values = {_flag(f.name): f.metadata["former_values"] for f in settings}
    former = {
        _flag(f.metadata["formerly"]): _flag(f.name)
        for f in settings
        if f.metadata["formerly"]
    }
    end = arguments.index("--") if "--" in arguments else len(arguments)
    found: list[str] = []
    given: dict[str, str] = {}  # name now -> name as given
    before = ""  # the flag whose value comes next
    for argument in arguments[:end]:
        name, equals, value = argument.partition("=")
        if not name.startswith("--"):
            found.append(values.get(before, {}).get(argument, argument))
            before = ""
            continue
        flag = _flag(name)
        before = former.get(flag, flag)
        if given.setdefault(before, flag) != flag:
            raise InputError(
                f"`{before}` and its former name are both given: leave out the former."
            )
        value = values.get(before, {}).get(value, value)
        found.append((before if flag in former else name) + equals + value)
    return found + arguments[end:]


def _with_flags_of_family(arguments: list[str], model: str) -> list[str]:
    """`arguments` with flags of another family replaced by those that the family of the
    run has for the same thing, as --vector-size of an encoder."""
    own = {
        _flag(f.metadata["also"]): _flag(f.name)
        for f in dataclasses.fields(FAMILIES[model])
        if f.metadata["also"]
    }
    end = arguments.index("--") if "--" in arguments else len(arguments)
    found = []
    for argument in arguments[:end]:
        name, equals, value = argument.partition("=")
        flag = _flag(name) if name.startswith("--") else name
        found.append(own.get(flag, name) + equals + value)
    return found + arguments[end:]


def _settings(verb: type) -> Iterator[dataclasses.Field]:
    """The fields of all sections of a verb."""
    for option in dataclasses.fields(verb):
        if dataclasses.is_dataclass(option.type):
            yield from dataclasses.fields(option.type)


def _flag(name: str) -> str:
    """The flag of a setting, or a flag spelled with dashes."""
    return "--" + name.removeprefix("--").replace("_", "-")


def _flags(section) -> dict[str, Any]:
    """The flags of a verb or a section of the config, with their types."""
    flags: dict[str, Any] = {}
    for option in dataclasses.fields(section):
        if dataclasses.is_dataclass(option.type):
            flags |= _flags(option.type)
        elif tyro.conf.Positional not in getattr(option.type, "__metadata__", ()):
            flags[_flag(_name(option))] = option.type
    return flags


def _name(option: dataclasses.Field) -> str:
    """The name of an option on the command line, where `from` is no keyword."""
    given = (getattr(x, "name", None) for x in getattr(option.type, "__metadata__", ()))
    return next(filter(None, given), option.name)


def _defaults(arguments: list[str]) -> Config:
    """The defaults for the flags: of --config, or else of --preset."""
    path = _flag_value(arguments, "--config", Path)
    defaults = _with_preset(arguments, Config())
    return defaults if path is None else read_toml(path, defaults)


def _with_preset(arguments: list[str], defaults: Config) -> Config:
    """`defaults` with the settings of --preset; a wrong one is left to tyro."""
    preset = _flag_value(arguments, "--preset", str) or "none"
    check_preset(preset, _flag_value(arguments, "--model", str) or defaults.run.model)
    return with_preset(defaults, preset) if preset in PRESETS else defaults


def _flag_value(arguments: list[str], flag: str, kind: Callable[[str], Any]) -> Any:
    """The value of a flag; None: it is not given, or has none, which tyro will say."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument(flag, type=kind, dest="value")
    with contextlib.suppress(argparse.ArgumentError, SystemExit):
        with contextlib.redirect_stderr(io.StringIO()):
            return parser.parse_known_args(arguments)[0].value
    return None


def _registry() -> ConstructorRegistry:
    """Readers of numbers and paths, with their messages about wrong text."""
    readers: dict[Any, tuple[str, str, Callable[[str], object]]] = {
        int: ("INT", "an integer", int),
        Window: ("INT|session", "an integer or 'session'", _window),
        float: ("FLOAT", "a number", float),
        Path: ("PATH", "a path", _path),
    }
    registry = ConstructorRegistry()

    @registry.primitive_rule
    def rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
        for kind, reader in readers.items():
            if info.type == kind:
                return _constructor(*reader)
            if info.type == kind | None:
                return _optional(_constructor(*reader))
        return None

    return registry


def _constructor(metavar: str, rule: str, read: Callable) -> PrimitiveConstructorSpec:
    def from_text(texts: list[str]):
        try:
            return read(texts[0])
        except InputError:
            raise
        except ValueError:
            raise InputError(f"must be {rule}, got {texts[0]!r}.") from None

    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=from_text,
        is_instance=lambda value: True,
        str_from_instance=lambda value: [str(value)],
    )


def _optional(spec: PrimitiveConstructorSpec) -> PrimitiveConstructorSpec:
    """`spec`, but the text `none` is None."""
    return dataclasses.replace(
        spec,
        instance_from_str=lambda texts: (
            None if texts[0].lower() == "none" else spec.instance_from_str(texts)
        ),
        str_from_instance=lambda value: [
            str(value).lower() if value is None else str(value)
        ],
    )


def _window(text: str) -> Window:
    return "session" if text == "session" else int(text)


def _path(text: str) -> Path:
    if not text:
        raise ValueError("an empty path means the current folder: write . for that")
    if is_url(text) and not Path(text).exists():
        raise InputError(
            f"{without_secrets(text)} is a URL, where a path on this machine is needed:"
            " copy it first, or a run by --mirror."
        )
    return Path(text)


@contextlib.contextmanager
def _one_line_errors() -> Iterator[None]:
    """Turns what tyro prints before it exits into an InputError of one line."""
    errors, before = io.StringIO(), os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "10000"  # a very wide terminal: no message is broken
    try:
        with contextlib.redirect_stderr(errors):
            yield
    except SystemExit as stop:
        if not stop.code:
            raise
        raise InputError(_one_line(errors.getvalue())) from None
    finally:
        os.environ.pop("COLUMNS", None)
        if before is not None:
            os.environ["COLUMNS"] = before


def _one_line(box: str) -> str:
    """The message in tyro's box, which has no frame where the output is ASCII."""
    parts = re.split(r"(?m)^[│ ]*[─-]{3,}[│ ]*$", box.strip())
    is_framed = parts[0].startswith("╭")
    message = parts[0].partition("\n")[2] if is_framed else "".join(parts[1:2])
    shallow = [line for line in message.splitlines() if not re.match(r"│?\s{8}", line)]
    text = " ".join(" ".join(line.strip("│ ") for line in shallow).split())
    text = re.sub(r"^Error parsing (?!__tyro)(\S+):", r"`\1`", text)
    text = re.sub(r"^Error parsing \S+: ", "", text)
    text = re.sub(r"^Unrecognized options: ", "Not understood: ", text)
    unread = r" Could not find valid parse for arguments: \[(.*?)\].*"
    text = re.sub(unread, r" must be numbers, got \1.", text)
    text = text.removesuffix(" Expected 1 values.")
    return text or "Wrong usage: see embedder --help."
