"""Damaged and hostile files: each reader gives an answer, or names the file in a line.

The damage is seeded: a fault that is found is found again. What checksums would hide is
damaged inside of its packing.
"""

import gzip
import io
import json
import math
import re
import struct
import tarfile
import tomllib
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import pytest
import tomli_w
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from embedder.config import Config, options_of, read_toml, to_toml, with_options
from embedder.disk.arrays import pack_strings
from embedder.disk.digests import files_in, write_digests
from embedder.encoders.artefact import (
    ENCODER_SETTINGS,
    EncoderFile,
    read_encoder,
    write_encoder,
)
from embedder.encoders.idx import read_idx
from embedder.encoders.images import decoded, read_image
from embedder.encoders.networks.mlp import arrays_of
from embedder.encoders.new_examples import features_in
from embedder.encoders.npz import read_npz
from embedder.encoders.parquet import read_parquet
from embedder.encoders.tar import read_tar
from embedder.run.inputs import check_same, source_of, write_settings
from embedder.run.workdir import Workdir, truncate_metrics
from embedder.tables.artefact import ModelFile, model_settings, read_model, write_model
from embedder.tables.corpus import sequences_corpus, text_corpus
from embedder.tables.encode import encode_cached
from embedder.tables.start_files import (
    given_start,
    read_first_vectors,
    read_frozen_keys,
    write_start,
)
from embedder.tables.vocabulary import Vocabulary
from embedder.vectors.ensemble import Ensemble
from embedder.vectors.ensemble_files import read_ensemble, write_ensemble
from embedder.vectors.evaluate import evaluate_analogies, evaluate_pairs
from embedder.vectors.export import read_vectors, write_vectors
from embedder.vectors.subwords import NgramRule, Ngrams
from embedder.vectors.vectors import Vectors

MANY = 10**12
KEYS = ["a", "B", "\u00e4\u4e2d", "d", "eeeeeeeeeeee"]
MATRIX = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
LABELS = np.array([0, 1, 0, 1, 2])
TEXT = "the quick brown\tfox \u00e4\u4e2d\r\n\n jumps over\u2028 the lazy dog\n" * 4
PAIRS = "# scores\nword1\tword2\tscore\na\tb\t3.5\nb\td\t1\na\tzz\t2\n"
ANALOGIES = ": one\na b d a\nb a d b\n: two\na b x y\n"
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
    """A kind of file: a whole one, and what reads it."""

    name: str
    write: Callable[[Path], object]
    read: Callable[[Path], object]


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
    start = 8
    chunks = []
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


DAMAGES = {
    ".gz": damaged_gzip,
    ".npz": damaged_zip,
    ".safetensors": damaged_safetensors,
    ".png": damaged_png,
}
"""Files with checksums, which would find all damage but that inside of the packing."""


# --- the readers


def write_bytes(data: bytes | str) -> Callable[[Path], object]:
    whole = data.encode() if isinstance(data, str) else data
    return lambda path: path.write_bytes(whole)


def write_npz(**members) -> Callable[[Path], None]:
    return lambda path: np.savez(path, **members)


def vectors_reader(ending: str) -> Reader:
    counts = LABELS + 1 if ending in (".safetensors", ".npz", ".parquet") else None
    vectors = Vectors(KEYS, MATRIX, counts)
    name = f"vectors{ending}"
    return Reader(name, lambda path: write_vectors(vectors, path), read_vectors)


def write_fasttext_model(path: Path) -> None:
    rule = NgramRule(2, 3, 30)
    rows = np.arange(120, dtype=np.float32).reshape(30, 4)
    ngrams = Ngrams(rule, np.arange(30), rows, words=MATRIX, output=MATRIX)
    vectors = Vectors(KEYS, MATRIX, LABELS + 1, ngrams=lambda: ngrams)
    write_vectors(vectors, path, format="fasttext-bin")


GLOVE = "".join(
    f"{key} {' '.join(map(str, row))}\n" for key, row in zip(KEYS, MATRIX, strict=True)
)


