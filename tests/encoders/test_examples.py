"""Examples: what is read from each kind of file, and what is refused."""

import gzip
import io
import os
import tracemalloc
import zipfile
import zlib
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image

from embedder.encoders import examples, images, npz, parquet
from embedder.encoders import idx as idx_format
from embedder.encoders.examples import Examples, ExampleSet
from embedder.encoders.formats import open_examples
from embedder.encoders.images import is_grey, read_image
from embedder.encoders.options import EncoderOptions

X = np.arange(24, dtype=np.uint8).reshape(4, 2, 3)
Y = np.array([7, 5, 7, 9], np.uint8)
CODES = {"u1": 8, "i1": 9, ">i2": 11, ">i4": 12, ">f4": 13, ">f8": 14}
ROWS = np.array([[0.0, 1], [2, 3], [4, 5], [6, 7]])


def opened(source: Path, **options) -> ExampleSet:
    return open_examples(str(source), EncoderOptions(**options))


def read(source: Path, cache: Path | None = None, **options) -> Examples:
    return opened(source, **options).read(cache)


def idx(array: np.ndarray, dtype: str = "u1", shape: tuple[int, ...] = ()) -> bytes:
    """An idx file of `array`, whose header claims `shape`."""
    shape = shape or array.shape
    sizes = b"".join(size.to_bytes(4, "big") for size in shape)
    return bytes([0, 0, CODES[dtype], len(shape)]) + sizes + array.astype(dtype).data


def write_mnist(folder: Path, part="train", x=X, y=Y, suffix="") -> Path:
    """Two files, named as those of MNIST; the path of that of the images."""
    pack = gzip.compress if suffix == ".gz" else bytes
    images = folder / f"{part}-images-idx3-ubyte{suffix}"
    images.write_bytes(pack(idx(x)))
    (folder / f"{part}-labels-idx1-ubyte{suffix}").write_bytes(pack(idx(y)))
    return images


def write_npz(path: Path, save=np.savez, **arrays) -> Path:
    save(path, **arrays)
    return path


def write_parquet(path: Path, **columns) -> Path:
    pl.DataFrame(columns).write_parquet(path)
    return path


def write_images(folder: Path, sizes=((4, 6),) * 4, suffix=".png") -> Path:
    """Images of one colour each, in turn of the classes cat and dog."""
    for number, (height, width) in enumerate(sizes):
        path = folder / ("cat", "dog")[number % 2] / f"{number}{suffix}"
        path.parent.mkdir(exist_ok=True, parents=True)
        Image.new("RGB", (width, height), (40 * number, 100, 200)).save(path)
    return folder


