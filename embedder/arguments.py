"""What stands on the command line: a dataclass for each verb, read by tyro.

Wrong arguments are a ValueError of one line. Names are checked here; what tyro finds
wrong with values comes in a box of several lines, of which the message is kept.
"""

import argparse
import contextlib
import dataclasses
import io
import itertools
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
)

from embedder.config import FAMILIES, Config, make_config, nearest, read_toml
from embedder.encoders.options import EncoderOptions
from embedder.errors import InputError
from embedder.options import DeviceOptions, PeersConfig, RunOptions, SaveOptions
from embedder.tables.options import TablesOptions

_Corpus = Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="[CORPUS]")]
_Run = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
_Source = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="SOURCE")]
_Target = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="TARGET")]
_Words = Annotated[
    tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="WORD...")
]


@dataclass(frozen=True)
class Train:
    """Train embeddings of the tokens of a text; no text: on the demo corpus. With
    --model encoder: of features or images with labels.

    The same command again goes on with a run that was stopped, as does --workdir alone.
    """

    corpus: _Corpus = None
    """A text file (.txt, .gz) with a sequence a line, a glob, or a folder; for an
    encoder idx, npz, parquet, or a folder of images."""
    workdir: Path | None = None
    """Folder of the run; none: embedder-NAME in this folder."""
    config: Path | None = None
    """TOML file of settings; flags go before it."""
    cache: Path | None = None
    """Folder of encoded corpora; none: cache in the workdir."""
    resume: Path | None = None
    """Start from the vectors of this run, or model file; its settings are the defaults.
    """
    grow: bool = False
    """Tokens that are new to the run of --resume get vectors; else they are left out.
    """
    overwrite: bool = False
    """Start anew where there is a run."""
    step: int | None = None
    """Go on from the checkpoint of so many updates, not from the newest."""
    force: bool = False
    """Go on though the files of the corpus have changed, if its tokens have not."""
    force_lock: bool = False
    """Write to the folder though its lock names another host."""
    dry_run: bool = False
    """Print what would be done, and do nothing."""
    peers: PeersConfig = field(default_factory=PeersConfig)
    run: RunOptions = field(default_factory=RunOptions)
    tables: TablesOptions = field(default_factory=TablesOptions)
    encoder: EncoderOptions = field(default_factory=EncoderOptions)
    devices: DeviceOptions = field(default_factory=DeviceOptions)
    save: SaveOptions = field(default_factory=SaveOptions)


@dataclass(frozen=True)
class Devices:
    """Show the devices here, and how a run would lie on them."""

    vocabulary: int = 100_000
    """Tokens of the vocabulary: rows of a table."""
    peers: PeersConfig = field(default_factory=PeersConfig)
    config: Path | None = None
    """TOML file of settings; flags go before it."""
    run: RunOptions = field(default_factory=RunOptions)
    tables: TablesOptions = field(default_factory=TablesOptions)
    devices: DeviceOptions = field(default_factory=DeviceOptions)


@dataclass(frozen=True)
class Neighbors:
    """Print the tokens nearest to each word."""

    run: _Run
    """Folder of a run, or a file of vectors."""
    words: _Words
    """Tokens to look up."""
    topn: int = 10
    """How many for each."""


@dataclass(frozen=True)
class Analogy:
    """Print what C is to as A is to B."""

    run: _Run
    """Folder of a run, or a file of vectors."""
    a: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="A")]
    """As in man."""
    b: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="B")]
    """As in king."""
    c: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="C")]
    """As in woman."""
    topn: int = 10
    """How many answers."""


@dataclass(frozen=True)
class Evaluate:
    """Score vectors against human judgements and analogies."""

    run: _Run
    """Folder of a run, or a file of vectors."""
    pairs: tyro.conf.UseAppendAction[tuple[Path, ...]] = ()
    """Similarity set: word1, word2 and score, by tabs. May be given again."""
    analogies: tyro.conf.UseAppendAction[tuple[Path, ...]] = ()
    """Analogy questions in word2vec's form. May be given again."""
    restrict_vocab: int = 30_000
    """Ask and answer analogies among so many of the most frequent tokens."""


@dataclass(frozen=True)
class Embed:
    """Give new images or features vectors by the encoder of a run."""

    run: _Run
    """Folder of a run with --model encoder, or a file of FeatureEncoder.save."""
    files: Annotated[
        tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="FILE...")
    ]
    """Images, or .npy of features, [n, ...]."""
    to: Path | None = None
    """File for the vectors, of a format of `export`; none: print what they are."""
    topn: int = 3
    """How many of the nearest examples of the run to print."""