def write_start_file(path: Path) -> None:
    model = ModelFile({}, 1, KEYS, LABELS + 1, MATRIX, -MATRIX, [])
    write_start(path, given_start(model, KEYS[:2]), Vocabulary(KEYS, LABELS + 1))


def read_start(path: Path) -> None:
    read_first_vectors(path, str(path))
    read_frozen_keys(path, str(path))


def write_replicas(path: Path) -> None:
    write_ensemble(Ensemble(KEYS, np.stack([MATRIX, -MATRIX]), LABELS + 1), path)


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


def read_tar_images(path: Path) -> None:
    read_tar([path], lambda files: np.stack([*map(read_image, files)]), "label")


def examples_parquet(name: str, **columns) -> Reader:
    frame = pl.DataFrame({"label": [*"ababc"], "key": KEYS, **columns})
    return Reader(
        name, frame.write_parquet, lambda path: read_parquet([path], key="key")
    )


def table_model(path: Path) -> None:
    given = model_settings(Config())
    given |= {"vector_size": 4}
    model = ModelFile(given, 64, KEYS, LABELS + 1, MATRIX, MATRIX, [1.0, 0.5])
    write_model(path, model)


def encoder_model(path: Path) -> None:
    given = dict.fromkeys(ENCODER_SETTINGS) | {"layers": [4, 3, 2], "dtype": "float32"}
    layers = [(MATRIX[:4, :3], MATRIX[0, :3]), (MATRIX[:3, :2], MATRIX[0, :2])]
    arrays = arrays_of(layers)
    history = [{"loss": 1.0}]
    model = EncoderFile(given, np.array(["x", "y"]), arrays, history, (2, 2), "uint8")
    write_encoder(path, model)


def new_features(path: Path) -> np.ndarray:
    return features_in(path, EncoderFile({}, MATRIX, {}, [], (4,), "float32"))


def tokens_of(path: Path) -> list[str]:
    return [
        token
        for chunk in text_corpus(path).chunks()
        for token in chunk.tokens.to_list()
    ]


def scored(evaluate) -> Callable[[Path], object]:
    vectors = Vectors([*"abcde"], MATRIX)
    return lambda path: evaluate(vectors, path)


def encoder_toml() -> str:
    options = {"layers": (4, 3, 2), "optimizer_args": ("momentum=0.9",)}
    return to_toml(with_options(Config(), model="encoder", **options))


def read_cut_metrics(path: Path) -> None:
    before = path.read_bytes()
    truncate_metrics(Workdir(path.parent), 1, 0)
    assert [path.read_bytes()] == (before.splitlines(keepends=True)[:1] or [b""])


def write_run(path: Path) -> None:
    write_settings(Workdir(path.parent), Config(), "corpus.txt", [{"file": "a"}])


def read_run(path: Path) -> None:
    source_of(Workdir(path.parent))
    try:
        check_same(Workdir(path.parent), Config(), [{"file": "a"}])
    except ValueError as error:  # of another corpus: the folder is named
        raise ValueError(str(error).replace("holds a run", path.name)) from error


CACHED = sequences_corpus([[*"abaab"], [*"bc"]] * 3)


def write_cache(path: Path) -> None:
    """A cache beside `path`, and its file of that name there."""
    encode_cached(CACHED, 1, path.parent / "cache")
    (original,) = path.parent.glob(f"cache/*/{path.name}")
    path.write_bytes(original.read_bytes())


def read_cache(path: Path) -> None:
    """Reads the whole cache with `path` in the place of its file."""
    (original,) = path.parent.glob(f"cache/*/{path.name}")
    whole = original.read_bytes()
    original.write_bytes(path.read_bytes())
    write_digests(original.parent, files_in(original.parent))  # they would tell
    try:
        encoded = encode_cached(CACHED, 1, path.parent / "cache")
        for shard in range(len(encoded.shard_tokens)):
            ids, lengths = encoded.read(shard)
            assert {*ids.tolist()} <= {0, 1, 2} and lengths.sum() == len(ids)
    except ValueError as error:  # perhaps of a file that it does not fit
        assert re.search(r"Cache file \S+ is damaged \(.+\): delete ", str(error))
        raise ValueError(f"{path}: {error}") from error
    finally:
        original.write_bytes(whole)


