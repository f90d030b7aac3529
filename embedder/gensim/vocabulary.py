"""The vocabulary of a `Word2Vec`: counting, trimming, thresholds of subsampling."""

import logging
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, MutableMapping
from typing import Any, NamedTuple

import numpy as np

TrimRule = Callable[[Any, int, int], int]
"""(word, count, min_count) -> RULE_DEFAULT, RULE_DISCARD or RULE_KEEP."""

RULE_DEFAULT = 0
RULE_DISCARD = 1
RULE_KEEP = 2
_log = logging.getLogger("gensim.models.word2vec")
_utils_log = logging.getLogger("gensim.utils")


def keep_vocab_item(
    word: Hashable, count: int, min_count: int, trim_rule: TrimRule | None = None
) -> bool:
    """Whether a vocabulary keeps `word`: by `trim_rule`, else by `min_count`."""
    ruled = RULE_DEFAULT if trim_rule is None else trim_rule(word, count, min_count)
    if ruled in (RULE_KEEP, RULE_DISCARD):
        return ruled == RULE_KEEP
    return count >= min_count


def prune_vocab(
    vocab: MutableMapping[Any, int], min_reduce: int, trim_rule: TrimRule | None = None
) -> int:
    """Removes words below `min_reduce`; returns the sum of their counts."""
    before = len(vocab)
    dropped = [
        word
        for word, count in vocab.items()
        if not keep_vocab_item(word, count, min_reduce, trim_rule)
    ]
    total = sum(vocab.pop(word) for word in dropped)
    _utils_log.info(
        "pruned out %i tokens with count <=%i (before %i, after %i)",
        *(len(dropped), min_reduce, before, len(vocab)),
    )
    return total


class _Trimmed(NamedTuple):
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


def prepare_vocab(
    self: Any,
    update: bool = False,
    keep_raw_vocab: bool = False,
    trim_rule: TrimRule | None = None,
    min_count: int | None = None,
    sample: float | None = None,
    dry_run: bool = False,
) -> dict[str, Any]:
    """Makes the vocabulary of `raw_vocab`; returns what was kept and dropped.

    With `update` it adds to the words that there are; with `dry_run` it only returns.
    """
    min_count = min_count or self.min_count
    sample = sample or self.sample
    self.effective_min_count = _effective_min_count(self, min_count)
    trimmed = _trimmed(self.raw_vocab, self.effective_min_count, trim_rule)
    if update:
        _log.info("Updating model with new vocabulary")
        _extend(self, trimmed, dry_run)
    else:
        _log.info("Creating a fresh vocabulary")
        if not dry_run:
            self.min_count, self.sample = min_count, sample
            self.wv.index_to_key = [*trimmed.words]
            self.wv.key_to_index = {word: row for row, word in enumerate(trimmed.words)}
            self.wv.expandos["count"] = trimmed.counts.copy()
        _report_fresh(self, trimmed)
    shares = keep_shares(trimmed.counts, sample, trimmed.total)
    is_rarer = shares < 1
    if not dry_run:
        self.wv.allocate_vecattrs(["sample_int"], [np.uint32])
        rows = [self.wv.key_to_index[word] for word in trimmed.words]
        limits = (shares * (2**32 - 1)).astype(np.uint32)
        self.wv.expandos["sample_int"][rows] = limits
    left = (shares * trimmed.counts).sum()
    _log.info("sample=%g downsamples %i most-common words", sample, np.sum(is_rarer))
    self.add_lifecycle_event(
        "prepare_vocab",
        msg=f"downsampling leaves estimated {left} word corpus "
        f"({left * 100.0 / max(trimmed.total, 1):.1f}%% of prior {trimmed.total})",
    )
    if not dry_run and not keep_raw_vocab:
        _log.info("deleting the raw counts dictionary of %i items", len(self.raw_vocab))
        self.raw_vocab = Counter()
    if self.null_word:
        self.add_null_word()
    if self.sorted_vocab and not update:
        self.wv.sort_by_descending_frequency()
    if self.hs:
        self.create_binary_tree()
    if self.negative:
        self.make_cum_table()
    return {
        "drop_unique": trimmed.dropped_words,
        "retain_total": trimmed.total,
        "downsample_unique": int(is_rarer.sum()),
        "downsample_total": int(left),
        "num_retained_words": len(trimmed.words),
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


def _trimmed(raw: Any, min_count: int, trim_rule: TrimRule | None) -> _Trimmed:
    words = [
        word
        for word, count in raw.items()
        if keep_vocab_item(word, count, min_count, trim_rule)
    ]
    counts = np.array([raw[word] for word in words], np.int64)
    dropped = sum(raw.values()) - int(counts.sum())
    return _Trimmed(words, counts, len(raw) - len(words), dropped)


def _report_fresh(model: Any, trimmed: _Trimmed) -> None:
    num, of_words = len(trimmed.words), max(trimmed.num_words, 1)
    total, of_total = trimmed.total, max(trimmed.total + trimmed.dropped_total, 1)
    least = f"effective_min_count={model.effective_min_count}"
    model.add_lifecycle_event(
        "prepare_vocab",
        msg=f"{least} retains {num} unique words ({num * 100 / of_words:.2f}% of "
        f"original {trimmed.num_words}, drops {trimmed.dropped_words})",
    )
    model.add_lifecycle_event(
        "prepare_vocab",
        msg=f"{least} leaves {total} word corpus ({total * 100 / of_total:.2f}% of "
        f"original {total + trimmed.dropped_total}, drops {trimmed.dropped_total})",
    )


def _extend(model: Any, trimmed: _Trimmed, dry_run: bool) -> None:
    """Adds the new words of `trimmed`, and all its counts."""
    vectors, size = model.wv, max(trimmed.num_words, 1)
    new = [word for word in trimmed.words if word not in vectors.key_to_index]
    num_old = len(trimmed.words) - len(new)
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
        f"original {trimmed.num_words}) and increased the count of {num_old} "
        f"pre-existing words ({num_old * 100 / size:.2f}% of original "
        f"{trimmed.num_words})",
    )
