"""Model files: what they hold, and what port and oracle refuse to read."""

import io
import json
import math
import os
import zipfile

import numpy as np
import pytest

import legacy
from embedder.config import Config
from embedder.tables.artefact import ModelFile, model_settings, read_model, write_model

SETTINGS = model_settings(Config())
SETTINGS |= {"vector_size": 2, "cap": math.inf, "alpha": None, "workers": 1}
TOKENS = ["New York", "\u00e4", "\u2028", "c"]
READERS = {"port": read_model, "oracle": legacy.EmbeddingTrainer.load}
each_reader = pytest.mark.parametrize("read", READERS.values(), ids=READERS)


@pytest.fixture
def model() -> ModelFile:
    return ModelFile(
        settings=SETTINGS,
        block=64,
        tokens=TOKENS,
        counts=np.array([3, 2, 2, 1]),
        input=np.arange(8, dtype=np.float32).reshape(4, 2),
        output=np.zeros((4, 2), np.float32),
        loss_history=[3.5, 2.25],
    )


@pytest.fixture
def path(tmp_path, model):
    """The file of the model."""
    path = tmp_path / "model \u00e9.npz"
    write_model(path, model)
    return path


def members_of(path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as members:
        return dict(members)


def text(string: str) -> np.ndarray:
    return np.frombuffer(string.encode(), np.uint8)


def settings(**changes) -> np.ndarray:
    return text(json.dumps(SETTINGS | {"cap": 1.0} | changes))


def expect_refusal(read, path, reason: str = "") -> None:
    """By one line that names the file."""
    message = rf"model \u00e9.npz is not a whole model file: .*({reason}).*\.$"
    with pytest.raises(ValueError, match=message) as error:
        read(path)
    assert "\n" not in str(error.value)


def test_a_model_comes_back_as_it_was(path, model):
    again = read_model(path)
    assert again._replace(counts=0, input=0, output=0) == model._replace(
        counts=0, input=0, output=0
    )
    for name in ("counts", "input", "output"):
        np.testing.assert_array_equal(
            getattr(again, name), getattr(model, name), strict=True
        )


def test_port_and_oracle_write_the_same_members(tmp_path, path, model):
    oracle = legacy.EmbeddingTrainer.load(path)
    assert oracle.index_to_key == TOKENS and oracle.loss_history == [3.5, 2.25]
    np.testing.assert_array_equal(oracle.vectors, model.input, strict=True)
    oracle.save(tmp_path / "oracle.npz")
    for written in (path, tmp_path / "oracle.npz"):
        members = members_of(written)
        assert members["format"].tobytes() == b"embedder-table-model 1"
        found = json.loads(members["settings"].tobytes())
        desired = SETTINGS | {"cap": "inf"}
        for name in ("optimizer", "hs", "subwords", "buckets", "cbow_mean"):
            del desired[name]  # as in files from before there was a choice
        assert found == desired
        assert members["tokens"].tobytes().decode() == "".join(TOKENS)
        assert members["token_ends"].tolist() == [8, 10, 13, 14]
        assert [(name, x.dtype.str) for name, x in members.items()] == [
            *(("format", "|u1"), ("settings", "|u1"), ("block", "<i8")),
            *(("tokens", "|u1"), ("token_ends", "<i8"), ("counts", "<i8")),
            *(("input", "<f4"), ("output", "<f4"), ("loss_history", "<f8")),
        ]


@pytest.fixture
def adagrad(model) -> ModelFile:
    row_state = {
        "input_accumulator": np.array([0, 2, 0.5, 1], np.float32),
        "output_accumulator": np.zeros(4, np.float32),
    }
    settings = SETTINGS | {"cap": None, "optimizer": "adagrad"}
    return model._replace(settings=settings, row_state=row_state)


def test_a_file_of_adagrad_has_its_accumulators(path, adagrad):
    write_model(path, adagrad)
    legacy.EmbeddingTrainer.load(path).save(path.with_name("oracle.npz"))
    for written in (path, path.with_name("oracle.npz")):
        again = read_model(written)
        assert again.settings == adagrad.settings
        found = list(members_of(written))
        assert found[-3:] == ["input_accumulator", "output_accumulator", "loss_history"]
        assert {*again.row_state} == {*adagrad.row_state}
        for name, accumulator in adagrad.row_state.items():
            np.testing.assert_array_equal(
                again.row_state[name], accumulator, strict=True
            )


@pytest.mark.parametrize("writer", READERS)
def test_a_write_that_fails_keeps_the_old_file(path, model, monkeypatch, writer):
    before, oracle = path.read_bytes(), legacy.EmbeddingTrainer.load(path)

    def full(file, **members):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space left"):
        write_model(path, model) if writer == "port" else oracle.save(path)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


@each_reader
def test_a_missing_file_is_named(tmp_path, read):
    with pytest.raises(FileNotFoundError, match="Model file .*no.npz does not exist."):
        read(tmp_path / "no.npz")


CHANGES = [
    ("format", text("embedder-table-model 2"), "its format is b'embedder-table-model"),
    ("settings", text("{"), "Expecting"),
    ("settings", text("[]"), "other names|no JSON object"),
    ("settings", text("{}"), "`settings` has other names than the arguments"),
    ("settings", text("[" * 200_000), "recursion|Stack overflow"),
    (
        "settings",
        settings(window=0),
        "`window` must be an integer from 1 to 127",
    ),
    ("settings", settings(alpha="fast"), "`alpha` must be a finite number > 0, got"),
    ("settings", settings(vector_size=3), r"`input` must be float32\[4, 3\], got"),
    ("settings", settings(dtype="float64"), r"`input` must be float64\[4, 2\], got"),
    ("settings", settings(block=128), "`block` is 64, "),
    ("settings", settings(tile=48), "`block` must be a positive multiple|contradict"),
    ("block", np.array(60), "`block` is 60|`block` must be a positive multiple"),
    ("block", np.array([64, 64]), "`block` (is|must be) "),
    ("input", np.ones((3, 2), "f4"), r"`input` must be float32\[4, 2\], got float32"),
    ("output", np.ones((4, 3), "f4"), r"`output` must be float32\[4, 2\], got"),
    ("input", np.ones((4, 2)), "`input` must be float32"),
    ("input", np.ones((4, 2), ">f4"), "`input` must be float32"),
    ("output", np.full((4, 2), np.nan, "f4"), "`output` .*not finite"),
    ("input", np.full((4, 2), np.inf, "f4"), "`input` .*not finite"),
    ("counts", np.arange(1, 6), "`counts` must be "),
    ("counts", np.array([1, 0, 2, 3]), "`counts` must be 4 numbers >= 1|counts below"),
    ("counts", np.ones(4), r"`counts` (is|must be) "),
    ("counts", np.array(1), r"`counts` (is|must be) "),
    ("counts", np.array([{}] * 4), "pickle|wrong size"),
    ("token_ends", np.array([9, 11, 14, 15]), "fit|must rise"),
    ("token_ends", np.array([14, 13, 10, 8]), "fit|must rise"),
    ("token_ends", np.zeros(0, "i8"), "fit|must rise|there is none"),
    ("token_ends", np.array([8.0, 10, 13, 14]), "`token_ends` (is|has a wrong type)"),
    ("token_ends", np.array([8, 10, 13, 14], "i4"), "`token_ends` (is|has a wrong)"),
    ("token_ends", np.array([8, 9, 13, 14]), "can't decode"),
    ("token_ends", np.array([8, 10, 10, 14]), "token (2 )?is empty"),
    ("loss_history", np.array([3, 2]), "`loss_history` (is|must be float64)"),
    ("loss_history", np.zeros((2, 2)), "`loss_history` (is|must be float64)"),
]


@each_reader
@pytest.mark.parametrize(("name", "value", "reason"), CHANGES)
def test_parts_that_do_not_fit_are_refused(path, read, name, value, reason):
    np.savez(path, **members_of(path) | {name: value})
    expect_refusal(read, path, reason)


@each_reader
@pytest.mark.parametrize(
    ("accumulator", "reason"),
    [
        (np.zeros(2, "f4"), r"must be float32\[4\], got float32\[2\]"),
        (np.zeros(4), r"must be float32\[4\], got float64\[4\]"),
        (np.full(4, np.inf, "f4"), "(must be|has values that are not) finite .*>= 0"),
        (np.full(4, -1, "f4"), "(must be|has values that are not) finite .*>= 0"),
    ],
)
def test_wrong_accumulators_are_refused(path, adagrad, read, accumulator, reason):
    row_state = adagrad.row_state | {"output_accumulator": accumulator}
    write_model(path, adagrad._replace(row_state=row_state))
    expect_refusal(read, path, f"`output_accumulator` {reason}")


@each_reader
def test_missing_accumulators_are_named(path, adagrad, read):
    write_model(path, adagrad._replace(row_state={}))
    expect_refusal(read, path, "input_accumulator")


@each_reader
def test_a_token_that_comes_twice_is_refused(path, read):
    ends = np.array([4, 8, 11, 14])
    changes = {"tokens": text("aabbaabbxyzuvw"), "token_ends": ends}
    np.savez(path, **members_of(path) | changes)
    expect_refusal(read, path, "tokens 0 and 1 are both 'aabb'|occurs twice")


@each_reader
def test_a_file_of_another_kind_is_refused(path, read):
    members = members_of(path)
    for content in (b"", b"word 0.1 0.2\n", b"PK\x03\x04", b"\x80\x04\x95gensim's"):
        path.write_bytes(content)
        expect_refusal(read, path)
    with open(path, "wb") as file:
        np.save(file, np.ones(3))
    expect_refusal(read, path, "not a zip file")
    np.savez(path, vectors=np.ones((3, 2)))
    expect_refusal(read, path, "it has no `format`|no item named 'format.npy'")
    np.savez_compressed(path, **members)
    expect_refusal(read, path, "`format` is compressed")


@each_reader
def test_a_truncated_file_is_refused(path, read):
    whole = path.read_bytes()
    for size in [*range(0, len(whole), 97), len(whole) - 1]:
        path.write_bytes(whole[:size])
        expect_refusal(read, path)


@each_reader
def test_a_flipped_bit_is_refused_or_harmless(path, read, model):
    whole = path.read_bytes()
    rng, refused = np.random.default_rng(1), 0
    in_table = whole.index(model.input.tobytes()) + 5
    for position in (in_table, *rng.integers(0, len(whole), 150)):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << rng.integers(0, 8)
        path.write_bytes(damaged)
        try:
            found = read(path)
        except ValueError as error:
            assert "is not a whole model file: " in str(error)
            refused += 1
        else:  # a date, or a name that nobody reads
            table = found.input if read is read_model else found.vectors
            np.testing.assert_array_equal(table, model.input)
    assert refused > 50


def test_the_oracle_takes_fortran_order(path, model):
    table = np.asfortranarray(model.input)
    np.savez(path, **members_of(path) | {"input": table})
    found = legacy.EmbeddingTrainer.load(path).vectors
    assert found.flags.c_contiguous
    np.testing.assert_array_equal(found, table)


@each_reader
def test_a_header_that_claims_too_much_is_refused(path, read):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": (2**40, 2)}
    )
    with zipfile.ZipFile(path) as archive:
        contents = {i.filename: archive.read(i) for i in archive.infolist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in (contents | {"input.npy": header.getvalue()}).items():
            archive.writestr(name, content)
    expect_refusal(read, path, "`input` (has a wrong size|claims shape)")
