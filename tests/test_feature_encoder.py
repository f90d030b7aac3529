"""`FeatureEncoder`: an estimator of scikit-learn that does as the oracle does."""

import copy
import inspect
import pickle
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import optax
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

import embedder
import legacy
from embedder.encoders import outputs as encoder_outputs
from embedder.encoders.artefact import read_encoder
from embedder.encoders.estimator import FeatureEncoder
from legacy.network import initial_layers
from tests.test_imports import loaded_by

SMALL = {"layers": (4, 6, 3), "learning_rate": 0.1, "batch_size": 8, "epochs": 3}
CLASSES = [FeatureEncoder, legacy.FeatureEncoder]
each_class = pytest.mark.parametrize("cls", CLASSES, ids=["port", "oracle"])


def points() -> tuple[np.ndarray, np.ndarray]:
    """60 points around three corners, f64[60, 4], and which, i64[60]."""
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=60)
    return rng.normal(size=(60, 4)) + 4 * np.eye(4)[y], y


X, Y = points()
PIXELS = np.random.default_rng(1).integers(256, size=(60, 2, 2), dtype=np.uint8)


@pytest.fixture(scope="module", autouse=True)
def quick_compilation():
    """Programs that are run a few times need not be fast."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


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


def test_the_encoder_learns_to_separate_classes():
    encoder = fitted(epochs=20)
    assert encoder.score(X, Y) == 1
    vectors = encoder.transform(X)
    gaps = np.linalg.norm(vectors[:, np.newaxis] - vectors, axis=2)
    np.fill_diagonal(gaps, np.inf)
    assert np.mean(Y[gaps.argmin(axis=1)] == Y) > 0.95


@pytest.mark.spread(1)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"optimizer_args": {"momentum": 0.9}, "layers": None, "batch_size": 100},
        {"optimizer": "adam"},
        {
            "optimizer": "adam",
            "optimizer_args": {"b1": 0.5, "b2": 0.9, "eps": 1e-3},
            "layers": (4, 7, 5, 3),
            "validation_fraction": 0.2,
            "seed": 2**64 - 1,
        },
    ],
    ids=["sgd", "momentum_one_batch", "adam", "adam_validated"],
)
def test_fit_equals_the_oracle(options):
    actual, desired = (
        cls(**SMALL | {"dtype": "float64"} | options).fit(X, Y) for cls in CLASSES
    )
    for ours, theirs in zip(actual.layers_, desired.layers_, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    for ours, theirs in zip(actual.history_, desired.history_, strict=True):
        assert [*ours] == [*theirs]
        values = (np.array([*each.values()], float) for each in (ours, theirs))
        np.testing.assert_allclose(*values, rtol=1e-12)
    np.testing.assert_array_equal(actual.predict(X), desired.predict(X), strict=True)
    for name in ("predict_proba", "transform"):
        ours, theirs = (getattr(each, name)(X) for each in (actual, desired))
        np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_no_epochs_give_the_first_layers_of_the_oracle(dtype):
    encoder = fitted(epochs=0, dtype=dtype)
    oracle = initial_layers(SMALL["layers"], dtype, 1)
    for ours, theirs in zip(encoder.layers_, oracle, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a, b, strict=True)
    assert encoder.history_ == []


def test_signature_equals_the_oracles():
    """The port has more parameters, after those of the oracle and by name only."""
    port, oracle = (inspect.signature(cls).parameters for cls in CLASSES)
    assert [*port][: len(oracle)] == [*oracle]
    for name, theirs in oracle.items():
        assert (port[name].default, port[name].kind) == (theirs.default, theirs.kind)
    more = [port[name] for name in [*port][len(oracle) :]]
    assert {each.kind for each in more} == {inspect.Parameter.KEYWORD_ONLY}


@pytest.mark.spread(1)
@pytest.mark.parametrize("name", ["adamw", "lion", "rmsprop"])
def test_optimizers_of_optax_train(name):
    first, *_, last = fitted(optimizer=name, learning_rate=0.01, epochs=5).history_
    assert last["train_loss"] < first["train_loss"]


@each_class
def test_validation_examples_are_not_trained_on(cls):
    wrong = np.concatenate([Y[:48], (Y[48:] + 1) % 3])
    encoder, other = (
        cls(**SMALL, validation_fraction=0.2).fit(X, y) for y in (wrong, Y)
    )
    assert_same_layers(encoder, other)
    assert encoder.history_[-1]["val_accuracy"] < 0.5


# --- features and labels


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
@each_class
def test_predictions_have_the_values_and_dtype_of_labels(tmp_path, cls, names):
    labels = names[Y]
    options = SMALL | {"layers": (4, 6, len(set(names))), "epochs": 9}
    encoder = cls(**options).fit(X, labels)
    np.testing.assert_array_equal(encoder.classes_, np.unique(names), strict=True)
    assert np.mean(encoder.predict(X) == labels) > 0.9
    encoder.save(tmp_path / "model.npz")
    loaded = cls.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.predict(X), encoder.predict(X))


@each_class
def test_pixels_are_scaled_to_0_to_1(cls):
    options = SMALL | {"dtype": "float64"}
    whole = cls(**options).fit(PIXELS, Y)
    parts = cls(**options).fit(PIXELS / 255, Y)
    actual, desired = whole.transform(PIXELS), parts.transform(PIXELS / 255)
    np.testing.assert_allclose(actual, desired, rtol=1e-12, atol=1e-12)


@each_class
def test_images_may_be_flat(cls):
    deep, flat = (cls(**SMALL).fit(x, Y) for x in (PIXELS, PIXELS.reshape(60, 4)))
    assert_same_layers(deep, flat)
    np.testing.assert_array_equal(flat.transform(PIXELS), deep.transform(PIXELS))


def test_the_file_has_the_shape_and_dtype_of_images(tmp_path):
    FeatureEncoder(**SMALL).fit(PIXELS, Y).save(tmp_path / "model.npz")
    model = read_encoder(tmp_path / "model.npz")
    assert (model.example_shape, model.example_dtype) == ((2, 2), "uint8")


def test_large_integers_are_not_rounded():
    """float32 cannot tell 2**24 + 1 from 2**24."""
    x = np.array([[2**24 + 1, 0], [2**24, 1]] * 10)
    actual, desired = (
        cls(epochs=0, dtype="float64").fit(x, [0, 1] * 10).transform(x)
        for cls in CLASSES
    )
    np.testing.assert_allclose(actual, desired, rtol=1e-12)


def test_images_of_none_are_refused():
    with pytest.raises(ValueError, match=r"0 sample\(s\)"):
        FeatureEncoder().fit(PIXELS[:0], Y[:0])


# --- arguments


def test_clone_has_the_arguments_and_nothing_learned(encoder):
    again = clone(encoder)
    assert again.get_params() == encoder.get_params()
    for use in (again.predict, again.predict_proba, again.transform, again.save):
        with pytest.raises(NotFittedError, match="FeatureEncoder"):
            use(X)


@pytest.mark.parametrize(
    ("error", "name", "value", "message"),
    [
        (ValueError, "validation_fraction", 0.999, " 0.999 of 60 examples leaves none"),
        (ValueError, "layers", (4, 3), r"must be three .* got \(4, 3\)."),
        (ValueError, "layers", (4, 0, 3), r".* >= 1, got \(4, 0, 3\)."),
        (TypeError, "layers", 5, "must be integers >= 1, got 5."),
        (ValueError, "layers", (5, 6, 2), "must go from 4 .* to 3 .*, got 5 6 2."),
        (ValueError, "optimizer", "adm", ".* of optax, got 'adm', did you mean 'adam'"),
        (ValueError, "optimizer", "zzz", ".* got 'zzz': .*adam, .*sgd"),
        (TypeError, "optimizer", None, "must be .* got None."),
        (ValueError, "optimizer_args", {"momentm": 0.9}, "of 'sgd' .* got 'momentm'."),
        (ValueError, "optimizer_args", {"momentum": "x"}, ".* NAME=.* 'momentum=x'."),
        (TypeError, "optimizer_args", "momentum=0.9", "must be a dict .* got 'mom"),
    ],
)
def test_fit_names_a_wrong_argument(error, name, value, message):
    with pytest.raises(error, match=f"`{name}` ?{message}"):
        fitted(**{name: value})


@pytest.mark.parametrize(
    ("options", "x", "y", "error", "message"),
    [
        ({}, X[:, :3], np.linspace(0, 1, 60), ValueError, "Unknown label type"),
        ({}, X[:, :3], Y, ValueError, "`layers` must go from 3 features"),
        (
            {"learning_rate": 1e30, "layers": (3, 6, 3)},
            X[:, :3],
            Y,
            FloatingPointError,
            "smaller `learning_rate`",
        ),
    ],
    ids=["labels", "layers", "diverged"],
)
def test_an_error_leaves_the_encoder_unchanged(encoder, options, x, y, error, message):
    before = encoder.transform(X)
    with pytest.raises(error, match=message):
        encoder.set_params(**options).fit(x, y)
    np.testing.assert_array_equal(encoder.transform(X), before, strict=True)
    assert len(encoder.history_) == 3 and encoder.n_features_in_ == 4


def test_a_changed_dtype_applies_to_the_next_fit(tmp_path, encoder):
    before = encoder.transform(X)
    encoder.set_params(dtype="float64").save(tmp_path / "model.npz")
    for each in (encoder, FeatureEncoder.load(tmp_path / "model.npz")):
        np.testing.assert_array_equal(each.transform(X), before, strict=True)
    assert encoder.fit(X, Y).transform(X).dtype == np.float64


# --- files


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_loaded_encoder_is_the_same(tmp_path, dtype):
    encoder = fitted(dtype=dtype, validation_fraction=0.2)
    encoder.save(tmp_path / "model")
    loaded = FeatureEncoder.load(tmp_path / "model")
    assert loaded.get_params() == encoder.get_params()
    assert loaded.history_ == encoder.history_
    assert loaded.n_features_in_ == 4
    assert_same_layers(loaded, encoder)
    for name in ("predict", "predict_proba", "transform"):
        ours, theirs = (getattr(each, name)(X) for each in (loaded, encoder))
        np.testing.assert_array_equal(ours, theirs, strict=True)


@pytest.mark.parametrize("writer", CLASSES, ids=["port", "oracle"])
@pytest.mark.parametrize("reader", CLASSES, ids=["port", "oracle"])
def test_a_saved_encoder_is_read_by_both(tmp_path, writer, reader):
    names = np.array(["red", "green", "blue"])
    saved = writer(**SMALL, dtype="float64", optimizer="adam").fit(X, names[Y])
    saved.save(tmp_path / "model.npz")
    loaded = reader.load(tmp_path / "model.npz")
    assert_same_layers(loaded, saved)
    assert loaded.history_ == saved.history_
    assert (loaded.optimizer, loaded.batch_size) == ("adam", 8)
    np.testing.assert_array_equal(loaded.predict(X), saved.predict(X), strict=True)
    np.testing.assert_allclose(loaded.transform(X), saved.transform(X), rtol=1e-12)


@each_class
def test_arguments_of_numpy_are_saved(tmp_path, cls):
    """As a search over arguments gives them."""
    options = {"epochs": np.int64(2), "learning_rate": np.float32(0.5)}
    cls(**SMALL | options).fit(X, Y).save(tmp_path / "model.npz")
    loaded = cls.load(tmp_path / "model.npz")
    assert (loaded.epochs, loaded.learning_rate) == (2, 0.5)
    assert (type(loaded.epochs), type(loaded.learning_rate)) == (int, float)


def test_widths_of_numpy_are_saved(tmp_path):
    fitted(layers=(4, np.int32(6), 3)).save(tmp_path / "model.npz")
    assert FeatureEncoder.load(tmp_path / "model.npz").layers == (4, 6, 3)


@each_class
def test_load_names_a_file_that_is_not_there(tmp_path, cls):
    with pytest.raises(FileNotFoundError, match="Model file .*no.npz does not exist."):
        cls.load(tmp_path / "no.npz")


# --- cost


def test_a_second_call_compiles_nothing(encoder):
    encoder.predict(X)
    before = encoder_outputs._scores._cache_size()
    encoder.predict(X)
    assert encoder_outputs._scores._cache_size() == before


def test_import_of_the_package_loads_neither_sklearn_nor_jax():
    assert not loaded_by("import embedder") & {"sklearn", "jax"}
    assert embedder.FeatureEncoder is FeatureEncoder


# --- scikit-learn


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
def test_concurrent_fits_run_one_after_the_other(monkeypatch):
    inside, most = [], []
    fit = FeatureEncoder._fit

    def counted(self, *data):
        inside.append(1)
        most.append(len(inside))
        try:
            return fit(self, *data)
        finally:
            inside.pop()

    monkeypatch.setattr(FeatureEncoder, "_fit", counted)
    encoder = FeatureEncoder(**SMALL)
    starting = threading.Barrier(3)

    def train(number):
        starting.wait(timeout=60)
        encoder.fit(X, Y)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(train, range(3)))
    assert most == [1, 1, 1] and len(encoder.history_) == 3
    assert_same_layers(encoder, fitted())


# --- networks of images, and objects of optax

IMAGES = np.random.default_rng(3).integers(256, size=(60, 8, 8), dtype=np.uint8)
KINDS = np.arange(60) % 3
IMAGES[KINDS == 1, :4] //= 8  # dark at the top
IMAGES[KINDS == 2, 4:] //= 8  # dark at the bottom
CONV = {"network": "conv-small", "network_args": {"width": 2, "size": 6}}
CONV |= {"optimizer": "adam", "learning_rate": 0.01, "batch_size": 10}


@pytest.fixture
def whole_compilation():
    """Without its optimizations XLA (of jax 0.10.2) makes NaN of convolutions as
    patches in a loop; with them it does not."""
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


@pytest.mark.slow
@pytest.mark.usefixtures("whole_compilation")
def test_a_network_of_images_is_fitted_saved_and_loaded(tmp_path):
    encoder = FeatureEncoder(**CONV, epochs=8).fit(IMAGES, KINDS)
    assert encoder.score(IMAGES, KINDS) > 0.9
    assert encoder.transform(IMAGES).shape == (60, 6)
    assert not hasattr(encoder, "layers_")
    encoder.save(tmp_path / "e.npz")
    again = FeatureEncoder.load(tmp_path / "e.npz")
    np.testing.assert_array_equal(again.transform(IMAGES), encoder.transform(IMAGES))
    assert again.network == "conv-small"
    flat = IMAGES.reshape(60, 64)
    np.testing.assert_array_equal(again.predict(flat), encoder.predict(IMAGES))


@pytest.mark.slow
@pytest.mark.usefixtures("whole_compilation")
def test_vector_size_is_that_of_the_embeddings():
    encoder = FeatureEncoder(**CONV, vector_size=5, epochs=1).fit(IMAGES, KINDS)
    assert encoder.transform(IMAGES).shape == (60, 5)
    assert encoder.get_feature_names_out().shape == (5,)


@pytest.mark.parametrize("rule", ["an optimizer", "a schedule"])
def test_objects_of_optax_equal_the_same_by_name(rule):
    schedule = optax.constant_schedule(0.05)
    given = {
        "an optimizer": {"optimizer": optax.sgd(0.05, momentum=0.5)},
        "a schedule": {"learning_rate": schedule, "optimizer_args": {"momentum": 0.5}},
    }[rule]
    by_name = fitted(learning_rate=0.05, optimizer_args={"momentum": 0.5})
    found = FeatureEncoder(**SMALL | {"learning_rate": 0.05} | given).fit(X, Y)
    for ours, theirs in zip(found.layers_, by_name.layers_, strict=True):
        np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"network": "lenet"}, "`network` must be .*'lenet'"),
        ({"network": "vit"}, "`network` vit needs images"),
        ({"objective": "triplet", "objective_args": {"t": 1}}, "must be of margin"),
        ({"objective": "simclr"}, "`objective` simclr compares views"),
        ({"network_args": "depth=2"}, "`network_args` must be a dict"),
        ({"schedule": "fast"}, "`rate_schedule` must be"),
        ({"micro_batches": 3}, "`micro_batches` must divide `batch_size` 8, got 3"),
        ({"optimizer": optax.sgd(1), "optimizer_args": {"b": 1}}, "must be None with"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_wrong_networks_and_objectives_are_one_line(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        FeatureEncoder(**SMALL | {"layers": None} | options).fit(X, Y)


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


@pytest.mark.row("B89")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x.astype(float), "float64 of 0 to 255: give X.astype(np.uint8)."),
        (lambda x: x.astype(int) - 200, "`X` must be of uint8, 0 to 255, as in `fit`"),
        (lambda x: x.astype(int) + 1, "int64 of 1 to 256."),
        (
            lambda x: x.transpose(0, 3, 1, 2),
            "`X` must be [n, 4, 5, 3], as in `fit`, or",
        ),
        (lambda x: x.reshape(12, 4, 15), "rows of 60 numbers, got [12, 4, 15]."),
        (lambda x: x[:, :2], "got [12, 2, 5, 3]."),
        (lambda x: x[0], "got [4, 5, 3]. One example is X[np.newaxis]."),
        (lambda x: x.reshape(12, 60)[:, :50], "got [12, 50]."),
    ],
)
def test_other_shapes_and_scales_than_in_fit_are_refused(of_images, change, message):
    for method in (of_images.predict, of_images.transform, of_images.predict_proba):
        with pytest.raises(ValueError, match=re.escape(message)):
            method(change(PHOTOS))
