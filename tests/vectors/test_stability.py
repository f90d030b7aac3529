"""Stability falls with rarity, where tokens are used alike and where they are words."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from embedder import EmbeddingTrainer
from embedder.vectors.ensemble import Ensemble

TOPICS, SIZE, SEQUENCES, LENGTH = 20, 12, 1000, 10


def planted(rng: np.random.Generator) -> list[list[str]]:
    """A sequence has half its tokens of its topic, the others of any topic.

    In each topic the shares of tokens fall by Zipf's law, and nothing else differs. A
    topic has eleven tokens beside each: about as many as stability compares.
    """
    share = 1 / np.arange(1, SIZE + 1) ** 1.5
    shape = SEQUENCES, LENGTH
    topic = rng.integers(TOPICS, size=(SEQUENCES, 1))
    topic = np.where(rng.random(shape) < 0.5, topic, rng.integers(TOPICS, size=shape))
    rank = rng.choice(SIZE, size=shape, p=share / share.sum())
    return [
        [f"{t}-{r}" for t, r in zip(*each, strict=True)]
        for each in zip(topic, rank, strict=True)
    ]


def by_count(ensemble: Ensemble) -> tuple[np.ndarray, np.ndarray]:
    """Counts and stabilities of all tokens, the rarest first."""
    order = np.argsort(ensemble.counts, kind="stable")
    return ensemble.counts[order], ensemble.stability(ensemble.tokens)[order]


@pytest.mark.slow
@pytest.mark.parametrize("bootstrap", [False, True], ids=["seeds", "bootstrap"])
def test_rare_tokens_of_a_topic_are_less_stable(bootstrap):
    trainer = EmbeddingTrainer(
        **{"vector_size": 16, "min_count": 1, "sample": 0, "epochs": 10, "alpha": 0.05}
    )
    sequences = planted(np.random.default_rng(0))
    trainer.fit_ensemble(sequences, 8, bootstrap=bootstrap)
    counts, stability = by_count(trainer.ensemble_)
    assert counts[0] < 10 and counts[-1] > 100
    assert spearmanr(counts, stability).statistic > 0.4
    rare, _, _, frequent = map(np.median, np.array_split(stability, 4))
    assert rare < frequent - 0.1


@pytest.mark.slow
def test_rare_words_are_less_stable(data_folder):
    """Up to some hundred occurrences: words like "the" are near to all others."""
    trainer = EmbeddingTrainer(min_count=5, alpha=0.05)
    trainer.fit_ensemble(data_folder / "small-text/wikitext2-valid.txt.gz", 5)
    counts, stability = by_count(trainer.ensemble_)
    assert spearmanr(counts, stability).statistic > 0.3
    edges = np.searchsorted(counts, [8, 20, 50, 300])
    medians = [np.median(part) for part in np.split(stability, edges)[:4]]
    assert medians == sorted(medians)
    assert medians[0] < medians[3] / 2
