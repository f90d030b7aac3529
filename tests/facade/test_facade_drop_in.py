"""Programs of gensim that run with the classes of embedder, with and without gensim."""

import sys
from pathlib import Path

import gensim
import gensim.models
import gensim.models.word2vec
import pytest

import embedder.gensim
from embedder.gensim import drop_in
from tests.commands import run_python

PROGRAM = """
import sys
import gensim.models.keyedvectors
from gensim.models import KeyedVectors, Word2Vec
from gensim.models.callbacks import CallbackAny2Vec
from gensim.models.word2vec import LineSentence
from gensim.utils import RULE_DISCARD

rule = lambda word, count, least: RULE_DISCARD if word == "no" else 0
model = Word2Vec([["a", "b", "no"]] * 9, min_count=1, vector_size=4, trim_rule=rule)
print(Word2Vec.__module__, KeyedVectors.__module__, CallbackAny2Vec.__module__)
print(gensim.models.keyedvectors.KeyedVectors is KeyedVectors, len(model.wv))
print(gensim.__version__, __name__, sys.argv[1:], __import__("beside").NAME)
"""
NO_GENSIM = """
import importlib.util, runpy, sys
find = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name == "gensim" else find(name)
sys.path.insert(0, "")
"""
PRINTED = [
    "embedder.gensim.word2vec embedder.gensim.keyedvectors embedder.gensim.callbacks",
    "True 2",
]


@pytest.fixture
def script(tmp_path) -> Path:
    folder = tmp_path / "programs"
    folder.mkdir()
    (folder / "beside.py").write_text("NAME = 'neighbour'")
    path = folder / "program.py"
    path.write_text(PROGRAM)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("start", ["path", "module"])
def test_an_unchanged_program_runs(script, start):
    what = [script] if start == "path" else ["-m", "program"]
    done = run_python("-m", "embedder.gensim", *what, "--flag", "x", cwd=script.parent)
    assert done.returncode == 0, done.stderr
    last = f"{gensim.__version__} __main__ ['--flag', 'x'] neighbour"
    assert done.stdout.splitlines() == [*PRINTED, last]


@pytest.mark.spread(1)
@pytest.mark.parametrize("has_gensim", [True, False])
def test_one_import_installs_the_classes(script, has_gensim):
    code = "" if has_gensim else NO_GENSIM
    code += f"import embedder.gensim.install\n{PROGRAM}"
    done = run_python("-c", code, cwd=script.parent)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:2] == PRINTED


def test_modules_without_gensim_say_what_they_lack():
    code = (
        f"{NO_GENSIM}\nimport embedder.gensim.install\n"
        "from gensim.models import Word2Vec\nfrom gensim.models import LdaModel"
    )
    done = run_python("-c", code)
    assert done.returncode == 1
    assert "cannot import name 'LdaModel' from 'gensim.models'" in done.stderr


def test_classes_are_swapped_and_put_back():
    own = gensim.models.Word2Vec
    drop_in.swap_in()
    drop_in.swap_in()
    try:
        assert gensim.models.Word2Vec is embedder.gensim.Word2Vec
        assert gensim.models.word2vec.Word2Vec is embedder.gensim.Word2Vec
        with drop_in.own_classes() as found:
            assert found.models.Word2Vec is own
        assert gensim.models.Word2Vec is embedder.gensim.Word2Vec
    finally:
        drop_in.swap_out()
    assert gensim.models.Word2Vec is gensim.models.word2vec.Word2Vec is own
    assert sys.modules["gensim"] is gensim


def test_other_models_of_gensim_stay_its_own():
    texts = [["a", "b", "c"], ["b", "c", "a", "d"]] * 5
    drop_in.swap_in()
    try:
        fast = gensim.models.FastText(texts, min_count=1, vector_size=4, epochs=1)
        tagged = [
            gensim.models.doc2vec.TaggedDocument(x, [i]) for i, x in enumerate(texts)
        ]
        documents = gensim.models.Doc2Vec(tagged, min_count=1, vector_size=4, epochs=1)
    finally:
        drop_in.swap_out()
    assert fast.wv["unknown"].shape == documents.dv[3].shape == (4,)
    assert type(documents.wv) is gensim.models.KeyedVectors
    assert documents.infer_vector(["a", "b"]).shape == (4,)


def test_gensim_without_the_drop_in_stays_itself():
    assert gensim.models.Word2Vec.__module__ == "gensim.models.word2vec"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "usage: python -m embedder.gensim script.py"),
        (["--help"], "usage: python -m embedder.gensim script.py"),
        (["-m"], "usage: "),
        (["none.py"], "embedder.gensim: none.py does not exist."),
    ],
)
@pytest.mark.row("B79")
def test_programs_that_are_not_there(arguments, message):
    done = run_python("-m", "embedder.gensim", *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(message) and len(done.stderr.splitlines()) == 1
