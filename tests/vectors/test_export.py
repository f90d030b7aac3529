"""Files of vectors: round trips, exchange with gensim and word2vec.c, damage."""

import gzip
import os
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import safetensors.numpy
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from embedder.disk.arrays import pack_strings, unpack_strings
from embedder.errors import InputError
from embedder.vectors import export
from embedder.vectors.export import VectorFormat, endings, read_vectors, write_vectors
from embedder.vectors.vectors import Vectors

WORD2VEC = (".txt", ".vec", ".txt.gz", ".vec.gz", ".bin")
BLANK_KEYS = Vectors([" ", "\n", "a b"], np.ones((3, 1), np.float32))
WITH_ANY_KEY = (".safetensors", ".npz", ".parquet")
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


# --- round trips


@pytest.mark.spread(1)
@pytest.mark.row("B12")
@pytest.mark.parametrize("ending", WORD2VEC)
@settings(deadline=None)
@example(vectors=SMALL)
@given(vectors=some_vectors(plain_keys))
def test_word2vec_round_trip(ending, vectors):
    assert_same(round_trip(vectors, ending), vectors, counts=False)


@pytest.mark.row("B12")
@pytest.mark.parametrize("ending", [".safetensors", ".npz"])
@settings(deadline=None)
@example(vectors=BLANK_KEYS)
@given(vectors=some_vectors(keys) | some_vectors(keys, width=64))
def test_whole_round_trip(ending, vectors):
    assert_same(round_trip(vectors, ending), vectors, counts=True)


@pytest.mark.parametrize("number", [30, pytest.param(40, marks=pytest.mark.slow)])
def test_parquet_round_trip(monkeypatch, number):
    if number == 30:  # without the process that tries each file first
        monkeypatch.setattr("embedder.disk.untrusted.read_table", pl.read_parquet)

    @settings(deadline=None, max_examples=number)
    @example(vectors=BLANK_KEYS)
    @given(vectors=some_vectors(keys) | some_vectors(keys, width=64))
    def check(vectors):
        assert_same(round_trip(vectors, ".parquet"), vectors, counts=True)

    check()


@given(st.lists(keys, min_size=1))
def test_packed_keys_round_trip(names):
    assert unpack_strings(*pack_strings(names)) == names


@pytest.mark.parametrize("ending", WORD2VEC)
def test_word2vec_files_hold_float32(ending):
    vectors = Vectors(["a"], np.array([[0.1, 1e-50]]))
    expected = Vectors(["a"], np.array([[0.1, 0.0]], np.float32))
    assert_same(round_trip(vectors, ending), expected, counts=False)


def test_text_with_tabs_rounds_as_text_with_blanks(tmp_path):
    limit = np.finfo(np.float32).max
    matrix = np.array([[limit, -limit, 1e-45, 1 / 3]], np.float32)
    write_vectors(Vectors(["a"], matrix), tmp_path / "v.txt")
    text = (tmp_path / "v.txt").read_bytes().replace(b" ", b"\t")
    (tmp_path / "v.txt").write_bytes(text)
    assert_same(read_vectors(tmp_path / "v.txt"), Vectors(["a"], matrix), counts=False)


def test_text_of_many_chunks(tmp_path):
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, 2_300_000, dtype=np.uint32).view(np.float32)
    matrix = bits[np.isfinite(bits)][:2_200_000].reshape(-1, 20)
    vectors = Vectors([f"k{i}" for i in range(len(matrix))], matrix)
    write_vectors(vectors, tmp_path / "v.txt")
    assert_same(read_vectors(tmp_path / "v.txt"), vectors, counts=False)


# --- the bytes


