"""The oracle of the encoder: its gradients, its updates, and what it refuses."""

import json
import math
import multiprocessing
import zipfile

import numpy as np
import pytest

from legacy import FeatureEncoder
from legacy.network import (
    Layer,
    activations,
    apply_update,
    batches,
    gradients,
    initial_layers,
    layers_of,
    loss_sums,
    num_parameters,
    num_slots,
    split,
)

WIDTHS = (3, 5, 4, 2)
LN2, LN3 = math.log(2), math.log(3)


def examples(num=9) -> tuple[np.ndarray, np.ndarray]:
    """Two classes, "no" and "yes", that one feature tells apart."""
    x = np.random.default_rng(5).standard_normal((num, 3))
    return x, np.where(x[:, 0] > 0, "yes", "no")


def fitted(num=9, **arguments) -> FeatureEncoder:
    defaults = {"layers": WIDTHS, "dtype": "float64", "batch_size": 4, "epochs": 2}
    return FeatureEncoder(**defaults | arguments).fit(*examples(num))


def flat(layers) -> np.ndarray:
    return np.concatenate([array.ravel() for layer in layers for array in layer])


def random_layers(widths=WIDTHS) -> tuple[np.ndarray, list[Layer]]:
    """All parameters, f64[P], and the layers that are views of them."""
    parameters = np.random.default_rng(1).standard_normal(num_parameters(widths))
    return parameters, layers_of(parameters, widths)


# --- the network


def test_layers_of_are_views_one_after_another():
    parameters = np.arange(11.0)
    first, second = layers_of(parameters, (2, 1, 4))
    assert first.weights.tolist() == [[0], [1]] and first.biases.tolist() == [2]
    assert second.weights.tolist() == [[3, 4, 5, 6]]
    second.biases[:] = 9
    assert parameters.tolist() == [*range(7), 9, 9, 9, 9]
    assert num_parameters((2, 1, 4)) == 11


def test_initial_layers_have_their_variance_and_no_biases():
    layers = initial_layers((50, 400, 300), "float64", seed=3)
    for layer, inputs in zip(layers, (50, 400), strict=True):
        assert np.abs(layer.weights).max() <= math.sqrt(6 / inputs)
        np.testing.assert_allclose(layer.weights.var(), 2 / inputs, rtol=0.02)
        assert not layer.biases.any()
    single = initial_layers((50, 400, 300), "f4", seed=3)
    for layer, double in zip(single, layers, strict=True):
        rounded = double.weights.astype("f4")
        np.testing.assert_array_equal(layer.weights, rounded, strict=True)


def test_activations_by_hand():
    """Two ReLU units, of which one is off, and then scores that may be negative."""
    layers = [
        Layer(np.array([[1.0, -1], [2, 1]]), np.array([0.5, 0])),
        Layer(np.array([[1.0, -2], [5, 5]]), np.array([0.0, 1])),
    ]
    x, hidden, scores = activations(layers, np.array([[3.0, 1]]))
    assert hidden.tolist() == [[5.5, 0]] and scores.tolist() == [[5.5, -10]]
    assert x.tolist() == [[3, 1]]


@pytest.mark.parametrize(
    ("scores", "y", "loss", "correct"),
    [
        ([[0, LN3]], [1], math.log(4 / 3), 1),
        ([[0, LN3]], [0], math.log(4), 0),
        ([[7, 7 + LN3], [LN3, 0]], [1, 1], math.log(4 / 3) + math.log(4), 1),
        ([[5, 5]], [0], LN2, 1),
        ([[1000, 0], [0, -1000]], [1, 0], 1000, 1),
        (np.empty((0, 2)), [], 0, 0),
    ],
    ids=["right", "wrong", "two", "guess", "large_scores", "no_examples"],
)
def test_loss_by_hand(scores, y, loss, correct):
    found = loss_sums(np.array(scores, np.float64), np.array(y, int))
    np.testing.assert_allclose(found.loss, loss, rtol=1e-15, atol=1e-15)
    assert (found.correct, found.examples) == (correct, len(y))


