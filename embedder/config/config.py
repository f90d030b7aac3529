"""The settings of a run: sections that all families share, and one of a family.

Settings that gensim has, too, have the names of gensim. Names are unique over all
sections, so that settings can be given flat: as flags and as keyword arguments. Names
of the NumPy trainer (`setting(formerly=...)`) are accepted wherever a name is given;
only names of now are written and shown.
"""

import dataclasses
import difflib
import functools
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

from embedder.config.encoder_options import EncoderOptions
from embedder.config.run_options import DeviceOptions, RunOptions, SaveOptions
from embedder.config.settings import Mark, former_names, refuse
from embedder.config.token_objectives import OPTIMIZERS
from embedder.config.token_options import (
    FILES,
    Repeats,
    RowUpdates,
    TokensOptions,
    default_blocks_per_update,
    default_max_pairs_per_row,
    of_large_corpora,
    of_no_graph,
)
from embedder.errors import InputError, InputTypeError

_FILES = FILES | {"init_network": ()}

FAMILIES: dict[str, type[TokensOptions] | type[EncoderOptions]] = {
    "tokens": TokensOptions,
    "encoder": EncoderOptions,
}
"""The section of each family, by the value of `model`."""

_SHARED: dict[str, type] = {
    "run": RunOptions,
    "devices": DeviceOptions,
    "save": SaveOptions,
}
"""The sections that all families share, by their names in TOML."""
_SECTIONS = _SHARED | FAMILIES
Family = TypeVar("Family")


@dataclass(frozen=True, kw_only=True)
class Config:
    """All settings of a run: shared sections, and the section of its family."""

    run: RunOptions = field(default_factory=RunOptions)
    family: TokensOptions | EncoderOptions = field(default_factory=TokensOptions)
    devices: DeviceOptions = field(default_factory=DeviceOptions)
    save: SaveOptions = field(default_factory=SaveOptions)

    def __post_init__(self):
        self._family(FAMILIES[self.run.model])
        self.family.check_optimizer(self.run.optimizer)
        names = self.family.scored_by
        known = SimpleNamespace(
            **options_of(self),
            scores=" or ".join(f"`{name}`" for name in names),
            is_scored=any(getattr(self.family, name) for name in names),
        )
        for each in (self.family, self.save, self.run):
            refuse(each, known, of_run=True)

    @property
    def tables(self) -> TokensOptions:
        """The section of models of tokens; InputTypeError for another family."""
        return self._family(TokensOptions)

    @property
    def encoder(self) -> EncoderOptions:
        """The section of encoders; InputTypeError for another family."""
        return self._family(EncoderOptions)

    def _family(self, section: type[Family]) -> Family:
        if not isinstance(self.family, section):
            raise InputTypeError(
                f"`model` is {self.run.model!r}, with {type(self.family).__name__}."
            )
        return self.family

    @property
    def updates_per_call(self) -> float:
        """Updates after which a checkpoint or an evaluation may be due; inf: none is
        due by their number."""
        evaluations = self.run.evaluation_interval
        return min(self.save.interval.updates, evaluations.updates)

    @property
    def needs_best(self) -> bool:
        """Whether one of the scores must tell which evaluation is the best."""
        return self.save.result == "best" or self.run.patience > 0

    @property
    def saves_best(self) -> bool:
        """Whether each evaluation that is the best so far is saved."""
        return self.save.result == "best" or bool(getattr(self.family, "best_by", ""))


def make_config(values: dict[str, Any]) -> Config:
    """The config of settings given by flat names; the others have defaults.

    Raises:
      InputError: a name is unknown, or of another family, or a value is wrong.
    """
    values = _with_names_of_now(values)
    model = RunOptions(model=values.get("model", "tokens")).model
    values = {"optimizer": FAMILIES[model].default_optimizer} | values
    sections = {**_SHARED, model: FAMILIES[model]}
    options: dict[str, Any] = {}
    for name, section in sections.items():
        own = [f.name for f in dataclasses.fields(section)]
        options[name] = section(**{key: values[key] for key in own if key in values})
    for name, value in values.items():
        if name not in _names(*sections.values()):
            _check_other_family(name, value, model)
    return Config(family=options.pop(model), **options)


