import json

import numpy as np
import pytest

import legacy
from embedder.config import Config, with_options
from embedder.encoders.artefact import (
    EncoderFile,
    read_encoder,
    write_encoder,
)
from embedder.encoders.estimator import FeatureEncoder
from embedder.encoders.networks.mlp import MLP, arrays_of
from embedder.encoders.problem import model_settings
from embedder.errors import InputError

SETTINGS = model_settings(
    with_options(Config(), model="encoder", learning_rate=0.001)
) | {"layers": (6, 4, 2)}


def layer(inputs: int, outputs: int, value=0.5) -> tuple[np.ndarray, np.ndarray]:
    return np.full((inputs, outputs), value, np.float32), np.zeros(outputs, np.float32)


@pytest.fixture
def model() -> EncoderFile:
    return EncoderFile(
        settings=SETTINGS,
        classes=np.array(["red", "\u00e4"]),
        arrays=arrays_of([layer(6, 4), layer(4, 2, -0.25)]),
        history=[{"train_loss": 0.5, "val_loss": None}],
        example_shape=(3, 2),
        example_dtype="uint8",
    )


@pytest.fixture
def path(tmp_path, model):
    """The file of the model."""
    write_encoder(tmp_path / "model.npz", model)
    return tmp_path / "model.npz"


def rewrite(path, save=np.savez, **changes) -> None:
    """The file with members changed; those that are None are left out."""
    with np.load(path) as members:
        members = dict(members) | changes
    save(path, **{name: x for name, x in members.items() if x is not None})


def text(value) -> np.ndarray:
    return np.frombuffer(value.encode(), np.uint8)


def assert_refused(path, reason: str = "whole", *, oracle: bool = True) -> None:
    """By one line that names the file; the oracle may give another reason."""
    with pytest.raises(ValueError, match=reason) as error:
        read_encoder(path)
    messages = [str(error.value)]
    if oracle:
        with pytest.raises(ValueError) as error:
            legacy.FeatureEncoder.load(path)
        messages.append(str(error.value))
    for message in messages:
        assert message.startswith(f"{path} is not a whole encoder file: ")
        assert "\n" not in message and len(message) < 300 + len(str(path))


def test_the_members_and_settings_of_an_mlp_stay(path):
    """`legacy` reads no file with other settings."""
    with np.load(path) as members:
        assert members.files == [
            *("format", "settings", "classes", "history", "shape", "kind"),
            *("weights_0", "weights_1", "biases_0", "biases_1"),
        ]
        assert members["settings"].tobytes() == (
            b'{"layers": [6, 4, 2], "optimizer": "adam", "optimizer_args": null, '
            b'"learning_rate": 0.001, "batch_size": 32, "epochs": 5, '
            b'"validation_fraction": 0.0, "seed": 1, "workers": 1, "dtype": "float32"}'
        )


def test_write_then_read_returns_the_same_encoder(path, model):
    again = read_encoder(path)
    assert again._replace(classes=0, arrays=0) == model._replace(classes=0, arrays=0)
    np.testing.assert_array_equal(again.classes, model.classes, strict=True)
    assert {*again.arrays} == {*model.arrays}
    for name, array in again.arrays.items():
        np.testing.assert_array_equal(array, model.arrays[name], strict=True)


@pytest.mark.parametrize(
    "classes",
    [np.array([3, 7]), np.array([False, True]), np.array([0.5, 2.0])],
    ids=lambda classes: classes.dtype.name,
)
def test_classes_keep_their_dtype(path, model, classes):
    write_encoder(path, model._replace(classes=classes))
    np.testing.assert_array_equal(read_encoder(path).classes, classes, strict=True)


def test_classes_of_objects_become_text(path, model):
    write_encoder(path, model._replace(classes=np.array(["a", "b"], dtype=object)))
    assert read_encoder(path).classes.dtype.str == "<U1"


def test_shape_and_dtype_of_examples_are_optional(path):
    rewrite(path, shape=None, kind=None)  # as in a file of `legacy`
    again = read_encoder(path)
    assert (again.example_shape, again.example_dtype) == ((6,), "float32")


def test_settings_that_a_file_lacks_have_defaults(path):
    rewrite(path, settings=text('{"batch_size": 7}'))  # `legacy` has no default
    again = read_encoder(path)
    assert again.settings == {"batch_size": 7, "layers": None, "dtype": "float32"}
    assert again.network == MLP((6, 4, 2))
    assert FeatureEncoder.load(path).batch_size == 7


