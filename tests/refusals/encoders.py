"""Examples, networks, files of encoders and processes that are refused."""

import gzip
import io
import tarfile
import zipfile
from typing import Any

import numpy as np
import optax
import polars as pl
from PIL import Image

from embedder import FeatureEncoder
from tests.refusals.rows import Content, Refusal, calls_of, rows_of

X = np.arange(24, dtype=np.uint8).reshape(4, 2, 3)
Y = np.array([7, 5, 7, 9], np.uint8)
A = np.arange(8.0).reshape(4, 2)
NAN = np.zeros((3, 2**20))  # of which 16 MiB are looked at at once
NAN[2, 5] = np.nan
PICKLED = X.astype(object)
NO_LISTS = pl.Series([[], []], dtype=pl.List(pl.Int8))


def of_data(
    message: str, name: str, content: Content, flags: str = "", *rows: str, **others
) -> Refusal:
    """Training on a file that is refused, with other files beside it."""
    files = {name: content} | {key.replace("_", "-"): x for key, x in others.items()}
    call = f"train {name.split('/')[0]} --model encoder {flags}"
    return Refusal(call, message, files, rows=rows)


def idx(data: np.ndarray, shape: tuple[int, ...] = ()) -> bytes:
    """A file of bytes, whose header may claim another shape."""
    shape = shape or data.shape
    sizes = b"".join(size.to_bytes(4, "big") for size in shape)
    return bytes([0, 0, 8, len(shape)]) + sizes + data.tobytes()


def of_idx(message: str, data: bytes, end: str = "") -> Refusal:
    name = f"x-images-idx3{end}"
    return of_data(f"{name} {message}", name, data, **{f"x_labels_idx1{end}": b""})


def of_npz(message: str, x: Any = X, y: Any = Y, flags: str = "", *rows: str):
    arrays = {name: a for name, a in (("X", x), ("y", y)) if a is not None}
    return of_data(f"a.npz{message}", "a.npz", arrays, flags, *rows)


def of_bytes(message: str, data: bytes) -> Refusal:
    return of_data(f"a.npz{NO_FEATURES}{message}", "a.npz", data, "", "B11")


def npz(start: bytes = b"", shape: tuple[int, ...] = (4, 6)) -> bytes:
    """A zip file whose X.npy begins so, or with a header that claims this shape."""
    file, packed = io.BytesIO(start), io.BytesIO()
    if not start:
        header = {"descr": "|u1", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("X.npy", file.getvalue() + bytes(24))
        archive.writestr("y.npy", b"")
    return packed.getvalue()


def of_parquet(message: str, flags: str = "", /, **columns: Any) -> Refusal:
    return of_data(message, "a.parquet", pl.DataFrame(columns), flags)


def of_keys(message: str, keys: list, end: str = "csv") -> Refusal:
    frame = pl.DataFrame({"x": [1, 2], "label": [1, 2], "name": keys})
    message = f"a.{end}: column `name` {message}"
    return of_data(message, f"a.{end}", frame, "--key name")


def picture(kind: str = "PNG", size: tuple[int, int] = (3, 2)) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, (10, 20, 30)).save(file, kind)
    return file.getvalue()


def of_encoded(message: str, second: bytes | None) -> Refusal:
    message = f"a.parquet: row 1 of `image` {message}"
    return of_parquet(message, image=[PNG, second], label=[1, 2])


def tar_member(name: str, data: bytes) -> bytes:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    return member.tobuf() + data + bytes(-len(data) % 512)


def of_tar(message: str, png: bytes | None = None, /, **ends: bytes) -> Refusal:
    """An archive of 0.png, and of more files by their endings."""
    files = ends if png is None else {"png": png} | ends
    data = b"".join(tar_member(f"0.{end}", each) for end, each in files.items())
    return of_data(f"a.tar{message}", "a.tar", data + bytes(1024), "", "B46")


def of_captions(message: str, field: str, *labels: str) -> Refusal:
    """An archive of images with captions, and labels in JSON."""
    members = [
        tar_member(f"{number}.{end}", data)
        for number, label in enumerate(labels)
        for end, data in (("png", PNG), ("json", label.encode()), ("txt", b"a photo"))
    ]
    data = b"".join(members) + bytes(1024)
    return of_data(f"a.tar: {message}", "a.tar", data, f"--label {field}")


def of_image(message: str, data: bytes) -> Refusal:
    message = f"photos/cat/a.png is not a whole image: {message}"
    return of_data(message, "photos/cat/a.png", data, "", "B17")


