"""`neighbors --from`: the neighbours of all keys of a file."""

import gzip
import json
import os
import shutil
import tracemalloc
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from embedder import Vectors, read_ensemble, read_vectors, write_vectors
from embedder.cli.lookup import batches
from embedder.cli.lookup.batches import told_keys
from embedder.cli.main import main
from embedder.data.names import read_names
from embedder.errors import InputError
from tests.commands import record_stages, run_python
from tests.lookup.conftest import TRAIN

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


def test_a_batch_has_the_rows_of_each_query_in_turn(capsys, monkeypatch):
    """Whatever the parts in which queries are answered and rows written."""
    monkeypatch.setattr(batches, "_KEYS", 2)
    monkeypatch.setattr(batches, "_ROWS", 7)
    Path("keys.txt").write_text("a1\nb3\r\n\nunknown\nb5\na1\nA1\na2\n")
    command = ["neighbors", "run", "--from", "keys.txt", "--to", "out.parquet"]
    assert main([*command, "--topn", "3"]) == 0
    expected = "neighbours of 5 tokens; 2 are not in the vocabulary ('unknown', 'A1'); "
    assert capsys.readouterr().out == expected + "in out.parquet\n"
    kinds = {"query": pl.String, "key": pl.String, "rank": pl.Int32}
    schema = pl.read_parquet("out.parquet").schema
    assert schema == kinds | {"similarity": pl.Float32}
    vectors = read_vectors("run/vectors.safetensors")
    keys = ["a1", "b3", "b5", "a1", "a2"]
    assert rows_of("out.parquet") == expected_rows(vectors, keys, 3)
    assert [name for name in os.listdir() if name.endswith(".tmp")] == []


def test_without_a_query_all_keys_are_written_with_their_names():
    Path("two.csv").write_text("key,name\na1,One\nb3,Three\n")
    path = "run/vectors.safetensors"  # a run would keep the names
    command = ["neighbors", path, "--names", "two.csv", "--topn", "3"]
    assert main([*command, "--to", "out.parquet"]) == 0
    vectors, names = read_vectors(path), {"a1": "One", "b3": "Three"}
    assert rows_of("out.parquet") == expected_rows(vectors, vectors.keys, 3)
    found = pl.read_parquet("out.parquet")
    for key, name in (("query", "query_name"), ("key", "name")):
        assert found[name].to_list() == [names.get(each) for each in found[key]]


def test_keys_of_tables_of_compressed_text_and_of_a_url():
    keys = ["a1", "b2", "nothing"]
    pl.DataFrame({"n": [1, 2, 3], "key": keys}).write_parquet("keys.parquet")
    pl.DataFrame({"key": keys}).write_csv("keys.csv")
    Path("keys.txt.gz").write_bytes(gzip.compress("\n".join(keys).encode()))
    Path("KEYS.TXT.GZ").write_bytes(Path("keys.txt.gz").read_bytes())
    Path("mark.txt").write_bytes(b"\xef\xbb\xbf" + "\n".join(keys).encode())
    for path in ("keys.parquet", "keys.csv", "keys.txt.gz", "KEYS.TXT.GZ", "mark.txt"):
        assert [*told_keys(path)] == [keys]
    assert [*told_keys(f"file://{Path('mark.txt').resolve()}")] == [keys]
    assert [*told_keys("keys.parquet", 2)] == [keys[:2], keys[2:]]


@pytest.mark.slow
def test_memory_does_not_grow_with_the_queries(monkeypatch):
    """Ten times the queries; the numbers of the result alone take 32 MB."""
    monkeypatch.setattr(batches, "_ROWS", 2**17)
    rng, keys, peaks = np.random.default_rng(0), [f"k{i}" for i in range(500)], []
    matrix = rng.standard_normal((500, 8)).astype(np.float32)
    write_vectors(Vectors(keys, matrix), "many.npz")
    command = ["neighbors", "many.npz", "--from", "keys.txt", "--to", "out.parquet"]
    for num in (20_000, 200_000):
        Path("keys.txt").write_text("\n".join(rng.choice(keys, num)))
        tracemalloc.start()
        assert main(command) == 0
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    frame = pl.scan_parquet("out.parquet")
    assert frame.select(pl.len()).collect().item() == 2_000_000
    assert peaks[1] < 1.2 * peaks[0] + 2e6


def batch(capsys, lines: str, to: str, *options: str, run: str = "run") -> str:
    """What `neighbors --from` prints."""
    Path("some.txt").write_text(lines)
    assert main(["neighbors", run, "--from", "some.txt", "--to", to, *options]) == 0
    return capsys.readouterr().out


def test_words_are_written_as_those_of_a_file(capsys):
    batch(capsys, "b1\na2\n", "file.csv", "--topn", "3")
    words = ["neighbors", "run", "b1", "a2", "--topn", "3", "--to", "words.csv"]
    assert main(words) == 0
    assert Path("words.csv").read_text() == Path("file.csv").read_text()
    assert main(["neighbors", "run", "b1", "zz", "--to", "words.csv"]) == 2


