"""Makes the classes of `gensim.models` those of `embedder.gensim`, and back.

Where gensim is not installed, modules of its names are made that have these alone, and
the words of texts.
"""

from typing import Any

from embedder.gensim import (
    callbacks,
    corpora,
    fasttext,
    keyedvectors,
    phrase_scores,
    phrases,
    rows,
    swapping,
    texts,
    vocabulary,
    word2vec,
)

_SOURCES = (
    *(callbacks, corpora, fasttext, keyedvectors, phrase_scores),
    *(phrases, rows, texts, vocabulary, word2vec),
)
_VALUES = {name: value for x in _SOURCES for name, value in vars(x).items()}


def _named(names: str) -> dict[str, Any]:
    return {name: _VALUES[name] for name in names.split()}


_MODULES = {
    "gensim.models": _named("Word2Vec KeyedVectors FastText Phrases"),
    "gensim.models.fasttext": _named(
        "FastText FastTextKeyedVectors ft_ngram_hashes load_facebook_model "
        "load_facebook_vectors save_facebook_model"
    ),
    "gensim.models.phrases": _named(
        "Phrases FrozenPhrases Phraser _PhrasesTransformation ENGLISH_CONNECTOR_WORDS "
        "original_scorer npmi_scorer"
    ),
    "gensim.models.word2vec": _named(
        "Word2Vec LineSentence PathLineSentences Text8Corpus BrownCorpus "
        "MAX_WORDS_IN_BATCH"
    ),
    "gensim.models.keyedvectors": _named(
        "KeyedVectors Word2VecKeyedVectors EuclideanKeyedVectors REAL prep_vectors "
        "load_word2vec_format _load_word2vec_format pseudorandom_weak_vector"
    ),
    "gensim.models.callbacks": _named("CallbackAny2Vec"),
}
"""Names that are replaced, by module."""

_OF_UTILS = _named(
    "RULE_DEFAULT RULE_DISCARD RULE_KEEP keep_vocab_item prune_vocab deaccent "
    "simple_preprocess simple_tokenize to_unicode tokenize"
) | {"any2unicode": corpora.to_unicode}
_REPLACEMENTS = swapping.Replacements(
    _MODULES, _OF_UTILS, _named("common_texts get_tmpfile")
)


def swap_in() -> None:
    """Replaces the classes in gensim's modules, which it makes if there are none."""
    swapping.swap_in(_REPLACEMENTS)
