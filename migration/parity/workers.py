"""The port against the asynchronous oracle: alike in what can be measured, not in bits.

The oracle's processes write to shared tables in an order that no seed fixes, so two
runs of it differ. The port has to be as near to such a run as another such run is.
"""

import copy
from collections.abc import Callable, Iterator, Sequence

import numpy as np

import embedder
import legacy
from embedder.config import Config
from migration.parity.difference import Difference
from migration.parity.training import TOPN, Sequences, Trainer, nearest, trainer

Score = Callable[[Trainer], float]

_QUERIES = 1000  # of the most frequent tokens
_WORKERS = 2


def workers_rung(
    config: Config,
    sequences: Sequences,
    seeds: Sequence[int],
    scores: dict[str, Score] | None = None,
) -> Iterator[Difference]:
    """Neighbours and scores after a whole training, over several seeds.

    Not the loss: processes that do not wait for each other shift it by some tenths of a
    percent, which is no less than two of their runs differ by.

    Args:
      scores: what to measure of a trained model, by name.
    """
    scores = scores or {}
    port, oracle = {name: [] for name in scores}, {name: [] for name in scores}
    shared, between = [], []
    for seed in seeds:
        ours, *theirs = _train(config, sequences, seed)
        for name, score in scores.items():
            port[name].append(score(ours))
            oracle[name] += [score(each) for each in theirs]
        rankings = [_neighbours(each) for each in (ours, *theirs)]
        shared += [_in_common(rankings[0], each) for each in rankings[1:]]
        between.append(_in_common(*rankings[1:]))
    dtype = config.run.dtype
    for name in scores:
        yield compare_scores(name, port[name], oracle[name], dtype)
    yield compare_neighbours(shared, between, dtype)


def compare_scores(
    quantity: str, port: Sequence[float], oracle: Sequence[float], dtype: str
) -> Difference:
    """Passes where the means are no farther apart than the oracle's runs are."""
    gap = abs(np.mean(port) - np.mean(oracle))
    return _line(quantity, gap, np.mean(oracle), np.ptp(oracle), dtype)


def compare_neighbours(
    shared: Sequence[float], between: Sequence[float], dtype: str
) -> Difference:
    """Passes where port and oracle share as many neighbours as two runs of the oracle.

    Args:
      shared: neighbours in common of the port and each run of the oracle.
      between: those of two runs of the oracle; the spread of both numbers is allowed.
    """
    missing = max(np.mean(between) - np.mean(shared), 0.0)
    spread = max(np.ptp(between), np.ptp(shared))
    quantity = f"neighbours in common, of {TOPN}"
    return _line(quantity, missing, np.mean(between), spread, dtype)


def _train(config: Config, sequences: Sequences, seed: int) -> list[Trainer]:
    """One training of the port, two of the oracle."""
    oracle = trainer(legacy.EmbeddingTrainer, config, seed=seed, workers=_WORKERS)
    return [
        trainer(embedder.EmbeddingTrainer, config, seed=seed).fit(sequences),
        copy.copy(oracle).fit(sequences),
        copy.copy(oracle).fit(sequences),
    ]


def _neighbours(trained: Trainer) -> list[set[str]]:
    tokens = trained.index_to_key[:_QUERIES]
    return [{key for key, _ in ranking} for ranking in nearest(trained, tokens)]


def _in_common(a: list[set[str]], b: list[set[str]]) -> float:
    return float(np.mean([len(x & y) for x, y in zip(a, b, strict=True)]))


def _line(quantity: str, gap, scale, spread, dtype: str) -> Difference:
    return Difference(
        rung="workers",
        dtype=dtype,
        quantity=quantity,
        size=1,
        absolute=float(gap),
        relative=float(gap / abs(scale)) if scale else float(gap),
        tolerance=float(spread),
        passed=bool(gap <= spread),
    )
