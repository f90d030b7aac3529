"""fastText's `.bin`: written and read, by gensim too, and what is wrong with it."""

import importlib
import struct
from typing import Any

import numpy as np
import pytest

import embedder
from embedder.cli.main import main
from embedder.errors import InputEndError, InputError
from embedder.vectors.subwords import NgramRule, Ngrams, composed, subwords_of
from embedder.vectors.vectors import Vectors
from migration.convert import model_to_run

KEYS = ["the", "\u00e9t\u00e9", "word", "words"]
RULE = NgramRule(3, 6, 200)
UNKNOWN = ["wordless", "\u4e2d\u6587", "x"]


@pytest.fixture
def vectors() -> Vectors:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(204, 5)).astype(np.float32)
    found = subwords_of(KEYS, RULE)
    own = np.concatenate([rows[:4], rows[4:][found.buckets]])
    output = rng.normal(size=(4, 5)).astype(np.float32)
    ngrams = Ngrams(RULE, np.arange(200), rows[4:], words=rows[:4], output=output)
    counts = np.array([9, 5, 4, 1])
    return Vectors(KEYS, composed(found, own), counts, ngrams=lambda: ngrams)


@pytest.fixture
def path(tmp_path, vectors):
    path = tmp_path / "model.bin"
    embedder.write_vectors(vectors, path, format="fasttext-bin")
    return path


def test_a_model_comes_back_with_its_bytes(vectors, path, tmp_path):
    again = embedder.read_vectors(path)
    assert again.keys == KEYS and again.counts.tolist() == [9, 5, 4, 1]
    assert again.matrix.tobytes() == vectors.matrix.tobytes()
    for word in UNKNOWN:
        assert again[word].tobytes() == vectors[word].tobytes()
    embedder.write_vectors(again, tmp_path / "2.bin", format="fasttext-bin")
    assert (tmp_path / "2.bin").read_bytes() == path.read_bytes()


def test_vectors_without_ngrams_are_a_model_without_them(tmp_path):
    path = tmp_path / "model.bin"
    matrix = np.arange(8, dtype=np.float32).reshape(4, 2)
    embedder.write_vectors(Vectors(KEYS, matrix), path, format="fasttext-bin")
    again = embedder.read_vectors(path)
    assert again.matrix.tobytes() == matrix.tobytes() and again.ngrams is None


@pytest.mark.row("F62")
def test_cut_and_quantized_files_are_refused(path):
    whole = path.read_bytes()
    for size in (5, 50, 100, 120, 300, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(InputEndError, match="model.bin ends in its "):
            embedder.read_vectors(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(InputError, match="goes on after its matrices"):
        embedder.read_vectors(path)
    at = whole.index(struct.pack("<?qq", False, 204, 5))
    path.write_bytes(whole[:at] + b"\1" + whole[at + 1 :])
    with pytest.raises(InputError, match="it is quantized"):
        embedder.read_vectors(path)


def test_words_that_are_no_utf8_have_escapes_and_their_own_ngrams(path):
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"words\0", b"w\xe4rds\0"))
    found = embedder.read_vectors(path)
    assert found.keys[3] == "w\\xe4rds"
    assert not np.array_equal(found.matrix[3], found["w\u00e4rds"])


def labelled(whole: bytes, model: int = 2, kinds: bytes = bytes([0, 0, 0, 0, 1])):
    """A model of a text with a label, which fastText sorts behind the words."""
    entries = [*(key.encode() for key in KEYS), b"__label__x"]
    parts = [whole[:36], struct.pack("<i", model), whole[40:64]]
    parts += [struct.pack("<3i", 5, 4, 1), whole[76:92]]
    for word, kind in zip(entries, kinds, strict=True):
        parts += [word, b"\0", struct.pack("<qb", 7, kind)]
    return b"".join([*parts, whole[whole.index(struct.pack("<?qq", False, 204, 5)) :]])


def test_labels_of_a_text_are_left_out(vectors, path):
    path.write_bytes(labelled(whole := path.read_bytes()))
    again = embedder.read_vectors(path)
    assert again.keys == KEYS and again.counts.tolist() == [7] * 4
    assert again.matrix.tobytes() == vectors.matrix.tobytes()
    for word in UNKNOWN:
        assert again[word].tobytes() == vectors[word].tobytes()
    for changed, reason in (
        (labelled(whole, model=3), "it is supervised, with 1 labels."),
        (labelled(whole, kinds=bytes([0, 0, 1, 0, 1])), "b'word' is a label among 5 "),
        (labelled(whole, kinds=bytes(5)), "b'__label__x' is no label among 5 "),
    ):
        path.write_bytes(changed)
        with pytest.raises(InputError, match=reason):
            embedder.read_vectors(path)


