"""Sessions in tables: formats, columns, grouping and order, and what is refused."""

import gzip
import logging
import random
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from embedder.cli import main
from embedder.errors import InputError
from embedder.tables import row_sort, sessions
from embedder.tables.columns import Columns
from embedder.tables.corpus import Corpus
from embedder.tables.encode import encode_cached
from embedder.tables.sessions import frame_corpus
from embedder.tables.sources import file_corpus
from embedder.vectors.export import read_vectors
from tests.commands import error_line

FAST = ["--loader", "memory", "--vector-size", "4", "--min-count", "1", "--epochs", "1"]
ITEMS = [2**53 + 1, 2**53, 7, 10, 9]


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def table(num: int = 200, seed: int = 0) -> pl.DataFrame:
    """Rows in random order, some with equal times, some without a value."""
    rng = random.Random(seed)
    rows = [
        (rng.randrange(20), rng.choice(ITEMS), rng.randrange(9), rng.random())
        for _ in range(num)
    ]
    names = ["session", "item", "time", "price"]
    frame = pl.DataFrame(rows, schema=names, orient="row")
    return frame.with_columns(
        pl.when(pl.int_range(pl.len()) % 41 != k).then(name).alias(name)
        for k, name in enumerate(("session", "item", "time"))
    )


def grouped(frame: pl.DataFrame, has_order: bool = True) -> list[list[str]]:
    """The sessions, by plain Python."""
    found: dict[str, list] = {}
    for session, item, time, _ in frame.rows():
        if None in (session, item) or (has_order and time is None):
            continue
        found.setdefault(str(session), []).append((time, str(item)))
    for rows in found.values():
        if has_order:
            rows.sort(key=lambda row: row[0])
    return [[item for _, item in found[key]] for key in sorted(found)]


def read(corpus: Corpus) -> list[list[str]]:
    found = []
    for chunk in corpus.chunks():
        tokens, ends = chunk.tokens.to_list(), np.cumsum(chunk.lengths).tolist()
        parts = [tokens[a:b] for a, b in zip([0, *ends], ends, strict=False)]
        found += [part for part in parts if part]
    return found


WRITERS = {
    "a.parquet": pl.DataFrame.write_parquet,
    "a.csv": pl.DataFrame.write_csv,
    "a.tsv": lambda f, path: f.write_csv(path, separator="\t"),
    "b.csv": lambda f, path: f.write_csv(path, separator=";", line_terminator="\r\n"),
    "c.csv": lambda f, path: f.write_csv(path, include_bom=True, quote_style="always"),
    "a.csv.gz": lambda f, path: path.write_bytes(gzip.compress(csv(f))),
    "a.jsonl": pl.DataFrame.write_ndjson,
    "a.ndjson.gz": lambda f, path: path.write_bytes(gzip.compress(json_lines(f))),
    "a.arrow": pl.DataFrame.write_ipc,
    "a.arrows": pl.DataFrame.write_ipc_stream,
    "rows.txt": pl.DataFrame.write_parquet,
    "rows": pl.DataFrame.write_ipc,
}


def csv(frame: pl.DataFrame) -> bytes:
    return frame.write_csv().encode()


def json_lines(frame: pl.DataFrame) -> bytes:
    return frame.write_ndjson().encode()


@pytest.mark.spread(9)
@pytest.mark.parametrize("name", WRITERS)
def test_each_format_gives_the_same_sessions(name):
    WRITERS[name](table(), Path(name))
    assert read(file_corpus(name)) == grouped(table())


@pytest.mark.slow
@pytest.mark.parametrize("run_rows", [1, 7, 64, 10**6])
@pytest.mark.parametrize("batch_rows", [3, 50])
def test_sorting_in_runs_of_any_size_is_the_same(monkeypatch, run_rows, batch_rows):
    monkeypatch.setattr(row_sort, "RUN_ROWS", run_rows)
    monkeypatch.setattr(sessions, "_BATCH_ROWS", batch_rows)
    table().write_parquet("a.parquet", row_group_size=10)
    assert read(file_corpus("a.parquet")) == grouped(table())
    no_order = Columns(order="none")
    assert read(file_corpus("a.parquet", columns=no_order)) == grouped(table(), False)


