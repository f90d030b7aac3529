"""Edges and labels of nodes, predicted by a run and by counting in its graph."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from scipy import sparse

from embedder.errors import InputError
from embedder.evaluation.label_files import read_labels
from embedder.evaluation.labels import Predictor, by_frequency, by_regression, f1_scores
from embedder.evaluation.links import (
    Pairs,
    common_neighbors,
    cosine_similarities,
    degree_products,
    dot_products,
    held_out_edges,
    link_scores,
    sample_non_edges,
)
from embedder.scoring.report import Report, Scores
from embedder.scoring.training_data import is_directed, training_graph
from embedder.tables.corpus_files import corpus_files
from embedder.tables.graph import check_numba
from embedder.vectors.vectors import Vectors, check_positive_integer

Similarity = Literal["dot", "cosine"]
_OF_VECTORS: dict[Similarity, Callable[[np.ndarray, Pairs], np.ndarray]] = {
    "dot": dot_products,
    "cosine": cosine_similarities,
}
_COUNTED: dict[str, Callable[[sparse.csr_array, Pairs], np.ndarray]] = {
    "common neighbours": common_neighbors,
    "degree product": degree_products,
}


class _Links(NamedTuple):
    """Held-out edges, and pairs of nodes without an edge."""

    edges: Pairs
    others: Pairs
    num_known: int  # edges of the file that are in the training graph
    num_unknown: int  # edges of the file with a node that RUN does not know


def score_edges(
    run: Path,
    vectors: Vectors,
    path: Path,
    columns: tuple[str, str],
    similarity: Similarity,
    non_edges: int | None,
    seed: int,
) -> Report:
    """How well the vectors of a run tell held-out edges from other pairs of nodes.

    Args:
      columns: of the ends of an edge, in a table with more than three columns.
      non_edges: pairs without an edge; None: as many as edges.

    Raises:
      OSError, InputError: the file is no edge list, or has no edge to predict.
    """
    graph, reason = _graph(run)
    directed = is_directed(run)
    links = _links(vectors, path, columns, graph, non_edges, directed, seed)

    def scores(of: Callable[[Pairs], np.ndarray]) -> Scores:
        found = link_scores(of(links.edges), of(links.others), seed=seed)
        return {"AUC": found.auc, "AP": found.average_precision}

    counted = {} if graph is None else _COUNTED
    return Report(
        *("edges", path.name, *_summary(links)),
        {"similarity": similarity, "directed": directed, "seed": seed},
        f"vectors by {similarity}",
        scores(functools.partial(_OF_VECTORS[similarity], vectors.matrix)),
        {name: scores(functools.partial(x, graph)) for name, x in counted.items()},
        {} if graph is not None else dict.fromkeys(_COUNTED, reason),
    )


def _links(
    vectors: Vectors,
    path: Path,
    columns: tuple[str, str],
    graph: sparse.csr_array | None,
    non_edges: int | None,
    directed: bool,
    seed: int,
) -> _Links:
    if non_edges is not None:
        check_positive_integer("non_edges", non_edges)
    given, num_unknown = _read_edges(path, columns, vectors)
    training, num_nodes = _edges(graph), len(vectors)
    edges, num_known = held_out_edges(given, training, num_nodes, directed=directed)
    if not len(edges):
        raise InputError(
            f"`edges` {path} has no edge to predict: {num_known} are edges of the "
            f"training, and {num_unknown} have a node that RUN does not know."
        )
    others = sample_non_edges(
        *(non_edges or len(edges), num_nodes, np.concatenate([edges, training])),
        directed=directed,
        seed=seed,
    )
    return _Links(edges, others, num_known, num_unknown)


def _summary(links: _Links) -> tuple[str, dict[str, int]]:
    counts = {
        "edges": len(links.edges),
        "non_edges": len(links.others),
        "in_training": links.num_known,
        "unknown": links.num_unknown,
    }
    title = f"{len(links.edges)} edges and {len(links.others)} other pairs; left out: "
    title += f"{links.num_known} edges of the training, {links.num_unknown} with an "
    return title + "unknown node", counts


def _read_edges(
    path: Path, columns: tuple[str, str], vectors: Vectors
) -> tuple[Pairs, int]:
    """The edges between known nodes, by their numbers, and the number of the others."""
    check_numba()
    from embedder.graphs.edge_table import EdgeColumns
    from embedder.graphs.edges import read_edges

    edges = read_edges(corpus_files(path), EdgeColumns(*columns))
    index = vectors.key_to_index
    ids = np.array([index.get(node, -1) for node in edges.nodes], np.int64)
    pairs = np.stack([ids[edges.source], ids[edges.target]], axis=1)
    is_known = (pairs >= 0).all(axis=1)
    return pairs[is_known], int(np.count_nonzero(~is_known))


def _graph(run: Path) -> tuple[sparse.csr_array | None, str]:
    """The graph of the training; None, and why it cannot be read."""
    try:
        return training_graph(run), ""
    except (InputError, OSError) as error:
        return None, str(error).removesuffix(".")


def _edges(graph: sparse.csr_array | None) -> Pairs:
    if graph is None:
        return np.empty((0, 2), np.int64)
    return np.stack(graph.nonzero(), axis=1).astype(np.int64)


def score_labels(
    run: Path,
    vectors: Vectors,
    path: Path,
    train_share: float,
    splits: int,
    seed: int,
) -> Report:
    """How well labels are predicted from the vectors of a share of the nodes.

    Raises:
      OSError, InputError: the file has no labels, or the share leaves no node to learn
        from, or to predict.
    """
    check_positive_integer("splits", splits)
    labels = read_labels(path, vectors.keys)
    num = len(labels.rows)
    if not 0 < train_share < 1 or not 0 < round(num * train_share) < num:
        raise InputError(
            f"`train_share` must be above 0 and below 1, and leave nodes to learn from "
            f"and to predict, of {num}, got {train_share:g}."
        )

    def scores(predictor: Predictor) -> Scores:
        found = f1_scores(predictor, labels.has_label, train_share, splits, seed=seed)
        return {"micro F1": found.micro, "macro F1": found.macro}

    predictors = {"most frequent labels": by_frequency(labels.has_label)}
    graph, reason = _graph(run)
    if graph is not None:
        degrees = graph.sum(axis=0) + graph.sum(axis=1)
        features = np.log(degrees[labels.rows, np.newaxis] + 1.0)
        predictors["degree"] = by_regression(features, labels.has_label)
    counts = {"nodes": num, "labels": len(labels.names), "unknown": labels.num_unknown}
    title = f"{num} nodes with {len(labels.names)} labels, {train_share:g} of them "
    title += f"known; unknown nodes, left out: {labels.num_unknown}"
    return Report(
        *("labels", path.name, title, counts),
        {"train_share": train_share, "splits": splits, "seed": seed},
        "vectors",
        scores(by_regression(vectors.matrix[labels.rows], labels.has_label)),
        {name: scores(each) for name, each in predictors.items()},
        {} if graph is not None else {"degree": reason},
    )
