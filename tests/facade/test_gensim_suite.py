"""gensim's own tests of Word2Vec, KeyedVectors, FastText and Phrases, on ours.

Also those of its Doc2Vec, which stays its own, on how it is saved, loaded and read.
"""

import contextlib
import os
import re
import shutil
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import gensim
import pytest

from tests.commands import run_python
from tests.facade.gensim_plugin import exceptions

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
_WITH_FASTTEXT = "SaveFacebookByteIdentityTest", "SaveFacebookFormatReadingTest"
SKIPPED = {
    "test_word2vec::TestWord2VecModel::test_method_in_bulk",
    *(
        f"test_fasttext::{kind}::test_{name}"
        for kind in _WITH_FASTTEXT
        for name in ("cbow", "skipgram")
        if not shutil.which("fasttext")
    ),
}
"""By gensim itself; some need fastText's program."""
MOST = {
    "test_word2vec": 2,
    "test_keyedvectors": 0,
    "test_fasttext": 0,
    "test_phrases": 0,
}
"""Exceptions that there may be."""


def by_module(names) -> Counter:
    return Counter(name.partition("::")[0] for name in names)


def test_each_exception_has_a_reason():
    listed = exceptions()
    assert all(len(reason) > 10 for reason in listed.values())
    found = by_module(listed)
    assert all(found[module] <= most for module, most in MOST.items())
    assert {*found} <= {*MOST}


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


def run_tests(folder: Path, *arguments: str) -> tuple[str, dict[str, set[str]]]:
    """What pytest prints, and the tests that ran and the marks of each result."""
    (folder / "pytest.ini").write_text("[pytest]\n")  # not the settings of this suite
    results = folder / "results.xml"
    root = Path(gensim.__file__).parent / "test"  # else tests have no module's name
    with on_one_core():
        done = run_python(
            *("-m", "pytest", "-q", "-p", "tests.facade.gensim_plugin"),
            *("-p", "no:cacheprovider", "-p", "no:xdist", f"--junitxml={results}"),
            *(f"--rootdir={root}", "--pyargs", *arguments),
            **{"cwd": folder, "timeout": 1800},
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        )
    assert done.returncode == 0, done.stdout[-5000:]
    cases = ElementTree.parse(results).iter("testcase")
    return done.stdout, {name_of(x): {child.tag for child in x} for x in cases}


@pytest.mark.slow
@pytest.mark.parametrize("module", COLLECTED)
def test_gensims_own_tests_pass(tmp_path, module):
    once = ["-k", f"not {IMPORTED}"] if module == "test_fasttext" else []
    printed, found = run_tests(tmp_path, f"gensim.test.{module}", *once)
    skipped = {name for name, tags in found.items() if "skipped" in tags}
    assert skipped == {name for name in SKIPPED if by_module([name])[module]}
    left_out = {name for name in exceptions() if by_module([name])[module]}
    assert not found.keys() & left_out
    (deselected,) = re.findall(r"(\d+) deselected", printed) or "0"
    assert int(deselected) == len(left_out) + (REPEATED if once else 0)
    assert len(found) + int(deselected) == COLLECTED[module]


@pytest.mark.slow
def test_gensims_doc2vec_passes_its_tests_beside_ours(tmp_path):
    words = "persistence or load or string_doctag or similarity or word_vec or warning"
    _, found = run_tests(tmp_path, "gensim.test.test_doc2vec", "-k", words)
    assert len(found) == 11 and not any(found.values())


def name_of(case: ElementTree.Element) -> str:
    """The name of a test as `exceptions.txt` has it."""
    parts = case.get("classname", "").split(".")
    of_class = parts[-2:] if parts[-1][0].isupper() else parts[-1:]
    return "::".join((*of_class, case.get("name", "")))
