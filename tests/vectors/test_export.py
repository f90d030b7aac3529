"""Files of vectors: round trips, exchange with gensim and word2vec.c, damage."""

import contextlib
import functools
import gzip
import os
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import safetensors.numpy
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from embedder import EmbeddingTrainer, FeatureEncoder
from embedder.vectors import export
from embedder.vectors.ensemble import Ensemble
from embedder.vectors.ensemble_files import write_ensemble
from embedder.vectors.export import endings, format_names, read_vectors, write_vectors
from embedder.vectors.vectors import Vectors

WORD2VEC = (".txt", ".vec", ".txt.gz", ".vec.gz", ".bin")
BLANK_KEYS = Vectors([" ", "\n", "a b"], np.ones((3, 1), np.float32))
SMALL = Vectors(
    ["the", "naïve", "猫", "a\u00a0b", "#x", '"q"', "1"],
    np.array(
        [[0.1, -0.0], [1e-45, 3.4028235e38], [1 / 3, 2], [-7e-9, 1e20], *[[0, 1]] * 3],
        np.float32,
    ),
    np.array([2**40, 9, 8, 7, 6, 5, 4]),
)

keys = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
plain_keys = keys.filter(lambda key: key.encode().split() == [key.encode()])


@st.composite
def some_vectors(draw, keys, width=32):
    names = draw(st.lists(keys, min_size=1, max_size=8, unique=True))
    shape = len(names), draw(st.integers(1, 4))
    floats = st.floats(width=width, allow_nan=False, allow_infinity=False)
    matrix = draw(arrays(f"float{width}", shape, elements=floats))
    counts = draw(
        st.none() | arrays(np.int64, len(names), elements=st.integers(0, 2**63 - 1))
    )
    return Vectors(names, matrix, counts)


def round_trip(vectors: Vectors, ending: str) -> Vectors:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"vectors{ending}"
        write_vectors(vectors, path)
        assert os.listdir(folder) == [path.name]
        return read_vectors(path)


def assert_same(actual: Vectors, desired: Vectors, *, counts: bool):
    """Equal to the bit, the sign of zeros too."""
    assert actual.keys == desired.keys
    assert actual.matrix.dtype == desired.matrix.dtype
    np.testing.assert_array_equal(
        actual.matrix.view(np.uint8), desired.matrix.view(np.uint8)
    )
    if not counts or desired.counts is None:
        assert actual.counts is None
    else:
        np.testing.assert_array_equal(actual.counts, desired.counts, strict=True)


def test_text_of_many_chunks(tmp_path):
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, 2_300_000, dtype=np.uint32).view(np.float32)
    matrix = bits[np.isfinite(bits)][:2_200_000].reshape(-1, 20)
    vectors = Vectors([f"k{i}" for i in range(len(matrix))], matrix)
    write_vectors(vectors, tmp_path / "v.txt")
    assert_same(read_vectors(tmp_path / "v.txt"), vectors, counts=False)