def test_text_bytes(tmp_path):
    path = tmp_path / "v.txt"
    matrix = np.array([[0.1, -2.0, 1e-7], [0.0, 1 / 3, 16777216]], np.float32)
    write_vectors(Vectors(["a", "猫"], matrix), path)
    lines = path.read_text("utf-8").splitlines()
    assert lines[0] == "2 3"
    assert [line.split(" ")[0] for line in lines[1:]] == ["a", "猫"]
    assert lines[1].split(" ")[1:3] == ["0.1", "-2.0"]
    assert lines[2].split(" ")[2] == "0.33333334"
    assert path.read_bytes().endswith(b"\n") and b" \n" not in path.read_bytes()


def test_binary_bytes(tmp_path):
    path = tmp_path / "v.bin"
    write_vectors(Vectors(["a", "bc"], np.array([[1.0], [-2.0]])), path)
    assert path.read_bytes() == b"2 1\na \x00\x00\x80?bc \x00\x00\x00\xc0"


def test_npz_and_safetensors_members(tmp_path):
    vectors = Vectors(["a", "猫"], np.eye(2), np.array([3, 1]))
    write_vectors(vectors, tmp_path / "v.npz")
    write_vectors(vectors, tmp_path / "v.safetensors")
    with np.load(tmp_path / "v.npz", allow_pickle=False) as file:
        members = dict(file)
    tensors = safetensors.numpy.load_file(tmp_path / "v.safetensors")
    with zipfile.ZipFile(tmp_path / "v.npz") as archive:
        assert {i.compress_type for i in archive.infolist()} == {zipfile.ZIP_STORED}
    for found in (members, tensors):
        assert set(found) == {"vectors", "tokens", "token_ends", "counts"}
        assert found["tokens"].tobytes() == "a猫".encode()
        assert found["tokens"].dtype == np.uint8
        for name, desired in [
            ("vectors", np.eye(2)),
            ("token_ends", np.array([1, 4])),
            ("counts", np.array([3, 1])),
        ]:
            np.testing.assert_array_equal(found[name], desired, strict=True)


def test_parquet_columns(tmp_path):
    vectors = Vectors(["a", "b c"], np.eye(2, 3, dtype=np.float32), np.array([3, 1]))
    write_vectors(vectors, tmp_path / "v.parquet")
    table = pl.read_parquet(tmp_path / "v.parquet")
    assert dict(table.schema) == {
        "key": pl.String,
        "count": pl.Int64,
        "vector": pl.Array(pl.Float32, 3),
    }
    assert table.rows() == [("a", 3, [1.0, 0.0, 0.0]), ("b c", 1, [0.0, 1.0, 0.0])]


