"""`FeatureEncoder.fit_ensemble`: the networks of `embedder train --replicas`."""

import copy
import pickle

import jax
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss

from embedder.api.encoder_estimator import FeatureEncoder
from embedder.base.limits import Limit
from embedder.cli.main import main
from embedder.encoders import outputs
from embedder.encoders.artefact import read_encoder
from embedder.encoders.predictor import rotated_mean, rotations_to_first
from embedder.errors import InputError
from embedder.metrics.uncertainty import rejection, reliability, split_entropy
from tests.test_feature_encoder import assert_same_layers

K = 3
pytestmark = pytest.mark.usefixtures("quick_compilation")
NAMES = np.array(["red", "green", "blue"])
SETTINGS = {
    "layers": (4, 6, 3),
    "learning_rate": 0.05,
    "batch_size": 8,
    "epochs": 3,
    "optimizer": "adam",
    "seed": 7,
    "dtype": "float64",
}
RNG = np.random.default_rng(0)
LABELS = RNG.integers(3, size=60)
X = RNG.normal(size=(60, 4)) + 1.5 * np.eye(4)[LABELS]
Y = NAMES[LABELS]


def untrained(**options) -> FeatureEncoder:
    return FeatureEncoder(**SETTINGS | options)


@pytest.fixture(scope="module")
def encoder(quick_compilation) -> FeatureEncoder:
    """An encoder with an ensemble, which tests only read."""
    return untrained().fit_ensemble(X, Y, K)


@pytest.fixture(params=[(1, 60), (2, 7), (2, 60), (99, 7)], ids=str)
def ensemble(request, encoder, monkeypatch):
    """It computes so many networks by one `vmap`, and so many examples in a group."""
    at_once, group = request.param
    values = {jax.default_backend(): at_once * 60 * (4 + 6 + 3)}
    monkeypatch.setattr(outputs, "_GROUP", 60)
    monkeypatch.setattr(outputs, "_VALUES", values)
    monkeypatch.setattr(outputs, "_HELD_VALUES", K * group * (6 + 3))
    return encoder.ensemble_


@pytest.mark.slow
@pytest.mark.parametrize("more", ["--bootstrap", "--result last", "--result best"])
def test_the_networks_are_those_of_the_command(own_folder, more):
    np.savez("points.npz", X=X, y=Y)
    command = f"train points.npz --model encoder --layers 4 6 3 --replicas {K}"
    command += " --learning-rate 0.05 --batch-size 8 --epochs 40 --optimizer adam"
    command += " --seed 7 --dtype float64 --validation-fraction 0.2 --loader memory"
    assert main([*command.split(), *more.split(), "--workdir", "run"]) == 0
    result = "best" if "best" in more else "last"
    ours = untrained(validation_fraction=0.2, epochs=40, result=result)
    ours.fit_ensemble(X, Y, K, bootstrap="bootstrap" in more)
    theirs = FeatureEncoder.load("run/model.npz")
    for a, b in zip(ours.ensemble_.members, theirs.ensemble_.members, strict=True):
        assert_same_layers(a, b)
    rotations = ours.ensemble_.rotations, theirs.ensemble_.rotations
    np.testing.assert_array_equal(*rotations)
    assert ours.history_ == theirs.history_
    assert (len(ours.history_) < 40) == (result == "best")
    assert ours.classes_.tolist() == theirs.classes_.tolist()