def read_decoded(path: Path) -> None:
    pictures = [path.parent / f"{i}.png" for i in range(2)]
    for picture in pictures:
        Image.fromarray(np.full((2, 3, 3), 7, np.uint8)).save(picture)
    decoded(pictures, (), 1, path.parent / "cache", [])
    (original,) = path.parent.glob("cache/*/images.npy")
    if not path.exists():
        path.write_bytes(original.read_bytes())
    original.unlink()  # or it would change under an array that is mapped
    original.write_bytes(path.read_bytes())
    write_digests(original.parent, files_in(original.parent))  # they would tell
    found = decoded(pictures, (), 1, path.parent / "cache", [])
    assert found.shape == (2, 2, 3, 3) and found.dtype == np.uint8


IDX = b"\0\0\x08\x03" + struct.pack(">3I", 5, 2, 2) + bytes(range(20))
READERS = [
    Reader("model.npz", table_model, read_model),
    Reader("encoder.npz", encoder_model, read_encoder),
    *map(vectors_reader, (".txt", ".vec.gz", ".bin", ".safetensors", ".npz")),
    Reader("fasttext.bin", write_fasttext_model, read_vectors),
    Reader("glove.txt", write_bytes(GLOVE), read_vectors),
    Reader("start.npz", write_start_file, read_start),
    Reader("replicas.safetensors", write_replicas, read_ensemble),
    Reader("features.idx", write_bytes(IDX), read_idx),
    Reader("idx.gz", write_bytes(gzip.compress(IDX, mtime=0)), read_idx),
    Reader("examples.npz", write_npz(X=MATRIX, y=LABELS), read_npz),
    Reader("new.npy", lambda path: np.save(path, MATRIX), new_features),
    *(image_reader(".png", mode) for mode in ("RGB", "P", "LA")),
    *(image_reader(".jpg"), image_reader(".gif", "P")),
    *(image_reader(".bmp"), image_reader(".webp")),
    Reader("corpus.txt", write_bytes(TEXT), tokens_of),
    Reader("corpus.gz", write_bytes(gzip.compress(TEXT.encode(), mtime=0)), tokens_of),
    Reader("tables.toml", write_bytes(to_toml(Config())), read_toml),
    Reader("encoder.toml", write_bytes(encoder_toml()), read_toml),
    Reader("pairs.csv", write_bytes(PAIRS), scored(evaluate_pairs)),
    Reader("analogies.txt", write_bytes(ANALOGIES), scored(evaluate_analogies)),
    Reader("shard-00000.npz", write_cache, read_cache),
    Reader("shards.json", write_cache, read_cache),
    Reader("images.npy", read_decoded, read_decoded),
    Reader("shard.tar", write_tar, read_tar_images),
    Reader("metrics.jsonl", write_bytes('{"a": 1}\n' * 3), read_cut_metrics),
    Reader("corpus.json", write_run, read_run),
]
TABLES = [  # a process for each reading: these take a while
    vectors_reader(".parquet"),
    examples_parquet("columns.parquet", x=[1, 2, 3, 4, 5], y=[True] * 5),
    examples_parquet("lists.parquet", x=MATRIX.tolist()),
]
SEEDS = [
    pytest.param(reader, seeds, id=f"{reader.name}-{len(seeds)}", marks=marks)
    for readers, few, many in ((READERS, 100, 350), (TABLES, 4, 10))
    for reader in readers
    for seeds, marks in (
        (range(few), []),
        (range(1000, 1000 + many), [pytest.mark.slow]),
    )
]
each_reader = pytest.mark.parametrize("reader", READERS, ids=lambda each: each.name)


def read_or_refuse(read: Callable[[Path], object], path: Path) -> bool:
    """Whether `read` gives an answer; if not, its error is in the form of the house."""
    try:
        read(path)
    except (ValueError, OSError, EOFError) as error:
        text = str(error).replace("\0", "")
        assert path.name in text or path.parent.name in text
        assert len(text.splitlines()) == 1 and len(text) < 1000
        return False
    return True


# --- any damage


