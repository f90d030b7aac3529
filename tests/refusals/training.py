"""Training of tokens: starts, updates, objectives, subwords, phrases, own tables."""

import functools
import json

import numpy as np
import pytest

import embedder
from embedder import EmbeddingTrainer, Vectors
from embedder.data.phrases import find_phrases
from embedder.vectors.attributes import Attributes
from tests.refusals.rows import Content, calls_of, rows_of


def model_file(**settings) -> dict[str, np.ndarray]:
    """A model of the tokens w0 and w1, and of 6 rows of n-grams where it has some."""
    whole = {
        "vector_size": 4,
        "window": 5,
        "negative": 5,
        "min_count": 1,
        "alpha": None,
    }
    whole |= {"sample": 0.001, "ns_exponent": 0.75, "min_alpha": 0.0001, "epochs": 1}
    whole |= {"architecture": "skipgram", "seed": 1, "workers": 1, "block": None}
    whole |= {"tile": 16, "noise": 32, "cap": None, "blocks_per_update": None}
    whole |= {"dtype": "float32", **settings}
    tables = {name: np.ones((2, 4), np.float32) for name in ("input", "output")}
    if "subwords" in settings:
        tables["subwords"] = np.ones((6, 4), np.float32)
    text = {"format": "embedder-table-model 1", "settings": json.dumps(whole)}
    return {
        **{name: np.frombuffer(x.encode(), np.uint8) for name, x in text.items()},
        **{"block": np.int64(64), "tokens": np.frombuffer(b"w0w1", np.uint8)},
        **{"token_ends": np.array([2, 4]), "counts": np.array([20, 20])},
        **{**tables, "loss_history": np.zeros(1)},
    }


