"""New items of a shop after an update, beside a training from the start.

Of the clicks of Diginetica, 1,500 items with 10 to 100 sessions are taken out, with all
their sessions: half of these are the update, and the other half ask. The vectors and
counts of `embedder next` rank the last item of a session: where it is new, and where it
is old, in a twentieth of the other sessions, which is held out. Sessions count some
times as often for new items (`--new-items`).
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.next_items import diginetica
from bench.results import Results, Table, grouped, write_results
from embedder import read_next_items
from embedder.cli.main import main
from embedder.metrics.intervals import mean_estimates
from embedder.metrics.next_item_scores import NextItems
from embedder.metrics.ranking import last_items, select, target_ranks

_FEWEST, _MOST, _NUM_NEW = 10, 100, 1500
_HELD_OUT = 20  # every n-th of the sessions without a new item, in a random order
_PRESET = "--preset items --min-count 1 --no-report"
_TOPN = 10

PROGRAMS = {
    "from the start": f"train both.txt {_PRESET}",
    "update": "train update.txt --resume base --grow --no-report",
    "update, old rows frozen": (
        "train update.txt --resume base --grow --freeze known --no-report"
    ),
}
"""Commands by name; their data are sessions in the folder of the bench."""

Sessions = list[np.ndarray]
"""Items of each session, i32[n]."""


def _split(seed: int, limit: int) -> dict[str, Sessions]:
    """The sessions to train on, of the update, and to ask by: "new", "old"."""
    (ids, lengths), _, num_items = diginetica()
    rng = np.random.default_rng(seed)
    sessions = np.split(ids, np.cumsum(lengths)[:-1])[-limit:]
    num_having = np.zeros(num_items, np.int64)
    for session in sessions:
        num_having[np.unique(session)] += 1
    wanted = np.flatnonzero((num_having >= _FEWEST) & (num_having <= _MOST))
    is_new = np.zeros(num_items, bool)
    num_new = min(_NUM_NEW, len(wanted) // 10)
    is_new[rng.choice(wanted, num_new, replace=False)] = True
    has_new = np.array([is_new[session].any() for session in sessions])
    is_first = rng.random(len(sessions)) < 0.5
    is_out = rng.permutation(len(sessions)) % _HELD_OUT == 0
    parts = {
        "base": ~has_new & ~is_out,
        "update": has_new & is_first,
        "new": has_new & ~is_first,
        "old": ~has_new & is_out,
    }
    return {
        name: [sessions[number] for number in np.flatnonzero(is_in)]
        for name, is_in in parts.items()
    }


def write(path: Path, sessions: Sessions) -> None:
    """Writes a session a line."""
    path.write_text("".join(" ".join(map(str, each)) + "\n" for each in sessions))


def hits(
    run: NextItems, sessions: Sessions, trained: set[int], factor: float, is_new: bool
) -> np.ndarray:
    """Whether the last item is found, of sessions where it `is_new`, f64[N].

    Args:
      trained: the items of the base.
    """
    rows = {int(key): row for row, key in enumerate(run.keys)}
    known = [[rows[x] for x in session if x in rows] for session in sessions]
    known = [session for session in known if session]
    queries = np.concatenate([*map(np.array, known)]), np.array([*map(len, known)])
    cases = last_items(queries, "excluded")
    is_old_row = np.isin([*rows], [*trained])
    chosen = is_old_row[cases.targets[0]] != is_new
    mine = cases._replace(
        queries=select(cases.queries, chosen), targets=select(cases.targets, chosen)
    )
    mixture = run.mixtures["excluded"].with_weights(new_items=factor)
    ranks, _ = target_ranks(mixture, mine, len(rows))
    return (ranks <= _TOPN).astype(float)


def run(
    programs: tuple[str, ...] = tuple(PROGRAMS),
    factors: tuple[float, ...] = (1.0, 1.5, 2.0, 3.0),
    limit: int = 200_000,
    seed: int = 0,
) -> Table:
    """New and old items after an update, beside a training from the start.

    Args:
      programs: which to run; default: all.
      factors: how often sessions count for new items.
      limit: sessions, at most; the newest are taken.
      seed: of the choice of new items and of held-out sessions.
    """
    samples: list[dict[str, Any]] = []
    sessions = _split(seed, limit)
    trained = {*np.unique(np.concatenate(sessions["base"])).tolist()}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in "base", "update":
            write(folder / f"{part}.txt", sessions[part])
        write(folder / "both.txt", sessions["base"] + sessions["update"])
        train(folder, f"train base.txt {_PRESET}", "base")
        for program in programs:
            start = time.perf_counter()
            found = train(folder, PROGRAMS[program], program)
            seconds = time.perf_counter() - start
            has_new = found.num_old < len(found.keys)
            for factor in factors if has_new else (1.0,):
                both = [
                    hits(found, sessions[part], trained, factor, part == "new")
                    for part in ("new", "old")
                ]
                sample = {"program": program, "factor": factor, "seconds": seconds}
                sample["cases"] = [*map(len, both)]
                sample["scores"] = [
                    [*map(float, mean_estimates(each[:, np.newaxis])[0])]
                    for each in both
                ]
                samples.append(sample)
                print(sample, flush=True)
    settings = {"programs": PROGRAMS, "limit": limit, "seed": seed}
    return table(write_results("new-items", settings=settings, samples=samples))


def train(folder: Path, command: str, name: str) -> NextItems:
    """What the run of a command in `folder` says comes next."""
    words = [
        str(folder / word) if (folder / word).exists() else word
        for word in command.split()
    ]
    run = folder / name.replace(" ", "-")
    assert main([*words, "--workdir", str(run)]) == 0
    return read_next_items(run)


def table(results: Results) -> Table:
    """A row for each program and factor: HR@10 of new and of old items, and seconds of
    the command."""
    rows = []
    for program, samples in grouped(results["samples"], "program").items():
        for each in samples:
            scores = (
                f"{value:.3f} [{lower:.3f}, {upper:.3f}]"
                for value, lower, upper in each["scores"]
            )
            factor, seconds = f"{each['factor']:g}", f"{each['seconds']:.0f}"
            rows.append([program, factor, *scores, seconds])
    columns = "HR@10 of new items", "HR@10 of old items", "train, s"
    return Table(["program", "--new-items", *columns], rows)


BENCHES = {"new-items": run}
TABLES = {"new-items": table}
