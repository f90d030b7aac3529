"""Damaged and hostile files: each reader gives an answer, or names the file in a line.

The damage is seeded: a fault that is found is found again. What checksums would hide is
damaged inside of its packing.
"""

import contextlib
import gzip
import io
import re
import shutil
import struct
import tarfile
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import pytest
import scipy.sparse
from PIL import Image

from embedder import (
    EmbeddingTrainer,
    FeatureEncoder,
    Vectors,
    read_ensemble,
    read_vectors,
    write_vectors,
)
from embedder.cli.main import main
from embedder.data.examples.example_tables import read_examples
from embedder.data.examples.images import read_image
from tests.refusals.inputs import safetensors
from tests.refusals.rows import write_shared

MANY = 10**12
KEYS = ["a", "B", "\u00e4\u4e2d", "d", "eeeeeeeeeeee"]
MATRIX = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
LABELS = np.array([0, 1, 0, 1, 2])
TEXT = "the quick brown\tfox \u00e4\u4e2d\r\n\n jumps over\u2028 the lazy dog\n" * 4
PAIRS = "# scores\nword1\tword2\tscore\nw1\tw2\t3.5\nw2\tw4\t1\nw1\tzz\t2\n"
ANALOGIES = ": one\nw1 w2 w4 w3\nw2 w1 w4 w5\n: two\nw1 w2 x y\n"
NUMBERS = (
    *(b"0", b"-1", b"1000000000000", b"99999999999999999999999", b"1e999", b"nan"),
    *(b"4294967296", b"9223372036854775807", b"", b"1.5", b"true"),
)
PATCHES = [
    number.to_bytes(width, order, signed=number < 0)
    for number in (-1, 0, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, MANY)
    for width in (4, 8)
    for order in ("little", "big")
    if number < 2 ** (8 * width - (width == 8 and number < 0))
]


Damage = Callable[[np.random.Generator, bytes], bytes]


class Reader(NamedTuple):
    """A kind of file: its name, a whole one, and what reads it.

    `whole` is its content, or what writes it; a text is a path beside the data.
    """

    name: str
    whole: bytes | str | Callable[[Path], object]
    read: Callable[[Path], object]

    def write(self, path: Path) -> None:
        for ending, pack in {"": bytes, ".gz": gzip.compress}.items():
            labels = path.with_name(f"x-labels-idx1-ubyte{ending}")
            labels.write_bytes(pack(b"\0\0\x08\x01\0\0\0\5\0\1\0\1\1"))
        if isinstance(self.whole, bytes):
            path.write_bytes(self.whole)
        elif isinstance(self.whole, str):
            shutil.copy(self.whole, path)
        else:
            self.whole(path)


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> Path:
    """Data, and finished runs."""
    folder = tmp_path_factory.mktemp("shared")
    write_shared(folder)
    run = f"--workdir {folder}/subwords --vector-size 4 --subwords 2 3 --buckets 30"
    for line in (
        f"train {folder}/text.txt {run} --epochs 1 --loader memory --no-report",
        f"export {folder}/subwords --format fasttext-bin --to {folder}/fasttext.bin",
    ):
        assert main(line.split()) == 0
    return folder


@pytest.fixture(autouse=True)
def own_folder(shared, monkeypatch):
    monkeypatch.chdir(shared)


# --- damage


def damaged(rng: np.random.Generator, data: bytes) -> bytes:
    """One to three changes: of bits, bytes, numbers, pieces and of the length."""
    changed = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        if changed:
            _change(rng, changed)
    return bytes(changed)


