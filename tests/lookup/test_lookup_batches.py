"""`neighbors --from`: the neighbours of all keys of a file."""

import gzip
import os
import tracemalloc
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from embedder.cli import main
from embedder.lookup import batches
from embedder.lookup.batches import read_keys, write_batch
from embedder.lookup.tables import of_vectors
from embedder.vectors.ensemble_files import read_ensemble
from embedder.vectors.export import read_vectors, write_vectors
from embedder.vectors.vectors import Vectors
from tests.commands import error_line, record_stages

pytestmark = pytest.mark.usefixtures("here")


def expected_rows(vectors: Vectors, keys: list[str], topn: int, **options) -> list:
    return [
        (query, key, rank, np.float32(score))
        for query in keys
        for rank, (key, score) in enumerate(
            vectors.most_similar(query, topn=topn, **options), 1
        )
    ]


def rows_of(path: str) -> list:
    return [(*row[:3], np.float32(row[3])) for row in pl.read_parquet(path).rows()]


@pytest.mark.slow
@pytest.mark.parametrize("size", [2**14, 2])
@pytest.mark.parametrize("part", [2**21, 7])
def test_a_batch_has_the_rows_of_each_query_in_turn(capsys, monkeypatch, size, part):
    monkeypatch.setattr(batches, "_KEYS", size)
    monkeypatch.setattr(batches, "_ROWS", part)
    keys = ["a1", "b3", "b5", "a1", "a2"]
    Path("keys.txt").write_text("a1\nb3\r\n\nunknown\nb5\na1\nA1\na2\n")
    command = ["neighbors", "run", "--from", "keys.txt", "--to", "out.parquet"]
    assert main([*command, "--topn", "3"]) == 0
    expected = "neighbours of 5 tokens; 2 are not in the vocabulary ('unknown', 'A1'); "
    assert capsys.readouterr().out == expected + "in out.parquet\n"
    frame = pl.read_parquet("out.parquet")
    assert frame.schema == {
        "query": pl.String,
        "key": pl.String,
        "rank": pl.Int32,
        "similarity": pl.Float32,
    }
    vectors = read_vectors("run/vectors.safetensors")
    assert rows_of("out.parquet") == expected_rows(vectors, keys, 3)
    assert [name for name in os.listdir() if name.endswith(".tmp")] == []


def test_keys_of_tables_of_compressed_text_and_of_a_url():
    keys = ["a1", "b2", "nothing"]
    pl.DataFrame({"n": [1, 2, 3], "key": keys}).write_parquet("keys.parquet")
    pl.DataFrame({"key": keys}).write_csv("keys.csv")
    Path("keys.txt.gz").write_bytes(gzip.compress("\n".join(keys).encode()))
    Path("mark.txt").write_bytes(b"\xef\xbb\xbf" + "\n".join(keys).encode())
    for path in ("keys.parquet", "keys.csv", "keys.txt.gz", "mark.txt"):
        assert [*read_keys(path)] == [keys]
    assert [*read_keys(f"file://{Path('mark.txt').resolve()}")] == [keys]
    assert [*read_keys("keys.parquet", 2)] == [keys[:2], keys[2:]]


def test_integer_keys_stay_integers():
    pl.DataFrame({"key": [100, 109, 7]}).write_parquet("numbers-of.parquet")
    command = ["neighbors", "numbered", "--from", "numbers-of.parquet"]
    assert main([*command, "--to", "numbers-out.parquet", "--topn", "2"]) == 0
    frame = pl.read_parquet("numbers-out.parquet")
    assert frame.dtypes[:2] == [pl.Int64, pl.Int64]
    assert frame["query"].to_list() == [100, 100, 109, 109]


def test_a_batch_of_replicas_has_intervals():
    Path("keys.txt").write_text("b3\na2\n")
    command = ["neighbors", "two", "--from", "keys.txt", "--to", "two.parquet"]
    assert main([*command, "--topn", "2", "--stable"]) == 0
    ensemble = read_ensemble("two")
    found = ensemble.neighbors(["b3", "a2"], 2, order="lower")
    expected = [
        (query, near.token, rank, *map(np.float32, near[1:4]), near.frequency)
        for query, row in zip(["b3", "a2"], found, strict=True)
        for rank, near in enumerate(row, 1)
    ]
    frame = pl.read_parquet("two.parquet")
    assert frame.columns[3:] == ["similarity", "lower", "upper", "replicas"]
    rows = [(*r[:3], *map(np.float32, r[3:6]), r[6]) for r in frame.rows()]
    assert rows == expected


