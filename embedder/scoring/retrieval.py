"""Retrieval scores of an encoder, beside those of its input and of chance."""

import math

import numpy as np

from embedder.encoders.evaluation import Evaluated
from embedder.evaluation.retrieval import (
    Queries,
    chance,
    choose_queries,
    estimates,
    retrieval_scores,
)
from embedder.limits import NoRoomError, check_room
from embedder.scoring.report import Report

_INPUT = "input features"
_COPIES = 2  # of the features in float64, while they are scored


def score_retrieval(found: Evaluated, seed: int) -> Report:
    """Whether the examples nearest to one have its class, by the cosine of embeddings.

    The baselines are the cosine of the features, such as pixels, and chance.

    Args:
      seed: of the intervals, and of the queries where not all examples are queries.
    """
    labels = found.labels
    queries = choose_queries(labels, seed=seed)

    def scored(rows: np.ndarray):
        return estimates(retrieval_scores(rows, labels, queries), seed=seed)

    baselines, missing = {}, {}
    if found.features is None:
        missing[_INPUT] = "which needs the data: --examples DATA"
    elif too_large := _does_not_fit(found.features):
        missing[_INPUT] = too_large
    else:
        baselines[_INPUT] = scored(found.features)
    baselines["chance"] = estimates(chance(labels, queries), num=0)
    networks = "" if found.num_networks == 1 else f", {found.num_networks} networks"
    return Report(
        "retrieval",
        found.examples,
        _title(len(labels), queries),
        {
            "examples": len(labels),
            "queries": len(queries.ids),
            "alone_in_class": queries.num_alone,
        },
        {"similarity": "cosine", "seed": seed},
        f"embeddings{networks}",
        scored(found.vectors),
        baselines,
        missing,
        better="a baseline",
    )


def _does_not_fit(features: np.ndarray) -> str:
    """Why features cannot be scored; "": they can."""
    needed = _COPIES * 8 * math.prod(features.shape)
    try:
        check_room(needed, "they take", "give fewer examples")
    except NoRoomError as error:
        return str(error)
    return ""


def _title(num_examples: int, queries: Queries) -> str:
    num = len(queries.ids)
    title = f"nearest of {num_examples - 1} others to each of {num} examples"
    if queries.num_alone:
        title += f"; {queries.num_alone} left out, alone in their class"
    return title
