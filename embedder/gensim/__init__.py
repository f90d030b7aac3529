"""The interface of gensim's Word2Vec, KeyedVectors and Phrases, by embedder.

A program of gensim changes one import, `from embedder.gensim import Word2Vec`, or none:
`python -m embedder.gensim script.py`. gensim itself is not needed.

Arguments, defaults, errors and log lines are those of gensim 4.4, logged to the loggers
of gensim's names. `docs/how-to/move-from-gensim.md` says what differs. The package uses
the public names of `embedder` alone. Read `word2vec.py` first.
"""

from embedder.gensim.callbacks import CallbackAny2Vec
from embedder.gensim.corpora import (
    BrownCorpus,
    LineSentence,
    PathLineSentences,
    Text8Corpus,
)
from embedder.gensim.fasttext import (
    FastText,
    FastTextKeyedVectors,
    load_facebook_model,
    load_facebook_vectors,
    save_facebook_model,
)
from embedder.gensim.keyedvectors import KeyedVectors
from embedder.gensim.phrase_scores import (
    ENGLISH_CONNECTOR_WORDS,
    npmi_scorer,
    original_scorer,
)
from embedder.gensim.phrases import FrozenPhrases, Phraser, Phrases
from embedder.gensim.texts import simple_preprocess
from embedder.gensim.vocabulary import RULE_DEFAULT, RULE_DISCARD, RULE_KEEP
from embedder.gensim.word2vec import Word2Vec

__all__ = [
    "ENGLISH_CONNECTOR_WORDS",
    "RULE_DEFAULT",
    "RULE_DISCARD",
    "RULE_KEEP",
    "BrownCorpus",
    "CallbackAny2Vec",
    "FastText",
    "FastTextKeyedVectors",
    "FrozenPhrases",
    "KeyedVectors",
    "LineSentence",
    "PathLineSentences",
    "Phraser",
    "Phrases",
    "Text8Corpus",
    "Word2Vec",
    "load_facebook_model",
    "load_facebook_vectors",
    "npmi_scorer",
    "original_scorer",
    "save_facebook_model",
    "simple_preprocess",
]
