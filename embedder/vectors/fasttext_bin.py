"""fastText's `.bin`: all of a model, so that unknown words have vectors.

A header of numbers, the words with their counts, and two matrices of little-endian
float32: the input rows of words and then of all buckets, and the output rows. Versions
11 and 12 of the format are read, if they are not quantized or supervised; labels of
others, which have no rows, are left out.

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

from embedder.config.token_objectives import ARCHITECTURES
from embedder.errors import InputEndError, InputError, InputNotFoundError
from embedder.vectors.key_rows import KeyErrors
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
_HS, _NEGATIVE, _CBOW, _SKIPGRAM, _SUPERVISED = 1, 2, 1, 2, 3
_PACKED = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zX": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
}
"""First bytes of files that other programs pack."""
_DEFAULTS: dict[str, Any] = {
    **{"ws": 5, "epoch": 5, "minCount": 1, "neg": 5, "wordNgrams": 1},
    **{"loss": _NEGATIVE, "model": _SKIPGRAM, "lrUpdateRate": 100, "t": 1e-4},
}


def write_fasttext(vectors: Vectors, path: Path) -> None:
    """Writes a model of fastText that has these vectors, and those of unknown words.

    Vectors without n-grams make a model without them. Rows of buckets that the
    vocabulary has not are those of the start.

    Raises:
      InputError: a key has white space or U+0000, or a value overflows float32.
    """
    check_plain_keys(vectors.keys, _KIND)
    matrix = vectors.matrix
    none = Ngrams(NgramRule(0, 0, 0), np.empty(0, np.int64), matrix[:0])
    ngrams = none if vectors.ngrams is None else vectors.ngrams()
    rule = ngrams.rule
    output = np.zeros_like(matrix) if ngrams.output is None else ngrams.output
    counts = vectors.counts
    counts = np.ones(len(matrix), np.int64) if counts is None else counts
    sizes = {"dim": matrix.shape[1], "bucket": rule.num_buckets}
    sizes |= {"minn": rule.min_n, "maxn": rule.max_n}

    def rows() -> Iterator[np.ndarray]:
        yield matrix if ngrams.words is None else ngrams.words
        for start in range(0, rule.num_buckets, _ROWS_AT_ONCE):
            stop = min(start + _ROWS_AT_ONCE, rule.num_buckets)
            yield ngrams.rows_of(np.arange(start, stop))

    keys = [key.encode() for key in vectors.keys]
    _write(path, {**(ngrams.settings or {}), **sizes}, keys, counts, rows(), output)


def _write(
    path: str | os.PathLike[str],
    own_settings: dict[str, Any],
    words: list[bytes],
    counts: np.ndarray,
    rows: Iterable[np.ndarray],
    output: np.ndarray,
) -> None:
    for word in words:
        if b"\0" in word:
            raise InputError(
                f"A key must have no U+0000 in {_KIND}, where it ends the key, got "
                f"{short_repr(word.decode(errors='backslashreplace'))}."
            )
    settings = _DEFAULTS | own_settings
    num_words, num_tokens = len(words), settings.get("ntokens", int(counts.sum()))
    num_rows = num_words + settings["bucket"]
    with open(path, "wb") as file:
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
    """Writes a `.bin` of fastText.

    Raises:
      InputError: a word has U+0000, or a value overflows float32.
    """
    _write(path, *model[:3], [model.input], model.output)


def read_fasttext_model(path: str | os.PathLike[str]) -> FastTextModel:
    """The model in a `.bin` of fastText.

    Raises:
      InputNotFoundError: there is no such file.
      InputEndError: the file ends too early.
      InputError: it is damaged, packed, quantized, supervised or of another version.
    """
    path = Path(path)
    if not path.is_file():
        raise InputNotFoundError(f"Model file {path} does not exist.")
    with open(path, "rb") as file:
        reader = _Reader(file, path)
        settings = reader.header()
        is_supervised = settings["model"] == _SUPERVISED
        words, counts, settings["ntokens"] = reader.words(is_supervised)
        num_rows = len(words) + settings["bucket"]
        rows = reader.matrix("input", num_rows, settings["dim"])
        output = reader.matrix("output", None, settings["dim"])
        if file.read(1):
            raise InputError(f"{path} is not whole: it goes on after its matrices.")
    return FastTextModel(settings, words, counts, rows, output)


def read_fasttext(path: Path) -> Vectors:
    """The vectors of a model of fastText, with those of unknown words.

    Words that are not UTF-8 get keys with escapes as `\\xe4`.

    Raises:
      InputEndError, InputError: see `read_fasttext_model`.
    """
    settings, raw, counts, rows, output = read_fasttext_model(path)
    words = [word.decode("utf-8", "surrogateescape") for word in raw]
    shown = [word.decode("utf-8", "backslashreplace") for word in raw]
    if not settings["bucket"]:
        return Vectors(shown, rows, counts)
    rule = NgramRule(settings["minn"], settings["maxn"], settings["bucket"])
    subwords = subwords_of(words, rule)
    word_rows, bucket_rows = rows[: len(words)], rows[len(words) :]
    table = np.concatenate([word_rows, bucket_rows[subwords.buckets]])
    matrix = composed(subwords, table)
    ngrams = Ngrams(
        *(rule, np.arange(rule.num_buckets), bucket_rows),
        words=word_rows,
        output=output,
        settings=settings,
    )
    return Vectors(shown, matrix, counts, ngrams=lambda: ngrams)


def read_bin(path: Path, key_errors: KeyErrors = "strict") -> Vectors:
    """The vectors of a `.bin`: of fastText, or of word2vec, by its first bytes."""
    with open(path, "rb") as file:
        first = file.read(len(MAGIC))
    _check_unpacked(first, path)
    is_old = len(first) == 4 and first[3] == 0 and 0 < int.from_bytes(first, "little")
    if first == MAGIC or is_old:
        return read_fasttext(path)
    return read_binary(path, key_errors)


def training_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a trainer by the names that fastText has for them."""
    is_tree = settings["hs"] and not settings["negative"]
    window = settings["window"]
    predicts = ARCHITECTURES[settings["architecture"]].predicts
    return {
        "ws": window if isinstance(window, int) else 0,
        "epoch": settings["epochs"],
        "minCount": settings["min_count"],
        "neg": settings["negative"],
        "loss": _HS if is_tree else _NEGATIVE,
        "model": _CBOW if predicts == "token" else _SKIPGRAM,
        "t": settings["sample"],
    }


