import jax
import numpy as np
import optax
import pytest

from embedder.encoders.networks.encoder import make_encoder
from embedder.encoders.networks.mlp import MLP
from embedder.encoders.networks.network import Model
from embedder.encoders.update import (
    Batches,
    Learning,
    initial_state,
    loss_sums,
    pad_batches,
    updates_function,
)
from embedder.engine.exchange import Exchange

ENCODER = make_encoder(MLP((3, 5, 2)), dtype="float64", seed=1)
OPTIMIZER = optax.sgd(0.1, momentum=0.9)
UPDATES = jax.jit(
    updates_function(Learning(ENCODER), lambda rates: OPTIMIZER, Exchange())
)
RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(9, 3))
LABELS = RNG.integers(2, size=9).astype(np.int32)
IDS = RNG.permutation(9)[:8].reshape(2, 4).astype(np.int32)  # two updates of four


def first_state():
    return initial_state(ENCODER.init(), OPTIMIZER)


def batches(ids=IDS, num: int | None = None, weights=None) -> Batches:
    """Updates of these examples, by their features."""
    weights = np.ones(ids.shape) if weights is None else weights
    real = np.array([len(ids) if num is None else num], np.int32)
    return Batches(FEATURES[ids], LABELS[ids], None, weights, real)


def by_ids(ids=IDS) -> Batches:
    return batches(ids)._replace(features=FEATURES, labels=LABELS, ids=ids)


def after(batches: Batches):
    """The state and the sums after them, of NumPy."""
    with jax.enable_x64(True):
        return jax.device_get(UPDATES(first_state(), batches))


def assert_same(actual, desired, **tolerance) -> None:
    leaves = zip(jax.tree.leaves(actual), jax.tree.leaves(desired), strict=True)
    for ours, theirs in leaves:
        np.testing.assert_allclose(ours, theirs, **({"rtol": 0} | tolerance))


def test_initial_state_is_at_step_0_with_zero_slots():
    state = first_state()
    assert state.step == 0
    slots = jax.tree.leaves(state.opt_state)
    assert [type(x) for x in slots] == 4 * [np.ndarray]
    assert all(x.dtype == np.float64 and not x.any() for x in slots)


def test_examples_of_no_weight_change_nothing():
    padded = np.concatenate([IDS, [[8, 0], [8, 8]]], axis=1)
    weights = np.repeat([[1.0, 0.0]], [4, 2], axis=1).repeat(2, axis=0)
    assert_same(
        after(batches(padded, weights=weights)),
        after(batches()),
        rtol=1e-12,
        atol=1e-14,
    )


def test_an_order_within_a_batch_changes_nothing():
    assert_same(after(batches(IDS[:, ::-1])), after(batches()), rtol=1e-12, atol=1e-14)


def test_batches_by_ids_equal_batches_by_features():
    assert_same(after(by_ids()), after(batches()))


@pytest.mark.parametrize("num", [0, 1])
def test_padding_updates_are_not_applied(num):
    state, sums = after(batches(num=num))
    desired, some = after(batches(IDS[:num])) if num else (first_state(), None)
    assert_same(state, desired)
    assert state.step == num
    for name, values in sums._asdict().items():
        assert not values[num:].any()
        assert not num or values[0] == getattr(some, name)[0]


def test_two_calls_equal_one():
    with jax.enable_x64(True):
        state, _ = UPDATES(first_state(), batches(IDS[:1]))
        twice, _ = UPDATES(state, batches(IDS[1:]))
    assert_same(jax.device_get(twice), after(batches())[0])


def test_padding_is_not_in_the_sums():
    weights, sums = np.array([1.0, 0.0, 1.0, 0.0]), jax.jit(loss_sums, static_argnums=0)
    with jax.enable_x64(True):
        model = Model(first_state().params)
        part = FEATURES[:4], LABELS[:4], weights
        some, kept = (
            jax.device_get(sums(ENCODER, model, *(x[::step] for x in part)))
            for step in (1, 2)
        )
    assert_same(some, kept, rtol=1e-12)
    assert some.num_examples == 2


# --- padding


def test_padding_has_weight_zero():
    padded = pad_batches(batches(), 6)
    assert padded.features.shape == (2, 6, 3)
    assert padded.labels.shape == (2, 6)
    assert padded.weights.tolist() == 2 * [[1, 1, 1, 1, 0, 0]]
    assert padded.num.tolist() == [2]


def test_the_whole_set_of_examples_is_not_padded():
    padded = pad_batches(by_ids(), 6)
    assert padded.features is FEATURES and padded.labels is LABELS
    assert padded.ids.tolist() == [[*row, 0, 0] for row in IDS]
    assert padded.weights.sum() == 8


def test_full_batches_are_not_padded():
    full = batches()
    assert pad_batches(full, 4) is full


@pytest.mark.parametrize("made", [batches, by_ids])
def test_padding_changes_no_update(made):
    assert_same(after(pad_batches(made(), 6)), after(made()), rtol=1e-12, atol=1e-14)
