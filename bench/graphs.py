"""Node labels from vectors of random walks: BlogCatalog or Cora, by the port and by
gensim.

Both train on the same walks in the first epoch. In others the port makes new ones, as
it trains; gensim reads those of the first from a file. Labels are predicted by logistic
regression, one label against the rest, from a share of the nodes; of the others as many
labels are predicted as each has. This is the protocol of Perozzi et al. 2014
(DeepWalk), arXiv:1403.6652, who train hierarchical softmax. Nodes of Cora have one
label each: their micro F1 is the accuracy.
Beside them are scores that need no training: the most frequent labels, and regression
on the degree of a node.
"""

import collections
import csv
import gzip
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.results import Results, Table, data_folder, grouped, spread, write_results
from bench.systems import measure
from embedder import Config, Vectors, read_vectors
from embedder.base.prefetch import parallel_map
from embedder.config import with_options
from embedder.data.graph import Walks, open_graph, walks_over
from embedder.metrics.label_scores import Predictor, by_frequency, by_regression
from embedder.metrics.label_scores import f1_scores as labels_f1

_HS = {"hs": True, "negative": 0}  # what DeepWalk trains
PROGRAMS: dict[str, tuple[str, dict[str, Any]]] = {
    "embedder": ("port", {"backend": "numba", "loader": "memory"}),
    "gensim, 2 workers": ("gensim", {"workers": 2, "min_count": 1}),
    "embedder, hs": ("port", {"backend": "numba", "loader": "memory", **_HS}),
    "gensim, hs, 2 workers": ("gensim", {"workers": 2, "min_count": 1, **_HS}),
}
_PAIRS = (("embedder", "gensim, 2 workers"), ("embedder, hs", "gensim, hs, 2 workers"))
_THREADS = 2  # that make the walks that are timed
_F1 = "micro F1", "macro F1"
_OF_ONE_LABEL = "accuracy", "macro F1"
DATA = {
    "blogcatalog": ("edges.tsv.gz", "labels.tsv.gz"),
    "cora": ("edges.tsv", "labels.tsv"),
}
"""Name of a graph -> the ends of the names of its files in the folder graphs."""


def run(
    programs: tuple[str, ...] = tuple(PROGRAMS),
    walks: int = 80,
    walk_length: int = 40,
    p: float = 1.0,
    q: float = 1.0,
    vector_size: int = 128,
    window: int = 10,
    shares: tuple[int, ...] = (10, 20, 30, 40, 50, 60, 70, 80, 90),
    splits: int = 10,
    seeds: tuple[int, ...] = (1, 2, 3),
    epochs: int = 1,
    data: str = "blogcatalog",
    name: str = "graphs",
) -> Table:
    """Labels of the nodes of a graph from vectors of random walks.

    Args:
      programs: which to run; default: all.
      walks: from each node.
      walk_length: nodes of a walk.
      p: return parameter of node2vec.
      q: in-out parameter of node2vec.
      vector_size: dimensions of a vector.
      window: largest distance of a context.
      shares: of the nodes whose labels are known, in percent.
      splits: random choices of these nodes, the same for all programs and seeds.
      seeds: each program is trained once with each.
      epochs: of each training.
      data: the graph: blogcatalog or cora.
      name: of the file in bench/results.
    """
    if data not in DATA:
        raise SystemExit(f"bench: --data must be of {[*DATA]}, got {data}.")
    walk = {"walks": walks, "walk_length": walk_length, "p": p, "q": q}
    settings = {"vector_size": vector_size, "window": window, "negative": 5}
    settings["epochs"] = epochs
    folder = data_folder() / "graphs"
    edges, labels = (folder / f"{data}.{end}" for end in DATA[data])
    options = with_options(Config(), **walk).tables
    on_graph = walks_over(open_graph(edges, options).read(), options)
    on_graph.shard(0, 0, 0)  # compiles
    samples = [
        {"program": program, "scores": f1_scores(*predicted, shares, splits)}
        for program, predicted in counted(on_graph, labels).items()
    ]
    for seed in seeds:
        with tempfile.TemporaryDirectory() as temporary:
            text = Path(temporary, "walks.txt")
            made = write_walks(on_graph, seed, text)
            for program in programs:
                system, own = PROGRAMS[program]
                vectors = Path(temporary, "vectors.bin")
                corpus = edges if system == "port" else text
                given = {"seed": seed, **settings, **own}
                given |= walk if system == "port" else {}
                measured = measure(system, corpus, vectors, **given)
                learned = of_vectors(read_vectors(vectors), labels)
                scores = f1_scores(*learned, shares, splits)
                sample = {"program": program, "seed": seed, **made}
                sample |= measured._asdict()
                print(sample, flush=True)
                samples.append(sample | {"scores": scores})
    about = {"data": data, "walks": walk, "settings": settings}
    about |= {"splits": splits, "seeds": seeds}
    return table(write_results(name, settings=about, samples=samples))


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


