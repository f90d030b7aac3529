"""Small files of large content: refused by their metadata, before reading."""

import gzip
import resource
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image

from embedder.cli import main
from embedder.limits import Limit
from tests.commands import error_line

MIB = 2**20
ROWS = 2**20


@pytest.fixture(autouse=True)
def little_memory(tmp_path, monkeypatch):
    """A container that may have 4 MiB."""
    limit = Limit(4 * MIB, "its container (/sys/fs/cgroup/memory.max)")
    for module in ("encoders.parquet", "engine.memory", "engine.devices", "limits"):
        monkeypatch.setattr(f"embedder.{module}.memory_limit", lambda: limit)
    monkeypatch.chdir(tmp_path)


def parquet() -> None:
    frame = pl.DataFrame({"x": np.zeros(ROWS, np.int64), "label": np.zeros(ROWS, "i1")})
    frame.write_parquet("data.parquet")


def parquet_of_lists() -> None:
    lists = pl.Series("x", [[0] * ROWS, [1] * ROWS], dtype=pl.List(pl.Int64))
    pl.DataFrame({"x": lists, "label": [0, 1]}).write_parquet("data.parquet")


def npz() -> None:
    features = np.zeros((ROWS, 3), np.uint8)
    np.savez_compressed("data.npz", X=features, y=features[:, 0])


def npz_of_short_rows() -> None:
    features = np.zeros((ROWS // 4, 1), np.uint8)
    np.savez_compressed("data.npz", X=features, y=features[:, 0])


def idx() -> None:
    head = b"\0\0\x08\x03" + np.array([3, MIB, 1], ">u4").tobytes()
    Path("images-idx3-ubyte.gz").write_bytes(gzip.compress(head + bytes(3 * MIB)))
    Path("labels-idx1-ubyte.gz").write_bytes(gzip.compress(b"\0\0\x08\x01\0\0\0\3abc"))


@pytest.mark.spread(7)
@pytest.mark.row("B21", "F33")
@pytest.mark.parametrize("options", [["--dry-run"], []], ids=["dry run", "run"])
@pytest.mark.parametrize(
    ("make", "name", "said"),
    [
        (parquet, "data.parquet", f"its {ROWS} rows take 9.0 MiB, more than half"),
        (parquet_of_lists, "data.parquet", "its 2 rows take 16.0 MiB, more than half"),
        (npz, "data.npz", "reading it takes 8.0 MiB, more than"),
        (npz_of_short_rows, "data.npz", "reading it takes 25.0 MiB, more than"),
        (idx, "images-idx3-ubyte.gz", "reading it takes 6.0 MiB, more than"),
    ],
    ids=lambda each: getattr(each, "__name__", None),
)
def test_a_bomb_is_refused_by_its_metadata(capsys, make, name, said, options):
    make()
    small = Path(name).stat().st_size
    assert small < MIB / 2
    command = ["train", name, "--model", "encoder", "--workdir", "run"]
    assert main([*command, "--loader", "memory", *options]) == 2
    line = error_line(capsys)
    assert f"{name}: {said} the 4.0 MiB of its container" in line
    assert line.endswith(": give a part of it.")
    assert not Path("run").exists()


@pytest.mark.row("B21")
def test_a_file_that_claims_what_it_cannot_hold_is_called_damaged(capsys):
    head = b"\0\0\x08\x03" + np.array([3, 2**30, 1], ">u4").tobytes()
    Path("images-idx3-ubyte").write_bytes(head)
    Path("labels-idx1-ubyte").write_bytes(b"\0\0\x08\x01\0\0\0\3abc")
    command = ["train", "images-idx3-ubyte", "--model", "encoder", "--dry-run"]
    assert main(command) == 2
    assert "images-idx3-ubyte claims 3221225472 bytes" in error_line(capsys)


@pytest.mark.row("B21")
def test_images_in_memory_are_bounded_by_the_first(tmp_path):
    from embedder.encoders.images import decoded

    Image.new("RGB", (1000, 1000)).save("one.png")
    with pytest.raises(ValueError, match="2 images take 5.7 MiB, more than the 4.0"):
        decoded([Path("one.png")] * 2, (), 1, None, [])


@pytest.mark.slow
@pytest.mark.row("B21", "F33")
def test_a_packed_text_is_read_in_bounded_memory(capsys, monkeypatch):
    """Five times the text takes no more memory: it is not held as a whole."""
    options = ["--min-count", "1", "--vector-size", "2", "--sample", "1e-9"]
    options += ["--blocks-per-update", "1"]

    def peak(pieces: int) -> int:
        """kB that this process had at most, with a text of so many MiB."""
        with gzip.open("text.txt.gz", "wb", compresslevel=1) as file:
            for _ in range(pieces):
                file.write(b"a b c d\n" * 2**17)
        command = ["train", "text.txt.gz", *options, "--dry-run", "--loader", "memory"]
        assert main(command) == 0, capsys.readouterr().err
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    small = peak(64)  # with all imports and buffers
    assert peak(320) - small < 150_000
