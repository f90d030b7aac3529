"""Sessions in tables: formats, columns, grouping and order, and their weights."""

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from embedder import read_vectors
from embedder.base.limits import Limit
from embedder.cli.main import main
from embedder.data import row_sort
from embedder.data.columns import Columns
from embedder.data.corpus import Corpus, sequences_corpus
from embedder.data.encode import encode, encode_cached
from embedder.data.sessions import frame_corpus
from embedder.data.sources import file_corpus
from embedder.data.tables import reader as data_tables
from embedder.disk.digests import files_in, write_digests
from embedder.errors import InputError
from tests.commands import run_python

pytestmark = pytest.mark.usefixtures("own_folder")
FAST = ["--loader", "memory", "--vector-size", "4", "--min-count", "1", "--epochs", "1"]
ITEMS = [2**53 + 1, 2**53, 7, 10, 9]
GOOD = b"session,item\n1,a\n1,b\n"
FOUND, WEIGHTED, UNORDERED = Columns(), Columns(weights="w"), Columns(order="none")


def weight_of(session: int) -> float:
    return (0, 0.25, 1, 2.5, 3)[session % 5]


def table(num: int = 200) -> pl.DataFrame:
    """Rows in random order, some with equal times, some without a value; sessions with
    weight 0, too."""
    rng = random.Random(0)
    rows = [
        (rng.randrange(20), rng.choice(ITEMS), rng.randrange(9), rng.random())
        for _ in range(num)
    ]
    names = ["session", "item", "time", "price"]
    frame = pl.DataFrame(rows, schema=names, orient="row")
    weights = [weight_of(session) for session, *_ in rows]
    frame = frame.with_columns(pl.Series("w", weights, pl.Float64))
    return frame.with_columns(
        pl.when(pl.int_range(pl.len()) % 41 != k).then(name).alias(name)
        for k, name in enumerate(("session", "item", "time", "w"))
    )


def grouped(frame: pl.DataFrame, columns: Columns = FOUND) -> list:
    """The items and the weight of each session, by plain Python."""
    has_order, has_weights = columns.order != "none", bool(columns.weights)
    found: dict[str, list] = {}
    for session, item, time, _, weight in frame.rows():
        is_left_out = (has_order and time is None) or (has_weights and not weight)
        if None not in (session, item) and not is_left_out:
            found.setdefault(str(session), []).append((time, str(item)))
    for rows in found.values():
        if has_order:
            rows.sort(key=lambda row: row[0])
    return [
        ([item for _, item in found[key]], weight_of(int(key)) if has_weights else None)
        for key in sorted(found, key=lambda key: (len(key), key))
    ]


def read(corpus: Corpus) -> list[tuple[list[str], float | None]]:
    found = []
    for chunk in corpus.chunks():
        tokens, ends = chunk.tokens.to_list(), np.cumsum(chunk.lengths).tolist()
        weights = [None] * len(ends)
        if chunk.weights is not None:
            assert chunk.weights.dtype == np.float32
            weights = chunk.weights.tolist()
        bounds = zip([0, *ends], ends, weights, strict=False)
        found += [(tokens[a:b], weight) for a, b, weight in bounds if a < b]
    return found


def lists(corpus: Corpus) -> list[list[str]]:
    return [items for items, _ in read(corpus)]


def one(**columns) -> pl.LazyFrame:
    """Rows of one session."""
    size = len(next(iter(columns.values())))
    return pl.LazyFrame({"session": ["s"] * size, **columns}, strict=False)


WRITERS: dict[str, Callable] = {
    "a.parquet": lambda f, path: f.write_parquet(path, row_group_size=10),
    "a.csv": pl.DataFrame.write_csv,
    "c.csv": lambda f, path: f.write_csv(path, include_bom=True, quote_style="always"),
    "a.ndjson.gz": lambda f, path: path.write_bytes(
        gzip.compress(f.write_ndjson().encode())
    ),
    "a.arrow": pl.DataFrame.write_ipc,
    "a.arrows": pl.DataFrame.write_ipc_stream,
}


@pytest.mark.spread(4)
@pytest.mark.parametrize("name", WRITERS)
def test_each_format_gives_the_same_sessions(name):
    """With values that are missing; test_table_reader.py has what else files may be."""
    WRITERS[name](table(), Path(name))
    for columns in (FOUND, WEIGHTED):
        assert read(file_corpus(name, columns=columns)) == grouped(table(), columns)


