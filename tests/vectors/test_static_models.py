"""Folders for sentence-transformers and model2vec, loaded by both, and their cards."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from embedder.vectors.export import write_vectors
from embedder.vectors.model_card import model_card
from embedder.vectors.reduce import rounded
from embedder.vectors.static_models import tokenizer
from embedder.vectors.vectors import Vectors

LIBRARIES = ["sentence-transformers", "model2vec"]
KEYS = [
    *("the", "The", "don't", "U.S.", "naïve", "nai\u0308ve", "猫", "a\u00a0b", "#x"),
    *(
        '"q"',
        "\\",
        "[UNK]",
        "[[UNK]]",
        "<s>",
        "\u2028",
        "\u3000",
        "\ufeffx",
        "👩\u200d🔬",
    ),
    *("\x00", "\x1f", "\x85", "-", "a-b", "a_b", "x" * 3000, "e\u0301", "é"),
]
"""Tokens that other tokenizers split, join, trim, fold or normalise."""
RNG = np.random.default_rng(0)
VECTORS = Vectors(KEYS, RNG.normal(size=(len(KEYS), 6)).astype(np.float32))
plain = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters=" \t\n\v\f\r"),
    min_size=1,
    max_size=6,
)


def written(tmp_path: Path, name: str, **options) -> Path:
    write_vectors(VECTORS, tmp_path / name, format=name, **options)
    return tmp_path / name


def files(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}


# --- the tokenizer


def tokenizer_of(keys: list[str]):
    library = pytest.importorskip("tokenizers")
    return library.Tokenizer.from_str(json.dumps(tokenizer(keys)))


def test_the_id_of_each_token_is_its_row():
    found = tokenizer_of(KEYS)
    assert found.get_vocab_size() == len(KEYS) + 1
    for row, key in enumerate(KEYS):
        assert found.encode(key).ids == [row], key
    assert found.encode(" \t\n\v\f\r".join(KEYS)).ids == [*range(len(KEYS))]


@settings(deadline=None)
@example(keys=["a", "b"], others=["ab", "A", "a b"])
@given(
    keys=st.lists(plain, min_size=1, max_size=6, unique=True),
    others=st.lists(plain, max_size=4),
)
def test_any_tokens_are_kept_and_others_are_unknown(keys, others):
    found = tokenizer_of(keys)
    rows = {key: row for row, key in enumerate(keys)}
    tokens = " ".join([*others, *keys]).split(" ")
    expected = [rows.get(token, len(keys)) for token in tokens]
    assert found.encode("\n".join(tokens)).ids == expected


# --- the libraries


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("dtype", [None, "float16", "int8"])
def test_model2vec_gives_the_vectors(tmp_path, name, dtype):
    static = pytest.importorskip("model2vec").StaticModel
    if (name, dtype) == ("sentence-transformers", "int8"):
        return  # refused: tests/vectors/test_formats.py
    folder = written(tmp_path, name, dtype=dtype, card=model_card(name, VECTORS))
    model = static.from_pretrained(folder)
    assert model.dim == 6
    expected = rounded(VECTORS, dtype).matrix
    found = model.encode(KEYS, max_length=None)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)
    text = "the unknown 猫 [UNKNOWN]"
    mean = expected[[KEYS.index("the"), KEYS.index("猫")]].mean(axis=0)
    found = model.encode(text)
    if dtype is None:
        np.testing.assert_allclose(found, mean, rtol=1e-6)
    assert not np.any(model.encode("nothing known"))


@pytest.mark.slow
@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("dtype", [None, "float16"])
def test_sentence_transformers_gives_the_vectors(tmp_path, name, dtype, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    library = pytest.importorskip("sentence_transformers")
    folder = written(tmp_path, name, dtype=dtype, card=model_card(name, VECTORS))
    model = library.SentenceTransformer(str(folder), device="cpu")
    found = model.encode(KEYS)
    expected = rounded(VECTORS, dtype).matrix
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    half = model.encode("the unknown")  # a vector of zeros counts
    np.testing.assert_allclose(half, expected[KEYS.index("the")] / 2, rtol=1e-3)
    assert model.similarity_fn_name == "cosine"


def test_files_of_the_folders(tmp_path):
    folder = written(tmp_path, "sentence-transformers", card="x")
    assert files(folder) == {
        *("README.md", "modules.json", "config_sentence_transformers.json"),
        *("0_StaticEmbedding/model.safetensors", "0_StaticEmbedding/tokenizer.json"),
    }
    folder = written(tmp_path, "model2vec")
    assert files(folder) == {
        *("config.json", "modules.json", "model.safetensors", "tokenizer.json"),
    }


# --- the card

HOSTILE = ["```\n# not a title", "<script>", "---\nlibrary_name: x", "[a](b)", "a`b"]


def head(card: str) -> str:
    return re.fullmatch(r"---\n(.*?)\n---\n.*", card, re.DOTALL)[1]


@pytest.mark.row("B57")
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_tokens_and_names_stay_text_in_a_card(library, text):
    vectors = Vectors([text, "b"], np.eye(2))
    card = model_card(library, vectors, [f"corpus: {text}"])
    expected = model_card(library, Vectors(["a", "b"], np.eye(2)), ["corpus: a"])
    assert head(card) == head(expected)
    assert outside_of_blocks(card) == outside_of_blocks(expected)
    assert "not a title" in card or text.split("\n")[0] in card


def outside_of_blocks(card: str) -> list[str]:
    """The lines of Markdown that are not in a fenced block."""
    lines, fence = [], ""
    for line in card.splitlines():
        mark = re.match("`{3,}", line)
        if fence:
            fence = "" if line == fence else fence
        elif mark:
            fence = mark[0]
        else:
            lines.append(line)
    assert not fence
    return lines


def test_the_head_of_a_card_is_read_by_hugging_face(tmp_path):
    hub = pytest.importorskip("huggingface_hub")
    for library in LIBRARIES:
        data = hub.ModelCard(model_card(library, VECTORS)).data
        assert data.library_name == library
        assert "static-embeddings" in data.tags


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_example_of_a_card_is_python(library):
    card = model_card(library, VECTORS)
    (code,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    compile(code, "card", "exec")
    assert "encode(['the', 'the The'])" in code
    assert f"{len(KEYS)} tokens have a vector of 6 numbers" in card
