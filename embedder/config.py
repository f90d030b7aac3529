"""The settings of a run: sections that all families share, and one of a family.

Settings that gensim has, too, have the names of gensim. The sections of families are in
their packages (`tables/options.py`, `encoders/options.py`). Names are unique over all
sections, so that settings can be given flat: as flags, as keyword arguments and, in
older TOML files, in other tables. Former names (`setting(formerly=...)`) are accepted
wherever a name is given; only names of now are written and shown.
"""

import dataclasses
import difflib
import functools
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from embedder.encoders.options import EncoderOptions
from embedder.errors import InputError, InputTypeError
from embedder.options import DeviceOptions, RunOptions, SaveOptions
from embedder.settings import Interval, Mark, former_names, names_where
from embedder.tables.options import (
    Repeats,
    RowUpdates,
    TablesOptions,
    of_large_corpora,
    of_no_graph,
    resolve_options,
)

FAMILIES: dict[str, type[TablesOptions] | type[EncoderOptions]] = {
    "tokens": TablesOptions,
    "encoder": EncoderOptions,
}
"""The section of each family, by the value of `model`."""

Family = TypeVar("Family")


@dataclass(frozen=True, kw_only=True)
class Config:
    """All settings of a run: shared sections, and the section of its family."""

    run: RunOptions = field(default_factory=RunOptions)
    family: TablesOptions | EncoderOptions = field(default_factory=TablesOptions)
    devices: DeviceOptions = field(default_factory=DeviceOptions)
    save: SaveOptions = field(default_factory=SaveOptions)

    def __post_init__(self):
        self._family(FAMILIES[self.run.model])
        self.family.check_optimizer(self.run.optimizer)
        self._check_best()
        self._check_evaluations()

    def _check_best(self) -> None:
        """Refuses settings that need a best evaluation where nothing tells it."""
        self.family.check_best()
        needed, patience = self.family.best_needs, self.run.patience
        if getattr(self.family, needed):
            return
        if self.save.result == "best":
            raise InputError(f"`result` best needs `{needed}`, got 'best'.")
        if patience:
            raise InputError(f"`patience` needs `{needed}`, got {patience}.")

    def _check_evaluations(self) -> None:
        """Refuses a time to evaluate where nothing is measured."""
        every, scored = self.run.eval_every, self.family.scored_by
        if self.run.patience and self.run.evaluation_interval == Interval():
            raise InputError(
                f"`patience` counts evaluations, got {self.run.patience} with "
                f"`eval_every` = {every!r}."
            )
        is_default = self.run.evaluation_interval == Interval(epochs=1)
        if not (is_default or any(getattr(self.family, name) for name in scored)):
            names = " or ".join(f"`{name}`" for name in scored)
            raise InputError(
                f"`eval_every` needs {names}, by which vectors are scored, got "
                f"{every!r}."
            )

    @property
    def tables(self) -> TablesOptions:
        """The section of tables; InputTypeError for another family."""
        return self._family(TablesOptions)

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
    def saves_best(self) -> bool:
        """Whether each evaluation that is the best so far is saved."""
        return self.save.result == "best" or bool(getattr(self.family, "best_by", ""))


def _shared() -> dict[str, type]:
    """The sections that all families share, by their names."""
    return {"run": RunOptions, "devices": DeviceOptions, "save": SaveOptions}


def _sections(model: str) -> dict[str, type]:
    """The sections of a run of `model`, by their names in TOML."""
    return {**_shared(), model: FAMILIES[model]}


def _every_section() -> dict[str, type]:
    return {**_shared(), **FAMILIES}


def make_config(values: dict[str, Any]) -> Config:
    """The config of settings given by flat names; the others have defaults.

    Raises:
      InputError: a name is unknown, or of another family, or a value is wrong.
    """
    values = _with_names_of_now(values)
    model = RunOptions(model=values.get("model", "tokens")).model
    values = {"optimizer": FAMILIES[model].default_optimizer} | values
    made = {}
    for name, section in _sections(model).items():
        own = [f.name for f in dataclasses.fields(section)]
        made[name] = section(**{key: values[key] for key in own if key in values})
    for name, value in values.items():
        if name not in _names(*_sections(model).values()):
            _check_other_family(name, value, model)
    return Config(family=made.pop(model), **made)


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
    return former_names(*_every_section().values()).get(name, name)


def _with_names_of_now(values: dict[str, Any]) -> dict[str, Any]:
    """`values` without former names."""
    found: dict[str, Any] = {}
    for given, value in values.items():
        name = current_name(given)
        if name in found:
            former = given if given != name else _former_name(name)
            raise InputError(
                f"`{name}` and its former name `{former}` are both given: leave out "
                "the former."
            )
        found[name] = value
    return found


def _former_name(name: str) -> str:
    names = former_names(*_every_section().values())
    return next(old for old, new in names.items() if new == name)


def section_of(name: str) -> str:
    """The section of setting `name`; InputError with the nearest name if none."""
    for section, kind in _every_section().items():
        if current_name(name) in _names(kind):
            return section
    known = _names(*_every_section().values())
    raise InputError(f"Unknown option `{name}`{nearest(name, known)}")