@pytest.mark.spread(1)
@pytest.mark.parametrize("run_rows", [64, 1, 10**6, 7])
@pytest.mark.parametrize("batch_rows", [50, 7])
def test_sorting_in_runs_of_any_size_is_the_same(monkeypatch, run_rows, batch_rows):
    monkeypatch.setattr(row_sort, "RUN_ROWS", run_rows)
    monkeypatch.setattr(data_tables, "BATCH_ROWS", batch_rows)
    table().write_parquet("a.parquet", row_group_size=10)
    for columns in (FOUND, WEIGHTED, UNORDERED):
        found = read(file_corpus("a.parquet", columns=columns))
        assert found == grouped(table(), columns)
    long = one(item=range(30))  # in several runs
    assert lists(frame_corpus(long)) == [[str(i) for i in range(30)]]


def test_runs_are_sorted_in_the_cache_and_removed(monkeypatch):
    monkeypatch.setattr(row_sort, "RUN_ROWS", 50)
    monkeypatch.setattr(data_tables, "BATCH_ROWS", 10)
    seen = []
    write = pl.DataFrame.write_ipc
    monkeypatch.setattr(
        pl.DataFrame, "write_ipc", lambda *a, **k: (seen.append(a[1]), write(*a, **k))
    )
    table().write_parquet("a.parquet")
    encode_cached(file_corpus("a.parquet"), 1, Path("cache"))
    assert len(seen) > 2 and all("cache" in path.parts for path in seen)
    assert not list(Path("cache").rglob("*.arrow"))


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (["10", "9", "-1"], "cba"),
        (["1.5", "10.25", "9"], "acb"),
        (["1291191960000000001", "1291191960000000000", "0"], "cba"),
        (["2024-03-01", "2023-12-31", "2024-01-31"], "bca"),
        (["2024-03-01 10:00", "2024-03-01 09:59", "2024-03-01 10:01"], "bac"),
        ([f"2024-03-01T10:00:00{end}" for end in (".5", ".25", ".75")], "bac"),
        (
            [f"2024-03-01T{x}" for x in ("10:00:00+02:00", "09:00:00Z", "07:00:00Z")],
            "cab",
        ),
    ],
)
def test_text_is_ordered_as_numbers_or_times(times, expected):
    frame = one(item=list("abc"), time=times)
    assert lists(frame_corpus(frame)) == [list(expected)]


def test_a_column_of_times_is_the_order():
    frame = one(item=["a", "b"], x=pl.from_epoch(pl.Series([2, 1])))
    assert lists(frame_corpus(frame)) == [["b", "a"]]


def test_keys_stay_whole():
    keys = ["RED MUG", "007", "9007199254740993", "ä b", " x ", "1.0"]
    one(item=keys).collect().write_csv("a.csv")
    assert lists(file_corpus("a.csv")) == [keys]
    categories = one(item=pl.Series(keys, dtype=pl.Categorical))
    assert lists(frame_corpus(categories)) == [keys]
    floats = pl.LazyFrame({"session": [1.0, 1.0, None], "item": [7.0, np.nan, 8.0]})
    corpus = frame_corpus(floats)
    assert (lists(corpus), corpus.key_type) == ([["7"]], "integer")


def test_lists_are_sessions(caplog):
    caplog.set_level("INFO")
    baskets = [["a b", None, "c"], None, [], ["", "d"], ["e"], ["f"]]
    weights = [2.0, 1.0, 1.0, 0.5, None, 0.0]
    pl.DataFrame({"basket": baskets, "w": weights}).write_parquet("a.parquet")
    expected = [["a b", "c"], ["d"], ["e"], ["f"]]
    assert lists(file_corpus("a.parquet")) == expected
    for message in (
        "Corpus a.parquet is read as sessions: the lists of `basket`.",
        "Corpus a.parquet: rows without a value in basket, left out: 2 of 7.",
    ):
        assert message in caplog.messages
    found = read(file_corpus("a.parquet", columns=WEIGHTED))
    assert found == [(["a b", "c"], 2.0), (["d"], 0.5)]
    assert (
        "Corpus a.parquet: sessions with weight 0 or without a weight in w, left out: "
        "2." in caplog.messages
    )