@pytest.mark.parametrize("ending", endings())
def test_equal_vectors_give_equal_bytes(tmp_path, monkeypatch, ending):
    paths = [tmp_path / f"{name}{ending}" for name in ("one", "two")]
    for day, path in enumerate(paths):
        monkeypatch.setattr("time.time", lambda day=day: 1e9 + 86_400 * day)
        write_vectors(SMALL, path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


@pytest.mark.parametrize("ending", WORD2VEC)
def test_gensim_reads_ours_and_ours_reads_gensim(tmp_path, ending):
    keyed = pytest.importorskip("gensim.models").KeyedVectors
    path = tmp_path / f"v{ending}"
    write_vectors(SMALL, path)
    found = keyed.load_word2vec_format(str(path), binary=ending == ".bin")
    assert found.index_to_key == SMALL.keys
    np.testing.assert_array_equal(
        found.vectors.view(np.uint32), SMALL.matrix.view(np.uint32)
    )
    found.save_word2vec_format(str(path), binary=ending == ".bin")
    assert_same(read_vectors(path), SMALL, counts=False)


@pytest.mark.row("B12")
@pytest.mark.parametrize(
    ("ending", "known"),
    [(".txt", plain_keys), (".bin", plain_keys), (".npz", keys), (".safetensors", keys)]
    + [pytest.param(x, plain_keys, marks=pytest.mark.slow) for x in (".vec", ".vec.gz")]
    + [pytest.param(".parquet", keys, marks=pytest.mark.slow)],
)
def test_round_trip(ending, known):
    is_whole = known is keys
    width = st.sampled_from([32, 64] if is_whole else [32])
    some = width.flatmap(lambda width: some_vectors(known, width))

    @settings(max_examples=20 if ending == ".parquet" else 100)
    @example(vectors=BLANK_KEYS if is_whole else SMALL)
    @given(vectors=some)
    def check(vectors):
        assert_same(round_trip(vectors, ending), vectors, counts=is_whole)

    check()


def test_parquet_round_trip_and_more_columns(tmp_path):
    columns = pl.DataFrame({"name": [*"abcdef", None], "price": np.arange(7) / 2})
    path = tmp_path / "v.parquet"
    write_vectors(SMALL, path, columns=columns)
    frame = pl.read_parquet(path)
    assert frame.columns == ["key", "name", "price", "count", "vector"]
    assert frame.select("name", "price").equals(columns)
    assert_same(read_vectors(path), SMALL, counts=True)
    assert_same(round_trip(BLANK_KEYS, ".parquet"), BLANK_KEYS, counts=True)
    write_vectors(Vectors([*"712"], np.eye(3), key_type="integer"), path)
    assert pl.read_parquet(path)["key"].dtype == pl.Int64
    assert read_vectors(path).keys == [*"712"]
    vectors = Vectors(["a", "b c"], np.eye(2, 3, dtype=np.float32), np.array([3, 1]))
    write_vectors(vectors, path)
    table = pl.read_parquet(path)
    kinds = {"key": pl.String, "count": pl.Int64, "vector": pl.Array(pl.Float32, 3)}
    assert dict(table.schema) == kinds
    assert table.rows() == [("a", 3, [1.0, 0.0, 0.0]), ("b c", 1, [0.0, 1.0, 0.0])]


def test_word2vec_bytes(tmp_path):
    """Numbers of text are read back to the last bit, also where tabs separate them."""
    path = tmp_path / "v.txt"
    matrix = np.array([[0.1, -2.0, 1e-7], [0.0, 1 / 3, 16777216]], np.float32)
    write_vectors(Vectors(["a", "猫"], matrix), path)
    lines = path.read_text("utf-8").splitlines()
    assert lines[0] == "2 3"
    assert [line.split(" ")[0] for line in lines[1:]] == ["a", "猫"]
    assert lines[1].split(" ")[1:3] == ["0.1", "-2.0"]
    assert lines[2].split(" ")[2] == "0.33333334"
    assert path.read_bytes().endswith(b"\n") and b" \n" not in path.read_bytes()
    write_vectors(Vectors(["a", "bc"], np.array([[1.0], [-2.0]])), tmp_path / "v.bin")
    expected = b"2 1\na \x00\x00\x80?bc \x00\x00\x00\xc0"
    assert (tmp_path / "v.bin").read_bytes() == expected
    limit = np.finfo(np.float32).max
    extreme = Vectors(["a"], np.array([[limit, -limit, 1e-45, 1 / 3]], np.float32))
    write_vectors(extreme, path)
    path.write_bytes(path.read_bytes().replace(b" ", b"\t"))
    assert_same(read_vectors(path), extreme, counts=False)
    rounded = Vectors(["a"], np.array([[0.1, 0.0]], np.float32))
    double = Vectors(["a"], np.array([[0.1, 1e-50]]))
    for ending in WORD2VEC:
        assert_same(round_trip(double, ending), rounded, counts=False)


def test_npz_and_safetensors_members(tmp_path):
    vectors = Vectors(["a", "猫"], np.eye(2), np.array([3, 1]))
    write_vectors(vectors, tmp_path / "v.npz")
    write_vectors(vectors, tmp_path / "v.safetensors")
    with np.load(tmp_path / "v.npz", allow_pickle=False) as file:
        members = dict(file)
    tensors = safetensors.numpy.load_file(tmp_path / "v.safetensors")
    with zipfile.ZipFile(tmp_path / "v.npz") as archive:
        assert {i.compress_type for i in archive.infolist()} == {zipfile.ZIP_STORED}
    ends, counts = np.array([1, 4]), np.array([3, 1])
    desired = {"vectors": np.eye(2), "token_ends": ends, "counts": counts}
    desired["tokens"] = np.frombuffer("a猫".encode(), np.uint8)
    for found in (members, tensors):
        assert {*found} == {*desired}
        for name, array in desired.items():
            np.testing.assert_array_equal(found[name], array, strict=True)


PROGRAMS = {
    "c.txt": b"2 2\na 1.000000 -2e0 \nb 0.5 4 \n",
    "crlf.VEC": b"2 2\r\na 1 -2\r\nb 0.5 4\r\n",
    "no-newline.vec": b"2 2\na 1 -2\nb 0.5 4",
    "tabs.vec": b"2 2\na\t1\t-2\n b  0.5  4\n\n\n",
    "spelled.vec": b"2 2 \na 1e0 -2. \nb .5 +4 \n",
    "mixed.vec": b"2 2\na\t1.00 -2\nb 0.5 4\n",
    "glove.txt": b"a 1 -2\nb 0.5 4\n",
    "v.vec.gz": gzip.compress(b"a 1 -2\nb 0.5 4\n", mtime=0),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_files_of_other_programs(tmp_path, name):
    """Of word2vec.c: a blank before each newline; of GloVe: no header."""
    (tmp_path / name).write_bytes(PROGRAMS[name])
    vectors = read_vectors(tmp_path / name)
    assert vectors.keys == ["a", "b"]
    np.testing.assert_array_equal(vectors.matrix, np.float32([[1, -2], [0.5, 4]]))


def test_floats_of_word2vec_may_hold_blanks_and_end_with_a_newline(tmp_path):
    rows = np.frombuffer(b" \n  \n \n   \n\n    ", "<f4").reshape(2, 2)
    data = b"2 2\na " + rows[0].tobytes() + b"\nb " + rows[1].tobytes()
    (tmp_path / "c.bin").write_bytes(data)
    np.testing.assert_array_equal(read_vectors(tmp_path / "c.bin").matrix, rows)


def test_keys_of_glove_may_have_blanks(tmp_path):
    (tmp_path / "v.txt").write_text("the 0.5 -1e-3 2\n. . . 1 2 3\n, 4 5 6.25\n")
    found = read_vectors(tmp_path / "v.txt")
    assert found.keys == ["the", ". . .", ","]
    expected = np.array([[0.5, -1e-3, 2], [1, 2, 3], [4, 5, 6.25]], np.float32)
    np.testing.assert_array_equal(found.matrix, expected, strict=True)


MARK = b"\xef\xbb\xbf"
CUT = "猫".encode()[:2]  # as word2vec.c cuts long words
BODY = b"the 1 2\n%s 3 4\n\t 5 6\n%s 7 8\nthe 9 1\na b 2 3\ncat 4 5\n" % (CUT, CUT)
WRONG_KEYS = {
    "v.vec": (MARK + b"7 2\n" + BODY, {"the": (1, 2), "cat": (4, 5)}, 5),
    "v.txt": (
        MARK + BODY + b"\n \n",  # of GloVe, whose keys may have blanks
        {"the": (1, 2), "a b": (2, 3), "cat": (4, 5)},
        4,
    ),
    "v.bin": (
        b"5 1\nthe 1234%s 2345%s 3456the 4567cat 5678" % (CUT, CUT),
        {"the": np.frombuffer(b"1234", "<f4"), "cat": np.frombuffer(b"5678", "<f4")},
        3,
    ),
}
REPLACED = {"v.vec": (3, 4), "v.txt": (3, 4), "v.bin": np.frombuffer(b"2345", "<f4")}


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("name", WRONG_KEYS)
def test_rows_without_a_key_are_left_out_and_counted(tmp_path, caplog, name, is_packed):
    """A mark is no part of the first key, and empty lines of GloVe are no rows."""
    data, expected, num = WRONG_KEYS[name]
    path = tmp_path / name
    path.write_bytes(data)
    if is_packed and name != "v.bin":
        path = tmp_path / f"{name}.gz"
        path.write_bytes(gzip.compress(data))
    left_out = f"{path}: rows whose key is repeated, white space or not UTF-8, left out"
    found = read_vectors(path, "skip")
    assert found.keys == [*expected]
    np.testing.assert_array_equal(found.matrix, np.float32([*expected.values()]))
    assert caplog.messages == [f"{left_out}: {num}."]
    caplog.clear()
    found = read_vectors(path, "replace")
    expected = expected | {"\ufffd": REPLACED[name]}
    assert sorted(found.keys) == sorted(expected)
    for key, row in expected.items():
        np.testing.assert_array_equal(found[key], np.float32(row))
    replaced = f"{path}: keys that are not UTF-8, with U+FFFD: 2."
    assert caplog.messages == [f"{left_out}: {num - 1}.", replaced]


def test_a_first_key_that_is_white_space_counts_as_one(tmp_path):
    (tmp_path / "v.txt").write_text("\t 1 2\nthe 3 4\n")
    assert read_vectors(tmp_path / "v.txt", "skip").keys == ["the"]


@pytest.mark.parametrize("ending", endings())
def test_files_have_the_usual_mode_and_links_stay(tmp_path, ending):
    usual, real = tmp_path / "usual", tmp_path / f"real{ending}"
    usual.touch()
    link = tmp_path / f"link{ending}"
    link.symlink_to(real)
    write_vectors(SMALL, link)
    assert link.is_symlink() and real.stat().st_mode == usual.stat().st_mode
    whole = ending in (".safetensors", ".npz", ".parquet")
    assert_same(read_vectors(link), SMALL, counts=whole)


@contextlib.contextmanager
def full_disk() -> Iterator[None]:
    """The body fails, as no file may have more than 5,000 bytes."""
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.row("F49")
@pytest.mark.parametrize("name", format_names())
def test_a_full_disk_keeps_the_old_file_and_leaves_no_new_one(tmp_path, name):
    if name == "faiss":
        pytest.importorskip("faiss")
    given = next(each for each in export.FORMATS if each.name == name)
    others = {"glove": ".txt", "fasttext-bin": ".bin"}
    path = tmp_path / f"v{others.get(name, (*given.endings, '')[0])}"
    is_new = given.is_folder or name == "faiss"
    if not is_new:
        path.write_bytes(b"old")
    rng = np.random.default_rng(0)
    vectors = Vectors([str(i) for i in range(500)], rng.random((500, 100)))
    with full_disk():
        write_vectors(vectors, path, format=name)
    assert os.listdir(tmp_path) == ([] if is_new else [path.name])
    assert is_new or path.read_bytes() == b"old"


@pytest.mark.row("F49")
@pytest.mark.parametrize("kind", ["tokens", "encoder", "replicas"])
def test_a_full_disk_keeps_an_old_model(tmp_path, kind):
    path, keys = tmp_path / "model.safetensors", [*map(str, range(50))]
    path.write_bytes(b"old")
    if kind == "tokens":
        trainer = EmbeddingTrainer(min_count=1, epochs=0)
        save = trainer.fit([keys]).save
    elif kind == "encoder":
        save = FeatureEncoder((50, 90, 2), epochs=0).fit(np.eye(50), [0, 1] * 25).save
    else:
        ensemble = Ensemble(keys, np.ones((2, 50, 90)), np.ones(50, int))
        save = functools.partial(write_ensemble, ensemble)
    with full_disk():
        save(path)
    assert os.listdir(tmp_path) == [path.name] and path.read_bytes() == b"old"