def test_filters_and_the_dot_product_apply_to_batches():
    Path("keys.txt").write_text("b3\na2\n")
    command = ["neighbors", "run", "--from", "keys.txt", "--to", "out.parquet"]
    vectors = read_vectors("run/vectors.safetensors")
    frequent = {k for k, n in zip(vectors.keys, vectors.counts, strict=True) if n >= 60}
    assert 2 < len(frequent) < 9
    assert main([*command, "--min-count", "60"]) == 0
    expected = expected_rows(vectors, ["b3", "a2"], 10, among=frequent)
    assert rows_of("out.parquet") == expected
    assert main([*command, "--metric", "dot", "--topn", "2"]) == 0
    expected = expected_rows(vectors, ["b3", "a2"], 2, metric="dot")
    assert rows_of("out.parquet") == expected
    assert pl.read_parquet("out.parquet").columns[3] == "product"


def test_a_batch_as_csv():
    Path("keys.txt").write_text("b3\n")
    command = ["neighbors", "run", "--from", "keys.txt", "--to", "out.csv"]
    assert main([*command, "--topn", "1"]) == 0
    vectors = read_vectors("run/vectors.safetensors")
    ((key, _),) = vectors.most_similar("b3", topn=1)
    lines = Path("out.csv").read_text().splitlines()
    assert lines[0] == "query,key,rank,similarity"
    assert lines[1].startswith(f"b3,{key},1,")


@pytest.mark.row("B58")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--from", "keys.txt"], "`from` needs `to`, the file to write"),
        (["--from", "keys.txt", "--to", "x.txt"], "`to` must end in .parquet or .csv"),
        (["--from", "keys.txt", "--to", "run/model.npz"], "not be a file of a run"),
        (["--from", "keys.txt", "--to", "no/x.csv"], "no does not exist."),
        (["a1", "--from", "keys.txt", "--to", "x.csv"], "`from` goes with neither"),
        (["--from", "keys.txt", "--to", "x.csv", "--json"], "`from` goes with neither"),
        (["--to", "x.csv", "a1"], "`to` must end in .png, got x.csv."),
    ],
)
def test_wrong_arguments_of_a_batch_are_refused(capsys, arguments, message):
    Path("keys.txt").write_text("a1\n")
    assert main(["neighbors", "run", *arguments]) == 2
    assert message in error_line(capsys)
    assert not Path("x.csv").exists()