@contextmanager
def little_memory():
    """The body takes 50 MB at most."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()


# --- idx


@pytest.mark.parametrize("dtype", CODES)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_idx_gives_its_numbers(tmp_path, dtype, suffix):
    path = tmp_path / f"x-images-idx2{suffix}"
    array = np.array([[0, 1, 100], [3, 4, 127]]).astype(dtype)
    data = idx(array, dtype)
    path.write_bytes(gzip.compress(data) if suffix else data)
    expected = array.astype(np.dtype(dtype).newbyteorder("="))
    np.testing.assert_array_equal(idx_format.read_idx(path), expected, strict=True)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_idx_images_come_with_their_labels(tmp_path, suffix):
    found = read(write_mnist(tmp_path, suffix=suffix))
    np.testing.assert_array_equal(found.features, X, strict=True)
    expected = np.array([1, 0, 1, 2], np.int32)
    np.testing.assert_array_equal(found.labels, expected, strict=True)
    assert found.classes == ["5", "7", "9"]
    assert found.keys == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("parts", "taken"), [(["t10k", "train"], 2), (["t10k"], 1), (["b", "a"], 2)]
)
def test_folder_of_idx_is_its_training_part(tmp_path, parts, taken):
    for number, part in enumerate(parts, start=1):
        write_mnist(tmp_path, part, x=X[:number], y=Y[:number])
    assert len(read(tmp_path).labels) == taken


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "images-idx3 is not an idx file: it begins b''"),
        (b"\0\0\x08", r"is not an idx file: it begins b'\\x00\\x00\\x08'"),
        (b"P5 2 2", "is not an idx file: it begins b'P5 2'"),
        (b"\0\0\x07\1\0\0\0\0", "is not an idx file"),
        (b"\0\0\x08\0", "is not an idx file"),
        (b"\0\0\x08\xff" + bytes(4 * 255), "is not an idx file"),
        (b"\0\0\x08\3", "images-idx3 ends within its header"),
        (b"\0\0\x08\3\0\0\0\4\0\0", "images-idx3 ends within its header"),
        (idx(X)[:-1], r"claims 24 bytes, \[4, 2, 3\] of uint8, and has 23"),
        (idx(X) + b"\0", "claims 24 bytes, .* and has more"),
        (idx(X, ">f4")[:-4], r"claims 96 bytes, \[4, 2, 3\] of float32, and has 92"),
        (idx(X, shape=(10**6, 10**6)), "claims 1000000000000 bytes, .* and has 24"),
        (idx(X, shape=(2**32 - 1,) * 64), "claims .* bytes, .* and has 24"),
    ],
    ids=[
        *("empty", "short", "other_format", "dtype", "no_axes", "255_axes"),
        *("no_sizes", "cut_sizes", "cut", "longer", "cut_floats"),
        *("terabyte", "overflow"),
    ],
)
def test_damaged_idx_is_refused(tmp_path, data, message):
    path = tmp_path / "x-images-idx3"
    path.write_bytes(data)
    (tmp_path / "x-labels-idx1").write_bytes(idx(Y))
    with little_memory(), pytest.raises(ValueError, match=message):
        read(path)


PACKED = gzip.compress(idx(np.random.default_rng(0).integers(0, 256, (4, 10, 10))))
OTHER = gzip.compress(idx(X), compresslevel=0).replace(b"\x0a\x0b", b"\x0a\x0a")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        *((PACKED[:-cut], "a whole .gz file: ") for cut in (100, 9, 4, 1)),
        *((b"", "an idx file"), (idx(X), "a whole .gz file: ")),
        (PACKED[:12] + b"\xff" * 30, "an idx file|a whole .gz file: "),
        (OTHER, "a whole .gz file: CRC check failed"),
    ],
    ids=["cut_100", "cut_9", "cut_4", "cut_1", "empty", "plain", "damaged", "checksum"],
)
def test_idx_in_a_damaged_gz_is_refused(tmp_path, data, message):
    path = tmp_path / "x-images-idx3.gz"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=f"x-images-idx3.gz is not ({message})"):
        idx_format.read_idx(path)


def test_idx_of_zeros_in_a_gz_is_read_no_further_than_it_claims(tmp_path):
    path = tmp_path / "x-images-idx3.gz"
    path.write_bytes(gzip.compress(idx(X) + bytes(10**8), compresslevel=1))
    with little_memory(), pytest.raises(ValueError, match="claims 24 .* has more"):
        idx_format.read_idx(path)


def test_idx_images_without_labels_are_refused(tmp_path):
    path = write_mnist(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte").unlink()
    message = "train-images-idx3-ubyte has no labels: .*train-labels-idx1-ubyte does"
    with pytest.raises(FileNotFoundError, match=message):
        opened(path)


# --- npz


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize(
    "names", ["x_train y_train", "X y", "x y", "features labels", "anything label"]
)
def test_npz_has_known_names(tmp_path, names, save):
    features, labels = names.split()
    path = write_npz(tmp_path / "a.npz", save, **{features: X, labels: Y})
    found = read(path)
    np.testing.assert_array_equal(found.features, X, strict=True)
    assert [found.classes[i] for i in found.labels] == ["7", "5", "7", "9"]


@pytest.mark.parametrize(
    "others", [{"rows": X}, {"X": X, "y": Y - 1}, {"z": Y, "x_train": X, "y_train": Y}]
)
def test_npz_label_is_the_one_that_is_named(tmp_path, others):
    path = write_npz(tmp_path / "a.npz", **others, kind=np.array(list("abba")))
    found = read(path, label="kind")
    np.testing.assert_array_equal(found.features, X)
    assert [found.classes[i] for i in found.labels] == list("abba")


@pytest.mark.parametrize(
    ("labels", "classes", "places"),
    [
        (np.array([3, -1, 3, 10]), ["-1", "3", "10"], [1, 0, 1, 2]),
        (np.array([1.5, 0, 0, 1.5]), ["0.0", "1.5"], [1, 0, 0, 1]),
        (np.array([1, 0, 0, 1], bool), ["False", "True"], [1, 0, 0, 1]),
        (np.array(["b", "ä", "b", "10"]), ["10", "b", "ä"], [1, 2, 1, 0]),
        (np.array([[3], [2], [3], [2]], ">i4"), ["2", "3"], [1, 0, 1, 0]),
        (np.zeros(4), ["0.0"], [0, 0, 0, 0]),
    ],
    ids=["integers", "floats", "booleans", "text", "column", "one_class"],
)
def test_labels_become_indices_of_the_classes(tmp_path, labels, classes, places):
    found = read(write_npz(tmp_path / "a.npz", X=ROWS, y=labels))
    assert found.classes == classes
    desired = np.array(places, np.int32)
    np.testing.assert_array_equal(found.labels, desired, strict=True)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"X": ROWS}, r"a.npz has no features and labels: it has \['X'\], and no pair"),
        ({}, r"it has \[\], and no pair of"),
        ({"X": ROWS, "y": Y[:3]}, r"and labels \[n\], got \[4, 2\] and \[3\]"),
        ({"X": ROWS, "y": np.eye(4)}, r"got \[4, 2\] and \[4, 4\]"),
        ({"X": ROWS[:, 0], "y": Y}, r"features must be \[n, ...\] .* got \[4\] and"),
        ({"X": np.float32(1), "y": Y}, r"got \[\] and \[4\]"),
        ({"X": ROWS[:0], "y": Y[:0]}, r"got \[0, 2\] and \[0\]"),
        ({"X": ROWS[:, :0], "y": Y}, r"got \[4, 0\] and \[4\]"),
        ({"X": X[:, :, :0], "y": Y}, r"got \[4, 2, 0\] and \[4\]"),
        ({"X": ROWS.astype(str), "y": Y}, "features must be numbers, got <U32"),
        ({"X": ROWS + 1j, "y": Y}, "features must be numbers, got complex128"),
        ({"X": ROWS.astype("M8[s]"), "y": Y}, "must be numbers, got datetime64"),
        ({"X": ROWS, "y": Y.astype("S")}, r"labels must be .* text, got \|S3"),
        ({"X": ROWS, "y": ROWS[:, 0] + np.nan}, "a.npz: labels must be finite"),
        ({"X": ROWS.astype(object), "y": Y}, "a.npz .*: `X` holds pickled objects"),
        ({"X": ROWS, "y": Y.astype(object)}, "a.npz .*: `y` holds pickled objects"),
    ],
    ids=[
        *("no_labels", "nothing", "lengths", "one_hot", "one_axis", "no_axis"),
        *("no_examples", "no_features", "no_pixels", "text", "complex", "times"),
        *("bytes", "nan_labels", "pickled_features", "pickled_labels"),
    ],
)
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_without_examples_is_refused(tmp_path, arrays, message, save):
    path = write_npz(tmp_path / "a.npz", save, **arrays)
    with pytest.raises(ValueError, match=message):
        read(path)


@pytest.mark.parametrize(
    "arrays", [{"X": X, "y": Y}, {"rows": X, "kind": Y, "rest": Y}], ids="-".join
)
def test_npz_without_the_label_that_is_named_is_refused(tmp_path, arrays):
    path = write_npz(tmp_path / "a.npz", **arrays)
    label = "kind" if "kind" in arrays else "knid"
    with pytest.raises(ValueError, match=f"it has .*, and no pair of .*'{label}'"):
        read(path, label=label)


@pytest.mark.row("B6", "B11")
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_features_that_are_not_finite_are_named_by_their_row(
    tmp_path, monkeypatch, dtype, value
):
    monkeypatch.setattr(examples, "_CHUNK", 32)  # bytes: so that row 2 is not in one
    x = ROWS.astype(dtype)
    x[2, 1] = x[3, 0] = value
    path = write_npz(tmp_path / "a.npz", X=x, y=Y)
    with pytest.raises(ValueError, match="a.npz: row 2 has features that are not fin"):
        read(path)


def npy(array: np.ndarray, shape: tuple[int, ...]) -> bytes:
    """The bytes of an array whose header claims `shape`."""
    file = io.BytesIO()
    header = {"descr": array.dtype.str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue() + array.tobytes()


@pytest.mark.row("B11")
@pytest.mark.parametrize("packing", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (npy(X, (4, 7)), r"`X` claims shape \(4, 7\), more than its bytes"),
        (npy(X, (10**6, 10**6)), r"`X` claims shape \(1000000, 1000000\), more"),
        (npy(X, (2**62, 8)), "`X` claims shape .*, more than its bytes"),
        (npy(X, (-4, -6)), "a.npz has no features and labels: "),
        (b"", "a.npz has no features and labels: "),
        (b"\x93NUMPY\x09\0", r"`X` has format \(9, 0\)"),
    ],
    ids=["more", "terabyte", "overflow", "negative", "empty", "version"],
)
def test_npz_that_claims_more_than_it_has_is_refused(tmp_path, packing, data, message):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w", packing) as archive:
        archive.writestr("X.npy", data)
        archive.writestr("y.npy", npy(Y, Y.shape))
    with little_memory(), pytest.raises(ValueError, match=message):
        read(path)


@pytest.mark.row("B11")
def test_npz_bomb_is_refused(tmp_path):
    zeros = np.zeros((4, 5 * 10**6), np.uint8)
    path = write_npz(tmp_path / "a.npz", np.savez_compressed, X=zeros, y=Y)
    message = "a.npz has no .*: `X` is compressed more than a thousandfold"
    with little_memory(), pytest.raises(ValueError, match=message):
        read(path)


def entry_with(data: bytes, offset: int, value: int) -> bytes:
    """A zip file with one byte of its first entry in the directory changed."""
    place = data.index(b"PK\1\2") + offset
    return data[:place] + bytes([value]) + data[place + 1 :]


DAMAGE = {
    "empty": lambda data: b"",
    "text": lambda data: b"X,y\n1,2\n",
    "half": lambda data: data[: len(data) // 2],
    "one byte": lambda data: data[:-1],
    "checksum": lambda data: data.replace(bytes(X.data), bytes(24)),
    "encrypted": lambda data: entry_with(data, 8, 1),
    "version": lambda data: entry_with(data, 6, 255),
    "packing": lambda data: entry_with(data, 10, 99),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damaged_npz_is_refused(tmp_path, damage):
    path = write_npz(tmp_path / "a.npz", X=X, y=Y)
    data = path.read_bytes()
    assert damage(data) != data
    path.write_bytes(damage(data))
    with pytest.raises(ValueError, match="a.npz has no features and labels: .+"):
        read(path)


# --- parquet


@pytest.fixture
def in_this_process(monkeypatch):
    """Parquet is read without the process that tries it first."""

    def read_table(path, most):
        return pl.read_parquet(path, glob=False)

    monkeypatch.setattr(parquet, "read_table", read_table)


def test_parquet_features_are_its_other_columns_in_order(tmp_path):
    columns = {"b": [1, 2], "label": ["z", "a"], "a": [0.5, 1.5], "c": [True, False]}
    found = read(write_parquet(tmp_path / "a.parquet", **columns))
    desired = np.array([[1, 0.5, 1], [2, 1.5, 0]])
    np.testing.assert_array_equal(found.features, desired, strict=True)
    assert (found.classes, found.labels.tolist()) == (["a", "z"], [1, 0])
    assert found.keys == ["0", "1"]


@pytest.mark.parametrize("dtype", [pl.List(pl.UInt8), pl.Array(pl.UInt8, 2), pl.UInt8])
@pytest.mark.usefixtures("in_this_process")
def test_parquet_bytes_stay_bytes(tmp_path, dtype):
    rows = [[1, 255], [3, 4]] if dtype.is_nested() else [1, 255]
    path = write_parquet(
        tmp_path / "a.parquet", x=pl.Series(rows, dtype=dtype), label=[1, 2]
    )
    desired = np.array(rows, np.uint8).reshape(2, -1)
    np.testing.assert_array_equal(read(path).features, desired, strict=True)


@pytest.mark.usefixtures("in_this_process")
def test_parquet_lists_and_numbers_are_concatenated(tmp_path):
    path = write_parquet(tmp_path / "a.parquet", x=[[1.0, 2]], y=[3.0], label=[0])
    np.testing.assert_array_equal(read(path).features, [[1, 2, 3]])


@pytest.mark.parametrize(
    ("keys", "expected"), [(["p", "ä ö"], ["p", "ä ö"]), ([20, -3], ["20", "-3"])]
)
@pytest.mark.usefixtures("in_this_process")
def test_parquet_keys_and_labels_are_named(tmp_path, keys, expected):
    columns = {"name": keys, "kind": pl.Series(["u", "v"], dtype=pl.Categorical)}
    path = write_parquet(tmp_path / "a.parquet", x=[1.0, 2], **columns)
    found = read(path, label="kind", key="name")
    assert (found.keys, found.classes) == (expected, ["u", "v"])
    assert found.features.shape == (2, 1)


def test_parquet_that_looks_like_a_glob_is_that_file(tmp_path):
    write_parquet(tmp_path / "1.parquet", x=[1.0], label=["other"])
    path = write_parquet(tmp_path / "[1].parquet", x=[1.0], label=["own"])
    assert read(path).classes == ["own"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"x": [1, 2]}, r"`label` must be a column of .*parquet \(x\), got 'label'"),
        (
            {"label": [1, 2]},
            "parquet: columns must be numbers, or one of bytes, got none; name",
        ),
        (
            {"x": ["1", "2"], "z": [1, 2], "t": [[["1"]]] * 2, "label": [1, 2]},
            "columns must be .* bytes, got x, t; name that of the labels by --label",
        ),
        ({"x": [1, None], "label": [1, 2]}, "column `x` has rows without a value"),
        ({"x": [1, 2], "label": [1, None]}, "column `label` has rows without a value"),
        ({"x": [1, 2], "label": [[1], [2]]}, r"`label` must be .* text, got List\(Int"),
        ({"x": [1, 2], "label": [0.0, np.nan]}, "parquet: labels must be finite"),
        (
            {"x": [0.0, np.inf], "label": [1, 2]},
            "row 1 has features that are not finite",
        ),
        ({"x": [[1], [2, 3]], "label": [1, 2]}, "lists of `x` differ in length"),
        ({"x": [[1], None], "label": [1, 2]}, "lists of `x` differ in length"),
        ({"x": [[1], [None]], "label": [1, 2]}, "row 1 has features that are not fin"),
        ({"x": [[0.5], [np.nan]], "label": [1, 2]}, "row 1 has features that are not"),
        ({"x": pl.Series([[], []], dtype=pl.List(pl.Int8)), "label": [1, 2]}, "2, 0"),
        ({"x": pl.Series([], dtype=pl.Int8), "label": []}, "a.parquet has no rows"),
        ({"x": pl.Series([], dtype=pl.List(pl.Int8)), "label": []}, "has no rows"),
    ],
    ids=[
        *("no_labels", "no_features", "text", "null", "null_label", "label_lists"),
        *("nan_label", "inf", "lengths", "null_list", "null_in_list", "nan_in_list"),
        *("empty_lists", "no_rows", "no_lists"),
    ],
)
@pytest.mark.usefixtures("in_this_process")
def test_parquet_without_examples_is_refused(tmp_path, columns, message):
    path = write_parquet(tmp_path / "a.parquet", **columns)
    with pytest.raises(ValueError, match=message):
        read(path)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["a", None], "a.parquet: column `name` has rows without a value"),
        (["a", ""], "column `name` has rows without a value"),
        (["a", "a"], "column `name` must be unique, got 'a' more than once"),
        ([["a"], ["b"]], r"column `name` must be names, got List\(String\)"),
    ],
    ids=["null", "empty", "twice", "lists"],
)
@pytest.mark.usefixtures("in_this_process")
def test_parquet_keys_that_no_vectors_can_have_are_refused(tmp_path, keys, message):
    path = write_parquet(tmp_path / "a.parquet", x=[1, 2], label=[1, 2], name=keys)
    with pytest.raises(ValueError, match=message):
        read(path, key="name")


@pytest.mark.usefixtures("in_this_process")
def test_parquet_without_the_key_that_is_named_is_refused(tmp_path):
    path = write_parquet(tmp_path / "a.parquet", x=[1], label=[1])
    with pytest.raises(ValueError, match=r"`key` must be a column of .*, got 'name'"):
        read(path, key="name")


@pytest.mark.parametrize("size", [0, 100, -1])
def test_damaged_parquet_is_refused(tmp_path, size):
    path = write_parquet(tmp_path / "a.parquet", x=[1], label=[1])
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ValueError, match="a.parquet is not a parquet file: "):
        read(path)


# --- images


@pytest.mark.parametrize("suffix", [".png", ".JPG", ".jpeg", ".bmp", ".gif", ".webp"])
def test_the_class_of_an_image_is_its_folder(tmp_path, suffix):
    found = read(write_images(tmp_path, suffix=suffix))
    assert found.features.dtype == np.uint8 and found.features.shape == (4, 4, 6, 3)
    assert found.classes == ["cat", "dog"]
    for key, label, image in zip(found.keys, found.labels, found.features, strict=True):
        number = int(Path(key).stem)
        assert (key, label) == (f"{found.classes[label]}/{number}{suffix}", number % 2)
        np.testing.assert_allclose(image[0, 0, 0], 40 * number, atol=8)  # packed


def test_images_are_shuffled_in_a_fixed_order(tmp_path):
    write_images(tmp_path, sizes=((1, 1),) * 20)
    first, second = read(tmp_path), read(tmp_path)
    assert first.keys == second.keys
    np.testing.assert_array_equal(first.features, second.features)
    assert 0 < np.flatnonzero(np.diff(first.labels)).size < 19


@pytest.mark.parametrize(
    ("mode", "colour", "expected"),
    [
        ("L", 70, [70, 70, 70]),
        ("1", 1, [255, 255, 255]),
        ("LA", (70, 9), [70, 70, 70]),
        ("RGBA", (1, 2, 3, 9), [1, 2, 3]),
        ("P", 0, [0, 0, 0]),
        ("I;16", 256 * 70 + 255, [70, 70, 70]),
    ],
)
def test_image_of_any_mode_becomes_rgb(tmp_path, mode, colour, expected):
    Image.new(mode, (2, 1), colour).save(tmp_path / "a.png")
    desired = np.array([[expected] * 2], np.uint8)
    actual = read_image(tmp_path / "a.png")
    np.testing.assert_array_equal(actual, desired, strict=True)
    assert is_grey(tmp_path / "a.png") == (mode != "RGBA")
    grey = read_image(tmp_path / "a.png", mode="L")
    if mode != "RGBA":
        np.testing.assert_array_equal(grey, desired[..., 0], strict=True)


def test_images_are_scaled_to_the_size_that_is_given(tmp_path):
    write_images(tmp_path, sizes=((4, 6), (9, 2)))
    found = read(tmp_path, image_size=(5, 3))
    assert found.features.shape == (2, 5, 3, 3)
    colours = np.array([[40 * int(Path(key).stem), 100, 200] for key in found.keys])
    desired = np.broadcast_to(colours[:, np.newaxis, np.newaxis], (2, 5, 3, 3))
    np.testing.assert_array_equal(found.features, desired)


def test_images_that_differ_in_size_are_refused(tmp_path):
    write_images(tmp_path, sizes=((4, 6), (5, 7)))
    message = r"\d.png is (4 x 6|5 x 7), and .*\d.png (4 x 6|5 x 7): give --image-size"
    with pytest.raises(ValueError, match=message):
        read(tmp_path)


def test_cached_images_are_the_same_and_are_decoded_once(tmp_path, monkeypatch):
    write_images(tmp_path / "data")
    plain = read(tmp_path / "data")
    first = read(tmp_path / "data", tmp_path / "cache")
    monkeypatch.setattr(images, "_decode", None)
    second = read(tmp_path / "data", tmp_path / "cache")
    for found in (first, second):
        assert isinstance(found.features, np.memmap)
        np.testing.assert_array_equal(found.features, plain.features)
        assert (found.classes, found.keys) == (plain.classes, plain.keys)
    assert len(list((tmp_path / "cache").iterdir())) == 1


@pytest.mark.parametrize("change", ["image_size", "file"])
def test_cached_images_are_decoded_anew_after_a_change(tmp_path, change):
    write_images(tmp_path / "data")
    read(tmp_path / "data", tmp_path / "cache", image_size=(2, 3))
    if change == "file":
        Image.new("RGB", (2, 2), (9, 9, 9)).save(tmp_path / "data" / "cat" / "0.png")
    size = (2, 3) if change == "file" else (3, 2)
    found = read(tmp_path / "data", tmp_path / "cache", image_size=size)
    plain = read(tmp_path / "data", image_size=size)
    np.testing.assert_array_equal(found.features, plain.features)


def test_a_cache_that_another_run_made_meanwhile_is_used(tmp_path, monkeypatch):
    write_images(tmp_path / "data")
    decode = images._decode

    def meanwhile(*arguments):
        monkeypatch.setattr(images, "_decode", decode)
        read(tmp_path / "data", tmp_path / "cache")
        return decode(*arguments)

    monkeypatch.setattr(images, "_decode", meanwhile)
    found = read(tmp_path / "data", tmp_path / "cache")
    np.testing.assert_array_equal(found.features, read(tmp_path / "data").features)
    assert len(list((tmp_path / "cache").iterdir())) == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:50],
        lambda data: data[:-1],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    ],
    ids=["empty", "cut", "one_byte", "flipped_bit"],
)
def test_damaged_cache_is_refused(tmp_path, damage):
    write_images(tmp_path / "data")
    read(tmp_path / "data", tmp_path / "cache")
    (path,) = (tmp_path / "cache").glob("*/images.npy")
    path.write_bytes(damage(path.read_bytes()))
    message = "Cache file .*images.npy is damaged .* delete"
    with pytest.raises(ValueError, match=message):
        read(tmp_path / "data", tmp_path / "cache")


def test_image_that_cannot_be_read_leaves_no_cache(tmp_path):
    write_images(tmp_path / "data")
    (tmp_path / "data" / "dog" / "1.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match="1.png is not a whole image"):
        read(tmp_path / "data", tmp_path / "cache")
    assert not any((tmp_path / "cache").glob("*"))


def png(data=b"", size=4) -> bytes:
    """A grey image of 4 by 4 whose header claims another `size`, with `data` put in."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        checksum = zlib.crc32(kind + body).to_bytes(4, "big")
        return len(body).to_bytes(4, "big") + kind + body + checksum

    header = chunk(b"IHDR", 2 * size.to_bytes(4, "big") + bytes([8, 0, 0, 0, 0]))
    pixels = chunk(b"IDAT", zlib.compress(bytes(20)))
    return b"\x89PNG\r\n\x1a\n" + header + data + pixels + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GIF89a",
        png()[:45],
        png()[:20],
        png().replace(b"IHDR", b"IHDX"),
        png().replace(b"\0\0\0\x0dIHDR", b"\0\0\0\x01IHDR"),
        png(b"\0\0\0\1\xff\xff\xff\xff\0\0\0\0\0"),
        png().replace(b"\0\0\0\x0bIDAT", b"\0\0\0\0IDAT"),
        png(size=10**5),
    ],
    ids=[
        *("empty", "gif", "cut", "cut_header", "no_header", "short_header"),
        *("bad_chunk", "no_pixels", "bomb"),
    ],
)
def test_broken_image_is_refused(tmp_path, data):
    path = tmp_path / "a.png"
    path.write_bytes(data)
    with little_memory(), pytest.raises(ValueError, match="a.png is not a whole image"):
        read_image(path)


