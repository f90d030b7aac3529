"""Trains a `Word2Vec` by `EmbeddingTrainer`, epoch by epoch.

The model's own arrays are the state: each epoch starts from them, so a callback may
change them.
"""

import contextlib
import itertools
import logging
import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from embedder.gensim.corpora import LineSentence, PathLineSentences, Text8Corpus
from embedder.gensim.rows import row_factors
from embedder.gensim.vocabulary import keep_shares, threshold

if TYPE_CHECKING:
    from embedder import EmbeddingTrainer

CBOW_RATE = 4
"""How much faster CBOW learns here than `alpha` says, by means of contexts.

The gradient of the mean of n contexts is 1/n of what gensim applies to each of them.
That of their sum is n times what gensim applies, at the same step of output rows.
"""

_MOVE = 0.4
"""The largest sum of steps by which other tokens move a row in an update, on average.

Where few words make most of a corpus an update of a block would move rows too far at
once, so an epoch becomes several passes at a part of the rate; see `_updates`.
"""
_OWN_MOVE = 0.6
"""The same of the steps by which a token moves its own row, where they are above 1."""
_LARGEST_CAP = 128  # that the trainer chooses
_LIMIT = 1.6  # steps by which it lets a row move in an update, (44)
_MOST_PASSES = 8
_FEW_PASSES = 3  # take about as long as gensim's epoch, or less
_MOST_WORDS = 10_000_000  # that the passes of an epoch read; up to three read 30 M
_MOST_BLOCKS = 8  # of an update in few passes: more than one keeps all threads busy
_BLOCK = 64  # tokens, of an update of a small corpus
_FIRST_REPORT = 1.0  # seconds, whatever `report_delay` is
_WIDEST = 127
"""The largest window of the trainer; more is cut, as contexts are in one block."""

_UNCHANGING = (list, tuple, LineSentence, PathLineSentences, Text8Corpus)
"""Corpora that are read once; others anew in each epoch, as they may differ."""

_log = logging.getLogger("gensim.models.word2vec")


class _Read(NamedTuple):
    """A corpus as ids."""

    ids: np.ndarray  # i32[n], -1: not in the vocabulary
    lengths: np.ndarray  # i64[number of sentences]


def output_tables(model: Any) -> list[str]:
    """Names of the output tables of a model, in the order of the trainer's rows."""
    return ["syn1neg"] * bool(model.negative) + ["syn1"] * bool(model.hs)


class Totals(NamedTuple):
    """What a training was told about its corpus, and what it read of it."""

    examples: int | None
    words: int | None


