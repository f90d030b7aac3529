"""`Phrases` and `FrozenPhrases` of embedder.gensim beside gensim's, and their files."""

import copy
import itertools
import os
import pickle

import gensim.models.phrases as theirs
import numpy as np
import pytest

from embedder.data.corpus import demo_sequences
from embedder.gensim import (
    ENGLISH_CONNECTOR_WORDS,
    FrozenPhrases,
    Phraser,
    Phrases,
    npmi_scorer,
    original_scorer,
)

LINES = [*itertools.islice(demo_sequences(), 600)]


def product(
    worda_count, wordb_count, bigram_count, len_vocab, min_count, corpus_word_count
):
    """A scorer of a program."""
    return bigram_count / (worda_count * wordb_count) * corpus_word_count


OPTIONS = {
    "default": {},
    "low": {"min_count": 2, "threshold": 1.0},
    "connectors": {
        "min_count": 1,
        "threshold": 2.0,
        "connector_words": ENGLISH_CONNECTOR_WORDS,
        "delimiter": " ",
    },
    "npmi": {"min_count": 2, "threshold": 0.4, "scoring": "npmi"},
    "own scorer": {"min_count": 1, "threshold": 20, "scoring": product},
    "pruned": {"min_count": 1, "threshold": 1.0, "max_vocab_size": 2000},
}


def both(**options) -> tuple[Phrases, theirs.Phrases]:
    return Phrases(LINES, **options), theirs.Phrases(LINES, **options)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_a_real_text_has_the_phrases_of_gensim(options, tmp_path):
    """Counts, scores and joined text, also of more sentences and from a file."""
    own, other = both(**options)
    own.language, own.weights = "en", np.arange(3.0)
    for _ in range(2):
        assert [*own.vocab.items()] == [*other.vocab.items()]
        assert own.min_reduce == other.min_reduce
        found = own.export_phrases()
        assert [*found.items()] == [*other.export_phrases().items()]
        assert len(found) > 5
        assert own.find_phrases(LINES) == other.find_phrases(LINES)
        for saved, theirs_of in ((own, other), (own.freeze(), other.freeze())):
            expected = [*theirs_of[LINES]]
            assert [*saved[LINES]] == expected
            assert str(saved) == str(theirs_of)
            saved.save(tmp_path / type(saved).__name__)
            again = Phrases.load(tmp_path / type(saved).__name__)  # of either class
            assert type(again) is type(saved)
            assert vars(again).keys() == vars(saved).keys()
            for name in vars(again).keys() - {"lifecycle_events", "weights"}:
                assert getattr(again, name) == getattr(saved, name)
            assert [*again[LINES]] == expected
            copied = copy.deepcopy(pickle.loads(pickle.dumps(saved)))
            assert [*copied[LINES]] == expected
        assert own.freeze().phrasegrams == other.freeze().phrasegrams
        own = FrozenPhrases.load(str(tmp_path / "Phrases"))
        np.testing.assert_array_equal(own.weights, np.arange(3.0))
        own.add_vocab(LINES[5:900:3])
        other.add_vocab(LINES[5:900:3])


def test_connectors_and_scorers_are_those_of_gensim():
    assert ENGLISH_CONNECTOR_WORDS == theirs.ENGLISH_CONNECTOR_WORDS
    assert Phraser is FrozenPhrases
    assert original_scorer(0, 4, 3, 60, 2, 900) == -np.inf
    for counts in ((5, 4, 3, 60, 2, 900), (5, 4, 0, 60, 0, 900), (5, 4, 3, 60, 4, 900)):
        for own in (original_scorer, npmi_scorer):
            assert own(*counts) == getattr(theirs, own.__name__)(*counts)


def test_sentences_are_joined_as_they_are_asked_for():
    phrases = Phrases([["a", "b"], ["a", "b"], ["c"]], min_count=1, threshold=0.1)
    given = []

    def stream():
        for sentence in (["a", "b"], ["b", "a", "b"]):
            given.append(sentence)
            yield sentence

    joined = phrases[stream()]
    assert len(given) <= 1  # the first one tells whether there are several
    assert [*joined] == [["a_b"], ["b", "a_b"]]
    again = phrases[[["a", "b"], ["c"]]]
    assert [*again] == [*again] == [["a_b"], ["c"]]
    assert len(again) == 2 and again[1] == ["c"] and [*again[:1]] == [["a_b"]]
    assert phrases[iter("ab")] == ["a_b"]


def test_pickles_of_gensim_are_read_with_trust(tmp_path):
    path = os.fspath(tmp_path / "p")
    for options in (OPTIONS["npmi"], OPTIONS["own scorer"], OPTIONS["connectors"]):
        own, other = both(**options)
        for saved, kind in ((other, Phrases), (other.freeze(), FrozenPhrases)):
            saved.save(path)
            with pytest.raises(ValueError, match="give trust=True"):
                kind.load(path)
            found = kind.load(path, trust=True)
            assert type(found) is kind and found.scoring is own.scoring
            assert [*found[LINES]] == [*saved[LINES]]
