import json

import numpy as np
import pytest

import legacy
from embedder import EmbeddingTrainer, read_vectors
from embedder.cli import main
from embedder.run.workdir import Workdir
from migration.convert import model_to_run, run_to_model

SETTINGS = {"vector_size": 8, "min_count": 2, "epochs": 2, "block": 32}


@pytest.fixture
def model(tmp_path, sequences):
    """A model file of the oracle."""
    path = tmp_path / "model.npz"
    legacy.EmbeddingTrainer(**SETTINGS, dtype="float64").fit(sequences).save(path)
    return path


def test_a_run_has_what_the_model_had(tmp_path, model):
    run = Workdir(tmp_path / "run")
    model_to_run(model, run.path)
    trained = legacy.EmbeddingTrainer.load(model)
    vectors = read_vectors(run.vectors)
    np.testing.assert_array_equal(vectors.matrix, trained.vectors, strict=True)
    assert vectors.keys == trained.index_to_key
    lines = map(json.loads, run.metrics.read_text().splitlines())
    assert [line["loss"] for line in lines] == trained.loss_history
    assert run.is_finished


def test_a_round_trip_changes_no_bit(tmp_path, model):
    model_to_run(model, tmp_path / "run")
    run_to_model(tmp_path / "run", tmp_path / "back.npz")
    assert (tmp_path / "back.npz").read_bytes() == model.read_bytes()


def test_a_run_of_the_port_becomes_a_model_of_the_oracle(tmp_path, text_file):
    run, back = tmp_path / "run", tmp_path / "back.npz"
    options = ["--epochs", "2", "--vector-size", "8", "--loader", "memory"]
    assert main(["train", str(text_file), "--workdir", str(run), *options]) == 0
    run_to_model(run, back)
    oracle = legacy.EmbeddingTrainer.load(back)
    np.testing.assert_array_equal(
        oracle.vectors, read_vectors(Workdir(run).vectors).matrix, strict=True
    )
    assert oracle.workers == 1