@pytest.mark.row("B17")
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "BMP", "GIF", "WEBP"])
@pytest.mark.parametrize("name", ["a.png", "a.gif"])
def test_image_is_recognised_by_its_content(tmp_path, kind, name):
    Image.new("RGB", (4, 4), (200, 200, 200)).save(tmp_path / name, kind)
    assert abs(read_image(tmp_path / name).astype(int) - 200).max() < 5


@pytest.mark.row("B17")
@pytest.mark.parametrize("kind", ["EPS", "PPM", "TIFF", "ICO", "TGA", "PDF"])
def test_image_of_another_format_is_refused(tmp_path, kind):
    Image.new("RGB", (16, 16)).save(tmp_path / "a.png", kind)
    with pytest.raises(ValueError, match="a.png is not .*: it must be PNG, JPEG, BMP"):
        read_image(tmp_path / "a.png")


@pytest.mark.row("B19")
@pytest.mark.parametrize("kind", ["idx", "npz", "parquet", "images", "cached images"])
def test_examples_that_change_while_they_are_read_are_refused(
    tmp_path, monkeypatch, kind
):
    """The file gets another time of change, right after it was read."""
    reader = f"read_{kind}"
    match kind:
        case "idx":
            source, module = write_mnist(tmp_path), idx_format
        case "npz":
            source, module = write_npz(tmp_path / "a.npz", X=X, y=Y), npz
        case "parquet":
            module = parquet
            source = write_parquet(tmp_path / "a.parquet", x=[1.0, 2.0], label=[0, 1])
        case _:
            source = write_images(tmp_path / "data")
            reader, module = "read_image", images
    found, read_it = opened(source), getattr(module, reader)

    def read_and_touch(path, *options):
        result = read_it(path, *options)
        os.utime(path[0] if kind == "parquet" else path, ns=(0, 0))
        return result

    monkeypatch.setattr(module, reader, read_and_touch)
    cache = tmp_path / "cache" if kind == "cached images" else None
    with pytest.raises(ValueError, match=" changed while it was read: start again"):
        found.read(cache)
    assert not list((tmp_path / "cache").glob("*"))