def test_what_is_read_and_left_out_is_logged(caplog):
    caplog.set_level("INFO")
    read(frame_corpus(table().lazy(), FOUND, "a.csv"))
    read(frame_corpus(table().lazy(), WEIGHTED, "a.csv"))
    names, start = (
        ["session", "item", "time", "w"],
        "Corpus a.csv: rows without a value",
    )
    without, missing = (200 - len(table().drop_nulls(names[:k])) for k in (3, 4))
    for message in (
        "Corpus a.csv is read as sessions: `item` by `session`, in the order of "
        "`time`.",
        f"{start} in session or item or time, left out: {without} of 200.",
        "Corpus a.csv is read as sessions: `item` by `session`, in the order of "
        "`time`, with the weights `w`.",
        f"{start} in session or item or time or w, left out: {missing} of 200.",
        "Corpus a.csv: sessions with weight 0 in w, left out: 4.",
    ):
        assert message in caplog.messages


def test_several_files_are_one_table():
    frame = table()
    for day, part in (("2024-01-01", frame[:100]), ("2024-01-02", frame[100:])):
        Path(f"parts/day={day}").mkdir(parents=True)
        part.write_parquet(f"parts/day={day}/0.parquet")
        part.write_csv(f"{day}.csv")
    Path("parts/_SUCCESS").touch()
    assert read(file_corpus("parts")) == read(file_corpus("*.csv")) == grouped(frame)
    assert file_corpus("parts").name == "parts"
    by_day = file_corpus("parts", columns=Columns(session="day", order="none"))
    assert list(map(len, lists(by_day))) == [
        len(part.drop_nulls("item")) for part in (frame[:100], frame[100:])
    ]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["session", "item", "order"], ("session", "item", "order")),
        (["order_id", "Product-ID", "weight"], ("order_id", "Product-ID", "none")),
        (["InvoiceNo", "StockCode", "weights"], ("InvoiceNo", "StockCode", "none")),
        (["user_id", "session_id", "item_id"], ("session_id", "item_id", "none")),
    ],
)
def test_columns_are_found_by_their_names(names, expected):
    """A column of weights never is, and one that is named is not the order."""
    frame = pl.LazyFrame({name: [1, 2] for name in names})
    (facts,) = frame_corpus(frame).manifest
    assert tuple(facts["columns"].values()) == (*expected, "")
    ranked = frame_corpus(one(item=["a", "b"], rank=[2, 2]), Columns(weights="rank"))
    assert read(ranked) == [(["a", "b"], 2.0)]
    assert ranked.manifest[0]["columns"]["order"] == "none"


@pytest.mark.row("B19")
def test_a_table_that_changes_while_it_is_read_is_refused():
    Path("a.csv").write_bytes(GOOD)
    corpus = file_corpus("a.csv")
    Path("a.csv").write_bytes(GOOD + b"2,c\n")
    with pytest.raises(InputError, match="a.csv changed while it was read"):
        read(corpus)


@pytest.mark.row("B20")
def test_columns_make_text_a_table_and_tables_beside_text_are_left_out(caplog):
    caplog.set_level("INFO")
    Path("corpus").mkdir()
    Path("corpus/a.txt").write_bytes(b"id thing,x\n" + b"1,a b\n2,c\n" * 20)
    columns = Columns(session="id thing", item="x")
    assert lists(file_corpus("corpus/a.txt", columns=columns)) == [
        ["a b"] * 20,
        ["c"] * 20,
    ]
    Path("corpus/a.txt").write_text("x y\n")
    Path("corpus/b.csv").write_bytes(GOOD)
    assert lists(file_corpus("corpus")) == [["x", "y"]]
    assert "Corpus corpus: tables beside text, left out: 1." in caplog.messages