@pytest.mark.parametrize("program", ["gzip", "bz2", "lzma"])
def test_packed_files_are_refused(path, program):
    packed = importlib.import_module(program).compress(path.read_bytes())
    name = {"bz2": "bzip2", "lzma": "xz"}.get(program, program)
    for other in (path, path.with_name(f"model.bin.{name}")):
        other.write_bytes(packed)
        with pytest.raises(InputError, match=f"{other} is packed by {name}: unpack it"):
            embedder.read_fasttext_model(other)
    with pytest.raises(InputError, match=f"is packed by {name}: unpack it first"):
        embedder.read_vectors(path)


def test_keys_that_would_end_early_are_refused_and_the_file_stays(path):
    whole, model = path.read_bytes(), embedder.read_fasttext_model(path)
    message = "A key must have no U\\+0000 in a fastText file, .* got 'a\\\\x00b'."
    with pytest.raises(InputError, match=message):
        embedder.write_vectors(
            Vectors(["a\0b", "c"], np.eye(2)), path, format="fasttext-bin"
        )
    words = [*model.words[:3], b"a\0b"]
    with pytest.raises(InputError, match=message):
        embedder.write_fasttext_model(model._replace(words=words), path)
    assert path.read_bytes() == whole


def fasttext_program() -> Any:
    """fastText itself, by its bindings for Python."""
    return pytest.importorskip("fasttext", reason="fastText is not installed")


def test_fasttext_itself_loads_what_we_write(vectors, path):
    model = fasttext_program().load_model(str(path))
    assert model.get_words() == KEYS and model.get_dimension() == 5
    for word in (*KEYS, *UNKNOWN):
        found = model.get_word_vector(word)
        np.testing.assert_allclose(found, vectors[word], rtol=1e-5, atol=1e-6)
        _, rows = model.get_subwords(word)
        buckets, _ = embedder.ngram_buckets([word], RULE)
        assert rows[word in KEYS :].tolist() == (len(KEYS) + buckets).tolist()


@pytest.mark.parametrize("loss", ["ns", "hs"])
def test_a_model_that_fasttext_itself_trained_is_read(tmp_path, sequences, loss):
    text = tmp_path / "text.txt"
    text.write_text("\n".join(" ".join(line) for line in sequences) + "\n", "utf-8")
    model = fasttext_program().train_unsupervised(
        str(text),
        **{"dim": 6, "minCount": 1, "bucket": 300, "epoch": 1, "minn": 2, "maxn": 4},
        **{"thread": 1, "verbose": 0, "loss": loss},
    )
    model.save_model(str(tmp_path / "model.bin"))
    vectors = embedder.read_vectors(tmp_path / "model.bin")
    assert vectors.keys == model.get_words()
    for word in (*vectors.keys[:20], *UNKNOWN):
        expected = model.get_word_vector(word)
        np.testing.assert_allclose(vectors[word], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("architecture", ["skipgram", "cbow"])
@pytest.mark.parametrize("program", ["gensim", "fastText"])
def test_a_run_is_exported_whole(tmp_path, sequences, architecture, program):
    """With the rows that it did not train."""
    name = {"gensim": "gensim.models.fasttext", "fastText": "fasttext"}[program]
    library: Any = pytest.importorskip(name)
    options = {"subwords": (3, 4), "buckets": 3000, "vector_size": 6, "min_count": 1}
    trainer = embedder.EmbeddingTrainer(
        **options, epochs=1, architecture=architecture
    ).fit(sequences)
    trainer.save(tmp_path / "model.npz")
    model_to_run(tmp_path / "model.npz", tmp_path / "run")
    to = str(tmp_path / "model.bin")
    flags = "--format", "fasttext-bin", "--to", to
    assert main(["export", str(tmp_path / "run"), *flags]) == 0
    if program == "gensim":
        model = library.load_facebook_model(to)
        vector, written = model.wv.__getitem__, embedder.read_vectors(to)
        np.testing.assert_array_equal(model.syn1neg, written.ngrams().output)
    else:
        vector = library.load_model(to).get_word_vector
    for word in (*trainer.index_to_key[:20], *UNKNOWN):
        np.testing.assert_allclose(vector(word), trainer[word], rtol=1e-4, atol=1e-6)


@pytest.mark.row("F62")
@pytest.mark.parametrize(
    ("at", "kind", "value", "reason"),
    [
        (4, "<i", 13, "version 13"),
        (8, "<i", 0, "dim 0"),
        (8, "<i", 6, "matrix is 204 x 5, not 204 x 6"),
        (40, "<i", 100, "matrix is 204 x 5, not 104 x 5"),
        (44, "<i", 7, "minn 7 and maxn 6"),
        (48, "<i", 99, "n-grams of 3 to 99 characters"),
        (56, "<d", np.nan, "not finite"),
        (64, "<i", 2**30, "claims 1073741824 entries"),
        (72, "<i", 1, "claims 4 entries, 4 words and 1 labels"),
        (84, "<q", 5, "n-grams are pruned"),
    ],
)
def test_damaged_files_are_refused(path, at, kind, value, reason):
    data = bytearray(path.read_bytes())
    struct.pack_into(kind, data, at, value)
    path.write_bytes(data)
    with pytest.raises(InputError, match=f"model.bin cannot be read as .*{reason}"):
        embedder.read_vectors(path)
