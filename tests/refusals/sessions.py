"""Tables of sessions, texts and lists that are no corpus, names, and model files."""

import functools
import gzip
import io
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from embedder import EmbeddingTrainer, read_names
from embedder.metrics.next_item_scores import SessionCounts, read_weights
from tests.refusals.rows import Content, calls_of, rows_of, write
from tests.refusals.training import model_file

GOOD = b"session,item\n1,a\n1,b\n"
IDX = bytes([0, 0, 8, 3]) + bytes(12)
TEXT_FILE = b"a b c d\n" * 40
EDGES = "".join(f"{i}\t{i + 1}\n" for i in range(30))
CSV = b"id,name\n" + b"".join(b"%d,no %d\n" % (i, i) for i in range(40))
NAMES = 'id,title,category,price\na,"Mug, Red",Kitchen,2.5\nb,Spade,Garden,3\n'


def packed(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def trained(source: Any, **columns: Any) -> EmbeddingTrainer:
    trainer = EmbeddingTrainer(vector_size=4, min_count=1, epochs=1)
    return trainer.fit(source, **columns)


def rows(**columns: Any) -> pl.DataFrame:
    """Rows of one session, where no other is given, with other columns."""
    items = {"session": ["s", "s"], "item": ["a", "b"]}
    return pl.DataFrame({**items, **columns}, strict=False)


def table(**columns: Any) -> EmbeddingTrainer:
    return trained(rows(**columns))


def weighted(*weights: Any, **columns: Any) -> EmbeddingTrainer:
    return trained(rows(w=weights, **columns), weights="w")


def lists(*weights: Any) -> EmbeddingTrainer:
    frame = pl.DataFrame({"basket": [["a"], ["b"]], "w": weights})
    return trained(frame, weights="w")


def where(condition: str) -> set[str]:
    return read_names("names.csv").keys_where(["id=a", condition])


def model(
    changes: Mapping[str, Any] | None = None, /, **parts: Any
) -> EmbeddingTrainer:
    """Of a file with other settings, and in which these parts are other ones."""
    write(Path("m.npz"), model_file(**(changes or {})) | parts)
    return EmbeddingTrainer.load("m.npz")


def array_file(save: Callable, **arrays: np.ndarray) -> bytes:
    made = io.BytesIO()
    save(made, **arrays)
    return made.getvalue()


def letters(string: str) -> np.ndarray:
    return np.frombuffer(string.encode(), np.uint8)


def load(data: bytes) -> EmbeddingTrainer:
    write(Path("m.npz"), data)
    return EmbeddingTrainer.load("m.npz")


def counts(num_items: int = 3, digest: str = "d", **parts: Any) -> None:
    """Reads counts of three items in a file, in which these parts are other ones."""
    training = np.array([0, 1, 2], np.int32), np.array([3])
    SessionCounts.fit([training], 3).write(Path("counts.npz"), "d")
    with np.load("counts.npz") as file:
        np.savez("counts.npz", **{**file, **parts})
    SessionCounts.read(Path("counts.npz"), num_items, digest)


def weights(text: str) -> None:
    write(Path("mixture.json"), text)
    read_weights(Path("mixture.json"))


class NotReadable:
    """A table that says so, but is none."""

    columns = ("visit", "thing")

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        raise ImportError("pyarrow is missing")


UNCLEAR = pl.DataFrame({"user": [1, 2], "thing": ["a b", "c"], "flag": [True, False]})
ADAGRAD = {"optimizer": "adagrad", "cap": None}
ONES = np.ones(2, np.float32)
unclear = functools.partial(trained, UNCLEAR)
FILES: dict[str, Content] = {
    "bad.csv": GOOD + b"2,c,x\n",
    "empty.csv": b"",
    "head.csv": b"session,item\n",
    "numbers.csv": b"1,2\n3,4\n",
    "cut.csv.gz": packed(GOOD)[:-9],
    "csv.parquet": GOOD,
    "cut.parquet": b"PAR1",
    "cut.arrow": b"ARROW1\0\0" + b"x" * 99,
    "cut.jsonl": b'{"session":1,"item":2}\n{"sess',
    "array.json": b'[{"session":1,\n"item":2}]',
    "kinds.jsonl": b'{"session":1,"item":null}\n{"session":1,"item":2}\n'
    b'{"session":1,"item":{"id":3}}\n',
    "mixed/a.csv": GOOD,
    "mixed/b.jsonl": b'{"session":1,"item":2}\n',
    "other/a.csv": GOOD,
    "other/c.csv": b"session,thing\n1,a\n",
    "delta/_delta_log/0.json": "{}",
    "delta/a.csv": GOOD,
    "below/2024/a.csv": GOOD,
    "quote.csv": 'session,item\n1,a\n1,5" b\n',
    "twice.csv": "session,item,item\n1,a,b\n",
    "book.csv": b"PK\x03\x04 and so on",
    "a.csv.zst": b"\x28\xb5\x2f\xfd and so on",
    "table.txt": CSV,
    "graph.csv": EDGES.replace("\t", ","),
    "prose.csv": TEXT_FILE,
    "prose.feather": TEXT_FILE,
    "prose.edges": TEXT_FILE,
    "texts/a.txt": TEXT_FILE,
    "texts/b.txt": array_file(np.savez, a=ONES),
    "glob/a.txt": TEXT_FILE,
    "glob/b.zip": TEXT_FILE,
    "image.JPG": b"",
    "image": b"\xff\xd8\xff",
    "i.gz": packed(IDX),
    "labels": IDX.replace(b"\3", b"\1"),
    "arrays.npz": b"",
    "a.tar": b"",
    "folder/a.md": b"a",
    "photos/cat/A.JPG": b"",
    "names.csv": NAMES,
    "broken.csv": 'key,name,more\na,"x\n',
}
MESSAGES = {
    "IN_COLUMNS": "the table has the columns user Int64 (1, 2), thing String (a b, c), "
    "flag Boolean (True, False).",
    "FOR_SESSIONS": "give --session COLUMN and --item COLUMN, and --order COLUMN "
    "unless the rows are in order; or --items COLUMN for lists",
    "NO_WEIGHT": "`weights` must be a column of numbers from 1e-06 to 1000000.0, or 0 "
    "to leave a session out:",
    "BROKEN": "m.npz is not a whole model file:",
    "NO_TEXT": "which is not read as text:",
}
"""Parts of messages that come often."""
WORDS = {"OF": "train --workdir new --loader memory --vector-size 4 --min-count 1"}
TEXT = r"""
[B32]
OF text.txt --weights w
    `weights` applies only to sessions in tables, got 'w' for text: give --session and
    --item too if text.txt is a table.
OF --weights w
    `weights` applies only to sessions in tables, got 'w' for the demo corpus: give a
    table as the corpus.
OF edges.tsv --walks 2 --weights w
    `weights` applies only to sessions in tables, got 'w' with `walks` = 2. The column
    of the weights of edges is `weight`.
[B31]
OF text.txt --window session --block 256
    `block` must be from 2 to 128 with `window` = 'session', got 256.
OF text.txt --window session --tile 200
    `block` must be from 2 to 128 with `window` = 'session', got 200 by `tile` = 200.
[B26]
OF bad.csv
    bad.csv: all lines must have 2 columns as the first, got 3 in line 4.
OF empty.csv
    empty.csv is empty.
OF head.csv
    Corpus head.csv has no rows.
OF numbers.csv
    Corpus numbers.csv has the columns column_1 String (1, 3), column_2 String (2, 4).
    Which one is the session is not clear: FOR_SESSIONS; or --walks 10 for the edges of
    a graph.
OF cut.csv.gz
    cut.csv.gz is not a whole .gz file: ….
OF csv.parquet
    csv.parquet is not Parquet, which its name says.
OF cut.parquet
    Corpus cut.parquet cannot be read: ….
OF cut.arrow
    Corpus cut.arrow cannot be read: ….
OF cut.jsonl
    Corpus cut.jsonl cannot be read: ….
OF array.json
    array.json is JSON, not JSON lines: write a row a line, as `to_json(path,
    orient="records", lines=True)` of pandas.
OF kinds.jsonl
    kinds.jsonl line 3: 'item' is an object, and a value in line 2: write one kind.
OF mixed
    The files of a table must have one format: mixed/a.csv is CSV, mixed/b.jsonl is JSON
    lines.
OF delta
    Corpus delta is a table of Delta Lake, whose files also have deleted rows: write the
    snapshot that you want to Parquet, and give that.
OF below
    Corpus below has tables only in folders below (1): give them by a glob, as
    'below/**/*.csv'.
OF quote.csv
    quote.csv: line 3 has a quote within a cell: '1,5" b'. Write the quote twice and the
    cell in quotes; or separate columns by tabs: then quotes are letters.
OF twice.csv --session session --item item
    twice.csv has 2 columns 'item': rename one of them in its header.
OF a.csv.zst --session session
    a.csv.zst is packed by zstd: unpack it, or pack it by gzip.
OF book.csv
    book.csv is a workbook or a ZIP archive: save it as CSV, or unpack it.
OF other
    other/c.csv has no column 'item', as other/a.csv has; it has session, thing.
[B20]
OF table.txt
    table.txt is a CSV table, NO_TEXT write its tokens to a .txt file, one sequence a
    line, or give --session and --item, the columns of sessions and items.
OF graph.csv
    Corpus graph.csv has the columns column_1 String (0, 1, 2), column_2 String (1, 2,
    3). Which one is the session is not clear: FOR_SESSIONS; or --walks 10 for the edges
    of a graph.
OF prose.csv
    Corpus prose.csv has the columns a b c d String (a b c d, a b c d, a b c d). Which
    one is the session is not clear: FOR_SESSIONS.
OF prose.feather
    prose.feather is not Arrow IPC, which its name says.
OF prose.edges
    prose.edges is an edge list by its name, NO_TEXT give --walks 10 to train on random
    walks over the graph. If it is text already, name it .txt.
OF texts
    texts/b.txt is a ZIP archive (or .npz, .xlsx, .docx), NO_TEXT write its tokens to a
    .txt file, one sequence a line.
OF glob/*
    glob/b.zip is an archive by its name, NO_TEXT give --model encoder to train on a
    .tar of images with labels. If it is text already, name it .txt.
OF image.JPG
    image.JPG is an image by its name, NO_TEXT give --model encoder to train on a folder
    with a folder of images for each class. If it is text already, name it .txt.
OF image
    image is an image, NO_TEXT give --model encoder to train on a folder with a folder
    of images for each class.
OF i.gz
    i.gz is images of idx, as MNIST's, NO_TEXT give --model encoder to train on it.
OF labels
    labels is labels of idx, as MNIST's, NO_TEXT give --model encoder to train on the
    images that they belong to.
OF arrays.npz
    arrays.npz is a NumPy file by its name, NO_TEXT give --model encoder to train on
    features and labels in an .npz. If it is text already, name it .txt.
OF a.tar
    a.tar is an archive by its name, NO_TEXT give --model encoder to train on a .tar of
    images with labels. If it is text already, name it .txt.
[B22]
OF run/vectors.txt
    run/vectors.txt is a word2vec file of vectors, NO_TEXT move it, or name the texts
    without it.
[B1]
OF photos
    Corpus photos is a folder of images: give --model encoder to train on them.
"""
CALLS = r"""
[B32]
trained([[1, 2]])["1"]
    InputKeyError: "Token '1' is text, and the tokens are integers."
trained([[1, 2]]).most_similar(["2", 1])
    InputKeyError: "Token '2' is text, and the tokens are integers."
trained([["a", "b"]], weights="w")
    `session`, `item`, `order`, `items` and `weights` apply only to tables, got ('w',)
    for sequences.
weighted(1.0, np.nan)
    NO_WEIGHT `w` of the table row 2 has nan.
weighted(1e-7, 1e-7)
    NO_WEIGHT `w` of the table row 1 has 1e-07.
weighted(1e7, 1e7)
    NO_WEIGHT `w` of the table row 1 has 10000000.0.
weighted("1", "two")
    NO_WEIGHT `w` of the table row 2 has 'two'.
weighted("-0.5", "1")
    NO_WEIGHT `w` of the table row 1 has '-0.5'.
lists(1, -1)
    NO_WEIGHT `w` of the table row 2 has -1.
weighted(1.5, 2)
    `weights` must be the same in all rows of a session: session 's' has 1.5 and 2.0 in
    `w` of the table. Give each session one number, as the mean or the largest of its
    rows.
trained(rows(), weights="v")
    `weights` must be a column of the corpus, got 'v'. Corpus the table has the columns
    session String (s, s), item String (a, b).
trained(rows(session=[b"a", b"b"]))
    Corpus the table has the columns session Binary (b'a', b'b'), item String (a, b).
    Which one is the session is not clear, as 'session' is Binary: write it as text:
    FOR_SESSIONS; or --walks 10 for the edges of a graph.
trained(rows(flag=[True, False]), weights="flag")
    `weights` must be a column of numbers, got 'flag' of Boolean. Corpus the table has
    the columns session String (s, s), item String (a, b), flag Boolean (True, False).
trained(rows(), item="item", weights="item")
    `session`, `item`, `order`, `items` and `weights` must be different columns, got
    ['item', 'item'].
[B31]
EmbeddingTrainer(window="5")
    InputTypeError: `window` must be an integer from 1 to 127 or 'session', got '5'.
[B26]
unclear()
    Corpus IN_COLUMNS Which one is the session is not clear: FOR_SESSIONS; or --walks 10
    for the edges of a graph.
unclear(session="users")
    `session` must be a column of the corpus, got 'users'. Did you mean `user`? Corpus
    IN_COLUMNS
unclear(items="thing")
    `items` must be a column of lists of integers or of text, got 'thing' of String.
    Corpus IN_COLUMNS
unclear(items="thing", item="user")
    `items` is a column of whole sessions: leave out `session`, `item` and `order`.
unclear(session="user", item="flag")
    `item` must be a column of integers or text, got 'flag' of Boolean. Corpus
    IN_COLUMNS
unclear(session="user", item="thing", order="flag")
    `order` must be a column of numbers, or dates and times, got 'flag' of Boolean.
    Corpus IN_COLUMNS
table(product=[3, 4])
    Corpus the table has the columns session String (s, s), item String (a, b), product
    Int64 (3, 4). Which one is the item could be 'item' or 'product': FOR_SESSIONS; or
    --walks 10 for the edges of a graph.
table(date=[3, 4], time=[3, 4])
    Corpus the table has the columns session String (s, s), item String (a, b), date
    Int64 (3, 4), time Int64 (3, 4). Which one is the order could be 'date' or 'time':
    give --order COLUMN, or --order none for the order of the rows.
table(item=[1.0, 2.5])
    `item` must be a column of integers or text: `item` of the table has 2.5.
table(item=[Decimal("3.5"), Decimal("20.0")])
    `item` must be a column of integers or text: `item` of the table has 3.5.
table(time=["12/1/2010", "1/1/2011"])
    `order` must be a column of numbers, or of times as 2024-12-31 or 2024-12-31
    23:59:00, of one kind: `time` of the table row 1 has '12/1/2010'. --order none takes
    the order of the rows.
trained([[1, 2], [3, "a"]])
    InputTypeError: A token must be an integer, as the first one is, got 'a'.
trained([[1, 2]]).partial_fit([["1", "2"]])
    InputTypeError: Tokens must be integer, as those of `fit`, got text.
trained(NotReadable())
    The NotReadable cannot be read as a table: pyarrow is missing.
[B33]
where("Kitchen")
    `where` must be COLUMN=VALUE, or have one of ~ < <= > >= for =, got 'Kitchen'.
where("category=x")
    `where` 'category=x': no row of names.csv has it: did you mean 'Kitchen' or
    'Garden'?
where("title~mugs")
    `where` 'title~mugs': no row of names.csv has it: did you mean 'Mug, Red' or
    'Spade'?
where("price>cheap")
    `where` 'price>cheap': the value must be a number, got 'cheap'.
where("title<3")
    `where` 'title<3': 'title' of names.csv has no numbers.
where("price<0")
    `where` 'price<0': no row of names.csv has it.
read_names("broken.csv")
    broken.csv: line 2 has a quote that is not closed.
[B24]
trained("-")
    Corpus - must be a file on disk, not a stream: it is read more than once. Write the
    text to a file.
[B7]
trained(5)
    InputTypeError: `sequences_or_path` must be a path or an iterable of token lists,
    got 5.
trained([["a"], "ab"])
    InputTypeError: A sequence must be a list of tokens, got 'ab'.
trained([["a", 5]])
    InputTypeError: A token must be a str, got 5.
trained([["a", ""]])
    A token must not be empty, got ''.
trained([["a", "x\ud800"]])
    A token must be valid Unicode, got 'x\ud800'.
EmbeddingTrainer(min_count=4).fit([["a", "b"], ["b", "b"]])
    Nothing occurs `min_count` = 4 times or more: the most frequent, 'b', occurs 3
    times.
trained([[]])
    The corpus has no tokens.
trained([["a", "b"]] * 2, holdout=0.999999)
    `holdout` = 0.999999 holds out all of the 2 sequences of the corpus: give a smaller
    share, or a corpus of more lines.
trained([["a", "b"]] * 2, holdout=1.0)
    `holdout` must be a number in [0, 1), got 1.0.
[B12]
model(format=letters("embedder-table-model 2"))
    BROKEN its format is b'embedder-table-model 2', not b'embedder-table-model 1'.
model(settings=letters("{"))
    BROKEN ….
model(settings=letters("[]"))
    BROKEN `settings` is no JSON object.
model(settings=letters("{}"))
    BROKEN `settings` has other names than the arguments of a trainer.
model(settings=letters("[" * 200_000))
    BROKEN ….
model({"window": 0})
    BROKEN `window` must be an integer from 1 to 127 or 'session', got 0.
model({"alpha": "fast"})
    BROKEN `alpha` must be a finite number > 0, got 'fast'.
model({"dtype": "float64"})
    BROKEN `input` must be float64[2, 4], got float32[2, 4].
model({"block": 128})
    BROKEN `block` is 64, in its settings 128.
model({"tile": 48})
    BROKEN `block` must be a positive multiple of `tile`, got 64.
model(block=np.array([64, 64]))
    BROKEN `block` is int64[2].
model(input=np.ones((3, 4), "f4"))
    BROKEN `input` must be float32[2, 4], got float32[3, 4].
model(input=np.ones((2, 4), ">f4"))
    BROKEN `input` must be float32[2, 4], got >f4[2, 4].
model(output=np.full((2, 4), np.nan, "f4"))
    BROKEN `output` is not finite.
model(counts=np.array([1, 0]))
    BROKEN `counts` must be 2 numbers >= 1.
model(counts=np.array([{}] * 2))
    BROKEN `counts` holds pickled objects, which are not read.
model(tokens=letters("aa"), token_ends=np.array([1, 2]))
    BROKEN a token is empty, or occurs twice, or there is none.
model(token_ends=np.array([2, 5]))
    BROKEN `token_ends` must rise to 4, the size of `tokens`, got [5] at the end.
model(token_ends=np.array([4, 2]))
    BROKEN `token_ends` must rise to 4, the size of `tokens`, got [2] at the end.
model(token_ends=np.array([0, 4]))
    BROKEN a token is empty, or occurs twice, or there is none.
model(tokens=letters("éé"), token_ends=np.array([1, 4]))
    BROKEN ….
model(loss_history=np.array([3]))
    BROKEN `loss_history` is int64[1].
model(ADAGRAD)
    BROKEN ….
model(ADAGRAD, input_accumulator=ONES, output_accumulator=np.ones(3, "f4"))
    BROKEN `output_accumulator` must be float32[2], got float32[3].
model(ADAGRAD, input_accumulator=ONES, output_accumulator=-ONES)
    BROKEN `output_accumulator` must be finite numbers >= 0.
[B95]
counts(4)
    counts.npz has the counts of another vocabulary.
counts(digest="e")
    counts.npz has the counts of another vocabulary.
counts(items=np.array([0, 1, 7]))
    counts.npz is damaged: it has items beyond its vocabulary.
counts(lengths=np.array([9]))
    counts.npz is damaged: its sessions do not fit their lengths.
counts(items=np.array([0, 1, -2]))
    counts.npz is damaged: its sessions do not fit their lengths.
counts(rules_indices=np.array([1, 2, 9]))
    counts.npz is damaged: ….
counts(rules_data=np.array([1, 2, np.nan], "f4"))
    counts.npz is damaged: a count is below 0, or not finite.
counts(rules_data=np.array([1, 2, -3], "f4"))
    counts.npz is damaged: a count is below 0, or not finite.
counts(rules_data=np.array([1, 2, 3]))
    counts.npz is damaged: the dtypes of its arrays are wrong.
counts(rules_indptr=np.array([0, 9]))
    counts.npz is damaged: ….
weights("{}")
    mixture.json is damaged: ….
weights("[" * 100_000)
    mixture.json is damaged: ….
weights('{"excluded": {"vectors": -1}, "included": {}}')
    mixture.json is damaged: ….
weights('{"excluded": {"floor": 0}, "included": {}}')
    mixture.json is damaged: ….
weights('{"excluded": {"vectors": "a"}, "included": {}}')
    mixture.json is damaged: ….
[B12]
load(array_file(np.savez, vectors=ONES))
    BROKEN ….
load(array_file(np.savez_compressed, **model_file()))
    BROKEN `format` is compressed.
load(b"")
    BROKEN ….
EmbeddingTrainer.load("none.npz")
    InputNotFoundError: Model file none.npz does not exist.
"""

for word, meaning in MESSAGES.items():
    TEXT, CALLS = (text.replace(word, meaning) for text in (TEXT, CALLS))
ROWS = rows_of(TEXT, WORDS, FILES) + calls_of(
    CALLS, {**globals(), "Decimal": Decimal}, FILES
)
