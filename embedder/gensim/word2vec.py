"""Word2Vec with the interface of `gensim.models.Word2Vec`, trained by embedder."""

import logging
import math
import os
import time
import warnings
from collections.abc import Callable, Iterable
from types import GeneratorType
from typing import Any, NoReturn

import numpy as np
from numpy import float32 as REAL

from embedder.gensim import contents, files, paths, similar, vocabulary
from embedder.gensim import epochs as training
from embedder.gensim.corpora import (
    COMPRESSED,
    MAX_WORDS_IN_BATCH,
    BrownCorpus,
    LineSentence,
    PathLineSentences,
    Text8Corpus,
)
from embedder.gensim.keyedvectors import KeyedVectors, warn_deprecated
from embedder.gensim.rows import pseudorandom_weak_vector
from embedder.gensim.saving import SaveLoad
from embedder.gensim.vocabulary import TrimRule

__all__ = [
    "BrownCorpus",
    "KeyedVectors",
    "LineSentence",
    "PathLineSentences",
    "Text8Corpus",
    "Word2Vec",
]

_log = logging.getLogger("gensim.models.word2vec")


@files.saved
class Word2Vec(SaveLoad):
    """Skip-gram and CBOW; arguments and defaults of gensim 4.4.

    The vectors are in `wv`. Given a corpus, the constructor trains. `loss_history` has
    the mean loss of a pair in each epoch (sg=0: of a centre), which gensim has not.

    Args:
      sentences: an iterable of lists of words, which is read once for the vocabulary
        and then for the epochs; None: do not train.
      corpus_file: the path of a text file, a sentence a line, instead.
      vector_size, window, min_count, sample, seed, negative, ns_exponent, epochs: as of
        `EmbeddingTrainer`; `sample` of 1 or more is a count, a `window` above 127 is
        trained as 127, and `seed` None is another one each time.
      alpha, min_alpha: learning rate at the start and at the end. CBOW's gradient by
        means is divided by the number of contexts, as gensim's is not, so its rate is
        four times `alpha`; by sums, it is `alpha`.
      workers: threads that make blocks; any number gives the same vectors. 0 or less:
        one, where gensim trains nothing.
      sg: 1: skip-gram; 0: CBOW.
      hs: 1: hierarchical softmax; with `negative` > 0 both losses are added.
      cbow_mean: with sg=0, 1: the mean of contexts; 0: their sum.
      max_vocab_size: prune the rarest words while counting, above this number.
      max_final_vocab: raise `min_count` so that at most this many words are kept.
      trim_rule: (word, count, min_count) -> RULE_KEEP, RULE_DISCARD or RULE_DEFAULT.
      sorted_vocab: sort words by descending count.
      null_word: add a word for padding.
      compute_loss: add up the loss for `get_latest_training_loss`.
      callbacks: `CallbackAny2Vec`, called before and after each epoch.
      comment: kept as it is.
      shrink_windows: False: each word has all contexts up to `window`.
      batch_words: words of a job, which has the rate of its start.
      hashfxn: no effect.

    Raises:
      TypeError: the corpus is none; ValueError, RuntimeError: nothing can be trained.
    """

    KIND = "Word2Vec"
    VECTORS: type[KeyedVectors] = KeyedVectors
    wv: KeyedVectors
    # Output tables f32[V, D], once there is a vocabulary:
    syn1neg: np.ndarray  # with negative > 0, of words
    syn1: np.ndarray  # with hs=1, of inner nodes, see `paths`; the last row has none

    def __init__(
        self,
        sentences: Iterable[Any] | None = None,
        corpus_file: Any = None,
        vector_size: int = 100,
        alpha: float = 0.025,
        window: int = 5,
        min_count: int = 5,
        max_vocab_size: int | None = None,
        sample: float = 1e-3,
        seed: int = 1,
        workers: int = 3,
        min_alpha: float = 0.0001,
        sg: int = 0,
        hs: int = 0,
        negative: int = 5,
        ns_exponent: float = 0.75,
        cbow_mean: int = 1,
        hashfxn: Callable[[str], int] = hash,
        epochs: int = 5,
        null_word: int = 0,
        trim_rule: TrimRule | None = None,
        sorted_vocab: int = 1,
        batch_words: int = MAX_WORDS_IN_BATCH,
        compute_loss: bool = False,
        callbacks: Iterable[Any] = (),
        comment: str | None = None,
        max_final_vocab: int | None = None,
        shrink_windows: bool = True,
    ):
        _check_numbers(vector_size, sample, alpha, min_alpha)
        self.vector_size = self.layer1_size = int(vector_size)
        self.workers = int(workers)
        self.epochs: int | None = epochs
        self.batch_words = batch_words
        self.sg, self.hs = int(sg), int(hs)
        self.negative, self.cbow_mean = int(negative), int(cbow_mean)
        self.alpha, self.min_alpha = float(alpha), float(min_alpha)
        self.min_alpha_yet_reached = float(alpha)
        self.window, self.shrink_windows = int(window), bool(shrink_windows)
        self.ns_exponent = ns_exponent
        self.seed, self.hashfxn = seed, hashfxn
        self.random = np.random.RandomState(seed)
        self.min_count, self.sample = min_count, sample
        self.effective_min_count = min_count  # raised for `max_final_vocab`
        self.max_vocab_size, self.max_final_vocab = max_vocab_size, max_final_vocab
        self.sorted_vocab, self.null_word = sorted_vocab, null_word
        self.comment = comment
        self.compute_loss = bool(compute_loss)
        self.running_training_loss = 0.0
        self.loss_history: list[float] = []
        self.epochs_trained = 0  # of all calls of `train`
        self.train_count = 0
        self.total_train_time = 0.0
        self.corpus_count: int | None = 0
        self.corpus_total_words: int | None = 0
        self.raw_vocab: Any = None
        self.cum_table: np.ndarray | None = None
        self.wv = self.new_vectors(self.vector_size)
        self.wv.vectors_lockf = np.ones(1, REAL)  # factors of the rates of rows
        self.load = call_on_class_only  # type: ignore[method-assign]
        if sentences is None and corpus_file is None:
            _warn_of_ignored(trim_rule, callbacks)
        else:
            corpus = {"corpus_iterable": sentences, "corpus_file": corpus_file}
            _check_corpus(sentences, corpus_file, passes=epochs + 1)
            self.build_vocab(**corpus, trim_rule=trim_rule)
            self.train(
                **corpus,
                total_examples=self.corpus_count,
                total_words=self.corpus_total_words,
                epochs=epochs,
                compute_loss=self.compute_loss,
                callbacks=callbacks,
            )
        self.add_lifecycle_event("created", params=str(self))

    def new_vectors(self, vector_size: int) -> KeyedVectors:
        """Vectors without keys, as the model has them."""
        return KeyedVectors(vector_size)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Takes the attributes of a pickle, also of one that gensim's own class made.

        What gensim's models do not have is as in a new model.
        """
        if "epochs_trained" not in state:
            vars(self).update(vars(self._empty(state)))
            state = state | {"load": call_on_class_only}
        vars(self).update(state)

    def __str__(self) -> str:
        name, size = type(self).__name__, self.wv.vector_size
        return f"{name}<vocab={len(self.wv)}, vector_size={size}, alpha={self.alpha}>"

    def build_vocab(
        self,
        corpus_iterable: Iterable[Any] | None = None,
        corpus_file: Any = None,
        update: bool = False,
        progress_per: int = 10000,
        keep_raw_vocab: bool = False,
        trim_rule: TrimRule | None = None,
        **kwargs: Any,
    ) -> None:
        """Makes the vocabulary of a corpus, and tables for it.

        Args:
          update: add the words of the corpus to the vocabulary, and its counts.
          progress_per: log every so many sentences.
          keep_raw_vocab: keep the counts of all words in `raw_vocab`.
          kwargs: of `prepare_vocab`.
        """
        _check_corpus(corpus_iterable, corpus_file, passes=1)
        self.corpus_total_words, self.corpus_count = self.scan_vocab(
            corpus_iterable, corpus_file, progress_per, trim_rule=trim_rule
        )
        self._take_vocab(update, keep_raw_vocab, trim_rule, **kwargs)
        self.add_lifecycle_event("build_vocab", update=update, trim_rule=str(trim_rule))

    def build_vocab_from_freq(
        self,
        word_freq: dict[Any, int],
        keep_raw_vocab: bool = False,
        corpus_count: int | None = None,
        trim_rule: TrimRule | None = None,
        update: bool = False,
    ) -> None:
        """Makes the vocabulary from counts of words, in place of a corpus."""
        _log.info("Processing provided word frequencies")
        _log.info(
            "collected %i unique word types, with total frequency of %i",
            *(len(word_freq), sum(word_freq.values())),
        )
        self.corpus_count = corpus_count or 0
        self.raw_vocab = word_freq
        self._take_vocab(update, keep_raw_vocab, trim_rule)

    def _take_vocab(
        self,
        update: bool,
        keep_raw_vocab: bool,
        trim_rule: TrimRule | None,
        **kwargs: Any,
    ) -> None:
        report = self.prepare_vocab(update, keep_raw_vocab, trim_rule, **kwargs)
        self.estimate_memory(report["num_retained_words"])
        self.prepare_weights(update)

    def scan_vocab(
        self,
        corpus_iterable: Iterable[Any] | None = None,
        corpus_file: Any = None,
        progress_per: int = 10000,
        workers: int | None = None,
        trim_rule: TrimRule | None = None,
    ) -> tuple[int, int]:
        """Counts words into `raw_vocab`; returns numbers of words and of sentences."""
        _log.info("collecting all words and their counts")
        corpus = LineSentence(corpus_file) if corpus_file else corpus_iterable
        assert corpus is not None
        self.raw_vocab, num_words, num_sentences = vocabulary.count_words(
            corpus, progress_per, self.max_vocab_size, trim_rule
        )
        _log.info(
            "collected %i word types from a corpus of %i raw words and %i sentences",
            *(len(self.raw_vocab), num_words, num_sentences),
        )
        return num_words, num_sentences

    prepare_vocab = vocabulary.prepare_vocab
    score = paths.score

    def estimate_memory(
        self, vocab_size: int | None = None, report: dict[str, int] | None = None
    ) -> dict[str, int]:
        """Bytes that a model of `vocab_size` words takes, by purpose, as in gensim."""
        num = vocab_size or len(self.wv)
        sizes = {**(report or {}), "vocab": num * (700 if self.hs else 500)}
        sizes["vectors"] = num * self.vector_size * np.dtype(REAL).itemsize
        for name, is_used in (("syn1", self.hs), ("syn1neg", self.negative)):
            if is_used:
                sizes[name] = num * self.layer1_size * np.dtype(REAL).itemsize
        sizes["total"] = sum(sizes.values())
        _log.info(
            "estimated required memory for %i words and %i dimensions: %i bytes",
            *(num, self.vector_size, sizes["total"]),
        )
        return sizes

    def add_null_word(self) -> None:
        """Adds the word '\\0', for padding, with count 1."""
        self.wv.key_to_index["\0"] = len(self.wv)
        self.wv.index_to_key.append("\0")
        self.wv.set_vecattr("\0", "count", 1)

    def create_binary_tree(self) -> None:
        """Gives each word its path in the Huffman tree of the counts: `code`, u8[L],
        and `point`, u32[L], of `wv.get_vecattr`."""
        paths.set_paths(self.wv)

    def make_cum_table(self, domain: int = 2**31 - 1) -> None:
        """Makes `cum_table`, the cumulative distribution of noise, u32[V]."""
        counts = self.wv.expandos.get("count", np.zeros(0, np.int64))
        self.cum_table = vocabulary.noise_table(counts, self.ns_exponent, domain)

    def prepare_weights(self, update: bool = False) -> None:
        """Makes tables for the vocabulary, or with `update` rows for its new words."""
        (self.update_weights if update else self.init_weights)()

    def init_weights(self) -> None:
        """Draws the vectors from `seed`, and clears the output tables."""
        _log.info("resetting layer weights")
        self.wv.resize_vectors(seed=self.seed)
        for name in training.output_tables(self):
            setattr(self, name, np.zeros((len(self.wv), self.layer1_size), REAL))

    def update_weights(self) -> None:
        """Adds rows for new words; inner nodes start anew, as the tree is another one.

        Raises:
          RuntimeError: there is no vocabulary yet.
        """
        _log.info("updating layer weights")
        num_old = len(self.wv.vectors)
        if not num_old:
            raise RuntimeError(
                "You cannot do an online vocabulary-update of a model which has no "
                "prior vocabulary. First build the vocabulary of your model with a "
                "corpus before doing an online update."
            )
        self.wv.resize_vectors(seed=self.seed)
        if self.negative:
            num_new = len(self.wv) - len(self.syn1neg)  # with those of `add_vectors`
            new = np.zeros((num_new, self.layer1_size), REAL)
            self.syn1neg = np.concatenate([self.syn1neg, new])
        if self.hs:
            self.syn1 = np.zeros((len(self.wv), self.layer1_size), REAL)

    def seeded_vector(self, seed_string: str, vector_size: int) -> np.ndarray:
        """The old name of `keyedvectors.pseudorandom_weak_vector`."""
        warn_deprecated(
            "seeded_vector",
            "Use gensim.models.keyedvectors.pseudorandom_weak_vector() directly",
        )
        return pseudorandom_weak_vector(vector_size, seed_string, self.hashfxn)

    def init_sims(self, replace: bool = False) -> None:
        """The old name of `wv.fill_norms`; with `replace` of `unit_normalize_all`."""
        warn_deprecated(
            "init_sims",
            "Gensim 4.0.0 implemented internal optimizations that make calls to "
            "init_sims() unnecessary.",
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            self.wv.init_sims(replace=replace)

    def train(
        self,
        corpus_iterable: Iterable[Any] | None = None,
        corpus_file: Any = None,
        total_examples: int | None = None,
        total_words: int | None = None,
        epochs: int | None = None,
        start_alpha: float | None = None,
        end_alpha: float | None = None,
        word_count: int = 0,
        queue_factor: int = 2,
        report_delay: float = 1.0,
        compute_loss: bool = False,
        callbacks: Iterable[Any] = (),
        **kwargs: Any,
    ) -> tuple[int, int]:
        """Trains on from the present vectors; returns trained words, and words read.

        Trained words are those that subsampling keeps, on average.

        Args:
          total_examples, total_words: sentences or words of the corpus; one is needed.
          epochs: needed, too.
          start_alpha, end_alpha: replace `alpha` and `min_alpha`.
          compute_loss: add up the loss for `get_latest_training_loss`.
          report_delay: seconds between the lines of progress in the log.
          callbacks: `CallbackAny2Vec`.
          word_count, queue_factor: no effect.

        Raises:
          RuntimeError: there is no vocabulary.
          ValueError: `epochs`, or the size of the corpus, is missing.
          TypeError: there is no corpus, or it cannot be read so often.
          FloatingPointError: training diverged.
        """
        _check_rates(start_alpha=start_alpha or 0, end_alpha=end_alpha or 0)
        self.alpha = start_alpha or self.alpha
        self.min_alpha = end_alpha or self.min_alpha
        self.epochs = epochs
        self._check_training(epochs, total_examples, total_words)
        assert epochs is not None
        _check_corpus(corpus_iterable, corpus_file, passes=epochs)
        if corpus_iterable is None and not total_words:
            raise ValueError(
                "total_words must be provided alongside corpus_file argument."
            )
        self.add_lifecycle_event(
            "train",
            msg=f"training model with {self.workers} workers on {len(self.wv)} "
            f"vocabulary and {self.layer1_size} features, using sg={self.sg} "
            f"hs={self.hs} sample={self.sample} negative={self.negative} "
            f"window={self.window} shrink_windows={self.shrink_windows}",
        )
        self.compute_loss = compute_loss
        self.running_training_loss = 0.0
        callbacks = [*callbacks]
        for callback in callbacks:
            callback.on_train_begin(self)
        is_file = corpus_iterable is None
        corpus: Any = LineSentence(corpus_file) if is_file else corpus_iterable
        totals = training.Totals(total_examples, total_words)
        started = time.perf_counter()
        trained, raw = training.train(
            self, corpus, totals, callbacks, is_file, report_delay
        )
        seconds = max(time.perf_counter() - started, 1e-9)
        self.add_lifecycle_event(
            "train",
            msg=f"training on {raw} raw words ({trained} effective words) took "
            f"{seconds:.1f}s, {trained / seconds:.0f} effective words/s",
        )
        self.train_count += 1
        for callback in callbacks:
            callback.on_train_end(self)
        return trained, raw

    def _check_training(
        self, epochs: int | None, total_examples: int | None, total_words: int | None
    ) -> None:
        if not self.hs and not self.negative:
            raise ValueError(
                "You must set either 'hs' or 'negative' to be positive for proper "
                "training. When both 'hs=0' and 'negative=0', there will be no "
                "training."
            )
        if self.hs and self.negative:
            _log.warning(
                "Both hierarchical softmax and negative sampling are activated. "
                "This is probably a mistake. You should set either 'hs=0' "
                "or 'negative=0' to disable one of them. "
            )
        if self.alpha > self.min_alpha_yet_reached:
            _log.warning("Effective 'alpha' higher than previous training cycles")
        if not self.wv.key_to_index:
            raise RuntimeError(
                "you must first build vocabulary before training the model"
            )
        if not len(self.wv.vectors):
            raise RuntimeError("you must initialize vectors before training the model")
        if total_words is None and total_examples is None:
            raise ValueError(
                "You must specify either total_examples or total_words, for proper "
                "learning-rate and progress calculations. If you've just built the "
                "vocabulary using the same corpus, using the count cached in the model "
                "is sufficient: total_examples=model.corpus_count."
            )
        if epochs is None or epochs <= 0:
            raise ValueError(
                "You must specify an explicit epochs count. The usual value is "
                "epochs=model.epochs."
            )

    def get_latest_training_loss(self) -> float:
        """Loss summed over all pairs of the last `train` with compute_loss=True.

        `loss_history` has means of pairs, which can be compared between corpora.
        """
        return self.running_training_loss

    def predict_output_word(
        self, context_words_list: list[Any], topn: int | None = 10
    ) -> list[tuple[Any, Any]] | None:
        """The `topn` most probable centres of some context words, with probabilities;
        None: all.

        A softmax over all words of the products of their output rows with the mean of
        the contexts. Returns None if no word is known.

        Raises:
          RuntimeError: the model has no output table.
        """
        if not self.negative:
            raise RuntimeError(
                "We have currently only implemented predict_output_word for the "
                "negative sampling scheme, so you need to have run word2vec with "
                "negative > 0 for this to work."
            )
        if not hasattr(self, "syn1neg"):
            raise RuntimeError(
                "Parameters required for predicting the output words not found."
            )
        known = [word for word in context_words_list if word in self.wv]
        if not known:
            _log.warning(
                "All the input context words are out-of-vocabulary for the current "
                "model."
            )
            return None
        rows = self.wv.vectors[[self.wv.get_index(word) for word in known]]
        hidden = rows.mean(axis=0) if self.cbow_mean else rows.sum(axis=0)
        scores = self.syn1neg @ hidden
        shares = np.exp(scores - scores.max())
        shares /= shares.sum()
        most = len(shares) if topn is None else topn
        return [
            (self.wv.index_to_key[row], shares[row])
            for row in similar.best(shares, most).tolist()
        ]

    def reset_from(self, other_model: "Word2Vec") -> None:
        """Takes the vocabulary of another model, which is shared; draws new vectors."""
        self.wv = self.new_vectors(self.vector_size)
        self.wv.index_to_key = other_model.wv.index_to_key
        self.wv.key_to_index = other_model.wv.key_to_index
        self.wv.expandos = other_model.wv.expandos
        self.cum_table = other_model.cum_table
        self.corpus_count = other_model.corpus_count
        self.init_weights()

    def to_saved(self, path: Any, ignore: Any) -> files.Saved:
        """Also logs the event of saving."""
        self.add_lifecycle_event("saving", fname_or_handle=str(path))
        return contents.of_model(self, ignore)

    @classmethod
    def load(cls, *args: Any, **kwargs: Any) -> Any:
        """As of `SaveLoad`; logs an error where the file has no model."""
        try:
            return super().load(*args, **kwargs)
        except AttributeError:
            _log.error(
                "Model load error. Was model saved using code from an older Gensim "
                "Version? Try loading older model using gensim-3.8.3, then re-saving, "
                "to restore compatibility with current code."
            )
            raise

    @classmethod
    def _empty(cls, facts: dict[str, Any]) -> "Word2Vec":
        """A model without vocabulary, of these facts."""
        model = cls.__new__(cls)
        Word2Vec.__init__(model, vector_size=facts["vector_size"], seed=facts["seed"])
        return model

    @classmethod
    def from_saved(cls, saved: files.Saved) -> "Word2Vec":
        model = cls._empty(contents.model_facts(saved))
        contents.fill_model(model, saved)
        return model


def call_on_class_only(*args: Any, **kwargs: Any) -> NoReturn:
    """Stands for `load` of a model that there is already."""
    raise AttributeError("This method should be called on a class object.")


def _check_corpus(corpus: Any, path: Any, passes: int) -> None:
    """Raises TypeError for a corpus that cannot be read `passes` times."""
    if path is None and corpus is None:
        raise TypeError(
            "Either one of corpus_file or corpus_iterable value must be provided"
        )
    if path is not None and corpus is not None:
        raise TypeError(
            "Both corpus_file and corpus_iterable must not be provided at the same time"
        )
    if corpus is None:
        if not os.path.isfile(path):
            raise TypeError(
                "Parameter corpus_file must be a valid path to a file, got "
                f"{path!r} instead"
            )
        if os.path.splitext(path)[1].lower() in COMPRESSED:
            raise TypeError(
                "Trainer from compressed files is not supported with the "
                f"`corpus_path` argument. Please decompress {path} or use "
                "`corpus_iterable` instead."
            )
    elif not isinstance(corpus, Iterable):
        raise TypeError(
            "The corpus_iterable must be an iterable of lists of strings, got "
            f"{corpus!r} instead"
        )
    elif isinstance(corpus, GeneratorType) and passes > 1:
        raise TypeError(
            f"Using a generator as corpus_iterable can't support {passes} passes. Try "
            "a re-iterable sequence."
        )


def _warn_of_ignored(trim_rule: Any, callbacks: Any) -> None:
    if trim_rule is not None:
        _log.warning(
            "The rule, if given, is only used to prune vocabulary during build_vocab() "
            "and is not stored as part of the model. Model initialized without "
            "sentences. trim_rule provided, if any, will be ignored."
        )
    if callbacks:
        _log.warning(
            "Callbacks are no longer retained by the model, so must be provided "
            "whenever training is triggered, as in initialization with a corpus or "
            "calling `train()`. The callbacks provided in this initialization without "
            "triggering train will be ignored."
        )


def _check_numbers(vector_size: Any, sample: Any, alpha: Any, min_alpha: Any) -> None:
    """Raises ValueError for numbers with which nothing can be trained, where gensim
    raises what NumPy does later."""
    if int(vector_size) < 1:
        raise ValueError(f"`vector_size` must be an integer >= 1, got {vector_size!r}.")
    if sample and not 0 < float(sample) < math.inf:
        raise ValueError(f"`sample` must be a finite number >= 0, got {sample!r}.")
    _check_rates(alpha=alpha, min_alpha=min_alpha)


def _check_rates(**rates: Any) -> None:
    for name, value in rates.items():
        if not math.isfinite(float(value)):
            raise ValueError(f"`{name}` must be a finite number, got {value!r}.")
