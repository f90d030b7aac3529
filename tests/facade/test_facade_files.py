"""What `save` of embedder.gensim writes, and what `load` refuses."""

import copy
import io
import json
import pickle
import tempfile
from pathlib import Path

import gensim.models
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from embedder.gensim import (
    FastText,
    FastTextKeyedVectors,
    KeyedVectors,
    Word2Vec,
    drop_in,
)
from tests.commands import run_python

SENTENCES = [["a", "b", "c", "d"], ["b", "c", "a", "ä"]] * 20
SETTINGS = {"vector_size": 4, "min_count": 1, "epochs": 1, "sample": 0}


@pytest.fixture(scope="module")
def trained() -> Word2Vec:
    return Word2Vec(SENTENCES, **SETTINGS, sg=1, comment="own", window=2)


@pytest.fixture
def saved(trained, tmp_path) -> Path:
    path = tmp_path / "model"
    trained.save(path)
    return path


def states(model: Word2Vec) -> dict:
    """All that a file keeps."""
    found = dict(vars(model))
    for name in ("wv", "load", "random", "syn1neg", "cum_table", "lifecycle_events"):
        del found[name]
    return found | {"keys": model.wv.index_to_key}


def test_a_model_comes_back_whole_and_trains_on(trained, saved):
    again = Word2Vec.load(saved)
    assert states(again) == states(trained)
    for name in ("syn1neg", "cum_table"):
        np.testing.assert_array_equal(getattr(again, name), getattr(trained, name))
    np.testing.assert_array_equal(again.wv.vectors, trained.wv.vectors)
    assert again.wv.expandos.keys() == trained.wv.expandos.keys()
    assert again.lifecycle_events[-1]["event"] == "saving"
    first, second = Word2Vec.load(saved), Word2Vec.load(str(saved))
    for model in (first, second):
        model.train(SENTENCES, total_examples=40, epochs=2)
    np.testing.assert_array_equal(first.wv.vectors, second.wv.vectors)
    assert not np.array_equal(first.wv.vectors, again.wv.vectors)


@pytest.mark.parametrize("kind", [Word2Vec, FastText])
def test_the_counts_of_all_words_come_back(tmp_path, kind):
    """As gensim's `keep_raw_vocab` has it: also of words that the model lacks."""
    for is_kept in (True, False):
        model = kind(vector_size=4, min_count=21)
        model.build_vocab(SENTENCES, keep_raw_vocab=is_kept)
        model.save(tmp_path / "m")
        again = kind.load(tmp_path / "m")
        counts = {"a": 40, "b": 40, "c": 40, "d": 20, "ä": 20}
        assert again.raw_vocab == model.raw_vocab == (counts if is_kept else {})
        assert [*again.raw_vocab] == [*model.raw_vocab]


def test_a_file_is_safetensors_in_one_piece(saved):
    assert [each.name for each in saved.parent.iterdir()] == ["model"]
    tensors = safetensors.numpy.load_file(saved)
    assert {*json.loads(tensors["wv.keys"].tobytes())} == {*"abcdä"}
    assert tensors["wv.vectors"].shape == tensors["syn1neg"].shape == (5, 4)


@pytest.mark.parametrize("mode", ["r", "c"])
def test_arrays_can_stay_on_disk(trained, saved, mode):
    again = Word2Vec.load(saved, mmap=mode)
    assert isinstance(again.wv.vectors, np.memmap)
    np.testing.assert_array_equal(again.wv.vectors, trained.wv.vectors)
    assert again.wv.most_similar("a") == trained.wv.most_similar("a")
    before = saved.read_bytes()
    again.train(SENTENCES, total_examples=40, epochs=1)
    assert not np.array_equal(again.wv.vectors, trained.wv.vectors)
    assert saved.read_bytes() == before


def test_vectors_keep_keys_of_both_types_and_attributes(tmp_path):
    vectors = KeyedVectors(2, dtype=np.float16)
    vectors.add_vectors(["a", 7, "\ud800"], np.eye(3, 2))
    vectors.set_vecattr("a", "colour", "red")
    vectors.set_vecattr(7, "weight", 0.5)
    vectors.save(tmp_path / "v")
    again = KeyedVectors.load(tmp_path / "v")
    assert again.index_to_key == ["a", 7, "\ud800"]
    assert again.vectors.dtype == np.float16
    assert again.get_vecattr("a", "colour") == "red"
    assert again.get_vecattr(7, "weight") == 0.5
    vectors.add_vectors([("no", "text")], np.ones((1, 2)))
    with pytest.raises(TypeError, match="`index_to_key` must be text and numbers to"):
        vectors.save(tmp_path / "w")