OF_NGRAMS = model_file(subwords=[2, 3], buckets=5)
ATTRIBUTES = Attributes(
    ["w0", "x9"], np.array([0, 1, 2]), np.zeros(2, "i4"), ["a=b"], 1
)
OF_ATTRIBUTES = {
    **model_file(),
    **{"subwords": np.ones((3, 4), np.float32), **ATTRIBUTES.arrays("attribute_")},
}
FILES: dict[str, Content] = {
    "out.txt": "old",
    "books/a.txt": "new york is big\n",
    "t.csv": "session,item\n1,a\n1,b\n",
    "hs.npz": model_file(hs=True, negative=0, noise=1),
    "sub.npz": OF_NGRAMS,
    "other.npz": model_file(hs=True),
    "cut.npz": OF_NGRAMS | {"subwords": np.ones((4, 4), np.float32)},
    "items.csv": "item,kind,size\nw0,red,\nw1,,\nx9,blue,\n",
    "others.csv": "item,kind\nq1,red\n",
    "keys.csv": "item\nw0\nw1\n",
    "att.npz": OF_ATTRIBUTES,
    "cut-att.npz": OF_ATTRIBUTES | {"subwords": np.ones((2, 4), np.float32)},
    "bad-att.npz": OF_ATTRIBUTES | {"attribute_rows": np.ones(2, np.int32)},
    "nan.npz": OF_NGRAMS | {"subwords": np.full((6, 4), np.nan, np.float32)},
}
WORDS = {
    "JOIN": "phrases text.txt --to joined.txt",
    "OF": "train text.txt --workdir next --loader memory --vector-size 4 --min-count 1",
    "PATHS": "OF --resume hs.npz --hs --negative",
    "NGRAMS": "OF --resume sub.npz --subwords 2 3 --buckets",
    "WITH": "OF --attributes items.csv",
}
TEXT = r"""
[B37]
OF --resume old --replay 2
    `replay` must be a number from 0 to 1, got 2.0.
OF --resume old --replay 0.5 --bootstrap
    `replay` does not go with `bootstrap`, got 0.5.
OF --resume old --replay 0.5 --alpha 0.1
    `replay` does not go with `schedule` = 'restart', got 0.5.
OF --replay 0.5
    `replay` needs `resume`, the run to train on, got 0.5.
PATHS 0 --replay 0.5
    `replay` needs a corpus of the run to resume: it is no model that a run wrote.
[B81]
OF --negative 0
    `negative` must be an integer >= 1, or 0 with `hs`, got 0.
[B82]
PATHS 0 --grow
    `grow` does not go with `hs`: new tokens make another Huffman tree. Train anew,
    or leave out `grow`.
[B83]
OF --hs --negative 0 --holdout 0.2 --best-by next-item
    `best_by` next-item needs output rows of items, which `hs` alone has not: give a
    `negative` above 0.
[]
OF --resume old --hs
    `hs` must be that of the run to start from, False, got True.
PATHS 5
    `negative` must be 0, as that of the run to start from, 0, got 5.
[B85]
OF --subwords 0 3
    `subwords` must be two integers, MIN and MAX, with 1 <= MIN <= MAX <= 50, got
    (0, 3).
[B86]
OF --subwords 3 6 --update dense
    `update` 'dense' does not go with `subwords`.
OF --subwords 3 6 --table-sharding rows
    `table_sharding` 'rows' does not go with `subwords`.
OF --subwords 3 6 --init-from start.txt
    `init_from` 'start.txt' does not go with `subwords`.
OF --subwords 3 6 --freeze all
    `freeze` 'all' does not go with `subwords`.
OF --subwords 3 6 --walks 5
    `subwords` applies only to texts, got (3, 6) with `walks` = 5.
OF --subwords 3 6 --optimizer adagrad
    `optimizer` must be 'sgd' with `subwords`, got 'adagrad'.
[B87]
NGRAMS 5
    `schedule` must be 'restart' for an update of a model with `subwords`, got
    'continue'.
NGRAMS 5 --grow
    `grow` does not go with `subwords`: new tokens have vectors of their n-grams.
    Leave out `grow`.
NGRAMS 9 --schedule restart
    `buckets` must be that of the run to start from, 5, got 9.
[B96]
OF --attributes items.csv colour
    `attributes` must name columns of …items.csv, got 'colour': it has kind, size,
    and the keys are 'item'.
OF --attributes items.csv kind kind
    `attributes` must be a file and columns, each once, got ('items.csv', 'kind',
    'kind').
OF --attributes items.csv size
    `attributes` …items.csv has no value in size.
OF --attributes others.csv
    `attributes` has no key of the vocabulary: its first keys are q1, those of the
    vocabulary w0, w1, w2.
OF --attributes keys.csv
    `attributes` …keys.csv has no column besides that of the keys, 'item'.
OF --attributes none.csv kind
    `attributes` …none.csv does not exist.
[B97]
WITH --optimizer adagrad
    `optimizer` must be 'sgd' with `attributes`, got 'adagrad'.
WITH --subwords 3 6
    `subwords` (3, 6) does not go with `attributes`.
WITH --init-from start.txt
    `init_from` …start.txt does not go with `attributes`.
WITH --freeze all
    `freeze` all does not go with `attributes`.
WITH --update dense
    `update` dense does not go with `attributes`.
WITH --table-sharding rows
    `table_sharding` rows does not go with `attributes`.
WITH --resume old
    `attributes` need a base that was trained with attributes: leave them out, or
    train from the start.
OF --resume att.npz
    `schedule` must be 'restart' for an update of a model with `attributes`, got
    'continue'.
[B98]
neighbors old --attributes kind=red
    `attributes` applies only to a run of one model that was trained with
    --attributes, got old.
neighbors old w0 --attributes kind=red
    `attributes` goes with neither WORD, --name, --stable nor --session.
export old --to out.parquet --unseen
    `unseen` applies only to a run of one model that was trained with --attributes,
    got old.
[B42]
phrases text.txt
    Missing from embedder phrases: --to PATH
phrases text.txt --to out.txt
    `to` out.txt exists: give --overwrite to replace it, or another name.
phrases text.txt --to o.csv
    `to` must end in .txt or .gz, got 'o.csv'.
phrases text.txt --to none/o.txt
    `to`: folder none does not exist.
phrases text.txt --to text.txt --overwrite
    `to` text.txt is a file of the corpus: give another name.
phrases text.txt --to run/vectors.txt --overwrite
    `to` must not be a file of a run, got run/vectors.txt in the run
    …/run: give another name.
phrases books --to books/joined.txt
    `to` books/joined.txt is in the folder of the corpus, and would be part of it:
    give another folder.
JOIN --list o.json
    `list` must end in .parquet or .csv or .tsv, got 'o.json'.
JOIN --list run/vocab.parquet
    `list` must not be a file of a run, got run/vocab.parquet in the run
    …/run: give another name.
JOIN --min-count 0
    `min_count` must be an integer >= 1, got 0.
JOIN --passes 0
    `passes` must be an integer >= 1, got 0.
JOIN --max-pairs 0
    `max_pairs` must be an integer >= 1, got 0.
JOIN --topn 0
    `topn` must be an integer >= 1, got 0.
JOIN --threshold 0
    `threshold` must be a number > 0 for `score` = 'word2vec', got 0.0.
JOIN --score npmi --threshold 1
    `threshold` must be between -1 and 1 for `score` = 'npmi', got 1.0.
JOIN --score pmi
    invalid choice 'pmi' for argument '--score'. Expected one of ('word2vec',
    'npmi').
JOIN --delimiter 'a b'
    `delimiter` must be text without white space, at least one character, got 'a b'.
JOIN --connectors 'of the'
    `connectors` must be tokens without white space, got 'of the'.
phrases t.csv --to joined.txt
    `corpus` must be text, got the table t.csv: write its tokens to a .txt file, one
    sequence a line.
phrases - --to joined.txt
    Corpus - must be a file on disk, not a stream: it is read more than once. Write
    the text to a file.
[B42 B1]
phrases none.txt --to joined.txt
    Corpus none.txt does not exist.
"""