LAKE = "DATA table is a table of Hudi, whose files also have deleted rows: write "
LAKE += "the snapshot that you want to Parquet, and give that."
FLOATS = io.BytesIO()
Image.new("F", (3, 2)).save(FLOATS, "TIFF")
PNG, LARGE = picture(), picture(size=(9, 9))
KINDS = "it must be PNG, JPEG, BMP, GIF, WEBP or TIFF, whatever its name says."
SHAPES = ": features must be [n, ...] and labels [n], got "
NO_FEATURES = " has no features and labels: "
NAME = "name that of the labels by --label and that of names by --key."
BYTES = "a.parquet: columns must be numbers, or one of bytes, got "
OTHER_DATA = gzip.compress(idx(X), 0).replace(b"\x0a\x0b", b"\x0a\x0a")
EXAMPLES = [
    of_data(LAKE, "table/a.csv", "a,label\n1,2\n", **{"table/.hoodie/a": "{}"}),
    of_idx("is not an idx file: it begins b'\\x00\\x00\\x07\\x01'.", b"\0\0\7\1"),
    of_idx("ends within its header.", b"\0\0\x08\3\0\0\0\4\0\0"),
    of_idx("claims 24 bytes, [4, 2, 3] of uint8, and has 23.", idx(X)[:-1]),
    of_idx("claims 24 bytes, [4, 2, 3] of uint8, and has more.", idx(X) + b"\0"),
    of_idx(f"claims {10**6} bytes, [{10**6}] of uint8, and has 24.", idx(X, (10**6,))),
    of_idx("is not a whole .gz file: …", gzip.compress(idx(X))[:-1], ".gz"),
    of_idx("is not a whole .gz file: CRC check failed …", OTHER_DATA, ".gz"),
    of_npz(f"{NO_FEATURES}it has X, and must have …", X, None),
    of_npz(f"{SHAPES}[4, 2] and [3].", A, Y[:3]),
    of_npz(f"{SHAPES}[4] and [4].", A[:, 0]),
    of_npz(f"{SHAPES}[0, 2] and [0].", A[:0], Y[:0]),
    of_npz(": features must be numbers, got <U32.", A.astype(str)),
    of_npz(": labels must be numbers or text, got |S3.", X, Y.astype("S")),
    of_npz(": labels must be finite.", X, Y + np.nan),
    of_npz(f"{NO_FEATURES}`X` holds pickled objects, which are not read.", PICKLED),
    of_npz(f"{NO_FEATURES}it has X, y, and must have …", X, Y, "--label knid"),
    of_npz(": row 2 has features that are not finite.", NAN, Y[:3], "", "B6", "B11"),
    of_bytes(
        f"`X` claims shape ({2**62}, 8), more than its bytes.", npz(shape=(2**62, 8))
    ),
    of_bytes("`X` claims shape (-4, -6), more than its bytes.", npz(shape=(-4, -6))),
    of_bytes("`X` has format (9, 0).", npz(b"\x93NUMPY\x09\0")),
    of_bytes("File is not a zip file.", b"X,y\n1,2\n"),
    of_bytes(
        "Bad CRC-32 for file 'X.npy'.", npz().replace(bytes(24), bytes(23) + b"1")
    ),
    of_parquet("`label` must be a column of a.parquet (x), got 'label'.", x=[1, 2]),
    of_parquet(f"{BYTES}x, t; {NAME}", x=["1"], z=[1], t=[[["1"]]], label=[1]),
    of_parquet(
        "a.parquet: column `x` has rows without a value.", x=[1, None], label=[1, 2]
    ),
    of_parquet(
        "a.parquet: lists of `x` differ in length.", x=[[1], [2, 3]], label=[1, 2]
    ),
    of_parquet(f"a.parquet{SHAPES}[2, 0] and [2].", x=NO_LISTS, label=[1, 2]),
    of_parquet("a.parquet has no rows.", x=NO_LISTS[:0], label=[]),
    of_keys("has rows without a value.", ["a", None]),
    of_keys("must be unique, got 'a' more than once.", ["a", "a"]),
    of_keys("must be names, got List(String).", [["a"], ["b"]], "parquet"),
    of_data("a.parquet cannot be read: ….", "a.parquet", b"PAR1"),
    of_encoded("has no bytes.", None),
    of_encoded(f"is not a whole image: {KINDS}", b"no"),
    of_tar(
        " has no images (.png, .jpg, .jpeg, .jpe, .jfif, .bmp, .gif, .webp, .tif, "
        ".tiff).",
        README=b"text",
    ),
    of_tar(": '0' has several images, .png and .jpg.", PNG, jpg=b"", cls=b"1"),
    of_tar(f": 0.png is not a whole image: {KINDS}", b"no", cls=b"1"),
    of_tar(": 0.cls is damaged: 'utf-8' codec …", PNG, cls=b"\xff"),
    of_tar(": 0.json is damaged: Expecting property name …", PNG, json=b"{"),
    of_tar(": 0.txt has more than 1048576 bytes.", PNG, txt=bytes(2**20 + 1)),
    of_tar(
        ": '0' has no label: neither 0.cls, nor 0.txt, nor 0.json with the field "
        "'label'.",
        PNG,
    ),
    of_data(
        "DATA a.tar.gz is a compressed archive: unpack it to .tar first. Images are "
        "compressed already.",
        "a.tar.gz",
        b"",
    ),
    of_image("image file is truncated.", PNG[:45]),
    of_image(KINDS, picture("PPM")),
    of_image("its values have 32 bits: save it with 8 or 16.", FLOATS.getvalue()),
    of_data(
        "DATA splits has the folders train, val, which are no classes but have folders "
        "of classes: give one, as splits/train.",
        "splits/train/cat/a.png",
        PNG,
        **{"splits/val/cat/a.png": PNG},
    ),
    of_captions(
        "'0' has no label: no 0.json with the field 'knid'.", "knid", '{"kind": 1}'
    ),
    of_captions(
        "'1' has no label: no 1.json with the field 'kind'.",
        "kind",
        '{"kind": 1}',
        "{}",
    ),
    of_captions(
        "'1' has no label: no 1.json with the field 'label', as others have.",
        "label",
        '{"label": 1}',
        "{}",
    ),
    of_data(
        "photos/b/b.png is 9 x 9, and photos/a/a.png 2 x 3: give --image-size HEIGHT "
        "WIDTH.",
        "photos/a/a.png",
        PNG,
        **{"photos/b/b.png": LARGE},
    ),
    of_data(
        "DATA photos: names must be UTF-8, got 'a/\\udcff.png'.",
        "photos/a/\udcff.png",
        PNG,
    ),
    of_data(
        "DATA photos has 1 images that are in no folder of a class: put them in "
        "photos/CLASS/a.png and so on.",
        "photos/a.png",
        PNG,
    ),
    of_data("DATA photos must be an idx file of images …", "photos/text", b""),
    of_data(
        "x-images-idx3 has no labels: x-labels-idx1 does not exist.",
        "x-images-idx3",
        b"",
    ),
]
LABELS: dict[str, Content] = {
    "each.npz": {"X": A, "y": np.arange(4)},
    "sorted.npz": {"X": A, "y": [1, 1, 2, 3]},
    "first.npz": {"X": np.ones((4, 3, 8, 9), np.uint8), "y": Y},
    "one.npz": {"X": A, "y": np.ones(4, int)},
}
WORDS = {
    "IMAGES": "train images.npz --model encoder --batch-size 6",
    "POINTS": "train examples.npz --model encoder",
    "TEXT": "train text.txt",
    "PARITY": "parity --corpus images.npz --model encoder --optimizer sgd --network",
}
FLAGS = """
[B47]
IMAGES --augment rotate=3
  `augment` must be crop=N, resized-crop=SHARE, flip, colour=S, cutout=N or
  mixup=ALPHA, got 'rotate=3'.
IMAGES --augment flip flip
  `augment` must have flip once, got ['flip', 'flip'].
IMAGES --augment crop=1.5
  `augment` crop=N must be an integer >= 1, got 'crop=1.5'.
IMAGES --augment colour=0
  `augment` colour=NUMBER must be a number above 0, at most 1, got 'colour=0'.
IMAGES --augment crop=8
  `augment` crop=8 must be less than the height and width of images, 8 and 8.
IMAGES --augment mixup=1 --objective supcon
  `augment` mixup applies only to `objective` softmax, got supcon.
IMAGES --objective simclr
  `objective` simclr compares views of an example: give `augment`, such as crop=4
  flip.
[B51]
IMAGES --network vit --network-args patch=3
  `network_args` of vit: patch must divide the images, 8 x 8, got 3.
IMAGES --network vit --network-args width=9 heads=2
  `network_args` of vit: heads must divide the width, 9, got 2.
IMAGES --network vit --network-args pool=max
  `network_args` of vit: pool must be class or mean, got 'max'.
IMAGES --network resnet --network-args depth=19
  `network_args` of resnet: depth must be one of 18, 34, 50, 101, 152, got 19.
IMAGES --network conv-small --network-args dropout=1
  `network_args` of conv-small: dropout must be a number in [0, 1), got '1'.
PARITY conv-small --stages loss
  `network` must be mlp for the stage `loss`, got 'conv-small', of which there is only
  the stage `networks`.
PARITY vit --compute-dtype bfloat16
  `compute_dtype` must be its default, 'same', to compare with the NumPy trainer, got
  'bfloat16'.
IMAGES --network mlp --network-args width=3
  `network_args` are of networks of images, got width=3 with an mlp: give --layers.
IMAGES --objective-args margin=1
  `objective_args` of softmax must be of smoothing, got 'margin'.
IMAGES --objective triplet --objective-args margin=3
  `objective_args` of triplet: margin must be a number in [0, 2], got 3.0.
IMAGES --objective supcon --class-weights balanced
  `class_weights` applies to `objective` softmax and arcface, got 'balanced' with
  supcon.
IMAGES --warmup soon
  `warmup` must be a number of updates as 500, or of epochs as 1epoch, got 'soon'.
IMAGES --freeze stem*
  `freeze` must be a pattern of some modules of the network, got 'stem*', which is
  that of none: they are classes, conv_0, conv_1, conv_2, dense, norm_0, norm_1,
  norm_2, norm_dense.
IMAGES --freeze *
  `freeze` must be a pattern of some modules of the network, got '*', which is that of
  all: they are classes, conv_0, conv_1, conv_2, dense, norm_0, norm_1, norm_2,
  norm_dense.
[B52]
IMAGES --micro-batches 4
  `micro_batches` must divide `batch_size` 6, got 4.
IMAGES --micro-batches 2 --objective supcon
  `micro_batches` must be 1 for `objective` supcon, which compares the examples of a
  batch, got 2.
[]
IMAGES --init-from gone.npz
  `init_from` gone.npz does not exist.
IMAGES --init-from encoder
  `init_from` encoder has no module with parameters of the same names and shapes as
  the network: give the --network and --network-args of that run.
IMAGES --schedule step --schedule-args boundaries=5,2
  `schedule_args` must be boundaries=, rising epochs above 0 such as 30,60, or
  factor=, a number in (0, 1), got 'boundaries=5,2'.
IMAGES --schedule-args factor=0.5
  `schedule_args` applies only to `rate_schedule` step, got factor=0.5 with auto.
IMAGES --optimizer sgd --optimizer-args momentum=x
  `optimizer_args` must be NAME=VALUE, a number, true or false, got 'momentum=x'.
train each.npz --model encoder --objective supcon
  `objective` supcon compares examples of a class, and none of the 4 training examples
  has another of its class: give labels that repeat.
train each.npz --model encoder --objective triplet
  `objective` triplet compares examples of a class, and none of the 4 training examples
  has another of its class: give labels that repeat.
train one.npz --model encoder --objective triplet
  `objective` triplet compares examples of two classes, and all training examples have
  one.
train sorted.npz --model encoder --validation-fraction 0.3 --patience 2
  The validation examples, the last 1, have 1 class without training examples (3):
  shuffle the rows of the data, or leave such classes out. `patience` and `result` best
  go by their loss.
train sorted.npz --model encoder --validation-fraction 0.3 --result best
  The validation examples, the last 1, have 1 class without training examples (3):
  shuffle the rows of the data, or leave such classes out. `patience` and `result` best
  go by their loss.
train first.npz --model encoder --network resnet
  `network` resnet needs images [height, width, channels], got examples [3, 8, 9], with
  channels first: give np.moveaxis(X, 1, -1).
POINTS --augment flip
  `augment` applies only to images, [height, width] or [height, width, channels], got
  examples of [6].
TEXT --coordinator host:1
  `coordinator` = 'host:1' needs `num_processes` and `process_id` too.
TEXT --coordinator host:1 --num-processes 2 --process-id 2
  `process_id` must be an integer from 0 to 1, got 2.
TEXT --coordinator host --num-processes 2 --process-id 1
  `coordinator` must be HOST:PORT, got 'host'.
TEXT --init-timeout 0
  `init_timeout` must be an integer >= 1, got 0.
"""
CALLS = """
FeatureEncoder(layers=5).fit(A, Y)
  InputTypeError: `layers` must be integers >= 1, got 5.
FeatureEncoder(optimizer_args="momentum=0.9").fit(A, Y)
  InputTypeError: `optimizer_args` must be a dict of values by their names, got
  'momentum=0.9'.
FeatureEncoder(optimizer=optax.sgd(1), optimizer_args={"b": 1}).fit(A, Y)
  `optimizer_args` must be None with an optimizer of optax, got {'b': 1}.
FeatureEncoder(network="lenet").fit(A, Y)
  `network` must be 'auto' or 'mlp' or 'conv-small' or 'resnet' or 'wide-resnet' or
  'vit', got 'lenet'.
FeatureEncoder(init_from=3).fit(A, Y)
  InputTypeError: `init_from` must be the path or URL of a run or an encoder file, got
  3.
FeatureEncoder().fit_ensemble(X, Y, 1)
  `replicas` must be an integer >= 2, got 1.
FeatureEncoder.load("encoder")
  encoder is not a whole encoder file: [Errno 21] …
"""
NAMES = {"FeatureEncoder": FeatureEncoder, "optax": optax, "A": A, "X": X, "Y": Y}