@pytest.mark.spread(10)
@pytest.mark.row("B2", "B4", "B11", "B12", "B13", "B14")
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
    assert refused or reader.name == "metrics.jsonl"


@pytest.mark.row("B1")
@pytest.mark.parametrize("data", [b"", b"\0"], ids=["empty", "one byte"])
@each_reader
def test_next_to_nothing_is_read_or_refused(reader, data, tmp_path):
    path = tmp_path / reader.name
    reader.write(path)
    path.unlink()
    path.write_bytes(data)
    answers = {"corpus.txt", "analogies.txt", "tables.toml", "encoder.toml"}
    is_answer = read_or_refuse(reader.read, path)
    assert is_answer == (
        reader.name == "metrics.jsonl" or (not data and reader.name in answers)
    )


# --- claims


def npy(shape: tuple, descr: str = "<f4", data: bytes = b"") -> bytes:
    """An .npy file whose header claims `shape`."""
    file = io.BytesIO()
    header = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue() + data


def claiming(reader: Reader, member: str, shape: tuple, method: int):
    """The file of `reader`, of which one array claims another shape."""

    def make(path: Path) -> None:
        reader.write(path)
        with zipfile.ZipFile(path) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        members[f"{member}.npy"] = npy(shape)
        path.write_bytes(zipped(members, method))

    return reader._replace(write=make)


def directory_claiming(path: Path) -> None:
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
    path.write_bytes(data)


def write_safetensors(path: Path, dtype: str, shape: list[int], size: int) -> None:
    """Vectors of which the header claims such a shape and dtype."""
    tokens, ends = pack_strings(KEYS)
    claims = {
        "vectors": (dtype, shape, size),
        "tokens": ("U8", [len(tokens)], len(tokens)),
        "token_ends": ("I64", [len(ends)], ends.nbytes),
        "counts": ("I64", [len(ends)], ends.nbytes),
    }
    start, header = 0, {}
    for name, (kind, shape, length) in claims.items():
        place = [start, start + length]
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": place}
        start += length
    text = json.dumps(header).encode()
    data = bytes(min(size, 1000)) + tokens.tobytes() + ends.tobytes() * 2
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def safetensors_claiming(path: Path) -> None:
    write_safetensors(path, "F32", [MANY, 4], 16 * MANY)


def replicas_claiming(path: Path) -> None:
    write_safetensors(path, "F32", [MANY, 5, 4], 80 * MANY)


def png_claiming(path: Path) -> None:
    header = struct.pack(">4s2I5B", b"IHDR", 10**6, 10**6, 8, 2, 0, 0, 0)
    chunks = header, b"IDAT" + zlib.compress(bytes(1000)), b"IEND"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(map(png_chunk, chunks)))


