"""Examples: what is read from each kind of file, and what is refused."""

import gzip
import json
import os
import tracemalloc
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image
from safetensors import safe_open

from embedder import FeatureEncoder
from embedder.cli.main import main
from embedder.config.encoder_options import EncoderOptions
from embedder.data.examples import array_files, example_tables, images
from embedder.data.examples.example_formats import open_examples
from embedder.data.examples.examples import Examples, ExampleSet
from embedder.data.examples.images import is_grey, read_image
from embedder.vectors.export import read_vectors
from tests.commands import error_line, flip

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
    pack = gzip.compress if suffix else bytes
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


# --- idx


@pytest.mark.parametrize("dtype", CODES)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_idx_gives_its_numbers(tmp_path, dtype, suffix):
    path = tmp_path / f"x-images-idx2{suffix}"
    array = np.array([[0, 1, 100], [3, 4, 127]]).astype(dtype)
    data = idx(array, dtype)
    path.write_bytes(gzip.compress(data) if suffix else data)
    expected = array.astype(np.dtype(dtype).newbyteorder("="))
    np.testing.assert_array_equal(array_files.read_idx(path), expected, strict=True)


@pytest.mark.parametrize("suffix", ["", ".gz", ".GZ"])
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


def test_idx_of_zeros_in_a_gz_is_read_no_further_than_it_claims(tmp_path):
    path = tmp_path / "x-images-idx3.gz"
    path.write_bytes(gzip.compress(idx(X) + bytes(10**8), compresslevel=1))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="claims 24 .* has more"):
            array_files.read_idx(path)
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()


# --- npz


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize(
    "names", ["x_train y_train", "X y", "x y", "features labels", "anything label"]
)
def test_npz_has_known_names(tmp_path, names, save):
    features, labels = names.split()
    path = write_npz(tmp_path / "a.npz", save, **{features: X, labels: Y})
    path = path.rename(tmp_path / "a.NPZ")
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
        (np.array([10.0, -2, 10, 0]), ["-2", "0", "10"], [2, 0, 2, 1]),
        (np.zeros(4), ["0"], [0, 0, 0, 0]),
    ],
    ids=["integers", "floats", "booleans", "text", "column", "whole", "one_class"],
)
def test_labels_become_indices_of_the_classes(tmp_path, labels, classes, places):
    found = read(write_npz(tmp_path / "a.npz", X=ROWS, y=labels))
    assert found.classes == classes
    desired = np.array(places, np.int32)
    np.testing.assert_array_equal(found.labels, desired, strict=True)


# --- parquet


def test_parquet_features_are_its_other_columns_in_order(tmp_path):
    columns = {"b": [1, 2], "label": ["z", "a"], "a": [0.5, 1.5], "c": [True, False]}
    columns["d"] = [[3, 4], [5, 6]]
    found = read(write_parquet(tmp_path / "a.parquet", **columns))
    desired = np.array([[1, 0.5, 1, 3, 4], [2, 1.5, 0, 5, 6]])
    np.testing.assert_array_equal(found.features, desired, strict=True)
    assert (found.classes, found.labels.tolist()) == (["a", "z"], [1, 0])
    assert found.keys == ["0", "1"]


@pytest.mark.parametrize("dtype", [pl.List(pl.UInt8), pl.Array(pl.UInt8, 2), pl.UInt8])
def test_parquet_bytes_stay_bytes(tmp_path, dtype):
    rows = [[1, 255], [3, 4]] if dtype.is_nested() else [1, 255]
    path = write_parquet(
        tmp_path / "a.parquet", x=pl.Series(rows, dtype=dtype), label=[1, 2]
    )
    desired = np.array(rows, np.uint8).reshape(2, -1)
    np.testing.assert_array_equal(read(path).features, desired, strict=True)


@pytest.mark.parametrize(
    ("keys", "expected"), [(["p", "ä ö"], ["p", "ä ö"]), ([20, -3], ["20", "-3"])]
)
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


# --- images

ENDINGS = ".png .JPG .jpeg .jfif .jpe .bmp .gif .webp .tif .TIFF".split()


@pytest.mark.parametrize("suffix", ENDINGS)
def test_the_class_of_an_image_is_its_folder(tmp_path, suffix):
    found = read(write_images(tmp_path, suffix=suffix))
    assert found.features.dtype == np.uint8 and found.features.shape == (4, 4, 6, 3)
    assert found.classes == ["cat", "dog"]
    for key, label, image in zip(found.keys, found.labels, found.features, strict=True):
        number = int(Path(key).stem)
        assert (key, label) == (f"{found.classes[label]}/{number}{suffix}", number % 2)
        error = np.abs(image.astype(int) - [40 * number, 100, 200]).max()
        assert error <= (8 if suffix == ".webp" else 2)  # packed


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


