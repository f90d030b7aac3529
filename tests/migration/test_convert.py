import json

import numpy as np
import pytest

import legacy
from embedder import EmbeddingTrainer, read_vectors
from embedder.cli.main import main
from embedder.disk.workdir import Workdir
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
    assert "vectors.txt is not written" in caplog.text
    assert "green tea" in read_vectors(Workdir(tmp_path / "run").vectors)
    run_to_model(tmp_path / "run", tmp_path / "back.npz")


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


def test_convert_by_command_both_ways(tmp_path, capsys, model, text_file):
    run, back = tmp_path / "run", tmp_path / "back.npz"
    assert main(["convert", str(model), str(run)]) == 0
    assert "vectors of 8 numbers" in capsys.readouterr().out
    assert main(["convert", str(run), str(back)]) == 0
    assert back.read_bytes() == model.read_bytes()
    assert main(["neighbors", str(run), "w0"]) == 0
    options = ["--loader", "memory", "--config", str(run / "config.toml")]
    assert main(["train", str(text_file), "--workdir", str(run), *options]) == 2
    assert "another corpus" in capsys.readouterr().err
    options = ["--epochs", "2", "--vector-size", "8", "--loader", "memory"]
    command = ["train", str(text_file), "--workdir", str(run), "--overwrite"]
    assert main([*command, *options]) == 0
    assert main(["convert", str(run), str(back), "--overwrite"]) == 0
    oracle, vectors = legacy.EmbeddingTrainer.load(back), read_vectors(run)
    np.testing.assert_array_equal(oracle.vectors, vectors.matrix, strict=True)
    assert oracle.workers == 1