@dataclass(frozen=True)
class Export:
    """Write vectors in another format, told by the ending of the file."""

    run: _Run
    """Folder of a run, or a file of vectors."""
    to: Path
    """.txt or .vec (word2vec text, also .gz), .bin (word2vec binary), .safetensors,
    .npz, .parquet."""


@dataclass(frozen=True)
class Convert:
    """Make a run of a model file of `save`, or a model file of a run."""

    source: _Source
    """Model file, or folder of a run."""
    target: _Target
    """Folder of the run to make, or model file to write."""
    overwrite: bool = False
    """Replace what is at TARGET."""
    force_lock: bool = False
    """Write to the folder though its lock names another host."""


@dataclass(frozen=True)
class Verify:
    """Say what of a run is whole, what is not, and what to do.

    The exit code is 1 if something is not.
    """

    run: _Run
    """Folder of a run."""


@dataclass(frozen=True)
class Parity:
    """Compare this trainer with the NumPy trainer, step by step, on a corpus."""

    corpus: str | None = None
    """A text file (.txt, .gz), a glob, or a folder; none: the demo corpus. With --model
    encoder: idx, npz or parquet."""
    config: Path | None = None
    """TOML file of settings; flags go before it."""
    words: int = 2_000_000
    """What trains takes the first so many words of the corpus, or examples; 0: all."""
    seeds: tuple[int, ...] = (1, 2, 3)
    """Of the whole trainings that are compared with those of two processes."""
    rungs: tuple[str, ...] = ()
    """Compare these alone, of vocabulary, distributions, blocks, loss, "row gradients",
    "one update", "100 updates", "whole epoch", resume, converters, neighbours, workers;
    of an encoder batches, loss, gradients, "one update", "100 updates", "whole epoch",
    files.
    """
    pairs: tyro.conf.UseAppendAction[tuple[Path, ...]] = ()
    """Similarity set to score whole trainings by. May be given again."""
    analogies: tyro.conf.UseAppendAction[tuple[Path, ...]] = ()
    """Analogy questions to score whole trainings by. May be given again."""
    json: bool = False
    """Print JSON."""
    run: RunOptions = field(default_factory=RunOptions)
    tables: TablesOptions = field(default_factory=TablesOptions)
    encoder: EncoderOptions = field(default_factory=EncoderOptions)
    devices: DeviceOptions = field(default_factory=DeviceOptions)


_POSITIONAL = ("--corpus", "--run", "--word", "--words", "--source", "--target")
Verb = (
    Train
    | Devices
    | Neighbors
    | Analogy
    | Evaluate
    | Embed
    | Export
    | Convert
    | Verify
    | Parity
)
_VERBS = {verb.__name__.lower(): verb for verb in Verb.__args__}


def parse(arguments: list[str]) -> Verb:
    """The verb that `arguments` name, with its options; prints help and leaves for -h.

    Raises:
      OSError, ValueError: they are wrong, or those in the --config file.
    """
    _check_names(arguments)
    if {"-h", "--help"} & set(arguments):
        return _parse(arguments, Config())
    with _one_line_errors():
        verb = _parse(arguments, _config_file(arguments))
        if isinstance(verb, Train) and verb.config is None:
            return _with_settings_of_a_run(verb, arguments)
        return verb


def _with_settings_of_a_run(verb: Train, arguments: list[str]) -> Train:
    """What is not given is as in the run of --resume, or in the one of the workdir."""
    from embedder.run.workdir import Workdir, base_of, source_of

    if verb.resume is not None:
        config = Workdir(verb.resume).config
        return _parse(arguments, read_toml(config)) if config.exists() else verb
    if verb.workdir is None or verb.corpus is not None:
        return verb
    run = Workdir(verb.workdir)
    if not run.is_begun:
        return verb
    verb = _parse(arguments, read_toml(run.config))
    base = base_of(run)
    return dataclasses.replace(
        verb,
        corpus=source_of(run),
        resume=base and run.base,
        grow=base is not None and base["grow"],
    )


