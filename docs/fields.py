"""Writes what is made from the fields of settings: tables and docstrings.

`docs/reference/settings.md` has tables between the lines `<!-- settings: NAME -->` and
`<!-- end -->`. The docstrings of the estimators have the texts of the settings that are
their arguments; arguments of `OWN` are not those of a setting, and stay.
"""

import functools
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from embedder.cli.arguments import Train
from embedder.cli.options import Option, flag_of, options
from embedder.config import FAMILIES
from embedder.config.settings import texts

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "settings.md"
ESTIMATORS = {
    "EmbeddingTrainer": ROOT / "embedder" / "api" / "token_estimator.py",
    "FeatureEncoder": ROOT / "embedder" / "api" / "encoder_estimator.py",
}
FILES = PAGE, *ESTIMATORS.values()
OWN = {
    *("layers", "optimizer", "optimizer_args", "learning_rate", "workers", "network"),
    *("network_args", "objective_args", "schedule_args", "result"),
}
"""Arguments of `FeatureEncoder` that take other values than the settings."""


def rendered(path: Path) -> str:
    """What a file is when it has been rendered."""
    text = path.read_text(encoding="utf-8")
    if path == PAGE:
        marked = re.compile(
            r"^(<!-- settings: (\w+) -->\n).*?^(<!-- end -->)$", re.S | re.M
        )
        return marked.sub(lambda found: found[1] + _TABLES[found[2]]() + found[3], text)
    name = next(name for name, each in ESTIMATORS.items() if each == path)
    return _with_arguments(text, name)


def _settings(*groups: str) -> Iterator[Option]:
    """The settings whose groups begin with one of these names."""
    for option in options(Train).values():
        if option.section is not None and option.group.startswith(groups):
            yield option


def _table(*groups: str) -> str:
    """Settings, each with its default, whether vectors depend on it, and its text."""
    lines = []
    title = ""
    for option in _settings(*groups):
        if option.group != title:
            title = option.group
            lines += ["", f"### {title[0].upper()}{title[1:]}", ""]
            lines += [
                "| setting | default | vectors | what it does |",
                "| --- " * 4 + "|",
            ]
        default = option.field.default
        is_open = default is None or default in ("", ())
        shown = str(default).lower() if isinstance(default, bool) else default
        value = "" if is_open else f"`{shown}`"
        changes = "yes" if option.field.metadata["changes"] else "no"
        text = _marked_up(texts(option.section)[option.field.name])
        if option.choices and len(option.kinds) == 1:
            text = f"{_either('`', option)}. {text}"
        if also := option.field.metadata["also"]:
            text += f" `{flag_of(also)}` is the same."
        lines.append(f"| `{option.flag}` | {value} | {changes} | {text} |")
    return "\n".join([*lines[1:], ""])


def _either(quote: str, option: Option) -> str:
    """The words that a setting takes."""
    return " or ".join(f"{quote}{word}{quote}" for word in option.choices)


def _marked_up(text: str) -> str:
    """The text of a setting in Markdown."""
    text = text.replace("*", "\\*").replace("|", "\\|")
    return re.sub(r"(?<![`\w-])--[a-z][\w-]*", r"`\g<0>`", text)


def _needs() -> str:
    """What is refused: settings, and what they need."""
    rows: dict[str, list[str]] = {}
    scores = " or ".join(f"`{x}`" for each in FAMILIES.values() for x in each.scored_by)
    for option in _settings(""):
        for refusal in option.field.metadata["refusals"]:
            rule = refusal.message.partition(", got")[0].replace("{s.scores}", scores)
            rule = re.sub(r" \{.*?\}", "", rule).removeprefix("`{name}` ").rstrip(".")
            rows.setdefault(rule, []).append(f"`{option.field.name}`")
    lines = [f"| {', '.join(names)} | {rule} |" for rule, names in rows.items()]
    return "\n".join(["| setting | rule |", "| --- | --- |", *lines, ""])


def _former() -> str:
    """Names of the NumPy trainer, and those of now."""
    lines = ["| there | here |", "| --- | --- |"]
    for option in _settings(""):
        marks = option.field.metadata
        if marks["formerly"]:
            lines.append(f"| `{flag_of(marks['formerly'])}` | `{option.flag}` |")
    return "\n".join([*lines, ""])


def _of_one_command() -> str:
    own = [x for x in options(Train).values() if x.section is None]
    peers = [*_settings("several processes")]
    lines = ["| flag | what it does |", "| --- | --- |"]
    for option in own + peers:
        text = _marked_up(texts(option.section or Train)[option.field.name])
        lines.append(f"| `{option.flag}` | {text} |")
    return "\n".join([*lines, ""])


_TABLES: dict[str, Callable[[], str]] = {
    "all": functools.partial(_table, "training", "batches", "devices", "checkpoints"),
    "tokens": functools.partial(_table, "tokens"),
    "encoder": functools.partial(_table, "encoder"),
    "needs": _needs,
    "former": _former,
    "command": _of_one_command,
}


def _with_arguments(source: str, estimator: str) -> str:
    """The source of an estimator whose docstring has the texts of its settings."""
    start = source.index("    Args:\n", source.index(f"\nclass {estimator}"))
    end = re.compile(r"^    [A-Z]\w+:$|^\s*\"\"\"$", re.M).search(source, start + 1)
    assert end is not None
    entries = re.split(
        r"^      (?=\w)", source[start : end.start()].rstrip(), flags=re.M
    )
    before = {each.partition(":")[0]: each for each in entries[1:]}
    fields = _fields(estimator == "FeatureEncoder")
    found: list[str] = []
    for name in _parameters(source, estimator):
        if estimator == "FeatureEncoder" and name in OWN:
            found.append(f"      {before[name].rstrip()}")
            continue
        found += textwrap.wrap(
            f"{name}: {_of_python(fields[name])}",
            88,
            initial_indent=" " * 6,
            subsequent_indent=" " * 8,
            break_long_words=False,
            break_on_hyphens=False,
        )
    return (
        source[:start]
        + "\n".join(["    Args:", *found, "", ""])
        + source[end.start() :]
    )


def _parameters(source: str, estimator: str) -> list[str]:
    """The arguments of the constructor of an estimator."""
    start = source.index("def __init__(", source.index(f"\nclass {estimator}"))
    return re.findall(
        r"^        (\w+): ", source[start : source.index("):", start)], re.M
    )


def _fields(is_encoder: bool) -> dict[str, tuple[Any, str]]:
    """The settings that an estimator has, by the names that it has for them: each with
    its default and its text."""
    found: dict[str, tuple[Any, str]] = {}
    for option in _settings(
        "training", "batches", "checkpoints", "encoder" if is_encoder else "tokens"
    ):
        field = option.field
        text = texts(option.section)[field.name]
        if option.choices and len(option.kinds) == 1:
            quote = '"'
            text = f"{_either(quote, option)}. {text}"
        value = field.default, text
        for name in (field.name, field.metadata["formerly"], field.metadata["also"]):
            found[name] = value
    return found


def _of_python(setting: tuple[Any, str]) -> str:
    """The text of a setting with the names and values of Python."""
    default, text = setting
    none = {str: '""', tuple: "()"}.get(type(default), "None")
    text = re.sub(r"\bnone:", f"{none}:", text)
    names = {flag_of(x.field.name): x.field.name for x in _settings("")}
    return re.sub(
        r"--[a-z][a-z-]*[a-z]",
        lambda found: f"`{names.get(found[0], found[0][2:])}`",
        text,
    )
