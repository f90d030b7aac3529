"""`Phrases` and `FrozenPhrases`: adjacent words that are joined, as gensim has them.

Words and pairs are counted sentence by sentence in one dictionary of texts. So a pair
and a word of the same text are one entry, and pruning is gensim's.
`embedder.find_phrases` counts ids instead, and multiplies by the number of words, as
word2phrase.c does.
"""

import itertools
import logging
import time
from collections.abc import Iterable, Iterator
from typing import Any

from embedder.gensim import contents, files
from embedder.gensim.phrase_scores import NEVER, scorer_of
from embedder.gensim.saving import SaveLoad
from embedder.gensim.vocabulary import prune_vocab

_log = logging.getLogger("gensim.models.phrases")

Scored = tuple[str | None, float | None]
"""A text and its score; a score of None: it is no phrase."""


class PhrasesTransformation(SaveLoad):
    """Joins the phrases that `score_candidate` of a subclass tells.

    Args:
      connector_words: words inside phrases, which begin and end none.
    """

    delimiter: str
    min_count: float
    threshold: float
    scoring: Any

    def __init__(self, connector_words: Iterable[str]):
        self.connector_words = frozenset(connector_words)

    def score_candidate(self, word_a: str, word_b: str, in_between: list[str]) -> Any:
        """The phrase of two words with connectors between them, and its score; (None,
        None): they are none."""
        raise NotImplementedError("ABC: override this method in child classes")

    def analyze_sentence(self, sentence: Iterable[str]) -> Iterator[Scored]:
        """Phrases with their scores, and the other words with None, in their order."""
        start: str | None = None  # a word that may begin a phrase
        between: list[str] = []  # connectors after it
        for word in sentence:
            if word in self.connector_words:
                if start:
                    between.append(word)
                else:
                    yield word, None
                continue
            if start:
                phrase, score = self.score_candidate(start, word, between)
                if score is not None:
                    yield phrase, score
                    start, between = None, []
                    continue
                yield from _apart(start, between)
            start, between = word, []
        if start:
            yield from _apart(start, between)

    def __getitem__(self, sentence: Any) -> Any:
        """A sentence with its phrases joined, as a list; of several sentences an
        iterable, which joins them as they are asked for."""
        is_single, sentence = _is_single(sentence)
        if not is_single:
            return _Joined(self, sentence)
        return [token for token, _ in self.analyze_sentence(sentence)]

    def find_phrases(self, sentences: Iterable[Iterable[str]]) -> dict[str, float]:
        """The phrases of sentences, and their scores."""
        return {
            phrase: score
            for sentence in sentences
            for phrase, score in self.analyze_sentence(sentence)
            if phrase is not None and score is not None
        }

    def to_saved(self, path: Any, ignore: Any) -> files.Saved:
        """Also logs the event of saving."""
        self.add_lifecycle_event("saving", fname_or_handle=str(path))
        return contents.of_phrases(self, ignore)

    @classmethod
    def from_saved(cls, saved: files.Saved) -> Any:
        phrases = cls.__new__(cls)
        contents.fill_phrases(phrases, saved)
        return phrases