@pytest.mark.row("B58")
@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("none.txt", "none.txt: No such file or directory"),
        ("others.txt", "got others.txt with 2 others, the first is 'x'."),
        ("empty.txt", "got empty.txt with 0 others."),
        ("bytes.txt", "bytes.txt is not UTF-8 text: byte 0xff in line 2."),
        ("cut.txt.gz", "cut.txt.gz is not a whole .gz file"),
        ("lone.txt.gz", "lone.txt.gz is not a whole .gz file"),
        ("no-key.csv", "no-key.csv has no column 'key'; it has 'a', 'b'."),
        ("floats.parquet", "'key' must have text or integers, got Float64."),
        ("bad.parquet", "bad.parquet is not Parquet, which its name says"),
        ("cut.parquet", "`from` cut.parquet cannot be read: "),
    ],
)
def test_wrong_files_of_keys_are_refused(capsys, source, message):
    Path("others.txt").write_text("x\ny\n")
    Path("empty.txt").write_text("")
    Path("bytes.txt").write_bytes(b"a1\n\xff\n")
    packed = gzip.compress(os.urandom(9000).hex().encode())
    Path("cut.txt.gz").write_bytes(packed[: len(packed) // 2])
    Path("lone.txt.gz").write_bytes(b"")
    Path("no-key.csv").write_text("a,b\n1,2\n")
    pl.DataFrame({"key": [1.5]}).write_parquet("floats.parquet")
    Path("bad.parquet").write_text("a1\n")
    pl.DataFrame({"key": [f"k{i}" for i in range(999)]}).write_parquet("cut.parquet")
    Path("cut.parquet").write_bytes(Path("cut.parquet").read_bytes()[:-30] + b"PAR1")
    assert main(["neighbors", "run", "--from", source, "--to", "x.csv"]) == 2
    assert message in error_line(capsys)
    assert not [x for x in os.listdir() if x.startswith("x.") or x.endswith(".tmp")]


def test_a_line_without_an_end_is_one_unknown_token(capsys, monkeypatch):
    monkeypatch.setattr(batches, "MAX_TOKEN_BYTES", 1000)
    Path("long.txt").write_text("a1\n" + "z" * 10_000 + "\na2\n")
    command = ["neighbors", "run", "--from", "long.txt", "--to", "out.csv"]
    assert main(command) == 0
    assert "; 1 is not in the vocabulary ('zzz" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["keys.txt", "keys.txt.gz", "keys.csv"])
def test_a_batch_tells_how_far_it_is(capsys, monkeypatch, name):
    monkeypatch.setattr(batches, "_KEYS", 2)
    seen = record_stages(monkeypatch)
    lines = "a1\nb2\na2\n"
    if name.endswith(".gz"):
        Path(name).write_bytes(gzip.compress(lines.encode()))
    else:
        Path(name).write_text("key\n" * name.endswith(".csv") + lines)
    assert main(["neighbors", "run", "--from", name, "--to", "out.csv"]) == 0
    of_all = "" if name.endswith(".gz") else " of 3"
    steps = [f"neighbours: {k}{of_all} queries" for k in (0, 2, 3)]
    assert seen[-4:-1] == steps and seen[-1].startswith("writing ")
    assert capsys.readouterr().out == "neighbours of 3 tokens; in out.csv\n"


def test_a_batch_of_one(capsys):
    Path("keys.txt").write_text("a1\n")
    assert main(["neighbors", "run", "--from", "keys.txt", "--to", "out.csv"]) == 0
    assert capsys.readouterr().out == "neighbours of 1 token; in out.csv\n"


@pytest.mark.slow
def test_memory_does_not_grow_with_the_queries(tmp_path, monkeypatch):
    """Ten times the queries; the numbers of the result alone take 32 MB."""
    monkeypatch.setattr(batches, "_ROWS", 2**17)
    rng = np.random.default_rng(0)
    keys = [f"k{i}" for i in range(500)]
    vectors = Vectors(keys, rng.standard_normal((500, 8)).astype(np.float32))
    find = of_vectors(vectors, "text", 10, None, "cosine")
    peaks = []
    for num in (20_000, 200_000):
        (tmp_path / "keys.txt").write_text("\n".join(rng.choice(keys, num)))
        tracemalloc.start()
        write_batch(
            *(str(tmp_path / "keys.txt"), tmp_path / "out.parquet"),
            *(vectors.__contains__, find, 10),
        )
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    frame = pl.scan_parquet(tmp_path / "out.parquet")
    assert frame.select(pl.len()).collect().item() == 2_000_000
    assert peaks[1] < 1.2 * peaks[0] + 2e6


def test_an_index_is_used_by_batches_and_exact_is_not(capsys, monkeypatch):
    pytest.importorskip("usearch")
    from embedder.vectors.index import VectorIndex

    rng = np.random.default_rng(0)
    keys = [f"k{i}" for i in range(400)]
    write_vectors(Vectors(keys, rng.standard_normal((400, 8))), "v.safetensors")
    Path("keys.txt").write_text("\n".join(keys[:100]))
    assert main(["index", "v.safetensors"]) == 0
    done = capsys.readouterr()
    assert done.out.startswith("v.safetensors.index: 400 vectors of 8 numbers by cos")
    assert "recall@10 " in done.out and "MiB, memory-mapped" in done.out
    assert "400 vectors: exact search is fast, too, below 200000." in done.err
    used, nearest = [], VectorIndex.nearest_rows
    monkeypatch.setattr(
        VectorIndex,
        "nearest_rows",
        lambda self, *a: used.append(len(a[0])) or nearest(self, *a),
    )
    command = ["neighbors", "v.safetensors"]
    batch = ["--from", "keys.txt", "--to", "out.parquet"]
    assert main([*command, *batch]) == 0 and used == [100]
    assert main([*command, "k1", "k2"]) == 0 and used == [100, 1, 1]
    assert main([*command, *batch, "--exact"]) == 0 and used == [100, 1, 1]
    vectors = read_vectors("v.safetensors")
    assert rows_of("out.parquet") == expected_rows(vectors, keys[:100], 10)
    assert not capsys.readouterr().err


@pytest.mark.row("F50", "F52")
def test_a_stale_or_damaged_index_is_named_in_one_line(capsys):
    pytest.importorskip("usearch")
    vectors = Vectors([*"abcdef"], np.random.default_rng(0).standard_normal((6, 4)))
    write_vectors(vectors, "s.npz")
    assert main(["index", "s.npz"]) == 0
    capsys.readouterr()
    assert main(["neighbors", "s.npz", "a", "--exact"]) == 0
    exact = capsys.readouterr().out
    about = Path("s.npz.index/about.json")
    whole = about.read_text()
    about.write_text(whole.replace('"rows": 6', '"rows": 7'))
    assert main(["neighbors", "s.npz", "a"]) == 0
    done = capsys.readouterr()
    assert done.out == exact
    (line,) = done.err.splitlines()
    assert line.startswith("Index s.npz.index is damaged (about.json: ")
    about.write_text(whole)
    write_vectors(Vectors(vectors.keys, -vectors.matrix), "s.npz")
    assert main(["neighbors", "s.npz", "a"]) == 0
    done = capsys.readouterr()
    assert done.out == exact
    (line,) = done.err.splitlines()
    assert line.startswith("Index s.npz.index is stale: it is of other vectors;")


@pytest.mark.row("B60")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["two"], "RUN must have no replicas, whose search is exact, got two"),
        (["none"], "RUN none does not exist."),
        (["run", "--recall", "2"], "`recall` must be in (0, 1], got 2.0."),
        (["run", "--connectivity", "1"], "`connectivity` must be 2 to 512, got 1."),
        (["run", "--metric", "l2"], "'l2' for argument '--metric'"),
        (["https://x.org/run"], "is a URL, where a path on this machine is needed"),
    ],
)
def test_wrong_arguments_of_index_are_refused(capsys, arguments, message):
    pytest.importorskip("usearch")
    assert main(["index", *arguments]) == 2
    assert message in error_line(capsys)


