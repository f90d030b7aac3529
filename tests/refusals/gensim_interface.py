"""The classes of `embedder.gensim`: numbers, corpora, and files of any kind."""

import builtins
import functools
import gzip  # noqa: F401
import json
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from embedder import errors
from embedder.gensim import (  # noqa: F401
    FastText,
    KeyedVectors,
    LineSentence,
    Phrases,
    Word2Vec,
    load_facebook_vectors,
    save_facebook_model,
)
from tests.refusals.rows import Refusal, rows_of

LINES = [["a", "b", "c", "d"], ["b", "c", "a", "ä"]] * 20


def built(kind: type = Word2Vec, **options: Any) -> Any:
    """A model with a vocabulary of five words."""
    found = kind(**{"vector_size": 4, "min_count": 1, "sample": 0} | options)
    found.build_vocab(LINES)
    return found


def but(given: Any, **attributes: Any) -> Any:
    """The model or vectors with other attributes."""
    vars(given).update(attributes)
    return given


def fit(given: Any, corpus: Any = LINES, **options: Any) -> None:
    given.train(corpus, **{"epochs": 1, "total_examples": 40} | options)


def locked(given: Any) -> Any:
    given.wv.vectors_vocab_lockf = np.zeros(1, np.float32)
    return given


def file(content: bytes) -> str:
    Path("f").write_bytes(content)
    return "f"


def read(content: bytes, **options: Any) -> KeyedVectors:
    return KeyedVectors.load_word2vec_format(file(content), **options)


def load(
    given: Any, facts: Any = None, num_bytes: int = -1, kind: str = "", **arrays: Any
) -> Any:
    """What is saved comes back with other facts and arrays; None removes one."""
    given.save("m")
    with safetensors.safe_open("m", "numpy") as opened:
        metadata = opened.metadata()
    whole = json.loads(metadata["json"])
    whole["facts"] |= facts or {}
    whole["kind"] = kind or whole["kind"]
    changed = {name.replace("__", "."): array for name, array in arrays.items()}
    found = safetensors.numpy.load_file("m") | changed
    found = {name: array for name, array in found.items() if array is not None}
    data = safetensors.numpy.save(found, metadata | {"json": json.dumps(whole)})
    return type(given).load(file(data[:num_bytes] if num_bytes > 0 else data))


def text(value: Any) -> np.ndarray:
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


