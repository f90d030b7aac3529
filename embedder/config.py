"""The settings of a run: frozen dataclasses, validated, to and from TOML.

Every name that gensim has keeps gensim's name. Defaults and units stand here and
nowhere else; what an option left at None becomes is a function in this module.
"""

import dataclasses
import difflib
import math
import os
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from embedder.checks import (
    check_choice,
    check_integer,
    check_integers,
    check_interval,
    check_multiple,
    check_number,
    check_text,
    positive_finite,
)

Architecture = Literal["skipgram", "cbow"]
"""Predict the contexts from each token (skipgram), or each token from them (cbow)."""


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """How text becomes blocks of token ids."""

    min_count: int = 5
    """Drop tokens that occur less often."""
    sample: float = 1e-3
    """Downsample tokens more frequent than this share of the corpus; 0 keeps all."""
    ns_exponent: float = 0.75
    """Noise ids are drawn in proportion to count ** ns_exponent."""
    window: int = 5
    """Largest distance of a context; each token draws its own from 1 to this."""
    block: int | None = None
    """Tokens in a block; none: 64, raised to a multiple of `tile`."""
    tile: int = 16
    """Tokens that share noise ids; it divides the block."""
    noise: int = 32
    """Noise ids of a tile."""
    blocks_per_update: int = 1
    """Blocks whose gradients are summed into one update."""
    unicode_errors: Literal["strict", "replace"] = "strict"
    """Bytes that are not UTF-8 text: refuse the corpus, or take U+FFFD for them."""
    loader: Literal["tfdata", "memory"] = "tfdata"
    """Both yield the same blocks, bit for bit; memory does without TensorFlow."""
    workers: int = 2
    """Threads that make blocks."""

    def __post_init__(self):
        for name in ("min_count", "tile", "noise", "blocks_per_update", "workers"):
            check_integer(self, name, 1)
        check_integer(self, "window", 1, 127)
        check_number(self, "sample", "a number from 0 to 1", lambda x: 0 <= x <= 1)
        check_number(self, "ns_exponent", "a finite number", math.isfinite)
        if self.block is not None:
            check_multiple(self, "block", of="tile")
        check_choice(self, "unicode_errors", ("strict", "replace"))
        check_choice(self, "loader", ("tfdata", "memory"))


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """What is learned."""

    model: Literal["tables", "encoder"] = "tables"
    """tables: a vector for each token of a text; encoder: a network over features or
    images with labels, whose last hidden layer is the vector."""
    architecture: Architecture = "skipgram"
    """Predict the contexts from each token, or each token from their mean."""
    vector_size: int = 100
    """Dimensions of a vector."""
    negative: int = 5
    """Negatives that a pair counts for."""
    dtype: Literal["float32", "float64"] = "float32"
    """Of the tables and of all arithmetic on them."""

    def __post_init__(self):
        check_choice(self, "model", ("tables", "encoder"))
        check_choice(self, "architecture", ("skipgram", "cbow"))
        check_integer(self, "vector_size", 1)
        check_integer(self, "negative", 1)
        check_choice(self, "dtype", ("float32", "float64"))


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """An encoder, and how it is learned."""

    layers: tuple[int, ...] = ()
    """Widths from features to classes, as 784 512 10; none: one hidden layer of 128."""
    optimizer: str = "sgd"
    """One of optax: sgd, adam, adamw, rmsprop, lion ..."""
    optimizer_args: tuple[str, ...] = ()
    """Its arguments, as momentum=0.9 nesterov=true."""
    learning_rate: float = 0.01
    """Of every update."""
    batch_size: int = 32
    """Examples of an update; the last one of an epoch may have fewer."""
    validation_fraction: float = 0.0
    """Share of the examples, the last ones, that is held out to validate."""
    precision: Literal["default", "high", "highest"] = "highest"
    """Of matrix products: highest is all of float32; default may be less on a GPU."""
    label: str = "label"
    """Column of a parquet file, or array of an npz, with the labels."""
    key: str = ""
    """Column of a parquet file with names of the rows; none given: their numbers."""
    image_size: tuple[int, ...] = ()
    """Height and width that images are scaled to; none given: they must be equal."""

    def __post_init__(self):
        check_integers(self, "layers", 1)
        if self.layers and len(self.layers) < 3:
            raise ValueError(
                "`layers` must be three widths or more, from features to classes, got "
                f"{self.layers}."
            )
        for name in ("optimizer", "label", "key"):
            check_text(self, name)
        if not isinstance(self.optimizer_args, list | tuple):
            raise TypeError(
                "`optimizer_args` must be a list of NAME=VALUE, got "
                f"{self.optimizer_args!r}."
            )
        parse_arguments(self.optimizer_args)
        object.__setattr__(self, "optimizer_args", tuple(self.optimizer_args))
        check_number(self, "learning_rate", "a finite number > 0", positive_finite)
        check_integer(self, "batch_size", 1)
        check_number(
            self, "validation_fraction", "a number in [0, 1)", lambda x: 0 <= x < 1
        )
        check_choice(self, "precision", ("default", "high", "highest"))
        check_integers(self, "image_size", 1)
        if len(self.image_size) not in (0, 2):
            raise ValueError(
                f"`image_size` must be height and width, got {self.image_size}."
            )


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How it is learned."""

    epochs: int = 5
    """Passes over the corpus; 0 writes the initial vectors."""
    alpha: float | None = None
    """Learning rate at the start; none: by the size of the corpus, 0.05 to 0.025,
    for cbow 0.2 to 0.1."""
    min_alpha: float = 1e-4
    """Learning rate at the end; it falls linearly."""
    cap: float | None = None
    """No row moves by more than this many pair steps in one update; none: 1.6 / alpha,
    128 at most; inf: no cap."""
    update: Literal["rows", "dense"] = "rows"
    """Differentiate the gathered rows, or whole tables: slow, for checks."""
    backend: Literal["auto", "xla", "numba"] = "auto"
    """What compiles the updates: numba is faster on a CPU, and takes some seconds the
    first time ever; auto: numba for long runs on a CPU, xla for all others."""
    threads: int = 0
    """Threads of the numba backend; 0: one for each core. An update has work for as
    many as it has tiles. Results are the same for any number."""
    seed: int = 1
    """Of the initial vectors and of every draw."""

    def __post_init__(self):
        check_integer(self, "epochs", 0)
        if self.alpha is not None:
            check_number(self, "alpha", "a finite number > 0", positive_finite)
        if self.cap is not None:
            check_number(self, "cap", "a number > 0", lambda x: x > 0)
        check_choice(self, "update", ("rows", "dense"))
        check_choice(self, "backend", ("auto", "xla", "numba"))
        if self.backend == "numba" and self.update == "dense":
            raise ValueError("`update` must be 'rows' with numba, got 'dense'.")
        check_integer(self, "threads", 0)
        check_integer(self, "seed", 0, 2**64 - 1)


@dataclass(frozen=True, kw_only=True)
class ParallelConfig:
    """Which devices take part, and what each of them has."""

    mode: Literal["auto", "jit", "sharded", "pmap"] = "auto"
    """jit: one device; sharded: jit over a mesh of devices; pmap: the same by pmap;
    auto: jit, or sharded where several devices have work or tables need them."""
    tables: Literal["auto", "replicated", "columns", "rows"] = "auto"
    """Whole on each device, or split between devices by columns or by rows; auto:
    replicated where they fit on a device, else rows."""
    devices: int = 0
    """How many devices; 0: all that an update has blocks for."""
    table_devices: int = 0
    """Of these, how many share one copy of split tables; 0: all."""

    def __post_init__(self):
        check_choice(self, "mode", ("auto", "jit", "sharded", "pmap"))
        check_choice(self, "tables", ("auto", "replicated", "columns", "rows"))
        check_integer(self, "devices", 0)
        check_integer(self, "table_devices", 0)


@dataclass(frozen=True, kw_only=True)
class SaveConfig:
    """When a run saves all that it needs to go on from there."""

    save_every: str = "10min"
    """So many updates, as 100; or a time or passes, as 30s, 10min, 2h, 1epoch; or
    never."""
    keep: int = 2
    """How many of these checkpoints stay, the newest; besides the best."""
    best_by: str = ""
    """Similarity set to score the vectors by after each pass: the checkpoint of the
    best stays. An encoder is scored by its loss on what validates instead."""
    result: Literal["last", "best"] = "last"
    """Whether the run ends with the vectors of the last pass, or of the best."""

    def __post_init__(self):
        check_interval(self, "save_every")
        check_integer(self, "keep", 1)
        check_text(self, "best_by")
        if self.best_by:
            object.__setattr__(self, "best_by", os.path.abspath(self.best_by))
        check_choice(self, "result", ("last", "best"))

    @property
    def saves_best(self) -> bool:
        """Whether each pass that is better than all before is saved."""
        return self.result == "best" or bool(self.best_by)


@dataclass(frozen=True, kw_only=True)
class Config:
    """All settings of a run, one section for each room that reads them."""

    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    save: SaveConfig = field(default_factory=SaveConfig)

    def __post_init__(self):
        alpha = self.train.alpha or default_alpha(self.model.architecture, math.inf)
        rule = "a number from 0 to `alpha`"
        check_number(self.train, "min_alpha", rule, lambda x: 0 <= x <= alpha)
        _check_family(self)
        _check_best(self)


@dataclass(frozen=True, kw_only=True)
class PeersConfig:
    """Several processes that are one run; none given: as mpirun or srun says."""

    coordinator: str | None = None
    """HOST:PORT of process 0."""
    num_processes: int | None = None
    """How many processes take part."""
    process_id: int | None = None
    """Which of them this is, from 0."""
    init_timeout: int = 60
    """Seconds to wait for the others."""
    lost_after: int = 20
    """Seconds without a sign of life, until another process counts as lost."""

    def __post_init__(self):
        check_integer(self, "init_timeout", 1)
        check_integer(self, "lost_after", 1)
        names = ("coordinator", "num_processes", "process_id")
        missing = [f"`{name}`" for name in names if getattr(self, name) is None]
        if len(missing) == 3:
            return
        if missing:
            given = [name for name in names if getattr(self, name) is not None]
            here = ", ".join(f"`{name}` = {getattr(self, name)!r}" for name in given)
            raise ValueError(f"{here} needs {' and '.join(missing)} too.")
        check_integer(self, "num_processes", 1)
        check_integer(self, "process_id", 0, self.num_processes - 1)
        host, _, port = str(self.coordinator).rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
            raise ValueError(
                f"`coordinator` must be HOST:PORT, got {self.coordinator!r}."
            )


def parse_arguments(texts: Iterable[str]) -> dict[str, float | bool]:
    """The arguments in texts such as momentum=0.9 and nesterov=true.

    Raises:
      ValueError: one is not NAME=NUMBER, true or false.
    """
    arguments = {}
    for text in texts:
        name, _, value = str(text).partition("=")
        try:
            word = {"true": True, "false": False}.get(value.lower())
            arguments[name] = float(value) if word is None else word
        except ValueError:
            raise ValueError(
                "`optimizer_args` must be NAME=VALUE, a number, true or false, got "
                f"{text!r}."
            ) from None
    return arguments


_SHARED = {  # by tables and encoders
    *("loader", "workers", "model", "dtype", "epochs", "seed", "mode", "devices"),
    *("save_every", "keep", "result"),
}


def _is_used(name: str, model: str) -> bool:
    """Whether a model of that kind has a use for an option."""
    is_of_encoder = name in _names(EncoderConfig)
    return name in _SHARED or is_of_encoder == (model == "encoder")


def _check_family(config: "Config") -> None:
    """Refuses options that the model has no use for."""
    model = config.model.model
    of_encoder = set(_names(EncoderConfig))
    for name, value in options_of(config).items():
        if not _is_used(name, model) and value != _DEFAULTS[name]:
            other = "encoder" if name in of_encoder else "tables"
            raise ValueError(
                f"`{name}` is of `model` = {other!r}, and must not be given with "
                f"{model!r}, got {value!r}."
            )


def _check_best(config: "Config") -> None:
    """Refuses to end with the best where nothing tells which that is."""
    is_encoder = config.model.model == "encoder"
    needed = "validation_fraction" if is_encoder else "best_by"
    if config.save.result == "best" and not options_of(config)[needed]:
        raise ValueError(f"`result` best needs `{needed}`, got {config.save.result!r}.")


def default_alpha(architecture: Architecture, num_tokens: float) -> float:
    """Learning rate at the start for a corpus of `num_tokens`: small ones want more.

    Skip-gram: 0.05 up to 1 M tokens, then falling with their number to the power -0.225
    to 0.025 from 22 M on. CBOW: four times that, since its gradient is divided by the
    number of contexts.
    """
    alpha = min(max(0.05 * (1e6 / max(num_tokens, 1)) ** 0.225, 0.025), 0.05)
    return {"skipgram": 1, "cbow": 4}[architecture] * alpha


def default_block(tile: int) -> int:
    """Tokens in a block: 64, raised to a multiple of `tile`.

    Larger blocks are faster, and lose where words are to be told apart that are used
    alike: SimLex first.
    """
    return -(-64 // tile) * tile


def default_cap(alpha: float, tokens_per_update: int) -> float:
    """Cap in pair steps: cap x alpha above about 3 diverges once weights reach it.

    Half of that, at most 128, or 64 when an update has more than 2048 tokens.
    """
    return min(1.6 / alpha, 128.0 if tokens_per_update <= 2048 else 64.0)


def resolve(config: Config, num_tokens: int) -> Config:
    """`config` of tables, with None replaced by what it becomes for `num_tokens`."""
    data, train = config.data, config.train
    block = data.block or default_block(data.tile)
    alpha = train.alpha or default_alpha(config.model.architecture, num_tokens)
    cap = train.cap or default_cap(alpha, block * data.blocks_per_update)
    return dataclasses.replace(
        config,
        data=dataclasses.replace(data, block=block),
        train=dataclasses.replace(train, alpha=alpha, cap=cap),
    )


def section_of(name: str) -> str:
    """The section that has option `name`; ValueError with the nearest name if none."""
    for section in dataclasses.fields(Config):
        if name in _names(section.default_factory):
            return section.name
    known = [n for f in dataclasses.fields(Config) for n in _names(f.default_factory)]
    raise ValueError(f"Unknown option `{name}`{nearest(name, known)}")


def with_options(config: Config, **options: Any) -> Config:
    """`config` with options replaced by their flat names, validated."""
    sections = {f.name: dict() for f in dataclasses.fields(Config)}
    for name, value in options.items():
        sections[section_of(name)][name] = value
    return Config(
        **{
            name: dataclasses.replace(getattr(config, name), **values)
            for name, values in sections.items()
        }
    )


def options_of(config: Config) -> dict[str, Any]:
    """Every option of `config` by its flat name."""
    sections = dataclasses.asdict(config).values()
    return {name: value for section in sections for name, value in section.items()}


_NO_MATTER = {  # any give the same vectors, those of devices up to rounding
    *("loader", "workers", "threads", "mode", "tables", "devices", "table_devices"),
    *("save_every", "keep", "result"),
}


def differences(before: Config, now: Config) -> list[str]:
    """What two configs differ in, as text, of what matters to the vectors."""
    old, new = options_of(before), options_of(now)
    return [
        f"`{name}` {old[name]!r} there, {new[name]!r} now"
        for name in new
        if new[name] != old[name] and name not in _NO_MATTER
    ]


def to_toml(config: Config) -> str:
    """TOML text of `config`, one table a section, without what is None or of no use."""
    import tomli_w

    tables = {
        section: {
            name: value
            for name, value in table.items()
            if value is not None and _is_used(name, config.model.model)
        }
        for section, table in dataclasses.asdict(config).items()
    }
    return tomli_w.dumps({name: table for name, table in tables.items() if table})


def read_toml(path: Path) -> Config:
    """The config in a TOML file; an unknown table or key is a ValueError."""
    try:
        tables = tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:  # of the text, or of numbers in it
        raise ValueError(f"{path} is not valid TOML: {error}.") from error
    try:
        return _from_tables(tables)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def from_toml(text: str) -> Config:
    """The config in the text of `to_toml`."""
    return _from_tables(tomllib.loads(text))


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown `name`: which known one may be meant."""
    found = difflib.get_close_matches(name, known, n=1)
    return f", did you mean `{found[0]}`?" if found else "."


def _from_tables(tables: dict[str, Any]) -> Config:
    sections = {f.name: f.default_factory for f in dataclasses.fields(Config)}
    for table, keys in tables.items():
        if table not in sections:
            raise ValueError(f"unknown table [{table}]{_place(table, sections)}")
        if not isinstance(keys, dict):
            raise ValueError(f"`{table}` must be a table, got {keys!r}.")
        known = _names(sections[table])
        for key in keys:
            if key not in known:
                raise ValueError(
                    f"unknown key `{key}` in [{table}]{_place(key, known)}"
                )
    return Config(**{name: sections[name](**keys) for name, keys in tables.items()})


def _place(name: str, known: Iterable[str]) -> str:
    """The end of a message about a key or table that is unknown where it stands."""
    try:
        return f": `{name}` belongs in [{section_of(name)}]."
    except ValueError:
        return nearest(name, known)


def _names(section) -> list[str]:
    return [f.name for f in dataclasses.fields(section)]


_DEFAULTS = {
    f.name: f.default
    for section in dataclasses.fields(Config)
    for f in dataclasses.fields(section.default_factory)
}
