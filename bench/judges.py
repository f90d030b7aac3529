"""Programs of others on walks, `bench/judge.py`: with gensim, and with our classes.

Each is run as it is installed, in a process of its own. Its vectors are scored by the
labels of nodes, predicted by logistic regression from half of the nodes, and by how
often an edge has a larger cosine than a pair of nodes without one.
"""

import importlib.util
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from bench.judge import JUDGES
from bench.processes import run_python
from bench.results import Results, Table, data_folder, grouped, spread, write_results
from embedder.metrics.label_scores import by_regression, f1_scores

GRAPHS = "karate", "cora"
PROGRAMS = {"gensim": (), "embedder": ("-m", "embedder.gensim")}
_SPLITS = 20


def run(
    programs: tuple[str, ...] = tuple(JUDGES),
    graphs: tuple[str, ...] = GRAPHS,
    seeds: tuple[int, ...] = (1, 2, 3),
) -> Table:
    """PecanPy, node2vec and karateclub, with gensim and with embedder's classes.

    Args:
      programs: which to run; default: all. Those that are not installed are named.
      graphs: karate, cora; default: both.
      seeds: each program is run once with each.
    """
    found = [name for name in programs if importlib.util.find_spec(JUDGES[name][0])]
    for name in programs:
        if name not in found:
            print(f"bench: {name} needs the package {JUDGES[name][0]}, not run.")
    if not found:  # keep the results that there are
        return table({"samples": []})
    samples = []
    for graph in graphs:
        edges, labels = read_graph(graph)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "edges.tsv")
            np.savetxt(path, edges, "%d", delimiter="\t")
            for name in found:
                for seed in seeds:
                    for program in PROGRAMS:
                        sample = {"graph": graph, "judge": name, "seed": seed}
                        sample |= _sample(program, name, path, seed, labels)
                        print(sample, flush=True)
                        samples.append(sample)
    about = {"seeds": seeds, "splits": _SPLITS}
    return table(write_results("judges", settings=about, samples=samples))


def read_graph(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Edges i64[E, 2] of nodes from 0, and whether each node has each label bool[n, C].

    The labels of the karate club are the clubs that its members chose.
    """
    folder = data_folder() / "graphs"
    edges = np.loadtxt(folder / f"{name}.edges.tsv", np.int64, delimiter="\t")
    if name == "karate":
        import networkx

        of_node = networkx.karate_club_graph().nodes(data="club")
        clubs = np.array([club for _, club in sorted(of_node)])
        return edges - 1, clubs[:, np.newaxis] == np.unique(clubs)
    labels = np.loadtxt(folder / f"{name}.labels.tsv", np.int64, delimiter="\t")
    classes = labels[labels[:, 0].argsort(), 1]
    return edges, classes[:, np.newaxis] == np.unique(classes)


def _sample(
    program: str, name: str, path: Path, seed: int, labels: np.ndarray
) -> dict[str, Any]:
    vectors = path.with_name("vectors.npy")
    given = name, str(path), str(seed), str(vectors)
    ran = run_python(*PROGRAMS[program], "-m", "bench.judge", *given)
    assert ran["class"].startswith(program), ran
    found = np.load(vectors)
    micro, _ = f1_scores(by_regression(found, labels), labels, 0.5, _SPLITS, num=0)
    edges = np.loadtxt(path, np.int64)
    scores = {"accuracy": micro.value, "auc": edge_auc(found, edges)}
    return {"program": program, "seconds": ran["seconds"], **scores}


def edge_auc(vectors: np.ndarray, edges: np.ndarray) -> float:
    """How often the cosine of an edge is larger than that of a pair that is none.

    Up to 100,000 random pairs; a tie counts half.
    """
    from sklearn.metrics import roc_auc_score

    num_nodes = len(vectors)
    is_edge = np.eye(num_nodes, dtype=bool)  # nor is a node with itself a pair
    is_edge[tuple(edges.T)] = is_edge[tuple(edges.T[::-1])] = True
    others = np.argwhere(~is_edge)
    chosen = np.random.default_rng(0).permutation(len(others))[:100_000]
    pairs = np.concatenate([edges, others[chosen]])
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = (unit[pairs[:, 0]] * unit[pairs[:, 1]]).sum(axis=1)
    return float(roc_auc_score(np.arange(len(pairs)) < len(edges), cosines))


def table(results: Results) -> Table:
    """For each graph and judge a row by gensim and one by embedder."""
    rows = []
    for graph, of_graph in grouped(results["samples"], "graph").items():
        for judge, of_judge in grouped(of_graph, "judge").items():
            for program, own in grouped(of_judge, "program").items():
                scores = (spread(100 * s[x] for s in own) for x in ("accuracy", "auc"))
                rows.append([graph, judge, program, *scores])
    return Table(["graph", "program", "trained by", "accuracy %", "AUC %"], rows)


BENCHES = {"judges": run}
TABLES = {"judges": table}