LINES = [["a", "b", "c", "a", "d"] * 4] * 30
SMALL = {"vector_size": 3, "min_count": 1, "epochs": 2, "sample": 0}


@functools.cache
def trained() -> EmbeddingTrainer:
    return EmbeddingTrainer(**SMALL).fit(LINES)


def after(method: str, *given, **options) -> None:
    """A call of a trained trainer, which stays as it was."""
    before = trained().vectors
    try:
        getattr(trained(), method)(*given, **options)
    finally:
        assert trained().vectors is before


def new(method: str, *given, **options) -> None:
    """A call of a trainer that is not trained, also afterwards."""
    trainer = EmbeddingTrainer(**SMALL)
    try:
        getattr(trainer, method)(*given, **options)
    finally:
        with pytest.raises(RuntimeError, match="is not trained yet"):
            _ = trainer.vectors


def load(path: str, **changes) -> EmbeddingTrainer:
    trainer = EmbeddingTrainer.load(path)
    vars(trainer).update(changes)
    return trainer


def epochs(epochs=range(1), options={}, **changes) -> None:  # noqa: B006
    """Trains tables of 12 keys with this beside what fits."""
    tables = {name: np.zeros((12, 8), np.float32) for name in ("input", "output")}
    tables |= {"counts": np.full(12, 9), "rates": None}
    tables |= {"ids": np.array([1], np.int32), "lengths": np.array([1])}
    *tables, ids, lengths = (tables | changes).values()
    trainer = EmbeddingTrainer(vector_size=8, **options)
    trainer.train_epochs(tables, (ids, lengths), epochs, range(1))


def vectors(key: str, *vector: float) -> Vectors:
    return Vectors([key], np.array([vector], float))


