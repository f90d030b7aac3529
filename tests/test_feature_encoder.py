"""`FeatureEncoder`: an estimator of scikit-learn that does as the oracle does."""

import copy
import inspect
import pickle
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import optax
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

import legacy
from embedder.api.encoder_estimator import FeatureEncoder
from embedder.config.encoder_options import EncoderOptions

SMALL = {"layers": (4, 6, 3), "learning_rate": 0.1, "batch_size": 8, "epochs": 3}
CLASSES = [FeatureEncoder, legacy.FeatureEncoder]


pytestmark = pytest.mark.usefixtures("quick_compilation")
RNG = np.random.default_rng(0)
Y = RNG.integers(3, size=60)
X = RNG.normal(size=(60, 4)) + 4 * np.eye(4)[Y]  # around three corners
PIXELS = np.random.default_rng(1).integers(256, size=(60, 2, 2), dtype=np.uint8)


@pytest.fixture(scope="module")
def trained(quick_compilation) -> FeatureEncoder:
    return fitted()


@pytest.fixture
def encoder(trained) -> FeatureEncoder:
    """A fitted encoder, of the test alone."""
    return copy.deepcopy(trained)


def fitted(**options) -> FeatureEncoder:
    return FeatureEncoder(**SMALL | options).fit(X, Y)


def assert_same_layers(actual, desired) -> None:
    for ours, theirs in zip(actual.layers_, desired.layers_, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a, b, strict=True)


def test_signature_equals_the_oracles():
    """The port has more parameters, after those of the oracle and by name only."""
    port, oracle = (inspect.signature(cls).parameters for cls in CLASSES)
    assert [*port][: len(oracle)] == [*oracle]
    for name, theirs in oracle.items():
        assert (port[name].default, port[name].kind) == (theirs.default, theirs.kind)
    more = [port[name] for name in [*port][len(oracle) :]]
    assert {each.kind for each in more} == {inspect.Parameter.KEYWORD_ONLY}
    assert port["batch_size"].default == EncoderOptions().batch_size


def test_validation_examples_are_not_trained_on():
    wrong = np.concatenate([Y[:48], (Y[48:] + 1) % 3])
    options = SMALL | {"validation_fraction": 0.2}
    encoder, other = (FeatureEncoder(**options).fit(X, y) for y in (wrong, Y))
    assert_same_layers(encoder, other)
    assert encoder.history_[-1]["val_accuracy"] < 0.5


@pytest.mark.parametrize(
    "names",
    [
        np.array(["red", "green", "blue"]),
        np.array(["red", "green", "blue"], dtype=object),
        np.array([7, -3, 100]),
        np.array([True, False, True]),
    ],
    ids=["text", "objects", "integers", "bools"],
)
def test_predictions_have_the_values_and_dtype_of_labels(tmp_path, names):
    labels = names[Y]
    options = SMALL | {"layers": (4, 6, len(set(names))), "epochs": 9}
    encoder = FeatureEncoder(**options).fit(X, labels)
    np.testing.assert_array_equal(encoder.classes_, np.unique(names), strict=True)
    assert np.mean(encoder.predict(X) == labels) > 0.9
    encoder.save(tmp_path / "model.npz")
    loaded = FeatureEncoder.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.predict(X), encoder.predict(X))


def test_pixels_are_scaled_to_0_to_1_and_may_be_flat():
    options = SMALL | {"dtype": "float64"}
    whole, parts, flat = (
        FeatureEncoder(**options).fit(x, Y)
        for x in (PIXELS, PIXELS / 255, PIXELS.reshape(60, 4))
    )
    actual, desired = whole.transform(PIXELS), parts.transform(PIXELS / 255)
    np.testing.assert_allclose(actual, desired, rtol=1e-12, atol=1e-12)
    assert_same_layers(whole, flat)
    np.testing.assert_array_equal(flat.transform(PIXELS), actual)


def test_clone_has_the_arguments_and_nothing_learned(encoder):
    again = clone(encoder)
    assert again.get_params() == encoder.get_params()
    for use in (again.predict, again.predict_proba, again.transform, again.save):
        with pytest.raises(NotFittedError, match="FeatureEncoder"):
            use(X)


def test_an_error_leaves_the_encoder_unchanged(encoder):
    before, steep = encoder.transform(X), {"learning_rate": 1e30, "layers": (3, 6, 3)}
    for options, y, error, message in (
        ({}, np.linspace(0, 1, 60), ValueError, "Unknown label type"),
        ({}, Y, ValueError, "`layers` must go from 3 features"),
        (steep, Y, FloatingPointError, "smaller `learning_rate`"),
    ):
        with pytest.raises(error, match=message):
            encoder.set_params(**options).fit(X[:, :3], y)
        np.testing.assert_array_equal(encoder.transform(X), before, strict=True)
        assert len(encoder.history_) == 3 and encoder.n_features_in_ == 4


