import json
import math

import numpy as np
import pytest

from embedder.config import Config
from embedder.tables.artefact import ModelFile, model_settings, read_model, write_model

SETTINGS = model_settings(Config())
SETTINGS |= {"vector_size": 2, "cap": math.inf, "alpha": None}


@pytest.fixture
def model() -> ModelFile:
    return ModelFile(
        settings=SETTINGS,
        block=64,
        tokens=["a b", "\u00e4", "c"],
        counts=np.array([3, 2, 1]),
        input=np.arange(6, dtype=np.float32).reshape(3, 2),
        output=np.zeros((3, 2), np.float32),
        loss_history=[3.5, 2.25],
    )


def test_a_model_comes_back_as_it_was(tmp_path, model):
    write_model(tmp_path / "model", model)
    again = read_model(tmp_path / "model")
    assert again._replace(counts=0, input=0, output=0) == model._replace(
        counts=0, input=0, output=0
    )
    for name in ("counts", "input", "output"):
        np.testing.assert_array_equal(
            getattr(again, name), getattr(model, name), strict=True
        )


MEMBERS = ["format", "settings", "block", "tokens", "token_ends", "counts"]
MEMBERS += ["input", "output"]


@pytest.fixture
def adagrad(model) -> ModelFile:
    accumulators = {
        "input": np.array([0, 2, 0.5], np.float32),
        "output": np.zeros(3, np.float32),
    }
    settings = SETTINGS | {"cap": None, "optimizer": "adagrad"}
    return model._replace(settings=settings, accumulators=accumulators)


def test_a_file_of_sgd_names_no_optimizer(tmp_path, model):
    """It is what versions wrote that had no other."""
    write_model(tmp_path / "model", model)
    with np.load(tmp_path / "model") as members:
        assert members.files == [*MEMBERS, "loss_history"]
        settings = json.loads(members["settings"].tobytes())
    assert settings == {
        name: "inf" if name == "cap" else value
        for name, value in SETTINGS.items()
        if name != "optimizer"
    }
    assert read_model(tmp_path / "model").settings["optimizer"] == "sgd"


def test_a_file_of_adagrad_has_its_accumulators(tmp_path, adagrad):
    write_model(tmp_path / "model", adagrad)
    with np.load(tmp_path / "model") as members:
        names = ["input_accumulator", "output_accumulator"]
        assert members.files == [*MEMBERS, *names, "loss_history"]
    again = read_model(tmp_path / "model")
    assert again.settings == adagrad.settings
    for name, accumulator in adagrad.accumulators.items():
        np.testing.assert_array_equal(
            again.accumulators[name], accumulator, strict=True
        )


@pytest.mark.parametrize(
    ("accumulator", "reason"),
    [
        (np.zeros(2, np.float32), r"must be float32.3., got float32.2."),
        (np.zeros(3), r"must be float32.3., got float64.3."),
        (np.full(3, np.inf, np.float32), "must be finite numbers >= 0"),
        (np.full(3, -1, np.float32), "must be finite numbers >= 0"),
    ],
)
def test_wrong_accumulators_are_refused(tmp_path, adagrad, accumulator, reason):
    accumulators = adagrad.accumulators | {"output": accumulator}
    write_model(tmp_path / "model", adagrad._replace(accumulators=accumulators))
    with pytest.raises(ValueError, match=f"`output_accumulator` {reason}"):
        read_model(tmp_path / "model")


def test_missing_accumulators_are_named(tmp_path, adagrad):
    write_model(tmp_path / "model", adagrad._replace(accumulators=None))
    with pytest.raises(ValueError, match="input_accumulator"):
        read_model(tmp_path / "model")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="Model file .*no.npz does not exist."):
        read_model(tmp_path / "no.npz")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"tokens": ["a", "b"]}, "`counts` must be 2 numbers"),
        ({"tokens": ["a", "b", "a"]}, "a token is empty, or occurs twice"),
        ({"tokens": ["a", "", "b"]}, "a token is empty, or occurs twice"),
        (
            {"tokens": [], "counts": np.empty(0, np.int64)},
            "a token is empty",
        ),
        ({"counts": np.array([1, 0, 2])}, "`counts` must be 3 numbers >= 1"),
        ({"counts": np.ones(3)}, r"`counts` is float64.3."),
        (
            {"output": np.zeros((3, 3), np.float32)},
            "`output` must be float32.3, 2., got",
        ),
        ({"input": np.full((3, 2), np.nan, np.float32)}, "`input` is not finite"),
        ({"settings": {"window": 5}}, "`settings` has other names than the arguments"),
        ({"settings": SETTINGS | {"vector_size": 3}}, "`input` must be float32.3, 3."),
        ({"settings": SETTINGS | {"dtype": "float64"}}, "`input` must be float64"),
        ({"settings": SETTINGS | {"block": 128}}, "`block` is 64, in its settings 128"),
        ({"settings": SETTINGS | {"tile": 48}}, "`block` must be a positive multiple"),
    ],
    ids=[
        *("rows", "duplicate", "empty_token", "no_tokens", "zero_count", "dtype"),
        *("shape", "nan", "names", "vector_size", "dtype_of_settings"),
        *("block_of_settings", "tile"),
    ],
)
def test_an_inconsistent_model_is_refused(tmp_path, model, change, reason):
    path = tmp_path / "model.npz"
    write_model(path, model._replace(**change))
    with pytest.raises(ValueError, match=f"model.npz is not a whole .*: {reason}"):
        read_model(path)


@pytest.mark.parametrize("kept", [0, 10, 500, -1])
def test_a_truncated_model_is_refused(tmp_path, model, kept):
    path = tmp_path / "model.npz"
    write_model(path, model)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match="is not a whole model file"):
        read_model(path)


def test_a_flipped_bit_is_noticed(tmp_path, model):
    path = tmp_path / "model.npz"
    write_model(path, model)
    data = bytearray(path.read_bytes())
    place = data.index(model.input.tobytes())
    data[place + 5] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match="is not a whole model file"):
        read_model(path)


def test_a_pickle_is_not_loaded(tmp_path, model):
    path = tmp_path / "model.npz"
    write_model(path, model)
    with np.load(path) as arrays:
        members = dict(arrays) | {"tokens": np.array([{}], dtype=object)}
    np.savez(path, **members)
    with pytest.raises(ValueError, match="is not a whole model file"):
        read_model(path)