def test_files_go_to_open_files_and_leave_out_attributes(trained, tmp_path):
    with io.BytesIO() as file:
        trained.save(file)
        (tmp_path / "m").write_bytes(file.getvalue())
    assert Word2Vec.load(tmp_path / "m").comment == "own"
    trained.save(tmp_path / "n", ignore=["syn1neg"])
    assert not hasattr(Word2Vec.load(tmp_path / "n"), "syn1neg")


def test_the_vectors_of_a_model_and_the_model_are_told_apart(trained, saved, tmp_path):
    assert isinstance(KeyedVectors.load(saved), Word2Vec)  # as gensim does
    trained.wv.save(tmp_path / "v")
    with pytest.raises(AttributeError, match="can't be loaded by"):
        Word2Vec.load(tmp_path / "v")
    with pytest.raises(AttributeError, match="called on a class object"):
        trained.load(saved)


FAST = {"bucket": 50, "vector_size": 4, "min_count": 1, "epochs": 1}


def test_the_file_says_which_class_is_loaded(trained, tmp_path):
    fast, paths = FastText(SENTENCES, **FAST), [tmp_path / x for x in "mvfn"]
    for each, path in zip((trained, trained.wv, fast, fast.wv), paths, strict=True):
        each.save(path)
    loaded = {
        KeyedVectors: [Word2Vec, KeyedVectors, FastText, FastTextKeyedVectors],
        Word2Vec: [Word2Vec, None, FastText, None],
        FastText: [None, None, FastText, None],
        FastTextKeyedVectors: [None, None, FastText, FastTextKeyedVectors],
    }
    for kind, expected in loaded.items():
        for path, found in zip(paths, expected, strict=True):
            if found:
                assert type(kind.load(path)) is found
                continue
            with pytest.raises(AttributeError, match="can't be loaded by") as error:
                kind.load(path)
            assert one_line(error)
    again = KeyedVectors.load(paths[3])
    np.testing.assert_array_equal(again["unknown"], fast.wv["unknown"])


class Labelled(Word2Vec):
    """A model of a program."""

    label = ""

    def __init__(self, *arguments, label="", **options):
        self.label = label
        super().__init__(*arguments, **options)


def test_attributes_of_programs_are_saved_and_others_named(tmp_path, caplog):
    model = Labelled(SENTENCES, **SETTINGS, label="own")
    model.extra = {"a": [1, 2.5, None]}
    model.table = np.arange(6).reshape(2, 3)
    model.wv.source = "corpus"
    model.pair, model.odd, model.train = (1, 2), {1, 2}, print
    model.save(tmp_path / "m", ignore=["skipped"])
    again = Labelled.load(tmp_path / "m")
    assert type(again) is Labelled and again.label == "own"
    assert again.extra == model.extra and again.wv.source == "corpus"
    assert again.pair == [1, 2] and not hasattr(again, "odd")
    np.testing.assert_array_equal(again.table, model.table)
    lines = [x.getMessage() for x in caplog.records if x.levelname == "WARNING"]
    assert lines == [
        "`pair` is saved as JSON has it: [1, 2].",
        "`odd` is not saved: it is of <class 'set'>, which JSON has not.",
        "`train` is not saved: it is in place of a method or constant.",
    ]
    model.wv.save(tmp_path / "v")
    assert KeyedVectors.load(tmp_path / "v").source == "corpus"


