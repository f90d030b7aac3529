"""A flipped bit in any file that the program writes is found, and `verify` names it."""

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from embedder import Vectors, read_ensemble, read_vectors, write_vectors
from embedder.cli.main import main
from embedder.errors import InputError
from tests.commands import error_line, flip, train_runs
from tests.encoders.image_cases import write_pngs

TABLES = "--loader memory --vector-size 4 --min-count 1 --epochs 2 --save-every 1epoch"
TABLES += " --next-items"
ENCODER = "--model encoder --loader memory --save-every 1epoch --batch-size 4 "
ENCODER += "--epochs 2"


def train(folder: Path, data: str, run: Path, options: str) -> int:
    return main(["train", str(folder / data), "--workdir", str(run), *options.split()])


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """Data, and finished runs, `tables`, `encoder` and `replicas`, which tests copy."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "text.txt").write_text("a b c d a c\n" * 20)
    rng = np.random.default_rng(0)
    for name in ("dark", "bright"):
        write_pngs(folder / "images" / name, rng.integers(256, size=(4, 5, 4, 3)))
    tables = f"text.txt {TABLES}"
    train_runs(folder, tables=tables, encoder=f"images {ENCODER}")
    train_runs(folder, replicas=f"{tables} --replicas 3 --no-report")
    return folder


@pytest.fixture
def run(made, tmp_path, request) -> Path:
    """A copy of a finished run."""
    shutil.copytree(made / request.param, tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.spread(1)
@pytest.mark.parametrize("run", ["tables", "encoder"], indirect=True)
def test_a_flipped_bit_in_any_file_is_named(run, capsys):
    assert main(["verify", str(run)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].endswith(" whole, 0 not.")
    paths = [p for p in run.rglob("*") if p.is_file() and p.stat().st_size]
    paths.remove(run / "report.html")  # which is made of the others
    assert len(paths) > 15
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
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
    assert before == {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}


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
    assert train(made, "text.txt", run, TABLES) == 0
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
    assert train(made, "images", run, ENCODER) == 2
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
        path.write_bytes(data)
        flip(path, at)
        try:
            found = read_vectors(path)
        except ValueError:
            refused += 1
            continue
        assert found.keys == vectors.keys and (found.matrix == matrix).all()
        assert found.counts is None or (found.counts == vectors.counts).all()
    assert refused > len(places) / 2


def header(change: Callable[[dict], object]) -> Callable[[bytes], bytes]:
    def changed(data: bytes) -> bytes:
        (size,) = struct.unpack("<Q", data[:8])
        found = json.loads(data[8 : 8 + size])
        change(found)
        text = json.dumps(found).encode()
        return struct.pack("<Q", len(text)) + text + data[8 + size :]

    return changed


def shape(name: str, *shape: int) -> Callable[[bytes], bytes]:
    return header(lambda found: found[name].update(shape=shape))


def longer_vectors(found: dict) -> None:
    """The shape and the offsets agree, the file is shorter."""
    found["vectors"]["shape"][0] = 10**9
    first, last = found["vectors"]["data_offsets"]
    found["vectors"]["data_offsets"] = [first, first + (last - first) // 3 * 10**9]


@pytest.mark.row("F39", "B21")
@pytest.mark.parametrize("run", ["replicas"], indirect=True)
def test_a_damaged_file_of_replicas_is_refused(run, capsys):
    """In one line, without the memory of what it claims; `verify` names the file."""
    path = run / "replicas.safetensors"
    whole = path.read_bytes()
    cut = [lambda data, size=size: data[:size] for size in range(0, len(whole), 97)]
    changes = [lambda data: data[:-1], *cut]
    changes += [shape("vectors", 10**12, 4, 4), shape("vectors", 2**62, 2**62, 2**62)]
    changes += [shape("vectors", 4, 3, 4), shape("tokens", 10**15)]
    changes += [shape("counts", 10**15), header(longer_vectors)]
    changes += [header(lambda found: found.pop("vectors"))]
    for size in (2**63, 2**40, len(whole)):
        changes.append(lambda data, size=size: struct.pack("<Q", size) + data[8:])
    for number, change in enumerate(changes):
        path.unlink()  # an array that is mapped keeps the old one
        path.write_bytes(change(whole))
        with pytest.raises(InputError, match="is not a whole replicas file: ") as found:
            read_ensemble(run)
        assert len(str(found.value).splitlines()) == 1
        if number < 9:
            capsys.readouterr()
            assert main(["neighbors", str(run), "a"]) == 2
            assert "replicas.safetensors is not a whole" in error_line(capsys)
            assert main(["verify", str(run)]) == 1
            said = capsys.readouterr().out
            assert "replicas.safetensors: is not what was written" in said