@pytest.mark.parametrize("shard_tokens", [7, 100])
def test_a_cache_has_the_weights_that_memory_has(monkeypatch, shard_tokens):
    """In the larger shards no session is cut."""
    monkeypatch.setattr("embedder.data.shards.SHARD_TOKENS", shard_tokens)
    corpus = frame_corpus(table(600).lazy(), WEIGHTED)
    whole = grouped(table(600), WEIGHTED)
    for encoded in (
        encode(corpus, 1),
        encode_cached(corpus, 1, Path("cache")),  # as it is written
        encode_cached(corpus, 1, Path("cache")),  # as it is read
    ):
        shards = range(len(encoded.shard_tokens))
        of_sequence = [encoded.weights(z) for z in shards]
        lengths = [encoded.read(z)[1] for z in shards]
        assert len(shards) > 3 and {x.dtype for x in of_sequence} == {np.dtype("f4")}
        found = [x.repeat(n) for x, n in zip(of_sequence, lengths, strict=True)]
        expected = [weight for items, weight in whole for _ in items]
        assert np.concatenate(found).tolist() == expected
        if shard_tokens == 100:
            mean = np.mean([weight for _, weight in whole])
            assert f"mean weight of a session {mean:.4g}" in encoded.description


def test_a_cache_without_weights_is_as_it_always_was():
    corpus = sequences_corpus([["b", "a", "b"], ["x"], [], ["a", "c", "b", "c"]])
    encoded = encode_cached(corpus, 1, Path("cache"))
    (folder,) = Path("cache").iterdir()
    assert folder.name == "5650b5307a574896"
    assert sorted(np.load(folder / "shard-00000.npz")) == ["ids", "lengths"]
    assert json.loads((folder / "shards.json").read_text()) == {
        "raw_tokens": 8,
        "shard_tokens": [8],
        "dropped_types": 0,
    }
    assert not encoded.has_weights and encoded.weights(0) is None
    assert encoded.content == encoded.vocabulary.digest


WRONG: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray | None], str]] = {
    "missing": ("weights", lambda x: None, ""),
    "long": ("weights", lambda x: np.append(x, x[:1]), ""),
    "double": ("weights", lambda x: x.astype(np.float64), ""),
    "wide": ("weights", lambda x: x[np.newaxis], ""),
    "negative": ("weights", lambda x: -x, ""),
    "zero": ("weights", lambda x: 0 * x, ""),
    "nan": ("weights", lambda x: x * np.float32(np.nan), ""),
    "inf": ("weights", lambda x: x * np.float32(np.inf), ""),
    "too large": ("ids", lambda x: x + 1, "ids must be from 0 to 4"),
    "below 0": ("ids", lambda x: x - 1, "ids must be from 0 to 4"),
    "floats": ("ids", lambda x: x.astype(np.float32), "must hold int32"),
    "few ids": ("ids", lambda x: x[1:], "must hold [0-9]+ tokens"),
    "few lengths": ("lengths", lambda x: x[1:], "must hold [0-9]+ tokens"),
    "below 1": ("lengths", lambda x: np.append(x, np.int32([1, -1])), "lengths >= 1"),
}


@pytest.mark.row("B6", "B32")
@pytest.mark.parametrize("wrong", WRONG)
def test_a_shard_that_does_not_fit_its_cache_is_damaged(wrong):
    corpus = frame_corpus(table().lazy(), WEIGHTED)
    encode_cached(corpus, 1, Path("cache"))
    (path,) = Path("cache").rglob("shard-00000.npz")
    arrays, (name, change, reason) = dict(np.load(path)), WRONG[wrong]
    arrays[name] = change(arrays[name])
    np.savez(path, **{k: x for k, x in arrays.items() if x is not None})
    write_digests(path.parent, files_in(path.parent))
    encoded = encode_cached(corpus, 1, Path("cache"))
    read = encoded.weights if name == "weights" else encoded.read
    message = f"Cache file .*shard-00000.npz is damaged.*{reason}"
    with pytest.raises(InputError, match=message):
        read(0)


def test_a_run_of_sessions(capsys):
    table(2000).write_parquet("a.parquet")
    run = ["train", "a.parquet", "--workdir", "run", *FAST]
    assert main([*run, "--weights", "w"]) == 0
    assert sorted(read_vectors("run").keys) == sorted(map(str, ITEMS))
    named = ["--session", "session", "--item", "item", "--order", "time"]
    capsys.readouterr()
    for flags in ([], named):
        assert main([*run, "--weights", "w", *flags]) == 0
        assert "finished before" in capsys.readouterr().out
    for flags, message in (
        (["--weights", "w", "--order", "price"], "`order` 'time' there, 'price' now"),
        (named, "`weights` 'w' there, '' now"),
    ):
        assert main([*run, *flags]) == 2
        assert message in capsys.readouterr().err