def test_runs_are_sorted_in_the_cache_and_removed(monkeypatch):
    monkeypatch.setattr(row_sort, "RUN_ROWS", 50)
    monkeypatch.setattr(sessions, "_BATCH_ROWS", 10)
    seen = []
    write = pl.DataFrame.write_ipc
    monkeypatch.setattr(
        pl.DataFrame, "write_ipc", lambda *a, **k: (seen.append(a[1]), write(*a, **k))
    )
    table().write_parquet("a.parquet")
    encoded = encode_cached(file_corpus("a.parquet"), 1, Path("cache"))
    assert len(seen) > 2 and all("cache" in path.parts for path in seen)
    assert encoded.num_tokens == sum(map(len, grouped(table())))
    assert not list(Path("cache").rglob("*.arrow"))


def test_a_session_longer_than_a_run_is_whole(monkeypatch):
    monkeypatch.setattr(row_sort, "RUN_ROWS", 4)
    monkeypatch.setattr(sessions, "_BATCH_ROWS", 2)
    frame = pl.DataFrame({"session": [1] * 30, "item": range(30)})
    assert read(frame_corpus(frame.lazy())) == [[str(i) for i in range(30)]]


def test_the_order_of_rows_changes_nothing_where_times_differ():
    frame = pl.DataFrame(
        {"basket": [3, 1, 3, 1, 2], "sku": list("abcde"), "ts": [5, 4, 3, 2, 1]}
    )
    expected = [["d", "b"], ["e"], ["c", "a"]]
    for seed in range(3):
        shuffled = frame.sample(fraction=1, shuffle=True, seed=seed)
        assert read(frame_corpus(shuffled.lazy())) == expected


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (["10", "9", "-1"], "cba"),
        (["1.5", "10.25", "9"], "acb"),
        (["1291191960000000001", "1291191960000000000", "0"], "cba"),
        (["2024-03-01", "2023-12-31", "2024-01-31"], "bca"),
        (["2024-03-01 10:00", "2024-03-01 09:59", "2024-03-01 10:01"], "bac"),
        (
            ["2024-03-01T10:00:00.5", "2024-03-01T10:00:00.25", "2025-03-01T10:00:00"],
            "bac",
        ),
        (
            [
                "2024-03-01T10:00:00+02:00",
                "2024-03-01T09:00:00Z",
                "2024-03-01T07:00:00Z",
            ],
            "cab",
        ),
    ],
)
def test_text_is_ordered_as_numbers_or_times(times, expected):
    frame = pl.DataFrame({"session": ["s"] * 3, "item": list("abc"), "time": times})
    assert read(frame_corpus(frame.lazy())) == [list(expected)]


def test_keys_stay_whole():
    keys = ["RED MUG", "007", "9007199254740993", "ä b", " x ", "1.0"]
    frame = pl.DataFrame({"session": ["s"] * 6, "item": keys})
    frame.write_csv("a.csv")
    assert read(file_corpus("a.csv")) == [keys]
    categories = frame.with_columns(pl.col("item").cast(pl.Categorical))
    assert read(frame_corpus(categories.lazy())) == [keys]
    assert frame_corpus(frame.lazy()).key_type == "text"


def test_floats_of_integers_are_these_integers():
    frame = pl.DataFrame({"session": [1.0, 1.0, None], "item": [7.0, np.nan, 8.0]})
    corpus = frame_corpus(frame.lazy())
    assert (read(corpus), corpus.key_type) == ([["7"]], "integer")


def test_lists_are_sessions(caplog):
    caplog.set_level(logging.INFO)
    items = [["a b", None, "c"], None, [], ["", "d"]]
    pl.DataFrame({"user": [1, 2, 3, 4], "basket": items}).write_parquet("a.parquet")
    assert read(file_corpus("a.parquet")) == [["a b", "c"], ["d"]]
    assert "is read as sessions: the lists of `basket`." in caplog.text
    assert "rows without a value in basket, left out: 2 of 5." in caplog.text


