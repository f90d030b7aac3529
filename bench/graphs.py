"""Node labels from vectors of random walks: BlogCatalog, by the port and by gensim.

Both train on the same walks, one epoch. The walks of the port are made while it trains;
gensim reads them from a file. Labels are predicted by logistic regression, one label
against the rest, from a share of the nodes; of the others as many labels are predicted
as each has. This is the protocol of Perozzi et al. 2014 (DeepWalk), arXiv:1403.6652.
"""

import collections
import csv
import gzip
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.results import (
    Results,
    Table,
    data_folder,
    grouped,
    spread,
    write_results,
)
from bench.systems import measure
from embedder import Config, Vectors, read_vectors
from embedder.config import with_options
from embedder.engine.prefetch import parallel_map
from embedder.evaluation.labels import by_regression
from embedder.evaluation.labels import f1_scores as labels_f1
from embedder.tables.graph import Walks, open_graph, walks_over

PROGRAMS: dict[str, tuple[str, dict[str, Any]]] = {
    "embedder": ("port", {"backend": "numba", "loader": "memory"}),
    "gensim, 2 workers": ("gensim", {"workers": 2, "min_count": 1}),
}
_THREADS = 2  # that make the walks that are timed
_F1 = "micro F1", "macro F1"


def run(
    programs: list[str],
    walk: dict[str, Any],
    settings: dict[str, Any],
    shares: list[int],
    splits: int,
    seeds: list[int],
) -> Table:
    """Trains each of `programs` with each seed and predicts the labels.

    Args:
      walk: settings of the walks.
      settings: of the training, the same for all programs.
      shares: of the nodes with known labels, in percent.
      splits: random choices of these nodes, over which the scores are means.
    """
    folder = data_folder() / "graphs"
    edges, labels = (folder / f"blogcatalog.{x}.tsv.gz" for x in ("edges", "labels"))
    options = with_options(Config(), **walk).tables
    walks = walks_over(open_graph(edges, options).read(), options)
    walks.shard(0, 0, 0)  # compiles
    samples = []
    for seed in seeds:
        with tempfile.TemporaryDirectory() as temporary:
            text = Path(temporary, "walks.txt")
            made = write_walks(walks, seed, text)
            for program in programs:
                name, own = PROGRAMS[program]
                vectors = Path(temporary, "vectors.bin")
                corpus = edges if name == "port" else text
                given = {"seed": seed, **settings, **own}
                given |= walk if name == "port" else {}
                measured = measure(name, corpus, vectors, epochs=1, **given)
                scores = f1_scores(read_vectors(vectors), labels, shares, splits)
                sample = {"program": program, "seed": seed, **made}
                samples.append(sample | measured._asdict() | {"scores": scores})
                print(samples[-1], flush=True)
    about = {"walks": walk, "settings": settings, "splits": splits, "seeds": seeds}
    return table(write_results("graphs", settings=about, samples=samples))


def write_walks(walks: Walks, seed: int, path: Path) -> dict[str, float]:
    """Writes the walks of the first epoch; the seconds to make them, and their steps.

    The port makes the same walks in a run with `seed`.
    """

    def make(number: int) -> tuple[np.ndarray, np.ndarray]:
        return walks.shard(number, seed, 0)

    start = time.perf_counter()
    numbers = range(len(walks.shard_tokens))
    parts = list(parallel_map(make, numbers, _THREADS))
    seconds = time.perf_counter() - start
    names = np.array(walks.vocabulary.tokens, dtype=object)
    with open(path, "w") as file:
        for ids, lengths in parts:
            for part in np.split(names[ids], np.cumsum(lengths)[:-1]):
                file.write(" ".join(part) + "\n")
    num_steps = sum(len(ids) - len(lengths) for ids, lengths in parts)
    return {"walk_seconds": seconds, "walk_steps": num_steps}


def read_labels(path: Path, vectors: Vectors) -> np.ndarray:
    """Whether each node has each label, bool[V, C], in the order of `vectors`."""
    found = collections.defaultdict(set)
    with gzip.open(path, "rt") as file:
        for node, label in csv.reader(file, delimiter="\t"):
            found[label].add(node)
    labels = sorted(found)
    return np.array([[key in found[label] for label in labels] for key in vectors.keys])


def f1_scores(
    vectors: Vectors, labels: Path, shares: list[int], splits: int
) -> dict[str, list[float]]:
    """Micro and macro F1 in percent of each share, means over `splits`."""
    has_label = read_labels(labels, vectors)
    labelled = has_label.any(axis=1)
    features, has_label = vectors.matrix[labelled], has_label[labelled]
    found: dict[str, list[float]] = {name: [] for name in _F1}
    predictor = by_regression(features, has_label)
    for share in shares:
        # The mean of the splits, whose seeds are from 0; no intervals.
        each = labels_f1(predictor, has_label, share / 100, splits, num=0)
        for name, score in zip(_F1, each, strict=True):
            found[name].append(100 * score.value)
    return {"share": [float(share) for share in shares], **found}


def table(results: Results) -> Table:
    """Two rows for each program: seconds, and micro and macro F1 of each share."""
    shares = [f"{share:.0f} %" for share in results["samples"][0]["scores"]["share"]]
    rows = []
    for program, own in grouped(results["samples"], "program").items():
        rate = spread(s["walk_steps"] / s["walk_seconds"] / 1e6 for s in own)
        times = [spread(s["walk_seconds"] for s in own), rate]
        times.append(spread(s["train_seconds"] for s in own))
        for name in _F1:
            columns = zip(*(s["scores"][name] for s in own), strict=True)
            scores = [spread(column, 1) for column in columns]
            rows.append([program, *times, name, *scores])
    head = ["program", "walks alone s", "M steps/s", "training s", "score"]
    return Table([*head, *shares], rows)