def _change(rng: np.random.Generator, data: bytearray) -> None:
    ends = int(rng.choice([len(data), min(len(data), 128)]))  # headers most of all
    place = int(rng.integers(ends))
    if rng.random() < 0.3:
        place = len(data) - 1 - place
    match rng.integers(8):
        case 0 | 1:
            data[place] ^= 1 << int(rng.integers(8))
        case 2:
            del data[place:]
        case 3:
            del data[place : place + int(rng.integers(1, 20))]
        case 4:
            data[place:place] = rng.bytes(int(rng.integers(1, 20)))
        case 5:
            start = int(rng.integers(len(data)))
            data[place:place] = data[start : start + int(rng.integers(1, 64))]
        case 6:
            patch = PATCHES[rng.integers(len(PATCHES))]
            data[place : place + len(patch)] = patch
        case 7:
            numbers = list(re.finditer(rb"\d+", data[:4096]))
            if numbers:
                span = slice(*numbers[rng.integers(len(numbers))].span())
                data[span] = NUMBERS[rng.integers(len(NUMBERS))]


def inside(damage: Damage) -> Damage:
    """Damages the packing itself at times, and else what is in it, by `damage`."""
    return lambda rng, data: (damaged if rng.random() < 0.4 else damage)(rng, data)


@inside
def damaged_gzip(rng: np.random.Generator, data: bytes) -> bytes:
    return gzip.compress(damaged(rng, gzip.decompress(data)), 1, mtime=0)


@inside
def damaged_zip(rng: np.random.Generator, data: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice(list(members))
    members[name] = damaged(rng, members[name])
    return zipped(members, rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", int(method)) as archive:
        for name, data in members.items():
            archive.writestr(str(name), data)
    return file.getvalue()


@inside
def damaged_safetensors(rng: np.random.Generator, data: bytes) -> bytes:
    (size,) = struct.unpack("<Q", data[:8])
    header = damaged(rng, data[8 : 8 + size])
    return struct.pack("<Q", len(header)) + header + data[8 + size :]


@inside
def damaged_png(rng: np.random.Generator, data: bytes) -> bytes:
    start, chunks = 8, []
    while start < len(data):
        (size,) = struct.unpack(">I", data[start : start + 4])
        chunks.append(data[start + 4 : start + 8 + size])
        start += 12 + size
    number = int(rng.integers(len(chunks)))
    chunks[number] = chunks[number][:4] + damaged(rng, chunks[number][4:])
    return data[:8] + b"".join(map(png_chunk, chunks))


def png_chunk(chunk: bytes) -> bytes:
    size, check = len(chunk) - 4, zlib.crc32(chunk)
    return struct.pack(">I", size) + chunk + struct.pack(">I", check)


DAMAGES = {".gz": damaged_gzip, ".npz": damaged_zip, ".png": damaged_png}
DAMAGES |= {".safetensors": damaged_safetensors}
"""Files with checksums, which would find all damage but that inside of the packing."""


# --- the readers


TRAIN = "train {} --dry-run --loader memory"


def command(line: str) -> Callable[[Path], None]:
    """Reads a file, `{}`, by a verb; its error is raised."""

    def read(path: Path) -> None:
        errors, out = io.StringIO(), io.StringIO()
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(out):
            code = main([part.format(path) for part in line.split()])
        if code:
            *_, last = errors.getvalue().splitlines()
            assert code in (2, 3) and last.startswith("embedder: ")
            raise ValueError(last)

    return read


def npz(**members) -> Callable[[Path], None]:
    return lambda path: np.savez(path, **members)


def npy(shape: tuple, descr: str = "<f4", data: bytes = b"") -> bytes:
    """An .npy file whose header claims `shape`."""
    file = io.BytesIO()
    header = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue() + data


def vectors_reader(ending: str) -> Reader:
    counts = LABELS + 1 if ending in (".safetensors", ".npz", ".parquet") else None
    vectors = Vectors(KEYS, MATRIX, counts)
    name = f"vectors{ending}"
    return Reader(name, lambda path: write_vectors(vectors, path), read_vectors)


GLOVE = "".join(
    f"{key} {' '.join(map(str, row))}\n" for key, row in zip(KEYS, MATRIX, strict=True)
)


def image_reader(ending: str, mode: str = "RGB") -> Reader:
    pixels = np.random.default_rng(0).integers(0, 256, (9, 11, 3), np.uint8)
    image = Image.fromarray(pixels).convert(mode)
    return Reader(f"image-{mode}{ending}", image.save, read_image)


def write_tar(path: Path) -> None:
    pixels = io.BytesIO()
    Image.new("L", (3, 2), 70).save(pixels, "PNG")
    parts = {".png": pixels.getvalue(), ".json": b'{"label": "a"}', ".cls": b"7"}
    with tarfile.open(path, "w") as archive:
        for key in KEYS:
            for ending, data in parts.items():
                member = tarfile.TarInfo(key + ending)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))