@pytest.mark.parametrize(
    ("writer", "reader"), [2 * [FeatureEncoder], CLASSES, CLASSES[::-1]]
)
def test_a_saved_encoder_is_read_by_both(tmp_path, writer, reader):
    names = np.array(["red", "green", "blue"])
    options = SMALL | {"dtype": "float64", "optimizer": "adam"}
    saved = writer(**options, validation_fraction=0.2).fit(X, names[Y])
    saved.save(tmp_path / "model.npz")
    loaded = reader.load(tmp_path / "model.npz")
    assert_same_layers(loaded, saved)
    assert loaded.history_ == saved.history_
    for name in inspect.signature(legacy.FeatureEncoder).parameters:
        assert getattr(loaded, name) == getattr(saved, name), name
    np.testing.assert_array_equal(loaded.predict(X), saved.predict(X), strict=True)
    for name in ("predict_proba", "transform"):
        found, desired = (getattr(each, name)(X) for each in (loaded, saved))
        np.testing.assert_allclose(found, desired, rtol=1e-12)


def test_arguments_of_numpy_are_saved(tmp_path):
    """As a search over arguments gives them."""
    options = {"epochs": np.int64(2), "learning_rate": np.float32(0.5)}
    options |= {"layers": (4, np.int32(6), 3)}
    fitted(**options).save(tmp_path / "model.npz")
    loaded = FeatureEncoder.load(tmp_path / "model.npz")
    assert (loaded.epochs, loaded.learning_rate, loaded.layers) == (2, 0.5, (4, 6, 3))
    assert (type(loaded.epochs), type(loaded.learning_rate)) == (int, float)


@pytest.mark.slow
@parametrize_with_checks([FeatureEncoder(learning_rate=0.1, epochs=5)])
def test_encoder_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


class Described(FeatureEncoder):
    """A subclass with an argument of its own."""

    def __init__(self, description="", layers=None, *, epochs=1):
        super().__init__(layers, epochs=epochs)
        self.description = description


@pytest.mark.row("F35")
@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))]
)
def test_a_copy_of_a_subclass_has_all_its_attributes(copied):
    encoder = Described("of news", epochs=2).fit(X, Y)
    encoder.later = {"added": 1}
    other = copied(encoder)
    assert type(other) is Described and other.later == {"added": 1}
    assert other.description == "of news" == clone(encoder).description
    np.testing.assert_array_equal(other.predict(X), encoder.predict(X))
    assert_same_layers(other.fit(X, Y), encoder)


@pytest.mark.row("F34")
def test_concurrent_fits_run_one_after_the_other():
    encoder = FeatureEncoder(**SMALL)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda number: encoder.fit(X, Y), range(3)))
    assert len(encoder.history_) == 3
    assert_same_layers(encoder, fitted())


# --- networks of images, and objects of optax


def test_a_schedule_is_compiled_once():
    traced = []

    def rate(step):
        traced.append(step)
        return 0.01 / (1 + step)

    encoder = FeatureEncoder(learning_rate=rate, epochs=2)
    x, y = np.eye(4), [*"abab"]
    first = encoder.fit(x, y).transform(x)
    num_traced = len(traced)
    np.testing.assert_array_equal(encoder.fit(x, y).transform(x), first)
    assert 0 < num_traced == len(traced)


def test_objects_of_optax_equal_the_same_by_name():
    by_name = fitted(learning_rate=0.05, optimizer_args={"momentum": 0.5})
    schedule = {"learning_rate": optax.constant_schedule(0.05)}
    for given in (
        {"optimizer": optax.sgd(0.05, momentum=0.5), "learning_rate": 0.05},
        schedule | {"optimizer_args": {"momentum": 0.5}},
    ):
        for ours, theirs in zip(fitted(**given).layers_, by_name.layers_, strict=True):
            np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-6)


PHOTOS = np.random.default_rng(0).integers(256, size=(12, 4, 5, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def of_images() -> FeatureEncoder:
    return FeatureEncoder((60, 8, 2), epochs=1).fit(PHOTOS, np.arange(12) % 2)


def test_whole_numbers_are_pixels_where_pixels_were_trained_on(of_images):
    expected = of_images.transform(PHOTOS)
    for X in (PHOTOS.astype(np.int64), PHOTOS.reshape(12, 60)):
        np.testing.assert_array_equal(of_images.transform(X), expected)
    scaled = of_images.transform(PHOTOS / 255)
    np.testing.assert_allclose(scaled, expected, atol=1e-5)


OTHERS = [
    (lambda x: x.astype(float), "float64 of 0 to 255: give X.astype(np.uint8)."),
    (lambda x: x.astype(int) - 200, "`X` must be of uint8, 0 to 255, as in `fit`"),
    (lambda x: x.astype(int) + 1, "int64 of 1 to 256."),
    (lambda x: x.transpose(0, 3, 1, 2), "`X` must be [n, 4, 5, 3], as in `fit`, or"),
    (lambda x: x.reshape(12, 4, 15), "rows of 60 numbers, got [12, 4, 15]."),
    (lambda x: x[0], "got [4, 5, 3]. One example is X[np.newaxis]."),
]


@pytest.mark.row("B89")
@pytest.mark.parametrize(("change", "message"), OTHERS)
def test_other_shapes_and_scales_than_in_fit_are_refused(of_images, change, message):
    for method in (of_images.predict, of_images.transform, of_images.predict_proba):
        with pytest.raises(ValueError, match=re.escape(message)):
            method(change(PHOTOS))
