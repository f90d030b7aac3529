"""`Phrases` and `FrozenPhrases` of embedder.gensim beside gensim's, and their files."""

import copy
import itertools
import json
import os
import pickle
from pathlib import Path

import gensim.models.phrases as theirs
import numpy as np
import pytest
import safetensors.numpy
from safetensors import safe_open

from embedder.gensim import (
    ENGLISH_CONNECTOR_WORDS,
    FrozenPhrases,
    KeyedVectors,
    Phraser,
    Phrases,
    npmi_scorer,
    original_scorer,
)
from embedder.tables.demo import demo_sequences
from tests.commands import run_python

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
def test_a_real_text_has_the_phrases_of_gensim(options):
    """Counts, scores and joined text, before and after more sentences."""
    own, other = both(**options)
    more = LINES[5:900:3]
    for _ in range(2):
        assert [*own.vocab.items()] == [*other.vocab.items()]
        assert own.min_reduce == other.min_reduce
        found = own.export_phrases()
        assert [*found.items()] == [*other.export_phrases().items()]
        assert len(found) > 5
        assert [*own[LINES]] == [*other[LINES]]
        assert own.find_phrases(LINES) == other.find_phrases(LINES)
        frozen = own.freeze()
        assert frozen.phrasegrams == other.freeze().phrasegrams
        assert [*frozen[LINES]] == [*other.freeze()[LINES]]
        assert str(own) == str(other) and str(frozen) == str(other.freeze())
        own.add_vocab(more)
        other.add_vocab(more)


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
    with pytest.raises(RuntimeError, match="does not support slicing"):
        phrases[iter([["a", "b"]])][0]
    assert phrases[iter("ab")] == ["a_b"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_count": 0}, "min_count should be at least 1"),
        ({"threshold": 0}, "threshold should be positive for default scoring"),
        ({"threshold": 2, "scoring": "npmi"}, "between -1 and 1 for npmi scoring"),
        ({"scoring": "pmi"}, "unknown scoring method string pmi specified"),
        ({"scoring": lambda worda_count: 1}, r"missing expected parameters \['wordb_c"),
    ],
)
def test_bad_arguments_have_the_errors_of_gensim(options, message):
    for kind in (Phrases, theirs.Phrases):
        with pytest.raises(ValueError, match=message):
            kind([["a"]], **options)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_phrases_come_back_whole(tmp_path, options):
    phrases = Phrases(LINES, **options)
    phrases.language, phrases.weights = "en", np.arange(3.0)
    for saved in (phrases, phrases.freeze()):
        path = tmp_path / type(saved).__name__
        saved.save(path)
        again = Phrases.load(path)  # of either class, as in gensim
        assert type(again) is type(saved)
        same = vars(again).keys() - {"lifecycle_events", "weights"}
        assert {x: vars(again)[x] for x in same} == {x: vars(saved)[x] for x in same}
        assert vars(again).keys() == vars(saved).keys()
        assert [*again[LINES]] == [*saved[LINES]]
        copied = copy.deepcopy(pickle.loads(pickle.dumps(saved)))
        assert [*copied[LINES]] == [*saved[LINES]]
    loaded = Phrases.load(tmp_path / "Phrases")
    np.testing.assert_array_equal(loaded.weights, phrases.weights)
    assert FrozenPhrases.load(str(tmp_path / "Phrases")).vocab == phrases.vocab
    loaded.add_vocab(LINES)
    phrases.add_vocab(LINES)
    assert loaded.vocab == phrases.vocab


def test_a_scorer_without_a_module_is_not_saved(tmp_path):
    phrases = Phrases(LINES, scoring=product)
    phrases.scoring = lambda **counts: 1
    with pytest.raises(TypeError, match="`scoring` must be a function of a module to"):
        phrases.save(tmp_path / "p")
    phrases = Phrases([[1], [2]])
    with pytest.raises(TypeError, match="`vocab` must be text to be saved, got 1"):
        phrases.save(tmp_path / "p")
    assert not [*tmp_path.iterdir()]


def rewritten(path: Path, facts: dict, **arrays) -> None:
    """Changes facts and arrays of a file of `save`."""
    with safe_open(path, "numpy") as file:
        metadata = file.metadata()
    found = json.loads(metadata["json"])
    found["facts"] |= facts
    metadata["json"] = json.dumps(found)
    tensors = safetensors.numpy.load_file(path) | arrays
    safetensors.numpy.save_file(tensors, path, metadata)


BAD_FILES = [
    ({"scoring": "os:system"}, {}, "no imported module has as a scorer: import its"),
    ({"scoring": "antigravity:fly"}, {}, "its `scoring` is 'antigravity:fly', which"),
    ({"scoring": None}, {}, "`scoring` must not be None"),
    ({"threshold": "1"}, {}, "`threshold` must not be '1'"),
    ({}, {"vocab": np.arange(2)}, "`vocab` must have one value for each text"),
    ({}, {"vocab": np.ones(2, np.float32)}, "`vocab` must have 1 axes, got float32"),
    ({"own": {"save": 1}}, {}, "`'save'` must be no attribute of Phrases"),
]


@pytest.mark.row("B74")
@pytest.mark.parametrize(("facts", "arrays", "message"), BAD_FILES)
def test_files_that_are_not_whole_are_refused(tmp_path, facts, arrays, message):
    path = tmp_path / "p"
    Phrases(LINES).save(path)
    rewritten(path, facts, **arrays)
    with pytest.raises(ValueError, match=message) as error:
        Phrases.load(path)
    assert "\n" not in str(error.value) and str(path) in str(error.value)


@pytest.mark.row("B74")
def test_files_of_other_classes_are_refused(tmp_path):
    Phrases(LINES).save(tmp_path / "p")
    with pytest.raises(AttributeError, match="can't be loaded by"):
        KeyedVectors.load(tmp_path / "p")
    KeyedVectors(2).save(tmp_path / "v")
    with pytest.raises(AttributeError, match="can't be loaded by"):
        FrozenPhrases.load(tmp_path / "v")


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


WITHOUT_GENSIM = """
import importlib.util as u
u.find_spec = lambda name, find=u.find_spec: None if name == "gensim" else find(name)
import embedder.gensim.install
from gensim.models import Phrases
from gensim.models.phrases import ENGLISH_CONNECTOR_WORDS, Phraser, npmi_scorer
lines = [["bank", "of", "america"], ["bank", "of", "america", "opens"]] * 3
phrases = Phrases(lines, 1, 0.1, connector_words=ENGLISH_CONNECTOR_WORDS)
print(Phraser(phrases)[lines[1]], npmi_scorer.__module__)
"""


def test_programs_without_gensim_have_phrases():
    done = run_python("-c", WITHOUT_GENSIM)
    expected = "['bank_of_america', 'opens'] embedder.gensim.phrase_scores\n"
    assert done.stdout == expected, done.stderr