def test_settings_of_another_network_are_refused_by_feature_encoder(path):
    """Here `label` takes the part of a setting that a new network adds."""
    rewrite(path, settings=text(json.dumps(SETTINGS | {"label": "y"})))
    assert read_encoder(path).settings["label"] == "y"
    with pytest.raises(InputError, match="FeatureEncoder does not have, `label`"):
        FeatureEncoder.load(path)


def test_a_write_that_fails_leaves_the_file_as_it_was(path, model):
    before = path.read_bytes()
    with pytest.raises(TypeError):
        write_encoder(path, model._replace(history=[{1, 2}]))
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == [path.name]


# --- damage


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="Model file .*no.npz does not exist."):
        read_encoder(tmp_path / "no.npz")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"format": text("embedder-table-model 1")}, "its format is b'embedder-table"),
        ({"format": None}, "no item named 'format.npy'"),
        ({"settings": None}, "no item named 'settings.npy'"),
        ({"biases_1": None}, "it has no 'biases_1'"),
        ({"weights_1": None}, "'biases_1'. are not members of an encoder"),
        ({"classes": None}, "no item named 'classes.npy'"),
        ({"history": None}, "no item named 'history.npy'"),
        ({"settings": text('{"layer": null}')}, "`settings` has other names"),
        ({"settings": text('{"layers": 1}')}, "`layers` must be integers >= 1, got 1"),
        ({"settings": text("[]")}, "`settings` has other names"),
        ({"format": text("embedder-encoder-model 2")}, "its format is b'embedder-enc"),
        ({"settings": text("{")}, "Expecting property name"),
        (
            {"settings": text(json.dumps(SETTINGS | {"layers": 5}))},
            "must be integers >= 1, got 5",
        ),
        ({"settings": text(json.dumps(SETTINGS | {"dtype": "float64"}))}, "of float64"),
        ({"history": text("[")}, "Expecting value"),
        ({"weights_0": np.ones((6, 3), np.float32)}, r"layer 0 is \(6, 3\) and \(4,\)"),
        ({"weights_0": np.ones(6, np.float32)}, r"layer 0 is \(6,\) and \(4,\)"),
        ({"weights_1": np.ones((3, 2), np.float32)}, r"\(6, 4\) and \(3, 2\) do not"),
        ({"weights_0": np.ones((5, 4), np.float32)}, r"`shape` is \(3, 2\), of 5"),
        (
            {"weights_0": np.ones((6, 4))},
            "`weights_0` is not finite numbers of float32",
        ),
        (
            {"weights_0": np.full((6, 4), np.nan, np.float32)},
            "`weights_0` is not finite",
        ),
        ({"biases_1": np.full(2, np.inf, np.float32)}, "`biases_1` is not finite"),
        ({"classes": np.array(["a"])}, "it has 1 classes, its layers another number"),
        ({"shape": np.array([3, 3])}, r"`shape` is \(3, 3\), of 6 features"),
        ({"classes": np.array([{}, 1])}, "`classes` holds pickled objects"),
        ({"shapd": np.array([3, 2])}, "'shapd'. are not members"),
    ],
    ids=lambda value: "_".join(value) if isinstance(value, dict) else "",
)
def test_other_members_are_refused(path, changes, reason):
    rewrite(path, **changes)
    assert_refused(path, reason, oracle=not {*changes} & {"shape", "shapd"})


def test_a_single_layer_is_refused(path):
    rewrite(path, weights_1=None, biases_1=None)
    assert_refused(path, "it has 1 layers")


def test_what_is_compressed_is_refused(path):
    rewrite(path, save=np.savez_compressed)
    assert_refused(path, "is compressed", oracle=False)


@pytest.mark.parametrize("kept", [0, 10, 500, -30, -1])
def test_a_truncated_file_is_refused(path, kept):
    path.write_bytes(path.read_bytes()[:kept])
    assert_refused(path)


def test_a_text_is_refused(path):
    path.write_text("not a zip")
    assert_refused(path, "File is not a zip file")


def test_a_folder_is_refused(tmp_path):
    assert_refused(tmp_path, "Is a directory")


@pytest.mark.parametrize(
    "part",
    [np.full(8, 0.5, np.float32).tobytes(), b'"optimizer"', b"shape.npy"],
    ids=["weights", "settings", "name"],
)
@pytest.mark.parametrize("occurrence", ["first", "last"])
def test_a_flipped_bit_is_noticed(path, part, occurrence):
    """In weights, settings, and names, which are there twice."""
    data = bytearray(path.read_bytes())
    place = data.index(part) if occurrence == "first" else data.rindex(part)
    data[place + 3] ^= 1
    path.write_bytes(data)
    assert_refused(path, oracle=part != b"shape.npy")