def test_damaged_cache_is_refused(tmp_path):
    write_images(tmp_path / "data")
    read(tmp_path / "data", tmp_path / "cache")
    (path,) = (tmp_path / "cache").glob("*/images.npy")
    whole = path.read_bytes()
    flip(path, -1)
    for damaged in (path.read_bytes(), whole[:-1], whole[:50], b""):
        path.write_bytes(damaged)
        message = "Cache file .*images.npy is damaged .* delete"
        with pytest.raises(ValueError, match=message):
            read(tmp_path / "data", tmp_path / "cache")


@pytest.mark.row("B17")
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "BMP", "GIF", "WEBP"])
@pytest.mark.parametrize("name", ["a.png", "a.gif"])
def test_image_is_recognised_by_its_content(tmp_path, kind, name):
    Image.new("RGB", (4, 4), (200, 200, 200)).save(tmp_path / name, kind)
    assert abs(read_image(tmp_path / name).astype(int) - 200).max() < 5


@pytest.mark.row("B19")
@pytest.mark.parametrize("kind", ["idx", "npz", "parquet", "images", "cached images"])
def test_examples_that_change_while_they_are_read_are_refused(
    tmp_path, monkeypatch, kind
):
    """The file gets another time of change, right after it was read."""
    reader = f"read_{kind}"
    match kind:
        case "idx":
            source, module = write_mnist(tmp_path), array_files
        case "npz":
            source, module = write_npz(tmp_path / "a.npz", X=X, y=Y), array_files
        case "parquet":
            module, reader = example_tables, "_read"
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


# --- all


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


def test_manifest_changes_with_the_labels(tmp_path):
    manifests = []
    for labels in (Y, Y[::-1]):
        sources = (
            write_mnist(tmp_path, y=labels),
            write_npz(tmp_path / "a.npz", X=X, y=labels),
        )
        manifests.append([str(opened(each).manifest) for each in sources])
    for one, other in zip(*manifests, strict=True):
        assert one != other


# --- what a warning says of them


SORTED = "aaaabbbbcccc"


@pytest.mark.parametrize(
    ("labels", "fraction", "expected"),
    [
        (SORTED, "0.4", "the last 5, have 1 class without training examples (c): "),
        (SORTED, "0.2", "the last 2, have 1 class (c), as the data are sorted by "),
        ("abcacbabcacb", "0.4", ""),
        (SORTED, "0", ""),
    ],
)
def test_validation_examples_of_other_classes_are_told(
    tmp_path, caplog, labels, fraction, expected
):
    write_npz(tmp_path / "a.npz", X=np.eye(12), y=[*labels])
    flags = ["--epochs", "1", "--validation-fraction", fraction]
    assert train(tmp_path, "a.npz", "run", *flags) == 0
    told = [each for each in caplog.messages if "The validation examples" in each]
    assert len(told) == bool(expected) and expected in "".join(told)


def test_an_encoder_of_arrays_tells_pixels_of_16_bits_and_first_channels(caplog):
    x = np.full((6, 3, 8, 8), 40_000, np.uint16)
    FeatureEncoder(network="auto", epochs=1).fit(x, [*"ababab"])
    first, second = caplog.messages[:2]
    assert first == (
        "`X`: features are whole numbers from 0 to 65535, and are taken as they are. "
        "If they are pixels, save them as uint8 (X >> 8), which is scaled to 0 to 1."
    )
    assert second.endswith("with channels first: give np.moveaxis(X, 1, -1).")


# --- names of features

NAMES = ("height", "width", "weight")


@pytest.fixture(scope="module")
def of_table(tmp_path_factory):
    """A folder with a table of named features, and the run `run` of an encoder."""
    folder = tmp_path_factory.mktemp("names")
    rng = np.random.default_rng(1)
    y = np.arange(60) % 3
    x = rng.normal(size=(60, 3)) + 4 * np.eye(3)[y]
    table = pl.DataFrame(x, schema=NAMES).with_columns(label=np.array([*"abc"])[y])
    table.write_parquet(folder / "fit.parquet")
    table.select("weight", "label", "height", "width").write_parquet(
        folder / "reordered.parquet"
    )
    table.with_columns(id=pl.Series(["x"] * 60)).write_parquet(folder / "more.parquet")
    codes = pl.Series("code", ["7", "x"] * 30)  # no numbers, and no feature
    table[:, ::-1].with_columns(codes).write_csv(folder / "reordered.csv")
    table.rename({"weight": "mass"}).write_parquet(folder / "renamed.parquet")
    assert train(folder, "fit.parquet", "run", "--epochs", "50") == 0
    return folder


def train(folder: Path, data: str, run: str, *flags: str) -> int:
    command = f"train {folder / data} --model encoder --workdir {folder / run}"
    return main([*command.split(), "--no-report", "--loader", "memory", *flags])


