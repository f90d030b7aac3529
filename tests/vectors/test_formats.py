"""Formats by name: GloVe, fewer bits and dimensions, tables, targets."""

import gc
import gzip
import os
import warnings
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from embedder.errors import InputError, InputExistsError
from embedder.vectors import reduce
from embedder.vectors.export import (
    FORMATS,
    format_names,
    format_of,
    keys_path,
    read_vectors,
    write_vectors,
)
from embedder.vectors.reduce import (
    Packed,
    kept_neighbors,
    pack,
    principal,
    rounded,
    unpack,
)
from embedder.vectors.vectors import Vectors

RNG = np.random.default_rng(0)
COUNTS = np.arange(300)[::-1]
MANY = Vectors(
    [f"k{i}" for i in range(300)],
    RNG.normal(size=(300, 20)).astype(np.float32),
    COUNTS,
)
FOLDERS = [each.name for each in FORMATS if each.is_folder]


# --- names


def test_every_format_has_a_name_and_endings_are_told_by_it():
    assert all(each.name for each in FORMATS)
    for each in FORMATS:
        for ending in each.endings:
            assert format_of(f"v{ending}").name == each.name
            assert format_of(f"v{ending}", each.name) is format_of(f"v{ending}")


def test_glove_is_text_without_a_header(tmp_path):
    path = tmp_path / "v.txt"
    write_vectors(MANY, path, format="glove")
    lines = path.read_text().splitlines()
    assert len(lines) == 300 and lines[0].split(" ")[0] == "k0"
    assert len(lines[0].split(" ")) == 21
    found = read_vectors(path)
    assert found.keys == MANY.keys
    np.testing.assert_array_equal(found.matrix, MANY.matrix)
    write_vectors(MANY, tmp_path / "v.txt.gz", format="glove")
    assert gzip.decompress((tmp_path / "v.txt.gz").read_bytes()) == path.read_bytes()


def test_gensim_reads_glove(tmp_path):
    keyed = pytest.importorskip("gensim.models").KeyedVectors
    path = tmp_path / "v.txt"
    write_vectors(MANY, path, format="glove")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # gensim leaves a file open
        found = keyed.load_word2vec_format(str(path), no_header=True)
        gc.collect()
    assert found.index_to_key == MANY.keys
    np.testing.assert_array_equal(found.vectors, MANY.matrix)


def test_fasttext_is_word2vec_text(tmp_path):
    write_vectors(MANY, tmp_path / "a.vec", format="fasttext")
    write_vectors(MANY, tmp_path / "b.txt")
    assert (tmp_path / "a.vec").read_bytes() == (tmp_path / "b.txt").read_bytes()
    assert (tmp_path / "a.vec").read_text().startswith("300 20\n")


@pytest.mark.row("B53")
@pytest.mark.parametrize(
    ("path", "name", "message"),
    [
        ("v.txt", "csv", "`format` must be one of word2vec, .* glove, .*got 'csv'."),
        ("v.npz", "parquet", "`path` must end in .parquet with `format` parquet, got"),
        ("v.bin", "glove", r"must end in .txt, .vec, .txt.gz or .vec.gz with `format`"),
        ("folder", None, "or `format` be given, got 'folder'"),
    ],
)
def test_a_format_that_is_unknown_or_has_another_ending_is_refused(path, name, message):
    with pytest.raises(InputError, match=message):
        write_vectors(MANY, path, format=name)


@pytest.mark.row("B56")
@pytest.mark.parametrize("name", ["glove", *FOLDERS])
@pytest.mark.parametrize("key", ["a b", "\t", "x\n"])
def test_keys_with_white_space_are_refused(tmp_path, name, key):
    vectors = Vectors(["fine", key], np.eye(2))
    path = tmp_path / ("v.txt" if name == "glove" else "v")
    with pytest.raises(InputError, match="must have no white space in a .*, got"):
        write_vectors(vectors, path, format=name)
    assert os.listdir(tmp_path) == []


