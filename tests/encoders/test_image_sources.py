"""Images of folders, Parquet and tar: channels, labels, keys, and what is refused."""

import io
import json
import logging
import os
import shutil
import tarfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import ExifTags, Image, ImageOps

from embedder.cli.main import main
from embedder.config.encoder_options import EncoderOptions
from embedder.data.examples import images
from embedder.data.examples.example_formats import open_examples
from embedder.data.examples.examples import UNLABELLED, Examples
from embedder.data.examples.lazy_images import LazyImages
from embedder.disk.files import is_image_name
from embedder.errors import InputError
from embedder.vectors.export import read_vectors
from tests.commands import error_line

COLOURS = [(10, 20, 30), (40, 50, 60), (70, 80, 90), (100, 110, 120)]
GREYS = [10, 40, 70, 100]


def read(
    source: Path | str, cache: Path | None = None, needs_labels: bool = True, **options
) -> Examples:
    chosen = EncoderOptions(**options)
    return open_examples(str(source), chosen, needs_labels=needs_labels).read(cache)


def picture(colour, size: tuple[int, int] = (3, 2), kind: str = "PNG") -> bytes:
    """An image of one colour; a number is a grey one."""
    file = io.BytesIO()
    Image.new("L" if isinstance(colour, int) else "RGB", size, colour).save(file, kind)
    return file.getvalue()


def write_folder(folder: Path, colours) -> Path:
    """Images 0.png, 1.png ... in turn of the classes cat and dog."""
    for number, colour in enumerate(colours):
        path = folder / ("cat", "dog")[number % 2] / f"{number}.png"
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_bytes(picture(colour))
    return folder