def with_options(config: Config, **options: Any) -> Config:
    """`config` with settings replaced, given by flat names, and validated."""
    before, given = options_of(config), _with_names_of_now(options)
    model = RunOptions(model=given.get("model", config.run.model)).model
    if model != config.run.model:
        before = {name: before[name] for name in before if name in _shared_names()}
        if before["optimizer"] == FAMILIES[config.run.model].default_optimizer:
            del before["optimizer"]
    return make_config(before | given)


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
    sections = (getattr(config, f.name) for f in dataclasses.fields(config))
    return {
        f.name: getattr(section, f.name)
        for section in sections
        for f in dataclasses.fields(section)
    }


def _shared_names() -> tuple[str, ...]:
    return _names(*_shared().values())


def resolve(
    config: Config,
    num_tokens: float,
    epochs: int | None = None,
    row_updates: RowUpdates = of_large_corpora,
    repeats: Repeats = of_no_graph,
) -> Config:
    """`config` of tables with open settings resolved for `num_tokens`.

    Args:
      epochs: all of the model's, those of earlier trainings too; None: of `config`.
      row_updates: as `Vocabulary.row_updates`.
      repeats: as `Walks.repeats`.
    """
    epochs = config.run.epochs if epochs is None else epochs
    options = resolve_options(
        config.tables, config.run.optimizer, num_tokens, epochs, row_updates, repeats
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


def differences(before: Config, now: Config) -> list[str]:
    """A text for each setting that differs and changes the vectors."""
    return different_options(options_of(before), options_of(now))


def different_options(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """`differences` of settings by their flat names."""
    changing = changing_names()
    return [
        f"`{name}` {old.get(name)!r} there, {new.get(name)!r} now"
        for name in new | old
        if new.get(name) != old.get(name) and name in changing
    ]


def _marked(key: Mark) -> set[str]:
    kinds = _every_section().values()
    return set().union(*(names_where(section, key) for section in kinds))


_OLD_TABLES = "data", "model", "train", "parallel", "save"
"""Tables of TOML files of the versions before families had sections."""

_FORMER_TABLES = {"tables": "tokens"}
"""Former name of a table -> name now."""


def to_toml(config: Config) -> str:
    """TOML text of `config`: a table per section, without settings that are None."""
    import tomli_w

    values = options_of(config)
    return tomli_w.dumps(
        {
            name: {
                f.name: values[f.name]
                for f in dataclasses.fields(section)
                if values[f.name] is not None
            }
            for name, section in _sections(config.run.model).items()
        }
    )


def read_toml(path: Path, defaults: Config | None = None) -> Config:
    """The config in a TOML file; InputError for an unknown table or key.

    Args:
      defaults: has the settings that the file lacks; None: all have their defaults.
    """
    try:
        tables = tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:  # of the text, or of numbers in it
        raise InputError(f"{path} is not valid TOML: {error}.") from error
    try:
        return with_options(defaults or Config(), **_flat(tables))
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: {error}") from error


def from_toml(text: str) -> Config:
    """The config in the text of `to_toml`."""
    return make_config(_flat(tomllib.loads(text)))


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown `name`: the nearest known one."""
    found = difflib.get_close_matches(name, known, n=1)
    return f", did you mean `{found[0]}`?" if found else "."


def _flat(tables: dict[str, Any]) -> dict[str, Any]:
    """The settings in the tables of TOML by flat names, which may be former ones.

    Old tables may have any key; the others only those of their section.
    """
    values: dict[str, Any] = {}
    sections = _every_section()
    for given, keys in tables.items():
        table = _FORMER_TABLES.get(given, given)
        if table not in (*sections, *_OLD_TABLES):
            raise InputError(f"unknown table [{table}]{_where(table, sections)}")
        if not isinstance(keys, dict):
            raise InputError(f"`{table}` must be a table, got {keys!r}.")
        homes = [sections[table]] if table not in _OLD_TABLES else sections.values()
        known = [*_names(*homes), *_formerly_in(table)]
        for key in keys:
            if key in values:
                raise InputError(f"`{key}` is given again in [{given}].")
            if key not in (*known, *former_names(*homes)):
                raise InputError(
                    f"unknown key `{key}` in [{given}]{_where(key, known)}"
                )
        values |= keys
    return values


def _formerly_in(table: str) -> list[str]:
    """Settings that earlier versions had in `table`."""
    return [
        f.name
        for section in _every_section().values()
        for f in dataclasses.fields(section)
        if f.metadata["formerly_in"] == table
    ]


def _where(name: str, known: Iterable[str]) -> str:
    """The end of a message about a key or table that is unknown there."""
    try:
        return f": `{name}` belongs in [{section_of(name)}]."
    except ValueError:
        return nearest(name, known)


@functools.cache
def _names(*sections: type) -> tuple[str, ...]:
    return tuple(f.name for section in sections for f in dataclasses.fields(section))