def test_what_is_read_and_left_out_is_logged(caplog):
    caplog.set_level(logging.INFO)
    table().write_csv("a.csv")
    read(file_corpus("a.csv"))
    assert (
        "Corpus a.csv is read as sessions: `item` by `session`, in the order of `time`."
    ) in caplog.messages
    num = len(table()) - len(table().drop_nulls(["session", "item", "time"]))
    assert (
        "Corpus a.csv: rows without a value in session or item or time, left out: "
        f"{num} of 200."
    ) in caplog.messages


def test_several_files_are_one_table():
    frame = table()
    for folder in ("day=2024-01-01", "day=2024-01-02"):
        Path("parts", folder).mkdir(parents=True)
    frame[:100].write_parquet("parts/day=2024-01-01/0.parquet")
    frame[100:].write_parquet("parts/day=2024-01-02/0.parquet")
    Path("parts/_SUCCESS").touch()
    frame[:100].write_csv("one.csv")
    frame[100:].write_csv("two.csv")
    assert read(file_corpus("parts")) == grouped(frame)
    assert read(file_corpus("*.csv")) == grouped(frame)
    assert file_corpus("parts").name == "parts"
    by_day = file_corpus("parts", columns=Columns(session="day", order="none"))
    assert list(map(len, read(by_day))) == [
        len(part.drop_nulls("item")) for part in (frame[:100], frame[100:])
    ]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["session", "item", "order"], ("session", "item", "order")),
        (["order_id", "Product-ID", "x"], ("order_id", "Product-ID", "none")),
        (["InvoiceNo", "StockCode", "x"], ("InvoiceNo", "StockCode", "none")),
        (["user_id", "session_id", "item_id"], ("session_id", "item_id", "none")),
    ],
)
def test_columns_are_found_by_their_names(names, expected):
    frame = pl.DataFrame({name: [1, 2] for name in names})
    (facts,) = frame_corpus(frame.lazy()).manifest
    assert tuple(facts["columns"].values()) == (*expected, "")


def test_a_column_of_times_is_the_order():
    frame = pl.DataFrame({"session": [1, 1], "item": ["a", "b"], "x": [2, 1]})
    frame = frame.with_columns(pl.from_epoch("x"))
    assert read(frame_corpus(frame.lazy())) == [["b", "a"]]


SHOWN = r"has the columns user Int64 \(1, 2\), thing String \(a b, c\)"


@pytest.mark.row("B20")
@pytest.mark.parametrize("name", ["edges.tsv", "edges.csv"])
def test_an_edge_list_with_the_name_of_a_table_is_told_of_walks(tmp_path, capsys, name):
    path, between = tmp_path / name, "\t" if name.endswith("tsv") else ","
    path.write_text("".join(f"{i}{between}{i + 1}\n" for i in range(30)))
    assert main(["train", str(path), "--workdir", str(tmp_path / "run")]) == 2
    assert "or --walks 10 for the edges of a graph." in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.row("B26")
@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({}, f"{SHOWN}.* Which one is the session is not clear: give --session COLUMN"),
        ({"session": "user"}, "Which one is the item is not clear"),
        ({"session": "users"}, f"got 'users'. Did you mean `user`. .*{SHOWN}"),
        ({"session": "user", "item": "user"}, "must be different columns"),
        ({"items": "thing"}, "a column of lists .*, got 'thing' of String"),
        ({"items": "thing", "item": "user"}, "leave out `session`, `item` and `order`"),
        ({"session": "user", "item": "flag"}, "integers or text, got 'flag'"),
        (
            {"session": "user", "item": "thing", "order": "flag"},
            "`order` must be a column of numbers, .*, got 'flag' of Boolean",
        ),
    ],
)
def test_unclear_columns_are_refused(columns, message):
    frame = pl.DataFrame({"user": [1, 2], "thing": ["a b", "c"], "flag": [True, False]})
    with pytest.raises(InputError, match=message):
        frame_corpus(frame.lazy(), Columns(**columns))


@pytest.mark.row("B26")
def test_two_columns_that_fit_are_named():
    frame = pl.DataFrame({"session": [1], "item": [2], "product": [3]})
    with pytest.raises(InputError, match="the item could be 'item' or 'product': give"):
        frame_corpus(frame.lazy())
    frame = pl.DataFrame({"session": [1], "item": [2], "date": [3], "time": [4]})
    with pytest.raises(InputError, match="could be 'date' or 'time': .* --order none"):
        frame_corpus(frame.lazy())