@pytest.mark.parametrize("ending", endings())
def test_equal_vectors_give_equal_bytes(tmp_path, monkeypatch, ending):
    paths = [tmp_path / f"{name}{ending}" for name in ("one", "two")]
    for day, path in enumerate(paths):
        monkeypatch.setattr("time.time", lambda day=day: 1e9 + 86_400 * day)
        write_vectors(SMALL, path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


# --- compared with gensim and word2vec.c


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


@pytest.mark.parametrize("ending", [".txt", ".vec.gz"])
def test_glove_text(tmp_path, ending):
    """Without a header; keys of the larger files have blanks."""
    lines = "the 0.5 -1e-3 2\n. . . 1 2 3\n, 4 5 6.25\n"
    opened = gzip.open if ending.endswith("gz") else open
    with opened(tmp_path / f"glove{ending}", "wt") as file:
        file.write(lines)
    found = read_vectors(tmp_path / f"glove{ending}")
    assert found.keys == ["the", ". . .", ","]
    expected = np.array([[0.5, -1e-3, 2], [1, 2, 3], [4, 5, 6.25]], np.float32)
    np.testing.assert_array_equal(found.matrix, expected, strict=True)


def test_word2vec_c_text(tmp_path):
    path = tmp_path / "v.txt"  # a blank before each newline
    path.write_bytes(b"2 2\n</s> 0.004003 0.004419 \nthe -0.001 1.5e-05 \n")
    vectors = read_vectors(path)
    assert vectors.keys == ["</s>", "the"]
    np.testing.assert_array_equal(
        vectors.matrix, np.float32([[0.004003, 0.004419], [-0.001, 1.5e-05]])
    )


def test_word2vec_c_binary(tmp_path):
    path = tmp_path / "v.bin"  # a newline after each row; the floats hold blanks
    rows = np.frombuffer(b" \n  \n \n   \n\n    ", "<f4").reshape(2, 2)
    path.write_bytes(
        b"2 2\n</s> " + rows[0].tobytes() + b"\nthe " + rows[1].tobytes() + b"\n"
    )
    vectors = read_vectors(path)
    assert vectors.keys == ["</s>", "the"]
    np.testing.assert_array_equal(vectors.matrix, rows)


@pytest.mark.parametrize(
    "text",
    [
        "2 2\r\na 1 -2\r\nb 0.5 4\r\n",
        "2 2\na 1 -2\nb 0.5 4",
        "2 2\na\t1\t-2\n b  0.5  4\n\n\n",
        "2 2 \na 1e0 -2. \nb .5 +4 \n",
        "2 2\na\t1.00 -2\nb 0.5 4\n",
    ],
    ids=["crlf", "no-newline", "tabs", "other-spellings", "mixed"],
)
def test_text_of_other_programs(tmp_path, text):
    (tmp_path / "v.VEC").write_bytes(text.encode())
    vectors = read_vectors(tmp_path / "v.VEC")
    assert vectors.keys == ["a", "b"]
    np.testing.assert_array_equal(vectors.matrix, [[1, -2], [0.5, 4]])


# --- what cannot be written


@pytest.mark.row("B12")
@pytest.mark.parametrize("key", ["a b", "a\nb", " a", "a\t", "\x0b"])
@pytest.mark.parametrize("ending", WORD2VEC)
def test_word2vec_refuses_keys_with_white_space(tmp_path, ending, key):
    vectors = Vectors(["fine", key], np.eye(2))
    with pytest.raises(ValueError) as error:
        write_vectors(vectors, tmp_path / f"v{ending}")
    assert str(error.value) == (
        "`vectors.keys` must have no white space in a word2vec file, "
        f"got {key!r}: write .safetensors, .npz or .parquet."
    )
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("ending", [".txt", ".txt.gz", ".bin"])
def test_word2vec_refuses_what_float32_cannot_hold(tmp_path, ending):
    with pytest.raises(ValueError, match=r"must fit float32 .* got 1e\+40"):
        write_vectors(Vectors(["a"], np.array([[1e40]])), tmp_path / f"v{ending}")


@pytest.mark.parametrize("name", ["v.csv", "v", "v.gz", "v.bin.gz", "txt"])
def test_unknown_ending(name):
    ends = "`path` must end in .txt, .vec, .txt.gz, .vec.gz, .bin, .safetensors, .npz"
    got = f"got '{name}'."
    with pytest.raises(ValueError) as error:
        read_vectors(name)
    assert str(error.value) == f"{ends} or .parquet, {got}"
    with pytest.raises(ValueError) as error:
        write_vectors(SMALL, name)
    others = ".parquet, .faiss or .sql, or `format` be given"
    assert str(error.value) == f"{ends}, {others}, {got}"


def test_a_format_is_one_entry(tmp_path, monkeypatch):
    def write(vectors: Vectors, path: Path) -> None:
        path.write_text(",".join(vectors.keys))

    def read(path: Path) -> Vectors:
        return Vectors(path.read_text().split(","), np.eye(2))

    added = VectorFormat((".keys",), write, read)
    monkeypatch.setattr(export, "FORMATS", (*export.FORMATS, added))
    write_vectors(Vectors(["a", "b"], np.eye(2)), tmp_path / "v.KEYS")
    assert (tmp_path / "v.KEYS").read_text() == "a,b"
    assert_same(
        read_vectors(tmp_path / "v.KEYS"), Vectors(["a", "b"], np.eye(2)), counts=False
    )
    with pytest.raises(ValueError, match="`path` must end in .*parquet or .keys, got"):
        read_vectors(tmp_path / "v.other")


def test_missing_file_and_folder(tmp_path):
    for path in (tmp_path / "v.txt", tmp_path / "folder.npz"):
        (tmp_path / "folder.npz").mkdir(exist_ok=True)
        with pytest.raises(FileNotFoundError, match=f"{path.name} does not exist"):
            read_vectors(path)
    with pytest.raises(FileNotFoundError, match="Folder .*none does not exist"):
        write_vectors(SMALL, tmp_path / "none" / "v.txt")


# --- atomic writes


@pytest.mark.parametrize("ending", endings())
def test_full_disk_keeps_the_old_file(tmp_path, ending):
    resource = pytest.importorskip("resource")
    path = tmp_path / f"v{ending}"
    path.write_bytes(b"old")
    rng = np.random.default_rng(0)
    vectors = Vectors([str(i) for i in range(500)], rng.random((500, 100)))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_vectors(vectors, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("ending", endings())
def test_files_have_the_usual_mode_and_links_stay(tmp_path, ending):
    usual = tmp_path / "usual"
    usual.touch()
    real, link = tmp_path / f"real{ending}", tmp_path / f"link{ending}"
    link.symlink_to(real)
    write_vectors(SMALL, link)
    assert link.is_symlink() and real.stat().st_mode == usual.stat().st_mode
    assert_same(read_vectors(link), SMALL, counts=ending in WITH_ANY_KEY)


# --- damaged files


@pytest.mark.row("B13")
@pytest.mark.parametrize(
    ("text", "error", "match"),
    [
        ("", ValueError, "line 1: must be the numbers of keys .* got ''"),
        ("2\na 1\n", ValueError, "line 1: .* got '2'"),
        ("a 1\nb 3\n", ValueError, "line 1: .* got 'a 1'"),
        ("a 1 x\nb 3 4\n", ValueError, "line 1: .* got 'a 1 x'"),
        (
            "a 1 2\nb 3\n",
            ValueError,
            "line 2: must be a key and 2 values, ",
        ),
        ("a 1 2\nb c 3 x\n", ValueError, "line 2: column 3 must be a finite number"),
        ("a 1 2\nb inf 3\n", ValueError, "line 2: column 2 must be a finite number"),
        ("a 1 2\nb 3 4\na 3 4\n", ValueError, "line 3: .* another key than on line 1"),
        ("-1 2\na 1 2\n", ValueError, "line 1: .* got '-1 2'"),
        ("0 2\n", ValueError, "line 1: .* got '0 2'"),
        ("1 0\na\n", ValueError, "line 1: .* got '1 0'"),
        ("2 2", ValueError, "line 1: .* got '2 2'"),
        ("2 2\na 1 2\n", EOFError, "line 3: must be one of 2 rows"),
        ("999999999999 2\na 1 2\n", EOFError, "line 3: must be one of 999999999999"),
        ("1 999999999999\na 1 2\n", ValueError, "line 2: .* 999999999999 values"),
        ("1 2\na 1 2\nb 3 4\n", ValueError, "line 3: must be the end, .* got 'b 3 4'"),
        ("2 2\na 1 2\nb 3\n", ValueError, "line 3: .* 2 values, got 2 columns: 'b 3'"),
        ("2 2\na 1 2 3\nb 3 4\n", ValueError, "line 2: .* got 4 columns: 'a 1 2 3'"),
        ("2 2\na 1 2 3\nb 3\n", ValueError, "line 2: .* got 4 columns"),
        ("2 2\na 1 2\n\nb 3 4\n", ValueError, "line 3: .* got 0 columns: ''"),
        ("a 1 2\n\nb 3 4\n", ValueError, "line 2: .* on line 1, got 0 columns: ''"),
        ("a 1 2\nb 3\n", ValueError, "line 2: .* on line 1, got 2 columns: 'b 3'"),
        ("2 2\na 1 2\n 3 4\n", ValueError, "line 3: .* got 2 columns: ' 3 4'"),
        ("2 2\na b 1 2\nc 3 4\n", ValueError, "line 2: .* got 4 columns"),
        ("2 2\na 1 2\nb 3 nan\n", ValueError, "line 3: column 3 must be .* 'nan'"),
        ("2 2\na 1 2\nb -inf 3\n", ValueError, "line 3: column 2 must be .* '-inf'"),
        ("2 2\na 1 2\nb 0,5 3\n", ValueError, "line 3: column 2 .*finite.* '0,5'"),
        ("2 2\na 1 1e39\nb 5 3\n", ValueError, "line 2: column 3 .* got '1e39'"),
        ("2 2\na 1 2\na 3 4\n", ValueError, "line 3: column 1 .* on line 2, got 'a'"),
        (b"2 2\na 1 2\n\xe7 3 4\n", ValueError, "line 3: column 1 must be UTF-8"),
        ("2 1\na 1\nb\n", ValueError, "line 3: .* 1 values, got 1 columns"),
    ],
)
@pytest.mark.parametrize("ending", [".txt", ".vec.gz"])
def test_damaged_text(tmp_path, ending, text, error, match):
    path = tmp_path / f"v{ending}"
    data = text if isinstance(text, bytes) else text.encode()
    path.write_bytes(gzip.compress(data) if ending.endswith(".gz") else data)
    with pytest.raises(error, match=f"{path.name} {match}"):
        read_vectors(path)


ONE = np.float32([1]).tobytes()


@pytest.mark.parametrize(
    ("data", "error", "match"),
    [
        (b"", ValueError, " line 1: must be the numbers"),
        (b"\x00\xff" * 500, ValueError, " line 1: must be the numbers"),
        (b"2 1\na " + ONE, EOFError, " must hold 2 rows of 1 values"),
        (b"2 1\na " + ONE + b"b " + ONE[:3], EOFError, " must hold 2 rows"),
        (b"2 1\nlong " + ONE + b"b " + ONE[:3], EOFError, " row 1: must be a key"),
        (b"9" * 30 + b" 1\na " + ONE, EOFError, " must hold 9+ rows"),
        (b"1 " + b"9" * 30 + b"\na " + ONE, EOFError, " must hold 1 rows of 9+"),
        (b"1 1\na " + ONE + b"\nb " + ONE, ValueError, " must end after the 1 rows"),
        (b"2 1\na " + ONE + b"a " + ONE, ValueError, ": .* 'a' at rows 0 and 1"),
        (b"2 1\na " + ONE + b"\n " + ONE, ValueError, ": .* got '' at row 1"),
        (b"1 1\na \x00\x00\xc0\x7f", ValueError, ": .*finite, got nan at row 0"),
        (b"1 1\n\xe7 " + ONE, ValueError, " row 0: column 1 must be UTF-8"),
    ],
)
def test_damaged_binary(tmp_path, data, error, match):
    (tmp_path / "v.bin").write_bytes(data)
    with pytest.raises(error, match=f"v.bin{match}"):
        read_vectors(tmp_path / "v.bin")


TOKENS, TOKEN_ENDS = pack_strings(["a", "bc"])
PARTS = {"vectors": np.eye(2), "tokens": TOKENS, "token_ends": TOKEN_ENDS}


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"vectors": None}, "it has no `vectors`"),
        ({"tokens": None}, "it has no `tokens`"),
        ({"vectors": np.eye(3)}, r"V = 2 .* got \(3, 3\)"),
        ({"vectors": np.full((2, 1), np.nan)}, r"got nan at row 0 \('a'\), column 0"),
        ({"vectors": np.eye(2, dtype=int)}, "got int64"),
        ({"token_ends": np.array([1, 2])}, "`token_ends` must rise to 3"),
        ({"token_ends": np.array([1, 4])}, "`token_ends` must rise to 3"),
        ({"token_ends": np.array([4, 3])}, "`token_ends` must rise to 3"),
        ({"token_ends": np.array([-1, 3])}, "`token_ends` must rise to 3"),
        ({"token_ends": np.array([1.0, 3.0])}, "uint8 and `token_ends` int64"),
        ({"token_ends": np.array([0, 3])}, "`keys` must not be empty"),
        ({"tokens": np.frombuffer(b"\xffbc", np.uint8)}, "'utf-8' codec"),
        ({"counts": np.array([1])}, r"`counts` must have shape \(2,\)"),
    ],
)
@pytest.mark.parametrize("ending", [".npz", ".safetensors"])
def test_inconsistent_arrays(tmp_path, ending, change, match):
    path = tmp_path / f"v{ending}"
    parts = {k: v for k, v in (PARTS | change).items() if v is not None}
    if ending == ".npz":
        np.savez(path, **parts)
    else:
        safetensors.numpy.save_file(parts, path)
    with pytest.raises(ValueError, match=f"is not a whole vectors file: .*{match}"):
        read_vectors(path)


