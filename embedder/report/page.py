"""The page: its parts, and the HTML of them.

Everything of the data is text: the template escapes it, and the page's script only sets
text. The page's policy (CSP) lets only its own scripts run, and no request go out.
"""

import base64
import functools
import hashlib
import html
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from embedder.disk.files import atomic_file, name_file_in_errors
from embedder.errors import install_command
from embedder.metrics.intervals import shown
from embedder.metrics.score_table import ScoreTable, score_rows
from embedder.report.chart import Chart
from embedder.report.figure import draw, has_bokeh
from embedder.report.nearest import Band
from embedder.report.points import Map, as_json
from embedder.report.predictions import Predictions
from embedder.report.text import number, short

_FOLDER = Path(__file__).parent / "assets"
_NUMBER = re.compile(r"[-+]?\d[^<>]{0,24}")
"""A number, its unit, its interval: texts that are short, and start with a digit."""
INSTALL = install_command("report")
"""The command that installs what draws a map."""


class Setting(NamedTuple):
    """A setting and its values as text."""

    name: str
    value: str
    default: str


class Settings(NamedTuple):
    """The settings of a run by where their values are from."""

    changed: list[Setting]  # other than the defaults
    chosen: list[Setting]  # left open, and chosen for the data
    defaults: list[Setting]


class Comparison(NamedTuple):
    """Runs side by side."""

    runs: list[str]
    settings: list[tuple[str, list[str]]]  # those that differ
    scores: list[tuple[str, list[str]]]
    curves: list[Chart]


class Page(NamedTuple):
    """The parts of a report; None and (): there is nothing to show."""

    title: str
    facts: list[tuple[str, str]]  # of the data
    results: list[tuple[str, str]]
    scores: tuple[tuple[str, str], ...] = ()  # of the vectors, with intervals
    settings: Settings | None = None
    curves: tuple[Chart, ...] = ()
    time: Chart | None = None  # by activity
    timings: tuple[tuple[str, str], ...] = ()  # shares of the time
    map: Map | None = None
    bands: tuple[Band, ...] = ()
    predictions: Predictions | None = None
    comparison: Comparison | None = None
    notes: tuple[str, ...] = ()  # what is missing, and why
    names: dict[str, str] = {}  # of keys in `bands`

    def with_scores(self, scores: ScoreTable) -> "Page":
        """The page with scores of the vectors, whose baselines are no results then."""
        rows = dict(score_rows(scores))
        results = [row for row in self.results if row[0] not in rows]
        return self._replace(results=results, scores=(*rows.items(),))


@dataclass(frozen=True, repr=False)
class Report:
    """A report as a page of HTML; Jupyter shows it."""

    html: str

    def __repr__(self) -> str:
        return f"Report({len(self.html):,} characters: `.save(path)` writes it)"

    def _repr_html_(self) -> str:
        """The page in a frame of its own, which its styles and scripts do not leave."""
        page = html.escape(self.html, quote=True)
        return (
            '<iframe title="report of a training" style="width:100%;height:800px;'
            f'border:1px solid #8884" srcdoc="{page}"></iframe>'
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the page atomically; OSError if it cannot be written."""
        target = Path(path)
        with name_file_in_errors(target), atomic_file(target) as part:
            part.write_text(self.html, encoding="utf-8")


def make_report(page: Page) -> Report:
    """The page as HTML."""
    from markupsafe import Markup

    scripts, figure = [], None
    if page.map is not None:
        if has_bokeh():
            figure = draw(page.map, "map-plot")
            scripts += figure.scripts
        scripts.append(_read("map.js"))
    # A backslash, so that no script ends its element.
    scripts = [Markup(re.sub(r"<(?=/script|!--)", r"<\\", x)) for x in scripts]
    text = _template().render(
        page=page,
        style=Markup(_read("style.css")),
        scripts=scripts,
        hashes=[_hash(each) for each in scripts],
        map_data=page.map and as_json(page.map),
        figure=figure and figure.item,
        install=INSTALL,
    )
    return Report(text)


@functools.cache
def _template() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"short": short, "number": number, "interval": shown}
    environment.filters |= {"num": _class_of_number, "json": _json, "prose": _prose}
    return environment.get_template("page.html")


@functools.cache
def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def _class_of_number(value: str) -> Any:
    """The attribute of a cell with a number, which has one line; "" for others."""
    from markupsafe import Markup

    return Markup(' class="num"') if _NUMBER.fullmatch(value) else ""


def _prose(text: str) -> Any:
    """A sentence, with text between backticks as code, and each flag in one line."""
    from markupsafe import Markup, escape

    whole = re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(text)))
    return Markup(
        re.sub(r"(?<![\w-])(--[a-z][a-z-]*)", r'<span class="flag">\1</span>', whole)
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def _json(value: Any) -> Any:
    """JSON for an element of a page, which no text in it can end."""
    from markupsafe import Markup

    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)
