"""The objectives of encoders against plain NumPy, in cases that are worked by hand."""

import numpy as np
import pytest

from migration.parity import encoder_objectives as stage
from migration.parity import objectives as oracle
from migration.parity.encoder_objectives import Case, compared, loss_lines
from tests.parity.encoder_cases import subject

SMALL = {"shape": (5,), "kind": np.float64, "classes": 3, "num": 40}
COMPARED = {each.name: each for each in compared(3)}
BY_EMBEDDINGS = ["supcon", "triplet"]


def case_of(labels, weights=None, dtype="float64") -> Case:
    """A batch of which only the labels and weights are used; of three classes."""
    weights = np.ones(len(labels)) if weights is None else np.asarray(weights)
    return Case(np.zeros(0), np.array(labels, np.int32), weights.astype(dtype), 3)


def assert_equal(
    name: str, inputs, case: Case, *, has_slope: bool = True
) -> oracle.Loss:
    """Port and oracle agree; returns what the oracle has.

    Args:
      has_slope: whether the loss is differentiable there.
    """
    inputs = np.asarray(inputs, case.weights.dtype)
    *lines, last = loss_lines(COMPARED[name], inputs, case)
    assert len(lines) == 2 + (inputs.dtype == np.float64)
    assert has_slope or "finite differences" in last.quantity
    lines += [last] if has_slope else []
    assert [line for line in lines if not line.passed] == []
    return COMPARED[name].loss(inputs, case)


def random_embeddings(num: int, size: int = 4) -> np.ndarray:
    return np.random.default_rng(num).normal(size=(num, size))


# --- cases


@pytest.mark.spread(2)
@pytest.mark.parametrize("name", BY_EMBEDDINGS)
@pytest.mark.parametrize(
    ("labels", "counts"),
    [([0, 1, 2], [0, 0, 0]), ([1, 1, 2, 0], [1, 1, 0, 0])],
    ids=["no example", "some examples"],
)
def test_examples_without_another_of_their_class_do_not_count(name, labels, counts):
    found = assert_equal(name, random_embeddings(len(labels)), case_of(labels))
    assert found.counts.tolist() == counts
    assert (found.mean > 0) == found.slope.any() == any(counts)


def test_a_batch_of_one_class_has_no_triplet():
    found = assert_equal("triplet", random_embeddings(4), case_of([2, 2, 2, 2]))
    assert found.mean == 0 and not found.counts.any() and not found.slope.any()


def test_a_batch_of_one_class_has_contrast():
    """All others are positives: the best is that all are equally near."""
    found = assert_equal("supcon", np.ones((4, 3)), case_of([2, 2, 2, 2]))
    np.testing.assert_allclose(found.losses, np.log(3))
    np.testing.assert_allclose(found.slope, 0, atol=1e-15)


@pytest.mark.spread(2)
@pytest.mark.parametrize("name", COMPARED)
def test_padding_changes_nothing(name):
    """As if it were not there; its own gradient is 0."""
    labels, num = np.array([0, 1, 1, 0, 2, 2, 1, 1], np.int32), 6
    rng = np.random.default_rng(0)
    inputs = rng.uniform(-1, 1, (8, 3))
    padded = assert_equal(name, inputs, case_of(labels, [1.0] * num + [0, 0]))
    cut = assert_equal(name, inputs[:num], case_of(labels[:num]))
    assert padded.mean == pytest.approx(cut.mean, rel=1e-14) and cut.mean > 0
    np.testing.assert_allclose(padded.slope[:num], cut.slope, atol=1e-15)
    assert not padded.slope[num:].any() and not padded.counts[num:].any()


def test_class_weights_weigh_examples_as_often():
    """Weights 1, 2, 3 of three classes: as examples that are there as many times."""
    scores = random_embeddings(3, 3)
    plain = oracle.softmax(
        np.repeat(scores, [1, 2, 3], axis=0), np.array([0, 1, 1, 2, 2, 2]), np.ones(6)
    )
    found = oracle.softmax(scores, np.arange(3), np.ones(3), 0.0, (1, 2, 3))
    assert found.mean == pytest.approx(plain.mean, rel=1e-14)
    assert_equal("softmax", scores, case_of([0, 1, 2]))


def test_smoothing_by_hand():
    """Two classes with equal scores: log 2, whatever the target; e / 2 of the other."""
    found = oracle.softmax(np.zeros((1, 2)), np.array([0]), np.ones(1), 0.2)
    assert found.mean == pytest.approx(np.log(2))
    np.testing.assert_allclose(found.slope, [[0.5 - 0.9, 0.5 - 0.1]])