def test_a_training_of_the_oracle_is_resumed_by_the_port(tmp_path, model, sequences):
    model_to_run(model, tmp_path / "run")
    port = EmbeddingTrainer.load(Workdir(tmp_path / "run").model)
    oracle = legacy.EmbeddingTrainer.load(model)
    for trainer in (port, oracle):
        trainer.partial_fit(sequences).partial_fit(sequences[:100])
    np.testing.assert_allclose(port.vectors, oracle.vectors, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(port.loss_history, oracle.loss_history, rtol=1e-9)


def test_nothing_is_overwritten_without_the_flag(tmp_path, model):
    run = tmp_path / "run"
    model_to_run(model, run)
    before = model.read_bytes()
    with pytest.raises(FileExistsError, match="exists: give another name, or"):
        model_to_run(model, run)
    with pytest.raises(FileExistsError, match="exists: give another name, or"):
        run_to_model(run, model)
    assert model.read_bytes() == before
    model_to_run(model, run, overwrite=True)
    run_to_model(run, model, overwrite=True)
    assert model.read_bytes() == before


def test_a_run_may_be_converted_from_its_own_model(tmp_path, model):
    run = Workdir(tmp_path / "run")
    model_to_run(model, run.path)
    (run.path / "notes.txt").write_text("mine")
    run.text_vectors.unlink()
    model_to_run(run.model, run.path, overwrite=True)
    assert run.model.read_bytes() == model.read_bytes()
    assert run.text_vectors.exists() and (run.path / "notes.txt").exists()
    assert not list(run.path.glob(".*"))


def test_an_error_keeps_the_old_run(tmp_path, monkeypatch, model):
    run = Workdir(tmp_path / "run")
    model_to_run(model, run.path)

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("migration.convert.write_results", full)
    with pytest.raises(OSError, match="No space"):
        model_to_run(model, run.path, overwrite=True)
    assert run.is_finished and run.model.read_bytes() == model.read_bytes()


def test_tokens_with_white_space_are_converted(tmp_path, caplog):
    trainer = EmbeddingTrainer(min_count=1, vector_size=4, epochs=1)
    trainer.fit([["green tea", "milk"]] * 3).save(tmp_path / "m.npz")
    model_to_run(tmp_path / "m.npz", tmp_path / "run")
    assert "there is no vectors.txt" in caplog.text
    assert "green tea" in read_vectors(Workdir(tmp_path / "run").vectors)
    run_to_model(tmp_path / "run", tmp_path / "back.npz")


def altered(model, **changes):
    """The members of a model file, some of them changed."""
    with np.load(model) as members:
        return dict(members) | changes


def as_bytes(text: str):
    return np.frombuffer(text.encode(), np.uint8)


WRONG = {
    "future": ({"format": as_bytes("embedder-table-model 2")}, "format"),
    "foreign": ({"format": as_bytes("other")}, "format"),
    "pickle": (
        {"counts": np.array([{"a": 1}], dtype=object)},
        "`counts` holds pickled objects",
    ),
    "shape": ({"input": np.zeros((3, 8))}, "`input`"),
    "nan": ({"output": np.full((60, 8), np.nan)}, "finite"),
    "names": ({"settings": as_bytes('{"window": 0}')}, "other names"),
    "not_json": ({"settings": as_bytes("{")}, "Expecting"),
    "dtype": ({"token_ends": np.zeros(60, np.int32)}, "`token_ends` is int32[60]"),
    "counts": ({"counts": np.zeros(60, np.int64)}, "`counts` must be 60 numbers >= 1"),
    "counts_0d": ({"counts": np.array(1)}, "`counts` is int64[]"),
    "block_1d": ({"block": np.array([64, 64])}, "`block` is int64[2]"),
    "losses_2d": (
        {"loss_history": np.zeros((2, 2))},
        "`loss_history` is float64[2, 2]",
    ),
    "endian": ({"input": np.zeros((60, 8), ">f8")}, "`input` must be float64[60, 8]"),
    "deep": ({"settings": as_bytes("[" * 200_000)}, "recursion"),
}


@pytest.mark.parametrize("changes, word", WRONG.values(), ids=WRONG.keys())
def test_wrong_model_files_are_refused_in_a_line(
    tmp_path, capsys, model, changes, word
):
    wrong = tmp_path / "wrong.npz"
    np.savez(wrong, **altered(model, **changes))
    assert main(["convert", str(wrong), str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"embedder: {wrong} is not a whole model file: ")
    assert word in error and error.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "name, value", [("window", 0), ("alpha", "fast"), ("dtype", "float16")]
)
def test_settings_out_of_bounds_are_refused(tmp_path, capsys, model, name, value):
    with np.load(model) as members:
        settings = json.loads(members["settings"].tobytes()) | {name: value}
    changed = altered(model, settings=as_bytes(json.dumps(settings)))
    np.savez(tmp_path / "wrong.npz", **changed)
    assert main(["convert", str(tmp_path / "wrong.npz"), str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert f"`{name}`" in error and error.count("\n") == 1


def test_a_repeated_token_is_refused(tmp_path, capsys, model):
    with np.load(model) as members:
        ends = members["token_ends"]
        tokens = members["tokens"].copy()
    length = int(ends[1] - ends[0])
    assert length == ends[0]
    tokens[length : 2 * length] = tokens[:length]
    np.savez(tmp_path / "wrong.npz", **altered(model, tokens=tokens))
    assert main(["convert", str(tmp_path / "wrong.npz"), str(tmp_path / "run")]) == 2
    assert "twice" in capsys.readouterr().err


@pytest.mark.slow
def test_every_flipped_bit_of_the_directory_is_refused_or_harmless(tmp_path, model):
    """The end of a zip file says where its members are, and how to read them."""
    whole = model.read_bytes()
    before = EmbeddingTrainer.load(model).vectors
    for place in range(len(whole) - 400, len(whole)):
        for bit in range(8):
            data = bytearray(whole)
            data[place] ^= 1 << bit
            model.write_bytes(data)
            try:
                loaded = EmbeddingTrainer.load(model)
            except ValueError as error:
                assert "is not a whole model file" in str(error)
            else:
                np.testing.assert_array_equal(loaded.vectors, before)


@pytest.mark.parametrize(
    "argv, message",
    [
        (["{model}", "{other}"], "TARGET must be a run, or empty, or new"),
        (["{model}", "{model}"], "TARGET must be a folder, got the file"),
        (["{run}", "{other}"], "TARGET must be a model file, got the folder"),
        (["--source", "{model}"], "Unknown option `--source`: give it without."),
    ],
)
def test_wrong_targets_are_refused_in_a_line(tmp_path, capsys, model, argv, message):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    model_to_run(model, tmp_path / "run")
    paths = {name: tmp_path / name for name in ("other", "run")} | {"model": model}
    assert main(["convert", *(text.format(**paths) for text in argv)]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


@pytest.mark.parametrize(
    "data",
    [b"", b"PK\x03\x04", b"\x80\x04\x95gensim's own save is a pickle."],
    ids=["empty", "cut_short", "pickle"],
)
def test_other_files_are_refused(tmp_path, capsys, data):
    other = tmp_path / "other.npz"
    other.write_bytes(data)
    assert main(["convert", str(other), str(tmp_path / "run")]) == 2
    assert "is not a whole model file" in capsys.readouterr().err


def test_a_damaged_model_is_refused(tmp_path, capsys, model):
    data = bytearray(model.read_bytes())
    data[len(data) // 2] ^= 1
    model.write_bytes(data)
    assert main(["convert", str(model), str(tmp_path / "run")]) == 2
    assert "is not a whole model file" in capsys.readouterr().err


def test_a_header_that_claims_too_much_is_refused(tmp_path, capsys, model):
    import io
    import zipfile

    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f8", "fortran_order": False, "shape": (10**9, 10**6)}
    )
    wrong = tmp_path / "wrong.npz"
    with zipfile.ZipFile(model) as old, zipfile.ZipFile(wrong, "w") as new:
        for info in old.infolist():
            is_input = info.filename == "input.npy"
            new.writestr(info, header.getvalue() if is_input else old.read(info))
    assert main(["convert", str(wrong), str(tmp_path / "run")]) == 2
    assert "claims shape" in capsys.readouterr().err


def test_convert_by_command_both_ways(tmp_path, capsys, model):
    run, back = tmp_path / "run", tmp_path / "back.npz"
    assert main(["convert", str(model), str(run)]) == 0
    assert "vectors of 8 numbers" in capsys.readouterr().out
    assert main(["convert", str(run), str(back)]) == 0
    assert back.read_bytes() == model.read_bytes()
    assert main(["neighbors", str(run), "w0"]) == 0


def test_a_run_that_is_not_finished_is_refused(tmp_path, capsys):
    (tmp_path / "run").mkdir()
    assert main(["convert", str(tmp_path / "run"), str(tmp_path / "m.npz")]) == 2
    assert "holds no finished run" in capsys.readouterr().err


def test_training_into_a_converted_run_is_refused(tmp_path, capsys, model, text_file):
    run = tmp_path / "run"
    model_to_run(model, run)
    options = ["--loader", "memory", "--config", str(run / "config.toml")]
    code = main(["train", str(text_file), "--workdir", str(run), *options])
    assert code == 2
    assert "another corpus" in capsys.readouterr().err