NUMBERS = st.one_of(st.integers(1, 9), st.floats(1, 9), st.just(np.float32(2)))
CONSTRUCTED = st.fixed_dictionaries(
    {},
    optional={
        "alpha": st.floats(1e-3, 0.1),
        "batch_words": st.sampled_from([1e4, 10_000, np.int64(5)]),
        "cbow_mean": st.sampled_from([1, True]),
        "comment": st.one_of(st.none(), st.integers(), st.text(), st.just({"a": [1]})),
        "compute_loss": st.sampled_from([0, 1, True]),
        "max_final_vocab": st.one_of(st.none(), st.sampled_from([3, 1e5, 3.0])),
        "max_vocab_size": st.one_of(st.none(), st.sampled_from([1e6, 100])),
        "min_count": NUMBERS,
        "negative": st.sampled_from([1, 2.0]),
        "null_word": st.sampled_from([0, 1, True]),
        "sample": st.sampled_from([0, 1e-3, 5]),
        "seed": st.one_of(st.none(), st.integers(0, 2**31), st.just(np.int64(3))),
        "sorted_vocab": st.sampled_from([0, 1, True]),
        "vector_size": st.sampled_from([4, 4.0, np.int32(4)]),
        "workers": st.sampled_from([-1, 0, 1, 2.0]),
    },
)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(options=CONSTRUCTED, is_fast=st.booleans(), is_trained=st.booleans())
def test_whatever_is_constructed_and_saved_is_loaded(options, is_fast, is_trained):
    known = {"min_count": 1, "vector_size": 4, "epochs": 1} | options
    if is_fast:
        kind, known = FastText, known | {"bucket": 20.0, "min_n": 2.0}
        known = {k: x for k, x in known.items() if k not in ("comment", "compute_loss")}
    else:
        kind = Word2Vec
    model = kind(SENTENCES if is_trained else None, **known)
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/m")
        model.wv.save(f"{folder}/v")
        again, vectors = kind.load(f"{folder}/m"), kind.VECTORS.load(f"{folder}/v")
    np.testing.assert_array_equal(again.wv.vectors, model.wv.vectors)
    np.testing.assert_array_equal(vectors.vectors, model.wv.vectors)
    for name in options:
        assert getattr(again, name) == getattr(model, name)


UNSAVABLE = {
    "type": ("alpha", "fast", "`alpha` must not be 'fast'"),
    "no value": ("window", None, "`window` must not be None"),
    "size": ("vector_size", 7, "`vector_size` is 7, of its vectors 4"),
    "table": ("syn1neg", np.zeros((7, 4), "f4"), r"`syn1neg` must be \[5, 4\]"),
    "no JSON": ("sample", {1}, "`sample` must be JSON to be saved"),
}


@pytest.mark.parametrize(
    ("name", "value", "message"), UNSAVABLE.values(), ids=UNSAVABLE
)
@pytest.mark.row("B74")
def test_what_load_would_refuse_is_not_written(saved, name, value, message):
    before, model = saved.read_bytes(), Word2Vec.load(saved)
    setattr(model, name, value)
    with pytest.raises((TypeError, ValueError), match=message) as error:
        model.save(saved)
    assert one_line(error) and saved.read_bytes() == before


def test_vectors_that_load_would_refuse_are_not_written(trained, tmp_path):
    vectors = copy.deepcopy(trained.wv)
    vectors.vectors = vectors.vectors[:, :2]
    with pytest.raises(ValueError, match=r"`vectors` must be \[5, 4\], got \[5, 2\]"):
        vectors.save(tmp_path / "v")
    assert not (tmp_path / "v").exists()


def test_a_failed_save_leaves_the_file(trained, saved, monkeypatch):
    before = saved.read_bytes()
    monkeypatch.setattr("os.replace", lambda *paths: (_ for _ in ()).throw(OSError()))
    with pytest.raises(OSError):
        trained.save(saved)
    assert saved.read_bytes() == before
    assert [each.name for each in saved.parent.iterdir()] == ["model"]


def test_a_file_that_is_not_there(tmp_path):
    for kind in (Word2Vec, KeyedVectors):
        with pytest.raises(FileNotFoundError):
            kind.load(tmp_path / "none")


def one_line(error) -> bool:
    return "\n" not in str(error.value) and len(str(error.value)) < 500


@pytest.mark.parametrize("share", [0, 0.001, 0.2, 0.5, 0.99, 0.9999])
@pytest.mark.row("B74")
def test_a_cut_file_is_refused(saved, share):
    data = saved.read_bytes()
    saved.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(ValueError, match="is not a (whole )?file of `save`") as error:
        Word2Vec.load(saved)
    assert one_line(error)


