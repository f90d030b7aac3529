"""Names, arguments and defaults of embedder.gensim are those of gensim."""

import inspect

import gensim.models.callbacks
import gensim.models.fasttext
import gensim.models.keyedvectors
import gensim.models.phrases
import gensim.models.word2vec
import pytest

import embedder.gensim
from embedder.gensim import fasttext

CLASSES = {
    gensim.models.callbacks: ["CallbackAny2Vec"],
    gensim.models.fasttext: ["FastText", "FastTextKeyedVectors"],
    gensim.models.keyedvectors: ["KeyedVectors"],
    gensim.models.phrases: ["Phrases", "FrozenPhrases"],
    gensim.models.word2vec: [
        *("Word2Vec", "LineSentence", "PathLineSentences", "Text8Corpus"),
        "BrownCorpus",
    ],
}
PAIRS = {
    name: (getattr(embedder.gensim, name), getattr(module, name))
    for module, names in CLASSES.items()
    for name in names
}
FUNCTIONS = (
    "ft_ngram_hashes",
    "load_facebook_model",
    "load_facebook_vectors",
    "save_facebook_model",
)


def parameters(function) -> list[tuple]:
    """Names, order and defaults of arguments, without those that it passes on."""
    found = inspect.signature(function).parameters.values()
    passed_on = inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL
    known = [(x.name, x.default, x.kind) for x in found if x.kind not in passed_on]
    return [x for x in known if x[0] != "rethrow"]  # which has no effect


def methods(kind) -> dict:
    found = inspect.getmembers(kind, lambda x: inspect.isroutine(x) and callable(x))
    return {name: x for name, x in found if name[0] != "_" or name == "__init__"}


@pytest.mark.parametrize(("own", "other"), PAIRS.values(), ids=PAIRS)
def test_no_public_name_is_missing(own, other):
    assert {x for x in dir(other) if x[0] != "_"} - {*dir(own)} == set()


@pytest.mark.parametrize(("own", "other"), PAIRS.values(), ids=PAIRS)
def test_methods_have_the_arguments_of_gensim_first(own, other):
    """Ours may have more, such as `trust`, by keyword."""
    for name, method in methods(other).items():
        theirs = parameters(method)
        has_names = [x[0] for x in theirs] not in (
            ["self"],
            [],
        )  # else it passes all on
        ours = parameters(getattr(own, name))
        assert not has_names or ours[: len(theirs)] == theirs, name


@pytest.mark.parametrize("name", ["__init__", "build_vocab", "train", "scan_vocab"])
@pytest.mark.parametrize("kind", ["Word2Vec", "FastText"])
def test_arguments_of_a_training_are_those_of_gensim_alone(kind, name):
    found, expected = (parameters(getattr(each, name)) for each in PAIRS[kind])
    assert found == expected


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_have_the_arguments_of_gensim(name):
    found, expected = (
        parameters(getattr(each, name)) for each in (fasttext, gensim.models.fasttext)
    )
    assert found == expected