@pytest.mark.spread(2)
@pytest.mark.parametrize(
    ("items", "dtype"),
    [
        (pl.Series([5, 2**53 + 1], dtype=pl.UInt64), pl.Int64),
        (pl.Series([5, 2**64 - 1], dtype=pl.UInt64), pl.UInt64),
        (pl.Series([5, 2**70], dtype=pl.Int128), pl.String),
        (pl.Series(["5", "6"]), pl.String),
    ],
    ids=["Int64", "UInt64", "larger", "text"],
)
def test_exported_keys_have_the_type_of_the_items(items, dtype):
    frame = pl.concat([pl.DataFrame({"session": 1, "item": items})] * 30)
    frame.write_parquet("a.parquet")
    assert main(["train", "a.parquet", "--workdir", "run", *FAST]) == 0
    assert main(["export", "run", "--to", "vectors.parquet"]) == 0
    keys = pl.read_parquet("vectors.parquet")["key"]
    assert keys.dtype == dtype
    assert {*keys.cast(pl.String)} == {*items.cast(pl.String)}
    again = read_vectors("vectors.parquet")
    assert again.keys == read_vectors("run/vectors.safetensors").keys
    assert again.key_type == ("text" if dtype == pl.String else "integer")


# --- tables larger than memory, which are read in pieces and sorted on disk

READ = """
import re, sys
from pathlib import Path
from embedder.data import row_sort
from embedder.data.sources import file_corpus

row_sort.RUN_ROWS = int(sys.argv[3])
corpus = file_corpus(sys.argv[1])
print(sum(len(chunk.tokens) for chunk in corpus.chunks_in(Path(sys.argv[2]))))
print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""
ROWS = 10**6  # of a file
SORTED_ROWS = 2**17  # at a time
GROUP_ROWS = 2**15  # of Parquet; polars reads several groups ahead


def write_table(folder: Path, num_files: int) -> Path:
    """Random sessions, so that no two rows of one are neighbours, and times as text."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    for number in range(num_files):
        columns = {
            "session": rng.integers(0, num_files * ROWS // 10, ROWS),
            "item": rng.integers(0, 5000, ROWS),
            "order": rng.integers(0, 10**6, ROWS),
        }
        rows = pl.DataFrame(columns).with_columns(pl.col("order").cast(pl.String))
        rows.write_parquet(folder / f"{number}.parquet", row_group_size=GROUP_ROWS)
    return folder


def most_memory(table: Path, num_rows: int) -> int:
    """MiB that a process takes at most that reads these rows."""
    done = run_python("-c", READ, table, table.parent, SORTED_ROWS)
    assert done.returncode == 0, done.stderr
    num_items, peak = map(int, done.stdout.split())
    assert num_items == num_rows
    return peak // 1024


@pytest.mark.slow
def test_memory_does_not_grow_with_a_table_of_unsorted_rows(tmp_path):
    """If all rows were in memory at a time, 4 M more would take 120 MiB more."""
    few, many = write_table(tmp_path / "few", 3), write_table(tmp_path / "many", 7)
    growth = most_memory(many, 7 * ROWS) - most_memory(few, 3 * ROWS)
    assert growth < 60, growth


@pytest.mark.row("B41")
def test_a_table_that_cannot_be_sorted_is_refused(monkeypatch, capsys):
    """Before polars is out of memory: it would end the process."""
    rows = {"session": np.arange(1200) % 300, "item": np.arange(1200) % 7}
    pl.DataFrame(rows).write_parquet("t.parquet")
    monkeypatch.setattr(row_sort, "RUN_ROWS", 500)
    monkeypatch.setattr(data_tables, "BATCH_ROWS", 100)
    limit = Limit(2**14, "data (ulimit -d)")
    command = "train t.parquet --workdir run --loader memory --min-count 1 --epochs 1"
    assert main([*command.split(), "--dry-run"]) == 0, capsys.readouterr().err
    monkeypatch.setattr("embedder.base.limits.memory_limit", lambda: limit)
    assert main([*command.split(), "--dry-run"]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert "embedder: Sorting the rows of the table takes 0.1 MiB" in line
    assert "more than the 0.0 MiB of data (ulimit -d): raise that limit." in line