def _check_other_family(name: str, value: Any, model: str) -> None:
    """Refuses a setting of another family, unless it has its default there."""
    home = section_of(name)
    section = FAMILIES[home](**{name: value})
    if getattr(section, name) != getattr(FAMILIES[home](), name):
        raise InputError(
            f"`{name}` applies only to `model` = {home!r}, got {value!r} with "
            f"{model!r}."
        )


def current_name(name: str) -> str:
    """The name now of a setting that may be given by its former one."""
    return former_names(*_SECTIONS.values()).get(name, name)


def _with_names_of_now(values: dict[str, Any]) -> dict[str, Any]:
    """`values` without former names."""
    current_names = former_names(*_SECTIONS.values())
    current: dict[str, Any] = {}
    for key, value in values.items():
        name = current_names.get(key, key)
        if name in current:
            former = next(old for old, new in current_names.items() if new == name)
            raise InputError(
                f"`{name}` and its former name `{former}` are both given: leave out "
                "the former."
            )
        current[name] = value
    return current


def section_of(name: str) -> str:
    """The section of setting `name`; InputError with the nearest name if none."""
    for section, kind in _SECTIONS.items():
        if current_name(name) in _names(kind):
            return section
    known = _names(*_SECTIONS.values())
    raise InputError(f"Unknown option `{name}`{nearest(name, known)}")


def with_options(config: Config, **options: Any) -> Config:
    """`config` with settings replaced, given by flat names, and validated."""
    before, changes = options_of(config), _with_names_of_now(options)
    model = RunOptions(model=changes.get("model", config.run.model)).model
    if model != config.run.model:
        shared = _names(*_SHARED.values())
        before = {name: x for name, x in before.items() if name in shared}
        if before["optimizer"] == FAMILIES[config.run.model].default_optimizer:
            del before["optimizer"]
    return make_config(before | changes)


def replicas_of(config: Config) -> list[Config]:
    """The config of each replica, which a run of its own would have."""
    seeds = range(config.run.seed, config.run.seed + config.run.replicas)
    runs = [replace(config.run, seed=s % 2**64, replicas=1) for s in seeds]
    return [replace(config, run=run) for run in runs]


def common_config(models: Sequence[Config], **largest: Any) -> Config:
    """The config of models that are trained side by side; of one, its own.

    Args:
      largest: values of settings in which they differ, for what all of them share.
    """
    if len(models) == 1:
        return models[0]
    return with_options(models[0], replicas=len(models), **largest)


def options_of(config: Config) -> dict[str, Any]:
    """Every setting of `config` by its flat name."""
    sections = (config.run, config.family, config.devices, config.save)
    return {name: x for section in sections for name, x in vars(section).items()}


def resolve(
    config: Config,
    num_tokens: float,
    epochs: int | None = None,
    row_updates: RowUpdates = of_large_corpora,
    repeats: Repeats = of_no_graph,
) -> Config:
    """`config` of tokens with open settings resolved for `num_tokens`.

    `max_pairs_per_row` stays None with an optimizer that has no such limit.

    Args:
      epochs: all of the model's, those of earlier trainings too; None: of `config`.
      row_updates: as `Vocabulary.row_updates`.
      repeats: as `Walks.repeats`.
    """
    epochs = config.run.epochs if epochs is None else epochs
    options, optimizer = config.tables, config.run.optimizer
    block = options.block_or_default
    num_blocks = options.blocks_per_update or default_blocks_per_update(
        num_tokens, block
    )
    alpha = options.alpha or options.default_alpha(
        optimizer,
        row_updates(options.sample),
        epochs,
        num_blocks,
        repeats(block) if options.walks else None,
    )
    alpha = max(alpha, options.min_alpha)  # that of walks may be below
    max_pairs = options.max_pairs_per_row
    if OPTIMIZERS[optimizer].limits_pairs:
        max_pairs = max_pairs or default_max_pairs_per_row(
            alpha, block * num_blocks, options.num_contexts
        )
    options = replace(
        options,
        holdout=options.held_out,
        block=block,
        noise=options.num_noise,
        blocks_per_update=num_blocks,
        alpha=alpha,
        max_pairs_per_row=max_pairs,
    )
    return replace(config, family=options)