@pytest.mark.parametrize("widths", [WIDTHS, (3, 4, 2)], ids=len)
def test_gradients_are_finite_differences(widths):
    parameters, layers = random_layers(widths)
    x, y = examples(6)[0], np.array([0, 1, 1, 0, 1, 0])

    def loss() -> float:
        return loss_sums(activations(layers, x)[-1], y).loss / 10

    actual = np.empty_like(parameters)
    gradients(layers, x, y, 10, layers_of(actual, widths))
    desired, step = np.empty_like(parameters), 1e-5
    for place, value in enumerate(parameters.copy()):
        parameters[place] = value + step
        above = loss()
        parameters[place] = value - step
        desired[place] = (above - loss()) / (2 * step)
        parameters[place] = value
    # Rounding of the loss over the step, 1e-16 / 1e-5, and the square of the step.
    np.testing.assert_allclose(actual, desired, rtol=1e-8, atol=1e-10)
    assert np.abs(desired).max() > 0.05


@pytest.mark.parametrize(
    ("optimizer", "options", "desired"),
    [
        ("sgd", {"momentum": 0.0}, [1 - 0.1 * 2, 0.8 - 0.1 * 6]),
        # m is 2, and then 0.5 * 2 + 6 = 7.
        ("sgd", {"momentum": 0.5}, [1 - 0.1 * 2, 0.8 - 0.1 * 7]),
        # m, v: 1, 1, divided by 1/2, 1/4; then 3.5, 9.75, divided by 3/4, 7/16.
        (
            "adam",
            {"b1": 0.5, "b2": 0.75, "eps": 1.0},
            [
                1 - 0.1 * 2 / (2 + 1),
                1 - 0.1 * 2 / 3 - 0.1 * (14 / 3) / (math.sqrt(156 / 7) + 1),
            ],
        ),
    ],
    ids=["sgd", "momentum", "adam"],
)
def test_two_updates_by_hand(optimizer, options, desired):
    """From 1 with gradients 2 and 6 at the rate 0.1."""
    parameters, slots = np.ones(1), np.zeros((num_slots(optimizer), 1))
    for step, gradient in enumerate((2.0, 6.0), start=1):
        apply_update(
            optimizer, options, 0.1, step, parameters, slots, np.array([gradient])
        )
        np.testing.assert_allclose(parameters, desired[step - 1], rtol=1e-15)


@pytest.mark.parametrize(
    ("num", "fraction", "num_train"), [(10, 0.3, 7), (10, 0.0, 10), (3, 0.1, 3)]
)
def test_split_holds_out_the_last_examples(num, fraction, num_train):
    train, held = split(num, fraction)
    assert train.tolist() == list(range(num_train))
    assert held.tolist() == list(range(num_train, num))


def test_batches_are_all_examples_and_the_last_is_shorter():
    train = np.array([3, 5, 7, 9, 11])
    found = [batch.tolist() for batch in batches(train, 2, seed=1, epoch=0)]
    assert [len(batch) for batch in found] == [2, 2, 1]
    assert sorted(sum(found, [])) == train.tolist()
    orders = {
        tuple(np.concatenate(list(batches(np.arange(9), 4, seed, epoch))))
        for seed in (0, 1)
        for epoch in (0, 1)
    }
    assert len(orders) == 4


# --- training


@pytest.mark.parametrize(
    ("workers", "arguments"),
    [(3, {"optimizer_args": {"momentum": 0.9}}), (2, {"optimizer": "adam"})],
    ids=["sgd", "adam"],
)
def test_workers_equal_one_worker(workers, arguments):
    """The last batch has one example, so that most workers have none of it."""
    arguments |= {"validation_fraction": 0.25, "learning_rate": 0.05}
    one, several = (fitted(12, workers=n, **arguments) for n in (1, workers))
    np.testing.assert_allclose(
        flat(several.layers_), flat(one.layers_), rtol=1e-12, atol=1e-15
    )
    for a, b in zip(several.history_, one.history_, strict=True):
        np.testing.assert_allclose(list(a.values()), list(b.values()), rtol=1e-12)
    assert multiprocessing.active_children() == []


def test_fit_is_reproducible_and_starts_afresh():
    first, second, other = fitted(), fitted(), fitted(seed=2)
    again = first.fit(*examples())
    np.testing.assert_array_equal(flat(again.layers_), flat(second.layers_))
    assert again.history_ == second.history_
    assert not np.array_equal(flat(other.layers_), flat(second.layers_))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_fit_computes_in_its_dtype(dtype):
    encoder = fitted(dtype=dtype)
    found = [*(encoder.layers_[0]), encoder.transform(examples()[0])]
    assert {array.dtype for array in found} == {np.dtype(dtype)}