@pytest.mark.row("B26")
@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("item", [1.0, 2.5], "`item` must be a column of integers or text: .* has 2.5"),
        ("item", [1.0, 2.0**53], "integers or text: .* has 9007199254740992.0"),
        ("session", [1.0, 0.1], "`session` must be a column of integers .* has 0.1"),
        ("time", ["1", "x"], "`order` must be a column of numbers.* has 'x'"),
        ("time", ["12/1/2010", "1/1/2011"], "has '12/1/2010'. --order none takes"),
    ],
)
def test_wrong_values_are_refused(column, values, message):
    frame = pl.DataFrame({"session": [1, 1], "item": [1, 2], "time": [1, 2]})
    frame = frame.with_columns(pl.Series(column, values))
    with pytest.raises(InputError, match=message):
        read(frame_corpus(frame.lazy()))


GOOD = b"session,item\n1,a\n1,b\n"


@pytest.mark.spread(7)
@pytest.mark.row("B26")
@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.csv", b"", "a.csv is empty"),
        ("a.csv", b"session,item\n", "a.csv has no rows"),
        ("a.csv", GOOD + b"2,c,x\n", "a.csv cannot be read: found more fields"),
        ("a.csv", GOOD + b"2,\xff\n", "a.csv cannot be read: invalid utf-8"),
        ("a.csv.gz", gzip.compress(GOOD, mtime=0)[:-9], "a.csv.gz (cannot|is not)"),
        ("a.parquet", GOOD, "a.parquet is not Parquet, which its name says"),
        ("a.parquet", b"PAR1", "a.parquet cannot be read: "),
        ("a.arrow", b"ARROW1\0\0" + b"x" * 99, "a.arrow cannot be read: "),
        ("a.jsonl", b'{"session":1,"item":2}\n{"sess', "a.jsonl cannot be read: "),
        ("a.json", b'[{"session":1,\n"item":2}]', "a.json cannot be read: "),
        ("a.csv", b"1,2\n3,4\n", r"columns column_1 String \(1, 3\), column_2 String"),
    ],
)
def test_damaged_tables_are_refused(capsys, name, data, message):
    Path(name).write_bytes(data)
    with pytest.raises(InputError, match=message):
        read(file_corpus(name))
    assert main(["train", name, "--workdir", "run", *FAST]) == 2
    assert not Path("run/config.toml").exists()
    assert name in error_line(capsys)


@pytest.mark.row("B26")
def test_files_of_two_formats_or_schemas_are_refused():
    Path("a.csv").write_bytes(GOOD)
    Path("b.jsonl").write_bytes(b'{"session":1,"item":2}\n')
    with pytest.raises(InputError, match="one format: a.csv is CSV, b.jsonl is JSON"):
        file_corpus("?.*")
    Path("c.csv").write_bytes(b"session,thing\n1,a\n")
    with pytest.raises(InputError, match=r"Corpus \*.csv cannot be read"):
        read(file_corpus("*.csv"))


@pytest.mark.row("B19")
def test_a_table_that_changes_while_it_is_read_is_refused():
    Path("a.csv").write_bytes(GOOD)
    corpus = file_corpus("a.csv")
    Path("a.csv").write_bytes(GOOD + b"2,c\n")
    with pytest.raises(InputError, match="a.csv changed while it was read"):
        read(corpus)


@pytest.mark.row("B20")
def test_columns_make_text_a_table_and_without_them_it_is_refused(capsys):
    Path("a.txt").write_bytes(b"id thing,x\n" + b"1,a b\n2,c\n" * 20)
    columns = Columns(session="id thing", item="x")
    assert read(file_corpus("a.txt", columns=columns)) == [["a b"] * 20, ["c"] * 20]
    table().write_csv("b.txt")
    assert main(["train", "b.txt", *FAST]) == 2
    line = error_line(capsys)
    assert "b.txt is a CSV table, which is not read as text" in line
    assert line.endswith(
        "or give --session and --item, the columns of sessions and items."
    )


