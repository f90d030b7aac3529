"""Folders for sentence-transformers and model2vec, loaded by both, and their cards."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from embedder.vectors.export import write_vectors
from embedder.vectors.model_card import model_card
from embedder.vectors.other_programs import tokenizer
from embedder.vectors.reduce import rounded
from embedder.vectors.vectors import Vectors

LIBRARIES = ["sentence-transformers", "model2vec"]
KEYS = [
    *("the", "The", "don't", "U.S.", "naïve", "nai\u0308ve", "猫", "a\u00a0b", "#x"),
    *('"q"', "\\", "[UNK]", "[[UNK]]", "<s>", "\u2028", "\u3000", "\ufeffx"),
    *("\x00", "\x1f", "\x85", "-", "a-b", "a_b", "x" * 3000, "e\u0301", "é"),
    "👩\u200d🔬",
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


@example(keys=["a", "b"], others=["ab", "A", "a b"])
@example(keys=KEYS, others=[])
@given(
    keys=st.lists(plain, min_size=1, max_size=6, unique=True),
    others=st.lists(plain, max_size=4),
)
def test_the_id_of_each_token_is_its_row_and_others_are_unknown(keys, others):
    library = pytest.importorskip("tokenizers")
    found = library.Tokenizer.from_str(json.dumps(tokenizer(keys)))
    assert found.get_vocab_size() == len(keys) + 1
    rows = {key: row for row, key in enumerate(keys)}
    tokens = " ".join([*others, *keys]).split(" ")
    expected = [rows.get(token, len(keys)) for token in tokens]
    for blanks in ("\n", " \t\n\v\f\r"):
        assert found.encode(blanks.join(tokens)).ids == expected


@pytest.mark.parametrize("dtype", [None, "float16", "int8"])
@pytest.mark.parametrize("name", LIBRARIES)
def test_model2vec_gives_the_vectors(tmp_path, name, dtype):
    static = pytest.importorskip("model2vec").StaticModel
    if (name, dtype) == ("sentence-transformers", "int8"):
        return  # refused: tests/refusals/vectors.py
    folder = written(tmp_path, name, dtype=dtype, card=model_card(name, VECTORS))
    model = static.from_pretrained(folder)
    assert model.dim == 6
    expected = rounded(VECTORS, dtype).matrix
    found = model.encode(KEYS, max_length=None)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)
    mean = expected[[KEYS.index("the"), KEYS.index("猫")]].mean(axis=0)
    if dtype is None:
        found = model.encode("the unknown 猫 [UNKNOWN]")
        np.testing.assert_allclose(found, mean, rtol=1e-6)
    assert not np.any(model.encode("nothing known"))


@pytest.mark.slow
@pytest.mark.parametrize("name", LIBRARIES)
def test_sentence_transformers_gives_the_vectors(tmp_path, name, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    library = pytest.importorskip("sentence_transformers")
    folder = written(tmp_path, name, card=model_card(name, VECTORS))
    model = library.SentenceTransformer(str(folder), device="cpu")
    np.testing.assert_allclose(model.encode(KEYS), VECTORS.matrix, rtol=1e-6)
    half = model.encode("the unknown")  # a vector of zeros counts
    np.testing.assert_allclose(half, VECTORS["the"] / 2, rtol=1e-3)
    assert model.similarity_fn_name == "cosine"


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_card_has_a_head_for_hugging_face_and_an_example_in_python(library):
    hub = pytest.importorskip("huggingface_hub")
    card = model_card(library, VECTORS)
    data = hub.ModelCard(card).data
    assert data.library_name == library and "static-embeddings" in data.tags
    (code,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    compile(code, "card", "exec")
    assert "encode(['the', 'the The'])" in code
    assert f"{len(KEYS)} tokens have a vector of 6 numbers" in card
