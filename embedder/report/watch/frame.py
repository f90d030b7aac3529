"""What `embedder watch` shows: lines, curves and neighbours, in the width there is."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from embedder.base.terminal import shown
from embedder.report.chart import text_chart
from embedder.report.metrics import RATES
from embedder.report.text import duration, end_of, number, short
from embedder.report.watch.probes import Neighbors, Probe
from embedder.report.watch.run_status import Point, State

_NARROWEST = 38  # characters of a chart beside another
_LABELS = 9  # characters beside a chart
_TALLEST, _LOWEST = 8, 2  # lines of a chart
_QUIET = 10.0  # seconds of silence that are mentioned


class Space(NamedTuple):
    """Where a frame is shown."""

    width: int  # characters
    height: int | None = None  # lines; None: as many as there are
    dots: bool = True  # whether braille can be shown


class Curve(NamedTuple):
    """A metric over updates."""

    name: str
    points: list[Point]  # two or more


def frame(
    title: str,
    state: State,
    neighbors: Neighbors | None,
    notes: Sequence[str],
    at: Space,
    named: Mapping[str, str] = MappingProxyType({}),
) -> RenderableType:
    """The run `title` in `state`.

    Long lines are folded. Where there are too few lines, curves get lower, and then the
    last ones are left out; a line says so.

    Args:
      neighbors: of the probe words, if there are any.
      notes: sentences below all.
      named: names of keys.
    """
    curves = curves_of(state)
    head = [*_head(title, state)]
    tail = [*_neighbors(neighbors, named), *(_line(note, "yellow") for note in notes)]
    per_row = max(1, (at.width + 2) // (_NARROWEST + 2))
    height, rows = _TALLEST, -(-len(curves) // per_row)
    if at.height is not None and rows:
        console = Console(width=at.width)
        used = 1 + sum(len(each.wrap(console, at.width)) for each in (*head, *tail))
        free = at.height - used
        rows = max(0, min(rows, free // (_LOWEST + 2)))
        height = min(_TALLEST, free // rows - 2) if rows else 0
    shown_curves = curves[: rows * per_row]
    if left := [curve.name for curve in curves[rows * per_row :]]:
        tail.append(_line(f"A taller window shows {', '.join(left)}.", "dim"))
    per_row = min(per_row, max(1, len(shown_curves)))
    return Group(*head, *_charts(shown_curves, per_row, height, at), *tail)


def curves_of(state: State) -> list[Curve]:
    """Loss, held-out scores, learning rate and speed, as far as they were measured."""
    metrics, losses = state.metrics, ("loss", "train_loss")
    unit = metrics._replace(within=state.progress).unit  # also in the first epoch
    noun = metrics.noun or unit
    names: list[tuple[str, tuple[str, ...]]] = [("loss", losses)]
    names += [(name, (name,)) for name in metrics.scores if name not in losses]
    names += [(name, (name,)) for name in RATES]
    names += [(f"{noun}/s", (f"{unit}_per_second",))] if unit else []
    curves = (Curve(name, state.points(*of_line)) for name, of_line in names)
    return [curve for curve in curves if len(curve.points) > 1]


def _head(title: str, state: State) -> Iterator[Text]:
    yield _line(short(title), "bold")
    yield _line(status(state))
    if end := ending(state):
        yield _line(end, "red")
    if state.phase == "training" and (quiet := silence(state)):
        yield _line(quiet, "yellow")
    scores = [
        f"{short(name)} {_value(last)}"
        for name in state.metrics.scores
        if (last := state.metrics.last(name)) is not None
    ]
    if scores:
        yield _line(f"Latest scores: {', '.join(scores)}.")


def status(state: State) -> str:
    """How far the run is, a line."""
    if state.phase == "waiting":
        if state.is_locked:
            return "Not started: a process prepares it (it reads the data)."
        return "Not started: waiting for its first file."
    assert state.config is not None, "a started run has settings"
    epochs = state.config.run.epochs
    if state.phase == "finished":
        done = len(state.metrics.epoch_ends)  # fewer, if it ended early
        of_all = f"{epochs}" if done in (0, epochs) else f"{done} of {epochs}"
        why = end_of(done, epochs, state.config.run.patience)
        end = f"; {why}" if done < epochs else ""
        return f"Finished: {of_all} epochs, {state.updates:,} updates{end}."
    if not (state.progress or state.metrics.lines):
        return "Started: no update is done yet (it compiles)."
    text = (
        f"{'Training' if state.is_locked and not state.ended else 'Unfinished'}: "
        f"{100 * state.fraction:.1f} % of {epochs} epochs, {state.updates:,} updates"
    )
    left = state.seconds_left
    if left is None or silence(state):
        return f"{text}."
    return f"{text}, {duration(left)} left."


def ending(state: State) -> str:
    """Why an unfinished run ended, as its process said; else ""."""
    is_live = state.is_locked and state.ended is None
    if state.phase != "training" or state.ending is None or is_live:
        return ""
    how, message = state.ending
    return shown(f"{how.capitalize()}: {message}")


def silence(state: State) -> str:
    """For how long nothing was written, if that is worth a line; else ""."""
    since = f"nothing was written for {duration(state.silent)}"
    if state.ended is not None:
        return f"Process {state.ended} has ended before the run was finished: {since}."
    if not state.is_locked:
        return f"No process trains it: {since}. The same command resumes it."
    if state.silent < max(_QUIET, 3 * _interval(state)):
        return ""
    return f"N{since[1:]}."


def _interval(state: State) -> float:
    """Seconds between the last two lines of progress.jsonl; 0: there are none."""
    times = [x["time"] for x in state.progress[-2:] if "time" in x]
    return max(0.0, times[1] - times[0]) if len(times) == 2 else 0.0


def _charts(
    curves: Sequence[Curve], per_row: int, height: int, at: Space
) -> Iterator[RenderableType]:
    width = (at.width - 2 * (per_row - 1)) // per_row
    for start in range(0, len(curves), per_row):
        grid = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
        row = [
            _chart(each, width, height, at.dots) for each in curves[start:][:per_row]
        ]
        for _ in row:
            grid.add_column(width=width, no_wrap=False, overflow="fold")
        grid.add_row(*row)
        yield grid


def _chart(curve: Curve, width: int, height: int, dots: bool) -> Text:
    """A line with the name and the newest value, the curve, and a line of updates."""
    values = [value for _, value in curve.points]
    labels = [""] * height
    labels[0], labels[-1] = _label(max(values)), _label(min(values))
    if max(values) == min(values):
        labels = [""] * height
        labels[(height - 1) // 2] = _label(values[0])
    lines = text_chart(curve.points, max(8, width - _LABELS), height, dots=dots)
    text = Text(f"{short(curve.name)} {_value(values[-1])}\n", "bold", overflow="fold")
    for label, line in zip(labels, lines, strict=True):
        text.append(f"{label:>{_LABELS - 1}} ", "dim")
        text.append(f"{line}\n", "cyan")
    first, last = (f"{curve.points[i][0]:,.0f}" for i in (0, -1))
    space = max(1, width - _LABELS - len(first) - len(last) - len("update "))
    text.append(f"{'':>{_LABELS}}update {first}{'':>{space}}{last}", "dim")
    return text


def _neighbors(neighbors: Neighbors | None, named: Mapping[str, str]) -> Iterator[Text]:
    if neighbors is None:
        return
    updates = neighbors.updates
    text = f"Neighbours {'at the end' if updates is None else f'at update {updates:,}'}"
    if neighbors.before is not None:
        text += f"; + is new since update {neighbors.before:,}"
    yield _line(f"{text}. {neighbors.about}".rstrip(), "bold")
    for probe in neighbors.probes:
        yield _probe(probe, named)


def _probe(probe: Probe, named: Mapping[str, str]) -> Text:
    """A word and its neighbours with their similarities."""
    text = Text(f"{_named(probe.word, named)}: ", "bold", overflow="fold")
    for number_of, near in enumerate(probe.near):
        text.append(", " if number_of else "", "not bold")
        token = _named(near.token, named)
        style = "not bold green" if near.is_new else "not bold"
        text.append(f"+{token}" if near.is_new else token, style)
        text.append(f" {near.similarity:.2f}", "not bold dim")
    return text


def _named(key: str, named: Mapping[str, str]) -> str:
    """A key, with its name if it has one."""
    name = named.get(key)
    return f"{short(key)} ({short(name)})" if name else short(key)


def _line(text: str, style: str = "") -> Text:
    return Text(text, style, overflow="fold")


def _value(value: float) -> str:
    """A number, with four digits if it is small."""
    if value and (abs(value) < 1e-3 or abs(value) >= 1e15):
        return f"{value:.2e}"
    return number(value)


def _label(value: float) -> str:
    """A number in at most eight characters."""
    texts = [_value(value), f"{value / 1e6:.4g}M", f"{value / 1e9:.4g}G"]
    size = abs(value)
    text = texts[(size >= 1e6) + (size >= 1e9)] if size < 1e12 else f"{value:.1e}"
    texts = [text, f"{value:.1e}", f"{value:.0e}"]
    return next(each for each in texts if len(each) < _LABELS)