def of_fit(message: str, x: np.ndarray, y: np.ndarray | None, **options: Any):
    encoder = FeatureEncoder(**options)
    return Refusal(lambda: encoder.fit(x, y), message, error=ValueError)


OF_SKLEARN = [
    of_fit("Unknown label type: continuous…", A, np.linspace(0, 1, 4)),
    of_fit("This FeatureEncoder estimator requires y …", A, None, objective="supcon"),
    of_fit("Found array with 0 sample(s) …", X[:0], Y[:0]),
]


def text(value: str) -> np.ndarray:
    return np.frombuffer(value.encode(), np.uint8)


HALF = np.full((6, 4), 0.5, np.float32)
MEMBERS = {
    "format": text("embedder-encoder-model 1"),
    "settings": text('{"layers": [6, 4, 2], "dtype": "float32"}'),
    "classes": np.array(["red", "blue"]),
    "history": text("[]"),
    "shape": np.array([3, 2]),
    "kind": text("uint8"),
    "weights_0": HALF,
    "biases_0": HALF[0],
    "weights_1": HALF[:4, :2],
    "biases_1": HALF[0, :2],
}


def of_file(message: str, **changes: Any) -> Refusal:
    """A file of an encoder with other members; those that are None are left out."""
    members = {name: x for name, x in (MEMBERS | changes).items() if x is not None}
    message = f"model.npz is not a whole encoder file: {message}"
    files = {"model.npz": members}
    return Refusal(lambda: FeatureEncoder.load("model.npz"), message, files)