@pytest.mark.spread(1)
@pytest.mark.parametrize("mmap", [None, "r"])
@pytest.mark.row("B74")
def test_a_damaged_header_never_crashes(saved, mmap):
    """Each byte of the header is changed: the file is refused, or still a model."""
    data = saved.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    refused = 0
    for place in range(0, end, 7):
        changed = bytearray(data)
        changed[place] ^= 0x15
        saved.write_bytes(changed)
        try:
            assert isinstance(Word2Vec.load(saved, mmap), Word2Vec)
        except (ValueError, AttributeError) as error:
            assert "\n" not in str(error)
            refused += 1
    assert refused > 50


def rewritten(path: Path, facts: dict, arrays: dict) -> None:
    """The file with other facts and arrays; None removes one."""
    with safetensors.safe_open(path, "numpy") as file:
        metadata = file.metadata()
        found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    known = json.loads(metadata["json"])
    known["facts"] |= facts
    found |= arrays
    found = {name: x for name, x in found.items() if x is not None}
    metadata["json"] = json.dumps(known)
    safetensors.numpy.save_file(found, path, metadata)


def as_bytes(value) -> np.ndarray:
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


HOSTILE = {
    "type": ({"alpha": "0.1"}, {}, "`alpha` must not be '0.1'"),
    "size": ({"vector_size": 10**9}, {}, "`vector_size` is 1000000000"),
    "list": ({"loss_history": {}}, {}, "`loss_history` must not be"),
    "vectors": ({"wv": []}, {}, "`wv` must not be"),
    "keys": ({}, {"wv.keys": as_bytes({})}, "`wv.keys` must be a list"),
    "nested": (
        {},
        {"wv.keys": np.frombuffer(b"[" * 100_000, np.uint8)},
        "is not a whole file of `save`",
    ),
    "key types": ({}, {"wv.keys": as_bytes([[], 1])}, "`wv.keys` must be a list"),
    "more keys": ({}, {"wv.keys": as_bytes(["a"] * 5)}, "a key occurs twice"),
    "raw counts": (
        {},
        {"raw_vocab.counts": np.arange(3)},
        "`raw_vocab` must have one count for each word",
    ),
    "fewer": ({}, {"wv.keys": as_bytes(["a"])}, r"`vectors` must be \[1, 4\]"),
    "shape": ({}, {"syn1neg": np.zeros((5, 2), "f4")}, r"`syn1neg` must be \[5, 4\]"),
    "dtype": ({}, {"wv.vectors": np.zeros((5, 4), "i4")}, "`wv.vectors` must have"),
    "counts": ({}, {"wv.attribute.count": np.zeros(2)}, "`count` must have 5 values"),
    "nodes": ({"hs": 1}, {"syn1": np.zeros((7, 4), "f4")}, r"`syn1` must be \[5, 4\]"),
    "tree": ({"hs": 1}, {"wv.attribute.count": None}, "'count'"),
    "negative": (
        {"hs": 1},
        {"wv.attribute.count": np.full(5, -1)},
        "`counts` must be integers >= 0",
    ),
    "method": ({"own": {"train": 1}}, {}, "`'train'` must be no attribute of Word2Vec"),
    "own": ({"own": {"syn1neg": 1}}, {}, "`'syn1neg'` must be no attribute of"),
    "no keys": ({}, {"wv.keys": None}, "`wv.keys` must have 1 axes, got none"),
}


@pytest.mark.parametrize(("facts", "arrays", "message"), HOSTILE.values(), ids=HOSTILE)
@pytest.mark.row("B74")
def test_parts_that_do_not_fit_are_refused(saved, facts, arrays, message):
    rewritten(saved, facts, arrays)
    with pytest.raises(ValueError, match=message) as error:
        Word2Vec.load(saved)
    assert one_line(error) and str(saved) in str(error.value)


@pytest.mark.row("B74")
def test_other_safetensors_and_modes_are_refused(saved, tmp_path):
    other = tmp_path / "other"
    safetensors.numpy.save_file({"x": np.zeros(2)}, other)
    with pytest.raises(ValueError, match="its format is None, not 'embedder.gensim 1'"):
        KeyedVectors.load(other)
    with pytest.raises(ValueError, match="`mmap` must be None or one of"):
        Word2Vec.load(saved, mmap="w+")


