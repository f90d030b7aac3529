"""Attributes of items: what they give items that no session, or few, have.

A tenth of the items of Online Retail and of Wikispeedia are taken out of all sessions
that are trained: so nobody has bought them, and only their attributes are known. They
ask what comes next after them, and sessions ask for them. Beside a model with
attributes (`--attributes`): the most frequent items of the same category, and one
without attributes, in which the three items with the most common attributes stand for
an unseen one. The last items of held-out sessions tell what attributes give items with
few sessions.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from bench.results import Results, Table, data_folder, grouped, write_results
from embedder import read_next_items
from embedder.cli.main import main
from embedder.data.attribute_tables import read_attributes
from embedder.metrics.intervals import mean_estimates
from embedder.metrics.next_item_scores import NextItems
from embedder.metrics.ranking import Cases, Scorer, Sequences, target_ranks

_TOPN, _NEAREST, _MOST_CASES = 10, 3, 5000
_PRESET = "--preset items --min-count 1 --no-report"
_GROUPS = {"1 to 5": (1, 5), "6 to 20": (6, 20), "more": (21, 10**9)}


class _Data(NamedTuple):
    sessions: str
    order: str
    items: str
    columns: tuple[str, ...]
    category: Callable[[pl.DataFrame], pl.Series]  # of each row of the items


DATA = {
    "online-retail": _Data(
        *("online-retail/baskets.parquet", "timestamp", "online-retail/items.csv"),
        ("words:description",),
        lambda items: items["description"].str.strip_chars().str.split(" ").list.last(),
    ),
    "wikispeedia": _Data(
        *("wikispeedia/paths.parquet", "order", "wikispeedia/articles.csv"),
        ("list:categories", "words:title"),
        lambda items: items["categories"].str.split("|").list.first(),
    ),
}


class _Split(NamedTuple):
    """Sessions of numbers of items; those in `is_unseen` are not trained."""

    keys: list[str]
    is_unseen: np.ndarray  # bool[V]
    trained: list[np.ndarray]
    held_out: list[np.ndarray]
    counts: np.ndarray  # i64[V], of `trained`
    category: np.ndarray  # i64[V]; -1: none
    nearest: np.ndarray  # i64[V, 3], items with the most common attributes


def _split(data: _Data, seed: int, limit: int) -> _Split:
    rows = pl.read_parquet(data_folder() / data.sessions)
    rows = rows.with_columns(pl.col("item").cast(pl.String))
    sessions = rows.group_by("session", maintain_order=True).agg("item")["item"][:limit]
    keys = sessions.explode().unique().sort().to_list()
    number = {key: i for i, key in enumerate(keys)}
    every = [np.array([number[x] for x in each]) for each in sessions.to_list()]
    rng = np.random.default_rng(seed)
    is_out = rng.random(len(every)) < 0.05
    is_unseen = rng.random(len(keys)) < 0.1
    trained = [
        x[~is_unseen[x]] for x, out in zip(every, is_out, strict=True) if not out
    ]
    items = pl.read_csv(data_folder() / data.items, infer_schema_length=0)
    names = data.category(items)
    category = dict(zip(items["item"], names.rank("dense"), strict=True))
    lists = read_attributes(data_folder() / data.items, data.columns)
    counts = np.bincount(np.concatenate(trained), minlength=len(keys))
    nearest = _nearest(*lists.rows_of(keys), len(lists.names), counts == 0)
    return _Split(
        *(keys, is_unseen, [x for x in trained if len(x)]),
        [x for x, out in zip(every, is_out, strict=True) if out],
        counts,
        np.array([int(category.get(key) or -1) for key in keys]),
        nearest,
    )


def _nearest(
    lengths: np.ndarray, rows: np.ndarray, width: int, is_unseen: np.ndarray
) -> np.ndarray:
    """The items with the largest Jaccard similarity of attributes, none unseen."""
    has = np.zeros((len(lengths), width), np.float32)
    has[np.repeat(np.arange(len(lengths)), lengths), rows] = 1
    common = has @ has.T
    union = lengths[:, np.newaxis] + lengths - common
    similarity = common / np.maximum(union, 1)
    similarity[:, is_unseen] = -1
    return np.argsort(-similarity, axis=1, kind="stable")[:, :_NEAREST]


def _after_unseen(split: _Split, rng: np.random.Generator) -> Cases:
    """An unseen item, and the trained item that follows it in a held-out session."""
    pairs = [
        pair
        for x in split.held_out
        for pair in zip(x, x[1:], strict=False)
        if split.is_unseen[pair[0]] and not split.is_unseen[pair[1]]
    ]
    return _cases([([a], b) for a, b in pairs], rng)


def _to_unseen(split: _Split, rng: np.random.Generator) -> Cases:
    """The trained items before an unseen one in a held-out session, and that one."""
    found = []
    for x in split.held_out:
        for place in np.flatnonzero(split.is_unseen[x]):
            before = x[:place][~split.is_unseen[x[:place]]]
            if len(before):
                found.append((before, x[place]))
    return _cases(found, rng)


def _to_trained(split: _Split, rng: np.random.Generator) -> Cases:
    """The trained items of a held-out session: the last one, and those before."""
    found = []
    for x in split.held_out:
        known = x[~split.is_unseen[x] & (split.counts[x] > 0)]
        if len(known) > 1 and known[-1] not in known[:-1]:
            found.append((known[:-1], known[-1]))
    return _cases(found, rng)


def _cases(found: list, rng: np.random.Generator) -> Cases:
    chosen = rng.permutation(len(found))[:_MOST_CASES]
    queries = [np.asarray(found[i][0]) for i in chosen]
    targets = np.array([found[i][1] for i in chosen])
    lengths = np.array([len(x) for x in queries])
    ones = np.ones(len(targets), np.int64)
    return Cases((np.concatenate(queries), lengths), (targets, ones), "excluded")


def _by_run(run: NextItems, split: _Split, instead: bool) -> Scorer:
    """The scores of a run, [m, V].

    Args:
      instead: of an unseen item the nearest ones take the place, in sessions, and by
        the mean of their scores.
    """
    rows = {str(key): row for row, key in enumerate(run.keys)}
    row_of = np.array([rows.get(key, -1) for key in split.keys])
    mixture = run.mixtures["excluded"]

    def scores(queries: Sequences) -> np.ndarray:
        ids, lengths = queries
        if instead:
            each = [
                split.nearest[x][::-1] if split.is_unseen[x] else np.array([x])
                for x in ids
            ]
            sizes = np.array([len(x) for x in each])
            starts = np.cumsum(lengths) - lengths
            ids, lengths = np.concatenate(each), np.add.reduceat(sizes, starts)
        known = row_of[ids] >= 0
        case = np.repeat(np.arange(len(lengths)), lengths)[known]
        sizes = np.bincount(case, minlength=len(lengths))
        found = np.full((len(lengths), len(row_of)), -np.inf, np.float32)
        asked = mixture((row_of[ids][known], sizes[sizes > 0]))
        there = np.flatnonzero(row_of >= 0)
        found[np.ix_(np.flatnonzero(sizes), there)] = asked[:, row_of[there]]
        if instead:
            unseen = np.flatnonzero(split.is_unseen)
            found[:, unseen] = found[:, split.nearest[unseen]].mean(axis=2)
        return found

    return scores


def _by_category(split: _Split) -> Scorer:
    """Counts of items; of those in the category of the last item more."""

    def scores(queries: Sequences) -> np.ndarray:
        ids, lengths = queries
        last = split.category[ids[np.cumsum(lengths) - 1]]
        is_same = (split.category == last[:, np.newaxis]) & (last >= 0)[:, np.newaxis]
        return split.counts + is_same * (split.counts.max() + 1.0)

    return scores


def run(
    data: tuple[str, ...] = tuple(DATA), limit: int = 10**9, seed: int = 0
) -> Table:
    """What attributes give items that no session has, or few.

    Args:
      data: names of data sets; default: both.
      limit: sessions, at most.
      seed: of the choice of unseen items and of held-out sessions.
    """
    samples: list[dict[str, Any]] = []
    for name in data:
        split = _split(DATA[name], seed, limit)
        cases = {
            kind: make(split, np.random.default_rng(seed))
            for kind, make in (
                ("after an unseen item", _after_unseen),
                ("to an unseen item", _to_unseen),
                ("to a trained item", _to_trained),
            )
        }
        items, columns = data_folder() / DATA[name].items, DATA[name].columns
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            lines = (" ".join(split.keys[x] for x in each) for each in split.trained)
            (folder / "text.txt").write_text("\n".join(lines))
            scorers = {"popularity within the category": (_by_category(split), 0.0)}
            for program, flags in (
                ("three nearest by attributes", []),
                ("attributes", ["--attributes", str(items), *columns]),
            ):
                start = time.perf_counter()
                found = _train(folder, flags)
                seconds = time.perf_counter() - start
                scorers[program] = _by_run(found, split, not flags), seconds
            for program, (scorer, seconds) in scorers.items():
                for kind, each in cases.items():
                    samples += _samples(split, scorer, each, kind)
                    for sample in samples:
                        sample.setdefault("data", name)
                        sample.setdefault("program", program)
                        sample.setdefault("seconds", seconds)
        print(*samples, sep="\n", flush=True)
    settings = {"limit": limit, "seed": seed}
    return table(write_results("attributes", settings=settings, samples=samples))


def _samples(
    split: _Split, scorer: Scorer, cases: Cases, kind: str
) -> list[dict[str, Any]]:
    """HR@10 of all cases; of trained targets by their occurrences."""
    ranks, _ = target_ranks(scorer, cases, len(split.keys))
    hits = (ranks <= _TOPN).astype(float)
    chosen = {kind: np.ones(len(hits), bool)}
    if kind == "to a trained item":
        counts = split.counts[cases.targets[0]]
        chosen |= {
            f"{kind} with {group} occurrences": (counts >= low) & (counts <= high)
            for group, (low, high) in _GROUPS.items()
        }
    return [
        {
            "kind": each,
            "cases": int(which.sum()),
            "hit_rate": [*map(float, mean_estimates(hits[which][:, np.newaxis])[0])],
        }
        for each, which in chosen.items()
        if which.any()
    ]


def _train(folder: Path, flags: list[str]) -> NextItems:
    """What a run on the sessions in `folder` says comes next."""
    workdir = folder / ("attributes" if flags else "plain")
    words = ["train", str(folder / "text.txt"), *_PRESET.split(), *flags]
    assert main([*words, "--workdir", str(workdir)]) == 0
    return read_next_items(workdir)


def table(results: Results) -> Table:
    """A row for each data set and kind of case: HR@10 by each program."""
    rows = []
    programs = [*dict.fromkeys(each["program"] for each in results["samples"])]
    for data, of_data in grouped(results["samples"], "data").items():
        for kind, samples in grouped(of_data, "kind").items():
            found = {each["program"]: each for each in samples}
            scores = []
            for program in programs:
                value, lower, upper = found[program]["hit_rate"]
                scores.append(f"{value:.3f} [{lower:.3f}, {upper:.3f}]")
            rows.append([data, kind, str(samples[0]["cases"]), *scores])
        seconds = {each["program"]: each["seconds"] for each in of_data}
        texts = (f"{seconds[x]:.0f}" if seconds[x] else "" for x in programs)
        rows.append([data, "train, s", "", *texts])
    return Table(["data", "case", "cases", *programs], rows)


BENCHES = {"attributes": run}
TABLES = {"attributes": table}