def test_glove_text_needs_two_dimensions(tmp_path):
    with pytest.raises(InputError, match="2 dimensions or more in a GloVe file, got 1"):
        write_vectors(
            Vectors(["3"], np.ones((1, 1))), tmp_path / "v.txt", format="glove"
        )


# --- fewer bits


@given(arrays(np.float32, (3, 4), elements=st.floats(-(2.0**99), 2.0**99, width=32)))
def test_int8_is_within_half_a_step(matrix):
    packed = pack(matrix, "int8")
    assert packed.values.dtype == np.int8 and packed.scales is not None
    step = np.abs(matrix).max(axis=1) / 127
    error = np.abs(unpack(packed).astype(np.float64) - matrix)
    assert (error <= 0.5001 * step[:, None] + 1e-42).all()


def test_float16_is_the_nearest():
    matrix = np.array([[0.1, -3.0, 1e-9]])
    assert unpack(pack(matrix, "float16")).tolist() == [
        [np.float16(0.1), -3.0, np.float16(1e-9)]
    ]
    assert unpack(pack(matrix, "float16")).dtype == np.float32


@pytest.mark.row("B54")
@pytest.mark.parametrize(("dtype", "value"), [("float16", 7e4), ("int8", 1e60)])
def test_values_that_a_dtype_cannot_hold_are_refused(dtype, value):
    with pytest.raises(InputError, match=f"`dtype` {dtype} cannot hold the value"):
        pack(np.array([[0.0, value]]), dtype)


@pytest.mark.parametrize("ending", [".safetensors", ".npz", ".parquet"])
@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_small_files_give_the_rounded_vectors(tmp_path, ending, dtype):
    path = tmp_path / f"v{ending}"
    write_vectors(MANY, path, dtype=dtype)
    found, expected = read_vectors(path), rounded(MANY, dtype)
    assert found.keys == MANY.keys and found.matrix.dtype == np.float32
    np.testing.assert_array_equal(found.matrix, expected.matrix)
    np.testing.assert_array_equal(found.counts, COUNTS)
    write_vectors(MANY, tmp_path / f"w{ending}")
    assert path.stat().st_size < 0.8 * (tmp_path / f"w{ending}").stat().st_size


@pytest.mark.row("F13")
@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_a_flipped_bit_of_a_small_file_is_found(tmp_path, dtype):
    path = tmp_path / "v.safetensors"
    write_vectors(MANY, path, dtype=dtype)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match="not those that were written"):
        read_vectors(path)


@pytest.mark.row("B11")
@pytest.mark.parametrize(
    ("values", "scales"),
    [
        (np.zeros((2, 3), np.int8), np.ones(3, np.float32)),
        (np.zeros((2, 3), np.int8), np.ones(2)),
        (np.zeros((2, 3), np.float32), np.ones(2, np.float32)),
        (np.ones((2, 3), np.int8), np.array([1, np.inf], np.float32)),
    ],
)
def test_scales_that_do_not_fit_are_refused(tmp_path, values, scales):
    from embedder.vectors.array_formats import _arrays

    path = tmp_path / "v.npz"
    np.savez(path, **_arrays(["a", "b"], Packed(values, scales), None))
    with pytest.raises(InputError, match="`scales` .* do not fit|must be finite"):
        read_vectors(path)


@pytest.mark.row("B54")
@pytest.mark.parametrize(
    ("path", "name", "dtype"),
    [
        ("v.txt", None, "float16"),
        ("v.bin", None, "int8"),
        ("v.sql", None, "int8"),
        ("v", "sentence-transformers", "int8"),
        ("v.faiss", None, "int8"),
    ],
)
def test_a_dtype_that_a_format_lacks_is_refused(tmp_path, path, name, dtype):
    message = f"`dtype` must fit `format` .*, got '{dtype}': {dtype} fits safetensors,"
    with pytest.raises(InputError, match=message):
        write_vectors(MANY, tmp_path / path, format=name, dtype=dtype)
    assert os.listdir(tmp_path) == []


