"""Rules of the settings, and model files whole and damaged."""

import inspect
import io
import json
import math
import pickle
import zipfile
from decimal import Decimal

import numpy as np
import pytest

from legacy import EmbeddingTrainer
from legacy.model import Model, check_settings, read_model, write_model

DEFAULTS = {
    name: parameter.default
    for name, parameter in inspect.signature(EmbeddingTrainer).parameters.items()
}
RULES = {
    "vector_size": ("an integer >= 1", [0, -1]),
    "window": ("an integer from 1 to 127", [0, 128]),
    "negative": ("an integer >= 1", [0]),
    "min_count": ("an integer >= 1", [0]),
    "sample": ("a number from 0 to 1", [-0.1, 1.1, math.nan, math.inf]),
    "ns_exponent": ("a finite number", [math.nan, math.inf, -math.inf, 10**400]),
    "alpha": ("a finite number > 0", [0.0, -1, math.nan, math.inf]),
    "min_alpha": ("a number from 0 to `alpha`", [-1e-9, 0.036, math.nan]),
    "epochs": ("an integer >= 0", [-1]),
    "architecture": ("'skipgram' or 'cbow'", ["glove", "", "CBOW"]),
    "seed": ("an integer from 0 to 2**64 - 1", [-1, 2**64]),
    "workers": ("an integer >= 1", [0]),
    "block": ("a positive multiple of `tile`", [0, -16, 15, 17]),
    "tile": ("an integer >= 1", [0]),
    "noise": ("an integer >= 1", [0]),
    "cap": ("a number > 0", [0, -1.0, math.nan]),
    "blocks_per_update": ("an integer >= 1", [0]),
    "dtype": ("'float32' or 'float64'", ["float16", "f4"]),
    "optimizer": ("'sgd' or 'adagrad'", ["adam", "", "SGD"]),
}


@pytest.mark.parametrize(
    "name, value", [(name, v) for name, (_, bad) in RULES.items() for v in bad]
)
def test_settings_out_of_bounds(name, value):
    with pytest.raises(ValueError) as error:
        check_settings(DEFAULTS | {name: value})
    assert str(error.value) == f"`{name}` must be {RULES[name][0]}, got {value!r}."


def wrong_types(name: str) -> list:
    values = [True, np.True_, [1], 1j, np.ones(1), Decimal(1)]
    if name not in ("architecture", "dtype", "optimizer"):
        values.append("1")
    if name not in ("alpha", "block", "cap"):
        values.append(None)
    if "number" not in RULES[name][0]:
        values.append(1.5)
    return values


@pytest.mark.parametrize(
    "name, value", [(name, value) for name in RULES for value in wrong_types(name)]
)
def test_settings_of_wrong_type(name, value):
    with pytest.raises(TypeError) as error:
        check_settings(DEFAULTS | {name: value})
    assert str(error.value) == f"`{name}` must be {RULES[name][0]}, got {value!r}."


def test_settings_become_python_values():
    given = {
        "window": np.int8(3),
        "sample": 0,
        "alpha": np.float32(0.5),
        "cap": math.inf,
        "dtype": np.str_("float64"),
    }
    checked = check_settings(DEFAULTS | given)
    expected = DEFAULTS | given | {"alpha": 0.5}
    assert checked == expected
    for name, kind in [("window", int), ("sample", float), ("dtype", str)]:
        assert type(checked[name]) is kind
    assert type(checked["alpha"]) is float


def test_min_alpha_is_bounded_by_the_alpha_of_the_architecture():
    assert check_settings(DEFAULTS | {"architecture": "cbow", "min_alpha": 0.1})
    with pytest.raises(ValueError, match="`min_alpha` must be"):
        check_settings(DEFAULTS | {"min_alpha": 0.1})
    with pytest.raises(ValueError, match="`min_alpha` must be"):
        check_settings(DEFAULTS | {"alpha": 1e-5})


def test_block_is_a_multiple_of_the_tile_given():
    assert check_settings(DEFAULTS | {"tile": 5, "block": 15})["block"] == 15
    with pytest.raises(ValueError, match="`block` must be .*, got 16"):
        check_settings(DEFAULTS | {"tile": 5, "block": 16})