def examples_parquet(name: str, **columns) -> Reader:
    frame = pl.DataFrame({"label": [*"ababc"], "key": KEYS, **columns})
    return Reader(name, frame.write_parquet, KEYED)


KEYED = command(f"{TRAIN} --model encoder --key key")
IDX = b"\0\0\x08\x03" + struct.pack(">3I", 5, 2, 2) + bytes(range(20))
EXAMPLES = command(f"{TRAIN} --model encoder")
CONFIG = command("train text.txt --dry-run --loader memory --config {}")
OF_ENCODER = command("train examples.npz --model encoder --dry-run --config {}")
PARTS = command(f"{TRAIN} --session session --item item --order order")
SPARSE = scipy.sparse.eye_array(5, k=1).tocsr()
WORDS = command(f"{TRAIN} --min-count 1")
EDGES = command(f"{TRAIN} --walks 1")
START = command("train text.txt --dry-run --vector-size 4 --init-from {}")
READERS = [
    Reader("model.npz", "run/model.npz", EmbeddingTrainer.load),
    Reader("encoder.npz", "encoder/model.npz", FeatureEncoder.load),
    *map(vectors_reader, (".txt", ".vec.gz", ".bin", ".safetensors", ".npz")),
    Reader("fasttext.bin", "fasttext.bin", read_vectors),
    Reader("glove.txt", GLOVE.encode(), read_vectors),
    Reader("start.vec", "start.txt", START),
    Reader("replicas.safetensors", "replicas/replicas.safetensors", read_ensemble),
    Reader("x-images-idx3-ubyte", IDX, EXAMPLES),
    Reader("x-images-idx3-ubyte.gz", gzip.compress(IDX, mtime=0), EXAMPLES),
    Reader("examples.npz", npz(X=MATRIX, y=LABELS), EXAMPLES),
    Reader("new.npy", npy((5, 6), data=bytes(120)), command("embed encoder {}")),
    *(image_reader(".png", mode) for mode in ("RGB", "P", "LA")),
    *(image_reader(".jpg"), image_reader(".gif", "P")),
    *(image_reader(".bmp"), image_reader(".webp")),
    Reader("corpus.txt", TEXT.encode(), WORDS),
    Reader("corpus.gz", gzip.compress(TEXT.encode(), mtime=0), WORDS),
    Reader("edges.tsv", "weighted.tsv", EDGES),
    Reader("matrix.npz", lambda path: scipy.sparse.save_npz(path, SPARSE), EDGES),
    Reader("tables.toml", "run/config.toml", CONFIG),
    Reader("encoder.toml", "encoder/config.toml", OF_ENCODER),
    Reader("pairs.csv", PAIRS.encode(), command("evaluate run --pairs {}")),
    Reader("analogies.txt", ANALOGIES.encode(), command("evaluate run --analogies {}")),
    Reader("shard.tar", write_tar, EXAMPLES),
]
TABLES = [  # a process for each reading: these take a while
    vectors_reader(".parquet"),
    Reader("baskets.parquet", "baskets.parquet", PARTS),
    examples_parquet("columns.parquet", x=[1, 2, 3, 4, 5], y=[True] * 5),
    examples_parquet("lists.parquet", x=MATRIX.tolist()),
]
SEEDS = [
    pytest.param(reader, seeds, id=f"{reader.name}-{len(seeds)}", marks=marks)
    for readers, few, many in ((READERS, 50, 350), (TABLES, 4, 10))
    for reader in readers
    for seeds, marks in (
        (range(few), []),
        (range(1000, 1000 + many), [pytest.mark.slow]),
    )
]