def _parse(arguments: list[str], defaults: Config) -> Verb:
    every = _sections(defaults)
    parity = {name: value for name, value in every.items() if name != "save"}
    devices = {name: value for name, value in parity.items() if name != "encoder"}
    command = tyro.conf.subcommand
    verbs = (
        Annotated[Train, command("train", default=Train(**every))]
        | Annotated[Devices, command("devices", default=Devices(**devices))]
        | Annotated[Neighbors, command("neighbors")]
        | Annotated[Analogy, command("analogy")]
        | Annotated[Evaluate, command("evaluate")]
        | Annotated[Embed, command("embed")]
        | Annotated[Export, command("export")]
        | Annotated[Convert, command("convert")]
        | Annotated[Verify, command("verify")]
        | Annotated[Parity, command("parity", default=Parity(**parity))]
    )
    return tyro.cli(
        verbs,
        prog="embedder",
        description="Trains embeddings of tokens, and answers from them. --debug, with "
        "any verb, shows where an error was raised.",
        args=arguments,
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff),
        registry=_registry(),
    )


def _sections(config: Config) -> dict[str, Any]:
    """The sections of all families, by the names that verbs have for them."""
    families = {name: section() for name, section in FAMILIES.items()}
    families[config.run.model] = config.family
    shared = {"run": config.run, "devices": config.devices, "save": config.save}
    return families | shared


def settings(verb: Train | Devices | Parity) -> Config:
    """The config that a verb has the sections of, or most of them.

    Raises:
      ValueError: a setting of another family is given.
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
    if verb not in _VERBS:
        raise InputError(
            f"Unknown verb `{verb}`{nearest(verb, _VERBS)} The verbs are "
            f"{', '.join(_VERBS)}."
        )
    if verb == "parity" and arguments[1:2] and not arguments[1].startswith("-"):
        raise InputError(f"Give the corpus as --corpus {arguments[1]}.")
    flags = _flags(_VERBS[verb]) | {"--help": bool}
    for argument in itertools.takewhile(lambda a: a != "--", arguments[1:]):
        name, equals, value = argument.partition("=")
        flag = name.replace("_", "-")
        if flag.startswith("--") and flag not in flags:
            is_positional = flag in _POSITIONAL
            hint = ": give it without." if is_positional else nearest(flag, flags)
            raise InputError(f"Unknown option `{name}`{hint}")
        if equals and flags.get(flag) is bool:
            raise InputError(f"`{name}` must be without a value, got {value!r}.")


def _flags(section) -> dict[str, Any]:
    """The flags of a verb or a section of the config, with their types."""
    flags = {}
    for option in dataclasses.fields(section):
        if dataclasses.is_dataclass(option.type):
            flags |= _flags(option.type)
        elif tyro.conf.Positional not in getattr(option.type, "__metadata__", ()):
            flags["--" + option.name.replace("_", "-")] = option.type
    return flags


def _config_file(arguments: list[str]) -> Config:
    """The settings in the file of --config, which are defaults for the flags."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config", type=Path)
    with contextlib.suppress(argparse.ArgumentError, SystemExit):
        with contextlib.redirect_stderr(io.StringIO()):
            path = parser.parse_known_args(arguments)[0].config
        return Config() if path is None else read_toml(path)
    return Config()  # no value: tyro will say so


def _registry() -> ConstructorRegistry:
    """How text becomes a number or a path, and what is said where it is none."""
    readers = {
        int: ("INT", "an integer", int),
        float: ("FLOAT", "a number", float),
        Path: ("PATH", "a path", _path),
    }
    registry = ConstructorRegistry()

    @registry.primitive_rule
    def rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
        for kind, reader in readers.items():
            if info.type is kind:
                return _constructor(*reader)
            if info.type == kind | None:
                return _optional(_constructor(*reader))
        return None

    return registry


def _constructor(metavar: str, rule: str, read: Callable) -> PrimitiveConstructorSpec:
    def from_text(texts: list[str]):
        try:
            return read(texts[0])
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
    """The same, with `none` for None."""
    return dataclasses.replace(
        spec,
        instance_from_str=lambda texts: (
            None if texts[0].lower() == "none" else spec.instance_from_str(texts)
        ),
        str_from_instance=lambda value: [
            str(value).lower() if value is None else str(value)
        ],
    )


def _path(text: str) -> Path:
    if not text:
        raise InputError("an empty path is the folder at hand: seldom what is meant")
    return Path(text)


@contextlib.contextmanager
def _one_line_errors() -> Iterator[None]:
    """Turns what tyro prints before it leaves into a ValueError of one line."""
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
    """The message in a box, with a frame or (where the output is ASCII) without one."""
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
