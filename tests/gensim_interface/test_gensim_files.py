"""What `save` of embedder.gensim writes, what `load` refuses, and FastText's own."""

import io
import json
import os
import pickle
import subprocess
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import gensim.models
import numpy as np
import pytest
import safetensors.numpy

from embedder.gensim import (
    FastText,
    FastTextKeyedVectors,
    FrozenPhrases,
    KeyedVectors,
    Phrases,
    Word2Vec,
    drop_in,
    swapping,
)

SENTENCES = [["a", "b", "c", "d"], ["b", "c", "a", "ä"]] * 20
SETTINGS = {"vector_size": 4, "min_count": 1, "epochs": 1, "sample": 0}
FAST = SETTINGS | {"bucket": 50}
TRUST = "EMBEDDER_GENSIM_TRUST"


@pytest.fixture(scope="module")
def trained() -> Word2Vec:
    return Word2Vec(SENTENCES, **SETTINGS, sg=1, hs=1, comment="own", window=2)


@pytest.fixture
def saved(trained, tmp_path) -> Path:
    path = tmp_path / "model"
    trained.save(path)
    return path


def states(model: Word2Vec) -> dict:
    """All that a file keeps."""
    found = dict(vars(model))
    others = "wv", "load", "random", "syn1", "syn1neg", "cum_table", "lifecycle_events"
    for name in others:
        del found[name]
    return found | {"keys": model.wv.index_to_key}


def test_a_model_comes_back_whole_and_trains_on(trained, saved):
    first, second = Word2Vec.load(saved), Word2Vec.load(str(saved))
    assert states(first) == states(trained)
    for name in ("syn1", "syn1neg", "cum_table"):
        np.testing.assert_array_equal(getattr(first, name), getattr(trained, name))
    for name in ("code", "point"):
        found, expected = (x.wv.expandos[name] for x in (first, trained))
        assert [*map(list, found)] == [*map(list, expected)]
    np.testing.assert_array_equal(first.wv.vectors, trained.wv.vectors)
    assert first.wv.expandos.keys() == trained.wv.expandos.keys()
    assert first.lifecycle_events[-1]["event"] == "saving"
    for model in (first, second):
        model.train(SENTENCES, total_examples=40, epochs=2)
    np.testing.assert_array_equal(first.wv.vectors, second.wv.vectors)
    assert not np.array_equal(first.wv.vectors, trained.wv.vectors)
    assert [each.name for each in saved.parent.iterdir()] == ["model"]
    tensors = safetensors.numpy.load_file(saved)
    assert {*json.loads(tensors["wv.keys"].tobytes())} == {*"abcdä"}
    assert tensors["wv.vectors"].shape == tensors["syn1neg"].shape == (5, 4)
    trained.wv.save(saved)  # without a tree
    assert {*KeyedVectors.load(saved).expandos} == {"count", "sample_int"}


@pytest.mark.parametrize("kind", [Word2Vec, FastText])
@pytest.mark.parametrize("is_kept", [True, False])
def test_the_counts_of_all_words_come_back(tmp_path, kind, is_kept):
    """As gensim's `keep_raw_vocab` has it: also of words that the model lacks."""
    model = kind(vector_size=4, min_count=21)
    model.build_vocab(SENTENCES, keep_raw_vocab=is_kept)
    model.save(tmp_path / "m")
    again = kind.load(tmp_path / "m")
    counts = {"b": 40, "c": 40, "a": 40, "d": 20, "ä": 20} if is_kept else {}
    assert again.raw_vocab == model.raw_vocab == counts
    assert [*again.raw_vocab] == [*model.raw_vocab]


def test_a_loaded_model_keeps_its_ngrams_when_it_is_reset(tmp_path):
    model = FastText(SENTENCES, **FAST, min_n=2, max_n=4)
    model.save(tmp_path / "m")
    for each in (model, again := FastText.load(tmp_path / "m")):
        each.reset_from(model)
    assert (again.wv.min_n, again.wv.max_n, again.wv.bucket) == (2, 4, 50)
    np.testing.assert_array_equal(again.wv["ab"], model.wv["ab"])


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


TOKENS = {
    "tuples": [("a", 1), ("a", (2, None)), frozenset([b"x"])],
    "bytes": [b"a", b"\xff", "a"],
    "dates": [date(2020, 1, 1), datetime(2020, 1, 1, 5, tzinfo=UTC), "2020-01-01"],
    "of numpy": [np.datetime64(5, "ns"), np.int64(3), np.str_("a"), np.bytes_(b"a")],
    "numbers": [Decimal("0.1"), UUID(int=3), True, 2.5],
    "none": ["a", None, "None"],
}