def read_labels(path: Path, keys: list[str]) -> np.ndarray:
    """Whether each node has each label, bool[V, C], in the order of `keys`."""
    found = collections.defaultdict(set)
    with gzip.open(path, "rt") if path.suffix == ".gz" else open(path) as file:
        for node, label in csv.reader(file, delimiter="\t"):
            found[label].add(node)
    labels = sorted(found)
    return np.array([[key in found[label] for label in labels] for key in keys])


def of_vectors(vectors: Vectors, labels: Path) -> tuple[Predictor, np.ndarray]:
    """Regression on vectors, and the labels of the nodes that have any, bool[N, C]."""
    has_label = read_labels(labels, vectors.keys)
    labelled = has_label.any(axis=1)
    matrix, has_label = vectors.matrix[labelled], has_label[labelled]
    return by_regression(matrix, has_label), has_label


def counted(walks: Walks, labels: Path) -> dict[str, tuple[Predictor, np.ndarray]]:
    """Predictors that need no training, by name, each with the labels."""
    has_label = read_labels(labels, walks.vocabulary.tokens)
    labelled = has_label.any(axis=1)
    degrees, has_label = np.diff(walks.graph.offsets)[labelled], has_label[labelled]
    features = np.log(degrees[:, np.newaxis] + 1.0)
    return {
        "most frequent labels": (by_frequency(has_label), has_label),
        "degree": (by_regression(features, has_label), has_label),
    }


def f1_scores(
    predictor: Predictor, has_label: np.ndarray, shares: Sequence[int], splits: int
) -> dict[str, Any]:
    """Micro and macro F1 in percent, for each share a list over the splits; of nodes
    with one label each the first is named accuracy."""
    names = _OF_ONE_LABEL if (has_label.sum(axis=1) == 1).all() else _F1
    found: dict[str, Any] = {"share": shares, **{name: [] for name in names}}
    for share in shares:
        each = [  # without intervals
            labels_f1(predictor, has_label, share / 100, 1, num=0, seed=split)
            for split in range(splits)
        ]
        for name, values in zip(names, zip(*each, strict=True), strict=True):
            found[name].append([round(100 * score.value, 3) for score in values])
    return found


def table(results: Results) -> Table:
    """Two rows for each program: seconds, and micro and macro F1 of each share, with
    their ranges over splits and seeds; and the differences of two programs."""
    samples = results["samples"]
    names = [name for name in samples[0]["scores"] if name != "share"]
    shares = [f"{share} %" for share in samples[0]["scores"]["share"]]
    rows, groups = [], grouped(samples, "program")
    for program, own in groups.items():
        times = ["", "", ""]
        if "walk_steps" in own[0]:
            rate = spread(s["walk_steps"] / s["walk_seconds"] / 1e6 for s in own)
            times = [spread(s["walk_seconds"] for s in own), rate]
            times.append(spread(s["train_seconds"] for s in own))
        rows += [
            [program, *times, name, *_spreads(_scores(own, name))] for name in names
        ]
    for pair in _PAIRS:
        for name in names if {*pair} <= {*groups} else ():
            difference = np.subtract(*(_scores(groups[x], name) for x in pair))
            rows.append(["difference", "", "", "", name, *_spreads(difference)])
    head = ["program", "walks alone s", "M steps/s", "training s", "score"]
    return Table([*head, *shares], rows)


def _scores(samples: list[dict[str, Any]], name: str) -> np.ndarray:
    """A score of each share on each split with each seed, [shares, seeds x splits]."""
    return np.concatenate([np.array(s["scores"][name]) for s in samples], axis=1)


def _spreads(scores: np.ndarray) -> list[str]:
    return [spread(row.tolist(), 1) for row in scores]


BENCHES = {"graphs": run}
TABLES = dict.fromkeys(("graphs", "graphs-hs", "graphs-hs-5", "graphs-cora"), table)
