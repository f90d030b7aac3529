"""Models side by side: each is that of a run of its own."""

import math

import numpy as np
import pytest

from embedder import EmbeddingTrainer
from embedder.api.train import train
from embedder.config import Config, with_options
from embedder.sweep.space import Choices, with_settings
from embedder.sweep.sweep import sweep
from tests.commands import json_lines

SMALL = {"vector_size": 6, "min_count": 1, "epochs": 2, "dtype": "float64"}
LINES = [
    [f"w{i}" for i in line]
    for line in np.random.default_rng(1).integers(20, size=(60, 12))
]
SPACE = {"window": (2, "session"), "alpha": (0.05, 0.02)}
LIMITS = {"max_pairs_per_row": (3.0, math.inf)}
SETS = {
    "xla": ({"backend": "xla"}, LIMITS | {"sample": (0.0, 1e-2)}),
    "cbow": ({"backend": "xla", "architecture": "cbow"}, LIMITS),
    "dense": ({"backend": "xla", "update": "dense"}, LIMITS),
    "adagrad": (
        {"backend": "xla", "optimizer": "adagrad"},
        {"ns_exponent": (0.0, 0.75)},
    ),
    "numba": ({"backend": "numba"}, LIMITS | {"min_alpha": (0.0, 0.01)}),
    "numba cbow": (
        {"backend": "numba", "architecture": "cbow", "optimizer": "adagrad"},
        {},
    ),
    # Models of one objective: others draw other numbers of noise ids.
    "hs": ({"backend": "xla", "hs": True}, {"negative": (0, 5)}),
    "numba hs": ({"backend": "numba", "hs": True}, {"negative": (0, 5)}),
}


@pytest.mark.row("B84")
@pytest.mark.slow
@pytest.mark.parametrize(("options", "more"), SETS.values(), ids=SETS)
def test_models_with_own_settings_are_those_of_runs_of_their_own(
    tmp_path, options, more
):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(map(" ".join, LINES)))
    small = SMALL | {"block": 16, "tile": 4, "blocks_per_update": 2, "seed": 5}
    config = with_options(Config(), loader="memory", **small | options)
    space = {name: Choices(values) for name, values in (SPACE | more).items()}
    outcome = sweep(config, space, str(corpus), tmp_path / "sweep")
    assert len(outcome.results) == 1 + 2 ** len(space)  # and the settings themselves
    is_exact = options["backend"] == "numba"
    for result in outcome.results[:: 1 if is_exact else 3]:  # XLA compiles each run
        number, settings = result.trial
        own = with_settings(with_options(config, holdout=0.05), settings)
        train(own, tmp_path / str(number), str(corpus))
        expected = json_lines(tmp_path / f"{number}/metrics.jsonl")[-1]["held_out"]
        tolerance = 0 if is_exact else 1e-12
        assert result.score == pytest.approx(expected, rel=tolerance, abs=0)


@pytest.mark.slow
@pytest.mark.parametrize("bootstrap", [False, True])
def test_fit_ensemble_trains_the_models_of_consecutive_seeds(bootstrap, tmp_path):
    trainer = EmbeddingTrainer(seed=3, **SMALL)
    assert trainer.fit_ensemble(LINES, 3, bootstrap=bootstrap) is trainer
    singles = [EmbeddingTrainer(seed=3 + k, **SMALL).fit(LINES) for k in range(3)]
    ensemble = trainer.ensemble_
    assert ensemble.vectors.shape == (3, 20, 6)
    assert ensemble.tokens == trainer.index_to_key
    np.testing.assert_array_equal(trainer.vectors, ensemble.vectors[0])
    differences = [
        np.abs(ensemble.vectors[k] - model.vectors).max()
        for k, model in enumerate(singles)
    ]
    if bootstrap:
        assert min(differences) > 1e-3
    else:
        assert max(differences) < 1e-12
        losses = np.mean([model.loss_history for model in singles], axis=0)
        np.testing.assert_allclose(trainer.loss_history, losses, rtol=1e-2)
    # It is a trainer of the first model.
    trainer.save(tmp_path / "model.npz")
    loaded = EmbeddingTrainer.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.vectors, trainer.vectors)
    trainer.partial_fit(LINES)
    with pytest.raises(RuntimeError, match="call `fit_ensemble` first"):
        trainer.ensemble_  # noqa: B018 - it raises