@pytest.mark.parametrize("tokens", TOKENS.values(), ids=TOKENS)
def test_tokens_of_other_types_come_back(tmp_path, tokens):
    model = Word2Vec([tokens] * 9, **SETTINGS)
    model.build_vocab([tokens], keep_raw_vocab=True, update=True)
    model.save(tmp_path / "m")
    again = Word2Vec.load(tmp_path / "m")
    assert again.wv.index_to_key == model.wv.index_to_key
    assert again.wv.key_to_index == model.wv.key_to_index
    assert again.wv.key_to_index.keys() == again.raw_vocab.keys() == {*tokens}
    assert model.train([tokens], total_examples=1, epochs=1)[1] == len(tokens)
    assert again.train([tokens], total_examples=1, epochs=1)[1] == len(tokens)
    np.testing.assert_array_equal(again.wv.vectors, model.wv.vectors)


def test_repeated_keys_and_free_rows_come_back(tmp_path):
    model = Word2Vec(SENTENCES, **SETTINGS, null_word=1)
    model.build_vocab([["e"]], update=True)
    twice, free = KeyedVectors(2), KeyedVectors(2, count=2)
    twice.add_vectors(["a", "a"], np.eye(2))
    free.add_vector("a", [1, 2])
    model.save(tmp_path / "m")
    for number, vectors in enumerate((twice, free)):
        vectors.save(tmp_path / str(number))
    assert model.wv.index_to_key.count("\0") == 2
    again = Word2Vec.load(tmp_path / "m")
    assert again.wv.index_to_key == model.wv.index_to_key
    assert again.wv.key_to_index == model.wv.key_to_index
    assert KeyedVectors.load(tmp_path / "0")["a"].tolist() == [0, 1]
    assert None not in (again := KeyedVectors.load(tmp_path / "1")).key_to_index
    assert again.add_vector("b", [3, 4]) == 1 and again.index_to_key == ["a", "b"]


def test_files_go_to_open_files_and_leave_out_attributes(trained, tmp_path):
    with io.BytesIO() as file:
        trained.save(file)
        (tmp_path / "m").write_bytes(file.getvalue())
    assert Word2Vec.load(tmp_path / "m").comment == "own"
    trained.save(tmp_path / "n", ignore=["syn1neg"])
    assert not hasattr(Word2Vec.load(tmp_path / "n"), "syn1neg")


@pytest.mark.row("B74")
def test_the_file_says_which_class_is_loaded(trained, tmp_path):
    """As in gensim, by the class that asks for it."""
    fast, paths = FastText(SENTENCES, **FAST), [tmp_path / x for x in "mvfnp"]
    phrases = Phrases(SENTENCES)
    saved = trained, trained.wv, fast, fast.wv, phrases
    for each, path in zip(saved, paths, strict=True):
        each.save(path)
    loaded = {
        KeyedVectors: [Word2Vec, KeyedVectors, FastText, FastTextKeyedVectors, None],
        Word2Vec: [Word2Vec, None, FastText, None, None],
        FastText: [None, None, FastText, None, None],
        FastTextKeyedVectors: [None, None, FastText, FastTextKeyedVectors, None],
        FrozenPhrases: [None, None, None, None, Phrases],
    }
    for kind, expected in loaded.items():
        for path, found in zip(paths, expected, strict=True):
            if found:
                assert type(kind.load(path)) is found
                continue
            with pytest.raises(AttributeError, match="can't be loaded by"):
                kind.load(path)
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


ODD = {"batch_words": 1e4, "cbow_mean": True, "max_final_vocab": 3.0, "sample": 5}
ODD |= {"max_vocab_size": 1e6, "min_count": np.float32(2), "negative": 2.0}
ODD |= {"seed": None, "sorted_vocab": True, "vector_size": np.int32(4), "workers": -1}
ODD |= {"null_word": 1}


@pytest.mark.parametrize("kind", [Word2Vec, FastText])
@pytest.mark.parametrize("sentences", [SENTENCES, None], ids=["trained", "new"])
def test_numbers_of_any_type_are_saved_and_loaded(tmp_path, kind, sentences):
    fast = {"bucket": 20.0, "min_n": 2.0} if kind is FastText else {"comment": {"a": 1}}
    model = kind(sentences, epochs=1, **ODD | fast)
    model.save(tmp_path / "m")
    again = kind.load(tmp_path / "m")
    np.testing.assert_array_equal(again.wv.vectors, model.wv.vectors)
    for name in ODD:
        assert getattr(again, name) == getattr(model, name)


@pytest.mark.parametrize("of_vectors", [False, True])
def test_a_device_is_written_into(trained, tmp_path, of_vectors):
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE) as reader:
        (trained.wv if of_vectors else trained).save(str(tmp_path / "pipe"))
        (tmp_path / "file").write_bytes(reader.communicate()[0])
    assert (tmp_path / "pipe").is_fifo()
    loaded = (KeyedVectors if of_vectors else Word2Vec).load(str(tmp_path / "file"))
    assert len(loaded if of_vectors else loaded.wv) == len(trained.wv)


