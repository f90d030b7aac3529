"""The port against the asynchronous oracle: alike in what can be measured, not in bits.

The oracle's processes write to shared tables in an order that no seed fixes, so two
runs of it differ. The port has to be as near to such a run as another such run is.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

import embedder
import legacy
from embedder.config import Config
from migration.parity.difference import Difference
from migration.parity.training import Sequences, Trainer, nearest, trainer

Score = Callable[[Trainer], float]

_QUERIES = 1000  # of the most frequent tokens
_WORKERS = 2


class _Runs(NamedTuple):
    """Trainings from one seed."""

    port: Trainer
    oracle: tuple[Trainer, Trainer]


def workers_rung(
    config: Config,
    sequences: Sequences,
    seeds: Sequence[int],
    scores: dict[str, Score] | None = None,
) -> Iterator[Difference]:
    """Loss, neighbours and scores after a whole training, over several seeds.

    A value passes when the port's mean is no farther from the mean of the oracle's runs
    than these are from each other; neighbours in common, when the port has as many with
    a run of the oracle as that has with another, but for the spread of that number.

    Args:
      scores: what else to measure of a trained model, by name.
    """
    measures = {"loss of the last epoch": _last_loss} | (scores or {})
    port: dict[str, list[float]] = {name: [] for name in measures}
    oracle: dict[str, list[float]] = {name: [] for name in measures}
    shared, between = [], []
    for seed in seeds:
        runs = _train(config, sequences, seed)
        for name, measure in measures.items():
            port[name].append(measure(runs.port))
            oracle[name] += [measure(each) for each in runs.oracle]
        rankings = [_neighbours(each) for each in (runs.port, *runs.oracle)]
        shared += [_in_common(rankings[0], each) for each in rankings[1:]]
        between.append(_in_common(*rankings[1:]))
    for name in measures:
        gap = abs(np.mean(port[name]) - np.mean(oracle[name]))
        yield _line(name, gap, np.mean(oracle[name]), np.ptp(oracle[name]), config)
    missing = max(np.mean(between) - np.mean(shared), 0.0)
    yield _line(
        "neighbours in common, of 10",
        missing,
        np.mean(between),
        max(np.ptp(between), np.ptp(shared)),
        config,
    )


def _train(config: Config, sequences: Sequences, seed: int) -> _Runs:
    oracle = (
        trainer(legacy.EmbeddingTrainer, config, seed=seed, workers=_WORKERS).fit(
            sequences
        )
        for _ in range(2)
    )
    port = trainer(embedder.EmbeddingTrainer, config, seed=seed).fit(sequences)
    return _Runs(port, tuple(oracle))


def _last_loss(trained: Trainer) -> float:
    return trained.loss_history[-1]


def _neighbours(trained: Trainer) -> list[set[str]]:
    tokens = trained.index_to_key[:_QUERIES]
    return [{key for key, _ in ranking} for ranking in nearest(trained, tokens)]


def _in_common(a: list[set[str]], b: list[set[str]]) -> float:
    return float(np.mean([len(x & y) for x, y in zip(a, b, strict=True)]))


def _line(quantity: str, gap, scale, spread, config: Config) -> Difference:
    return Difference(
        rung="workers",
        dtype=config.model.dtype,
        quantity=quantity,
        size=1,
        absolute=float(gap),
        relative=float(gap / abs(scale)) if scale else float(gap),
        tolerance=float(spread),
        passed=bool(gap <= spread),
    )
