"""A flipped bit in any file that the program writes is found, and `verify` names it."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from embedder.cli import main
from embedder.vectors.export import read_vectors, write_vectors
from embedder.vectors.vectors import Vectors
from tests.commands import error_line

TABLES = ["--loader", "memory", "--vector-size", "4", "--min-count", "1"]
TABLES += ["--epochs", "2", "--save-every", "1epoch"]
ENCODER = ["--model", "encoder", "--loader", "memory", "--save-every", "1epoch"]
ENCODER += ["--batch-size", "4", "--epochs", "2"]


def flip(path: Path, at: int | None = None) -> None:
    """Another bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 2
    path.write_bytes(data)


def write_images(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("dark", "bright"):
        (folder / name).mkdir(parents=True)
        for number in range(4):
            pixels = rng.integers(256, size=(5, 4, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """Finished runs, `tables` and `encoder`, which tests copy."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "text.txt").write_text("a b c d a c\n" * 20)
    write_images(folder / "images")
    for run, source, options in (
        ("tables", "text.txt", TABLES),
        ("encoder", "images", ENCODER),
    ):
        command = ["train", str(folder / source), "--workdir", str(folder / run)]
        assert main([*command, *options]) == 0
    return folder


@pytest.fixture
def run(made, tmp_path, request) -> Path:
    """A copy of a finished run."""
    shutil.copytree(made / request.param, tmp_path / "run")
    return tmp_path / "run"


both = pytest.mark.parametrize("run", ["tables", "encoder"], indirect=True)


@pytest.mark.spread(1)
@both
def test_a_run_is_whole(run, capsys):
    assert main(["verify", str(run)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].endswith(" whole, 0 not.")
    named = {line.rpartition(": ")[0] for line in lines[:-1]}
    assert named and "" not in named  # every name starts with ""
    for path in run.rglob("*"):
        name = str(path.relative_to(run))
        is_other = name in ("SHA256SUMS", "report.html")
        assert path.is_dir() or is_other or name.startswith(tuple(named))


@pytest.mark.spread(1)
@both
def test_a_flipped_bit_in_any_file_is_named(run, capsys):
    paths = [p for p in run.rglob("*") if p.is_file() and p.stat().st_size]
    paths.remove(run / "report.html")  # which is made of the others
    assert len(paths) > 15
    for path in paths:
        data = path.read_bytes()
        flip(path)
        assert main(["verify", str(run)]) == 1, path
        faulty = [
            line.partition(": ")[0]
            for line in capsys.readouterr().out.splitlines()[:-1]
            if not line.endswith(": whole")
        ]
        name = str(path.relative_to(run))
        is_named = any(name.startswith(each) for each in faulty)
        assert is_named or path.name == "SHA256SUMS", (name, faulty)
        path.write_bytes(data)
    assert main(["verify", str(run)]) == 0


@both
def test_verify_changes_nothing(run):
    flip(run / "model.npz")
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}
    assert main(["verify", str(run)]) == 1
    assert {p: p.read_bytes() for p in run.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize("run", ["tables"], indirect=True)
def test_verify_says_what_to_do_and_that_helps(run, made, capsys):
    whole = (run / "vectors.safetensors").read_bytes()
    flip(run / "vectors.safetensors")
    assert main(["neighbors", str(run), "a"]) == 2
    assert "vectors.safetensors is not a whole vectors file" in error_line(capsys)
    assert main(["verify", str(run)]) == 1
    said = capsys.readouterr().out
    assert f"delete {run}/vectors.safetensors; the same command resumes" in said
    (run / "vectors.safetensors").unlink()
    command = ["train", str(made / "text.txt"), "--workdir", str(run), *TABLES]
    assert main(command) == 0
    assert (run / "vectors.safetensors").read_bytes() == whole
    assert main(["verify", str(run)]) == 0


@pytest.mark.parametrize("run", ["tables"], indirect=True)
@pytest.mark.parametrize("name", ["config.toml", "corpus.json", "vocab.parquet"])
def test_settings_that_are_not_those_that_were_written_are_refused(run, name, capsys):
    (run / "vectors.safetensors").unlink()
    path = run / name
    path.write_bytes(path.read_bytes() + b" ")
    assert main(["train", "--workdir", str(run)]) == 2
    assert f"{run} is damaged: {name} is not what was written" in error_line(capsys)


@pytest.mark.parametrize("run", ["encoder"], indirect=True)
def test_flipped_images_and_labels_are_not_used(run, made, capsys):
    flip(run / "labels.parquet")
    assert main(["neighbors", str(run), "dark/0.png"]) == 2
    assert "labels.parquet is not a whole file of labels" in error_line(capsys)
    (images,) = run.rglob("images.npy")
    flip(images, -1)
    (run / "vectors.safetensors").unlink()
    command = ["train", str(made / "images"), "--workdir", str(run), *ENCODER]
    assert main(command) == 2
    assert f"Cache file {images} is damaged" in error_line(capsys)


@pytest.mark.spread(1)
@pytest.mark.parametrize("ending", [".safetensors", ".npz", ".parquet"])
def test_exported_vectors_never_give_others(tmp_path, ending):
    """Every byte of the file in turn, where the format has room for a sum."""
    path = tmp_path / f"vectors{ending}"
    matrix = np.random.default_rng(0).random((5, 3), np.float32)
    vectors = Vectors(["a", "b", "c", "ä", "e"], matrix, np.arange(1, 6))
    write_vectors(vectors, path)
    data = path.read_bytes()
    refused, places = 0, range(0, len(data), 1 if ending == ".safetensors" else 7)
    if ending == ".parquet":  # each is read on trial, by a process: few do
        start = data.index(matrix.tobytes())
        places = range(start, start + matrix.nbytes, 9)
    for at in places:
        flip_at = bytearray(data)
        flip_at[at] ^= 2
        path.write_bytes(flip_at)
        try:
            found = read_vectors(path)
        except ValueError:
            refused += 1
            continue
        assert found.keys == vectors.keys and (found.matrix == matrix).all()
        assert found.counts is None or (found.counts == vectors.counts).all()
    assert refused > len(places) / 2


def test_vectors_of_other_programs_have_no_sum(tmp_path):
    from safetensors.numpy import save_file

    matrix = np.eye(2, dtype=np.float32)
    ends = np.array([1, 2])
    tokens = np.frombuffer(b"ab", np.uint8)
    arrays = {"vectors": matrix, "tokens": tokens, "token_ends": ends}
    save_file(arrays, tmp_path / "v.safetensors")
    assert (read_vectors(tmp_path / "v.safetensors").matrix == matrix).all()