@pytest.mark.skipif(os.name != "posix", reason="names that are bytes")
def test_image_with_a_name_that_is_not_utf8_is_refused(tmp_path):
    write_images(tmp_path)
    (tmp_path / "cat" / "0.png").rename(tmp_path / "cat" / os.fsdecode(b"\xff.png"))
    message = r"DATA .*: names must be UTF-8, got 'cat/\\udcff.png'"
    with pytest.raises(ValueError, match=message):
        opened(tmp_path)


# --- all


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("none.npz", "DATA .*none.npz does not exist"),
        ("link.npz", "DATA .*link.npz does not exist"),
        ("empty", "DATA .*empty must be an idx file of images .* or its folder"),
        (
            "flat",
            "DATA .*flat has 1 images that are in no folder of a class",
        ),
        ("labels", "DATA .*labels must be an idx file of images"),
    ],
)
def test_absent_examples_are_named(tmp_path, source, message):
    for folder in ("empty", "empty/class", "flat", "labels"):
        (tmp_path / folder).mkdir()
    (tmp_path / "link.npz").symlink_to("link.npz")
    Image.new("L", (1, 1)).save(tmp_path / "flat" / "a.png")
    (tmp_path / "labels" / "train-labels-idx1-ubyte").write_bytes(idx(Y))
    with pytest.raises(FileNotFoundError, match=message):
        opened(tmp_path / source)


