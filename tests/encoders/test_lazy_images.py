"""Images that are decoded each time they are used are the same as decoded once."""

import os
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from embedder.cli import main
from embedder.encoders.lazy_images import LazyImages
from embedder.errors import InputError
from embedder.vectors.export import read_vectors
from tests.commands import error_line
from tests.encoders.test_image_sources import (
    COLOURS,
    GREYS,
    picture,
    read,
    shard,
    write_folder,
    write_tar,
)


def parquet(path: Path, colours) -> Path:
    rows = [{"bytes": picture(c), "path": str(i)} for i, c in enumerate(colours)]
    pl.DataFrame(
        {"image": rows, "label": [i % 2 for i in range(len(rows))]}
    ).write_parquet(path)
    return path


SOURCES = {
    "folder": lambda path, colours: write_folder(path / "photos", colours),
    "tar": lambda path, colours: write_tar(path / "a.tar", shard(colours)),
    "parquet": lambda path, colours: parquet(path / "a.parquet", colours),
}


@pytest.mark.parametrize("colours", [GREYS, COLOURS], ids=["grey", "colours"])
@pytest.mark.parametrize("kind", SOURCES)
def test_each_time_reads_what_once_reads(tmp_path, kind, colours):
    source = SOURCES[kind](tmp_path, colours)
    once = read(source, tmp_path / "cache", decode="once")
    each = read(source, tmp_path / "cache", decode="each")
    assert isinstance(each.features, LazyImages) and each.keys == once.keys
    lazy, array = each.features, np.asarray(once.features)
    assert (lazy.shape, lazy.dtype, lazy.nbytes) == (
        array.shape,
        np.uint8,
        array.nbytes,
    )
    ids = np.array([[2, 0], [2, 3]])
    for index in (slice(1, 3), slice(0), [3, 1, 3], ids, ids[..., None], -1):
        assert np.array_equal(lazy[index], array[index]), index
    assert np.array_equal(np.asarray(lazy), array)
    assert np.array_equal(each.labels, once.labels)


def test_auto_goes_by_the_free_space(tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO")
    source, cache = write_folder(tmp_path / "photos", COLOURS), tmp_path / "new/cache"
    free = {"bytes": 2 * 4 * 18}  # twice four images of 3 x 2 x 3
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(
        shutil, "disk_usage", lambda path: usage._replace(free=free["bytes"])
    )
    assert isinstance(read(source, cache).features, np.memmap)
    free["bytes"] -= 1
    assert isinstance(read(source, cache).features, np.memmap)  # it is there
    shutil.rmtree(cache)
    assert isinstance(read(source, cache).features, LazyImages)
    assert caplog.messages == ["4 images are decoded each time they are used."]
    assert not cache.exists()


def test_without_a_cache_auto_decodes_once(tmp_path):
    assert isinstance(read(write_folder(tmp_path, GREYS)).features, np.ndarray)


@pytest.mark.row("B48")
@pytest.mark.parametrize("kind", SOURCES)
def test_a_file_that_changes_is_refused(tmp_path, kind):
    source = SOURCES[kind](tmp_path, COLOURS)
    found = read(source, decode="each").features
    for path in [*source.rglob("*.png"), source]:
        os.utime(path, ns=(1, 1))
    with pytest.raises(InputError, match="changed"):
        found[:2]


@pytest.mark.row("B48")
def test_an_image_of_another_size_is_refused_when_it_is_used(tmp_path):
    source = write_folder(tmp_path, COLOURS)
    found = read(source, decode="each").features
    (source / "cat" / "0.png").write_bytes(picture(COLOURS[0], (9, 9)))
    again = read(source, decode="each")
    row = again.keys.index("cat/0.png")
    others = [i for i in range(4) if i != row]
    assert again.features[others].shape[0] == 3 or row == 0
    with pytest.raises(InputError, match="9 x 9.* 2 x 3|2 x 3.* 9 x 9"):
        again.features[:]
    assert found.shape == (4, 2, 3, 3)


TRAIN = (
    *("--model", "encoder", "--network", "mlp", "--layers", "18", "5", "2"),
    *("--epochs", "2", "--batch-size", "3", "--image-size", "2", "3"),
)


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def train(*arguments: str) -> int:
    return main(["train", "photos", *TRAIN, *arguments])


@pytest.mark.slow
def test_runs_have_the_same_vectors(here, capsys):
    write_folder(here / "photos", [*COLOURS, *GREYS, (200, 1, 2), (1, 200, 2)])
    for decode in ("once", "each"):
        options = ["--decode", decode, "--loader", "tfdata", "--workdir", decode]
        assert train(*options) == 0, capsys.readouterr().err
    paths = [f"{name}/vectors.safetensors" for name in ("once", "each")]
    once, each = map(read_vectors, paths)
    assert once.keys == each.keys and np.array_equal(once.matrix, each.matrix)
    assert not [*(here / "each" / "cache").glob("*/images.npy")]
    assert [*(here / "once" / "cache").glob("*/images.npy")]
    auto = ["--decode", "each", "--workdir", "auto"]
    assert train(*auto) == 0  # the loader auto takes tfdata


def test_images_that_are_decoded_each_time_need_no_tensorflow(here, capsys):
    write_folder(here / "photos", COLOURS)
    for decode in ("once", "each"):
        options = ["--decode", decode, "--loader", "memory", "--workdir", decode]
        assert train(*options) == 0, capsys.readouterr().err
    once, each = (read_vectors(f"{x}/vectors.safetensors") for x in ("once", "each"))
    assert once.keys == each.keys and np.array_equal(once.matrix, each.matrix)


@pytest.mark.row("B48")
def test_a_damaged_image_ends_the_run_with_one_line(here, capsys):
    write_folder(here / "photos", COLOURS)
    path = here / "photos" / "dog" / "1.png"
    path.write_bytes(path.read_bytes()[:50])
    assert train("--decode", "each", "--workdir", "r") == 2
    assert "1.png is not a whole image" in error_line(capsys)