def read_or_refuse(read: Callable[[Path], object], path: Path) -> bool:
    """Whether `read` gives an answer; if not, its error is in the form of the house."""
    try:
        read(path)
    except (ValueError, OSError, EOFError) as error:
        text = str(error).replace("\0", "")
        # Or a setting, or what a setting says of the data beside it.
        assert path.name in text or re.search("`[a-z_]+`|examples.npz has no", text)
        assert len(text.splitlines()) == 1 and len(text) < 1000
        return False
    return True


# --- any damage


@pytest.mark.spread(10)
@pytest.mark.row("B1", "B2", "B4", "B11", "B12", "B13", "B14")
@pytest.mark.parametrize(("reader", "seeds"), SEEDS)
def test_damage_is_read_or_refused(reader, seeds, tmp_path):
    path = tmp_path / reader.name
    reader.write(path)
    whole = path.read_bytes()
    assert read_or_refuse(reader.read, path)
    damage_it, refused = DAMAGES.get(path.suffix, damaged), 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        damage = damage_it(rng, whole) if seed % 10 else rng.bytes(seed % 300)
        path.unlink()  # or it would change under an array that is mapped
        path.write_bytes(damage)
        refused += not read_or_refuse(reader.read, path)
    assert refused


# --- claims


def claiming(reader: Reader, member: str, shape: tuple, method: int) -> Reader:
    """The reader with a file of which one array claims another shape."""

    def make(path: Path) -> None:
        reader.write(path)
        with zipfile.ZipFile(path) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        members[f"{member}.npy"] = npy(shape)
        path.write_bytes(zipped(members, method))

    return reader._replace(whole=make)


def directory_claiming() -> bytes:
    """An npz of which not only the array claims much, but zip's directory too."""
    member = npy((MANY, 2))
    data = bytearray(zipped({"X.npy": member, "y.npy": npy((2,))}))
    entry = data.index(b"PK\1\2")
    extra = struct.pack("<HHQQ", 1, 16, 8 * MANY + len(member), 8 * MANY + len(member))
    name_end = entry + 46 + len("X.npy")
    data[name_end:name_end] = extra
    data[entry + 20 : entry + 28] = b"\xff" * 8
    data[entry + 30 : entry + 32] = struct.pack("<H", len(extra))
    end = data.index(b"PK\5\6")
    (size,) = struct.unpack("<I", data[end + 12 : end + 16])
    data[end + 12 : end + 16] = struct.pack("<I", size + len(extra))
    return bytes(data)


PNG = b"\x89PNG\r\n\x1a\n"
HUGE = struct.pack(">4s2I5B", b"IHDR", 10**6, 10**6, 8, 2, 0, 0, 0)
CHUNKS = HUGE, b"IDAT" + zlib.compress(bytes(1000)), b"IEND"
BY_NAME = {reader.name: reader for reader in READERS}
ROWS = b"%d 4\na 1 2 3 4\n" % MANY
IDX_CLAIM = b"\0\0\x08\x03" + struct.pack(">3I", 10**6, 10**6, 1) + bytes(100)
STORED, DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED
ARRAYS = [  # a reader of npz, an array in it, the shape that this claims
    *(("model.npz", "input", (MANY, 4)), ("model.npz", "tokens", (MANY,))),
    *(("encoder.npz", "weights_0", (MANY, 3)), ("vectors.npz", "vectors", (MANY, 4))),
    *(("examples.npz", "X", (MANY, 4)), ("examples.npz", "X", (-MANY, -4))),
    ("matrix.npz", "indices", (MANY,)),
]
FILES = [
    ("examples.npz", directory_claiming()),
    ("new.npy", npy((MANY, 6))),
    ("new.npy", npy((2**62, 6))),  # more than an integer can count
    ("x-images-idx3-ubyte", IDX_CLAIM),
    ("x-images-idx3-ubyte.gz", gzip.compress(IDX_CLAIM)),
    ("vectors.txt", ROWS),
    ("vectors.txt", b"4 %d\na 1\n" % MANY),
    ("vectors.vec.gz", gzip.compress(ROWS)),
    ("vectors.bin", ROWS),
    ("vectors.safetensors", safetensors("F32", [MANY, 4], 16 * MANY)),
    ("replicas.safetensors", safetensors("F32", [MANY, 5, 4], 80 * MANY)),
    ("image-RGB.png", PNG + b"".join(map(png_chunk, CHUNKS))),
]
CLAIMS = [
    *(claiming(BY_NAME[name], *claim, STORED) for name, *claim in ARRAYS),
    claiming(BY_NAME["examples.npz"], "y", (MANY,), DEFLATED),
    *(BY_NAME[name]._replace(whole=data) for name, data in FILES),
]


