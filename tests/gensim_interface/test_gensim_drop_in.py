"""Programs of gensim that run with the classes of embedder, with and without gensim."""

import copy
import os
import pickle
import sys
from pathlib import Path

import gensim
import gensim.models
import gensim.models.word2vec
import gensim.test.utils
import numpy as np
import pytest
from gensim.models.poincare import PoincareModel

import embedder.gensim
from embedder.gensim import drop_in, swapping, texts
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


@pytest.mark.slow
@pytest.mark.parametrize("start", ["import", "no gensim", "path", "module"])
def test_an_unchanged_program_runs_with_the_classes(tmp_path, start):
    (tmp_path / "beside.py").write_text("NAME = 'neighbour'")
    (tmp_path / "program.py").write_text(PROGRAM)
    code = f"import embedder.gensim.install\n{PROGRAM}"
    what = {
        "import": ["-c", code],
        "no gensim": ["-c", NO_GENSIM + code],
        "path": ["-m", "embedder.gensim", "program.py"],
        "module": ["-m", "embedder.gensim", "-m", "program"],
    }[start]
    done = run_python(*what, "--flag", "x", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    *printed, last = done.stdout.splitlines()
    assert printed == PRINTED
    version = last.split()[0] if start == "no gensim" else gensim.__version__
    assert last == f"{version} __main__ ['--flag', 'x'] neighbour"


HIDDEN = """
from importlib.machinery import PathFinder
find = PathFinder.find_spec
def find_spec(name, path=None, target=None):
    found = find(name, path, target)
    is_installed = name == "gensim" and "site-packages" in str(found.origin)
    return None if is_installed else found
PathFinder.find_spec = find_spec
"""
WITH_CHILDREN = """
import multiprocessing, sys
import gensim
from gensim.models import Word2Vec

def train(lines):
    from gensim.models import word2vec
    assert word2vec.Word2Vec is Word2Vec
    return Word2Vec(lines, min_count=1, vector_size=4, epochs=1)

if __name__ == "__main__":
    lines = [["a", "b", "c", "d"]] * 9
    here = train(lines)
    if sys.argv[1] == "loky":
        import joblib
        there, _ = joblib.Parallel(2)([joblib.delayed(train)(lines)] * 2)
    else:
        with multiprocessing.get_context(sys.argv[1]).Pool(1) as pool:
            there = pool.apply(train, [lines])
    is_equal = (here.wv.vectors == there.wv.vectors).all()
    there.train(lines, total_examples=9, epochs=1)
    there.save("model")
    print(type(there).__module__, is_equal, there.epochs_trained)
"""


@pytest.mark.spread(1)
@pytest.mark.parametrize("has_gensim", [True, False])
@pytest.mark.parametrize("method", ["spawn", "forkserver", "loky"])
@pytest.mark.parametrize("start", ["import", "path", "module"])
def test_processes_that_a_program_starts_have_the_classes(
    tmp_path, start, method, has_gensim
):
    if method == "loky":
        pytest.importorskip("joblib")
    code = WITH_CHILDREN
    if start == "import":
        code = f"import embedder.gensim.install\n{code}"
    (tmp_path / "program.py").write_text(code)
    if not has_gensim:
        (tmp_path / "sitecustomize.py").write_text(HIDDEN)
    what = {
        "import": ["program.py"],
        "path": ["-m", "embedder.gensim", "program.py"],
        "module": ["-m", "embedder.gensim", "-m", "program"],
    }[start]
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    environment = os.environ | {"PYTHONPATH": path}
    done = run_python(*what, method, cwd=tmp_path, env=environment)
    assert done.stdout == "embedder.gensim.word2vec True 2\n", done.stderr


def test_a_process_without_embedder_says_so(tmp_path):
    path = os.environ | {"PYTHONPATH": swapping.CHILDREN}
    done = run_python("-S", "-c", "import gensim", env=path, cwd=tmp_path)
    assert done.stderr.splitlines()[-1] == (
        "ImportError: The parent process has embedder's classes as gensim, and here "
        "they cannot be imported (No module named 'embedder'): install embedder-jax "
        f"for {sys.executable}, or start it without the parent's PYTHONPATH."
    )


@pytest.mark.parametrize(
    ("kind", "sizes"), [("Word2Vec", {}), ("FastText", {"bucket": 100})]
)
def test_a_model_that_gensim_pickled_trains_and_is_saved(
    swapped, tmp_path, kind, sizes
):
    lines = [["a", "b", "c", "d"]] * 9
    sizes = {"min_count": 1, "vector_size": 4, "epochs": 1, **sizes}
    with swapping.own_classes() as own:
        theirs = getattr(own.models, kind)(lines, **sizes)
        pickled = pickle.dumps(theirs)
    model = pickle.loads(pickled)
    assert type(model) is getattr(embedder.gensim, kind)
    np.testing.assert_array_equal(model.wv.vectors, theirs.wv.vectors)
    model.train(lines, total_examples=9, epochs=2)
    model.save(tmp_path / "model")
    again = type(model).load(tmp_path / "model")
    assert again.epochs_trained == 2
    np.testing.assert_array_equal(again.wv.vectors, model.wv.vectors)


LOADS = """
import sys
from gensim.models import KeyedVectors, Word2Vec
print(type(Word2Vec.load(sys.argv[1])).__module__, len(KeyedVectors.load(sys.argv[2])))
"""


@pytest.mark.slow
@pytest.mark.row("B75")
def test_an_unchanged_program_loads_pickles_of_gensim_if_it_is_trusted(tmp_path):
    paths = [str(tmp_path / name) for name in ("model", "vectors")]
    model = gensim.models.Word2Vec([["a", "b"]], min_count=1, vector_size=4)
    model.save(paths[0])
    model.wv.save(paths[1])
    program = tmp_path / "program.py"
    program.write_text(LOADS)
    code = f"import embedder.gensim.install\n{LOADS}"
    trusted = os.environ | {"EMBEDDER_GENSIM_TRUST": "1"}
    for done in (
        run_python("-m", "embedder.gensim", "--trust", program, *paths),
        run_python("-c", code, *paths, env=trusted),
    ):
        assert done.stdout == "embedder.gensim.word2vec 2\n", done.stderr
    done = run_python("-m", "embedder.gensim", program, *paths)
    assert "EMBEDDER_GENSIM_TRUST=1" in done.stderr.splitlines()[-1]


TUTORIAL = """
from gensim.models import Phrases, Word2Vec
from gensim.models.phrases import ENGLISH_CONNECTOR_WORDS, Phraser, npmi_scorer
from gensim.test.utils import common_texts, get_tmpfile
from gensim.utils import simple_preprocess
model = Word2Vec([simple_preprocess(" ".join(x)) for x in common_texts], min_count=1)
print(len(model.wv), hasattr(Word2Vec, "none"), hasattr(__import__("gensim"), "models"))
lines = [["bank", "of", "america"], ["bank", "of", "america", "opens"]] * 3
phrases = Phrases(lines, 1, 0.1, connector_words=ENGLISH_CONNECTOR_WORDS)
print(Phraser(phrases)[lines[1]], npmi_scorer.__module__)
"""


def test_tutorials_run_without_gensim():
    done = run_python("-c", f"{NO_GENSIM}\nimport embedder.gensim.install\n{TUTORIAL}")
    assert done.stdout.splitlines() == [
        "12 False True",
        "['bank_of_america', 'opens'] embedder.gensim.phrase_scores",
    ], done.stderr


@pytest.mark.parametrize(
    ("program", "what"),
    {
        "from gensim.models import LdaModel": "models.LdaModel",
        "import gensim.corpora": "corpora",
        "import gensim; gensim.models.LdaModel": "LdaModel",
        "open('m', 'w').write('1'); embedder.gensim.Word2Vec.load('m', trust=True)": "",
    }.items(),
)
@pytest.mark.row("B75", "B79")
def test_without_gensim_what_needs_it_says_so(program, what, tmp_path):
    code = f"{NO_GENSIM}\nimport embedder.gensim.install\n{program}"
    done = run_python("-c", code, cwd=tmp_path)
    assert done.returncode == 1
    message = "ImportError: gensim must be installed to read its pickle m"
    message = f"has no {what!r}, which gensim has" if what else message
    assert done.stderr.endswith(f"{message}: pip install gensim.\n")


def test_words_of_texts_are_those_of_gensim():
    assert texts.common_texts == gensim.test.utils.common_texts
    path = Path(texts.get_tmpfile("x"))
    assert path.name == "x" and not any(path.parent.iterdir())
    czech = "Nic nemůže letět rychlostí vyšší, než 300 tisíc kilometrů za sekundu!"
    marks = "a _b c_d e1f2 x\u0301y averyveryverylongword".encode()
    for text in (czech, marks, bad := b"caf\xc3\xa9 \xff bad", ""):
        for options in ({}, {"deacc": True}, {"min_len": 1, "max_len": 30}):
            expected = gensim.utils.simple_preprocess(text, **options)
            assert texts.simple_preprocess(text, **options) == expected
        options = {"errors": "replace", "to_lower": True}
        expected = [*gensim.utils.tokenize(text, **options)]
        assert [*texts.tokenize(text, **options)] == expected
    with pytest.raises(UnicodeDecodeError):
        texts.tokenize(bad)
    assert texts.deaccent(czech) == gensim.utils.deaccent(czech)


def test_classes_are_swapped_and_put_back():
    own = gensim.models.Word2Vec
    assert own.__module__ == "gensim.models.word2vec"
    drop_in.swap_in()
    drop_in.swap_in()
    try:
        assert gensim.models.Word2Vec is embedder.gensim.Word2Vec
        assert gensim.models.word2vec.Word2Vec is embedder.gensim.Word2Vec
        with swapping.own_classes() as found:
            assert found.models.Word2Vec is own
        assert gensim.models.Word2Vec is embedder.gensim.Word2Vec
    finally:
        swapping.swap_out()
    assert gensim.models.Word2Vec is gensim.models.word2vec.Word2Vec is own
    assert sys.modules["gensim"] is gensim


@pytest.fixture
def swapped():
    drop_in.swap_in()
    yield
    swapping.swap_out()


def type_of_gensim(name: str) -> type:
    """gensim's own, also while the classes are swapped."""
    return getattr(gensim.models.doc2vec, name)


def documents():
    """A Doc2Vec of gensim."""
    words = [["a", "b", "c"], ["b", "c", "a", "d"]] * 5
    tagged = [gensim.models.doc2vec.TaggedDocument(x, [i]) for i, x in enumerate(words)]
    return gensim.models.Doc2Vec(tagged, min_count=1, vector_size=4, epochs=1)


def test_other_models_of_gensim_are_saved_and_loaded(swapped, tmp_path):
    path, pickled = str(tmp_path / "documents"), tmp_path / "pickled"
    model = documents()
    assert model.dv[3].shape == (4,)
    assert type(model.wv) is type_of_gensim("KeyedVectors")
    model.save(path)
    model.dv.save(f"{path}.dv")
    pickled.write_bytes(pickle.dumps(model))
    poincare = PoincareModel([("a", "b"), ("b", "c"), ("a", "c")], size=2, negative=1)
    poincare.save(f"{path}.poincare")
    for _ in range(2):  # with the drop-in, and without it
        loaded = gensim.models.Doc2Vec.load(path)
        again = pickle.loads(pickled.read_bytes())
        dv = type_of_gensim("KeyedVectors").load(f"{path}.dv")
        for found in (loaded.dv, again.dv, copy.deepcopy(loaded).dv, dv):
            assert type(found) is type_of_gensim("KeyedVectors")
            np.testing.assert_array_equal(found.vectors, model.dv.vectors)
        assert loaded.infer_vector(["a", "b"]).shape == (4,)
        hierarchy = PoincareModel.load(f"{path}.poincare")
        np.testing.assert_array_equal(hierarchy.kv.vectors, poincare.kv.vectors)
        swapping.swap_out()
    (model := documents()).save(path)  # by plain gensim
    drop_in.swap_in()
    loaded = gensim.models.Doc2Vec.load(path)
    assert type(loaded.dv) is type_of_gensim("KeyedVectors")
    np.testing.assert_array_equal(loaded.dv.vectors, model.dv.vectors)


def test_indexes_of_annoy_take_swapped_models(swapped, monkeypatch):
    from gensim.similarities import annoy

    asked = []
    build = lambda self, *given: asked.append(given)  # noqa: E731
    monkeypatch.setattr(annoy.AnnoyIndexer, "_build_from_model", build)
    model = gensim.models.Word2Vec([["a", "b"]], min_count=1, vector_size=4)
    for each in (model, model.wv):
        annoy.AnnoyIndexer(each, 2)
        unit, keys, size = asked.pop()
        np.testing.assert_array_equal(unit, model.wv.get_normed_vectors())
        assert keys == model.wv.index_to_key and size == 4


@pytest.mark.parametrize("arguments", ["", "--help", "-m", "--trust", "none.py"])
@pytest.mark.row("B79")
def test_programs_that_are_not_there(arguments):
    done = run_python("-m", "embedder.gensim", *arguments.split())
    usage = "usage: python -m embedder.gensim [--trust] script.py"
    message = "embedder.gensim: none.py does not exist." if "." in arguments else usage
    assert done.returncode == 2
    assert done.stderr.startswith(message) and len(done.stderr.splitlines()) == 1
