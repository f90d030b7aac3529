"""Settings, URLs, callbacks, and the verbs that look up, score and export."""

import gzip

import numpy as np
import polars as pl

from embedder import EmbeddingTrainer, every
from tests.refusals.rows import Content, Refusal, calls_of, rows_of

TABLE = "key,name,price\nw1,RED MUG,1\nw2,RED MUG,2\nw3,tea,3\nzz,unsold,4\n"
PACKED = gzip.compress(" ".join(map(str, range(9999))).encode())
TOMLS = {
    "cut": "x = [",
    "bytes": b"\xff",
    "table": "[tokns]\nwindow = 3",
    "key": "[tokens]\nwindw = 3",
    "top": "window = 3",
    "other": "[run]\nwindow = 3",
    "flat": "tokens = 3",
    "bounds": "[tokens]\nwindow = 0",
    "list": "[tokens]\narchitecture = []",
    "both": "[tokens]\ncap = 3\nmax_pairs_per_row = 3\n",
}
FILES: dict[str, Content] = {
    "blank.txt": b" \n\t\r\n",
    "nul.txt": b"a b\0",
    "cut.gz": PACKED[:-9],
    "rare.txt": "a a b",
    "folder/photo.png": b"",
    "nothing/readme": b"",
    **{f"{name}.toml": text for name, text in TOMLS.items()},
    "bad.tsv": b"w1\tw2\xff\t3\n",
    "names.csv": TABLE,
    "bad.parquet": TABLE,
    "lists.parquet": pl.DataFrame({"key": ["w1"], "name": ["x"], "tags": [["y"]]}),
    "keys.txt": "w1\n",
    "unknown.txt": "x\ny\n",
    "bytes.txt": b"w1\n\xff\n",
    "half.txt.gz": PACKED[: len(PACKED) // 2],
    "empty.txt.gz": b"",
    "no-key.csv": "a,b\n1,2\n",
    "floats.parquet": pl.DataFrame({"key": [1.5]}),
    "damaged.parquet": b"PAR1 and so on, PAR1",
}
WORDS = {
    "WITH": "train text.txt --workdir next --config",
    "NEW": "train text.txt --workdir next",
    "BATCH": "neighbors run --to x.csv --from",
    "NAMED": "neighbors replicas --names names.csv",
}
TEXT = r"""
[]
train --window x
    `--window` must be an integer or 'session', got 'x'.
--print-completion tcsh
    `--print-completion` must be one of bash, zsh, fish, got 'tcsh'.
train --alpha -inf
    `alpha` must be a finite number > 0, got -inf.
train --min-alpha -1e-3
    `min_alpha` must be a number from 0 to `alpha`, got -0.001.
train --model encoder --layers 9 -.5
    `--layers` must be numbers, got '9', '-.5'.
train --architecture skip
    invalid choice 'skip' for argument '--architecture'. Expected one of ('skipgram',
    'cbow', 'cbow-softmax').
train --windw 3
    Unknown option `--windw`, did you mean `--window`?
train --corpus x
    Unknown option `--corpus`: give it without.
train text.txt more
    Not understood: more
trian
    Unknown verb `trian`, did you mean `train`? The verbs are train, sweep, phrases,
    watch, report, verify, neighbors, next, analogy, index, embed, export, convert,
    evaluate, compare, parity, doctor, devices.
train --window
    Missing value for argument '--window'.
train --overwrite=no
    `--overwrite` must be without a value, got 'no'.
parity --bootstrap
    `bootstrap` must be False for parity, got True. Its stage `bootstrap` trains on
    resamples.
parity --window session
    `window` must be an integer for parity: the NumPy trainer has no blocks of whole
    sessions, got 'session'.
parity --attributes items.csv
    `attributes` must be empty for parity: the oracle has none. With `subwords` rows
    that tokens share are compared.
analogy run w1
    Missing from embedder analogy: B C
neighbors run w1 --topn y
    `--topn` must be an integer, got 'y'.
[B1 B2 B4]
train blank.txt --workdir next
    Corpus blank.txt: The corpus has no tokens.
train nul.txt --workdir next
    nul.txt is not text: NUL byte at offset 3.
train cut.gz --workdir next
    cut.gz is not a whole .gz file: …
train rare.txt --workdir next
    Corpus rare.txt: Nothing occurs `min_count` = 5 times or more: the most frequent,
    'a', occurs 2 times.
train missing.txt --workdir next
    Corpus missing.txt does not exist.
train '*.nothing' --workdir next
    Corpus *.nothing matches no file.
train nothing --workdir next
    Corpus nothing is a folder without .txt or .gz files.
train ''
    `corpus` must be a file, a glob or a folder, got ''.
[]
NEW --ns-exponent 400
    `ns_exponent` must leave count ** ns_exponent finite, got 400.0.
NEW --optimizer adagrad --max-pairs-per-row 64
    `max_pairs_per_row` applies only to `optimizer` = 'sgd', got 64.0.
NEW --optimizer adam
    `optimizer` of tables must be 'sgd' or 'adagrad', got 'adam'.
NEW --preset items --model encoder
    `preset` applies only to `model` = 'tokens', got 'items' with 'encoder'.
train text.txt --workdir . --overwrite
    `workdir` must be a run, or empty, or new: . holds other files.
[B14]
WITH cut.toml
    cut.toml is not valid TOML: …
WITH bytes.toml
    bytes.toml is not valid TOML: …
WITH table.toml
    table.toml: unknown table [tokns], did you mean `tokens`?
WITH key.toml
    key.toml: unknown key `windw` in [tokens], did you mean `window`?
WITH top.toml
    top.toml: unknown table [window]: `window` belongs in [tokens].
WITH other.toml
    other.toml: unknown key `window` in [run]: `window` belongs in [tokens].
WITH flat.toml
    flat.toml: `tokens` must be a table, got 3.
WITH bounds.toml
    bounds.toml: `window` must be an integer from 1 to 127 or 'session', got 0.
WITH list.toml
    list.toml: `architecture` must be 'skipgram' or 'cbow' or 'cbow-softmax', got [].
WITH both.toml
    both.toml: `max_pairs_per_row` and its former name `cap` are both given: leave out
    the former.
[]
NEW --devices 5
    `devices` must be at most 1, the number there is here, got 5.
NEW --table-sharding rows --table-devices 3
    `table_devices` must divide the number of devices, 1, got 3.
NEW --table-devices 2
    `table_devices` needs `table_sharding` columns or rows, got 'auto' with
    `table_devices` = 2.
NEW --mode jit --table-sharding rows
    `mode` jit takes one device with whole tables, got `devices` = 0 and
    `table_sharding` = 'rows'.
NEW --update dense --table-sharding columns
    `update` dense takes whole tables, got `table_sharding` = 'columns'.
NEW --backend numba --mode sharded
    `backend` numba takes one process and one device, got `mode` = 'sharded', `devices`
    = 0 and `table_sharding` = 'auto' in 1 processes.
NEW --backend numba --update dense
    `update` must be 'rows' with numba, got 'dense'.
[]
neighbors run W1
    'W1' is not in the vocabulary: did you mean 'w1'?
neighbors missing w1
    RUN missing does not exist.
neighbors folder w1
    RUN folder holds no finished run: folder/vectors.safetensors is missing.
neighbors text.txt w1
    text.txt line 1: must be the numbers of keys and of dimensions, got 'w0 w2 w0 w11 w1
    w14 w46 w0 w31 w0 w2 ...'.
evaluate run --pairs bad.tsv
    bad.tsv is not UTF-8 text: …
export run --to x.foo
    `to` must end in .txt, .vec, .txt.gz, .vec.gz, .bin, .safetensors, .npz, .parquet,
    .faiss or .sql, or `format` be given, got 'x.foo'.
export run --to x.npz --dtype int4
    `--dtype` must be float16 or int8, got 'int4'.
export run --to nowhere/x.txt
    Folder …/nowhere does not exist.
neighbors run --session w1 --decay 0
    `decay` must be a number in (0, 1], got 0.0.
neighbors run w1 --decay 0.5
    `decay` applies only with --session.
[B61]
neighbors run
    WORD: give one or more to look up, or lines on stdin.
[B28 B33]
neighbors run --name x
    `name` needs `names`, the table of keys and names.
neighbors run w1 --names missing.csv
    `names` missing.csv does not exist.
neighbors run w1 --names bad.parquet
    bad.parquet is not Parquet, which its name says.
NAMED --name 'RED MAG'
    `name` 'RED MAG' is the name of no key in the vocabulary: did you mean 'RED MUG'?
neighbors replicas --session w1 --stable
    `session` goes with neither WORD, --name nor --stable.
neighbors run w1 --where price=1
    `where` needs `names`, the table of keys and names.
NAMED w1 --where cost=1
    `where` 'cost=1': names.csv has no column 'cost'; it has 'key', 'name', 'price'.
NAMED w1 --where 'name=red mug'
    `where` 'name=red mug': no row of names.csv has it: did you mean 'RED MUG'?
NAMED w1 --where price=4
    `where` 'price=4' leaves no key of the vocabulary.
export run --to v.bin --names names.csv
    Names can be written only to .parquet or .sql, got 'v.bin'.
export replicas --to x.csv --stability 3 --names lists.parquet
    A .csv file has no column of lists or structs, got 'tags': give a .parquet file.
[B53]
export run --to x --format csv
    `format` must be one of word2vec, fasttext, word2vec-binary, safetensors, npz,
    parquet, fasttext-bin, glove, sentence-transformers, model2vec, faiss, pgvector,
    onnx, stablehlo, got 'csv'.
export run --to x.npz --format glove
    `to` must end in .txt, .vec, .txt.gz or .vec.gz with `format` glove, got 'x.npz'.
export run --to x --format onnx
    `to` must end in .onnx with `format` onnx, got x.
export run --to x.stablehlo
    `to` .stablehlo applies only to an encoder, got run.
export encoder --to x --format model2vec
    `format` model2vec applies only to vectors of tokens, got the run of an encoder
    encoder.
export replicas --to x.csv --stability 3 --dtype int8
    `dtype` goes with neither --replicas, --stability, --predictions nor --parameters,
    got 'int8'.
[B54]
export run --to x.npz --pca 13
    `pca` must be at most 4, the dimensions of the vectors, got 13.
export encoder --to x.stablehlo --pca 2
    `pca` applies only to vectors, got 2 with .stablehlo
[B55]
export run --to run --format model2vec
    `to` must be new with `format` model2vec, got run: delete it, or give another name.
[B25]
neighbors run w1 --stable
    `stable` applies only to a run with replicas, got run.
export replicas --to x.csv --stability 0
    `stability` must be an integer >= 1, got 0.
export replicas --to x.npz --replicas
    `to` must end in .safetensors or .parquet, got 'x.npz'.
NEW --resume replicas
    `resume` must be a run of a single model, got replicas, which has 2 replicas.
convert replicas new.npz
    SOURCE must be a run of a single model, got replicas, which has 2 replicas.
[B94]
next shop
    ITEM: give at least one item of the session, or --from.
next shop W1
    Item 'W1' is not in the vocabulary: did you mean 'w1'?
next graph 1
    RUN graph has no counts of sessions: train it with --next-items, or with --preset
    items.
next missing w1
    RUN missing does not exist.
next shop w1 --new-items 0
    `new_items` must be a number > 0, got 0.0.
next shop w1 --new-items 2
    `new_items` needs items that an update added, got 2.0, and the model has none.
next shop w1 --topn 0
    `topn` must be an integer >= 1, got 0.
next shop w1 --where price=1
    `where` needs `names`, the table of keys and names.
next shop w1 --order time
    `order` applies only with --from, got time.
next shop w1 --to x.csv
    `to` applies only with --from, got x.csv.
next shop --from keys.txt
    `from` needs `to`, the file to write, .parquet or .csv.
next shop w1 --from keys.txt --to x.csv
    `from` goes with neither ITEM nor --json.
next shop --from keys.txt --to x.txt
    `to` must end in .parquet or .csv with --from, got x.txt.
next shop --from unknown.txt --to x.csv
    `from` must have a session with an item of the vocabulary, got unknown.txt with 2
    other items.
next shop --from missing.txt --to x.csv
    Corpus missing.txt does not exist.
train edges.tsv --walks 2 --next-items
    `next_items` applies only to texts, got True with `walks` = 2.
[B58]
neighbors run --from keys.txt
    `from` needs `to`, the file to write, .parquet or .csv.
neighbors run --from keys.txt --to x.txt
    `to` must end in .parquet or .csv with --from, got x.txt.
neighbors run --from keys.txt --to run/model.npz
    `to` must not be a file of a run, got run/model.npz in the run …/run: give another
    name.
BATCH keys.txt w1
    `from` goes with neither WORD, --session, --name, --attributes nor --json.
BATCH unknown.txt
    `from` must have a token of the vocabulary, got unknown.txt with 2 others, the first
    is 'x'.
BATCH bytes.txt
    `from` bytes.txt is not UTF-8 text: byte 0xff in line 2.
BATCH half.txt.gz
    half.txt.gz is not a whole .gz file: …
BATCH empty.txt.gz
    empty.txt.gz is not a whole .gz file: it is empty.
BATCH no-key.csv
    `from` no-key.csv has no column 'key'; it has 'a', 'b'.
BATCH floats.parquet
    `from` floats.parquet: 'key' must have text or integers, got 1.5.
BATCH damaged.parquet
    `from` damaged.parquet cannot be read: …
[B60]
index replicas
    RUN must have no replicas, whose search is exact, got replicas: export their mean to
    a file.
index run --recall 2
    `recall` must be in (0, 1], got 2.0.
index run --connectivity 1
    `connectivity` must be 2 to 512, got 1.
[B59]
neighbors run w1 --min-count -1
    `min_count` must be an integer >= 0, got -1.
BATCH keys.txt --min-count 9999
    `min_count` 9999 leaves no key of the vocabulary.
neighbors replicas --session w1 --min-count 9 --max-count 8
    `min_count` 9 and `max_count` 8 leave no key of the vocabulary.
neighbors run/vectors.txt w1 --min-count 2
    `min_count` needs counts, which run/vectors.txt lacks.
[B29]
train nosuch://a/b.txt --workdir next
    nosuch://a/b.txt cannot be read: Protocol not known: nosuch.
train memory://nothing --workdir next
    memory://nothing does not exist.
train 'memory://nothing/*.txt' --workdir next
    memory://nothing/*.txt matches no file.
train zip://a.txt::http://x/a.zip --workdir next
    zip://a.txt::http://x/a.zip: URLs within URLs (::) are not read: unpack the archive.
train https://***@host/a --workdir next
    https://***@host/a had credentials or a query, which are not stored: give the whole
    URL again.
[B16]
train examples.npz --model encoder --workdir encoder --batch-size 9 --layers 6 9 3
    encoder holds a run with other settings: `layers` (6, 4, 3) there, (6, 9, 3) now,
    `batch_size` 32 there, 9 now. Give another --workdir, or --overwrite to start anew.
"""


def model() -> EmbeddingTrainer:
    return EmbeddingTrainer.load("run/model.npz")


CALLS = r"""
[]
model().most_similar("z")
    InputKeyError: "Token 'z' is not in the vocabulary."
model().doesnt_match([])
    `keys` must have a token, got none.
model().most_similar(np.ones(4), "w0")
    `positive` must be tokens, or a vector [4] alone, got a vector [4] beside
    negative='w0'.
model().similarity(np.ones(2), "w0")
    A vector must be numbers [4], got float64[2].
EmbeddingTrainer().vectors
    RuntimeError: The trainer is not trained yet: call `fit` first.
EmbeddingTrainer(size=3)
    InputTypeError: EmbeddingTrainer.__init__() got an unexpected keyword argument
    'size'
EmbeddingTrainer().set_params(window=0, epochs=7)
    `window` must be an integer from 1 to 127 or 'session', got 0.
EmbeddingTrainer().set_params(widow=1)
    InputTypeError: set_params() got an unexpected keyword argument 'widow'.
EmbeddingTrainer(hs=0)
    InputTypeError: `hs` must be True or False, got 0.
EmbeddingTrainer.preset("item")
    `preset` must be 'none' or 'items' or 'words' or 'graph', got 'item'.
[B45]
EmbeddingTrainer().fit([], callbacks=3)
    InputTypeError: `callbacks` must be functions of one argument, or `every(N,
    function)`, got 3.
EmbeddingTrainer().fit([], callbacks=[print, "x"])
    InputTypeError: `callbacks` must be functions of one argument, or `every(N,
    function)`, got 'x'.
EmbeddingTrainer().fit([], verbose="yes")
    InputTypeError: `verbose` must be True, False or None, got 'yes'.
every(3, None)
    InputTypeError: `callbacks` must be functions of one argument, or `every(N,
    function)`, got None.
every(0, print)
    `updates` must be at least 1, got 0.
every(True, print)
    InputTypeError: `updates` must be an integer, got True.
"""


LONG = "long " * 100
NAMES = {"EmbeddingTrainer": EmbeddingTrainer, "every": every, "model": model, "np": np}
ROWS = rows_of(TEXT, WORDS, FILES) + calls_of(CALLS, NAMES, FILES)
ROWS += [
    Refusal(
        f"train --window '{LONG}'",
        f"`--window` must be an integer or 'session', got '{LONG}'.",
    ),
]
