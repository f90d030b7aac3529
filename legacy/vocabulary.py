"""From text to token ids: reading, counting, encoding, and which tokens to keep."""

import gzip
import os
import zlib
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Text(NamedTuple):
    """A corpus with its tokens numbered by first appearance."""

    types: list[str]  # the distinct tokens, by first appearance
    ids: np.ndarray  # i32[tokens], into `types`
    lengths: np.ndarray  # i64[sequences], tokens of each, all > 0


class Vocabulary(NamedTuple):
    """The tokens that are trained, by descending count, ties by first appearance."""

    tokens: list[str]
    counts: np.ndarray  # i64[V]


def read_text(source: str | os.PathLike | Iterable[Iterable[str]]) -> Text:
    """The corpus at a path, one sequence a line, or of an iterable of token lists.

    A path ending in `.gz` is read as gzip. Lines are cut at ASCII white space; the
    tokens of an iterable are taken as they are. An iterable is read once.

    Raises:
        FileNotFoundError, IsADirectoryError: there is no such file.
        ValueError: the file is binary, not UTF-8 or cut short, or there are no tokens.
        TypeError: the source is no iterable of sequences of str.
    """
    if isinstance(source, str | os.PathLike):
        text = _read_file(Path(source))
    else:
        text = _read_sequences(source)
    if not text.ids.size:
        raise ValueError("The corpus has no tokens.")
    return text


def build_vocabulary(text: Text, min_count: int) -> Vocabulary:
    """The tokens of `text` that occur `min_count` times or more, and their counts.

    Raises:
        ValueError: no token occurs that often.
    """
    counts = np.bincount(text.ids, minlength=len(text.types))
    order = np.argsort(-counts, kind="stable")  # `types` is by first appearance
    kept = order[counts[order] >= min_count]
    if not kept.size:
        most, count = text.types[order[0]], counts[order[0]]
        raise ValueError(
            f"No token occurs `min_count` = {min_count} times or more: "
            f"the most frequent, {most!r}, occurs {count} times."
        )
    return Vocabulary([text.types[i] for i in kept], counts[kept].astype(np.int64))


def encode(text: Text, tokens: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Ids i32[n] of the known tokens of `text`, and lengths i64[s] of its sequences.

    Tokens that are not in `tokens` are dropped, and sequences without any other.
    """
    index = {token: i for i, token in enumerate(tokens)}
    id_of_type = np.array([index.get(token, -1) for token in text.types], np.int32)
    ids = id_of_type[text.ids]
    known = ids >= 0
    if not text.lengths.size:
        return ids, text.lengths
    starts = np.cumsum(text.lengths) - text.lengths
    lengths = np.add.reduceat(known, starts, dtype=np.int64)
    return ids[known], lengths[lengths > 0]


def keep_limit(counts: np.ndarray, sample: float) -> np.ndarray:
    """Largest uniform u32 draw with which each token is kept, u32[V].

        p_i = min(1, sqrt(s / f_i) + s / f_i),  f_i = count_i / total,  s = sample

    sample = 0 keeps every token.
    Reference: Mikolov et al. 2013, arXiv:1310.4546, section 2.3, as word2vec.c has it.
    """
    if sample == 0:
        probability = np.ones(counts.size)
    else:
        ratio = sample / (counts / counts.sum())
        probability = np.minimum(1.0, np.sqrt(ratio) + ratio)
    return (np.maximum(np.rint(probability * 2**32), 1) - 1).astype(np.uint32)


def row_updates(counts: np.ndarray, sample: float) -> float:
    """Updates that the row of a token gets in an epoch: the geometric mean, over the
    tokens that subsampling keeps, of how often their kind is kept; 1 of none."""
    kept = counts * ((keep_limit(counts, sample) + 1.0) / 2**32)
    total = kept.sum()
    if not total:
        return 1.0
    return float(np.exp((kept * np.log(np.maximum(kept, 1e-9))).sum() / total))


class _Numbering(dict):
    """Numbers tokens by first appearance; checks each distinct token once."""

    def __missing__(self, token):
        if not isinstance(token, str):
            raise TypeError("not a str")  # `_read_sequences` says which
        if not token:
            raise ValueError("A token must not be empty, got ''.")
        try:
            token.encode("utf-8")
        except UnicodeEncodeError:  # a lone surrogate: no model file could hold it
            raise ValueError(f"A token must be valid Unicode, got {token!r}.") from None
        number = self[token] = len(self)
        return number


class _ByteNumbering(dict):
    """As `_Numbering`, for the tokens of a file, which have to be UTF-8."""

    def __missing__(self, token):
        token.decode("utf-8")
        number = self[token] = len(self)
        return number


def _read_sequences(sequences) -> Text:
    if not isinstance(sequences, Iterable) or isinstance(sequences, bytes):
        raise TypeError(
            "`sequences_or_path` must be a path or an iterable of token lists, "
            f"got {sequences!r}."
        )
    numbers, ids, lengths = _Numbering(), array("i"), array("q")
    for sequence in sequences:
        tokens = _tokens(sequence)
        try:
            ids.extend(map(numbers.__getitem__, tokens))
        except TypeError as error:  # no str, and so perhaps not hashable either
            wrong = next(token for token in tokens if not isinstance(token, str))
            raise TypeError(f"A token must be a str, got {wrong!r}.") from error
        lengths.append(len(tokens))
    return _text([str(token) for token in numbers], ids, lengths)


def _tokens(sequence) -> list:
    if isinstance(sequence, str | bytes) or not isinstance(sequence, Iterable):
        raise TypeError(f"A sequence must be a list of tokens, got {sequence!r}.")
    return list(sequence)


def _read_file(path: Path) -> Text:
    if not path.exists():
        raise FileNotFoundError(f"Corpus {path} does not exist.")
    if path.is_dir():
        raise IsADirectoryError(f"Corpus {path} is a folder, not a file.")
    numbers, ids, lengths = _ByteNumbering(), array("i"), array("q")
    for number, line in enumerate(_lines(path), 1):
        if b"\0" in line:
            raise ValueError(f"{path} is not text: line {number} has a NUL byte.")
        tokens = line.split()
        try:
            ids.extend(map(numbers.__getitem__, tokens))
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path} is not UTF-8 text: line {number} has {error.object!r}."
            ) from error
        lengths.append(len(tokens))
    return _text([token.decode("utf-8") for token in numbers], ids, lengths)


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, without the byte order mark that it may start with."""
    with gzip.open(path) if path.name.endswith(".gz") else open(path, "rb") as file:
        try:
            yield next(file, b"").removeprefix(_BYTE_ORDER_MARK)
            yield from file
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path} is not a whole .gz file: {error}.") from error


def _text(types: list[str], ids: array, lengths: array) -> Text:
    lengths = np.array(lengths, np.int64)
    return Text(types, np.array(ids, np.int32), lengths[lengths > 0])
