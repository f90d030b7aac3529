"""How often intervals of similarities cover the true ones, on simulated corpora.

A corpus is drawn from a known process of four topics. The true similarity of two
tokens is the mean over independent corpora of the same size, trained without a
bootstrap: what an interval from one corpus should tell.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest

from embedder.config import Config, resolve, with_options
from embedder.engine.epochs import run_epochs
from embedder.tables.corpus import sequences_corpus
from embedder.tables.encode import encode
from embedder.tables.training import Training
from embedder.vectors.ensemble import Ensemble

TOKENS = [f"t{i:02d}" for i in range(24)]
TOPICS, SEQUENCES, LENGTH = 4, 300, 10
REPLICAS = 20
CORPORA, OTHERS = 40, 30
OPTIONS = {"vector_size": 4, "min_count": 1, "sample": 0, "epochs": 10, "alpha": 0.05}
OPTIONS |= {"backend": "numba", "loader": "memory", "replicas": REPLICAS}


class Similarities(NamedTuple):
    """Of all pairs of tokens [V, V - 1], each token's in the order of the others."""

    mean: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


def corpus(rng: np.random.Generator, topics: np.ndarray) -> list[list[str]]:
    """Sequences that mix a few of the `topics`, whose rows are shares of tokens."""
    mixtures = rng.dirichlet(np.full(TOPICS, 0.3), SEQUENCES)
    return [list(rng.choice(TOKENS, LENGTH, p=share)) for share in mixtures @ topics]


def topics() -> np.ndarray:
    """Each topic has six tokens of its own, and shares of all, f64[topics, V]."""
    soft = np.random.default_rng(99).dirichlet(np.full(len(TOKENS), 0.7), TOPICS)
    own = np.repeat(np.eye(TOPICS), len(TOKENS) // TOPICS, axis=1)
    return 0.6 * own / own.sum(axis=1, keepdims=True) + 0.4 * soft


def similarities(sequences: list[list[str]], **options) -> Similarities:
    """Of the replicas of a training, as `Ensemble.neighbors` returns them."""
    encoded = encode(sequences_corpus(sequences), 1)
    config = resolve(with_options(Config(), **OPTIONS | options), encoded.num_tokens)
    training = Training(config, encoded, range(config.run.epochs))
    vectors = run_epochs(training, training.initial_state()).state.params["tables"]
    known = encoded.vocabulary
    assert sorted(known.tokens) == TOKENS
    ensemble = Ensemble(known.tokens, vectors["input"], known.counts)
    found = [
        [near[1:4] for near in sorted(each)]
        for each in ensemble.neighbors(TOKENS, topn=len(TOKENS))
    ]
    return Similarities(*np.moveaxis(found, 2, 0))


def simulated(seeds: range, **options) -> Iterator[Similarities]:
    """Of a corpus for each of `seeds`; no two trainings share the seed of a replica."""
    given = topics()
    for seed in seeds:
        sequences = corpus(np.random.default_rng([7, seed]), given)
        yield similarities(sequences, seed=1 + seed * REPLICAS, **options)


@pytest.fixture(scope="module")
def others() -> list[Similarities]:
    """Trainings that differ by their corpus, and replicas by their seed alone."""
    return [*simulated(range(CORPORA, CORPORA + OTHERS), bootstrap=False)]


def coverage(found: list[Similarities], true: np.ndarray) -> np.ndarray:
    """Share of the intervals that cover the true similarity, for each pair."""
    lower, upper = (
        np.array([getattr(s, x) for s in found]) for x in Similarities._fields[1:]
    )
    return ((lower <= true) & (true <= upper)).mean(axis=0)


@pytest.mark.slow
def test_intervals_of_a_bootstrap_cover_the_similarity_in_other_corpora(others):
    true = np.mean([each.mean for each in others], axis=0)
    found = [*simulated(range(CORPORA), bootstrap=True)]
    assert 0.85 <= coverage(found, true).mean() <= 0.95


@pytest.mark.slow
def test_intervals_of_seeds_alone_cover_it_much_less(others):
    """They have what the seed changes, and nothing of what another corpus would."""
    true = np.mean([each.mean for each in others], axis=0)
    assert coverage(others, true).mean() < 0.7