@pytest.mark.row("B20")
def test_tables_beside_text_are_left_out(caplog):
    caplog.set_level(logging.INFO)
    Path("corpus").mkdir()
    Path("corpus/a.txt").write_text("x y\n")
    Path("corpus/b.csv").write_bytes(GOOD)
    assert read(file_corpus("corpus")) == [["x", "y"]]
    assert "Corpus corpus: tables beside text, left out: 1." in caplog.messages


def test_a_run_of_sessions(capsys):
    table(2000).write_parquet("a.parquet")
    assert main(["train", "a.parquet", "--workdir", "one", *FAST]) == 0
    table(2000).write_csv("a.csv")
    assert main(["train", "a.csv", "--workdir", "two", *FAST]) == 0
    one, two = (read_vectors(f"{run}/vectors.safetensors") for run in ("one", "two"))
    assert sorted(one.keys) == sorted(map(str, ITEMS))
    np.testing.assert_array_equal(one.matrix, two.matrix)
    capsys.readouterr()
    again = ["train", "a.parquet", "--workdir", "one", *FAST]
    assert main(again) == 0
    assert main([*again, "--order", "price"]) == 2
    assert "`order` 'time' there, 'price' now" in capsys.readouterr().err


def test_columns_are_part_of_the_manifest():
    table().write_parquet("a.parquet")
    orders = "time", "price", "none"
    found = [file_corpus("a.parquet", columns=Columns(order=o)) for o in orders]
    assert len({str(corpus.manifest) for corpus in found}) == 3
    by_name = file_corpus("a.parquet")
    assert by_name.manifest == found[0].manifest


@pytest.mark.spread(1)
@pytest.mark.parametrize("largest", [2**53 + 1, 2**64 - 1, 2**70])
def test_exported_keys_have_the_type_of_the_items(largest):
    dtype = pl.Int128 if largest == 2**70 else pl.UInt64
    frame = pl.DataFrame({"session": [1, 1] * 30}).with_columns(
        pl.Series("item", [5, largest] * 30, dtype=dtype)
    )
    frame.write_parquet("a.parquet")
    assert main(["train", "a.parquet", "--workdir", "run", *FAST]) == 0
    assert main(["export", "run", "--to", "vectors.parquet"]) == 0
    keys = pl.read_parquet("vectors.parquet")["key"]
    expected = {2**53 + 1: pl.Int64, 2**64 - 1: pl.UInt64, 2**70: pl.String}
    assert keys.dtype == expected[largest]
    assert sorted(map(int, keys.to_list())) == [5, largest]
    again = read_vectors("vectors.parquet")
    assert again.keys == read_vectors("run/vectors.safetensors").keys
    assert again.key_type == ("text" if largest == 2**70 else "integer")


def test_exported_keys_of_text_are_text():
    frame = pl.DataFrame({"session": ["1"] * 60, "item": ["5", "6"] * 30})
    frame.write_csv("a.csv")
    assert main(["train", "a.csv", "--workdir", "run", *FAST]) == 0
    assert main(["export", "run", "--to", "vectors.parquet"]) == 0
    assert pl.read_parquet("vectors.parquet")["key"].dtype == pl.String


@pytest.mark.slow
@pytest.mark.parametrize("named", [0, 1], ids=["named later", "found later"])
def test_a_run_resumes_whether_its_columns_are_named_or_found(stopped, capsys, named):
    frame = table(2000).rename({"time": "order"}).with_columns(other=pl.col("item"))
    frame.write_parquet("table.parquet")
    train = ["table.parquet", "--workdir", "run", *FAST[:-2], "--epochs", "3"]
    train += ["--blocks-per-update", "1"]
    flags = ["--session", "session", "--item", "item", "--order", "order"]
    first, second = ([*train, *(flags if k == named else [])] for k in (1, 0))
    stopped(*first)
    assert main(["train", *second, "--item", "other"]) == 2
    assert "`item` 'item' there, 'other' now" in capsys.readouterr().err
    assert main(["train", *second]) == 0
    capsys.readouterr()
    assert main(["train", *first]) == 0
    assert "finished before" in capsys.readouterr().out
