"""A shop day by day: updates of what comes next, beside a training from the start each
day.

The base is trained on all sessions but those of the last days. Each day the run is
updated with the sessions of the day before (`--resume --grow`), or trained from the
start with all until then, and ranks the last items of the sessions of the day: all of
them, those that the base has, and those that came since. A fifth of the items is
launched on one of these days: earlier sessions do not have them. Sessions of Online
Retail have dates; those of Wikispeedia have none, and are drawn.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from bench.items import FILES
from bench.new_items import hits, train, write
from bench.results import Results, Table, data_folder, grouped, write_results
from embedder.metrics.intervals import mean_estimates
from embedder.metrics.next_item_scores import NEW_ITEMS

_PRESET = "--preset items --min-count 1 --no-report"
_LAUNCHED = 0.2  # of the items
_DRAWN_DAYS = 100  # of data without dates
PROGRAMS = {
    "from the start": ("train until-{day}.txt " + _PRESET, 1.0),
    "update": ("train day-{day}.txt --resume {before} --grow --no-report", NEW_ITEMS),
    "update, --new-items 1": ("", 1.0),  # the same runs
    "update, --new-items 8": ("", 8.0),
}
"""Commands by name, and how often sessions count for new items, at most."""


_KINDS = "all", "old", "new"  # last items


def _days(data: str, num_days: int, seed: int) -> list[list[np.ndarray]]:
    """The sessions before the last days, and of each of these, oldest first, without
    items that are not launched yet."""
    rng = np.random.default_rng(seed)
    frame = pl.read_parquet(data_folder() / FILES[data])
    frame = frame.with_columns(number=pl.col("item").rank("dense").cast(pl.Int64))
    if "timestamp" in frame.columns:
        frame = frame.sort("timestamp", maintain_order=True)
        date = pl.from_epoch("timestamp").dt.date()
        frame = frame.with_columns(day=date.rank("dense"))
        last = frame["day"].max() - num_days
    else:
        names = frame["session"].unique().sort()
        drawn = rng.integers(_DRAWN_DAYS, size=len(names))
        days = pl.DataFrame({"session": names, "day": drawn})
        frame = frame.join(days, on="session", maintain_order="left")
        last = _DRAWN_DAYS - 1 - num_days
    sessions = frame.group_by("session", maintain_order=True).agg(
        "number", pl.col("day").first()
    )
    num_items = frame["number"].max() + 1
    launch = np.where(rng.random(num_items) < _LAUNCHED, 1, 0)
    launch *= rng.integers(1, num_days, size=num_items)
    found: list[list[np.ndarray]] = [[] for _ in range(num_days + 1)]
    for numbers, day in sessions.select("number", "day").iter_rows():
        place = max(0, int(day - last))
        items = np.array(numbers)
        items = items[launch[items] <= place]
        if len(items):
            found[place].append(items)
    return found


def run(
    data: tuple[str, ...] = ("online-retail", "wikispeedia"),
    num_days: int = 6,
    seed: int = 0,
) -> Table:
    """Updates of a shop day by day, beside trainings from the start.

    Args:
      data: names of data sets; default: both.
      num_days: the last days with sessions; the first of them is only trained.
      seed: of the items that are launched.
    """
    samples: list[dict[str, Any]] = []
    for name in data:
        base, *days = _days(name, num_days, seed)
        old = {*np.unique(np.concatenate(base)).tolist()}
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            write(folder / "until-0.txt", base)
            for number, day in enumerate(days, 1):
                write(folder / f"day-{number}.txt", day)
                until = [x for part in (base, *days[:number]) for x in part]
                write(folder / f"until-{number}.txt", until)
            first = train(folder, f"train until-0.txt {_PRESET}", "base")
            runs: dict[str, list[Any]] = {}
            seconds: dict[str, float] = {}
            for program, (command, factor) in PROGRAMS.items():
                trained = program.split(",")[0]
                if command:
                    start, before, runs[trained] = time.perf_counter(), "base", [first]
                    for number in range(1, num_days):
                        words = command.format(day=number, before=before)
                        before = f"{program.replace(' ', '-')}-{number}"
                        runs[trained].append(train(folder, words, before))
                    passed = time.perf_counter() - start
                    seconds[trained] = passed / (num_days - 1)
                sample = _sample(runs[trained], days, old, factor)
                about = {"data": name, "program": program, "seconds": seconds[trained]}
                samples.append(about | sample)
                print(samples[-1], flush=True)
    settings = {"programs": PROGRAMS, "num_days": num_days, "seed": seed}
    return table(write_results("days", settings=settings, samples=samples))


def _sample(
    runs: list[Any], days: list[list[np.ndarray]], old: set[int], factor: float
) -> dict[str, Any]:
    """HR@10 of the last items of each day but the first by the run of the day before,
    of all days together."""
    found: dict[str, list[np.ndarray]] = {"old": [], "new": []}
    for number in range(1, len(days)):
        model = runs[number]
        chosen = factor if model.num_old < len(model.keys) else 1.0
        for kind, parts in found.items():
            parts.append(hits(model, days[number], old, chosen, kind == "new"))
    scores = {kind: np.concatenate(parts) for kind, parts in found.items()}
    scores["all"] = np.concatenate([*scores.values()])
    sample: dict[str, Any] = {}
    for kind, each in scores.items():
        estimates = mean_estimates(each[:, np.newaxis])[0] if len(each) else [0.0] * 3
        sample[kind] = {"cases": len(each), "hit_rate": [*map(float, estimates)]}
    return sample


def table(results: Results) -> Table:
    """A row for each data set and program: HR@10 of all, old and new last items, and
    the seconds of a day."""
    rows = []
    for data, samples in grouped(results["samples"], "data").items():
        for sample in samples:
            scores = []
            for kind in _KINDS:
                value, lower, upper = sample[kind]["hit_rate"]
                cases = f"{sample[kind]['cases']:,}"
                scores.append(f"{value:.3f} [{lower:.3f}, {upper:.3f}], of {cases}")
            rows.append([data, sample["program"], *scores, f"{sample['seconds']:.1f}"])
    columns = [f"HR@10, {kind}" for kind in _KINDS]
    return Table(["data", "program", *columns, "a day, s"], rows)


BENCHES = {"days": run}
TABLES = {"days": table}
