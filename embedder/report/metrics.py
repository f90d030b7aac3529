"""metrics.jsonl, read with care: a damaged line is left out, and counted."""

import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from embedder.metrics.scores import SCORES

_FIXED = ("epoch", "updates", "seconds")
_PER_SECOND = "_per_second"
_SECONDS = "_seconds"
_LARGEST = 1e300  # of a value: charts compute with it
RATES = ("alpha", "learning_rate")
"""Names of learning rates."""

BUSY = "cpu_busy"
"""The share of all cores that a run had, of lines of progress.jsonl."""

_LOSSES = ("loss", "train_loss")  # of tokens, of an encoder; evaluations have none

Line = dict[str, float | None]


class Metrics(NamedTuple):
    """The lines of a run, epochs and evaluations within them."""

    lines: list[Line]
    num_damaged: int = 0  # lines that were left out
    within: Sequence[dict[str, float]] = ()  # of progress.jsonl
    epochs: int = 0  # of the whole run; read only with `within`
    noun: str = ""  # what messages call the items; "": as the lines do

    @property
    def unit(self) -> str:
        """The items of `UNIT_per_second`; "": there is none."""
        names = (name for line in self._every_line for name in line)
        units = (n.removesuffix(_PER_SECOND) for n in names if n.endswith(_PER_SECOND))
        return next(units, "")

    @property
    def items_name(self) -> str:
        """What messages call the items, as the progress of the training does."""
        return self.noun or self.unit

    def shown_name(self, name: str) -> str:
        """A name of a metric for people: `words_per_second` of sessions is of items."""
        is_speed = self.noun and name == f"{self.unit}{_PER_SECOND}"
        return f"{self.noun}{_PER_SECOND}" if is_speed else name

    @property
    def epoch_ends(self) -> list[Line]:
        """The lines of epochs that are done, which have a loss."""
        return [line for line in self.lines if _is_epoch_end(line)]

    @property
    def scores(self) -> list[str]:
        """Names of what was measured, the loss first; neither rates nor times."""
        names = dict.fromkeys(name for line in self.lines for name in line)
        if not self.epoch_ends and any("loss" in line for line in self.within):
            names = {"loss": None, **names}
        others = {*_FIXED, *RATES, self.unit}
        endings = _PER_SECOND, _SECONDS
        return [n for n in names if n not in others and not n.endswith(endings)]

    @property
    def has_held_out(self) -> bool:
        """Whether held-out data were scored."""
        names = {name for score in SCORES for name in score.names}
        return not names.isdisjoint(self.scores)

    @property
    def others(self) -> list[str]:
        """Names of learning rates, speeds and how busy the CPU was."""
        names = dict.fromkeys(name for line in self._every_line for name in line)
        wanted = {*RATES, BUSY}
        return [n for n in names if n in wanted or n.endswith(_PER_SECOND)]

    @property
    def cpu_busy(self) -> float | None:
        """The mean share of all cores that the run had; None: it was not measured."""
        shares = [x for line in self.within if (x := line.get(BUSY)) is not None]
        return sum(shares) / len(shares) if shares else None

    @property
    def seconds(self) -> float:
        """Time of all parts of the run, which count from 0 each."""
        lines = self._every_line
        if self.within:  # both kinds in their order in time
            times = "updates", "seconds"
            lines = sorted(lines, key=lambda line: [line.get(n) or 0.0 for n in times])
        return _sum_of_parts(line.get("seconds") or 0.0 for line in lines)

    @property
    def updates(self) -> float | None:
        """Updates done; None: no line tells."""
        counts = [x for line in self._every_line if (x := line.get("updates"))]
        return max(counts, default=None)

    @property
    def _every_line(self) -> Sequence[Mapping[str, float | None]]:
        """Lines of epochs and evaluations, then those within epochs."""
        return [*self.lines, *self.within]

    def points(self, name: str) -> list[tuple[float, float]]:
        """(epochs done, value) where `name` was measured: within epochs if there are
        more of these points than others. The loss of those is that of few updates."""
        return max(self._points_of_lines(name), self._points_within(name), key=len)

    def _points_within(self, name: str) -> list[tuple[float, float]]:
        unit, per_epoch = self.unit, self._items_per_epoch()
        points = []
        for line in self.within:
            value = line.get("loss" if name in _LOSSES else name)
            if value is not None and "epoch" in line:
                points.append((_epochs_done(line, unit, per_epoch), value))
        return sorted(points, key=lambda point: point[0])

    def _points_of_lines(self, name: str) -> list[tuple[float, float]]:
        unit, per_epoch = self.unit, self._items_per_epoch()
        points = []
        for line in self.lines:
            value, epoch = line.get(name), line["epoch"]
            assert epoch is not None, "checked when it is read"
            if value is None:
                continue
            if not _is_epoch_end(line):
                epoch = _epochs_done(line, unit, per_epoch)
            points.append((float(epoch), value))
        return points

    def last(self, name: str) -> float | None:
        """The newest value of `name`; None: it was not measured."""
        values = [x for line in self.lines if (x := line.get(name)) is not None]
        if not values:
            values = [x for line in self.within if (x := line.get(name)) is not None]
        return values[-1] if values else None

    def _items_per_epoch(self) -> float:
        """Items of an epoch; 0: no line tells."""
        unit = self.unit
        ends = [
            (line["epoch"], items)
            for line in self.epoch_ends
            if (items := line.get(unit)) and line["epoch"]
        ]
        for (epoch, items), (next_epoch, more) in itertools.pairwise(ends):
            if epoch and next_epoch and next_epoch > epoch and more > items:
                return (more - items) / (next_epoch - epoch)
        for line in reversed(self.within):
            items, done = line.get(unit), line.get("progress", 0.0) * self.epochs
            if items and done:
                return items / done
        return next((items / epoch for epoch, items in ends if epoch), 0.0)


def read_metrics(path: Path) -> Metrics:
    """The metrics of a run; without lines if the file is missing.

    A line that is not a JSON object of numbers with an epoch is damaged.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return Metrics([])
    parsed = [_line(each) for each in data.splitlines() if each.strip()]
    lines = [line for line in parsed if line is not None]
    return Metrics(lines, len(parsed) - len(lines))


def _is_epoch_end(line: Line) -> bool:
    return any(name in line for name in _LOSSES)


def _epochs_done(
    line: Mapping[str, float | None], unit: str, per_epoch: float
) -> float:
    """Epochs up to a line within one, those of the run it started from too."""
    epoch, items = line["epoch"] or 0.0, line.get(unit)
    if not per_epoch or items is None:
        return epoch
    part = items / per_epoch
    return max(0.0, epoch - 1 - math.floor(part + 1e-6)) + part


def _line(data: bytes) -> Line | None:
    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(values, dict) or not all(map(_is_number, values.values())):
        return None
    if not isinstance(values.get("epoch"), int):
        return None
    return {
        n: x if x is not None and math.isfinite(x) else None for n, x in values.items()
    }


def _is_number(value: object) -> bool:
    """Whether a value may be in a line; NaN may, and is not measured."""
    if value is None:
        return True
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return not abs(value) >= _LARGEST


def _sum_of_parts(seconds: Iterable[float]) -> float:
    total = before = 0.0
    for each in seconds:
        if each < before:  # it was resumed
            total += before
        before = each
    return total + before