def embedded(folder: Path, run: str, data: str) -> np.ndarray:
    to = str(folder / "to.safetensors")
    assert main(["embed", str(folder / run), str(folder / data), "--to", to]) == 0
    return read_vectors(to).matrix


@pytest.mark.parametrize("name", ["reordered.parquet", "more.parquet", "reordered.csv"])
def test_an_encoder_finds_its_columns_by_their_names(of_table, name, caplog, capsys):
    expected = embedded(of_table, "run", "fit.parquet")
    found = embedded(of_table, "run", name)
    np.testing.assert_array_equal(found, expected)
    assert (": id." in caplog.text) == name.startswith("more")
    capsys.readouterr()
    run, data = str(of_table / "run"), str(of_table / name)
    assert main(["evaluate", run, "--examples", data, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] > 0.9


def test_classes_of_whole_floats_are_those_of_integers(of_table, monkeypatch, capsys):
    """Also where an encoder was trained on floats as such."""
    monkeypatch.chdir(of_table)
    numbers = pl.read_parquet("fit.parquet").with_columns(label=np.arange(60) % 3)
    numbers.write_parquet("integers.parquet")
    floats = numbers.with_columns(pl.col("label").cast(pl.Float64))
    floats.write_parquet("floats.parquet")
    assert train(of_table, "floats.parquet", "run-floats", "--epochs", "50") == 0
    table = floats.drop("label").to_numpy(), floats["label"].to_numpy()
    FeatureEncoder(epochs=50).fit(*table).save("floats.npz")
    for encoder in ("run-floats", "floats.npz"):
        for data in ("integers", "floats"):
            capsys.readouterr()
            examples = ["--examples", f"{data}.parquet", "--json"]
            assert main(["evaluate", encoder, *examples]) == 0
            assert json.loads(capsys.readouterr().out)["accuracy"] > 0.9


@pytest.mark.parametrize("verb", [["embed"], ["evaluate", "--examples"]])
def test_other_columns_than_those_of_the_encoder_are_refused(of_table, verb, capsys):
    data = of_table / "renamed.parquet"
    assert main([verb[0], str(of_table / "run"), *verb[1:], str(data)]) == 2
    assert error_line(capsys) == (
        f"embedder: {data} must have the columns that the encoder was trained on: "
        "these lack weight and have mass."
    )


def test_a_network_starts_from_columns_of_the_same_names(of_table, capsys):
    still = ["--epochs", "1", "--learning-rate", "1e-30", "--init-from"]
    still.append(str(of_table / "run"))
    assert train(of_table, "reordered.parquet", "next", *still) == 0
    expected = embedded(of_table, "run", "fit.parquet")
    found = embedded(of_table, "next", "fit.parquet")
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    capsys.readouterr()
    assert train(of_table, "renamed.parquet", "other", *still) == 2
    assert error_line(capsys) == (
        f"embedder: `init_from` {of_table / 'run'} was trained on other columns: "
        "the examples lack weight and have mass."
    )


def test_the_numbers_of_a_list_are_named_by_their_position(of_table):
    table = pl.read_parquet(of_table / "fit.parquet")
    lists = table.select("label", x=pl.concat_list(NAMES), a="width")
    lists.write_parquet(of_table / "lists.parquet")
    lists.select("a", "x", "label").write_parquet(of_table / "turned.parquet")
    assert train(of_table, "lists.parquet", "lists", "--epochs", "1") == 0
    found = FeatureEncoder.load(of_table / "lists" / "model.npz").feature_names_in_
    assert found.tolist() == ["x[0]", "x[1]", "x[2]", "a"]
    np.testing.assert_array_equal(
        embedded(of_table, "lists", "turned.parquet"),
        embedded(of_table, "lists", "lists.parquet"),
    )


def test_a_file_of_an_encoder_keeps_the_names_of_a_frame(of_table):
    frame = pl.read_parquet(of_table / "fit.parquet")
    encoder = FeatureEncoder(epochs=1).fit(frame.select(NAMES), frame["label"])
    encoder.save(of_table / "file.npz")
    assert [*FeatureEncoder.load(of_table / "file.npz").feature_names_in_] == [*NAMES]
    np.testing.assert_array_equal(
        embedded(of_table, "file.npz", "reordered.parquet"),
        encoder.transform(frame.select(NAMES)).astype(np.float32),
    )


def test_exported_parameters_have_the_names_of_features(of_table):
    to = of_table / "parameters.safetensors"
    assert main(["export", str(of_table / "run"), "--to", str(to), "--parameters"]) == 0
    with safe_open(to, "np") as file:
        assert json.loads(file.metadata()["columns"]) == [*NAMES]
