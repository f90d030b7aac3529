"""node2vec by gensim: labels of nodes from biased random walks.

Grover and Leskovec 2016, arXiv:1607.00653. A step is proposed uniformly, and accepted
with the weight of node2vec, which is the same as choosing it by these weights.
"""

import argparse
import json
import time

import numpy as np
import polars as pl
from gensim.models import Word2Vec
from sklearn.linear_model import LogisticRegression

P, Q = 1.0, 0.5
NUM_WALKS, LENGTH = 10, 80


def read_graph(path: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Names of the nodes; the neighbours of node i: targets[starts[i]:starts[i+1]]."""
    edges = pl.read_csv(path, separator="\t", has_header=False).to_numpy()
    names, ids = np.unique(edges, return_inverse=True)
    ids = ids.reshape(edges.shape)
    both = np.unique(np.concatenate([ids, ids[:, ::-1]]), axis=0)
    starts = np.searchsorted(both[:, 0], np.arange(len(names) + 1))
    return names, starts, both[:, 1]


def walk_all(
    starts: np.ndarray, targets: np.ndarray, length: int, rng: np.random.Generator
) -> np.ndarray:
    """A walk from each node, ids [nodes, length]."""
    num_nodes, degrees = len(starts) - 1, np.diff(starts)
    keys = np.repeat(np.arange(num_nodes), degrees) * num_nodes + targets
    walks = np.empty((num_nodes, length), np.int64)
    walks[:, 0] = np.arange(num_nodes)
    most = max(1 / P, 1, 1 / Q)
    for step in range(1, length):
        at = walks[:, step - 1]
        waiting = np.arange(num_nodes)
        while len(waiting):
            here = at[waiting]
            offsets = (rng.random(len(here)) * degrees[here]).astype(np.int64)
            proposed = targets[starts[here] + offsets]
            weights = np.full(len(here), most)
            if step > 1:
                before = walks[waiting, step - 2]
                edge = before * num_nodes + proposed
                found = keys[np.searchsorted(keys, edge).clip(max=len(keys) - 1)]
                weights = np.where(found == edge, 1.0, 1 / Q)
                weights[proposed == before] = 1 / P
            accepted = rng.random(len(here)) * most < weights
            walks[waiting[accepted], step] = proposed[accepted]
            waiting = waiting[~accepted]
    return walks


def micro_f1(vectors: np.ndarray, has_label: np.ndarray) -> float:
    """Of the labels of half of the nodes; of each node as many as it has."""
    order = np.random.default_rng(0).permutation(len(vectors))
    known, rest = np.split(order, [len(order) // 2])
    scores = np.full((len(rest), has_label.shape[1]), -np.inf)
    for label in range(has_label.shape[1]):
        if len(np.unique(has_label[known, label])) == 2:
            regression = LogisticRegression(solver="liblinear")
            regression.fit(vectors[known], has_label[known, label])
            scores[:, label] = regression.decision_function(vectors[rest])
    ranks = (-scores).argsort(axis=1).argsort(axis=1)
    predicted = ranks < has_label[rest].sum(axis=1, keepdims=True)
    return (predicted & has_label[rest]).sum() / has_label[rest].sum()


parser = argparse.ArgumentParser()
parser.add_argument("edges")
parser.add_argument("labels")
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--limit", type=int, default=LENGTH, help="nodes of a walk")
arguments = parser.parse_args()

names, starts, targets = read_graph(arguments.edges)
rng = np.random.default_rng(arguments.seed)
rounds = [walk_all(starts, targets, arguments.limit, rng) for _ in range(NUM_WALKS)]
walks = names.astype(str)[np.concatenate(rounds)].tolist()
start = time.perf_counter()
model = Word2Vec(
    walks,
    sg=1,
    vector_size=128,
    window=10,
    min_count=0,
    epochs=1,
    workers=2,
    seed=arguments.seed,
)
seconds = time.perf_counter() - start
labels = pl.read_csv(arguments.labels, separator="\t", has_header=False).to_numpy()
nodes, rows = np.unique(labels[:, 0], return_inverse=True)
classes, columns = np.unique(labels[:, 1], return_inverse=True)
has_label = np.zeros((len(nodes), len(classes)), bool)
has_label[rows, columns] = True
vectors = model.wv[[str(node) for node in nodes]]
scores = {"micro F1": micro_f1(vectors, has_label)}
print(json.dumps({"seconds": seconds, "scores": scores}))
