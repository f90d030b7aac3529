"""Outputs of replicas by `vmap`: those of each network alone."""

import jax
import numpy as np
import pytest

from embedder.base.limits import Limit
from embedder.encoders import outputs
from embedder.encoders.networks.encoder import Encoder
from embedder.encoders.networks.mlp import MLP
from embedder.encoders.outputs import (
    embed,
    embed_groups,
    evaluate,
    probabilities,
    score_groups,
    softmax,
)
from embedder.encoders.predictor import Predictor
from embedder.engine.replicas import stack_states
from embedder.errors import InputError
from embedder.metrics.uncertainty import split_entropy

K, NETWORK = 4, MLP((6, 9, 5, 3))
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(50, 6)), RNG.integers(3, size=50).astype(np.int32)
NETWORKS = [Encoder(NETWORK, dtype="float64", seed=seed) for seed in range(K)]
EACH = [encoder.init() for encoder in NETWORKS]
ENCODER, PARAMS = NETWORKS[0], stack_states(EACH)
TOLERANCE = {"rtol": 1e-12, "atol": 1e-12}


@pytest.fixture(params=[1, 3, 99])
def at_once(request, monkeypatch) -> int:
    """Replicas that one `vmap` has."""
    values = request.param * 50 * (6 + 5 + 3)
    monkeypatch.setattr(outputs, "_GROUP", 50)
    monkeypatch.setattr(outputs, "_VALUES", {jax.default_backend(): values})
    return request.param


@pytest.fixture(params=[50, 7])
def group(request, monkeypatch, at_once) -> int:
    """Examples of a group."""
    monkeypatch.setattr(outputs, "_HELD_VALUES", K * request.param * (5 + 3))
    return request.param


def joined(groups, size: int) -> np.ndarray:
    found = [*groups]
    assert [x.shape[1] for x in found[:-1]] == [size] * (len(found) - 1)
    return np.concatenate(found, axis=1)


@pytest.mark.spread(4)
def test_replicas_embed_as_each_network(group):
    found = joined(embed_groups(ENCODER, PARAMS, X), group)
    each = np.stack([embed(ENCODER, params, X) for params in EACH])
    np.testing.assert_allclose(found, each, **TOLERANCE)
    assert found.shape == (K, 50, 5) and found.dtype == np.float64


@pytest.mark.spread(4)
def test_replicas_predict_as_each_network(group):
    scores = joined(score_groups(ENCODER, PARAMS, X), group)
    each = np.stack([probabilities(ENCODER, params, X) for params in EACH])
    np.testing.assert_allclose(softmax(scores), each, **TOLERANCE)
    predictor = Predictor(ENCODER, PARAMS, has_replicas=True)
    np.testing.assert_allclose(predictor.each_probabilities(X), each, **TOLERANCE)
    desired, found = split_entropy(each), predictor.predict(X)
    for a, b in zip(found, desired, strict=True):
        np.testing.assert_allclose(a, b, **TOLERANCE)
    labelled = predictor.predict_labelled(X, Y)
    for a, b in zip(labelled.split, desired, strict=True):
        np.testing.assert_allclose(a, b, **TOLERANCE)
    logs = np.log(desired.probabilities[range(50), Y])
    np.testing.assert_allclose(labelled.log_likelihood, logs, **TOLERANCE)


@pytest.mark.spread(2)
def test_replicas_are_evaluated_as_each_network(at_once):
    ids = np.arange(3, 50, dtype=np.int64)
    found = evaluate(ENCODER, PARAMS, X, Y, ids, num=None)
    each = [evaluate(ENCODER, params, X, Y, ids) for params in EACH]
    np.testing.assert_allclose(found, np.mean(each, axis=0), **TOLERANCE)


def test_embeddings_that_do_not_fit_in_memory_are_refused(monkeypatch):
    limit = Limit(K * 50 * 5 * 8 - 1, "the test")
    monkeypatch.setattr("embedder.base.limits.memory_limit", lambda: limit)
    predictor = Predictor(ENCODER, PARAMS, has_replicas=True)
    rotations = predictor.rotations(X)
    with pytest.raises(InputError, match="Embeddings of 4 networks take .* the test"):
        predictor.each_vectors(X, rotations)