@pytest.mark.row("B11", "B13")
@pytest.mark.parametrize("reader", CLAIMS, ids=lambda each: each.name)
def test_a_header_that_claims_too_much_takes_no_memory(reader, tmp_path):
    path = tmp_path / reader.name
    reader.write(path)
    tracemalloc.start()
    try:
        assert not read_or_refuse(reader.read, path)
        assert tracemalloc.get_traced_memory()[1] < 2**25
    finally:
        tracemalloc.stop()


@pytest.mark.row("B11")
@pytest.mark.parametrize(
    ("unit", "size", "most"), [(b"a", 2**27, 2**26), (b"a ", 2**25, 2**27)]
)
def test_a_line_that_unpacks_to_much_takes_little_memory(tmp_path, unit, size, most):
    path = tmp_path / "bomb.vec.gz"
    path.write_bytes(gzip.compress(b"2 1\n" + unit * (size // len(unit)), 1))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="bomb.vec.gz line 2: must be a key and 1"):
            read_vectors(path)
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


def varint(number: int) -> bytes:
    """An integer as parquet's headers have it: zigzag, seven bits a byte."""
    rest, data = (number << 1) ^ (number >> 63), b""
    while rest > 127:
        data += bytes([rest % 128 + 128])
        rest //= 128
    return data + bytes([rest])


@pytest.mark.row("B11")
@pytest.mark.parametrize("rows", [2**31 - 1, MANY])
def test_parquet_that_claims_many_rows_is_refused(tmp_path, rows):
    path = tmp_path / "x.parquet"
    pl.DataFrame({"label": range(300)}).write_parquet(path, statistics=False)
    data = path.read_bytes()
    size = int.from_bytes(data[-8:-4], "little")
    footer = data[-8 - size : -8].replace(varint(300), varint(rows))
    ending = footer + len(footer).to_bytes(4, "little") + b"PAR1"
    path.write_bytes(data[: -8 - size] + ending)
    said = "x.parquet(: .*rows take | cannot be read: ).*[^.]\\.$"
    with pytest.raises(ValueError, match=said):
        read_examples([path])


@pytest.mark.spread(1)
@pytest.mark.row("B11")
@pytest.mark.parametrize("ending", ["parquet", "examples"])
def test_parquet_whose_pages_count_below_zero_is_refused(tmp_path, ending):
    """Polars would end the process: it makes room for 2**64 - 300 rows."""
    path = tmp_path / "x.parquet"
    keys = pl.Series([f"key{i}" for i in range(300)])
    matrix = pl.Series(np.ones((300, 1), np.float32))
    pl.DataFrame({"key": keys, "vector": matrix}).write_parquet(path, statistics=False)
    data = bytearray(path.read_bytes())
    place = data.index(b"\x2c\x15" + varint(300)) + 2
    data[place] ^= 1  # the sign of a zigzag number: -301
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"ends with code -\d+: it is damaged"):
        read_vectors(path) if ending == "parquet" else read_examples([path], "key")


# --- what only looks like an answer


@pytest.mark.row("B11")
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_an_image_of_which_pillow_only_warns_is_refused(tmp_path):
    path = tmp_path / "big.png"
    size = struct.pack(">4s2I5B", b"IHDR", 10_000, 9_000, 1, 0, 0, 0, 0)
    path.write_bytes(PNG + b"".join(map(png_chunk, (size, *CHUNKS[1:]))))
    with pytest.raises(ValueError, match="big.png is not .*: its 9000 x 10000 pixels"):
        read_image(path)
