"""gensim's own tests of Word2Vec, KeyedVectors, FastText and Phrases, on ours, and the
names, arguments and defaults of its classes.

Also those of its Doc2Vec, which stays its own, on how it is saved, loaded and read.
"""

import contextlib
import inspect
import os
import re
import shutil
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import gensim.models
import gensim.models.callbacks
import pytest

import embedder.gensim
from embedder.gensim import fasttext
from tests.commands import run_python
from tests.gensim_interface.plugin import EXCEPTIONS

ROOT = Path(__file__).parents[2]
COLLECTED = {
    "test_word2vec": 84,
    "test_keyedvectors": 33,
    "test_fasttext": 160,
    "test_phrases": 56,
}
"""Of gensim 4.4."""
IMPORTED, REPEATED = "TestWord2VecModel", 74
"""A class that test_fasttext imports as it is, and the number of its tests."""
SKIPPED = {"test_word2vec::TestWord2VecModel::test_method_in_bulk"}
"""By gensim itself; some need fastText's program."""
if not shutil.which("fasttext"):
    SKIPPED |= {
        f"test_fasttext::SaveFacebook{kind}Test::test_{name}"
        for kind in ("ByteIdentity", "FormatReading")
        for name in ("cbow", "skipgram")
    }


@contextlib.contextmanager
def on_one_core() -> Iterator[None]:
    """Gives processes that are started one core, so that they train by one thread:
    those of two test processes would wait for each other. The bits are the same."""
    cores = os.sched_getaffinity(0)
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    os.sched_setaffinity(0, {sorted(cores)[number % len(cores)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def name_of(case: ElementTree.Element) -> str:
    """The name of a test as `EXCEPTIONS` has it."""
    parts = case.get("classname", "").split(".")
    of_class = parts[-2:] if parts[-1][0].isupper() else parts[-1:]
    return "::".join((*of_class, case.get("name", "")))


def run_tests(folder: Path, *arguments: str) -> tuple[str, dict[str, set[str]]]:
    """What pytest prints, and the tests that ran and the marks of each result."""
    (folder / "pytest.ini").write_text("[pytest]\n")  # not the settings of this suite
    results = folder / "results.xml"
    root = Path(gensim.__file__).parent / "test"  # else tests have no module's name
    with on_one_core():
        done = run_python(
            *("-m", "pytest", "-q", "-p", "tests.gensim_interface.plugin"),
            *("-p", "no:cacheprovider", "-p", "no:xdist", f"--junitxml={results}"),
            *(f"--rootdir={root}", "--pyargs", *arguments),
            **{"cwd": folder, "timeout": 1800},
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        )
    assert done.returncode == 0, done.stdout[-5000:]
    cases = ElementTree.parse(results).iter("testcase")
    return done.stdout, {name_of(x): {child.tag for child in x} for x in cases}


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("module", COLLECTED)
def test_gensims_own_tests_pass(tmp_path, module):
    once = ["-k", f"not {IMPORTED}"] if module == "test_fasttext" else []
    printed, found = run_tests(tmp_path, f"gensim.test.{module}", *once)
    skipped = {name for name, tags in found.items() if "skipped" in tags}
    assert skipped == {name for name in SKIPPED if name.startswith(f"{module}::")}
    left_out = {name for name in EXCEPTIONS if name.startswith(f"{module}::")}
    assert not found.keys() & left_out
    (deselected,) = re.findall(r"(\d+) deselected", printed) or "0"
    assert int(deselected) == len(left_out) + (REPEATED if once else 0)
    assert len(found) + int(deselected) == COLLECTED[module]


@pytest.mark.slow
def test_gensims_doc2vec_passes_its_tests_beside_ours(tmp_path):
    words = "persistence or load or string_doctag or similarity or word_vec or warning"
    _, found = run_tests(tmp_path, "gensim.test.test_doc2vec", "-k", words)
    assert len(found) == 11 and not any(found.values())


PAIRS = {
    name: (getattr(embedder.gensim, name), getattr(module, name))
    for module, names in {
        gensim.models.callbacks: "CallbackAny2Vec",
        gensim.models.fasttext: "FastText FastTextKeyedVectors",
        gensim.models.keyedvectors: "KeyedVectors",
        gensim.models.phrases: "Phrases FrozenPhrases",
        gensim.models.word2vec: "Word2Vec LineSentence PathLineSentences Text8Corpus "
        "BrownCorpus",
    }.items()
    for name in names.split()
}


def parameters(function) -> list[tuple]:
    """Names, order and defaults of arguments, without those that it passes on."""
    found = inspect.signature(function).parameters.values()
    passed_on = inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL
    known = [(x.name, x.default, x.kind) for x in found if x.kind not in passed_on]
    return [x for x in known if x[0] != "rethrow"]  # which has no effect


@pytest.mark.parametrize(("own", "other"), PAIRS.values(), ids=PAIRS)
def test_public_names_are_there_with_the_arguments_of_gensim_first(own, other):
    """Ours may have more, such as `trust`, by keyword."""
    assert {x for x in dir(other) if x[0] != "_"} - {*dir(own)} == set()
    found = inspect.getmembers(other, lambda x: inspect.isroutine(x) and callable(x))
    for name, method in found:
        if name[0] == "_" and name != "__init__":
            continue
        theirs, ours = parameters(method), parameters(getattr(own, name))
        passes_all_on = [x[0] for x in theirs] in (["self"], [])
        assert passes_all_on or ours[: len(theirs)] == theirs, name


TRAINING = "__init__ build_vocab train scan_vocab".split()
FUNCTIONS = "ft_ngram_hashes load_facebook_model load_facebook_vectors"


def test_arguments_of_trainings_and_functions_are_those_of_gensim_alone():
    pairs = [[getattr(x, y) for x in PAIRS["Word2Vec"]] for y in TRAINING]
    pairs += [[getattr(x, y) for x in PAIRS["FastText"]] for y in TRAINING]
    modules = fasttext, gensim.models.fasttext
    for name in f"{FUNCTIONS} save_facebook_model".split():
        pairs.append([getattr(x, name) for x in modules])
    for own, other in pairs:
        assert parameters(own) == parameters(other), own
