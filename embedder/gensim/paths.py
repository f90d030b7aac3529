"""Paths of words in a Huffman tree, for models with `hs=1`, and `Word2Vec.score`.

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


def score(
    self: Any,
    sentences: Iterable[Any],
    total_sentences: int = int(1e6),
    chunksize: int = 100,
    queue_factor: int = 2,
    report_delay: float = 1,
) -> np.ndarray:
    """The log likelihood of each sentence by hierarchical softmax, f32[n].

    The sum of log P(word | context) over all words and all contexts up to `window`;
    sg=0: of log P(word | mean of its contexts). Unknown words are left out. As in
    gensim, a branch whose score is 6 or more in size adds nothing.

    Args:
      total_sentences: score only so many, from the first.
      chunksize, queue_factor, report_delay: no effect.

    Raises:
      RuntimeError: there is no vocabulary, or `hs` is 0.
    """
    _log.info(
        "scoring sentences with %i workers on %i vocabulary and %i features, "
        "using sg=%s hs=%s sample=%s and negative=%s",
        *(self.workers, len(self.wv), self.layer1_size),
        *(self.sg, self.hs, self.sample, self.negative),
    )
    if not self.wv.key_to_index:
        raise RuntimeError("you must first build vocabulary before scoring new data")
    if not self.hs:
        raise RuntimeError(
            "We have currently only implemented score for the hierarchical softmax "
            "scheme, so you need to have run word2vec with hs=1 and negative=0 for "
            "this to work."
        )
    started = time.perf_counter()
    ids, remaining = self.wv.key_to_index, iter(sentences)
    likelihoods = [
        _log_likelihood(self, np.array([ids[x] for x in words if x in ids], np.int64))
        for words in itertools.islice(remaining, total_sentences)
    ]
    if next(remaining, None) is not None:
        _log.warning(
            "terminating after %i sentences (set higher total_sentences if you want "
            "more).",
            total_sentences,
        )
    seconds = max(time.perf_counter() - started, 1e-9)
    _log.info(
        "scoring %i sentences took %.1fs, %.0f sentences/s",
        *(len(likelihoods), seconds, len(likelihoods) / seconds),
    )
    return np.array(likelihoods, REAL)


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