FILES = [
    of_file("its format is b'x', not b'embedder-encoder-model 1'.", format=text("x")),
    of_file('"There is no item named …', format=None),
    of_file("it has no 'biases_1'.", biases_1=None),
    of_file(
        "`settings` has other names than those of an encoder.",
        settings=text('{"layer": null}'),
    ),
    of_file("`layers` must be integers >= 1, got 1.", settings=text('{"layers": 1}')),
    of_file("Expecting property name …", settings=text("{")),
    of_file("layer 0 is (6, 3) and (4,).", weights_0=HALF[:, :3]),
    of_file("layers of (6, 4) and (3, 2) do not fit.", weights_1=HALF[:3, :2]),
    of_file("`weights_0` is not finite numbers of float32.", weights_0=HALF * np.nan),
    of_file("it has 1 classes, its layers another number.", classes=np.array(["a"])),
    of_file(
        "`classes` holds pickled objects, which are not read.",
        classes=np.array([{}, 1]),
    ),
    of_file("`shape` is (3, 3), of 6 features.", shape=np.array([3, 3])),
    of_file("`kind` is 'object'…", kind=text("object")),
    of_file("`columns` is no JSON list of 6 names.", columns=text('["a", "b"]')),
    of_file("['shapd'] are not members of an encoder.", shapd=np.array([3, 2])),
    Refusal(
        lambda: FeatureEncoder.load("a.npz"),
        "a.npz is not a whole encoder file: File is not a zip file.",
        {"a.npz": b"not a zip"},
    ),
    Refusal(
        lambda: FeatureEncoder.load("a.npz"),
        "a.npz has settings that FeatureEncoder does not have, `label`: use `embedder "
        "embed`.",
        {"a.npz": MEMBERS | {"settings": text('{"label": "y"}')}},
    ),
]
ROWS = [
    *EXAMPLES,
    *rows_of(FLAGS, WORDS, LABELS),
    *calls_of(CALLS, NAMES, {}),
    *OF_SKLEARN,
    *FILES,
]
