"""Neighbours of queries a second: exact search and the index, beside plain NumPy and
gensim.

Two sets of vectors. `clustered`: rows around random centres, 50 a centre, with a cosine
of 0.8 within a cluster in the mean. `wiki`: what embedder trains on 17 M words of
Wikipedia with its defaults. Queries are rows, drawn at random; each is looked up for
its ten nearest other rows.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bench.results import Results, Table, data_folder, grouped, spread, write_results
from embedder import EmbeddingTrainer, Vectors
from embedder.vectors.index import IndexOptions, build_index

TOPN = 10
_CLUSTER = 50  # rows
_NOISE = 0.5  # to centres of variance 1: cosine 1 / (1 + 0.25) within a cluster
_RECALL_QUERIES = 4000
Search = Callable[[np.ndarray], np.ndarray]
"""Ids of rows i64[Q] -> ids of their nearest rows i64[Q, 10]."""


def clustered(num_rows: int, size: int = 100) -> Vectors:
    """Vectors around random centres, f32[num_rows, size]."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((-(-num_rows // _CLUSTER), size), np.float32)
    matrix = centres[rng.permutation(num_rows) // _CLUSTER]
    matrix += np.float32(_NOISE) * rng.standard_normal(matrix.shape, np.float32)
    return Vectors([str(i) for i in range(num_rows)], matrix)


def wiki() -> Vectors:
    """Vectors of the words of wiki17m-0, by the defaults."""
    trainer = EmbeddingTrainer()
    trainer.fit(str(data_folder() / "wiki" / "wiki17m-0.txt.gz"))
    return Vectors(trainer.index_to_key, np.asarray(trainer.vectors))


def _exact(vectors: Vectors, folder: Path) -> tuple[Search, dict[str, Any]]:
    def search(rows: np.ndarray) -> np.ndarray:
        return vectors.neighbors_of_rows(rows, TOPN, method="exact")[0]

    return search, {}


def _index(
    vectors: Vectors, folder: Path, options: IndexOptions | None = None
) -> tuple[Search, dict[str, Any]]:
    start = time.perf_counter()
    about = build_index(vectors, folder, options or IndexOptions())
    built = time.perf_counter() - start
    if vectors.use_index(folder) is None:
        raise RuntimeError("the index is not used")
    about_index = {
        "build": built,
        "bytes": about.num_bytes,
        "expansion": about.expansion,
        "recall when built": about.recall,
        "library": about.library,
    }
    return lambda rows: vectors.neighbors_of_rows(rows, TOPN)[0], about_index


def _index_of_16(vectors: Vectors, folder: Path) -> tuple[Search, dict[str, Any]]:
    """With fewer edges; it has vectors of its own, since these have one index."""
    again = Vectors(vectors.keys, vectors.matrix)
    (folder / "16").mkdir()
    return _index(again, folder / "16", IndexOptions(connectivity=16))


def _numpy(vectors: Vectors, folder: Path) -> tuple[Search, dict[str, Any]]:
    unit = vectors.unit

    def search(rows: np.ndarray) -> np.ndarray:
        found = []
        for start in range(0, len(rows), 64):
            own = rows[start : start + 64]
            scores = unit[own] @ unit.T
            scores[np.arange(len(own)), own] = -np.inf
            best = np.argpartition(scores, -TOPN, axis=1)[:, -TOPN:]
            found.append(best)
        return np.concatenate(found)

    return search, {}


def _gensim(vectors: Vectors, folder: Path) -> tuple[Search, dict[str, Any]]:
    from gensim.models import KeyedVectors

    keyed = KeyedVectors(vectors.matrix.shape[1])
    keyed.add_vectors(vectors.keys, vectors.matrix)
    keyed.fill_norms()

    def search(rows: np.ndarray) -> np.ndarray:
        near = [keyed.most_similar(vectors.keys[row], topn=TOPN) for row in rows]
        return np.array([[keyed.key_to_index[key] for key, _ in each] for each in near])

    return search, {}


PROGRAMS = {
    "embedder, exact": _exact,
    "embedder, index": _index,
    "NumPy, argpartition": _numpy,
    "gensim": _gensim,
    "embedder, index, connectivity 16": _index_of_16,
}


def run(
    data: tuple[Literal["clustered", "wiki"], ...] = ("clustered", "wiki"),
    programs: tuple[str, ...] = tuple(PROGRAMS),
    rows: int = 1_000_000,
    samples: int = 5,
    seconds: float = 10.0,
    name: str = "search",
) -> Table:
    """Nearest neighbours: queries a second, and recall.

    Args:
      data: sets of vectors.
      programs: which to run; default: all.
      rows: of the clustered vectors.
      samples: of each program, in turn.
      seconds: of a sample, about.
      name: of the file in bench/results.
    """
    found = []
    for each_data in data:
        vectors = wiki() if each_data == "wiki" else clustered(rows)
        with tempfile.TemporaryDirectory() as folder:
            made = {each: PROGRAMS[each](vectors, Path(folder)) for each in programs}
            found += _measured(each_data, vectors, made, samples, seconds)
    return table(write_results(name, settings={"seconds": seconds}, samples=found))


def _measured(
    name: str,
    vectors: Vectors,
    programs: dict[str, tuple[Search, dict[str, Any]]],
    samples: int,
    seconds: float,
) -> list[dict[str, Any]]:
    rng = np.random.default_rng(1)
    rows = np.sort(rng.permutation(len(vectors))[:_RECALL_QUERIES])
    expected = vectors.neighbors_of_rows(rows, TOPN, method="exact")[0]
    found = []
    for program, (search, about) in programs.items():
        num = _num_queries(search, rng, len(vectors), seconds)
        own = slice(min(num, len(rows)))
        recall = _recall(search(rows[own]), expected[own])
        about = {"data": name, "rows": len(vectors), "queries": num} | about
        found.append(
            {"program": program, "recall": recall, "rates": [], "cpu": [], **about}
        )
    for _ in range(samples):
        for sample, (search, _) in zip(found, programs.values(), strict=True):
            queries = rng.integers(len(vectors), size=sample["queries"])
            start, used = time.perf_counter(), time.process_time()
            search(queries)
            sample["cpu"].append((time.process_time() - used) / len(queries))
            sample["rates"].append(len(queries) / (time.perf_counter() - start))
    for sample in found:
        print(sample, flush=True)
    return found


def _num_queries(search: Search, rng, num_rows: int, seconds: float) -> int:
    """Queries that take about so many seconds."""
    num = 1
    while True:
        start = time.perf_counter()
        search(rng.integers(num_rows, size=num))
        taken = time.perf_counter() - start
        if taken > seconds / 4 or num >= 2**20:
            return max(1, int(num * seconds / taken))
        num *= 4


def _recall(found: np.ndarray, expected: np.ndarray) -> float:
    shared = (found[:, :, None] == expected[:, None, :]).any(axis=2).sum()
    return float(shared / expected.size)


def table(results: Results) -> Table:
    """A row for each set of vectors and program."""
    rows = []
    for name, samples in grouped(results["samples"], "data").items():
        base = next((s for s in samples if s["program"] == "gensim"), None)
        for sample in samples:
            ratio = ""
            if base is not None:
                pairs = zip(sample["rates"], base["rates"], strict=True)
                ratio = spread(x / y for x, y in pairs)
            rows.append(
                [
                    *(name, f"{sample['rows']:,}", sample["program"]),
                    *(spread(sample["rates"], 0), ratio),
                    spread([1000 * x for x in sample["cpu"]]),
                    f"{sample['recall']:.3f}",
                    f"{sample['bytes'] / 2**20:.0f}" if "bytes" in sample else "",
                    f"{sample['build']:.0f}" if "build" in sample else "",
                ]
            )
    columns = ["vectors", "rows", "program", "queries/s", "to gensim", "CPU ms"]
    return Table([*columns, "recall@10", "index MiB", "build s"], rows)


BENCHES = {"search": run}
TABLES = dict.fromkeys(("search", "search-million", "search-wiki"), table)