@pytest.mark.row("B59")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--min-count", "-1"], "`min_count` must be an integer >= 0, got -1."),
        (["--max-count", "-2"], "`max_count` must be an integer >= 0, got -2."),
        (["--min-count", "9999"], "`min_count` 9999 leaves no key of the vocabulary."),
        (
            ["--min-count", "9", "--max-count", "8"],
            "`min_count` 9 and `max_count` 8 leave no key of the vocabulary.",
        ),
        (
            ["--min-count", "105", "--names", "names.csv", "--where", "kind=x"],
            "`where` 'kind=x' and `min_count` 105 leave no key of the vocabulary.",
        ),
    ],
)
@pytest.mark.parametrize("run", ["run", "two"])
def test_filters_that_leave_nothing_are_refused(capsys, run, arguments, message):
    Path("keys.txt").write_text("a1\n")
    batch = ["--from", "keys.txt", "--to", "x.csv"]
    for words in (["b3"], ["--session", "b3"], batch):
        assert main(["neighbors", run, *words, *arguments]) == 2
        assert error_line(capsys) == f"embedder: {message}"
    assert main(["analogy", run, "b3", "b4", "b5", *arguments]) == 2
    assert error_line(capsys) == f"embedder: {message}"


@pytest.mark.row("B59")
def test_filters_by_count_need_counts(capsys):
    command = ["neighbors", "run/vectors.txt", "a1", "--min-count", "2"]
    assert main(command) == 2
    message = "`min_count` needs counts, which run/vectors.txt lacks."
    assert error_line(capsys) == f"embedder: {message}"


def test_neighbours_within_a_range_of_counts(capsys):
    vectors = read_vectors("run/vectors.safetensors")
    counts = dict(zip(vectors.keys, vectors.counts, strict=True))
    among = {key for key, count in counts.items() if 30 <= count <= 80}
    assert 1 < len(among) < 9
    command = ["neighbors", "run", "b3", "--min-count", "30", "--max-count", "80"]
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    expected = vectors.most_similar("b3", among=among)
    assert [line.split()[-1] for line in lines] == [key for key, _ in expected]
