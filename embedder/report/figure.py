"""The picture of a map, drawn by Bokeh's script, which is part of its package."""

import functools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from embedder.errors import is_installed
from embedder.report.points import Map

_SCRIPTS = ("bokeh.min.js", "bokeh-gl.min.js")


class Figure(NamedTuple):
    """A figure of Bokeh, and the scripts that draw it."""

    item: dict[str, Any]  # for `Bokeh.embed.embed_item`
    scripts: list[str]


def has_bokeh() -> bool:
    """Whether the extra `report` is installed."""
    return is_installed("bokeh")


def draw(map_: Map, target: str) -> Figure:
    """The figure of a map; the page's script looks for the names of its models.

    Args:
      target: id of the element that it is drawn in.
    """
    from bokeh.embed import json_item
    from bokeh.models import (
        BoxZoomTool,
        ColumnDataSource,
        HoverTool,
        LinearColorMapper,
        Range1d,
        TapTool,
        WheelZoomTool,
    )
    from bokeh.plotting import figure

    first, positions = map_.colourings[0], map_.projection.positions
    source = ColumnDataSource(
        {"x": positions[:, 0], "y": positions[:, 1], "colour": first.numbers},
        name="points",
    )
    marks = ColumnDataSource({"x": [], "y": [], "size": []}, name="marks")
    colours = LinearColorMapper(
        palette=first.colours, low=-0.5, high=len(first.colours) - 0.5, name="colours"
    )
    plot = figure(
        name="plot",
        tools="pan,save",
        x_range=Range1d(*_ends(positions[:, 0])),
        y_range=Range1d(*_ends(positions[:, 1])),
        output_backend="webgl",
        sizing_mode="stretch_width",
        height=560,
        toolbar_location="above",
        background_fill_color=None,
        border_fill_color=None,
        outline_line_alpha=0.25,
    )
    plot.axis.visible = False
    plot.grid.visible = False
    plot.toolbar.logo = None
    dots = plot.scatter(
        *("x", "y"),
        source=source,
        size=6,
        fill_color={"field": "colour", "transform": colours},
        line_color=None,
        fill_alpha=0.65,
        selection_fill_alpha=1.0,
        nonselection_fill_alpha=0.35,
    )
    ring = {"fill_color": None, "line_color": "#808080", "line_width": 2}
    plot.scatter("x", "y", source=marks, size="size", **ring)
    columns = ("x", "y", "text", "size", "align", "offset")
    labels = ColumnDataSource({each: [] for each in columns}, name="labels")
    plot.text(
        *("x", "y", "text"),
        source=labels,
        name="label_texts",
        text_font_size="size",
        text_baseline="bottom",
        text_align="align",
        x_offset="offset",
        y_offset=-3,
    )
    zoom = WheelZoomTool()
    hover = HoverTool(renderers=[dots], tooltips=[("", "@text")], point_policy="none")
    box = BoxZoomTool(match_aspect=True)
    plot.add_tools(zoom, box, hover, TapTool(renderers=[dots]))
    plot.toolbar.active_scroll = zoom
    return Figure(json_item(plot, target), _scripts())


def _ends(values: np.ndarray) -> tuple[float, float]:
    """The ends of an axis, which are apart from each other."""
    low, high = float(values.min()), float(values.max())
    return (low, high) if low < high else (low - 1, high + 1)


@functools.cache
def _scripts() -> list[str]:
    import bokeh

    folder = Path(bokeh.__file__).parent / "server" / "static" / "js"
    return [(folder / name).read_text(encoding="utf-8") for name in _SCRIPTS]
