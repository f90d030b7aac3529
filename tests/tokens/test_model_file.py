"""Model files: the same of port and oracle, written whole, and safe to read."""

import json
import math

import numpy as np
import pytest

import legacy
from embedder import EmbeddingTrainer

TOKENS = ["New York", "\u00e4", "\u2028", "c"]


def save(path, **options) -> EmbeddingTrainer:
    sequences = [TOKENS, *(TOKENS[:k] for k in (3, 2, 1))]
    settings = {"vector_size": 2, "min_count": 1, "epochs": 2}
    trainer = EmbeddingTrainer(**settings, **options).fit(sequences)
    trainer.save(path)
    return trainer


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
def test_port_and_oracle_write_the_same_members(tmp_path, optimizer):
    """Settings that older files have not are named where they are not the default."""
    options = {"optimizer": optimizer} if optimizer != "sgd" else {"cap": math.inf}
    trainer = save(tmp_path / "port.npz", **options)
    oracle = legacy.EmbeddingTrainer.load(tmp_path / "port.npz")
    assert (oracle.index_to_key, len(oracle.loss_history)) == (TOKENS, 2)
    np.testing.assert_array_equal(oracle.vectors, trainer.vectors, strict=True)
    oracle.save(tmp_path / "oracle.npz")
    with (
        np.load(tmp_path / "port.npz") as ours,
        np.load(tmp_path / "oracle.npz") as his,
    ):
        members, others = dict(ours), dict(his)
    settings = json.loads(members["settings"].tobytes())
    assert settings == json.loads(others.pop("settings").tobytes())
    assert settings["cap"] == ("inf" if optimizer == "sgd" else None)
    later = {"optimizer", "hs", "subwords", "buckets", "cbow_mean"}
    assert later & {*settings} == ({"optimizer"} if optimizer != "sgd" else set())
    for name, array in others.items():
        np.testing.assert_array_equal(members[name], array, strict=True)
    assert members["format"].tobytes() == b"embedder-table-model 1"
    assert members["tokens"].tobytes().decode() == "".join(TOKENS)
    assert members["token_ends"].tolist() == [8, 10, 13, 14]
    accumulators = ["input_accumulator", "output_accumulator"]
    of_rows = [(name, "<f4") for name in accumulators if optimizer != "sgd"]
    assert [(name, x.dtype.str) for name, x in members.items()] == [
        *(("format", "|u1"), ("settings", "|u1"), ("block", "<i8"), ("tokens", "|u1")),
        *(("token_ends", "<i8"), ("counts", "<i8"), ("input", "<f4")),
        *(("output", "<f4"), *of_rows, ("loss_history", "<f8")),
    ]


def test_a_damaged_file_is_refused_or_read_as_it_was(tmp_path):
    """Cut short, or with a flipped bit: some are in a date, or a name nobody reads."""
    path, message = (
        tmp_path / "model.npz",
        "model.npz is not a whole model file: .*\\.$",
    )
    vectors, whole = save(path).vectors, path.read_bytes()
    for size in [*range(0, len(whole), 97), len(whole) - 1]:
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=message):
            EmbeddingTrainer.load(path)
    rng, refused = np.random.default_rng(1), 0
    in_table = whole.index(vectors.tobytes()) + 5
    for position in (in_table, *rng.integers(0, len(whole), 150)):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << rng.integers(0, 8)
        path.write_bytes(damaged)
        try:
            found = EmbeddingTrainer.load(path)
        except ValueError as error:
            assert "is not a whole model file: " in str(error)
            refused += 1
        else:
            np.testing.assert_array_equal(found.vectors, vectors)
    assert refused > 50