def per_host_names() -> set[str]:
    """Settings in which the processes of a run may differ."""
    return _marked("per_host")


def changing_names() -> set[str]:
    """Settings that change the vectors, apart from rounding."""
    return _marked("changes")


def per_model_names() -> set[str]:
    """Settings in which models that are trained side by side may differ."""
    return _marked("per_model")


def different_options(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """A text for each setting, by its flat name, that differs and changes the
    vectors."""
    changing = changing_names()
    return [
        f"`{name}` {old.get(name)!r} there, {new.get(name)!r} now"
        for name in new | old
        if new.get(name) != old.get(name) and name in changing
    ]


def _marked(key: Mark) -> set[str]:
    fields = (f for kind in _SECTIONS.values() for f in dataclasses.fields(kind))
    return {f.name for f in fields if f.metadata[key]}


def to_toml(config: Config) -> str:
    """TOML text of `config`: a table per section, without settings that are None."""
    import tomli_w

    sections = {name: getattr(config, name) for name in _SHARED}
    sections[config.run.model] = config.family
    return tomli_w.dumps(
        {
            table: {name: x for name, x in vars(each).items() if x is not None}
            for table, each in sections.items()
        }
    )


def read_toml(path: Path, defaults: Config | None = None) -> Config:
    """The config in a TOML file; InputError for an unknown table or key.

    Relative paths start in the folder of the file; where nothing is there, in the
    current folder.

    Args:
      defaults: has the settings that the file lacks; None: all have their defaults.
    """
    try:
        tables = tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:  # of the text, or of numbers in it
        raise InputError(f"{path} is not valid TOML: {error}.") from error
    try:
        values = _with_paths_from(Path(path).parent, _flat(tables))
        return with_options(defaults or Config(), **values)
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: {error}") from error


def _with_paths_from(folder: Path, values: dict[str, Any]) -> dict[str, Any]:
    """`values` of a file in `folder`, whose relative paths start there."""
    resolved = dict(values)
    for name in _FILES.keys() & values.keys():
        path = values[name]
        is_path = isinstance(path, str) and path not in ("", *_FILES[name])
        if is_path and "://" not in path:
            beside = folder / path  # `path` itself if it is absolute
            is_here = Path(path).exists() and not beside.exists()
            resolved[name] = path if is_here else str(beside)
    match values.get("attributes"):
        case [str() as path, *columns]:
            moved = _with_paths_from(folder, {"names": path})
            resolved["attributes"] = [moved["names"], *columns]
    return resolved


def from_toml(text: str) -> Config:
    """The config in the text of `to_toml`."""
    return make_config(_flat(tomllib.loads(text)))


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown `name`: the nearest known one."""
    matches = difflib.get_close_matches(name, known, n=1)
    return f", did you mean `{matches[0]}`?" if matches else "."


def _flat(tables: dict[str, Any]) -> dict[str, Any]:
    """The settings in the tables of TOML by flat names, which may be former ones."""
    values: dict[str, Any] = {}
    for table, keys in tables.items():
        if table not in _SECTIONS:
            raise InputError(f"unknown table [{table}]{_where(table, _SECTIONS)}")
        if not isinstance(keys, dict):
            raise InputError(f"`{table}` must be a table, got {keys!r}.")
        home = _SECTIONS[table]
        for key in keys:
            if key not in (*_names(home), *former_names(home)):
                where = _where(key, _names(home))
                raise InputError(f"unknown key `{key}` in [{table}]{where}")
        values |= keys
    return values


def _where(name: str, known: Iterable[str]) -> str:
    """The end of a message about a key or table that is unknown there."""
    try:
        return f": `{name}` belongs in [{section_of(name)}]."
    except ValueError:
        return nearest(name, known)


@functools.cache
def _names(*sections: type) -> tuple[str, ...]:
    return tuple(f.name for section in sections for f in dataclasses.fields(section))
