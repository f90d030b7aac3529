"""fastText's `.bin`: all of a model, so that unknown words have vectors.

A header of numbers, the words with their counts, and two matrices of little-endian
float32: the input rows of words and then of all buckets, and the output rows. Versions
11 and 12 of the format are read, if they are not quantized and have no labels.

Reference: fastText, `src/fasttext.cc`, `src/args.cc` and `src/dictionary.cc`.
"""

import math
import os
import struct
from collections.abc import Iterable, Iterator
from io import BufferedIOBase
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from embedder.errors import InputEndError, InputError, InputNotFoundError
from embedder.vectors.subwords import NgramRule, Ngrams, composed, subwords_of
from embedder.vectors.vectors import Vectors, short_repr
from embedder.vectors.word2vec import check_plain_keys, float32, read_binary

MAGIC = struct.pack("<i", 793712314)
_VERSION = 12
_HEADER = "<12id"
_NAMES = (
    *("dim", "ws", "epoch", "minCount", "neg", "wordNgrams", "loss", "model"),
    *("bucket", "minn", "maxn", "lrUpdateRate", "t"),
)
_KIND = "a fastText file"
_ROWS_AT_ONCE = 2**16
_HS, _NEGATIVE, _CBOW, _SKIPGRAM = 1, 2, 1, 2
_NO_RULE = NgramRule(0, 0, 0)
_DEFAULTS: dict[str, Any] = {
    **{"ws": 5, "epoch": 5, "minCount": 1, "neg": 5, "wordNgrams": 1},
    **{"loss": _NEGATIVE, "model": _SKIPGRAM, "lrUpdateRate": 100, "t": 1e-4},
}


def write_fasttext(vectors: Vectors, path: Path) -> None:
    """Writes a model of fastText that has these vectors, and those of unknown words.

    Vectors without n-grams make a model without them. Rows of buckets that the
    vocabulary has not are those of the start.

    Raises:
      InputError: a key has white space, or a value overflows float32.
    """
    check_plain_keys(vectors.keys, _KIND)
    ngrams = None if vectors.ngrams is None else vectors.ngrams()
    num_words, size = vectors.matrix.shape
    rule = _NO_RULE if ngrams is None else ngrams.rule
    words = vectors.matrix if ngrams is None or ngrams.words is None else ngrams.words
    output = np.zeros_like(vectors.matrix)
    given: dict[str, Any] = {}
    if ngrams is not None:
        output = output if ngrams.output is None else ngrams.output
        given = dict(ngrams.settings or {})
    counts = np.ones(num_words, np.int64) if vectors.counts is None else vectors.counts
    own = {"dim": size, "bucket": rule.num_buckets}
    own |= {"minn": rule.min_n, "maxn": rule.max_n}

    def rows() -> Iterator[np.ndarray]:
        yield words
        for start in range(0, rule.num_buckets, _ROWS_AT_ONCE):
            assert ngrams is not None, "buckets are of n-grams"
            stop = min(start + _ROWS_AT_ONCE, rule.num_buckets)
            yield ngrams.rows_of(np.arange(start, stop))

    keys = [key.encode() for key in vectors.keys]
    with open(path, "wb") as file:
        _write(file, given | own, keys, counts, rows(), output)


def _write(
    file: Any,
    given: dict[str, Any],
    words: list[bytes],
    counts: np.ndarray,
    rows: Iterable[np.ndarray],
    output: np.ndarray,
) -> None:
    settings = _DEFAULTS | given
    num_words, num_tokens = len(words), settings.get("ntokens", int(counts.sum()))
    num_rows = num_words + settings["bucket"]
    file.write(MAGIC + struct.pack("<i", _VERSION))
    file.write(struct.pack(_HEADER, *(settings[name] for name in _NAMES)))
    file.write(struct.pack("<3iqq", num_words, num_words, 0, num_tokens, -1))
    for word, count in zip(words, counts.tolist(), strict=True):
        file.write(word + b"\0" + struct.pack("<qb", count, 0))
    file.write(struct.pack("<?qq", False, num_rows, settings["dim"]))
    for some in rows:
        file.write(_little(some))
    file.write(struct.pack("<?qq", False, *output.shape))
    file.write(_little(output))