BY_NAME = {reader.name: reader for reader in READERS}
ROWS = b"%d 4\na 1 2 3 4\n" % MANY
IDX_CLAIM = b"\0\0\x08\x03" + struct.pack(">3I", 10**6, 10**6, 1) + bytes(100)
STORED, DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED
ARRAYS = [  # a reader of npz, an array in it, the shape that this claims
    *(("model.npz", "input", (MANY, 4)), ("model.npz", "tokens", (MANY,))),
    *(("encoder.npz", "weights_0", (MANY, 3)), ("vectors.npz", "vectors", (MANY, 4))),
    *(("examples.npz", "X", (MANY, 4)), ("examples.npz", "X", (-MANY, -4))),
    ("shard-00000.npz", "ids", (MANY,)),
]
FILES = [
    ("examples.npz", directory_claiming),
    ("new.npy", write_bytes(npy((MANY, 4)))),
    ("new.npy", write_bytes(npy((2**62, 4)))),  # more than an integer can count
    ("features.idx", write_bytes(IDX_CLAIM)),
    ("idx.gz", write_bytes(gzip.compress(IDX_CLAIM))),
    ("vectors.txt", write_bytes(ROWS)),
    ("vectors.txt", write_bytes(b"4 %d\na 1\n" % MANY)),
    ("vectors.vec.gz", write_bytes(gzip.compress(ROWS))),
    ("vectors.bin", write_bytes(ROWS)),
    ("vectors.safetensors", safetensors_claiming),
    ("replicas.safetensors", replicas_claiming),
    ("image-RGB.png", png_claiming),
]
CLAIMS = [
    *(claiming(BY_NAME[name], *claim, STORED) for name, *claim in ARRAYS),
    claiming(BY_NAME["examples.npz"], "y", (MANY,), DEFLATED),
    *(BY_NAME[name]._replace(write=write) for name, write in FILES),
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
@pytest.mark.parametrize(("unit", "most"), [(b"a", 2**26), (b"a ", 2**29)])
def test_a_line_that_unpacks_to_much_takes_little_memory(tmp_path, unit, most):
    path = tmp_path / "bomb.vec.gz"
    path.write_bytes(gzip.compress(b"2 1\n" + unit * (2**27 // len(unit)), 1))
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
    said = f"x.parquet(: its {rows} rows take | is not a parquet file: ).*[^.]\\.$"
    with pytest.raises(ValueError, match=said):
        read_parquet([path])


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
        read_vectors(path) if ending == "parquet" else read_parquet([path], "key")


# --- answers are right


@pytest.fixture(scope="module")
def examples(tmp_path_factory) -> Path:
    """Where each example writes its file, over that of the one before."""
    return tmp_path_factory.mktemp("examples")


NUMBER_DTYPES = st.one_of(
    arrays.integer_dtypes(endianness="?"),
    arrays.unsigned_integer_dtypes(endianness="?"),
    arrays.floating_dtypes(endianness="?"),
    arrays.boolean_dtypes(),
)
ROWS_OF_NUMBERS = NUMBER_DTYPES.flatmap(
    lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=2, max_side=4))
)


@pytest.mark.row("B11")
@given(array=ROWS_OF_NUMBERS, is_fortran=st.booleans())
@settings(max_examples=80, deadline=None, derandomize=True)
def test_numbers_of_an_npz_come_in_three_dtypes(examples, array, is_fortran):
    file = examples / "x.npz"
    written = np.asfortranarray(array) if is_fortran else array
    np.savez(file, X=written, y=np.arange(len(array)))
    with np.errstate(over="ignore"):
        wide = array.dtype.itemsize > 4
        expected = array.astype(np.float64 if wide else np.float32)
    if not np.isfinite(expected).all():
        with pytest.raises(ValueError, match="x.npz: row .* are not finite"):
            read_npz(file)
        return
    found = read_npz(file).features
    is_pixels = array.dtype == np.uint8
    assert found.dtype == (array.dtype if is_pixels else expected.dtype)
    assert found.dtype.isnative
    np.testing.assert_array_equal(found, expected)


@pytest.mark.row("B4")
@given(
    pieces=st.lists(
        st.one_of(
            st.text().map(str.encode),
            st.sampled_from([b"a", b"b\n", b" ", b"\t", b"\r\n", b"\v\f", b"\xc3\xa4"]),
            st.sampled_from([b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"\x1c", b"\x85"]),
            st.binary(max_size=3),
        )
    ),
    ending=st.sampled_from([".txt", ".gz"]),
)
@settings(max_examples=80, deadline=None, derandomize=True)
@example(pieces=[b"a\0b"], ending=".txt")
@example(pieces=[b"\xff"], ending=".gz")
def test_tokens_of_any_bytes_are_those_between_blanks_or_refused(
    examples, pieces, ending
):
    file = examples / f"any{ending}"
    data = b"".join(pieces)
    file.write_bytes(gzip.compress(data) if ending == ".gz" else data)
    try:
        text = data.decode()
        expected = text.removeprefix("\ufeff")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        with pytest.raises(ValueError, match=f"any{ending} is not (UTF-8 )?text: "):
            tokens_of(file)
        return
    assert tokens_of(file) == [t for t in re.split(r"[ \t\n\v\f\r]+", expected) if t]


FIELDS = st.sampled_from(
    ["1.5", "-2", "1e3", "nan", "inf", "1,5", "1e39", "", "x", "\u0661", "1_0", "0x1"]
)


@pytest.mark.row("B12", "B13")
@given(
    rows=st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "c", "\u00e4", "\u3000", "1"]),
            st.lists(FIELDS, min_size=1, max_size=3),
        ),
        min_size=1,
        max_size=4,
    ),
    shape=st.tuples(st.integers(1, 4), st.integers(1, 3)),
)
@settings(max_examples=80, deadline=None, derandomize=True)
@example(rows=[("a", ["1.5", "-2"]), ("b", ["1e3", "1.5"])], shape=(2, 2))
def test_word2vec_text_is_what_it_says_or_its_line_is_named(examples, rows, shape):
    file = examples / "v.txt"
    lines = [" ".join([key, *values]) for key, values in rows]
    file.write_text("\n".join([f"{shape[0]} {shape[1]}", *lines]) + "\n", "utf-8")
    try:
        found = read_vectors(file)
    except (ValueError, EOFError) as error:
        assert re.search(r"v\.txt line \d+: ", str(error))
        return
    assert found.matrix.shape == shape and np.isfinite(found.matrix).all()
    assert found.keys == [key for key, _ in rows]
    expected = [[float(v) for v in values if v] for _, values in rows]
    np.testing.assert_allclose(found.matrix, expected, rtol=1e-6)