# --- fewer dimensions


def test_principal_components_of_a_flat_cloud_keep_all_products():
    flat = RNG.normal(size=(50, 3)) @ RNG.normal(size=(3, 20))
    vectors = Vectors([f"k{i}" for i in range(50)], flat)
    found = principal(vectors, 3)
    assert found.matrix.shape == (50, 3) and found.matrix.dtype == np.float64
    np.testing.assert_allclose(found.matrix @ found.matrix.T, flat @ flat.T, atol=1e-9)


def test_principal_components_are_those_of_a_singular_value_decomposition():
    found = principal(MANY, 4).matrix
    u, s, _ = np.linalg.svd(MANY.matrix.astype(np.float64), full_matrices=False)
    expected = u[:, :4] * s[:4]
    signs = np.sign((expected * found).sum(axis=0))
    np.testing.assert_allclose(found, expected * signs, rtol=1e-4, atol=1e-4)


def test_principal_components_do_not_depend_on_chunks(monkeypatch):
    whole = principal(MANY, 7).matrix
    monkeypatch.setattr(reduce, "CHUNK_VALUES", 100)
    np.testing.assert_allclose(principal(MANY, 7).matrix, whole, rtol=1e-5, atol=1e-6)


def test_large_values_do_not_overflow():
    matrix = np.array([[1e200, 0.0], [0.0, 3e200]])
    found = principal(Vectors(["a", "b"], matrix), 1).matrix
    np.testing.assert_allclose(found, [[0], [3e200]], atol=1e190)


@pytest.mark.row("B54")
@pytest.mark.parametrize(
    ("num", "message"),
    [
        (21, "`pca` must be at most 20, the dimensions of the vectors, got 21."),
        (0, "`pca` must be an integer >= 1, got 0."),
    ],
)
def test_a_number_of_components_out_of_bounds_is_refused(num, message):
    with pytest.raises(InputError) as error:
        principal(MANY, num)
    assert str(error.value) == message


# --- neighbours kept


def test_kept_neighbors_by_counting(monkeypatch):
    monkeypatch.setattr(reduce, "NUM_SAMPLED", 40)
    smaller = principal(MANY, 5)
    found = kept_neighbors(MANY, smaller, seed=3)
    rows = sorted(np.random.default_rng(3).choice(300, 40, replace=False))
    shares = []
    for row in rows:
        nearest = [
            {key for key, _ in each.most_similar(f"k{row}", topn=10)}
            for each in (MANY, smaller)
        ]
        shares.append(len(nearest[0] & nearest[1]) / 10)
    assert found == (pytest.approx(np.mean(shares)), 10, 40)
    assert 0.05 < found.share < 0.95


def test_equal_vectors_keep_all_and_one_has_none():
    assert kept_neighbors(MANY, MANY) == (1.0, 10, 300)
    one = Vectors(["a"], np.ones((1, 2)))
    assert kept_neighbors(one, one) is None
    three = Vectors([*"abc"], np.eye(3))
    assert kept_neighbors(three, three) == (1.0, 2, 3)


# --- tables


@pytest.mark.parametrize("dtype", [None, "float16", "int8"])
def test_duckdb_reads_parquet(tmp_path, dtype):
    duckdb = pytest.importorskip("duckdb")
    path = tmp_path / "v.parquet"
    columns = pl.DataFrame({"name": [f"N{i}" for i in range(300)]})
    write_vectors(MANY, path, columns=columns, dtype=dtype)
    rows = duckdb.execute(f"SELECT key, name, count, vector FROM '{path}'").fetchall()
    assert [row[:3] for row in rows[:2]] == [("k0", "N0", 299), ("k1", "N1", 298)]
    expected = pack(MANY.matrix, dtype).values
    np.testing.assert_array_equal(np.array([row[3] for row in rows]), expected)
    if dtype is None:
        query = (
            "WITH q AS (SELECT vector::FLOAT[20] AS v FROM t WHERE key = 'k7') "
            "SELECT key FROM t, q WHERE key <> 'k7' "
            "ORDER BY array_cosine_similarity(vector::FLOAT[20], v) DESC LIMIT 5"
        ).replace("t ", f"'{path}' ")
        found = [
            key
            for (key,) in duckdb.execute(query.replace("t,", f"'{path}',")).fetchall()
        ]
        assert found == [key for key, _ in MANY.most_similar("k7", topn=5)]