@pytest.mark.spread(3)
def test_predictions_are_means_over_the_members(ensemble):
    each = np.stack([member.predict_proba(X) for member in ensemble.members])
    found, split = ensemble.entropies(X), split_entropy(each)
    for actual, desired in zip(found, split, strict=True):
        np.testing.assert_allclose(actual, desired, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(ensemble.predict_proba(X), found.probabilities)
    np.testing.assert_allclose(ensemble.member_probabilities(X), each, rtol=1e-12)
    best = ensemble.classes_[each.mean(axis=0).argmax(axis=1)]
    assert ensemble.predict(X).tolist() == best.tolist()
    assert ensemble.score(X, Y) == np.mean(best == Y)
    assert found.model.max() > 0.01


@pytest.mark.spread(3)
def test_embeddings_are_aligned(encoder, ensemble):
    each = np.stack([member.transform(X) for member in ensemble.members])
    rotations = rotations_to_first([each])
    np.testing.assert_allclose(ensemble.rotations, rotations, atol=1e-11)
    desired = rotated_mean(each, rotations)
    np.testing.assert_allclose(ensemble.transform(X), desired, atol=1e-11)
    aligned = ensemble.member_embeddings(X)
    np.testing.assert_allclose(aligned, each @ rotations, atol=1e-11)
    np.testing.assert_allclose(aligned[0], encoder.transform(X), atol=1e-12)
    spread = [np.abs(x - x[0]).mean() for x in (each, aligned)]
    assert spread[1] < 0.8 * spread[0]


@pytest.mark.spread(3)
def test_evaluate_has_the_measures_of_the_mean_prediction(ensemble):
    split, labels = ensemble.entropies(X), np.searchsorted(ensemble.classes_, Y)
    found, p = ensemble.evaluate(X, Y), split.probabilities
    assert (found.num_examples, found.num_networks) == (60, K)
    assert found.accuracy == ensemble.score(X, Y)
    likelihood = log_loss(Y, p, labels=ensemble.classes_)
    np.testing.assert_allclose(found.negative_log_likelihood, likelihood, rtol=1e-12)
    is_correct = p.argmax(axis=1) == labels
    error = reliability(p.max(axis=1), is_correct).calibration_error
    np.testing.assert_allclose(found.reliability.calibration_error, error, rtol=1e-9)
    curve = rejection(is_correct, split.total)
    np.testing.assert_array_equal(found.rejection.accuracy, curve.accuracy)


def test_without_fit_ensemble_there_is_none(encoder):
    assert not hasattr(untrained(), "ensemble_")
    again = copy.deepcopy(encoder).fit(X, Y)
    with pytest.raises(NotFittedError, match="call `fit_ensemble` first"):
        again.ensemble_  # noqa: B018
    assert not hasattr(clone(encoder), "ensemble_")


def test_an_error_keeps_the_ensemble(encoder):
    own = copy.deepcopy(encoder)
    with pytest.raises(ValueError, match="inconsistent"):
        own.fit_ensemble(X, Y[:-1], 2)
    assert len(own.ensemble_) == K


def test_other_examples_and_too_many_are_refused(encoder, monkeypatch):
    with pytest.raises(ValueError, match="X has 3 features, but FeatureEncoder is"):
        encoder.ensemble_.predict(X[:, :3])
    with pytest.raises(InputError, match="`y` must have classes .*, got 'pink'"):
        encoder.ensemble_.evaluate(X, [*Y[:-1], "pink"])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        encoder.ensemble_.evaluate(X, Y[:-1])
    limit = Limit(K * 60 * 6 * 8 - 1, "the test")
    monkeypatch.setattr("embedder.base.limits.memory_limit", lambda: limit)
    with pytest.raises(InputError, match="Embeddings of 3 networks take .* the test"):
        encoder.ensemble_.member_embeddings(X)


@pytest.mark.parametrize("by", ["file", "pickle"])
def test_a_saved_ensemble_is_the_same(encoder, tmp_path, by):
    if by == "file":
        encoder.save(tmp_path / "model.npz")
        assert read_encoder(tmp_path / "model.npz").settings["replicas"] == K
        again = FeatureEncoder.load(tmp_path / "model.npz")
    else:
        again = pickle.loads(pickle.dumps(encoder))
    assert again.get_params() == encoder.get_params()
    for name in ("predict_proba", "transform", "member_embeddings"):
        found, desired = (getattr(x.ensemble_, name)(X) for x in (again, encoder))
        np.testing.assert_array_equal(found, desired)
    seeds = [member.seed for member in again.ensemble_.members]
    assert seeds == [7, 8, 9]


def test_a_member_saves_a_file_of_one_network(encoder, tmp_path):
    encoder.ensemble_.members[1].save(tmp_path / "one.npz")
    again = FeatureEncoder.load(tmp_path / "one.npz")
    assert_same_layers(again, encoder.ensemble_.members[1])
    assert again.seed == 8 and not hasattr(again, "ensemble_")
