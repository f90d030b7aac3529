"""The next item of a session: vectors and counting, beside published models.

Baselines of `embedder.metrics`, vectors of the preset for items, and the mixture of
`embedder next`, on three data sets: the last item of the sessions of a
held-out tenth, or of the last week of Diginetica, without items of the session. And
Diginetica by the protocol of papers on graph networks: every item of a session after
the first is a case, and items of the session may come again.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from bench.items import FILES, HOLDOUT, MIN_COUNT
from bench.results import Results, Table, data_folder, grouped, write_results
from embedder import read_next_items
from embedder.cli.main import main
from embedder.data.encode import encode
from embedder.data.sources import file_corpus
from embedder.data.split import sequences, trained_sequences
from embedder.metrics.counting import same_session
from embedder.metrics.intervals import mean_estimates
from embedder.metrics.near_sessions import STAN, VSKNN, Sessions
from embedder.metrics.next_item_baselines import (
    association_rules,
    markov,
    sequential_rules,
)
from embedder.metrics.ranking import (
    DECAY,
    Cases,
    Scorer,
    Seen,
    Sequences,
    by_popularity,
    case_numbers,
    case_scores,
    every_item,
    last_items,
    target_ranks,
)

Data = tuple[Sequences, Sequences, int]
"""Training sessions, test sessions, number of items."""


def _popularity(training: Sequences, num_items: int) -> Scorer:
    return by_popularity(np.bincount(training[0], minlength=num_items))


BASELINES: dict[str, Callable[[Sequences, int], Scorer]] = {
    "popularity": _popularity,
    "MK": markov,
    "SR": sequential_rules,
    "SR, all items": lambda *data: sequential_rules(*data, DECAY),
    "AR": association_rules,
    "AR, all items": lambda *data: association_rules(*data, DECAY),
    "same session": same_session,
    "VSKNN without idf": lambda *data: VSKNN.fit(*data, idf=0.0),
    "VSKNN": VSKNN.fit,
    "STAN": STAN.fit,
    "STAN with idf": lambda *data: STAN.of_mixture(Sessions.fit(*data)),
}
"""By name. "all items": of the query, each with half of the weight of the next, newer
one; else the last alone. "STAN with idf" is the part of the mixture."""

TRAINED = "vectors", "mixture"
"""Of a training with the preset for items, and all items. It holds 5 % of the sessions
out, which choose the weights of the mixture."""

PUBLISHED = {
    "GRU4Rec, published": (29.45, 8.33),
    "NARM, published": (49.70, 16.17),
    "SR-GNN, published": (50.73, 17.59),
    "GCE-GNN, published": (54.22, 19.04),
}
"""P@20 and MRR@20 in percent, as in the papers of SR-GNN (Wu et al. 2019) and of
GCE-GNN (Wang et al. 2020)."""
_PRESET = "--preset items --min-count 1"
_TIMED, _SINGLE = 10_000, 500  # queries: at once, and one by one
_FIRST = 3  # answers to all of them before those that are timed
_TOPN = 5, 10, 20
_PAPERS = "diginetica, as in papers"
_SPEED = "p50 ms", "p99 ms", "queries a second"
_COLUMNS = "HR@5", "HR@10", "NDCG@10", "HR@20 (P@20)", "MRR@20"


def diginetica() -> Data:
    """Sessions in the order of their numbers, which are in the order of time."""
    found = []
    for name in ("train", "test"):
        table = pl.read_parquet(data_folder() / f"diginetica/{name}.parquet")
        table = table.sort("session", "order")
        lengths = table["session"].rle().struct.field("len").to_numpy()
        found.append((table["item"].to_numpy() - 1, lengths.astype(np.int64)))
    return *found, 1 + int(found[0][0].max())


def _held_out(path: Path) -> Data:
    encoded = encode(file_corpus(path), MIN_COUNT)
    parts = [*trained_sequences(encoded, HOLDOUT)]
    ids, lengths = map(np.concatenate, zip(*parts, strict=True))
    return (ids, lengths), sequences(encoded, HOLDOUT), len(encoded.vocabulary)


def _cases(data: tuple[str, ...]) -> Iterator[tuple[str, Data, Cases]]:
    for name in data:
        each = diginetica() if name == "diginetica" else None
        each = each or _held_out(data_folder() / FILES[name])
        yield name, each, last_items(each[1], "excluded")
        if name == "diginetica":
            yield _PAPERS, each, every_item(each[1], "included")


class _Trained:
    """A trainer, whose items have the numbers of the data, from 0 to V - 1."""

    def __init__(self, training: Sequences, num_items: int):
        ids, lengths = training
        with tempfile.TemporaryDirectory() as folder:
            sessions, run = Path(folder, "sessions.txt"), Path(folder, "run")
            with open(sessions, "w") as file:
                for each in np.split(ids, np.cumsum(lengths)[:-1]):
                    file.write(" ".join(map(str, each)) + "\n")
            command = f"train {sessions} {_PRESET} --workdir {run} --no-report"
            assert main(command.split()) == 0
            self._next = read_next_items(run)
        self._column_of = np.full(num_items, -1)
        rows = np.array([int(key) for key in self._next.keys])
        self._column_of[rows] = np.arange(len(rows))

    def scorer(self, name: str, seen: Seen) -> Scorer:
        """Of `TRAINED`; items that it has not seen are the last."""
        mixture = self._next.mixtures[seen]
        of_known = mixture if name == "mixture" else mixture.parts["vectors"]

        def scores(queries: Sequences) -> np.ndarray:
            ids, known = self._column_of[queries[0]], self._column_of >= 0
            lengths = np.bincount(
                case_numbers(queries)[ids >= 0], None, len(queries[1])
            )
            found = np.full((len(lengths), len(known)), -np.inf, np.float32)
            asked = ids[ids >= 0], lengths[lengths > 0]
            rows = np.flatnonzero(lengths)[:, np.newaxis]
            found[rows, known] = of_known(asked)[:, self._column_of[known]]
            return found

        return scores

    def times(self, cases: Cases) -> dict[str, float]:
        """Milliseconds of one query, and queries a second of many at once, when what
        the first ones need is made."""
        ids = self._column_of[cases.queries[0]]
        each = [x[x >= 0] for x in np.split(ids, np.cumsum(cases.queries[1])[:-1])]
        each = [x for x in each if len(x)][:_TIMED]
        lengths = np.array([len(x) for x in each])
        found, top = [], self._next.mixtures["excluded"].top
        many = np.concatenate(each), lengths
        for _ in range(_FIRST):
            top(many, 10)
        for query in each[:_SINGLE]:
            start = time.perf_counter()
            top((query, np.array([len(query)])), 10)
            found.append(1e3 * (time.perf_counter() - start))
        start = time.perf_counter()
        top(many, 10)
        rate = len(each) / (time.perf_counter() - start)
        p50, p99 = np.percentile(found, [50, 99])
        return {"p50 ms": p50, "p99 ms": p99, "queries a second": rate}


def run(
    data: tuple[str, ...] = (*FILES, "diginetica"),
    baselines: tuple[str, ...] = (*BASELINES, *TRAINED),
) -> Table:
    """Baselines of the next item of a session, and published models.

    Args:
      data: online-retail, wikispeedia, diginetica; default: all.
      baselines: which to run; default: all.
    """
    samples: list[dict[str, Any]] = []
    trained: _Trained | None = None
    for name, (training, _, num_items), cases in _cases(data):
        trained = trained if name == _PAPERS else None  # of the same sessions
        for baseline in baselines:
            clocks = time.perf_counter, time.process_time
            start = [clock() for clock in clocks]
            about = {}
            if baseline in TRAINED:
                trained = trained or _Trained(training, num_items)
                scorer = trained.scorer(baseline, cases.seen)
            else:
                scorer = BASELINES[baseline](training, num_items)
            fitted = [clock() for clock in clocks]
            ranks = target_ranks(scorer, cases, num_items)
            end = [clock() for clock in clocks]
            if baseline == "mixture" and trained is not None:
                about = trained.times(cases)
            samples.append(
                {"data": name, "baseline": baseline, "cases": cases.num}
                | {"fit seconds": fitted[0] - start[0], "seconds": end[0] - fitted[0]}
                | {"fit CPU seconds": fitted[1] - start[1]}
                | {"CPU seconds": end[1] - fitted[1], "scores": _scores(ranks)}
                | about
            )
            print(samples[-1], flush=True)
    return table(write_results("next-items", samples=samples))


def _scores(ranks: Sequences) -> dict[str, list[float]]:
    """HR, NDCG and MRR of each number of items, each with the ends of its interval."""
    found = {}
    for topn in _TOPN:
        hit, ndcg, mrr, _ = case_scores(ranks, topn).T
        each = mean_estimates(np.stack([hit, ndcg, hit * mrr], axis=1))
        names = f"HR@{topn}", f"NDCG@{topn}", f"MRR@{topn}"
        found |= dict(zip(names, map(list, each), strict=True))
    return found


def table(results: Results) -> Table:
    """A row for each baseline of each data set, and the published ones."""
    rows = []
    for name, samples in grouped(results["samples"], "data").items():
        for each in samples:
            row = [name, each["baseline"]]
            for column in _COLUMNS:
                value, lower, upper = each["scores"][column.split(" ")[0]]
                row.append(f"{value:.3f} ±{(upper - lower) / 2:.3f}")
            cost = each["fit CPU seconds"], each["CPU seconds"] * 1e5 / each["cases"]
            row += [f"{value:.1f}" for value in cost]
            speed = [each.get(x) for x in _SPEED]
            rows.append([*row, *("" if x is None else f"{x:,.1f}" for x in speed)])
        if name == _PAPERS:
            for model, values in PUBLISHED.items():
                hits, mrr = (f"{value / 100:.3f}" for value in values)
                rows.append([name, model, "", "", "", hits, mrr, *[""] * 5])
    counted = "fit, CPU s", "100,000 cases, CPU s"
    return Table(["data", "baseline", *_COLUMNS, *counted, *_SPEED], rows)


BENCHES = {"next-items": run}
TABLES = {"next-items": table}