CALLS = r"""
[B36]
after("fit", LINES, freeze=[])
    `freeze` keys has no key.
after("fit", LINES, freeze="missing")
    InputNotFoundError: `freeze` must be all, known, or a file with a key a line,
    got 'missing', which does not exist.
after("partial_fit", LINES, init_from=vectors("a", 1, 1, 1))
    `init_from` applies only to a trainer that is not trained yet, got Vectors(1
    keys, 3 dimensions): call `fit`, or leave it out.
new("fit_ensemble", LINES, init_from="missing.bin")
    InputNotFoundError: Vectors file missing.bin does not exist.
new("fit_graph", "edges.tsv", init_from=vectors("q", 1, 1, 1))
    `init_from` the given vectors has no token of the corpus: its first keys are
    'q', those of the corpus '29', '33', '9'.
new("partial_fit", LINES, init_from=vectors("a", 1, 1))
    `init_from` the given vectors has vectors of 2 numbers, and `vector_size` is 3:
    set it to 2.
[B37]
new("partial_fit", LINES, grow=True, replay=0.5, earlier=LINES)
    `replay` needs a trained trainer, got 0.5.
after("partial_fit", LINES, schedule="slow")
    `schedule` must be 'continue' or 'restart', got 'slow'.
after("partial_fit", LINES, schedule="continue", replay=0.5)
    `replay` and `earlier`, the sequences to replay, need each other, got `replay`
    0.5 and `earlier` None.
after("partial_fit", LINES, schedule="continue", replay=0.5, earlier=[[1]])
    InputTypeError: Tokens must be text, as those of `fit`, got integer.
after("partial_fit", LINES, schedule="continue", replay=0.5, earlier="none.txt")
    InputNotFoundError: Corpus none.txt does not exist.
[B84]
load("hs.npz", hs=False, negative=5).save("model.npz")
    `hs` must be True and `negative` 0, as when the tables were trained, got False
    and 5.
[F59]
load("other.npz")
    other.npz is not a whole model file: `output` must be float32[4, 4], got
    float32[2, 4].
[F61]
load("cut.npz")
    cut.npz is not a whole model file: `subwords` must be float32[6, 4], got
    float32[4, 4].
load("nan.npz")
    nan.npz is not a whole model file: `subwords` is not finite.
load("cut-att.npz")
    cut-att.npz is not a whole model file: `subwords` must be float32[3, 4], got
    float32[2, 4].
load("bad-att.npz")
    bad-att.npz is not a whole model file: its attributes do not fit each other.
[B37]
load("hs.npz").fold_in(LINES)
    `fold_in` does not go with `hs`, whose rows tokens share: call `partial_fit`.
load("sub.npz").fold_in(LINES)
    `fold_in` does not go with `subwords`, whose rows tokens share: call `partial_fit`.
load("att.npz").fold_in(LINES)
    `fold_in` does not go with `attributes`, whose rows tokens share: call
    `partial_fit`.
[B97]
EmbeddingTrainer().fit(LINES, attributes=3)
    `attributes` must be a path, a path and columns, a frame, or a mapping from keys to
    texts, got int.
EmbeddingTrainer().fit(LINES, attributes={"w0": [1]})
    `attributes` must be texts, got 1.
EmbeddingTrainer().fit(LINES, attributes={"w0": None})
    `attributes` must be texts, got None.
EmbeddingTrainer().fit(LINES, attributes={1.5: ["a=b"]})
    `attributes` must have text or integers as keys, got 1.5.
EmbeddingTrainer().fit(LINES, attributes=["items.csv", 5])
    `attributes` must be a path, a path and columns, a frame, or a mapping from keys to
    texts, got list.
[B85]
EmbeddingTrainer(subwords=(3, 51))
    `subwords` must be two integers, MIN and MAX, with 1 <= MIN <= MAX <= 50, got
    (3, 51).
EmbeddingTrainer(subwords=(3.0, 6))
    InputTypeError: `subwords` must be two integers, MIN and MAX, with 1 <= MIN <=
    MAX <= 50, got (3.0, 6).
[B87]
load("sub.npz", subwords=(3, 3)).partial_fit(LINES)
    `subwords` must be (2, 3), as when the tables were trained, got (3, 3).
[B42]
find_phrases([["a"]], connectors="of the")
    InputTypeError: `connectors` must be several tokens, got 'of the'.
find_phrases([[], [3, 4]])
    InputTypeError: `sequences_or_path` must have tokens of text, got integers: a phrase
    of them is none. Give str(token).
find_phrases([["a"]], delimiter="\udcff")
    `delimiter` must be text without white space, at least one character, got
    '\udcff'.
[B73]
epochs(range(2))
    `epochs` must be consecutive ones of `schedule`, range(0, 1), got range(0, 2).
epochs(input=np.zeros((3, 2), "f4"))
    `input` must be float32[12, 8], V at least 1, got float32[3, 2].
epochs(output=np.zeros((12, 8)))
    `output` must be float32[12, 8], V at least 1, got float64[12, 8].
epochs(counts=np.full(12, -1))
    InputTypeError: `counts` must be integers >= 0.
epochs(rates=np.full(12, 2.0))
    `rates` must be 12 numbers from 0 to 1, got float64[12] from 0.0 to 2.0.
epochs(ids=np.array([12], np.int32))
    `ids` must be i32 below 12, got int32.
epochs(lengths=np.array([2]))
    `lengths` must sum up to 1, got 2.
epochs(options={"optimizer": "adagrad"})
    `optimizer` must be 'sgd' for tables that the caller keeps, got 'adagrad'.
epochs(options={"hs": True})
    `output` must be float32[24, 8], V at least 1, got float32[12, 8].
embedder.huffman_codes(np.array([], int))
    `counts` must have 1 value at least, got none.
embedder.huffman_codes(np.array([3, -1]))
    InputTypeError: `counts` must be integers >= 0, got int64[2].
[]
EmbeddingTrainer().fit_ensemble(LINES, 1)
    `replicas` must be an integer >= 2, got 1.
EmbeddingTrainer().ensemble_
    RuntimeError: The trainer has no ensemble: call `fit_ensemble` first.
"""


ROWS = rows_of(TEXT, WORDS, FILES) + calls_of(
    CALLS, {**globals(), "embedder": embedder, "find_phrases": find_phrases}, FILES
)
