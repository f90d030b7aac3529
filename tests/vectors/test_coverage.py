"""How often intervals of similarities cover the true ones, on simulated corpora; how
stable rare words are.

A corpus is drawn from a known process of four topics. The true similarity of two
tokens is the mean over independent corpora of the same size, trained without a
bootstrap: what an interval from one corpus should tell.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest
from scipy.stats import spearmanr

from embedder import EmbeddingTrainer

TOKENS = [f"t{i:02d}" for i in range(24)]
TOPICS, SEQUENCES, LENGTH = 4, 300, 10
REPLICAS = 20
CORPORA, OTHERS = 40, 30
OPTIONS = {"vector_size": 4, "min_count": 1, "sample": 0, "epochs": 10, "alpha": 0.05}


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


def similarities(sequences: list[list[str]], seed: int, bootstrap: bool):
    """Of the replicas of a training, as `Ensemble.neighbors` returns them."""
    trainer = EmbeddingTrainer(**OPTIONS, seed=seed)
    trainer.fit_ensemble(sequences, REPLICAS, bootstrap=bootstrap)
    assert sorted(trainer.index_to_key) == TOKENS
    near = trainer.ensemble_.neighbors(TOKENS, topn=len(TOKENS))
    found = [[each[1:4] for each in sorted(row)] for row in near]
    return Similarities(*np.moveaxis(found, 2, 0))


def simulated(seeds: range, bootstrap: bool) -> Iterator[Similarities]:
    """Of a corpus for each of `seeds`; no two trainings share the seed of a replica."""
    given = topics()
    for seed in seeds:
        sequences = corpus(np.random.default_rng([7, seed]), given)
        yield similarities(sequences, 1 + seed * REPLICAS, bootstrap)


def coverage(found: list[Similarities], true: np.ndarray) -> np.ndarray:
    """Share of the intervals that cover the true similarity, for each pair."""
    inside = [(each.lower <= true) & (true <= each.upper) for each in found]
    return np.mean(inside, axis=0)


@pytest.mark.slow
def test_intervals_of_a_bootstrap_cover_the_similarity_in_other_corpora():
    """Those of seeds alone have nothing of what another corpus would change."""
    others = [*simulated(range(CORPORA, CORPORA + OTHERS), bootstrap=False)]
    true = np.mean([each.mean for each in others], axis=0)
    found = [*simulated(range(CORPORA), bootstrap=True)]
    assert 0.85 <= coverage(found, true).mean() <= 0.95
    assert coverage(others, true).mean() < 0.7


@pytest.mark.slow
def test_rare_words_are_less_stable(data_folder):
    """Up to some hundred occurrences: words like "the" are near to all others."""
    trainer = EmbeddingTrainer(min_count=5, alpha=0.05)
    trainer.fit_ensemble(data_folder / "small-text/wikitext2-valid.txt.gz", 5)
    ensemble = trainer.ensemble_
    order = np.argsort(ensemble.counts, kind="stable")
    stability = ensemble.stability(ensemble.tokens)[order]
    counts = ensemble.counts[order]
    assert spearmanr(counts, stability).statistic > 0.3
    edges = np.searchsorted(counts, [8, 20, 50, 300])
    medians = [np.median(part) for part in np.split(stability, edges)[:4]]
    assert medians == sorted(medians)
    assert medians[0] < medians[3] / 2