def _check_unpacked(first: bytes, path: Path) -> None:
    for start, program in _PACKED.items():
        if first.startswith(start):
            raise InputError(f"{path} is packed by {program}: unpack it first.")


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
        _check_unpacked(magic, self._path)
        self._is_old = magic != MAGIC
        if self._is_old:  # it begins with dim and ws
            values = (*struct.unpack("<i", magic), version, *self._unpack("<10id"))
        elif version in (11, 12):
            values = self._unpack(_HEADER)
        else:
            raise self._fault(f"it is of version {version}, not 11 or 12")
        settings = dict(zip(_NAMES, values, strict=True))
        if version == 11 and settings["model"] == 3:
            settings["maxn"] = 0  # as fastText reads it
        least, most = settings["minn"], settings["maxn"]
        size, num_buckets = settings["dim"], settings["bucket"]
        if size < 1 or num_buckets < 0 or (most > 0 and least > most):
            raise self._fault(
                f"its header has dim {size}, bucket {num_buckets}, minn {least} and "
                f"maxn {most}"
            )
        if most > 0 and not (1 <= least and most <= 50):
            raise self._fault(f"it has n-grams of {least} to {most} characters")
        if most <= 0:
            settings["bucket"] = 0
        return settings

    def words(self, is_supervised: bool) -> tuple[list[bytes], np.ndarray, int]:
        """The words, their counts, and the number of tokens of the text."""
        size, num_words, num_labels, num_tokens = self._unpack("<3iq")
        num_pruned = 0 if self._is_old else self._unpack("<q")[0]
        if num_labels and is_supervised:
            raise self._fault(f"it is supervised, with {num_labels} labels")
        if num_pruned > 0:
            raise self._fault("its n-grams are pruned")
        entries = f"{size} entries, {num_words} words and {num_labels} labels"
        is_sum = num_labels >= 0 and size == num_words + num_labels
        if not is_sum or not 0 < num_words <= size <= self._size // 10:
            raise self._fault(f"it claims {entries}")
        words, counts = [], np.empty(num_words, np.int64)
        for row, (word, count, kind) in enumerate(self._entries(size)):
            if kind != (row >= num_words):  # labels are last, and have no rows
                is_label = "a label" if kind else "no label"
                raise self._fault(f"{short_repr(word)} is {is_label} among {entries}")
            if not kind:
                words.append(word)
                counts[row] = count
        if counts.min() < 0:
            raise self._fault(f"a count is {counts.min()}")
        return words, counts, num_tokens

    def _entries(self, num: int) -> Iterator[tuple[bytes, int, int]]:
        """Each word or label, its count, and 1 for a label."""
        buffer, at = b"", 0
        for _ in range(num):
            while (end := buffer.find(b"\0", at)) < 0 or end + 10 > len(buffer):
                more = self._file.read(2**20)
                if not more:
                    raise self._end("its words")
                buffer, at = buffer[at:] + more, 0
            yield buffer[at:end], *struct.unpack_from("<qb", buffer, end + 1)
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
        array = values.astype(np.float32, copy=False).reshape(rows, columns)
        if not np.isfinite(array).all():
            raise self._fault(f"its {name} matrix has values that are not finite")
        return array

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