@pytest.mark.parametrize("angle", [0.3, 2.6, 2.7, 3.1])
def test_arcface_on_both_sides_of_pi_minus_margin(angle):
    """The margin is 0.5: past 2.64 the score is the line."""
    scale, margin = COMPARED["arcface"].objective.scale, 0.5
    scores = scale * np.array([[np.cos(angle), 0.2, -0.1]])
    found = assert_equal("arcface", scores, case_of([0]))
    expected = scores.copy()
    expected[0, 0] = scale * (
        np.cos(angle + margin)
        if angle < np.pi - margin
        else np.cos(angle) - margin * np.sin(margin)
    )
    shares = {"smoothing": 0.2, "class_weights": (1, 2, 3)}
    case = case_of([0])
    by_hand = oracle.softmax(expected, case.labels, case.weights, **shares)
    assert found.mean == pytest.approx(by_hand.mean, rel=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("cosine", [1.0, -1.0])
def test_arcface_has_a_gradient_at_cosines_of_one(cosine, dtype):
    """Where the derivative of the angle is not finite. The port takes an angle of 2
    sqrt(eps) for 0."""
    case, each = case_of([0], dtype=dtype), COMPARED["arcface"]
    inputs = np.array([[8 * cosine, 0, 0]], dtype)
    losses, _, slope, *_ = loss_lines(each, inputs, case)
    assert losses.absolute <= 8 * 2 * np.finfo(dtype).eps ** 0.5
    assert slope.absolute < 10  # of scores; inf if one was not finite


AXES = np.array([[2.0, 0, 0], [0, 4, 0], [0, 0, 1], [-1, 0, 0]])
"""Embeddings whose products are exact: 0, 1 and -1."""


@pytest.mark.parametrize("name", BY_EMBEDDINGS)
@pytest.mark.parametrize(
    "embeddings",
    [AXES[[0, 1, 2, 2, 2, 1]], AXES[[0, 0, 0, 0, 0, 0]], AXES[[0, 1, 3, 3, 0, 0]]],
    ids=["equal negatives", "all equal", "as far as the positive"],
)
def test_ties(name, embeddings):
    case = case_of([0, 0, 1, 1, 2, 2])
    assert assert_equal(name, embeddings, case, has_slope=name != "triplet").mean > 0


def test_the_negative_of_a_triplet_by_hand():
    """Anchor and positive are at a right angle, d = 2: of negatives at 0, 2 and 4 the
    last is the nearest that is farther; without it the farthest is at 2."""
    anchor, right, opposite = AXES[0], AXES[1], AXES[3]
    embeddings = np.stack([anchor, right, anchor, AXES[2], opposite])
    case = case_of([0, 0, 1, 2, 2])
    weights = np.array([1.0, 1, 1, 1, 1])
    case = case._replace(weights=weights)
    found = assert_equal("triplet", embeddings, case, has_slope=False)
    assert found.losses[0] == 0  # 2 - 4 + 0.5
    weights = np.array([1.0, 1, 1, 1, 0])
    case = case._replace(weights=weights)
    found = assert_equal("triplet", embeddings, case, has_slope=False)
    assert found.losses[0] == 0.5  # 2 - 2 + 0.5


def test_two_views_contrast_by_hand():
    """Two examples, whose views are the same: log(1 + 2 exp(-1 / t)) each."""
    found = assert_equal("simclr", AXES[[0, 0, 1, 1]], case_of([0, 0, 0, 0]))
    temperature = COMPARED["simclr"].objective.temperature
    np.testing.assert_allclose(found.losses, np.log(1 + 2 * np.exp(-1 / temperature)))


@pytest.mark.spread(2)
@pytest.mark.parametrize("name", BY_EMBEDDINGS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_embedding_of_zeros_stays_where_it_is(name, dtype):
    """It has no direction; its gradient would be that of a division by zero."""
    embeddings = random_embeddings(6)
    embeddings[0] = 0
    case = case_of([0, 0, 1, 1, 2, 2], dtype=dtype)
    # The loss jumps where it gets a direction.
    found = assert_equal(name, embeddings, case, has_slope=dtype == "float32")
    assert not found.slope[0].any() and found.slope[1:].any()


@pytest.mark.spread(2)
@pytest.mark.parametrize("name", COMPARED)
def test_an_update_by_each_objective_is_the_oracles(name):
    case = stage.first_case(subject(**SMALL), "float64")
    lines = list(stage.objective_lines(COMPARED[name], case, seed=1))
    assert len(lines) == 5
    assert [line for line in lines if not line.passed] == []
