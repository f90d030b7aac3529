"""Paths of words in a Huffman tree, for models with `hs=1`, and scores by them.

As in gensim, a word has the attributes `code`, u8[L], and `point`, u32[L]: at each
inner node from the root on, 1 where its path goes to the second child, and the row of
the node in `syn1`.
"""

import itertools
import logging
import time
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy import float32 as REAL

PATH = "code", "point"
"""Names of the attributes."""

_MOST = 6.0
"""Scores of this size or more add nothing to a likelihood, as in gensim."""

_log = logging.getLogger("gensim.models.word2vec")


def set_paths(vectors: Any, num_keys: int | None = None) -> None:
    """Gives the first `num_keys` keys the paths that follow from their counts.

    None: all keys.
    """
    counts = vectors.expandos["count"][:num_keys] if len(vectors) else np.zeros(0)
    _log.info("constructing a huffman tree from %i words", len(counts))
    depth = 0
    if len(counts):
        from embedder import huffman_codes

        codes, points, lengths = huffman_codes(counts)
        for name, values in zip(PATH, (codes, points.astype(np.uint32)), strict=True):
            vectors.expandos[name] = _pieces(values, lengths)
        vectors.allocate_vecattrs()
        depth = lengths.max()
    _log.info("built huffman tree with maximum node depth %i", depth)


def score(model: Any, sentences: Iterable[Any], most: int) -> np.ndarray:
    """The log likelihood of each of the first `most` sentences, f32[n]."""
    started = time.perf_counter()
    ids, given = model.wv.key_to_index, iter(sentences)
    found = [
        _log_likelihood(model, np.array([ids[x] for x in words if x in ids], np.int64))
        for words in itertools.islice(given, most)
    ]
    if next(given, None) is not None:
        _log.warning(
            "terminating after %i sentences (set higher total_sentences if you want "
            "more).",
            most,
        )
    seconds = max(time.perf_counter() - started, 1e-9)
    _log.info(
        "scoring %i sentences took %.1fs, %.0f sentences/s",
        *(len(found), seconds, len(found) / seconds),
    )
    return np.array(found, REAL)


def _log_likelihood(model: Any, ids: np.ndarray) -> float:
    """Sum over the words of a sentence i64[n], and with sg=1 over their contexts."""
    rows = model.wv.vectors[ids]
    if model.sg:
        return sum(
            _of_paths(model, rows[context], ids[word])
            for word, context in _windows(len(ids), model.window)
        )
    hidden, numbers = np.zeros_like(rows), np.zeros((len(ids), 1), rows.dtype)
    for word, context in _windows(len(ids), model.window):
        hidden[word] += rows[context]
        numbers[word] += 1
    if model.cbow_mean:
        hidden /= np.maximum(numbers, 1)
    return _of_paths(model, hidden, ids)


def _windows(length: int, window: int) -> Iterator[tuple[slice, slice]]:
    """The words of a sentence that have a context at each distance, and those."""
    for distance in range(1, min(window, length - 1) + 1):
        first, second = slice(0, length - distance), slice(distance, length)
        yield first, second
        yield second, first


def _of_paths(model: Any, hidden: np.ndarray, words: np.ndarray) -> float:
    """Sum of log sigmoid(+-hidden . node) over the paths of `words`, of hidden[n, D]"""
    if not len(words):
        return 0.0
    codes, points = (model.wv.expandos[name][words] for name in PATH)
    lengths = [len(code) for code in codes]
    code = np.concatenate(codes).astype(REAL)
    nodes = model.syn1[np.concatenate(points).astype(np.int64)]
    scores = np.einsum("nd,nd->n", np.repeat(hidden, lengths, axis=0), nodes)
    scores *= 1 - 2 * code
    terms = np.logaddexp(0, -scores)
    return -float(terms[np.abs(scores) < _MOST].sum())


def _pieces(values: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """`values` cut into arrays of these lengths, as an array of objects."""
    ends = np.cumsum(lengths)
    pieces = np.empty(len(lengths), object)
    for row, (start, end) in enumerate(zip(ends - lengths, ends, strict=True)):
        pieces[row] = values[start:end]
    return pieces
