"""The port against the asynchronous oracle: statistically equal, not bit-equal.

The oracle's processes write to shared tables in a random order, so two of its trainings
differ. The port must be as similar to one of them as they are to each other.
"""

import copy
import itertools
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


def workers_stage(
    config: Config,
    sequences: Sequences,
    seeds: Sequence[int],
    scores: dict[str, Score] | None = None,
) -> Iterator[Difference]:
    """Neighbours and scores after whole trainings with several seeds.

    The loss is not compared: asynchronous processes change it by some tenths of a
    percent, as much as two of their trainings differ.

    Args:
      scores: name -> function that evaluates a trained model.
    """
    scores = scores or {}
    port, oracle = {name: [] for name in scores}, {name: [] for name in scores}
    rankings = []
    for seed in seeds:
        ours, *theirs = _train(config, sequences, seed)
        for name, score in scores.items():
            port[name].append(score(ours))
            oracle[name] += [score(each) for each in theirs]
        rankings.append([_neighbours(each) for each in (ours, *theirs)])
    shared, between = [], []
    for (ours, *theirs), (_, *others) in _pairs(rankings):
        shared += [_in_common(ours, each) for each in others]
        between += [_in_common(*each) for each in itertools.product(theirs, others)]
    dtype = config.run.dtype
    for name in scores:
        yield compare_scores(name, port[name], oracle[name], dtype)
    yield compare_neighbours(shared, between, dtype)


def compare_scores(
    quantity: str, port: Sequence[float], oracle: Sequence[float], dtype: str
) -> Difference:
    """Passes if the means differ by no more than the range of the oracle's runs."""
    gap = abs(np.mean(port) - np.mean(oracle))
    return _line(quantity, gap, np.mean(oracle), np.ptp(oracle), dtype)


def compare_neighbours(
    shared: Sequence[float], between: Sequence[float], dtype: str
) -> Difference:
    """Passes if port and oracle have as many neighbours in common as two oracle runs.

    Args:
      shared: neighbours in common of the port and runs of the oracle with other seeds.
      between: of runs of the oracle with different seeds. The larger range of both is
        the tolerance.
    """
    missing = max(np.mean(between) - np.mean(shared), 0.0)
    spread = max(np.ptp(between), np.ptp(shared))
    quantity = f"neighbours in common, of {TOPN}"
    return _line(quantity, missing, np.mean(between), spread, dtype)


def _pairs(rankings: list) -> Iterator[tuple]:
    """The trainings of each seed with those of each other seed.

    Two trainings of the oracle from one seed may be equal, where the text is short:
    its processes then take turns. With one seed there are no others than these.
    """
    pairs = itertools.permutations(rankings, 2)
    return pairs if len(rankings) > 1 else iter([(rankings[0], rankings[0])])


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
        stage="workers",
        dtype=dtype,
        quantity=quantity,
        size=1,
        absolute=float(gap),
        relative=float(gap / abs(scale)) if scale else float(gap),
        tolerance=float(spread),
        passed=bool(gap <= spread),
    )
