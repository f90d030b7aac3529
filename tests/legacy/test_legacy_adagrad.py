"""Adagrad by rows: against arithmetic by hand, and what a trainer keeps of it."""

import json
import math

import numpy as np
import pytest

from legacy import EmbeddingTrainer
from legacy.blocks import Blocks
from legacy.model import check_settings, default_alpha
from legacy.update import State, apply_update, train_epochs
from tests.legacy.test_legacy_model import DEFAULTS
from tests.legacy.test_legacy_trainer import SMALL, cats_and_cars, same
from tests.legacy.test_legacy_update import (
    TOLERANCE,
    corpus_and_plan,
    dense_sums,
    options,
    random_tables,
    random_update,
)

ADAGRAD = {"optimizer": "adagrad", "cap": None}


@pytest.fixture(params=["skipgram", "cbow"])
def architecture(request) -> str:
    return request.param


@pytest.fixture
def corpus() -> list[list[str]]:
    return [[str(token) for token in sequence] for sequence in cats_and_cars()]


def sigma(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def dot(a, b) -> float:
    return a[0] * b[0] + a[1] * b[1]


def plus(*terms):
    """Sum of (factor, row) in the plane."""
    return [sum(factor * row[d] for factor, row in terms) for d in (0, 1)]


def test_two_tokens_and_one_noise_id_by_hand():
    """Skip-gram: token 0 has context 1 and the reverse; id 2 is noise of both."""
    v = [[0.3, -0.2], [0.1, 0.4], [9.0, 9.0]]
    u = [[0.5, 0.2], [-0.1, 0.7], [0.6, -0.3]]
    before = [[0.25, 0.0, 0.5], [0.0, 1.0, 0.0]]
    state = State(np.array([v, u]), np.array(before))
    made = Blocks(
        np.array([[0, 1]], np.int32),
        np.array([[0, 0]], np.int32),
        np.array([[1, 1]], np.int8),
        np.array([[[2]]], np.int32),
    )
    apply_update(
        state,
        made,
        rate=0.1,
        cap=math.inf,
        architecture="skipgram",
        window=1,
        negative=1,
    )
    noise = sigma(dot(v[0], u[2])), sigma(dot(v[1], u[2]))
    pair = -sigma(-dot(v[0], u[1])), -sigma(-dot(v[1], u[0]))
    gradients = {
        (0, 0): plus((pair[0], u[1]), (noise[0], u[2])),
        (0, 1): plus((pair[1], u[0]), (noise[1], u[2])),
        (1, 0): plus((pair[1], v[1])),
        (1, 1): plus((pair[0], v[0])),
        (1, 2): plus((noise[0], v[0]), (noise[1], v[1])),
    }
    for (table, row), g in gradients.items():
        a = before[table][row] + (g[0] ** 2 + g[1] ** 2) / 2
        expected = [
            (v, u)[table][row][d] - 0.1 * g[d] / (math.sqrt(a) + 1e-8) for d in (0, 1)
        ]
        assert state.accumulators[table, row] == pytest.approx(a, rel=1e-14)
        assert state.tables[table, row] == pytest.approx(expected, rel=1e-14)
    assert state.tables[0, 2].tolist() == [9.0, 9.0]  # the row does not occur
    assert state.accumulators[0, 2] == 0.5


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("num_ids", [1, 7, 40, 5000])
def test_updates_are_those_by_whole_tables(architecture, num_ids, dtype):
    """Ids repeat, also between blocks, and the last block has padding."""
    tables = random_tables(num_ids, dtype)
    state = State(tables.copy(), np.zeros((2, num_ids), dtype))
    expected, sums = tables.astype(np.float64), np.zeros((2, num_ids))
    for _ in range(3):
        made = random_update(num_ids)
        gradient, _ = dense_sums(expected, made, architecture)
        sums += (gradient**2).mean(axis=-1)
        expected -= 0.1 * gradient / (np.sqrt(sums) + 1e-8)[..., np.newaxis]
        apply_update(state, made, **options(architecture))
    assert state.tables.dtype == state.accumulators.dtype == dtype
    tolerance = TOLERANCE[dtype] * max(1, sums.max())
    np.testing.assert_allclose(state.tables, expected, rtol=0, atol=tolerance)
    np.testing.assert_allclose(state.accumulators, sums, rtol=0, atol=tolerance)


def test_padding_changes_nothing(architecture):
    made = random_update(40)
    empty = Blocks(*(np.zeros_like(field[:1]) for field in made))
    empty.sequence[:] = -1
    state = State(random_tables(40), np.zeros((2, 40)))
    before = State(*map(np.copy, state))
    apply_update(state, empty, **options(architecture))
    for after, was in zip(state, before, strict=True):
        np.testing.assert_array_equal(after, was)


def test_the_cap_does_not_apply():
    first, second = (State(random_tables(7), np.zeros((2, 7))) for _ in "ab")
    apply_update(first, random_update(7), **options("skipgram", cap=0.5))
    apply_update(second, random_update(7), **options("skipgram", cap=np.inf))
    np.testing.assert_array_equal(first.tables, second.tables)


def test_training_that_diverges_names_alpha_alone():
    arrays, plan = corpus_and_plan(10_000, alpha=1e30, cap=math.inf)
    state = [random_tables(30, "float32"), np.zeros((2, 30), "float32")]
    with pytest.raises(FloatingPointError, match=r"in epoch 0: lower `alpha`\.$"):
        train_epochs(state, arrays, plan, 0, 1)


def test_accumulators_that_overflow_are_divergence():
    """Steps would be 0 from then on, and all rows finite."""
    arrays, plan = corpus_and_plan(10_000)
    state = [random_tables(30, "float32"), np.full((2, 30), np.inf, "float32")]
    with pytest.raises(FloatingPointError, match="diverged in epoch 0"):
        train_epochs(state, arrays, plan, 0, 1)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_fit_learns(corpus, architecture, dtype):
    trainer = EmbeddingTrainer(
        **SMALL, **ADAGRAD, architecture=architecture, dtype=dtype
    ).fit(corpus)
    assert trainer.loss_history[-1] < 0.9 * trainer.loss_history[0]
    near = {token for token, _ in trainer.most_similar("cat", topn=3)}
    assert near == {"purr", "fur", "paw"}
    found = trainer._model.accumulators
    assert found.shape == (2, 8) and found.dtype == dtype and (found > 0).all()
    plain = EmbeddingTrainer(**SMALL, architecture=architecture, dtype=dtype)
    assert plain.fit(corpus)._model.accumulators is None


def test_partial_fit_goes_on_with_the_accumulators(corpus, architecture):
    given = SMALL | ADAGRAD | {"alpha": 0.02, "min_alpha": 0.02}  # one rate
    given["architecture"] = architecture
    twice = EmbeddingTrainer(**given | {"epochs": 2}).fit(corpus)
    once = EmbeddingTrainer(**given | {"epochs": 1}).fit(corpus)
    kept = once._model
    before = kept.accumulators.copy()
    assert same(once.partial_fit(corpus), twice)
    np.testing.assert_array_equal(kept.accumulators, before)  # training changed a copy
    once._model = kept._replace(accumulators=None)
    assert not same(once.partial_fit(corpus), twice)
    assert same(once.fit(corpus), EmbeddingTrainer(**given | {"epochs": 1}).fit(corpus))


def test_the_optimizer_may_be_set_anew(corpus, tmp_path):
    trainer = EmbeddingTrainer(**SMALL).fit(corpus)
    trainer.optimizer = "adagrad"
    trainer.save(tmp_path / "model.npz")
    assert not EmbeddingTrainer.load(tmp_path / "model.npz")._model.accumulators.any()
    assert trainer.partial_fit(corpus)._model.accumulators.all()
    trainer.optimizer = "sgd"
    assert trainer.partial_fit(corpus)._model.accumulators is None


@pytest.mark.spread(1)
def test_workers_share_the_accumulators(architecture):
    """Many tokens: with few, each update of a worker overwrites rows of the other."""
    rng = np.random.default_rng(5)
    corpus = [[str(token) for token in rng.integers(1000, size=20)] for _ in range(500)]
    given = SMALL | ADAGRAD | {"architecture": architecture}
    alone = EmbeddingTrainer(**given).fit(corpus)
    several = EmbeddingTrainer(**given, workers=2).fit(corpus)
    np.testing.assert_allclose(several.loss_history, alone.loss_history, rtol=0.1)
    # Of all blocks, not of one worker's half; no accumulator ever falls.
    ratio = several._model.accumulators / alone._model.accumulators
    assert 0.8 < np.median(ratio) < 1.25
    before = several._model.accumulators
    several.partial_fit(corpus)
    assert (several._model.accumulators > before).all()


def test_a_model_file_goes_on_as_if_it_had_not_stopped(corpus, architecture, tmp_path):
    path = tmp_path / "model.npz"
    trainer = EmbeddingTrainer(**SMALL, **ADAGRAD, architecture=architecture)
    trainer.fit(corpus).save(path)
    loaded = EmbeddingTrainer.load(path)
    assert same(loaded, trainer) and repr(loaded) == repr(trainer)
    assert same(loaded.partial_fit(corpus[:90]), trainer.partial_fit(corpus[:90]))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"optimizer": "adam"}, "`optimizer` must be 'sgd' or 'adagrad', got 'adam'"),
        ({"cap": 4.0}, "`cap` applies only to `optimizer` = 'sgd', got 4.0"),
    ],
    ids=["unknown", "cap"],
)
def test_a_file_with_other_settings_of_the_optimizer_is_refused(
    corpus, tmp_path, changes, reason
):
    path = tmp_path / "model.npz"
    EmbeddingTrainer(**SMALL, **ADAGRAD).fit(corpus).save(path)
    with np.load(path) as members:
        members = dict(members)
    settings = json.loads(members["settings"].tobytes()) | changes
    members["settings"] = np.frombuffer(json.dumps(settings).encode(), np.uint8)
    np.savez(path, **members)
    with pytest.raises(ValueError, match=f"is not a whole model file: {reason}"):
        EmbeddingTrainer.load(path)


@pytest.mark.parametrize("cap", [64.0, math.inf])
def test_a_cap_is_refused(cap):
    with pytest.raises(ValueError) as error:
        EmbeddingTrainer(optimizer="adagrad", cap=cap)
    expected = f"`cap` applies only to `optimizer` = 'sgd', got {cap}."
    assert str(error.value) == expected


def test_a_cap_set_later_is_refused_by_fit(corpus):
    trainer = EmbeddingTrainer(optimizer="adagrad")
    trainer.cap = 64.0
    with pytest.raises(ValueError, match="`cap` applies only to"):
        trainer.fit(corpus)


def test_alpha_is_one_for_both_architectures_and_all_corpora():
    assert {
        default_alpha(architecture, num_tokens, "adagrad")
        for architecture in ("skipgram", "cbow")
        for num_tokens in (0, 1e6, math.inf)
    } == {0.2}


def test_min_alpha_is_bounded_by_the_alpha_of_adagrad():
    assert check_settings(DEFAULTS | ADAGRAD | {"min_alpha": 0.2})
    with pytest.raises(ValueError, match="`min_alpha` must be"):
        check_settings(DEFAULTS | ADAGRAD | {"min_alpha": 0.21})