SETTINGS = check_settings(DEFAULTS | {"vector_size": 3, "cap": math.inf})
TOKENS = ["New York", "é", "\u2028", "a", "日本"]


@pytest.fixture
def model() -> Model:
    rng = np.random.default_rng(0)
    tables = rng.normal(size=(2, 5, 3)).astype(np.float32)
    return Model(TOKENS, np.array([9, 7, 7, 2, 1]), 64, tables, [3.5, 2.25])


@pytest.fixture
def path(tmp_path, model):
    path = tmp_path / "model é.npz"
    write_model(path, SETTINGS, model)
    return path


def members_of(path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as members:
        return dict(members)


def expect_refusal(path, reason: str) -> None:
    with pytest.raises(
        ValueError, match=f"is not a whole model file: .*{reason}.*\\.$"
    ):
        read_model(path)


def test_model_file_round_trip(path, model):
    settings, found = read_model(path)
    assert settings == SETTINGS
    assert found.tokens == model.tokens and found.block == 64
    assert found.loss_history == model.loss_history
    for a, b in [(found.tables, model.tables), (found.counts, model.counts)]:
        np.testing.assert_array_equal(a, b, strict=True)


def test_model_file_members(path):
    members = members_of(path)
    assert members["format"].tobytes() == b"embedder-table-model 1"
    settings = json.loads(members["settings"].tobytes())
    assert list(settings) == [name for name in SETTINGS if name != "optimizer"]
    assert settings["cap"] == "inf" and settings["block"] is None
    assert members["tokens"].tobytes().decode() == "".join(TOKENS)
    assert members["token_ends"].tolist() == [8, 10, 13, 14, 20]
    assert {name: x.dtype.str for name, x in members.items()} == {
        "format": "|u1",
        "settings": "|u1",
        "block": "<i8",
        "tokens": "|u1",
        "token_ends": "<i8",
        "counts": "<i8",
        "input": "<f4",
        "output": "<f4",
        "loss_history": "<f8",
    }


def test_write_model_leaves_nothing_else(path, model):
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    before = path.read_bytes()
    with pytest.raises(TypeError):
        write_model(path, SETTINGS | {"seed": object()}, model)
    with pytest.raises(AttributeError):
        write_model(path, SETTINGS, model._replace(tables=None, tokens=[None]))
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_write_model_failing_halfway_keeps_the_old_file(path, model, monkeypatch):
    before = path.read_bytes()

    def fail(file, **members):
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(OSError, match="disk full"):
        write_model(path, SETTINGS, model)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_read_model_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"Model file .*no\.npz does not exist"):
        read_model(tmp_path / "no.npz")


def test_read_model_truncated_anywhere(path):
    whole = path.read_bytes()
    for size in [*range(0, len(whole), 97), len(whole) - 1]:
        path.write_bytes(whole[:size])
        expect_refusal(path, "")


def test_read_model_with_a_flipped_bit_is_refused_or_the_same(path, model):
    whole = path.read_bytes()
    rng = np.random.default_rng(1)
    refused = 0
    for place in rng.integers(0, len(whole), 150):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << rng.integers(0, 8)
        path.write_bytes(damaged)
        try:
            settings, found = read_model(path)
        except ValueError as error:
            assert "is not a whole model file: " in str(error)
            refused += 1
        else:  # a date, or a name that nobody reads
            assert settings == SETTINGS and found.tokens == TOKENS
            np.testing.assert_array_equal(found.tables, model.tables)
    assert refused > 50


@pytest.mark.parametrize(
    "content", [b"", b"word 0.1 0.2\n", pickle.dumps({"a": 1}), b"PK\x03\x04"]
)
def test_read_model_foreign_bytes(path, content):
    path.write_bytes(content)
    expect_refusal(path, "")


def test_read_model_foreign_npz(path):
    np.savez(path, vectors=np.ones((3, 2)))
    expect_refusal(path, "it has no `format`")


def test_read_model_npy(path):
    with open(path, "wb") as file:
        np.save(file, np.ones(3))
    expect_refusal(path, "not a zip file")


def test_read_model_compressed(path):
    np.savez_compressed(path, **members_of(path))
    expect_refusal(path, "`format` is compressed")


def rewritten(path, **changes) -> None:
    np.savez(path, **members_of(path) | changes)


def as_bytes(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), np.uint8)


