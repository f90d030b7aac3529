"""Outputs of replicas by `vmap`: those of each network alone."""

import jax
import numpy as np
import pytest

from embedder.encoders import outputs
from embedder.encoders.networks import MLP, initial_params, make_encoder
from embedder.encoders.outputs import (
    embed,
    embed_replicas,
    evaluate,
    evaluate_replicas,
    probabilities,
    score_replicas,
    softmax,
)
from embedder.encoders.predictor import Predictor
from embedder.encoders.uncertainty import split_entropy
from embedder.engine.replicas import stack_states
from embedder.errors import InputError
from embedder.limits import Limit

K, NETWORK = 4, MLP((6, 9, 5, 3))
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(50, 6)), RNG.integers(3, size=50).astype(np.int32)
NETWORKS = [make_encoder(NETWORK, dtype="float64", seed=seed) for seed in range(K)]
EACH = [initial_params(encoder) for encoder in NETWORKS]
ENCODER, PARAMS = NETWORKS[0], stack_states(EACH)
TOLERANCE = {"rtol": 1e-12, "atol": 1e-12}


@pytest.fixture(params=[50, 7], ids=["one group", "groups of 7"])
def group(request, monkeypatch) -> int:
    """Examples that all replicas compute at once."""
    values = K * request.param * (6 + 5 + 3)
    monkeypatch.setattr(outputs, "_REPLICA_VALUES", values)
    return request.param


def joined(groups, size: int) -> np.ndarray:
    found = [*groups]
    assert [x.shape[1] for x in found[:-1]] == [size] * (len(found) - 1)
    return np.concatenate(found, axis=1)


def test_replicas_embed_as_each_network(group):
    found = joined(embed_replicas(ENCODER, PARAMS, X), group)
    each = np.stack([embed(ENCODER, params, X) for params in EACH])
    np.testing.assert_allclose(found, each, **TOLERANCE)
    assert found.shape == (K, 50, 5) and found.dtype == np.float64


def test_replicas_predict_as_each_network(group):
    scores = joined(score_replicas(ENCODER, PARAMS, X), group)
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


def test_replicas_are_evaluated_as_each_network(group):
    ids = np.arange(3, 50, dtype=np.int64)
    found = evaluate_replicas(ENCODER, PARAMS, X, Y, ids)
    each = [evaluate(ENCODER, params, X, Y, ids) for params in EACH]
    np.testing.assert_allclose(found, np.mean(each, axis=0), **TOLERANCE)


def test_replicas_are_one_call_for_each_group(group, monkeypatch):
    calls = []
    compiled = outputs._replica_embed

    def counted(*arguments):
        calls.append(arguments)
        return compiled(*arguments)

    monkeypatch.setattr(outputs, "_replica_embed", counted)
    joined(embed_replicas(ENCODER, PARAMS, X), group)
    assert len(calls) == -(-50 // group)
    assert {len(x) for x in jax.tree.leaves(calls[0][1])} == {K}


def test_many_large_networks_compute_few_examples_at_once():
    large = MLP((784, 512, 10))
    assert outputs._replica_group(large, {"a": {"w": np.empty((1, 0))}}) == 1024
    several = outputs._replica_group(large, {"a": {"w": np.empty((100, 0))}})
    assert 100 * several * (784 + 512 + 10) <= 2**24 and several > 100
    assert outputs._replica_group(large, {"a": {"w": np.empty((10**6, 0))}}) == 1


def test_one_network_has_its_own_outputs():
    one = Predictor(ENCODER, EACH[0], has_replicas=False)
    assert one.rotations(X) is None and one.num_networks == 1
    np.testing.assert_array_equal(one.vectors(X, None), embed(ENCODER, EACH[0], X))
    found = one.predict(X)
    desired = probabilities(ENCODER, EACH[0], X)
    np.testing.assert_array_equal(found.probabilities, desired)
    np.testing.assert_array_equal(found.total, found.data)
    assert (found.model == 0).all()


def test_embeddings_that_do_not_fit_in_memory_are_refused(monkeypatch):
    limit = Limit(K * 50 * 5 * 8 - 1, "the test")
    monkeypatch.setattr("embedder.limits.memory_limit", lambda: limit)
    predictor = Predictor(ENCODER, PARAMS, has_replicas=True)
    rotations = predictor.rotations(X)
    with pytest.raises(InputError, match="Embeddings of 4 networks take .* the test"):
        predictor.each_vectors(X, rotations)
