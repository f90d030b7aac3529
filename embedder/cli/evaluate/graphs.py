"""Edges and labels of nodes, predicted by a run and by counting in its graph."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import sparse

from embedder.cli.arguments import Evaluate
from embedder.cli.evaluate.report import Report, Scores
from embedder.cli.evaluate.training_data import is_directed, training_graph
from embedder.data.graph import check_numba
from embedder.data.label_files import read_labels
from embedder.data.table_files import edge_files
from embedder.errors import InputError
from embedder.metrics.label_scores import (
    LabelCases,
    Predictor,
    by_degree,
    by_frequency,
    by_regression,
)
from embedder.metrics.links import (
    COUNTED,
    LinkCases,
    Pairs,
    cosine_similarities,
    dot_products,
    held_out_edges,
    sample_non_edges,
)
from embedder.metrics.scores import measured
from embedder.vectors.vectors import Vectors, check_positive_integer

_OF_VECTORS = {"dot": dot_products, "cosine": cosine_similarities}


class _Links(NamedTuple):
    """Held-out edges, and pairs of nodes without an edge."""

    edges: Pairs
    others: Pairs
    num_known: int  # edges of the file that are in the training graph
    num_unknown: int  # edges of the file with a node that RUN does not know


def score_edges(args: Evaluate, run: Path, vectors: Vectors, path: Path) -> Report:
    """How well the vectors of a run tell held-out edges from other pairs of nodes.

    Raises:
      OSError, InputError: the file is no edge list, or has no edge to predict.
    """
    graph, reason = _graph(run)
    directed, similarity = is_directed(run), args.similarity
    links = _links(args, vectors, path, graph, directed)

    def scores(of: Callable[[Pairs], np.ndarray]) -> Scores:
        cases = LinkCases(links.edges, lambda: links.others)
        return measured("edges", cases, of, seed=args.seed)

    counted = {} if graph is None else COUNTED
    counts = {
        "edges": len(links.edges),
        "non_edges": len(links.others),
        "in_training": links.num_known,
        "unknown": links.num_unknown,
    }
    title = f"{len(links.edges)} edges and {len(links.others)} other pairs; left out: "
    title += f"{links.num_known} edges of the training, {links.num_unknown} with an "
    return Report(
        *("edges", path.name, title + "unknown node", counts),
        {"similarity": similarity, "directed": directed, "seed": args.seed},
        f"vectors by {similarity}",
        scores(functools.partial(_OF_VECTORS[similarity], vectors.matrix)),
        {name: scores(functools.partial(x, graph)) for name, x in counted.items()},
        {} if graph is not None else dict.fromkeys(COUNTED, reason),
    )


def _links(
    args: Evaluate,
    vectors: Vectors,
    path: Path,
    graph: sparse.csr_array | None,
    directed: bool,
) -> _Links:
    if args.non_edges is not None:
        check_positive_integer("non_edges", args.non_edges)
    pairs, num_unknown = _read_edges(path, (args.source, args.target), vectors)
    training, num_nodes = np.empty((0, 2), np.int64), len(vectors)
    if graph is not None:
        training = np.stack(graph.nonzero(), axis=1).astype(np.int64)
    edges, num_known = held_out_edges(pairs, training, num_nodes, directed=directed)
    if not len(edges):
        raise InputError(
            f"`edges` {path} has no edge to predict: {num_known} are edges of the "
            f"training, and {num_unknown} have a node that RUN does not know."
        )
    others = sample_non_edges(
        *(args.non_edges or len(edges), num_nodes, np.concatenate([edges, training])),
        directed=directed,
        seed=args.seed,
    )
    return _Links(edges, others, num_known, num_unknown)


def _read_edges(
    path: Path, columns: tuple[str, str], vectors: Vectors
) -> tuple[Pairs, int]:
    """The edges between known nodes, by their numbers, and the number of the others."""
    check_numba()
    from embedder.data.graphs.edge_table import EdgeColumns
    from embedder.data.graphs.edges import read_edges

    edges = read_edges(edge_files(path), EdgeColumns(*columns))
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


def score_labels(args: Evaluate, run: Path, vectors: Vectors, path: Path) -> Report:
    """How well labels are predicted from the vectors of a share of the nodes.

    Raises:
      OSError, InputError: the file has no labels, or the share leaves no node to learn
        from, or to predict.
    """
    train_share, splits = args.train_share, args.splits
    check_positive_integer("splits", splits)
    labels = read_labels(path, vectors.keys)
    num = len(labels.rows)
    if not 0 < train_share < 1 or not 0 < round(num * train_share) < num:
        raise InputError(
            f"`train_share` must be above 0 and below 1, and leave nodes to learn from "
            f"and to predict, of {num}, got {train_share:g}."
        )

    cases = LabelCases(labels.has_label, train_share, splits)

    def scores(predictor: Predictor) -> Scores:
        return measured("labels", cases, predictor, seed=args.seed)

    predictors = {"most frequent labels": by_frequency(labels.has_label)}
    graph, reason = _graph(run)
    if graph is not None:
        predictors["degree"] = by_degree(graph, labels.rows, labels.has_label)
    counts = {"nodes": num, "labels": len(labels.names), "unknown": labels.num_unknown}
    title = f"{num} nodes with {len(labels.names)} labels, {train_share:g} of them "
    title += f"known; unknown nodes, left out: {labels.num_unknown}"
    return Report(
        *("labels", path.name, title, counts),
        {"train_share": train_share, "splits": splits, "seed": args.seed},
        "vectors",
        scores(by_regression(vectors.matrix[labels.rows], labels.has_label)),
        {name: scores(each) for name, each in predictors.items()},
        {} if graph is not None else {"degree": reason},
    )