@files.saved
class Phrases(PhrasesTransformation):
    """Phrases of sentences: pairs of words whose score is above a threshold.

    Args:
      sentences: lists of words; None: give them to `add_vocab`.
      min_count: pairs that occur less often have a low score.
      threshold: a phrase has a larger score.
      max_vocab_size: when there are more words and pairs, the rarest go.
      delimiter: between the words of a phrase.
      progress_per: log every so many sentences.
      scoring: "default", "npmi", or a function with the arguments of `npmi_scorer`.
      connector_words: words inside phrases, as `ENGLISH_CONNECTOR_WORDS`.

    Attributes:
      vocab: how often each word and each pair occurs, by text.

    Raises:
      ValueError: `min_count`, `threshold` or `scoring` is out of bounds.
    """

    KIND = "Phrases"

    def __init__(
        self,
        sentences: Iterable[Iterable[str]] | None = None,
        min_count: float = 5,
        threshold: float = 10.0,
        max_vocab_size: int = 40000000,
        delimiter: str = "_",
        progress_per: int = 10000,
        scoring: Any = "default",
        connector_words: Iterable[str] = frozenset(),
    ):
        super().__init__(connector_words)
        if min_count <= 0:
            raise ValueError("min_count should be at least 1")
        self.scoring = scorer_of(scoring, threshold)
        self.min_count, self.threshold = min_count, threshold
        self.max_vocab_size, self.delimiter = max_vocab_size, delimiter
        self.progress_per = progress_per
        self.vocab: dict[str, int] = {}
        self.min_reduce = 1  # rarer ones go when there are too many
        self.corpus_word_count = 0
        if sentences is not None:
            start = time.time()
            self.add_vocab(sentences)
            seconds = time.time() - start
            self.add_lifecycle_event("created", msg=f"built {self} in {seconds:.2f}s")

    def __str__(self) -> str:
        return (
            f"{type(self).__name__}<{len(self.vocab)} vocab, "
            f"min_count={self.min_count}, threshold={self.threshold}, "
            f"max_vocab_size={self.max_vocab_size}>"
        )

    def add_vocab(self, sentences: Iterable[Iterable[str]]) -> None:
        """Counts more sentences."""
        counts, num_words, min_reduce = self._counted(sentences)
        self.corpus_word_count += num_words
        if not self.vocab:
            self.vocab = counts
        else:
            _log.info("merging %i counts into %s", len(counts), self)
            self.min_reduce = max(self.min_reduce, min_reduce)
            for text, count in counts.items():
                self.vocab[text] = self.vocab.get(text, 0) + count
            if len(self.vocab) > self.max_vocab_size:
                prune_vocab(self.vocab, self.min_reduce)
                self.min_reduce += 1
        _log.info("merged %s", self)

    def _counted(
        self, sentences: Iterable[Iterable[str]]
    ) -> tuple[dict[str, int], int, int]:
        """How often words and pairs occur, the number of words, and `min_reduce`."""
        counts: dict[str, int] = {}
        num_sentences, num_words, min_reduce = 0, 0, 1
        _log.info("collecting all words and their counts")
        for number, sentence in enumerate(sentences):
            if number % self.progress_per == 0:
                _log.info(
                    "PROGRESS: at sentence #%i, processed %i words and %i word types",
                    *(number, num_words, len(counts)),
                )
            num_words += self._count(sentence, counts)
            num_sentences = number + 1
            if len(counts) > self.max_vocab_size:
                prune_vocab(counts, min_reduce)
                min_reduce += 1
        _log.info(
            "collected %i token types (unigram + bigrams) from a corpus of %i words "
            "and %i sentences",
            *(len(counts), num_words, num_sentences),
        )
        return counts, num_words, min_reduce

    def _count(self, sentence: Iterable[str], counts: dict[str, int]) -> int:
        """Adds a sentence to `counts`; returns the number of its words."""
        join, connectors = self.delimiter.join, self.connector_words
        start: list[str] = []  # the word before, and connectors after it
        number = 0
        for number, word in enumerate(sentence, 1):  # noqa: B007 (used after the loop)
            if word in connectors:
                if start:
                    start.append(word)
                continue
            counts[word] = counts.get(word, 0) + 1
            if start:
                start.append(word)
                pair = join(start)
                counts[pair] = counts.get(pair, 0) + 1
            start = [word]
        return number

    def score_candidate(self, word_a: str, word_b: str, in_between: list[str]) -> Any:
        """See `PhrasesTransformation`; by the counts in `vocab`."""
        counts = self.vocab
        first, second = counts.get(word_a, 0), counts.get(word_b, 0)
        if first <= 0 or second <= 0:
            return None, None
        phrase = self.delimiter.join([word_a, *in_between, word_b])
        both = counts.get(phrase, 0)
        if both <= 0:
            return None, None
        score = self.scoring(
            worda_count=first,
            wordb_count=second,
            bigram_count=both,
            len_vocab=len(counts),
            min_count=self.min_count,
            corpus_word_count=self.corpus_word_count,
        )
        return (phrase, score) if score > self.threshold else (None, None)

    def export_phrases(self) -> dict[str, float]:
        """All phrases, and their scores."""
        scores: dict[str, float] = {}
        for text in self.vocab:
            first, *between = text.split(self.delimiter)
            if between:
                last = between.pop()
                phrase, score = self.score_candidate(first, last, between)
                if score is not None:
                    scores[phrase] = score
        return scores

    def freeze(self) -> "FrozenPhrases":
        """The phrases alone: smaller, faster, and without `add_vocab`."""
        return FrozenPhrases(self)


@files.saved
class FrozenPhrases(PhrasesTransformation):
    """The phrases of a `Phrases`, without its counts.

    Attributes:
      phrasegrams: phrases and their scores.
    """

    KIND = "FrozenPhrases"

    def __init__(self, phrases_model: Phrases):
        super().__init__(phrases_model.connector_words)
        self.threshold = phrases_model.threshold
        self.min_count = phrases_model.min_count
        self.delimiter = phrases_model.delimiter
        self.scoring = phrases_model.scoring
        _log.info("exporting phrases from %s", phrases_model)
        start = time.time()
        self.phrasegrams = phrases_model.export_phrases()
        seconds = time.time() - start
        message = f"exported {self} from {phrases_model} in {seconds:.2f}s"
        self.add_lifecycle_event("created", msg=message)

    def __str__(self) -> str:
        return (
            f"{type(self).__name__}<{len(self.phrasegrams)} phrases, "
            f"min_count={self.min_count}, threshold={self.threshold}>"
        )

    def score_candidate(self, word_a: str, word_b: str, in_between: list[str]) -> Any:
        """See `PhrasesTransformation`; by `phrasegrams`."""
        phrase = self.delimiter.join([word_a, *in_between, word_b])
        score = self.phrasegrams.get(phrase, NEVER)
        return (phrase, score) if score > self.threshold else (None, None)


Phraser = FrozenPhrases  # gensim's older name
_PhrasesTransformation = PhrasesTransformation


class _Joined:
    """Sentences with phrases joined, as they are asked for."""

    def __init__(self, phrases: PhrasesTransformation, sentences: Any):
        self._phrases, self._sentences = phrases, sentences

    def __len__(self) -> int:
        return len(self._sentences)

    def __iter__(self) -> Iterator[list[str]]:
        return (self._phrases[sentence] for sentence in self._sentences)

    def __getitem__(self, position: Any) -> Any:
        """The sentence at `position`, joined; of a slice another such iterable.

        Raises:
          RuntimeError: the sentences have no positions.
        """
        if not hasattr(self._sentences, "__getitem__"):
            kind = type(self._sentences)
            raise RuntimeError(f"Type {kind} does not support slicing.")
        return self._phrases[self._sentences[position]]


def _apart(word: str, connectors: list[str]) -> Iterator[Scored]:
    yield word, None
    for connector in connectors:
        yield connector, None


def _is_single(sentence: Any) -> tuple[bool, Any]:
    """Whether it is one sentence, and the same again, also where it is an iterator.

    An empty one is a sentence.
    """
    items = iter(sentence)
    try:
        first = next(items)
    except StopIteration:
        return True, sentence
    whole = itertools.chain([first], items)
    if isinstance(first, str):
        return True, whole
    return False, whole if items is sentence else sentence
