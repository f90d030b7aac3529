"""Replicas of tables: each is the model that a run of its seed trains."""

import math

import jax
import numpy as np
import pytest

from embedder import EmbeddingTrainer
from embedder.config import Config, common_config, resolve, with_options
from embedder.engine.epochs import run_epochs
from embedder.errors import InputError
from embedder.tables.corpus import sequences_corpus
from embedder.tables.encode import encode
from embedder.tables.training import Training

EPOCHS = range(2)
SEED = 5


@pytest.fixture(scope="module")
def encoded():
    """Tokens with the frequencies of a text, so that `sample` leaves some out."""
    rng = np.random.default_rng(0)
    shares = 1 / np.arange(1, 201) ** 0.9
    words = [f"w{i}" for i in range(200)]
    chosen = (
        rng.choice(words, p=shares / shares.sum(), size=rng.integers(5, 30))
        for _ in range(300)
    )
    return encode(sequences_corpus(map(list, chosen)), 1)


def small_config(**options) -> Config:
    small = {"vector_size": 10, "blocks_per_update": 2, "block": 16, "tile": 4}
    small |= {"dtype": "float64", "seed": SEED, "loader": "memory", "noise": 6}
    small |= {"save_every": "16"}  # so a call has 16 updates
    return with_options(Config(), epochs=len(EPOCHS), **small | options)


def training(encoded, **options) -> Training:
    config = small_config(**options)
    return Training(resolve(config, encoded.num_tokens), encoded, EPOCHS)


def trained(encoded, **options):
    planned = training(encoded, **options)
    return run_epochs(planned, planned.initial_state())


def replica(state, number: int):
    return jax.tree.map(lambda x: np.asarray(x)[number], state)


def assert_equal(one, other, atol: float = 0.0) -> None:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    for a, b in pairs:
        np.testing.assert_allclose(a, b, rtol=atol, atol=atol)


@pytest.mark.spread(1)
@pytest.mark.parametrize(
    "options",
    [
        {"backend": "xla"},
        {"backend": "xla", "optimizer": "adagrad"},
        {"backend": "xla", "architecture": "cbow"},
        {"backend": "xla", "update": "dense"},
        {"backend": "numba"},
        {"backend": "numba", "optimizer": "adagrad", "architecture": "cbow"},
        {"backend": "numba", "threads": 3, "dtype": "float32"},
        {"backend": "numba", "window": "session"},
        {"backend": "xla", "window": "session"},
        pytest.param({"backend": "xla", "loader": "tfdata"}, marks=pytest.mark.slow),
    ],
    ids=lambda options: " ".join(map(str, options.values())),
)
def test_a_replica_is_the_model_of_its_seed(encoded, options):
    """Over two epochs of more than 100 updates, with all that the optimizer keeps."""
    together = trained(encoded, replicas=3, **options)
    assert together.position.updates > 100
    models = [trained(encoded, seed=SEED + k, **options) for k in range(3)]
    for k, model in enumerate(models):
        own = replica(together.state, k)
        rounding = 1e-12 if options["backend"] == "xla" else 0
        assert_equal((own.params, own.opt_state), model.state[:2], rounding)
    assert len({model.position.updates for model in models}) > 1
    assert not np.array_equal(*(m.state.params["tables"]["input"] for m in models[:2]))
    losses = np.array([model.position.losses for model in models])
    np.testing.assert_allclose(together.position.losses, losses.mean(axis=0), rtol=1e-2)