OPTIONS = st.sampled_from(
    [*options_of(Config()), "cap", "vectorsize", "", "learningrate"]
)
VALUES = st.recursive(
    st.one_of(
        st.integers(-(2**70), 2**70),
        st.sampled_from([0, 1, 5, 0.5, math.inf, math.nan, "auto", "never", "", "1h"]),
        st.booleans(),
        st.text(max_size=5),
        st.dates(),
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)
SECTIONS = st.sampled_from(["data", "model", "encoder", "train", "save", "dta"])


@pytest.mark.row("B8", "B14")
@given(
    tables=st.dictionaries(SECTIONS, st.dictionaries(OPTIONS, VALUES, max_size=3)),
    kind=st.sampled_from(["tokens", "encoder"]),
)
@settings(max_examples=120, deadline=None, derandomize=True)
@example(tables={"encoder": {"label": 5}}, kind="encoder")
@example(tables={"encoder": {"optimizer_args": 5}}, kind="encoder")
def test_any_toml_is_a_config_that_says_the_same_or_refused(examples, tables, kind):
    file = examples / "c.toml"
    tables = {**tables, "model": {**tables.get("model", {}), "model": kind}}
    file.write_text(tomli_w.dumps(tables), encoding="utf-8")
    try:
        found = read_toml(file)
    except ValueError as error:
        assert str(error).startswith(f"{file}: ")
        return
    again = tomllib.loads(to_toml(found))
    for section, table in tables.items():
        for name, value in table.items():
            assert again.get(section, {}).get(name, value) == value


@pytest.mark.row("B14")
@pytest.mark.parametrize(
    "text",
    ["a = " + "[" * 5000, "[data]\nwindow = " + "1" * 5000],
    ids=["deep", "long"],
)
def test_toml_that_python_cannot_hold_is_refused(tmp_path, text):
    (tmp_path / "c.toml").write_text(text)
    with pytest.raises(ValueError, match="c.toml is not valid TOML: "):
        read_toml(tmp_path / "c.toml")


# --- what only looks like an answer


@pytest.mark.row("B6")
@pytest.mark.parametrize(
    ("ids", "lengths", "reason"),
    [
        ([0, 1, 3], [3], "ids must be from 0 to 2"),
        ([0, 1, -1], [3], "ids must be from 0 to 2"),
        ([0, 1, 2], [4, -1], "lengths >= 1"),
        ([0, 1, 2], [2], "must hold 3 tokens"),
        ([0, 1], [2], "must hold 3 tokens"),
        ([0.0, 1.0, 2.0], [3], "must hold int32"),
    ],
)
def test_a_shard_that_does_not_fit_its_cache_is_refused(tmp_path, ids, lengths, reason):
    corpus = sequences_corpus([["a", "b", "c"]])
    encode_cached(corpus, 1, tmp_path)
    (shard,) = tmp_path.glob("*/shard-00000.npz")
    dtype = np.int32 if isinstance(ids[0], int) else np.float32
    np.savez(shard, ids=np.array(ids, dtype), lengths=np.array(lengths, np.int32))
    write_digests(shard.parent, files_in(shard.parent))
    with pytest.raises(ValueError, match=f"Cache file .* is damaged .*{reason}"):
        encode_cached(corpus, 1, tmp_path).read(0)


@pytest.mark.row("B12")
@pytest.mark.parametrize("point", [0xD800, 0x110000, 0xFFFFFFFF])
@pytest.mark.parametrize("order", "<>")
def test_labels_that_are_no_text_are_refused(tmp_path, point, order):
    labels = np.array([65, point], f"{order}u4").view(f"{order}U1")
    np.savez(tmp_path / "x.npz", X=np.ones((2, 2)), y=labels)
    with pytest.raises(ValueError, match="x.npz: labels must be valid Unicode.* row 1"):
        read_npz(tmp_path / "x.npz")


@pytest.mark.row("B11")
@pytest.mark.parametrize("name", ["x", "label"])
def test_numbers_that_numpy_does_not_have_are_refused(tmp_path, name):
    columns = {"x": [1.0, 2.0], "label": [1, 2]}
    columns |= {name: pl.Series([1, 2**100], dtype=pl.Int128)}
    pl.DataFrame(columns).write_parquet(tmp_path / "x.parquet")
    with pytest.raises(ValueError, match=f"x.parquet: column.* `?{name}|got {name}"):
        read_parquet([tmp_path / "x.parquet"])


@pytest.mark.row("B11")
@pytest.mark.parametrize(
    ("member", "value", "reason"),
    [
        ("shape", np.array([-2, -2]), "`shape` is .-2, -2., of 4 features"),
        ("kind", np.frombuffer(b"object", np.uint8), "`kind` is 'object'"),
        ("history", np.frombuffer(b"5", np.uint8), "`history` is no JSON list"),
    ],
)
def test_an_encoder_that_could_not_be_used_is_refused(tmp_path, member, value, reason):
    path = tmp_path / "encoder.npz"
    encoder_model(path)
    with np.load(path) as archive:
        members = {**archive, member: value}
    np.savez(path, **members)
    with pytest.raises(ValueError, match=f"not a whole encoder file: {reason}"):
        read_encoder(path)


@pytest.mark.row("B11")
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_an_image_of_which_pillow_only_warns_is_refused(tmp_path):
    path = tmp_path / "big.png"
    Image.new("1", (10_000, 9_000)).save(path)
    with pytest.raises(ValueError, match="big.png is not .*: its 9000 x 10000 pixels"):
        read_image(path)


@pytest.mark.row("B14")
@pytest.mark.parametrize("name", ["label", "key", "optimizer"])
def test_a_name_that_is_no_text_is_refused(tmp_path, name):
    text = f'[model]\nmodel = "encoder"\n[encoder]\n{name} = 5\n'
    (tmp_path / "c.toml").write_text(text)
    with pytest.raises(ValueError, match=f"c.toml: `{name}` must be text, got 5"):
        read_toml(tmp_path / "c.toml")


@pytest.mark.row("B11")
@pytest.mark.parametrize(
    ("dtype", "bits"), [("F8_E4M3", 8), ("BF16", 16), ("I32", 32), ("C64", 64)]
)
def test_safetensors_of_another_dtype_are_refused(tmp_path, dtype, bits):
    path = tmp_path / "v.safetensors"
    write_safetensors(path, dtype, [len(KEYS), 4], len(KEYS) * 4 * bits // 8)
    with pytest.raises(ValueError, match="v.safetensors is not a whole vectors file: "):
        read_vectors(path)


@pytest.mark.row("B16")
@pytest.mark.parametrize("text", ['{"source": 5}', '{"source": []}', "[" * 9999, "[]"])
def test_a_source_that_is_no_path_is_refused(tmp_path, text):
    (tmp_path / "corpus.json").write_text(text)
    with pytest.raises(ValueError, match="corpus.json is damaged .*: give another"):
        source_of(Workdir(tmp_path))