class FastTextModel(NamedTuple):
    """The content of a `.bin` of fastText."""

    settings: dict[str, Any]
    """By fastText's names: dim, ws, epoch, minCount, neg, wordNgrams, loss (1: hs, 2:
    ns), model (1: cbow, 2: sg), bucket, minn, maxn, lrUpdateRate, t and ntokens."""
    words: list[bytes]  # [V]
    counts: np.ndarray  # i64[V]
    input: np.ndarray  # f32[V + bucket, D]
    output: np.ndarray  # f32[R, D]


def write_fasttext_model(model: FastTextModel, path: str | os.PathLike[str]) -> None:
    """Writes a `.bin` of fastText."""
    with open(path, "wb") as file:
        _write(file, *model[:3], [model.input], model.output)


def read_fasttext_model(path: str | os.PathLike[str]) -> FastTextModel:
    """The model in a `.bin` of fastText.

    Raises:
      InputNotFoundError: there is no such file.
      InputEndError: the file ends too early.
      InputError: it is damaged, quantized, supervised or of another version.
    """
    path = Path(path)
    if not path.is_file():
        raise InputNotFoundError(f"Model file {path} does not exist.")
    with open(path, "rb") as file:
        reader = _Reader(file, path)
        given = reader.header()
        words, counts, given["ntokens"] = reader.words()
        num_rows = len(words) + given["bucket"]
        rows = reader.matrix("input", num_rows, given["dim"])
        output = reader.matrix("output", None, given["dim"])
        if file.read(1):
            raise InputError(f"{path} is not whole: it goes on after its matrices.")
    return FastTextModel(given, words, counts, rows, output)


def read_fasttext(path: Path) -> Vectors:
    """The vectors of a model of fastText, with those of unknown words.

    Words that are not UTF-8 get keys with escapes as `\\xe4`.

    Raises:
      InputEndError, InputError: see `read_fasttext_model`.
    """
    given, raw, counts, rows, output = read_fasttext_model(path)
    words = [word.decode("utf-8", "surrogateescape") for word in raw]
    shown = [word.decode("utf-8", "backslashreplace") for word in raw]
    if not given["bucket"]:
        return Vectors(shown, rows, counts)
    rule = NgramRule(given["minn"], given["maxn"], given["bucket"])
    found = subwords_of(words, rule)
    own, of_buckets = rows[: len(words)], rows[len(words) :]
    matrix = composed(found, np.concatenate([own, of_buckets[found.buckets]]))
    ngrams = Ngrams(
        *(rule, np.arange(rule.num_buckets), of_buckets),
        words=own,
        output=output,
        settings=given,
    )
    return Vectors(shown, matrix, counts, ngrams=lambda: ngrams)


def read_bin(path: Path) -> Vectors:
    """The vectors of a `.bin`: of fastText, or of word2vec, by its first bytes."""
    with open(path, "rb") as file:
        first = file.read(len(MAGIC))
    is_old = len(first) == 4 and first[3] == 0 and 0 < int.from_bytes(first, "little")
    return read_fasttext(path) if first == MAGIC or is_old else read_binary(path)