def write_tar(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def shard(colours, label=lambda n: {".cls": str(n % 2).encode()}) -> dict[str, bytes]:
    """The files of a shard: 0.png, 0.cls and so on."""
    files: dict[str, bytes] = {}
    for number, colour in enumerate(colours):
        files[f"{number}.png"] = picture(colour)
        files |= {f"{number}{end}": data for end, data in label(number).items()}
    return files


def number_of(key: str) -> int:
    return int(Path(key).stem)


# --- channels


@pytest.mark.parametrize("kind", ["PNG", "GIF", "BMP"])
def test_a_palette_of_greys_is_grey(tmp_path, kind):
    pixels = Image.fromarray(np.array([[0, 70, 255]], np.uint8))
    palette = pixels.convert("P") if kind == "PNG" else pixels
    palette.save(tmp_path / "a.png", kind)
    assert images.is_grey(tmp_path / "a.png")
    colour = Image.new("RGB", (2, 2), (1, 200, 3)).convert("P")
    colour.save(tmp_path / "b.png", kind)
    assert not images.is_grey(tmp_path / "b.png")


def test_grey_and_colour_become_rgb_and_the_log_says_so(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    found = read(write_folder(tmp_path, [*GREYS[:3], COLOURS[3]]))
    assert found.features.shape == (4, 2, 3, 3)
    (line,) = caplog.messages
    assert line.startswith("3 of 4 images are grey: all are read as RGB (--channels 1")
    by_number = dict(zip(map(number_of, found.keys), found.features, strict=True))
    assert (by_number[1] == 40).all() and (by_number[3] == COLOURS[3]).all()


@pytest.mark.parametrize("colours", [GREYS, COLOURS])
@pytest.mark.parametrize(("channels", "axes"), [("1", 3), ("3", 4)])
def test_channels_are_as_they_are_given(tmp_path, caplog, colours, channels, axes):
    found = read(write_folder(tmp_path, colours), channels=channels)
    assert found.features.ndim == axes
    assert caplog.messages == []


def test_a_cache_of_other_channels_is_not_used(tmp_path):
    data, cache = write_folder(tmp_path / "data", GREYS), tmp_path / "cache"
    for channels, axes in (("auto", 3), ("3", 4), ("1", 3), ("auto", 3)):
        assert read(data, cache, channels=channels).features.ndim == axes
    assert len(list(cache.iterdir())) == 3


# --- orientation


def photo(orientation: object, kind: str = "JPEG", mode: str = "RGB") -> bytes:
    """An image of noise, 6 x 9, with an orientation; None: it has no EXIF."""
    noise = np.random.default_rng(0).integers(256, size=(6, 9, 3), dtype=np.uint8)
    image, file = Image.fromarray(noise).convert(mode), io.BytesIO()
    if orientation is None:
        image.save(file, kind)
    else:
        exif = Image.Exif()
        exif[ExifTags.Base.Orientation] = orientation
        image.save(file, kind, exif=exif)
    return file.getvalue()


@pytest.mark.parametrize("orientation", [*range(9), 99, None])
@pytest.mark.parametrize(
    ("kind", "mode"), [("JPEG", "RGB"), ("JPEG", "L"), ("PNG", "I;16"), ("WEBP", "RGB")]
)
def test_images_are_turned_as_their_orientation_says(tmp_path, orientation, kind, mode):
    (tmp_path / "a.png").write_bytes(photo(orientation, kind, mode))
    read_as = "RGB" if mode == "RGB" else "L"
    found = images.read_image(tmp_path / "a.png", (), read_as)
    assert images.image_shape(tmp_path / "a.png", (), read_as) == found.shape
    assert found.shape[:2] == ((9, 6) if orientation in range(5, 9) else (6, 9))
    with Image.open(tmp_path / "a.png") as image:
        turned = np.asarray(ImageOps.exif_transpose(image)) >> 8 * (mode == "I;16")
    np.testing.assert_array_equal(found, turned)
    resized = images.read_image(tmp_path / "a.png", (4, 3), read_as)
    assert resized.shape[:2] == (4, 3)


def test_a_damaged_orientation_is_no_damaged_image(tmp_path):
    data = photo(6)
    assert data.count(b"Exif\0\0") == 1
    start = data.index(b"Exif\0\0") + 6
    (tmp_path / "a.png").write_bytes(data[:start] + b"?" * 8 + data[start + 8 :])
    assert images.read_image(tmp_path / "a.png").shape == (6, 9, 3)


def test_a_folder_of_turned_photos_has_one_shape(tmp_path):
    """They are read so in memory, through the cache, and each time."""
    for number in range(4):
        path = tmp_path / "data" / "ab"[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(photo(6))
    cache = tmp_path / "cache"
    found = [
        np.asarray(read(tmp_path / "data", *where, decode=decode).features)
        for where, decode in (((), "once"), ((cache,), "once"), ((cache,), "each"))
    ]
    for each in found:
        assert each.shape == (4, 9, 6, 3)
        np.testing.assert_array_equal(each, found[0])


# --- folders


def test_hidden_files_and_folders_are_left_out(tmp_path):
    write_folder(tmp_path, COLOURS)
    for name in (".thumbs/0.png", "cat/._0.png", "cat/.x/1.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"no image")
    assert len(read(tmp_path).labels) == 4
    assert is_image_name("a/B.JPG") and not is_image_name("a/._b.jpg")


def test_links_to_folders_are_followed_and_cycles_end(tmp_path):
    write_folder(tmp_path / "all", COLOURS)
    chosen = tmp_path / "chosen"
    chosen.mkdir()
    for name in ("cat", "dog"):
        (chosen / name).symlink_to(tmp_path / "all" / name)
    (tmp_path / "all" / "cat" / "up").symlink_to("..")
    (chosen / "self").symlink_to(chosen)
    found = read(chosen)
    assert found.classes == ["cat", "dog"]
    assert [*map(str, sorted(found.keys))] == [
        *("cat/0.png", "cat/2.png", "cat/up/dog/1.png", "cat/up/dog/3.png"),
        *("dog/1.png", "dog/3.png"),
    ]


def test_files_that_are_no_images_are_counted(tmp_path, caplog):
    write_folder(tmp_path, COLOURS)
    for name in ("cat/a.heic", "dog/b.HEIC", "labels.csv", "cat/Thumbs.db", ".x"):
        (tmp_path / name).write_bytes(b"")
    assert len(read(tmp_path).keys) == 4
    assert caplog.messages == [
        f"{tmp_path}: files that are no images that are read, left out: 3 (.heic 2, "
        ".csv 1)."
    ]


@pytest.mark.parametrize("dtype", ["<u2", ">u2"])
def test_the_high_bytes_of_a_tiff_are_its_pixels(tmp_path, dtype):
    mode = "I;16" if dtype == "<u2" else "I;16B"
    data = (np.arange(6).reshape(2, 3) * 10_000).astype(dtype).tobytes()
    (tmp_path / "a").mkdir()
    Image.frombytes(mode, (3, 2), data).save(tmp_path / "a" / "0.tif")
    expected = np.arange(6).reshape(1, 2, 3) * 10_000 // 256
    np.testing.assert_array_equal(read(tmp_path).features, expected)


def test_a_flat_folder_needs_no_labels_if_nothing_does(tmp_path):
    for number, colour in enumerate(COLOURS):
        (tmp_path / f"{number}.png").write_bytes(picture(colour))
    with pytest.raises(FileNotFoundError, match="4 images that are in no folder of a"):
        read(tmp_path)
    found = read(tmp_path, needs_labels=False)
    assert found.classes == [UNLABELLED] and not found.labels.any()
    assert sorted(found.keys) == ["0.png", "1.png", "2.png", "3.png"]


def test_folders_are_classes_even_if_no_labels_are_needed(tmp_path):
    write_folder(tmp_path, COLOURS)
    (tmp_path / "alone.png").write_bytes(picture(COLOURS[0]))
    found = read(tmp_path, needs_labels=False)
    assert found.classes == ["cat", "dog", UNLABELLED]
    assert found.labels[found.keys.index("alone.png")] == 2
    assert len(read(tmp_path).labels) == 4


def test_arrays_need_no_labels_if_nothing_does(tmp_path):
    x = np.zeros((3, 2, 2), np.uint8)
    np.savez(tmp_path / "one.npz", anything=x)
    np.savez(tmp_path / "two.npz", X=x, other=x)
    pl.DataFrame({"x": [1.0, 2, 3]}).write_parquet(tmp_path / "a.parquet")
    for name in ("one.npz", "two.npz", "a.parquet"):
        with pytest.raises(ValueError, match=r"must have|`label` must be a column"):
            read(tmp_path / name)
        found = read(tmp_path / name, needs_labels=False)
        assert found.classes == [UNLABELLED] and len(found.labels) == 3


# --- Parquet


def encoded(as_struct: bool, colours=COLOURS) -> pl.Series:
    data = [picture(colour) for colour in colours]
    rows = [{"bytes": each, "path": "a.png"} for each in data] if as_struct else data
    return pl.Series(rows)


@pytest.mark.parametrize("as_struct", [False, True])
@pytest.mark.parametrize("with_cache", [False, True])
def test_parquet_of_encoded_images(tmp_path, as_struct, with_cache):
    columns = {"image": encoded(as_struct), "label": [*"abab"], "id": [*"wxyz"]}
    pl.DataFrame(columns).write_parquet(tmp_path / "a.parquet")
    cache = tmp_path / "cache" if with_cache else None
    found = read(tmp_path / "a.parquet", cache, key="id")
    assert found.features.shape == (4, 2, 3, 3)
    assert [tuple(each[0, 0]) for each in found.features] == COLOURS
    assert (found.keys, found.labels.tolist()) == ([*"wxyz"], [0, 1, 0, 1])
    assert isinstance(found.features, np.memmap) == with_cache


@pytest.mark.parametrize("others", [{}, {"price": [1, 2, 3, 4], "name": [*"abcd"]}])
def test_columns_beside_images_are_told(tmp_path, caplog, others):
    columns = {"image": encoded(True), "label": [*"abab"]} | others
    path = tmp_path / "a.parquet"
    pl.DataFrame(columns).write_parquet(path)
    assert read(path).features.shape == (4, 2, 3, 3)
    left_out = f"{path}: columns beside the images, left out: price, name."
    assert caplog.messages == [left_out] * bool(others)


@pytest.mark.parametrize(
    ("names", "classes", "labels"),
    [
        (["nail", "tea"], ["nail", "tea"], [1, 0, 1, 0]),
        *((names, ["0", "1"], [1, 0, 1, 0]) for names in ("ab", ["a"], ["a", "a"])),
    ],
)
def test_parquet_takes_the_names_of_classes_of_hugging_face(
    tmp_path, names, classes, labels
):
    """Other metadata change no labels."""
    frame = pl.DataFrame({"image": encoded(True), "label": [1, 0, 1, 0]})
    facts = {"label": {"names": names, "_type": "ClassLabel"}}
    text = json.dumps({"info": {"features": facts}})
    frame.write_parquet(tmp_path / "a.parquet", metadata={"huggingface": text})
    found = read(tmp_path / "a.parquet")
    assert (found.classes, found.labels.tolist()) == (classes, labels)


@pytest.mark.parametrize("names", [("boots", "trainers"), ("test", "boots")])
def test_names_are_parts_only_beside_train(tmp_path, names):
    for name in names:
        rows = pl.DataFrame({"x": [1.0], "label": [name]})
        rows.write_parquet(tmp_path / f"{name}.parquet")
    assert read(tmp_path).classes == sorted(names)


def test_parquet_files_of_a_folder_are_one_set(tmp_path, caplog):
    for name, part in (("train-0", slice(2)), ("train-1", slice(2, 4))):
        columns = {"image": encoded(False)[part], "label": [1, 2]}
        pl.DataFrame(columns).write_parquet(tmp_path / f"{name}.parquet")
    pl.DataFrame({"x": [1]}).write_parquet(tmp_path / "test-0.parquet")
    for source in (tmp_path, f"{tmp_path}/train-*.parquet"):
        found = read(source)
        assert [tuple(each[0, 0]) for each in found.features] == COLOURS
        assert found.keys == [*"0123"]
    pl.DataFrame({"x": [1], "label": [1]}).write_parquet(tmp_path / "train-2.parquet")
    left_out = f"{tmp_path}: files beside those of train, left out: 1 (test-0"
    assert left_out in caplog.text
    said = "train-0.parquet has no column 'x', as .*train-2.parquet has; it has image"
    with pytest.raises(ValueError, match=said):
        read(tmp_path)


# --- tar


@pytest.mark.parametrize(
    ("label", "classes", "expected"),
    [
        (lambda n: {".cls": b"%d\n" % (10 * n)}, ["0", "10", "20", "30"], range(4)),
        (lambda n: {".txt": b" tea " if n % 2 else b"nail"}, ["nail", "tea"], None),
        (lambda n: {".json": b'{"label": %d}' % (n % 2)}, ["0", "1"], None),
        (
            lambda n: {".cls": b"%d" % (n % 2), ".json": b"{}", ".txt": b"a caption"},
            *(["0", "1"], None),
        ),
    ],
    ids=["numbers", "text", "json", "several"],
)
def test_tar_of_images_and_labels(tmp_path, label, classes, expected):
    found = read(write_tar(tmp_path / "a.tar", shard(COLOURS, label)))
    assert found.classes == classes and sorted(found.keys) == [*"0123"]
    desired = [n % 2 for n in range(4)] if expected is None else expected
    for key, index, image in zip(found.keys, found.labels, found.features, strict=True):
        assert index == desired[int(key)]
        assert (image == COLOURS[int(key)]).all()


def test_a_number_in_json_is_the_integer_that_it_is(tmp_path):
    made = shard(GREYS, lambda n: {".json": b'{"label": %s}' % (b"1.0", b"2")[n % 2]})
    assert read(write_tar(tmp_path / "a.tar", made)).classes == ["1", "2"]


def test_the_named_field_is_the_label_whatever_else_there_is(tmp_path):
    made = shard(GREYS, lambda n: {".cls": b"7", ".json": b'{"kind": "k%d"}' % n})
    path = write_tar(tmp_path / "a.tar", made)
    assert read(path, label="kind").classes == ["k0", "k1", "k2", "k3"]
    path = write_tar(tmp_path / "b.tar", shard(GREYS, lambda n: {}))
    assert read(path, needs_labels=False).classes == [UNLABELLED]


def test_what_is_left_out_of_a_tar_is_counted(tmp_path, caplog):
    made = shard(GREYS) | {"4.heic": b"x", "4.cls": b"1", "5.v2.png": b"x"}
    path = write_tar(tmp_path / "a.tar", made)
    assert sorted(read(path).keys) == [*"0123"]
    assert caplog.messages == [
        f"{path}: files that are no images that are read, left out: 1 (.heic 1).",
        f"{path}: 1 images are left out, as 5.v2.png: the key of an example ends at "
        "the first dot, and the rest must be the ending of an image.",
        f"{path}: examples without an image, left out: 1.",
    ]


def test_tar_has_other_files_too(tmp_path):
    files = {"c/._0.png": b"x", "__meta__": b"x", "c/0.seg.png": b"x", "README": b"x"}
    files |= {f"c/{name}": data for name, data in shard(GREYS).items()}
    path = write_tar(tmp_path / "a.tar", files)
    with tarfile.open(path, "a") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE):
            link = tarfile.TarInfo("9.png")
            link.type, link.linkname = kind, "/etc/passwd"
            archive.addfile(link)
    assert sorted(read(path).keys) == ["c/0", "c/1", "c/2", "c/3"]


@pytest.mark.parametrize("is_folder", [False, True])
def test_several_tars_are_one_set(tmp_path, is_folder):
    for number in range(2):
        write_tar(tmp_path / f"s{number}.tar", shard(GREYS[2 * number :][:2]))
    found = read(tmp_path if is_folder else f"{tmp_path}/s[01].tar")
    assert sorted(found.keys) == ["s0/0", "s0/1", "s1/0", "s1/1"]
    for key, image in zip(found.keys, found.features, strict=True):
        assert (image == GREYS[2 * int(key[1]) + int(key[3])]).all()


@pytest.mark.row("B46")
def test_a_name_that_is_twice_in_a_tar_is_refused(tmp_path):
    path = write_tar(tmp_path / "a.tar", shard(GREYS))
    with tarfile.open(path, "a") as archive:
        archive.addfile(tarfile.TarInfo("0.png"), io.BytesIO())
    with pytest.raises(ValueError, match="a.tar: '0.png' is in it twice"):
        read(path)


@pytest.mark.row("B21", "B46")
@pytest.mark.parametrize(
    ("kind", "size"), [("0", 2**62), ("x", 4096), *((x, 2**40) for x in "0xgLK")]
)
def test_tar_that_claims_more_than_it_has_is_refused(tmp_path, kind, size):
    path, member = tmp_path / "a.tar", tarfile.TarInfo("0.png")
    member.type, member.size = kind.encode(), size
    path.write_bytes(member.tobuf(tarfile.GNU_FORMAT) + bytes(2048))
    with pytest.raises(ValueError, match="a.tar (is not a whole .tar|has no images)"):
        read(path)


@pytest.mark.row("B46")
def test_sparse_member_of_a_tar_is_refused(tmp_path):
    member = tarfile.TarInfo("0.png")
    member.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    header[386:398], header[398:410] = b"00000000000\0", b"00000000000\0"
    header[483:495] = b"77777777777\0"  # the size that it claims
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    path = tmp_path / "a.tar"
    path.write_bytes(bytes(header) + bytes(1024))
    message = "a.tar is not a whole .tar file: '0.png' claim"
    with pytest.raises(ValueError, match=message):
        read(path)


# --- scale


@pytest.mark.parametrize(
    ("features", "is_told"),
    [
        (np.array([[[0, 128]]]), True),
        (np.array([[[0, 255]]], np.float32), True),
        (np.arange(64.0)[np.newaxis] * 3, True),
        (np.array([[[0, 255]]], np.uint8), False),
        *((np.array([[x]]), False) for x in ([0, 127.0], [0, 1.0], [0.5, 255])),
        *((np.array([[x]]), False) for x in ([-1.0, 255], [0, 256])),
        (np.array([[0, 255.0]]), False),
    ],
)
def test_pixels_in_other_dtypes_are_told(tmp_path, caplog, features, is_told):
    np.savez(tmp_path / "a.npz", X=features, y=[0])
    found = read(tmp_path / "a.npz")
    np.testing.assert_array_equal(found.features, features)
    told = [line for line in caplog.messages if "save them as uint8" in line]
    assert len(told) == is_told


# --- images that are decoded each time they are used


def parquet(path: Path, colours) -> Path:
    labels = [number % 2 for number in range(len(colours))]
    columns = {"image": encoded(True, colours), "label": labels}
    pl.DataFrame(columns).write_parquet(path)
    return path


SOURCES = {
    "folder": lambda path, colours: write_folder(path / "photos", colours),
    "tar": lambda path, colours: write_tar(path / "a.tar", shard(colours)),
    "parquet": lambda path, colours: parquet(path / "a.parquet", colours),
}


@pytest.mark.parametrize("kind", ["folder", "tar"])
def test_images_are_shuffled_in_a_fixed_order(tmp_path, kind):
    source = SOURCES[kind](tmp_path, [*range(40)])
    first, second = read(source), read(source, tmp_path / "cache")
    numbers = [*map(number_of, first.keys)]
    assert first.keys == second.keys and numbers != sorted(numbers)
    assert 0 < np.flatnonzero(np.diff(first.labels)).size < 39
    np.testing.assert_array_equal(first.features, second.features)
    assert [int(image[0, 0]) for image in first.features] == numbers


@pytest.mark.parametrize("colours", [GREYS, COLOURS], ids=["grey", "colours"])
@pytest.mark.parametrize("kind", SOURCES)
def test_each_time_reads_what_once_reads(tmp_path, kind, colours):
    source = SOURCES[kind](tmp_path, colours)
    once = read(source, tmp_path / "cache", decode="once")
    each = read(source, tmp_path / "cache", decode="each")
    assert isinstance(each.features, LazyImages) and each.keys == once.keys
    lazy, array = each.features, np.asarray(once.features)
    assert (lazy.shape, lazy.dtype) == (array.shape, np.uint8)
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


@pytest.mark.row("B19", "B48")
@pytest.mark.parametrize("kind", SOURCES)
def test_a_file_that_changes_is_refused(tmp_path, kind):
    source = SOURCES[kind](tmp_path, COLOURS)
    opened = open_examples(str(source), EncoderOptions())
    found = read(source, decode="each").features
    for path in [*source.rglob("*.png"), source]:
        os.utime(path, ns=(1, 1))
    with pytest.raises(InputError, match="changed"):
        found[:2]
    with pytest.raises(InputError, match=" changed while it was read"):
        opened.read(tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("*"))


@pytest.mark.row("B48")
def test_an_image_of_another_size_is_refused_when_it_is_used(tmp_path):
    source = write_folder(tmp_path, COLOURS)
    (source / "cat" / "0.png").write_bytes(picture(COLOURS[0], (9, 9)))
    found = read(source, decode="each")
    with pytest.raises(InputError, match="9 x 9.* 2 x 3|2 x 3.* 9 x 9"):
        found.features[:]


def train(*arguments: str) -> int:
    flags = "--model encoder --network mlp --layers 18 5 2 --epochs 2 --batch-size 3"
    return main(["train", "photos", *flags.split(), *arguments])


@pytest.mark.slow
def test_images_that_are_decoded_each_time_need_no_tensorflow(own_folder, capsys):
    write_folder(own_folder / "photos", COLOURS)
    for decode in ("once", "each"):
        options = ["--decode", decode, "--loader", "memory", "--workdir", decode]
        assert train(*options) == 0, capsys.readouterr().err
    once, each = (read_vectors(f"{x}/vectors.safetensors") for x in ("once", "each"))
    assert once.keys == each.keys and np.array_equal(once.matrix, each.matrix)


@pytest.mark.row("B48")
def test_a_damaged_image_ends_the_run_with_one_line(own_folder, capsys):
    write_folder(own_folder / "photos", COLOURS)
    path = own_folder / "photos" / "dog" / "1.png"
    path.write_bytes(path.read_bytes()[:50])
    assert train("--decode", "each", "--workdir", "r") == 2
    assert "1.png is not a whole image" in error_line(capsys)