def test_a_failed_save_leaves_the_file(trained, saved, monkeypatch):
    before, model = saved.read_bytes(), Word2Vec.load(saved)
    model.alpha = "fast"
    with pytest.raises(ValueError, match="`alpha` must not be 'fast'"):
        model.save(saved)
    monkeypatch.setattr("os.replace", lambda *paths: (_ for _ in ()).throw(OSError()))
    with pytest.raises(OSError):
        trained.save(saved)
    assert saved.read_bytes() == before
    assert [each.name for each in saved.parent.iterdir()] == ["model"]


@pytest.mark.slow
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


@pytest.fixture(params=[0, 1], ids=["ns", "hs"])
def real(request, tmp_path) -> gensim.models.Word2Vec:
    """A model of gensim, saved as `model`, and its vectors as `vectors`."""
    model = gensim.models.Word2Vec(SENTENCES, **SETTINGS, sg=1, hs=request.param)
    model.save(str(tmp_path / "model"))
    model.wv.save(str(tmp_path / "vectors"))
    return model


def test_pickles_of_gensim_are_read_with_trust(real, tmp_path):
    """Also where the classes are swapped."""
    paths = [(tmp_path / name).as_posix() for name in ("model", "vectors")]
    drop_in.swap_in()
    try:
        swapped = gensim.models.Word2Vec.load(paths[0], trust=True)
        assert type(swapped) is gensim.models.Word2Vec is Word2Vec
    finally:
        swapping.swap_out()
    assert gensim.models.Word2Vec is not Word2Vec
    model = Word2Vec.load(paths[0], trust=True)
    vectors = KeyedVectors.load(paths[1], trust=True)
    assert type(model) is Word2Vec and type(vectors) is type(model.wv) is KeyedVectors
    for found in (model.wv, vectors):
        assert found.index_to_key == real.wv.index_to_key
        np.testing.assert_array_equal(found.vectors, real.wv.vectors)
    np.testing.assert_array_equal(model.syn1neg, real.syn1neg)
    if real.hs:
        np.testing.assert_array_equal(model.syn1, real.syn1)
        for name in ("code", "point"):
            found, expected = (x.wv.get_vecattr("ä", name) for x in (model, real))
            assert found.tolist() == expected.tolist()
    model.build_vocab([["new", "a"]], update=True)
    model.train(SENTENCES, total_examples=40, epochs=1)
    assert "new" in model.wv


class Boom:
    def __reduce__(self):
        return open, ("boom", "w")


@pytest.mark.row("B75")
@pytest.mark.parametrize("real", [0], indirect=True)
def test_pickles_are_read_with_trust_alone(real, own_folder, monkeypatch):
    Path("hostile").write_bytes(pickle.dumps(Boom()))
    for kind in (Word2Vec, KeyedVectors):
        for path in ("model", "vectors", "hostile"):
            with pytest.raises(ValueError, match="give trust=True"):
                kind.load(path)
        monkeypatch.setenv(TRUST, "0")
    assert not Path("boom").exists()
    monkeypatch.setenv(TRUST, "yes")
    with pytest.raises(ValueError, match=f"{TRUST} must be 0 or 1, got 'yes'"):
        Word2Vec.load("model")
    monkeypatch.setenv(TRUST, "1")
    assert len(Word2Vec.load("model").wv) == 5
    gensim.models.TfidfModel([[(0, 1)]]).save("tfidf")
    with pytest.raises(ValueError, match="must be of Word2Vec, KeyedVectors or Phr"):
        KeyedVectors.load("tfidf")


@pytest.mark.parametrize("ngrams", [{"min_n": 0, "max_n": 0}, {"max_n": 0}])
def test_words_without_ngrams_train_as_words(ngrams):
    """gensim keeps the buckets where min_n is 0, too: unknown words are zeros."""
    settings = FAST | {"sg": 1, "epochs": 2} | ngrams
    found, real = (
        kind(SENTENCES, **settings) for kind in (FastText, gensim.models.FastText)
    )
    assert found.wv.bucket == real.wv.bucket
    assert ("unheard" in found.wv) == ("unheard" in real.wv)
    np.testing.assert_array_equal(found.wv.vectors, found.wv.vectors_vocab)
    plain, start = Word2Vec(**SETTINGS, sg=1), FastText(**settings)
    for each in (plain, start):
        each.build_vocab(SENTENCES)
    plain.wv.vectors[:] = start.wv.vectors
    plain.train(SENTENCES, total_examples=40, epochs=2)
    np.testing.assert_array_equal(found.wv.vectors, plain.wv.vectors)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [FastText, Word2Vec])
def test_seeds_and_sums_of_contexts_count(kind):
    settings = [{"cbow_mean": 0}, {"cbow_mean": 1}, {"seed": None}, {"seed": None}]
    found = [kind(SENTENCES, **SETTINGS | each).wv["a"].tolist() for each in settings]
    assert len({*map(tuple, found)}) == 4