def test_history_validates_after_each_epoch():
    x, y = examples(10)
    encoder = fitted(10, validation_fraction=0.3)
    shares = encoder.predict_proba(x[7:])[np.arange(3), (y[7:] == "yes").astype(int)]
    last = encoder.history_[-1]
    np.testing.assert_allclose(last["val_loss"], -np.log(shares).mean(), rtol=1e-12)
    assert last["val_accuracy"] == encoder.score(x[7:], y[7:])
    assert len(encoder.history_) == 2


def test_history_has_the_training_before_each_update():
    x, y = examples()
    untrained = fitted(epochs=0)
    found = fitted(epochs=1, batch_size=9).history_
    shares = untrained.predict_proba(x)[np.arange(9), (y == "yes").astype(int)]
    np.testing.assert_allclose(found[0]["train_loss"], -np.log(shares).mean())
    assert found[0]["train_accuracy"] == untrained.score(x, y)
    assert found[0]["val_loss"] is found[0]["val_accuracy"] is None


@pytest.mark.parametrize("workers", [1, 2])
def test_fit_raises_when_it_diverges(workers):
    message = "^Training diverged in epoch .: .*`learning_rate`"
    with pytest.raises(FloatingPointError, match=message):
        fitted(layers=None, learning_rate=1e30, dtype="float32", workers=workers)


# --- use


@pytest.fixture
def by_hand() -> FeatureEncoder:
    """Embeds (a, b) as (max(a, 0), max(b, 0)); these are its scores of "no", "yes"."""
    encoder = FeatureEncoder((2, 2, 2), epochs=0, dtype="float64")
    encoder.fit(np.zeros((2, 2)), ["no", "yes"])
    encoder.layers_ = [Layer(np.eye(2), np.zeros(2))] * 2
    return encoder


def test_use_by_hand(by_hand):
    x = np.array([[LN3, -5], [0, LN2], [-1, -1]])
    np.testing.assert_array_equal(by_hand.transform(x), [[LN3, 0], [0, LN2], [0, 0]])
    shares = [[3 / 4, 1 / 4], [1 / 3, 2 / 3], [1 / 2, 1 / 2]]
    np.testing.assert_allclose(by_hand.predict_proba(x), shares, rtol=1e-15)
    assert by_hand.predict(x).tolist() == ["no", "yes", "no"]
    assert by_hand.score(x, ["no", "no", "no"]) == 2 / 3


def test_use_is_the_same_for_many_rows_at_once(by_hand):
    x = np.random.default_rng(0).standard_normal((2500, 2))
    np.testing.assert_array_equal(by_hand.transform(x), np.maximum(x, 0))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((1, 3)), "X has 3 features, but the encoder was trained on 2"),
        (np.zeros(2), r"`X` must be numbers \[n, ...\], got float64\[2\]"),
        ([["a", "b"]], r"`X` must be numbers \[n, ...\], got <U1\[1, 2\]"),
        (np.zeros((0, 2)), r"`X` must be numbers \[n, ...\], got float64\[0, 2\]"),
    ],
    ids=["features", "axes", "text", "no_rows"],
)
def test_use_of_the_wrong_features_is_refused(by_hand, x, message):
    for use in (by_hand.predict, by_hand.predict_proba, by_hand.transform):
        with pytest.raises(ValueError, match=message):
            use(x)


def test_use_before_fit_is_refused(tmp_path):
    encoder, x = FeatureEncoder(), np.zeros((1, 2))
    for use in (encoder.predict, encoder.predict_proba, encoder.transform):
        with pytest.raises(RuntimeError, match="is not trained yet: call `fit` first"):
            use(x)
    with pytest.raises(RuntimeError, match="is not trained yet: call `fit` first"):
        encoder.save(tmp_path / "a.npz")


# --- files


@pytest.fixture
def saved(tmp_path):
    """A trained encoder, and the path of its file."""
    encoder = fitted(
        *(10,), optimizer="adam", optimizer_args={"b1": 0.8}, validation_fraction=0.2
    )
    encoder.save(tmp_path / "a.npz")
    return encoder, tmp_path / "a.npz"


def test_file_gives_back_the_encoder(saved):
    encoder, path = saved
    loaded = FeatureEncoder.load(path)
    for a, b in zip(loaded.layers_, encoder.layers_, strict=True):
        np.testing.assert_array_equal(a.weights, b.weights, strict=True)
        np.testing.assert_array_equal(a.biases, b.biases, strict=True)
    np.testing.assert_array_equal(loaded.classes_, encoder.classes_, strict=True)
    assert loaded.history_ == encoder.history_
    assert loaded.n_features_in_ == 3
    assert loaded._settings() == encoder._settings()
    x, _ = examples(20)
    np.testing.assert_array_equal(loaded.predict_proba(x), encoder.predict_proba(x))