CUT = "ValueError: f is not a whole file of `save`: "
TEXT = r"""
[B77]
built().build_vocab()
    TypeError: Either one of corpus_file or corpus_iterable value must be provided
built().build_vocab(corpus_file="x")
    TypeError: Parameter corpus_file must be a valid path to a file, got 'x' instead
built().build_vocab(5)
    TypeError: The corpus_iterable must be an iterable of lists of strings, got 5
    instead
fit(built(), (x for x in LINES), epochs=2)
    TypeError: Using a generator as corpus_iterable can't support 2 passes. Try a
    re-iterable sequence.
fit(but(built(), window=0))
    InputError: `window` must be an integer from 1 to 127 or 'session', got 0.
fit(but(built(), syn1neg=np.zeros((7, 4), "f4")))
    RuntimeError: `wv` has 5 keys and `syn1neg` 7 rows: add words by
    build_vocab(update=True), which makes rows for both.
FastText([["a", "b", "c"]] * 5, max_final_vocab=2, min_count=1, bucket=9)
    RuntimeError: you must first build vocabulary before training the model
fit(locked(built(FastText)))
    NotImplementedError: `vectors_vocab_lockf` must be 1: rows of n-grams cannot be
    locked yet.
[B78]
built().score(LINES)
    RuntimeError: We have currently only implemented score for the hierarchical
    softmax scheme, so you need to have run word2vec with hs=1 and negative=0 for
    this to work.
built(hs=1, negative=0).predict_output_word(["a"])
    RuntimeError: We have currently only implemented predict_output_word for the
    negative sampling scheme, so you need to have run word2vec with negative > 0 for
    this to work.
[B90]
built(vector_size=-5)
    ValueError: `vector_size` must be an integer >= 1, got -5.
built(FastText, alpha=float("nan"))
    ValueError: `alpha` must be a finite number, got nan.
built(min_alpha=float("inf"))
    ValueError: `min_alpha` must be a finite number, got inf.
built(FastText, bucket=-5)
    ValueError: `bucket` must be an integer >= 0, got -5.
Word2Vec(LINES, min_count=1, alpha=-0.01, min_alpha=-0.01)
    ValueError: `alpha` must be a number > 0, got -0.01.
fit(built(), start_alpha=float("nan"))
    ValueError: `start_alpha` must be a finite number, got nan.
fit(built(), LINES * 300, total_examples=12000, end_alpha=-0.01)
    ValueError: `min_alpha` must be a number >= 0, got -0.01.
fit(built(), end_alpha=-0.01)
    ValueError: `min_alpha` must be a number >= 0, got -0.01.
Word2Vec(LINES, min_count=1, min_alpha=-0.01)
    ValueError: `min_alpha` must be a number >= 0, got -0.01.
Phrases(LINES, scoring=lambda worda_count: 1)
    ValueError: scoring function missing expected parameters ['wordb_count',
    'bigram_count', 'len_vocab', 'min_count', 'corpus_word_count']
Phrases(LINES)[iter([["a", "b"]])][0]
    RuntimeError: Type <class 'itertools.chain'> does not support slicing.
[B74]
built().save("no/m")
    FileNotFoundError: Folder …/no does not exist.
built().save("m") or Word2Vec.load("m", mmap="w+")
    ValueError: `mmap` must be None or one of ('r', 'r+', 'c'), got 'w+'.
load(built(), num_bytes=999)
    CUT Error while deserializing header: invalid header length.
KeyedVectors.load(file(safetensors.numpy.save({"x": np.zeros(2)})))
    CUT its format is None, not 'embedder.gensim 1'.
load(built(), kind="Tree")
    CUT it has a 'Tree'.
load(built(), {"alpha": "0.1"})
    CUT `alpha` must not be '0.1'.
load(built(), {"own": {"train": 1}})
    CUT `'train'` must be no attribute of Word2Vec.
load(built(), wv__keys=None)
    CUT `wv.keys` must have 1 axes, got none.
load(built(), wv__keys=np.frombuffer(b"[" * 100_000, np.uint8))
    CUT ….
load(built(), wv__keys=text([{"list": []}] * 5))
    CUT 'list' is no type of keys.
load(built(), wv__keys=text([{"tuple": [[]]}] * 5))
    CUT …unhashable type: 'list'….
load(built(), raw_vocab__counts=np.arange(3))
    CUT `raw_vocab` must have one count for each word.
load(built(), syn1neg=np.zeros((5, 2), "f4"))
    CUT `syn1neg` must be [5, 4], got [5, 2].
load(built(hs=1), wv__attribute__count=np.full(5, -1))
    CUT `counts` must be integers >= 0, got int64[5].
but(built(), alpha="fast").save("m")
    ValueError: `alpha` must not be 'fast'
but(built(), sample={1}).save("m")
    TypeError: `sample` must be JSON to be saved, got {1}.
but(built().wv, vectors=np.zeros((5, 2), "f4")).save("m")
    ValueError: `vectors` must be [5, 4], got [5, 2]
but(built().wv, index_to_key=[("no", print)] * 5).save("m")
    TypeError: `index_to_key` must be text, numbers, bytes, dates, or tuples of these
    to be saved, got <built-in function print>: `pickle.dump` takes any.
save_facebook_model(built(FastText, null_word=1, bucket=9), "m.bin")
    InputError: A key must have no U+0000 in a fastText file, where it ends the key,
    got '\x00'.
save_facebook_model(built(FastText, bucket=9), "m.bin.gz")
    ValueError: `path` must be of a file that is not packed, got m.bin.gz.
load_facebook_vectors(file(gzip.compress(bytes(99))))
    InputError: f is packed by gzip: unpack it first.
load(Phrases(LINES), {"scoring": "antigravity:fly"})
    CUT its `scoring` is 'antigravity:fly', which no imported module has as a
    scorer: import its module before `load`.
load(Phrases(LINES), vocab=np.arange(2))
    CUT `vocab` must have one value for each text.
but(Phrases(LINES), scoring=lambda **counts: 1).save("m")
    TypeError: `scoring` must be a function of a module to be saved, got ….
Phrases([[1], [2]]).save("m")
    TypeError: `vocab` must be text to be saved, got 1.
built().load("m")
    AttributeError: This method should be called on a class object.
[B75]
KeyedVectors.load(file(b"\x80\x04K\x01."))
    ValueError: f is not a file of `save`. If gensim wrote it, it is a pickle, which
    can run any program: give trust=True, or set EMBEDDER_GENSIM_TRUST=1, to read it
    by gensim. load_word2vec_format reads files of word2vec, load_facebook_vectors
    those of fastText.
[B76]
read(b"2 2\na 1 2\n")
    EOFError: unexpected end of input; is count incorrect or file otherwise damaged?
read(b"2 2\na " + bytes(8) + b"b 12", binary=True)
    EOFError: unexpected end of input; is count incorrect or file otherwise damaged?
read(b"1000000000000 100\na 1 2\n")
    EOFError: unexpected end of input; is count incorrect or file otherwise damaged?
read(b"3 2\na 1 2\nb 1\nc 1 2\n")
    ValueError: invalid vector on line 3: it has 1 values, not 2 (is this really the
    text format?)
read(b"a 1 2\nb 1 2 3\n", no_header=True)
    ValueError: invalid vector on line 2: it has 3 values, not 2 (is this really the
    text format?)
read(b"a\t1\t2\n", no_header=True)
    ValueError: invalid vector on line 1: it has 0 values, not 1 (is this really the
    text format?)
built().wv.intersect_word2vec_format(file(b"2 4\na 1 2 3 4\nb 1\n"))
    ValueError: invalid vector on line 3: it has 1 values, not 4 (is this really the
    text format?)
list(LineSentence("x.zst"))
    ValueError: x.zst is of zstd: give a file that is .gz or not packed.
built().wv.add_vectors(["x"], [[1, 2]])
    ValueError: `weights` must be [1, 4], got [1, 2].
built().wv.add_vectors(["x"], np.ones((1, 4)), {"count": np.ones(2)})
    ValueError: `count` must have 1 values, got 2.
built().wv.add_vector("x", [1])
    ValueError: `vector` must be [4], got 1 values.
built().wv.__setitem__("a", 0.5)
    ValueError: `weights` must be [1, 4], got [1, 1].
read(b"1 2\n\xff 1 2\n")
    UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 0: invalid
    start byte
"""


def rows() -> list[Refusal]:
    """As `calls_of`, but each message has its kind, of Python or of `errors`."""
    found = []
    for row in rows_of(TEXT, {}, {}):
        kind, _, message = row.message.replace("CUT ", CUT, 1).partition(": ")
        error = getattr(errors, kind, None) or getattr(builtins, kind)
        call = functools.partial(eval, row.call, globals())
        found.append(Refusal(call, message, error=error, rows=row.rows))
    return found


ROWS = rows()