@pytest.mark.parametrize("name", ["a.csv", "a.npy", "train-labels-idx1-ubyte", "npz"])
def test_file_of_no_known_kind_is_refused(tmp_path, name):
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(ValueError, match=f"DATA .*{name} must be an idx file of image"):
        opened(tmp_path / name)


@pytest.mark.parametrize("name", ["a.npz", "a.parquet", "a-images-idx3", "c/a.png"])
def test_pipe_is_refused(tmp_path, name):
    (tmp_path / "c").mkdir()
    os.mkfifo(tmp_path / name)
    with pytest.raises(ValueError, match="DATA .* must be a regular file"):
        opened(tmp_path if "/" in name else tmp_path / name)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda folder: write_mnist(folder).parent, "dät a"),
        (lambda folder: write_mnist(folder), "train-images-idx3-ubyte"),
        (lambda folder: write_npz(folder / "a.b.npz", X=X, y=Y), "a"),
        (write_images, "dät a"),
    ],
    ids=["folder_of_idx", "idx", "npz", "images"],
)
def test_examples_are_named_by_their_file(tmp_path, make, name):
    (tmp_path / "dät a").mkdir()
    found = opened(make(tmp_path / "dät a"))
    assert found.name == name
    assert len(found.read(None).labels) == 4


@pytest.mark.parametrize("kind", ["idx", "npz", "images"])
def test_manifest_changes_with_the_labels(tmp_path, kind):
    manifests = []
    for labels in (Y, Y[::-1]):
        match kind:
            case "idx":
                source = write_mnist(tmp_path, y=labels)
            case "npz":
                source = write_npz(tmp_path / "a.npz", X=X, y=labels)
            case "images":
                source = tmp_path / "data"
                for number, label in enumerate(labels):
                    (source / str(label)).mkdir(exist_ok=True, parents=True)
                    Image.new("L", (1, 1)).save(source / str(label) / f"{number}.png")
        manifests.append(str(opened(source).manifest))
    assert manifests[0] != manifests[1]
