"""The vocabulary of a `Word2Vec`: counting, trimming, thresholds of subsampling."""

import logging
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from embedder.gensim.rules import TrimRule, keep_vocab_item, prune_vocab

_log = logging.getLogger("gensim.models.word2vec")


class _Kept(NamedTuple):
    """Words of a corpus that pass the rules, and what does not."""

    words: list[Any]
    counts: np.ndarray  # i64 of `words`
    dropped_words: int
    dropped_total: int

    @property
    def num_words(self) -> int:
        return len(self.words) + self.dropped_words

    @property
    def total(self) -> int:
        return int(self.counts.sum())


def count_words(
    sentences: Iterable[Any],
    progress_per: int,
    max_vocab_size: int | None,
    trim_rule: TrimRule | None,
) -> tuple[Counter[Any], int, int]:
    """Counts of words by first appearance, number of words and of sentences.

    Args:
      progress_per: log every so many sentences.
      max_vocab_size: prune the rarest words when there are more than this.
    """
    counts: Counter[Any] = Counter()
    num_words, num_sentences, min_reduce = 0, 0, 1
    for number, sentence in enumerate(sentences):
        if number == 0 and isinstance(sentence, str):
            _log.warning(
                "Each 'sentences' item should be a list of words (usually unicode "
                "strings). First item here is instead plain %s.",
                type(sentence),
            )
        if number % progress_per == 0:
            _log.info(
                "PROGRESS: at sentence #%i, processed %i words, keeping %i word types",
                *(number, num_words, len(counts)),
            )
        counts.update(sentence)
        num_words += len(sentence)
        num_sentences = number + 1
        if max_vocab_size and len(counts) > max_vocab_size:
            prune_vocab(counts, min_reduce, trim_rule)
            min_reduce += 1
    return counts, num_words, num_sentences


def prepare(
    model: Any,
    update: bool,
    trim_rule: TrimRule | None,
    min_count: int | None,
    sample: float | None,
    dry_run: bool,
) -> dict[str, int]:
    """Gives `model.wv` the words of `model.raw_vocab`; returns what gensim reports.

    Args:
      update: add to the words that there are.
      dry_run: only report.
    """
    min_count = min_count or model.min_count
    sample = sample or model.sample
    model.effective_min_count = _effective_min_count(model, min_count)
    kept = _kept(model.raw_vocab, model.effective_min_count, trim_rule)
    if update:
        _log.info("Updating model with new vocabulary")
        _extend(model, kept, dry_run)
    else:
        _log.info("Creating a fresh vocabulary")
        if not dry_run:
            model.min_count, model.sample = min_count, sample
            _replace(model.wv, kept)
        _report_fresh(model, kept)
    shares = keep_shares(kept.counts, sample, kept.total)
    is_rarer = shares < 1
    if not dry_run:
        model.wv.allocate_vecattrs(["sample_int"], [np.uint32])
        rows = [model.wv.key_to_index[word] for word in kept.words]
        limits = (shares * (2**32 - 1)).astype(np.uint32)
        model.wv.expandos["sample_int"][rows] = limits
    left = (shares * kept.counts).sum()
    _log.info("sample=%g downsamples %i most-common words", sample, np.sum(is_rarer))
    model.add_lifecycle_event(
        "prepare_vocab",
        msg=f"downsampling leaves estimated {left} word corpus "
        f"({left * 100.0 / max(kept.total, 1):.1f}%% of prior {kept.total})",
    )
    return {
        "drop_unique": kept.dropped_words,
        "retain_total": kept.total,
        "downsample_unique": int(is_rarer.sum()),
        "downsample_total": int(left),
        "num_retained_words": len(kept.words),
    }


def threshold(sample: float, total: int) -> float:
    """The count above which words are downsampled, by `sample` as gensim reads it.

    0: none; below 1: a share of all words; else a count.
    """
    if not sample:
        return total
    return sample * total if sample < 1 else int(sample * (3 + np.sqrt(5)) / 2)


def keep_shares(counts: np.ndarray, sample: float, total: int) -> np.ndarray:
    """Probability to keep each word, f64[V], as of word2vec.c."""
    ratio = threshold(sample, total) / np.maximum(counts, 1e-9)
    return np.minimum(np.sqrt(ratio) + ratio, 1.0)


def noise_table(counts: np.ndarray, exponent: float, domain: int) -> np.ndarray:
    """Sums of counts ** exponent up to each word, scaled to `domain`, u32[V].

    For programs that read `cum_table`; training draws by the counts themselves.
    """
    sums = np.cumsum(np.maximum(counts, 1e-9) ** float(exponent))
    return np.rint(sums / sums[-1:] * domain).astype(np.uint32)


def _effective_min_count(model: Any, min_count: int) -> int:
    if model.max_final_vocab is None:
        return min_count
    most = int(model.max_final_vocab)
    counts = sorted(model.raw_vocab.values(), reverse=True)
    needed = counts[most] + 1 if most < len(counts) else 1
    effective = max(needed, min_count)
    model.add_lifecycle_event(
        "prepare_vocab",
        msg=f"max_final_vocab={most} and min_count={min_count} resulted in "
        f"calc_min_count={needed}, effective_min_count={effective}",
    )
    return effective


def _kept(raw: Any, min_count: int, trim_rule: TrimRule | None) -> _Kept:
    words = [
        word
        for word, count in raw.items()
        if keep_vocab_item(word, count, min_count, trim_rule)
    ]
    counts = np.array([raw[word] for word in words], np.int64)
    dropped = sum(raw.values()) - int(counts.sum())
    return _Kept(words, counts, len(raw) - len(words), dropped)


def _replace(vectors: Any, kept: _Kept) -> None:
    vectors.index_to_key = [*kept.words]
    vectors.key_to_index = {word: row for row, word in enumerate(kept.words)}
    vectors.expandos["count"] = kept.counts.copy()


def _report_fresh(model: Any, kept: _Kept) -> None:
    num, of_words = len(kept.words), max(kept.num_words, 1)
    total, of_total = kept.total, max(kept.total + kept.dropped_total, 1)
    least = f"effective_min_count={model.effective_min_count}"
    model.add_lifecycle_event(
        "prepare_vocab",
        msg=f"{least} retains {num} unique words ({num * 100 / of_words:.2f}% of "
        f"original {kept.num_words}, drops {kept.dropped_words})",
    )
    model.add_lifecycle_event(
        "prepare_vocab",
        msg=f"{least} leaves {total} word corpus ({total * 100 / of_total:.2f}% of "
        f"original {total + kept.dropped_total}, drops {kept.dropped_total})",
    )


def _extend(model: Any, kept: _Kept, dry_run: bool) -> None:
    """Adds the new words of `kept`, and all its counts."""
    vectors, size = model.wv, max(kept.num_words, 1)
    new = [word for word in kept.words if word not in vectors.key_to_index]
    num_old = len(kept.words) - len(new)
    if not dry_run:
        for word in new:
            vectors.key_to_index[word] = len(vectors.index_to_key)
            vectors.index_to_key.append(word)
        vectors.allocate_vecattrs(["count"], [np.int64])
        added = [model.raw_vocab.get(word, 0) for word in vectors.index_to_key]
        vectors.expandos["count"] += np.array(added, np.int64)
    model.add_lifecycle_event(
        "prepare_vocab",
        msg=f"added {len(new)} new unique words ({len(new) * 100 / size:.2f}% of "
        f"original {kept.num_words}) and increased the count of {num_old} pre-existing "
        f"words ({num_old * 100 / size:.2f}% of original {kept.num_words})",
    )