@contextlib.contextmanager
def _warning_once() -> Iterator[None]:
    """Within the body the trainer logs each warning once, not in each epoch."""
    log = logging.getLogger("embedder.engine.epochs")
    seen = set()

    def is_new(record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        is_first = record.msg not in seen
        seen.add(record.msg)
        return is_first

    log.addFilter(is_new)
    try:
        yield
    finally:
        log.removeFilter(is_new)


@_warning_once()
def train(
    model: Any,
    corpus: Iterable[Any],
    totals: Totals,
    callbacks: Iterable[Any],
    is_file: bool,
    report_delay: float,
) -> tuple[int, int]:
    """Trains `model.epochs` epochs; returns trained words, and words read, of all."""
    if model.window > _WIDEST:
        _log.warning(
            "window=%i is trained as %i: contexts are within blocks of %i words.",
            *(model.window, _WIDEST, _BLOCK),
        )
    first = model.epochs_trained
    schedule = range(first, first + model.epochs)
    unit = "examples" if totals.examples else "words"
    read: _Read | None = None
    num_trained = num_raw = 0
    for number, epoch in enumerate(schedule):
        for callback in callbacks:
            callback.on_epoch_begin(model)
        started = time.perf_counter()
        if read is None or not isinstance(corpus, _UNCHANGING):
            read = _read(corpus, model.wv.key_to_index)
        if not len(read.lengths) and not model.train_count:
            _log.warning(
                "train() called with an empty iterator (if not intended, be sure to "
                "provide a corpus that offers restartable iteration = an iterable)."
            )
        jobs = None if is_file else model.batch_words
        report = _reporter(
            model, read, number, report_delay, unit, -1 if is_file else 0
        )
        trained = _train_epoch(model, read, epoch, schedule, jobs, report)
        seconds = time.perf_counter() - started
        _log.info(
            "EPOCH %i: training on %i raw words (%i effective words) took %.1fs, %.0f "
            "effective words/s",
            *(number, len(read.ids), trained, seconds, trained / max(seconds, 1e-9)),
        )
        if not is_file:
            _log_differences(number, read, totals)
        model.total_train_time += seconds
        num_trained, num_raw = num_trained + trained, num_raw + len(read.ids)
        for callback in callbacks:
            callback.on_epoch_end(model)
    return num_trained, num_raw


def _reporter(
    model: Any, read: _Read, number: int, delay: float, unit: str, num_queued: int
) -> Callable[[Any], None]:
    """A function that logs the progress of an epoch from the status of a training.

    Args:
      number: of the epoch, in this call of `train`.
      delay: seconds between lines; the first comes after `_FIRST_REPORT` seconds.
      unit: examples or words.
      num_queued: -1: gensim has no queue for a file.
    """
    counts = model.wv.expandos["count"]
    total = max(int(counts.sum()), 1)
    effective = (counts * keep_shares(counts, model.sample, total)).sum() / total
    effective *= np.count_nonzero(read.ids >= 0)
    size = 1 / model.epochs
    began, due = time.perf_counter(), _FIRST_REPORT

    def report(status: Any) -> None:
        nonlocal due
        seconds = time.perf_counter() - began
        if seconds < due or status.is_epoch_end:
            return
        due = seconds + delay
        done = (status.progress - number * size) / size
        _log.info(
            "EPOCH %i - PROGRESS: at %.2f%% %s, %.0f words/s, in_qsize %i, out_qsize "
            "%i",
            *(number, 100 * done, unit, done * effective / seconds, num_queued, 0),
        )

    return report


def _train_epoch(
    model: Any,
    read: _Read,
    epoch: int,
    schedule: range,
    batch_words: int | None,
    on_status: Callable[[Any], None],
) -> int:
    """Trains one epoch; returns the number of words that subsampling keeps."""
    vectors, num_rows = model.wv, _num_rows(model)
    if num_rows < len(vectors.vectors):  # other keys have no row to train
        ids = np.where(read.ids < num_rows, read.ids, np.int32(-1))
        read = read._replace(ids=ids)
    counts = vectors.expandos["count"][:num_rows].astype(np.int64)
    names = output_tables(model)
    outputs = [getattr(model, name) for name in names]
    input_table = np.ascontiguousarray(vectors.vectors[:num_rows], np.float32)
    output = np.concatenate(outputs) if len(outputs) > 1 else outputs[0]
    output = np.ascontiguousarray(output, np.float32)
    updates = _updates(model, counts, read)
    num, num_words = updates.passes, len(read.ids)
    lag = 0.0  # of gensim's rate behind the words, as a share of all epochs
    if batch_words is not None and num_words:  # from a file it follows each sentence
        lag = min(batch_words / num_words, 1.0) / 2 / len(schedule)
    trainer = _trainer(model, counts, updates, lag)
    done = trainer.train_epochs(
        (input_table, output, counts, row_factors(vectors)[:num_rows]),
        read,
        range(epoch * num, (epoch + 1) * num),
        range(schedule.start * num, schedule.stop * num),
        # Of a window that is cut, most draws from 1 to it are beyond a block: from
        # twice the largest on, all contexts are nearer than draws up to the largest.
        shrink_windows=model.shrink_windows and model.window <= 2 * _WIDEST,
        subwords=_subwords(vectors),
        on_status=on_status,
    )
    if done.subwords is not None:
        _, words, ngrams = done.subwords
        vectors.vectors_vocab = _with_values(vectors.vectors_vocab, words)
        vectors.vectors_ngrams = _with_values(vectors.vectors_ngrams, ngrams)
        vectors.adjust_vectors()
    else:
        vectors.vectors = _with_values(vectors.vectors, done.input)
        if hasattr(vectors, "vectors_vocab"):
            vectors.vectors_vocab = vectors.vectors
    after = np.split(done.output, len(names))
    for name, old, new in zip(names, outputs, after, strict=True):
        setattr(model, name, _with_values(old, new))
    vectors.norms = None
    model.epochs_trained = epoch + 1
    model.loss_history.append(done.loss)
    if model.compute_loss:
        model.running_training_loss += done.loss * done.num_terms
    progress = (epoch + 1 - schedule.start) / len(schedule)
    alpha = model.alpha - (model.alpha - model.min_alpha) * progress
    model.min_alpha_yet_reached = max(model.min_alpha, alpha)
    return done.num_tokens


def _num_rows(model: Any) -> int:
    """How many keys, from the first, the model trains: those of `build_vocab`.

    Raises:
      RuntimeError: there are tables for other keys.
    """
    vectors, name = model.wv, output_tables(model)[0]
    num, num_rows = len(vectors.vectors), len(getattr(model, name))
    is_made_of_rows = hasattr(vectors, "vectors_vocab")
    if num_rows > num or (num_rows < num and is_made_of_rows):
        raise RuntimeError(
            f"`wv` has {num} keys and `{name}` {num_rows} rows: add words by "
            "build_vocab(update=True), which makes rows for both."
        )
    return num_rows


def _subwords(vectors: Any) -> tuple[list[str], np.ndarray, np.ndarray] | None:
    """The words, and their rows and those of n-grams; None: there are none."""
    if not _ngrams(vectors):
        return None
    for name in ("vectors_vocab_lockf", "vectors_ngrams_lockf"):
        if (np.asarray(getattr(vectors, name)) != 1).any():
            raise NotImplementedError(
                f"`{name}` must be 1: rows of n-grams cannot be locked yet."
            )
    rows = vectors.vectors_vocab, vectors.vectors_ngrams
    words = [*map(str, vectors.index_to_key)]
    first, second = (np.ascontiguousarray(each, np.float32) for each in rows)
    return words, first, second


def _ngrams(vectors: Any) -> dict[str, Any]:
    """Settings of the trainer for n-grams; {}: words have none."""
    bucket = getattr(vectors, "bucket", 0)
    if not bucket or vectors.max_n < max(vectors.min_n, 1):
        return {}
    return {"subwords": (max(vectors.min_n, 1), vectors.max_n), "buckets": bucket}


class _Updates(NamedTuple):
    """How an epoch is divided into updates; None: as the trainer does."""

    passes: int  # of an epoch, each with this part of the rate
    blocks: int | None  # of an update
    cap: float | None  # terms of which an update applies at most as many to a row


def _updates(model: Any, counts: np.ndarray, read: _Read) -> _Updates:
    """One pass an epoch for all but few words.

    A token of skip-gram has n contexts, which move its own input row by alpha n (1 +
    negative) steps of length 1 in one update; gensim makes them one after another. A
    block of T tokens has T n pairs: each moves the row of word i with the probability
    f_i, or as noise negative q_i; so a row of a token moves by alpha T n
    sum_i f_i (f_i + negative q_i) for all tokens of the block.

    In passes an update has one block. Where an epoch is too long for more than
    `_FEW_PASSES`, it has as many as these allow for what other tokens move a row by.

    In passes all terms of one token are applied, and of skip-gram all that move a row
    by up to 1.6 steps: few words are in a block so often that the largest limit of the
    trainer would drop some. Of hierarchical softmax each pair of a block, of CBOW
    each token, moves the root: at most by .4.
    """
    num_words = len(read.ids)
    if not num_words:
        return _Updates(1, None, None)
    shares, pairs = _kept_shares(model, counts), _num_pairs(model, read.lengths)
    noise = np.maximum(counts, 1) ** float(model.ns_exponent)
    noise /= noise.sum()
    touched = (shares * (shares + model.negative * noise)).sum()
    rate = _rate(model) * model.alpha
    by_others = float(rate * (_BLOCK * pairs) * touched / _MOVE)
    # A path of hierarchical softmax has as many terms as a Huffman code has bits.
    bits = -(shares * np.log2(shares)).sum() if model.hs else 0.0
    own_terms = float(pairs * ((1 + model.negative if model.negative else 0) + bits))
    moves = [by_others]
    if rate * own_terms > 1:  # the defaults for texts are below
        moves.append(rate * own_terms / _OWN_MOVE)
    few = min(_FEW_PASSES, _FEW_PASSES * _MOST_WORDS // num_words)
    most = min(_MOST_PASSES, max(_MOST_WORDS // num_words, few))
    passes = int(np.clip(np.ceil(max(moves)), 1, max(most, 1)))
    if passes == 1:
        return _Updates(1, None, None)
    blocks = 1
    if _MOST_WORDS // num_words <= _FEW_PASSES:
        blocks = int(np.clip(passes / by_others, 1, _MOST_BLOCKS))
    if model.hs:
        return _Updates(passes, blocks, _MOVE * passes / model.alpha / _rate(model))
    if model.sg:
        own_terms = max(own_terms, _LIMIT * passes / model.alpha)
    is_above = _has_pairs(model) and own_terms > _LARGEST_CAP
    return _Updates(passes, blocks, own_terms if is_above else None)


def _kept_shares(model: Any, counts: np.ndarray) -> np.ndarray:
    """Shares of the words, f64[V], among the tokens that subsampling keeps."""
    counts = np.maximum(counts, 1)
    shares, sample = counts / counts.sum(), _sample(model, counts)
    if sample:
        shares *= np.minimum(np.sqrt(sample / shares) + sample / shares, 1)
        shares /= shares.sum()
    return shares


def _num_pairs(model: Any, lengths: np.ndarray) -> float:
    """Pairs of a token; of CBOW, which has one mean of its contexts, 1. Of sums each
    context has the gradient of a pair.

    Sentences of these lengths, i64[n], bound those of a window that is cut.
    """
    if not _has_pairs(model):
        return 1
    if model.window <= _WIDEST:
        return model.window + 1 if model.shrink_windows else 2 * model.window
    if not lengths.any():
        return _BLOCK - 1
    cut = np.minimum(lengths, _BLOCK)
    return max(1.0, float((cut * (cut - 1)).sum() / cut.sum()))


def _has_pairs(model: Any) -> bool:
    """Whether each context of a token adds a whole gradient: not to a mean."""
    return bool(model.sg or not model.cbow_mean)


def _rate(model: Any) -> int:
    return 1 if _has_pairs(model) else CBOW_RATE


def _sample(model: Any, counts: np.ndarray) -> float:
    """`sample` as a share of the words of the corpus; 0: all are kept."""
    total = int(counts.sum())
    return min(threshold(model.sample, total) / total, 1.0) if model.sample else 0.0


def _trainer(
    model: Any, counts: np.ndarray, updates: _Updates, lag: float
) -> "EmbeddingTrainer":
    """The trainer with the settings of a model."""
    from embedder import EmbeddingTrainer  # loads JAX, which vectors do not need

    alpha, rate = max(model.alpha, model.min_alpha), _rate(model)
    later = (alpha - model.min_alpha) * lag
    if alpha <= 0:
        raise ValueError(f"`alpha` must be a number > 0, got {model.alpha}.")
    if model.min_alpha < 0:
        raise ValueError(f"`min_alpha` must be a number >= 0, got {model.min_alpha}.")
    another = np.random.default_rng().integers(2**31)  # in each epoch
    seed = another if model.seed is None else model.seed
    return EmbeddingTrainer(
        **_ngrams(model.wv),
        architecture="skipgram" if model.sg else "cbow",
        cbow_mean=bool(model.cbow_mean),
        vector_size=model.vector_size,
        window=min(model.window, _WIDEST),
        negative=model.negative,
        hs=bool(model.hs),
        min_count=1,
        sample=float(_sample(model, counts)),
        ns_exponent=float(model.ns_exponent),
        alpha=(alpha + later) * rate / updates.passes,
        min_alpha=(model.min_alpha + later) * rate / updates.passes,
        epochs=model.epochs,
        seed=int(seed),
        workers=max(model.workers, 1),
        blocks_per_update=updates.blocks,
        cap=updates.cap,
    )


def _with_values(array: np.ndarray, values: np.ndarray) -> np.ndarray:
    """`array` with other values of the first rows; a new one if it cannot be written.

    Its dtype is that of `values` then.
    """
    if array.flags.writeable:
        array[: len(values)] = values
        return array
    return np.concatenate([values, array[len(values) :]])


def _read(corpus: Iterable[Any], ids: dict[Any, int]) -> _Read:
    """A corpus as ids."""
    rows, lengths = array("i"), array("q")
    unknown = itertools.repeat(-1)
    for sentence in corpus:
        before = len(rows)
        rows.extend(map(ids.get, sentence, unknown))
        lengths.append(len(rows) - before)
    return _Read(np.array(rows, np.int32), np.array(lengths, np.int64))


def _log_differences(number: int, read: _Read, totals: Totals) -> None:
    """Warns of a corpus that is not as long as was said."""
    for what, supplied, expected in (
        ("example", len(read.lengths), totals.examples),
        ("raw word", len(read.ids), totals.words),
    ):
        if expected and expected != supplied:
            _log.warning(
                "EPOCH %i: supplied %s count (%i) did not equal expected count (%i)",
                *(number, what, supplied, expected),
            )
