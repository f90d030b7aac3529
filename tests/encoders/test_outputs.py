"""Outputs of replicas by `vmap`: those of each network alone."""

import jax
import numpy as np
import pytest

from embedder.encoders import outputs
from embedder.encoders.networks.encoder import Encoder, make_encoder
from embedder.encoders.networks.mlp import MLP
from embedder.encoders.networks.registry import network_for
from embedder.encoders.options import EncoderOptions
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
from tests.encoders.image_cases import make_examples, make_training

K, NETWORK = 4, MLP((6, 9, 5, 3))
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(50, 6)), RNG.integers(3, size=50).astype(np.int32)
NETWORKS = [make_encoder(NETWORK, dtype="float64", seed=seed) for seed in range(K)]
EACH = [encoder.init() for encoder in NETWORKS]
ENCODER, PARAMS = NETWORKS[0], stack_states(EACH)
TOLERANCE = {"rtol": 1e-12, "atol": 1e-12}


@pytest.fixture(params=[1, 3, 99], ids=["one by one", "three at once", "all at once"])
def at_once(request, monkeypatch) -> int:
    """Replicas that one `vmap` has."""
    values = request.param * 50 * (6 + 5 + 3)
    monkeypatch.setattr(outputs, "_GROUP", 50)
    monkeypatch.setattr(outputs, "_VALUES", {jax.default_backend(): values})
    return request.param


@pytest.fixture(params=[50, 7], ids=["one group", "groups of 7"])
def group(request, monkeypatch, at_once) -> int:
    """Examples of a group."""
    monkeypatch.setattr(outputs, "_HELD_VALUES", K * request.param * (5 + 3))
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


@pytest.mark.spread(4)
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


@pytest.mark.spread(2)
def test_replicas_are_evaluated_as_each_network(at_once):
    ids = np.arange(3, 50, dtype=np.int64)
    found = evaluate_replicas(ENCODER, PARAMS, X, Y, ids)
    each = [evaluate(ENCODER, params, X, Y, ids) for params in EACH]
    np.testing.assert_allclose(found, np.mean(each, axis=0), **TOLERANCE)


def test_replicas_are_one_call_for_each_group(group, at_once, monkeypatch):
    calls, compiled = [], outputs._replica_embed

    def counted(*arguments):
        calls.append(arguments)
        return compiled(*arguments)

    monkeypatch.setattr(outputs, "_replica_embed", counted)
    joined(embed_replicas(ENCODER, PARAMS, X), group)
    assert len(calls) == -(-50 // group)
    first, _, params, _ = calls[0]
    assert first == at_once
    assert {len(x) for x in jax.tree.leaves(params)} == {K}


def test_many_large_networks_have_small_groups():
    large = MLP((784, 512, 10))
    sizes = [
        outputs._group_size(make_encoder(large, dtype="float32", seed=0), 10**6, num)
        for num in (1, 200, 10**9)
    ]
    assert sizes[0] == 1024 and sizes[2] == 1
    assert 200 * sizes[1] * (512 + 10) <= 2**26 and sizes[1] > 200


def test_small_networks_are_computed_together():
    """By `vmap`; large ones one after another, on a CPU."""
    encoders = [
        make_encoder(network, dtype="float32", seed=0)
        for network in (MLP((2, 32, 2)), MLP((784, 9)))
    ]
    on_cpu = [outputs._num_at_once(encoder) for encoder in encoders]
    if jax.default_backend() == "cpu":
        assert on_cpu[0] > 16 and on_cpu[1] == 1


def image_network(name: str, size: int, *arguments: str) -> Encoder:
    options = EncoderOptions(network=name, network_args=arguments)
    network = network_for(options, (size, size, 3), 3)
    return make_encoder(network, dtype="float32", seed=0)


def test_groups_are_small_where_activations_are_large():
    """A bound for many examples; few are not padded to many, but for small networks."""
    large = image_network("resnet", 224)
    of_many = outputs._group_size(large, 10**6)
    assert 1 < of_many < 128
    needed = outputs.group_bytes(large, 10**6, 1)
    assert needed <= outputs._MARGIN * outputs._activation_limit()
    assert [outputs._group_size(large, num) for num in (1, 3, 9)] == [2, 4, 16]
    assert outputs._group_size(image_network("conv-small", 28), 10**6) == 1024
    small = make_encoder(NETWORK, dtype="float32", seed=0)
    assert [outputs._group_size(small, num) for num in (0, 1, 10**6)] == [1024] * 3


@pytest.mark.slow
@pytest.mark.parametrize("name", ["conv-small", "vit", "mlp"])
def test_outputs_are_those_of_any_group(name, monkeypatch):
    """Of one network, and of the mlp also of replicas."""
    network = make_training(name).network
    encoders = [make_encoder(network, dtype="float64", seed=seed) for seed in range(2)]
    models = [encoder.init() for encoder in encoders]
    encoder, model, several = encoders[0], models[0], stack_states(models)
    examples, ids = make_examples(), np.arange(2, 25, dtype=np.int64)
    images, data = examples.features, (examples.features, examples.labels, ids)

    def everything() -> list[np.ndarray]:
        found = [embed(encoder, model, images)]
        found.append(np.array(evaluate(encoder, model, *data)))
        if name == "mlp":
            groups = score_replicas(encoder, several, images)
            found.append(np.concatenate([*groups], axis=1))
            found.append(np.array(evaluate_replicas(encoder, several, *data)))
        return found

    monkeypatch.setattr(outputs, "_FEW_ACTIVATIONS", 0)
    monkeypatch.setattr(outputs, "_GROUP", 64)  # of 27 examples 32 are a group
    whole = everything()
    monkeypatch.setattr(outputs, "_GROUP", 4)
    for found, desired in zip(everything(), whole, strict=True):
        np.testing.assert_allclose(found, desired, **TOLERANCE)


def test_one_network_has_its_own_outputs():
    one = Predictor(ENCODER, EACH[0], has_replicas=False)
    assert one.rotations(X) is None and one.num_networks == 1
    np.testing.assert_array_equal(one.vectors(X, None), embed(ENCODER, EACH[0], X))
    found = one.predict(X)
    desired = probabilities(ENCODER, EACH[0], X)
    np.testing.assert_array_equal(found.probabilities, desired)
    np.testing.assert_array_equal(found.total, found.data)
    assert (found.model == 0).all()


@pytest.mark.spread(2)
@pytest.mark.parametrize("has_replicas", [False, True])
def test_predictions_and_embeddings_are_those_of_either_alone(group, has_replicas):
    predictor = Predictor(
        ENCODER, PARAMS if has_replicas else EACH[0], has_replicas=has_replicas
    )
    rotations = predictor.rotations(X)
    found, vectors = predictor.predict_and_embed(X, rotations, Y)
    alone = predictor.predict_labelled(X, Y)
    np.testing.assert_allclose(vectors, predictor.vectors(X, rotations), **TOLERANCE)
    for ours, theirs in ((found.split, alone.split), (found[1:], alone[1:])):
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(one, other, **TOLERANCE)


def test_embeddings_that_do_not_fit_in_memory_are_refused(monkeypatch):
    limit = Limit(K * 50 * 5 * 8 - 1, "the test")
    monkeypatch.setattr("embedder.limits.memory_limit", lambda: limit)
    predictor = Predictor(ENCODER, PARAMS, has_replicas=True)
    rotations = predictor.rotations(X)
    with pytest.raises(InputError, match="Embeddings of 4 networks take .* the test"):
        predictor.each_vectors(X, rotations)