@pytest.mark.row("B11")
def test_npz_with_pickles_or_packed_is_refused(tmp_path):
    path = tmp_path / "v.npz"
    np.savez(path, **PARTS | {"vectors": np.array([[{}], [1]], object)})
    with pytest.raises(ValueError, match="whole vectors file: .*pickled objects"):
        read_vectors(path)
    np.savez_compressed(path, **PARTS)
    with pytest.raises(ValueError, match="`vectors` is compressed"):
        read_vectors(path)


def vector(*rows) -> pl.Series:
    return pl.Series(rows, dtype=pl.Array(pl.Float32, 1))


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        ({"key": ["a"]}, "it has no columns key String and vector Array: key String"),
        ({"key": [1.5], "vector": vector([1.0])}, "Float64"),
        ({"key": ["a"], "vector": [[1.0, 2.0]]}, "vector List"),
        ({"key": ["a"], "vector": vector([None])}, "got nan at row 0"),
        (
            {"key": [None], "vector": vector([1])},
            "it has no columns|`keys` must be a list of strings",
        ),
    ],
)
def test_other_parquet(tmp_path, columns, match):
    path = tmp_path / "v.parquet"
    pl.DataFrame(columns).write_parquet(path)
    with pytest.raises(ValueError, match=f"is not a whole vectors file: .*({match})"):
        read_vectors(path)


def test_parquet_holds_more_columns(tmp_path):
    columns = pl.DataFrame({"name": [*"abcdef", None], "price": np.arange(7) / 2})
    path = tmp_path / "v.parquet"
    write_vectors(SMALL, path, columns=columns)
    frame = pl.read_parquet(path)
    assert frame.columns == ["key", "name", "price", "count", "vector"]
    assert frame.select("name", "price").equals(columns)
    assert_same(read_vectors(path), SMALL, counts=True)


@pytest.mark.row("B33")
@pytest.mark.parametrize(
    ("ending", "columns", "message"),
    [
        *(
            (ending, {"name": ["x"] * 7}, r"Names can be written only to \.parquet")
            for ending in endings()
            if ending != ".parquet"
        ),
        (".parquet", {"name": ["x"]}, "must have a row for each of 7 keys, got 1"),
        (".parquet", {"count": ["x"] * 7}, "other names than key, count, vector, got"),
    ],
)
def test_columns_that_cannot_be_written_are_refused(tmp_path, ending, columns, message):
    path = tmp_path / f"v{ending}"
    with pytest.raises(InputError, match=message):
        write_vectors(SMALL, path, columns=pl.DataFrame(columns))
    assert not path.exists()