def training_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a trainer by the names that fastText has for them."""
    is_tree = settings["hs"] and not settings["negative"]
    window = settings["window"]
    return {
        "ws": window if isinstance(window, int) else 0,
        "epoch": settings["epochs"],
        "minCount": settings["min_count"],
        "neg": settings["negative"],
        "loss": _HS if is_tree else _NEGATIVE,
        "model": _CBOW if settings["architecture"] == "cbow" else _SKIPGRAM,
        "t": settings["sample"],
    }


def _little(rows: np.ndarray) -> bytes:
    return float32(rows, _KIND).astype("<f4", copy=False).tobytes()


class _Reader:
    """Reads an untrusted file from its start on."""

    def __init__(self, file: BufferedIOBase, path: Path):
        self._file, self._path = file, path
        self._size = path.stat().st_size
        self._is_old = False  # of before version 11

    def header(self) -> dict[str, Any]:
        magic, version = self._unpack("<4si")
        self._is_old = magic != MAGIC
        if self._is_old:  # it begins with dim and ws
            values = (*struct.unpack("<i", magic), version, *self._unpack("<10id"))
        elif version in (11, 12):
            values = self._unpack(_HEADER)
        else:
            raise self._fault(f"it is of version {version}, not 11 or 12")
        found = dict(zip(_NAMES, values, strict=True))
        if version == 11 and found["model"] == 3:
            found["maxn"] = 0  # as fastText reads it
        least, most = found["minn"], found["maxn"]
        if found["dim"] < 1 or found["bucket"] < 0 or (most > 0 and least > most):
            raise self._fault(
                f"its header has dim {found['dim']}, bucket {found['bucket']}, minn "
                f"{least} and maxn {most}"
            )
        if most > 0 and not (1 <= least and most <= 50):
            raise self._fault(f"it has n-grams of {least} to {most} characters")
        if most <= 0:
            found["bucket"] = 0
        return found

    def words(self) -> tuple[list[bytes], np.ndarray, int]:
        """The words, their counts, and the number of tokens of the text."""
        size, num_words, num_labels, num_tokens = self._unpack("<3iq")
        num_pruned = 0 if self._is_old else self._unpack("<q")[0]
        if num_labels:
            raise self._fault(f"it is supervised, with {num_labels} labels")
        if num_pruned > 0:
            raise self._fault("its n-grams are pruned")
        if size != num_words or not 0 < size <= self._size // 10:
            raise self._fault(f"it claims {size} entries and {num_words} words")
        words, counts = [], np.empty(size, np.int64)
        for row, (word, count) in enumerate(self._entries(size)):
            words.append(word)
            counts[row] = count
        if counts.min() < 0:
            raise self._fault(f"a count is {counts.min()}")
        return words, counts, num_tokens

    def _entries(self, num: int) -> Iterator[tuple[bytes, int]]:
        buffer, at = b"", 0
        for _ in range(num):
            while (end := buffer.find(b"\0", at)) < 0 or end + 10 > len(buffer):
                more = self._file.read(2**20)
                if not more:
                    raise self._end("its words")
                buffer, at = buffer[at:] + more, 0
            count, kind = struct.unpack_from("<qb", buffer, end + 1)
            if kind != 0:
                raise self._fault(f"{short_repr(buffer[at:end])} is a label")
            yield buffer[at:end], count
            at = end + 10
        self._file.seek(at - len(buffer), os.SEEK_CUR)

    def matrix(self, name: str, num_rows: int | None, size: int) -> np.ndarray:
        """A matrix [num_rows, size]; None: any number of rows."""
        is_quantized = not self._is_old and self._unpack("<?")[0]
        rows, columns = self._unpack("<qq")
        if is_quantized:
            raise self._fault("it is quantized")
        if columns != size or rows < 0 or num_rows not in (None, rows):
            expected = "any" if num_rows is None else num_rows
            raise self._fault(
                f"its {name} matrix is {rows} x {columns}, not {expected} x {size}"
            )
        if rows * columns * 4 > self._size - self._file.tell():
            raise self._end(f"its {name} matrix")
        values = np.frombuffer(self._file.read(rows * columns * 4), "<f4")
        found = values.astype(np.float32, copy=False).reshape(rows, columns)
        if not np.isfinite(found).all():
            raise self._fault(f"its {name} matrix has values that are not finite")
        return found

    def _unpack(self, kind: str) -> tuple:
        data = self._file.read(struct.calcsize(kind))
        if len(data) < struct.calcsize(kind):
            raise self._end("its header")
        values = struct.unpack(kind, data)
        if any(isinstance(x, float) and not math.isfinite(x) for x in values):
            raise self._fault("its header has a value that is not finite")
        return values

    def _fault(self, reason: str) -> InputError:
        return InputError(f"{self._path} cannot be read as fastText's .bin: {reason}.")

    def _end(self, what: str) -> InputEndError:
        return InputEndError(f"{self._path} ends in {what}, at {self._size} bytes.")
