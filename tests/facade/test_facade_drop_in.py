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
from embedder.gensim import drop_in, texts
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
    expected = "embedder.gensim.word2vec 2\n"
    done = run_python("-m", "embedder.gensim", "--trust", program, *paths)
    assert done.stdout == expected, done.stderr
    code = f"import embedder.gensim.install\n{LOADS}"
    trusted = os.environ | {"EMBEDDER_GENSIM_TRUST": "1"}
    done = run_python("-c", code, *paths, env=trusted)
    assert done.stdout == expected, done.stderr
    done = run_python("-m", "embedder.gensim", program, *paths)
    assert "EMBEDDER_GENSIM_TRUST=1" in done.stderr.splitlines()[-1]


TUTORIAL = """
from gensim.models import Word2Vec
from gensim.test.utils import common_texts, get_tmpfile
from gensim.utils import simple_preprocess
model = Word2Vec([simple_preprocess(" ".join(x)) for x in common_texts], min_count=1)
print(len(model.wv), hasattr(Word2Vec, "none"), hasattr(__import__("gensim"), "models"))
"""


def test_tutorials_run_without_gensim():
    done = run_python("-c", f"{NO_GENSIM}\nimport embedder.gensim.install\n{TUTORIAL}")
    assert done.stdout == "12 False True\n", done.stderr


@pytest.mark.parametrize(
    ("program", "what"),
    [
        ("from gensim.models import LdaModel", "'models.LdaModel', which"),
        ("import gensim.corpora", "'corpora', which"),
        ("import gensim; gensim.models.LdaModel", "'LdaModel', which"),
    ],
)
@pytest.mark.row("B79")
def test_modules_without_gensim_say_what_they_lack(program, what):
    done = run_python("-c", f"{NO_GENSIM}\nimport embedder.gensim.install\n{program}")
    assert done.returncode == 1
    line = done.stderr.splitlines()[-1]
    assert line.endswith(f"has no {what} gensim has: pip install gensim.")


TEXTS = [
    "Nic nemůže letět rychlostí vyšší, než 300 tisíc kilometrů za sekundu!",
    "a _b c_d e1f2 x\u0301y averyveryverylongword".encode(),
    b"caf\xc3\xa9 \xff bad",
    "",
]


def test_words_of_texts_are_those_of_gensim():
    assert texts.common_texts == gensim.test.utils.common_texts
    path = Path(texts.get_tmpfile("x"))
    assert path.name == "x" and not any(path.parent.iterdir())
    for text in TEXTS:
        for options in ({}, {"deacc": True}, {"min_len": 1, "max_len": 30}):
            expected = gensim.utils.simple_preprocess(text, **options)
            assert texts.simple_preprocess(text, **options) == expected
        options = {"errors": "replace", "to_lower": True}
        expected = [*gensim.utils.tokenize(text, **options)]
        assert [*texts.tokenize(text, **options)] == expected
    with pytest.raises(UnicodeDecodeError):
        texts.tokenize(TEXTS[2])
    assert texts.deaccent(TEXTS[0]) == gensim.utils.deaccent(TEXTS[0])


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


@pytest.fixture
def swapped():
    drop_in.swap_in()
    yield
    drop_in.swap_out()


def type_of_gensim(name: str) -> type:
    """gensim's own, also while the classes are swapped."""
    return getattr(gensim.models.doc2vec, name)


def documents():
    """A Doc2Vec of gensim."""
    words = [["a", "b", "c"], ["b", "c", "a", "d"]] * 5
    tagged = [gensim.models.doc2vec.TaggedDocument(x, [i]) for i, x in enumerate(words)]
    return gensim.models.Doc2Vec(tagged, min_count=1, vector_size=4, epochs=1)


def test_other_models_of_gensim_stay_its_own(swapped):
    model = documents()
    assert model.dv[3].shape == (4,)
    assert type(model.wv) is type_of_gensim("KeyedVectors")
    assert model.infer_vector(["a", "b"]).shape == (4,)


def test_other_models_of_gensim_are_saved_and_loaded(swapped, tmp_path):
    path, pickled = str(tmp_path / "documents"), tmp_path / "pickled"
    model = documents()
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
        drop_in.swap_out()


def test_indexes_of_annoy_take_swapped_models(swapped, monkeypatch):
    from gensim.similarities import annoy

    asked = []
    monkeypatch.setattr(
        annoy.AnnoyIndexer,
        "_build_from_model",
        lambda self, *given: asked.append(given),
    )
    model = gensim.models.Word2Vec([["a", "b"]], min_count=1, vector_size=4)
    for each in (model, model.wv):
        annoy.AnnoyIndexer(each, 2)
        unit, keys, size = asked.pop()
        np.testing.assert_array_equal(unit, model.wv.get_normed_vectors())
        assert keys == model.wv.index_to_key and size == 4


def test_files_of_plain_gensim_are_loaded_by_its_other_models(tmp_path):
    path = str(tmp_path / "documents")
    model = documents()
    model.save(path)
    drop_in.swap_in()
    try:
        loaded = gensim.models.Doc2Vec.load(path)
    finally:
        drop_in.swap_out()
    assert type(loaded.dv) is gensim.models.KeyedVectors
    np.testing.assert_array_equal(loaded.dv.vectors, model.dv.vectors)
    assert gensim.models.KeyedVectors.__module__ == "gensim.models.keyedvectors"


def test_gensim_without_the_drop_in_stays_itself():
    assert gensim.models.Word2Vec.__module__ == "gensim.models.word2vec"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "usage: python -m embedder.gensim [--trust] script.py"),
        (["--help"], "usage: python -m embedder.gensim [--trust] script.py"),
        (["-m"], "usage: "),
        (["--trust"], "usage: "),
        (["none.py"], "embedder.gensim: none.py does not exist."),
    ],
)
@pytest.mark.row("B79")
def test_programs_that_are_not_there(arguments, message):
    done = run_python("-m", "embedder.gensim", *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(message) and len(done.stderr.splitlines()) == 1
