"""Classes that an encoder was not trained on: how well its vectors tell them apart.

A network is trained on the training images of seven classes of Fashion-MNIST, with each
objective. Scored are the test images of the other three: each is a query, and all
others are ranked by cosine, ALGORITHM.md (80) and (81).
"""

from typing import Any

import numpy as np

from bench.results import Results, Table, data_folder, grouped, spread, write_results
from embedder import FeatureEncoder
from embedder.data.examples.array_files import read_idx
from embedder.metrics.retrieval import chance, choose_queries, retrieval_scores
from embedder.metrics.scores import scores_on

OBJECTIVES = "softmax", "arcface", "supcon", "triplet"
HELD_OUT = (2, 5, 6)  # pullover, sandal, shirt
SETTINGS: dict[str, Any] = {
    "network": "conv-small",
    "augment": ("crop=2", "flip"),
    "batch_size": 256,
    "learning_rate": 0.002,
}


def run(
    objectives: tuple[str, ...] = OBJECTIVES,
    seeds: tuple[int, ...] = (1, 2, 3),
    epochs: int = 4,
    width: int = 32,
) -> Table:
    """Recall of classes that were not trained on, by the objective.

    Args:
      objectives: which to train.
      seeds: each is trained once with each.
      epochs: passes over the images of seven classes of Fashion-MNIST.
      width: of conv-small.
    """
    given = SETTINGS | {"epochs": epochs, "network_args": {"width": width}}
    train, test = _images("train"), _images("t10k")
    is_seen, is_held = (~np.isin(train[1], HELD_OUT), np.isin(test[1], HELD_OUT))
    train, test = [x[is_seen] for x in train], [x[is_held] for x in test]
    labels = np.unique(test[1], return_inverse=True)[1]
    queries = choose_queries(labels)
    samples = [
        {"objective": "pixels", "scores": _means(test[0], labels, queries)},
        {
            "objective": "chance",
            "scores": chance(labels, queries).mean(axis=0).tolist(),
        },
    ]
    for seed in seeds:
        for objective in objectives:
            encoder = FeatureEncoder(objective=objective, seed=seed, **given)
            vectors = encoder.fit(*train).transform(test[0])
            scores = _means(vectors, labels, queries)
            sample = {"objective": objective, "seed": seed, "scores": scores}
            sample |= {"train accuracy": encoder.history_[-1]["train_accuracy"]}
            print(sample, flush=True)
            samples.append(sample)
    about = {name: str(value) for name, value in given.items()}
    return table(
        write_results("retrieval", settings=about, held_out=HELD_OUT, samples=samples)
    )


def _images(name: str) -> list[np.ndarray]:
    """Images u8[n, 28, 28] and labels u8[n]."""
    folder = data_folder() / "fashion-mnist"
    kinds = "images-idx3", "labels-idx1"
    return [read_idx(next(folder.glob(f"{name}-{kind}-ubyte*"))) for kind in kinds]


def _means(vectors: np.ndarray, labels: np.ndarray, queries) -> list[float]:
    flat = vectors.reshape(len(vectors), -1).astype(np.float64)
    return retrieval_scores(flat, labels, queries).mean(axis=0).tolist()


def table(results: Results) -> Table:
    """A row for each objective: medians and ranges over seeds."""
    rows = [
        [name, *(spread(x, 3) for x in zip(*(s["scores"] for s in own), strict=True))]
        for name, own in grouped(results["samples"], "objective").items()
    ]
    return Table(["objective", *scores_on("retrieval")[0].names], rows)


BENCHES = {"retrieval": run}
TABLES = {"retrieval": table}