@pytest.fixture
def real_pickles(tmp_path) -> tuple[Path, Path]:
    """A model and vectors as gensim saves them."""
    model = gensim.models.Word2Vec(SENTENCES, **SETTINGS, sg=1)
    paths = tmp_path / "model", tmp_path / "vectors"
    model.save(str(paths[0]))
    model.wv.save(str(paths[1]))
    return paths


def test_pickles_of_gensim_are_read_with_trust(real_pickles):
    real = gensim.models.Word2Vec.load(str(real_pickles[0]))
    model = Word2Vec.load(real_pickles[0].as_posix(), trust=True)
    vectors = KeyedVectors.load(real_pickles[1].as_posix(), trust=True)
    assert type(model) is Word2Vec and type(vectors) is type(model.wv) is KeyedVectors
    for found in (model.wv, vectors):
        assert found.index_to_key == real.wv.index_to_key
        np.testing.assert_array_equal(found.vectors, real.wv.vectors)
    np.testing.assert_array_equal(model.syn1neg, real.syn1neg)
    model.build_vocab([["new", "a"]], update=True)
    model.train(SENTENCES, total_examples=40, epochs=1)
    assert "new" in model.wv


def test_pickles_are_read_where_the_classes_are_swapped(real_pickles):
    drop_in.swap_in()
    try:
        assert gensim.models.Word2Vec is Word2Vec
        model = gensim.models.Word2Vec.load(real_pickles[0].as_posix(), trust=True)
        assert type(model) is gensim.models.Word2Vec is Word2Vec
    finally:
        drop_in.swap_out()
    assert gensim.models.Word2Vec is not Word2Vec


class Boom:
    def __reduce__(self):
        return open, ("boom", "w")


@pytest.mark.row("B75")
def test_pickles_are_not_read_without_trust(real_pickles, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hostile").write_bytes(pickle.dumps(Boom()))
    for path in (*real_pickles, tmp_path / "hostile"):
        for kind in (Word2Vec, KeyedVectors):
            with pytest.raises(ValueError, match="give trust=True") as error:
                kind.load(path)
            assert one_line(error)
    assert not (tmp_path / "boom").exists()


@pytest.mark.row("B75")
def test_trust_in_the_environment_is_0_or_1(real_pickles, monkeypatch):
    name = "EMBEDDER_GENSIM_TRUST"
    monkeypatch.setenv(name, "yes")
    with pytest.raises(ValueError, match=f"{name} must be 0 or 1, got 'yes'") as error:
        Word2Vec.load(real_pickles[0])
    assert one_line(error)
    monkeypatch.setenv(name, "0")
    with pytest.raises(ValueError, match="give trust=True"):
        Word2Vec.load(real_pickles[0])
    monkeypatch.setenv(name, "1")
    assert len(Word2Vec.load(real_pickles[0].as_posix()).wv) == 5


@pytest.mark.row("B75")
def test_pickles_of_other_classes_are_refused(tmp_path):
    path = tmp_path / "tfidf"
    gensim.models.TfidfModel([[(0, 1)]]).save(str(path))
    with pytest.raises(ValueError, match="must be of Word2Vec, KeyedVectors or Phr"):
        KeyedVectors.load(path.as_posix(), trust=True)


@pytest.mark.row("B75")
def test_pickles_need_gensim(tmp_path):
    path = tmp_path / "model"
    path.write_bytes(pickle.dumps(1))
    done = run_python(
        "-c",
        "import importlib.util as u, sys\n"
        "u.find_spec = lambda name, find=u.find_spec: "
        "None if name == 'gensim' else find(name)\n"
        "from embedder.gensim import Word2Vec\n"
        f"Word2Vec.load({str(path)!r}, trust=True)",
    )
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: gensim must be installed to read its pickle {path}: "
        "pip install gensim."
    )


def test_a_folder_that_is_not_there_is_named(tmp_path):
    model = Word2Vec([["a", "b"]] * 5, min_count=1, vector_size=4)
    for each in (model, model.wv):
        with pytest.raises(FileNotFoundError, match="^Folder .*no does not exist.$"):
            each.save(str(tmp_path / "no" / "model"))