def test_a_pipe_is_read_once():
    reading, writing = os.pipe()
    with open(writing, "w") as file:
        file.write("a1\nb2\n")
    assert [*told_keys(f"/dev/fd/{reading}")] == [["a1", "b2"]]
    os.close(reading)


def test_standard_input_is_a_dash():
    code = "from embedder.cli.lookup import batches; print(*batches.told_keys('-'))"
    assert run_python("-c", code, input="a1\nb2\n").stdout == "['a1', 'b2']\n"


def test_a_table_is_no_pipe():
    os.mkfifo("piped.csv")
    with open(os.open("piped.csv", os.O_RDWR), "w") as file:
        file.write("key,name\na1,x\n")
        file.flush()
        with pytest.raises(InputError, match=r"^piped.csv is a pipe: write it to a f"):
            read_names("piped.csv")


def test_unknown_words_of_a_batch_have_the_vectors_of_their_ngrams(capsys):
    Path("night.txt").write_text("night nights day days\nnight fall\n" * 40)
    train = ["train", "night.txt", "--workdir", "night", "--subwords", "3", "4"]
    assert main([*train, "--buckets", "1000", *TRAIN]) == 0
    capsys.readouterr()
    Path("k.txt").write_text("nightt\nnight\nx\n\n")
    batch = ["neighbors", "night", "--from", "k.txt", "--to", "n.parquet"]
    assert main([*batch, "--topn", "9"]) == 0
    assert "2 tokens" not in capsys.readouterr().out
    vectors = read_vectors("night")
    keys = ["nightt", "night", "x"]
    assert rows_of("n.parquet") == expected_rows(vectors, keys, 9)
    assert main([*batch, "--topn", "2", "--min-count", "50"]) == 0
    assert rows_of("n.parquet") == expected_rows(vectors, keys, 2, among=["night"])
    capsys.readouterr()
    Path("p.tsv").write_text("nightt\tnight\t2\nday\tdays\t3\nnight\tfall\t1\n")
    assert main(["evaluate", "night", "--pairs", "p.tsv", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["counts"] == {"pairs": 3, "unknown": 0}
    assert list(found["baselines"]) == ["frequency", "co-occurrence"]
    # -log of 80 / 1, 40 / 40 and 80 / 40, against 2 3 1
    frequency = np.corrcoef([-np.log(80), 0, -np.log(2)], [2, 3, 1])[0, 1]
    pearson = found["baselines"]["frequency"]["Pearson"]["value"]
    assert pearson == pytest.approx(frequency)


def test_a_batch_as_csv(capsys, monkeypatch):
    """A line without an end is one unknown token."""
    said = batch(capsys, "b3\n", "out.csv", "--topn", "1")
    assert said == "neighbours of 1 token; in out.csv\n"
    ((key, _),) = read_vectors("run/vectors.safetensors").most_similar("b3", topn=1)
    lines = Path("out.csv").read_text().splitlines()
    assert lines[0] == "query,key,rank,similarity"
    assert lines[1].startswith(f"b3,{key},1,")
    monkeypatch.setattr("embedder.data.tables.key_lists.MAX_TOKEN_BYTES", 1000)
    said = batch(capsys, "a1\n" + "z" * 10_000 + "\na2\n", "out.csv")
    assert "; 1 is not in the vocabulary ('zzz" in said


def test_integer_keys_stay_integers(capsys):
    batch(capsys, "100\n109\n7\n", "out.parquet", "--topn", "2", run="numbered")
    frame = pl.read_parquet("out.parquet")
    assert frame.dtypes[:2] == [pl.Int64, pl.Int64]
    assert frame["query"].to_list() == [100, 100, 109, 109]


def test_a_batch_of_replicas_has_intervals(capsys):
    batch(capsys, "b3\na2\n", "two.parquet", "--topn", "2", "--stable", run="two")
    found = read_ensemble("two").neighbors(["b3", "a2"], 2, order="lower")
    expected = [
        (query, near.token, rank, *map(np.float32, near[1:4]), near.frequency)
        for query, row in zip(["b3", "a2"], found, strict=True)
        for rank, near in enumerate(row, 1)
    ]
    frame = pl.read_parquet("two.parquet")
    assert frame.columns[3:] == ["similarity", "lower", "upper", "replicas"]
    rows = [(*r[:3], *map(np.float32, r[3:6]), r[6]) for r in frame.rows()]
    assert rows == expected


def test_filters_and_the_dot_product_apply_to_batches_and_words(capsys):
    vectors, queries = read_vectors("run/vectors.safetensors"), ["b3", "a2"]
    counts = dict(zip(vectors.keys, vectors.counts, strict=True))
    least, most = sorted(counts.values())[2], sorted(counts.values())[6]
    among = {key for key, count in counts.items() if least <= count <= most}
    assert 4 < len(among) < 9
    bounds = ["--min-count", str(least), "--max-count", str(most)]
    batch(capsys, "b3\na2\n", "out.parquet", *bounds)
    assert rows_of("out.parquet") == expected_rows(vectors, queries, 10, among=among)
    assert main(["neighbors", "run", "b3", *bounds]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    expected = vectors.most_similar("b3", among=among)
    assert [line.split()[-1] for line in lines] == [key for key, _ in expected]
    batch(capsys, "b3\na2\n", "out.parquet", "--metric", "dot", "--topn", "2")
    assert rows_of("out.parquet") == expected_rows(vectors, queries, 2, metric="dot")
    assert pl.read_parquet("out.parquet").columns[3] == "product"


@pytest.mark.parametrize("name", ["keys.txt", "keys.txt.gz", "keys.csv"])
def test_a_batch_tells_how_far_it_is(capsys, monkeypatch, name):
    monkeypatch.setattr(batches, "_KEYS", 2)
    seen = record_stages(monkeypatch)
    lines = ("key\n" * name.endswith(".csv") + "a1\nb2\na2\n").encode()
    Path(name).write_bytes(gzip.compress(lines) if name.endswith(".gz") else lines)
    assert main(["neighbors", "run", "--from", name, "--to", "out.csv"]) == 0
    of_all = "" if name.endswith(".gz") else " of 3"
    steps = [f"neighbours: {k}{of_all} queries" for k in (0, 2, 3)]
    assert seen[-4:-1] == steps and seen[-1].startswith("writing ")
    assert capsys.readouterr().out == "neighbours of 3 tokens; in out.csv\n"


@pytest.mark.row("F50", "F52")
def test_an_index_is_used_unless_it_is_stale_or_damaged(capsys, monkeypatch):
    pytest.importorskip("usearch")
    from embedder.vectors.index import VectorIndex

    keys = [f"k{i}" for i in range(400)]
    vectors = Vectors(keys, np.random.default_rng(0).standard_normal((400, 8)))
    write_vectors(vectors, "v.npz")
    assert main(["index", "v.npz"]) == 0
    done = capsys.readouterr()
    assert done.out.startswith("v.npz.index: 400 vectors of 8 numbers by cos")
    assert "recall@10 " in done.out and "MiB, memory-mapped" in done.out
    assert "400 vectors: exact search is fast, too, below 200000." in done.err
    used, nearest = [], VectorIndex.nearest_rows

    def nearest_rows(self, *given):
        used.append(len(given[0]))
        return nearest(self, *given)

    monkeypatch.setattr(VectorIndex, "nearest_rows", nearest_rows)
    batch(capsys, "\n".join(keys[:100]), "out.parquet", run="v.npz")
    found = {row[:2]: row[3] for row in rows_of("out.parquet")}
    exact = {row[:2]: row[3] for row in expected_rows(vectors, keys[:100], 10)}
    both = found.keys() & exact.keys()
    # An index is built to find 95 % or more of the nearest.
    assert len(both) >= 0.9 * len(found) == 900
    assert [found[x] for x in both] == pytest.approx([exact[x] for x in both])
    assert main(["neighbors", "v.npz", "k1", "k2"]) == 0 and used == [100, 1, 1]
    batch(capsys, "\n".join(keys), "out.parquet", "--exact", run="v.npz")
    assert main(["neighbors", "v.npz", "k1", "--exact"]) == 0 and used == [100, 1, 1]
    exact, about = capsys.readouterr().out, Path("v.npz.index/about.json")
    whole = about.read_text()
    for text, what in (
        (whole.replace('"rows": 400', '"rows": 401'), "damaged (about.json: "),
        (whole, "stale: it is of other vectors;"),
    ):
        about.write_text(text)
        assert main(["neighbors", "v.npz", "k1"]) == 0 and used == [100, 1, 1]
        done = capsys.readouterr()
        assert done.out == exact
        (line,) = done.err.splitlines()
        assert line.startswith(f"Index v.npz.index is {what}")
        write_vectors(Vectors(keys, -vectors.matrix), "v.npz")


def test_a_run_uses_its_index_and_a_file_if_that_is_asked_for():
    """Integer keys stay integers."""
    pytest.importorskip("usearch")

    def uses_index(*given, **options) -> bool:
        return vars(read_vectors(*given, **options)).get("_index") is not None

    shutil.copytree("numbered", "indexed")
    of_file = read_vectors("indexed/vectors.safetensors")
    found = read_vectors("indexed")
    assert found.keys == of_file.keys and found.key_type == "integer"
    np.testing.assert_array_equal(found.matrix, of_file.matrix)
    write_vectors(of_file, "few.npz")
    for run in ("indexed", "few.npz"):
        assert not uses_index(run) and main(["index", run]) == 0
        assert uses_index(Path(run), index="auto") and not uses_index(run, index="none")
        assert uses_index(run) == (run == "indexed")
    assert Path("few.npz.index/about.json").exists()
