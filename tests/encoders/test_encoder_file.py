"""Files of encoders; tests/refusals has what is refused of them."""

import numpy as np
import pytest

from embedder.api.encoder_estimator import FeatureEncoder
from embedder.config import Config, with_options
from embedder.encoders.artefact import EncoderFile, read_encoder, write_encoder
from embedder.encoders.networks.mlp import MLP, arrays_of
from embedder.encoders.task import model_settings
from tests.commands import flip

SETTINGS = model_settings(
    with_options(Config(), model="encoder", learning_rate=0.001)
) | {"layers": (6, 4, 2)}
OBJECTS = np.array(["a", "b"], dtype=object)


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


@pytest.mark.parametrize("values", [[3, 7], [False, True], [0.5, 2.0], OBJECTS])
def test_classes_keep_their_dtype_and_objects_become_text(path, model, values):
    write_encoder(path, model._replace(classes=np.array(values)))
    expected = np.array(values) if values is not OBJECTS else np.array(["a", "b"])
    np.testing.assert_array_equal(read_encoder(path).classes, expected, strict=True)


def test_members_and_settings_that_a_file_of_the_oracle_lacks_have_defaults(path):
    settings = np.frombuffer(b'{"batch_size": 7}', np.uint8)
    rewrite(path, shape=None, kind=None, settings=settings)
    again = read_encoder(path)
    assert (again.example_shape, again.example_dtype) == ((6,), "float32")
    assert again.settings == {"batch_size": 7, "layers": None, "dtype": "float32"}
    assert again.network == MLP((6, 4, 2))
    assert FeatureEncoder.load(path).batch_size == 7


def test_what_is_compressed_is_refused(path):
    rewrite(path, save=np.savez_compressed)
    with pytest.raises(ValueError, match="not a whole encoder file: .* is compressed"):
        read_encoder(path)


@pytest.mark.parametrize(
    "part",
    [np.full(8, 0.5, np.float32).tobytes(), b'"optimizer"', b"shape.npy"],
    ids=["weights", "settings", "name"],
)
@pytest.mark.parametrize("index", [bytes.index, bytes.rindex])
def test_a_flipped_bit_is_noticed(path, part, index):
    """In weights, settings, and names, which are there twice."""
    flip(path, index(path.read_bytes(), part) + 3)
    with pytest.raises(ValueError, match=f"{path} is not a whole encoder file: .+"):
        read_encoder(path)


def test_the_file_of_an_estimator_names_the_network_that_auto_is(tmp_path):
    images = np.random.default_rng(0).integers(256, size=(12, 8, 8)).astype(np.uint8)
    encoder = FeatureEncoder(network="auto", epochs=0).fit(images, np.arange(12) % 3)
    encoder.save(tmp_path / "encoder.npz")
    found = FeatureEncoder.load(tmp_path / "encoder.npz")
    assert found.network == "conv-small"
    np.testing.assert_array_equal(found.transform(images), encoder.transform(images))
