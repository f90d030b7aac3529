"""Folders that sentence-transformers and model2vec load: vectors with a tokenizer.

The tokenizer splits a text at ASCII white space, as corpora are read, and looks each
token up as it is. A text is the mean of the vectors of its tokens. The last row of the
vectors is zero and stands for unknown tokens.

tokenizer.json is the format of the library `tokenizers`, with the model WordLevel.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from embedder.vectors.array_formats import save_arrays
from embedder.vectors.reduce import Dtype, pack
from embedder.vectors.vectors import Vectors
from embedder.vectors.word2vec import check_plain_keys

_WHITE_SPACE = "[ \t\n\v\f\r]+"
_STATIC = "sentence_transformers.models.StaticEmbedding"
_SUBFOLDER = "0_StaticEmbedding"
_UNLIMITED = 1_000_000  # tokens of a text


def write_sentence_transformers(
    vectors: Vectors, folder: Path, *, dtype: Dtype | None = None, card: str = ""
) -> None:
    """Writes a SentenceTransformer of one module, StaticEmbedding, into `folder`.

    Raises:
      InputError: a key has white space or is too long.
    """
    check_plain_keys(vectors.keys, "a tokenizer")
    inner = folder / _SUBFOLDER
    inner.mkdir()
    values = _with_zero_row(pack(vectors.matrix, dtype).values)
    save_arrays({"embedding.weight": values}, inner / "model.safetensors")
    _write_json(inner / "tokenizer.json", tokenizer(vectors.keys))
    _write_json(folder / "modules.json", _modules(_SUBFOLDER))
    settings: dict[str, Any] = {
        "model_type": "SentenceTransformer",
        "prompts": {},
        "default_prompt_name": None,
        "similarity_fn_name": "cosine",
    }
    _write_json(folder / "config_sentence_transformers.json", settings)
    _write_card(folder, card)


def write_model2vec(
    vectors: Vectors, folder: Path, *, dtype: Dtype | None = None, card: str = ""
) -> None:
    """Writes a StaticModel into `folder`; the scales of int8 are its weights.

    Raises:
      InputError: a key has white space or is too long.
    """
    check_plain_keys(vectors.keys, "a tokenizer")
    packed = pack(vectors.matrix, dtype)
    arrays = {"embeddings": _with_zero_row(packed.values)}
    if packed.scales is not None:
        arrays["weights"] = np.append(packed.scales, np.float32(1))
    save_arrays(arrays, folder / "model.safetensors")
    _write_json(folder / "tokenizer.json", tokenizer(vectors.keys))
    _write_json(folder / "modules.json", _modules("."))
    settings: dict[str, Any] = {
        "model_type": "model2vec",
        "architectures": ["StaticModel"],
        "hidden_dim": vectors.matrix.shape[1],
        "seq_length": _UNLIMITED,
        "normalize": False,
        "embedding_dtype": packed.values.dtype.name,
    }
    _write_json(folder / "config.json", settings)
    _write_card(folder, card)


def tokenizer(keys: list[str]) -> dict[str, Any]:
    """tokenizer.json: the id of a key is its row, and unknown tokens have the id V."""
    unknown = "[UNK]"
    known = {key: row for row, key in enumerate(keys)}
    while unknown in known:
        unknown = f"[{unknown}]"
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"Regex": _WHITE_SPACE},
            "behavior": "Removed",
            "invert": False,
        },
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": known | {unknown: len(known)},
            "unk_token": unknown,
        },
    }


def _with_zero_row(values: np.ndarray) -> np.ndarray:
    return np.concatenate([values, np.zeros_like(values[:1])])


def _modules(path: str) -> list[dict[str, Any]]:
    return [{"idx": 0, "name": "0", "path": path, "type": _STATIC}]


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False) + "\n", encoding="utf-8")


def _write_card(folder: Path, card: str) -> None:
    if card:
        (folder / "README.md").write_text(card, encoding="utf-8")