DAMAGE = {
    "other format": (lambda m: {"format": as_bytes("table-model 2")}, "its format is"),
    "settings no JSON": (lambda m: {"settings": as_bytes("{")}, "Expecting"),
    "settings a list": (lambda m: {"settings": as_bytes("[]")}, "other names"),
    "settings incomplete": (lambda m: {"settings": as_bytes("{}")}, "other names"),
    "setting out of bounds": (
        lambda m: {
            "settings": as_bytes(json.dumps(SETTINGS | {"window": 0, "cap": 1}))
        },
        "`window` must be an integer from 1 to 127, got 0",
    ),
    "input too short": (
        lambda m: {"input": m["input"][:-1]},
        r"`input` must be float32\[5, 3\], got float32\[4, 3\]",
    ),
    "output too wide": (
        lambda m: {"output": np.ones((5, 4), "f4")},
        "`output` must be",
    ),
    "other dtype": (lambda m: {"input": m["input"].astype("f8")}, "`input` must be"),
    "other endian": (lambda m: {"input": m["input"].astype(">f4")}, "`input` must be"),
    "nan": (lambda m: {"output": m["output"] * np.nan}, "`output` has values that are"),
    "inf": (lambda m: {"input": m["input"] + np.inf}, "`input` has values that are"),
    "too many counts": (lambda m: {"counts": np.arange(1, 7)}, "`counts` must be"),
    "count of zero": (lambda m: {"counts": m["counts"] * 0}, "`counts` has counts"),
    "ends too far": (lambda m: {"token_ends": m["token_ends"] + 1}, "does not fit"),
    "ends not sorted": (
        lambda m: {"token_ends": m["token_ends"][::-1]},
        "does not fit",
    ),
    "ends empty": (lambda m: {"token_ends": np.zeros(0, "i8")}, "does not fit"),
    "ends float": (lambda m: {"token_ends": m["token_ends"] * 1.0}, "a wrong type"),
    "ends in a character": (
        lambda m: {"token_ends": np.array([8, 9, 13, 14, 20])},
        "can't decode",
    ),
    "empty token": (
        lambda m: {"token_ends": np.array([8, 10, 10, 14, 20])},
        "token 2 is empty",
    ),
    "token twice": (
        lambda m: {"tokens": as_bytes("aabbaabbaabbaabbaabb"), "token_ends": ENDS},
        "tokens 0 and 1 are both 'aabb'",
    ),
    "block of another tile": (lambda m: {"block": np.array(60)}, "`block` is 60"),
    "history of integers": (
        lambda m: {"loss_history": np.array([3, 2])},
        "`loss_history` must be float64",
    ),
}
ENDS = np.array([4, 8, 12, 16, 20])


@pytest.mark.parametrize("name", DAMAGE)
def test_read_model_damaged(path, name):
    change, reason = DAMAGE[name]
    rewritten(path, **change(members_of(path)))
    expect_refusal(path, reason)


def test_read_model_takes_fortran_order(path, model):
    rewritten(path, input=np.asfortranarray(model.tables[0]))
    _, found = read_model(path)
    assert found.tables.flags.c_contiguous
    np.testing.assert_array_equal(found.tables, model.tables)


def replaced_member(path, name: str, content: bytes) -> None:
    """Rewrites the file with one member's bytes replaced."""
    with zipfile.ZipFile(path) as archive:
        contents = {i.filename: archive.read(i) for i in archive.infolist()}
    with zipfile.ZipFile(path, "w") as archive:
        for key, old in contents.items():
            archive.writestr(key, content if key == f"{name}.npy" else old)


def test_read_model_never_unpickles(path):
    buffer = io.BytesIO()
    np.save(buffer, np.array([Bomb()] * 3, dtype=object), allow_pickle=True)
    replaced_member(path, "counts", buffer.getvalue())
    expect_refusal(path, "")
    assert not Bomb.exploded


class Bomb:
    exploded = False

    def __setstate__(self, state):
        Bomb.exploded = True

    def __getstate__(self):
        return {"a": 1}


def test_read_model_asks_for_no_more_memory_than_the_file_has(path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": (2**40, 3)}
    )
    replaced_member(path, "input", header.getvalue())
    expect_refusal(path, "`input` has a wrong size")