def test_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch, saved):
    encoder, path = saved
    before = path.read_bytes()

    def full(file, **members):
        file.write(b"part")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space left"):
        encoder.save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def with_members(path, **changes) -> bytes:
    """The file with members replaced, or left out where None."""
    with np.load(path) as archive:
        members = dict(archive) | changes
    np.savez(path, **{name: x for name, x in members.items() if x is not None})
    return path.read_bytes()


def text(string: str) -> np.ndarray:
    return np.frombuffer(string.encode(), np.uint8)


def test_file_with_wrong_settings_names_them(saved):
    encoder, path = saved
    settings = encoder._settings() | {"epochs": -1}
    path.write_bytes(with_members(path, settings=text(json.dumps(settings))))
    with pytest.raises(ValueError, match="`epochs` must be an integer >= 0, got -1"):
        FeatureEncoder.load(path)


def test_file_is_of_plain_arrays(saved):
    _, path = saved
    with zipfile.ZipFile(path) as archive:
        kinds = {info.compress_type for info in archive.infolist()}
        names = {info.filename.removesuffix(".npy") for info in archive.infolist()}
    assert kinds == {zipfile.ZIP_STORED}
    arrays = {f"{kind}_{i}" for kind in ("weights", "biases") for i in range(3)}
    assert names == {"format", "settings", "classes", "history"} | arrays


# --- arguments


@pytest.mark.parametrize(
    ("name", "rule", "value"),
    [
        ("optimizer", "be sgd or adam", "adagrad"),
        ("optimizer_args", r"be of \['momentum'\]", {"b1": 0.9}),
        ("layers", "be three widths or more", (3, 2)),
        ("layers", "be three widths or more", (3, 0, 2)),
        ("layers", "go from 3 features to 2 classes", (4, 5, 2)),
        ("layers", "go from 3 features to 2 classes", (3, 5, 9)),
    ],
)
def test_fit_refuses_values(name, rule, value):
    with pytest.raises(ValueError, match=f"^`{name}` must {rule}, got .*\\.$"):
        fitted(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("layers", 5), ("layers", "345"), ("layers", (3, 2.5, 2))),
        *(("layers", (3, True, 2)), ("optimizer", None)),
        *(("optimizer_args", 5), ("optimizer_args", {"momentum": "0.9"})),
        ("optimizer_args", {"momentum": math.nan}),
    ],
    ids=str,
)
def test_fit_refuses_parts_of_the_wrong_type(name, value):
    with pytest.raises((TypeError, ValueError), match=f"^`{name}` must "):
        fitted(**{name: value})


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (np.eye(3), [0, 1], r"`y` must be \[3\], as X has rows, got \(2,\)"),
        (np.eye(3), [[0], [1], [0]], r"`y` must be \[3\], .* got \(3, 1\)"),
        (np.ones(3), [0, 1, 0], r"`X` must be numbers \[n, ...\], got float64\[3\]"),
        ([["a"], ["b"]], [0, 1], r"`X` must be numbers \[n, ...\], got <U1\[2, 1\]"),
        (np.empty((0, 3)), [], r"`X` must be numbers .*, got float64\[0, 3\]"),
        (None, [0], r"`X` must be numbers .*, got object\[\]"),
    ],
    ids=["lengths", "column", "axes", "text", "no_rows", "none"],
)
def test_fit_refuses_examples_that_do_not_fit(x, y, message):
    with pytest.raises(ValueError, match=message):
        FeatureEncoder().fit(x, y)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_fit_of_features_that_are_not_finite_raises(value):
    x, y = examples()
    x[4, 1] = value
    with np.errstate(all="ignore"), pytest.raises(FloatingPointError, match="epoch 1"):
        FeatureEncoder(WIDTHS).fit(x, y)


def test_score_refuses_labels_that_do_not_fit(by_hand):
    with pytest.raises(ValueError, match="`y` must be"):
        by_hand.score(np.eye(2), [["no"], ["yes"]])


def test_fit_refuses_to_hold_out_everything():
    with pytest.raises(ValueError, match="`validation_fraction` .*0.95"):
        fitted(validation_fraction=0.95)