@pytest.mark.slow
def test_lancedb_searches_parquet(tmp_path):
    """Its wheel is too large for the extra `dev`; it was run with version 0.40."""
    lancedb = pytest.importorskip("lancedb", reason="lancedb is not installed")
    pytest.importorskip("pyarrow")
    write_vectors(MANY, tmp_path / "v.parquet")
    table = lancedb.connect(str(tmp_path / "db")).create_table(
        "words", pl.read_parquet(tmp_path / "v.parquet").to_arrow()
    )
    assert table.count_rows() == 300
    query = table.search(MANY["k7"], vector_column_name="vector").metric("cosine")
    found = query.limit(6).to_arrow().to_pydict()
    expected = MANY.most_similar("k7", topn=5)
    assert found["key"] == ["k7", *(key for key, _ in expected)]
    distances = [1.0, *(cosine for _, cosine in expected)]
    assert found["_distance"] == pytest.approx([1 - x for x in distances], abs=1e-5)


def test_arrow_sees_lists_of_a_fixed_size(tmp_path):
    pytest.importorskip("pyarrow")
    import pyarrow as pa
    from pyarrow.parquet import read_table

    write_vectors(MANY, tmp_path / "v.parquet")
    schema = read_table(tmp_path / "v.parquet").schema
    assert schema.field("vector").type == pa.list_(pa.float32(), 20)


# --- targets


@pytest.mark.row("B55")
@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_a_folder_is_not_written_over(tmp_path, name, kind):
    path = tmp_path / "v"
    match kind:
        case "file":
            path.write_text("old")
        case "folder":
            path.mkdir()
        case "link":
            path.symlink_to(tmp_path / "none")
    before = os.listdir(tmp_path)
    with pytest.raises(InputExistsError, match=f"must be new with `format` {name}, go"):
        write_vectors(MANY, path, format=name)
    assert os.listdir(tmp_path) == before
    with pytest.raises(FileNotFoundError, match="Folder .*none does not exist"):
        write_vectors(MANY, tmp_path / "none" / "v", format=name)


@pytest.mark.row("F49")
@pytest.mark.parametrize("name", [*FOLDERS, "pgvector"])
def test_a_full_disk_leaves_nothing(tmp_path, name):
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_vectors(MANY, tmp_path / "v.sql", format=name)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", FOLDERS)
@settings(max_examples=5, deadline=None)
@given(st.integers(0, 0o77))
def test_folders_have_the_usual_modes(tmp_path_factory, name, mask):
    folder = tmp_path_factory.mktemp("modes")
    old = os.umask(mask)
    try:
        write_vectors(MANY, folder / "v", format=name, card="text")
        (folder / "usual").mkdir()
        (folder / "file").touch()
    finally:
        os.umask(old)
    for path in (folder / "v").rglob("*"):
        usual = folder / ("usual" if path.is_dir() else "file")
        assert path.stat().st_mode == usual.stat().st_mode, path


def test_names_of_formats_are_in_the_chapter():
    chapter = Path(__file__).parents[2] / "migration/docs/vectors-and-formats.md"
    text = chapter.read_text(encoding="utf-8")
    assert [name for name in format_names() if f"`{name}`" not in text] == []


def test_keys_are_beside_the_index():
    assert keys_path("a/b.faiss") == Path("a/b.faiss.keys.parquet")