OWN_SETTINGS = (
    {"alpha": 0.05, "min_alpha": 0.01},
    {"window": 2, "negative": 3, "seed": 9},
    {"sample": 1e-2, "ns_exponent": 0.0, "max_pairs_per_row": 3.0},
    {"window": 7, "max_pairs_per_row": math.inf, "sample": 0.0},
    {"window": "session", "alpha": 0.02},
)
"""Of models that are trained side by side."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"backend": "xla"},
        {"backend": "xla", "architecture": "cbow"},
        {"backend": "xla", "update": "dense"},
        {"backend": "xla", "optimizer": "adagrad"},
        {"backend": "numba"},
        {"backend": "numba", "architecture": "cbow", "optimizer": "adagrad"},
    ],
    ids=lambda options: " ".join(map(str, options.values())),
)
def test_models_with_own_settings_are_those_of_runs_of_their_own(encoded, options):
    """Adagrad has no limit of pairs."""
    has_limit = options.get("optimizer") != "adagrad"
    own = [
        {name: x for name, x in each.items() if has_limit or "pairs" not in name}
        for each in OWN_SETTINGS
    ]
    together = trained_side_by_side(encoded, [options | each for each in own])
    rounding = 1e-12 if options["backend"] == "xla" else 0
    for k, each in enumerate(own):
        alone = trained(encoded, **options | each)
        found = replica(together.state, k)
        assert alone.position.updates > 100
        assert_equal((found.params, found.opt_state), alone.state[:2], rounding)


def trained_side_by_side(encoded, options):
    models = [resolve(small_config(**each), encoded.num_tokens) for each in options]
    largest = max((model.tables for model in models), key=lambda x: x.max_distance)
    common = common_config(models, window=largest.window)
    planned = Training(common, encoded, EPOCHS, models=models)
    return run_epochs(planned, planned.initial_state())


@pytest.mark.parametrize("backend", ["xla", "numba"])
def test_models_with_other_settings_share_a_program(encoded, backend):
    options = {"window": 3, "backend": backend}
    models = [
        [small_config(**options, alpha=alpha) for alpha in alphas]
        for alphas in ((0.05, 0.01), (0.02, 0.03))
    ]
    one, other = (
        Training(common_config(each), encoded, EPOCHS, models=each)
        for each in (
            [resolve(model, encoded.num_tokens) for model in group] for group in models
        )
    )
    if backend == "xla":
        assert one.program is other.program


@pytest.mark.parametrize("backend", ["xla", "numba"])
def test_replicas_resume_after_any_update(encoded, backend):
    """Also where one replica has no more updates in its epoch, and another has."""
    options = {"replicas": 3, "backend": backend}
    planned = training(encoded, **options)
    snapshots = []
    whole = run_epochs(
        planned,
        planned.initial_state(),
        lambda status: snapshots.append(status.snapshot()),
    )
    assert len(snapshots) > 6
    for snapshot in snapshots:
        again = training(encoded, **options)
        end = run_epochs(again, snapshot.state, start=snapshot.position)
        assert_equal(end.state[:2], whole.state[:2])
        assert end.position.losses == pytest.approx(whole.position.losses, rel=1e-12)


def test_an_update_needs_memory_for_every_replica(encoded):
    one, four = training(encoded), training(encoded, replicas=4)
    assert four.memory["tables"] == 4 * one.memory["tables"]
    assert four.memory["vocabulary"] == one.memory["vocabulary"]
    assert four.device_memory["tables"] == 4 * one.device_memory["tables"]
    assert "replicas: 4, trained as with the seeds 5 to 8" in four.description


def test_the_number_of_replicas_is_checked():
    with pytest.raises(
        InputError, match="`replicas` must be an integer from 1 to 65536, got 0"
    ):
        with_options(Config(), replicas=0)


def sequences() -> list[list[str]]:
    rng = np.random.default_rng(1)
    return [[f"w{i}" for i in rng.integers(20, size=12)] for _ in range(60)]


@pytest.mark.slow
@pytest.mark.parametrize("bootstrap", [False, True])
def test_fit_ensemble_trains_the_models_of_consecutive_seeds(bootstrap):
    options = {"vector_size": 6, "min_count": 1, "epochs": 2, "dtype": "float64"}
    trainer = EmbeddingTrainer(seed=3, **options)
    assert trainer.fit_ensemble(sequences(), 3, bootstrap=bootstrap) is trainer
    models = [EmbeddingTrainer(seed=3 + k, **options) for k in range(3)]
    singles = [model.fit(sequences()) for model in models]
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


@pytest.mark.slow
def test_a_trainer_after_fit_ensemble_is_one_of_the_first_model(tmp_path):
    trainer = EmbeddingTrainer(vector_size=6, min_count=1, epochs=1)
    with pytest.raises(RuntimeError, match="call `fit_ensemble` first"):
        trainer.ensemble_  # noqa: B018 - it raises
    single = EmbeddingTrainer(vector_size=6, min_count=1, epochs=1).fit(sequences())
    trainer.fit_ensemble(sequences(), 2)
    trainer.save(tmp_path / "model.npz")
    loaded = EmbeddingTrainer.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.vectors, trainer.vectors)
    np.testing.assert_allclose(trainer.vectors, single.vectors, rtol=0, atol=1e-6)
    trainer.partial_fit(sequences())
    with pytest.raises(RuntimeError, match="call `fit_ensemble` first"):
        trainer.ensemble_  # noqa: B018 - it raises


@pytest.mark.parametrize("replicas", [1, 0, 2.5])
def test_an_ensemble_has_at_least_two_replicas(replicas):
    with pytest.raises((ValueError, TypeError), match="`replicas` must be an integer"):
        EmbeddingTrainer().fit_ensemble(sequences(), replicas)
