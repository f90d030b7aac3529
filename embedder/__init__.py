"""Embeddings of words, products and graph nodes, trained with JAX.

The public names below are loaded when first asked for, so that `import embedder` and
`embedder --help` are quick: JAX, polars and TensorFlow come with what uses them.
"""

import importlib
import random
from typing import TYPE_CHECKING

from embedder.base.former_modules import find_former_modules

if TYPE_CHECKING:
    from embedder.api.encoder_estimator import FeatureEncoder
    from embedder.api.results import read_next_items, read_vectors
    from embedder.api.token_estimator import EmbeddingTrainer
    from embedder.api.train import train
    from embedder.api.word_scores import evaluate_analogies, evaluate_pairs
    from embedder.config import Config
    from embedder.data.huffman import huffman_codes
    from embedder.data.names import read_names
    from embedder.data.phrases import find_phrases
    from embedder.engine.callbacks import every
    from embedder.metrics.compare import compare_spaces
    from embedder.vectors.ensemble import Ensemble
    from embedder.vectors.ensemble_files import read_ensemble
    from embedder.vectors.export import write_vectors
    from embedder.vectors.fasttext_bin import (
        FastTextModel,
        read_fasttext_model,
        write_fasttext_model,
    )
    from embedder.vectors.subwords import ngram_buckets
    from embedder.vectors.vectors import Vectors

__all__ = [
    "Config",
    "EmbeddingTrainer",
    "Ensemble",
    "FastTextModel",
    "FeatureEncoder",
    "Vectors",
    "compare_spaces",
    "evaluate_analogies",
    "evaluate_pairs",
    "every",
    "find_phrases",
    "huffman_codes",
    "ngram_buckets",
    "read_ensemble",
    "read_fasttext_model",
    "read_names",
    "read_next_items",
    "read_vectors",
    "train",
    "write_fasttext_model",
    "write_vectors",
]

__version__ = "1.0.0"

find_former_modules()

_MODULES = {
    "Config": "embedder.config",
    "EmbeddingTrainer": "embedder.api.token_estimator",
    "Ensemble": "embedder.vectors.ensemble",
    "FastTextModel": "embedder.vectors.fasttext_bin",
    "FeatureEncoder": "embedder.api.encoder_estimator",
    "Vectors": "embedder.vectors.vectors",
    "compare_spaces": "embedder.metrics.compare",
    "evaluate_analogies": "embedder.api.word_scores",
    "evaluate_pairs": "embedder.api.word_scores",
    "every": "embedder.engine.callbacks",
    "find_phrases": "embedder.data.phrases",
    "huffman_codes": "embedder.data.huffman",
    "ngram_buckets": "embedder.vectors.subwords",
    "read_ensemble": "embedder.vectors.ensemble_files",
    "read_fasttext_model": "embedder.vectors.fasttext_bin",
    "read_names": "embedder.data.names",
    "read_next_items": "embedder.api.results",
    "read_vectors": "embedder.api.results",
    "train": "embedder.api.train",
    "write_fasttext_model": "embedder.vectors.fasttext_bin",
    "write_vectors": "embedder.vectors.export",
}


def __getattr__(name: str):
    if name not in _MODULES:
        raise AttributeError(f"module 'embedder' has no attribute {name!r}")
    if name == "FeatureEncoder":  # an estimator of scikit-learn
        from embedder.errors import check_installed

        check_installed("sklearn", "`FeatureEncoder`")
    state = random.getstate()  # rich draws from it once, when it is imported
    try:
        return getattr(importlib.import_module(_MODULES[name]), name)
    finally:
        random.setstate(state)


def __dir__() -> list[str]:
    return sorted(__all__)
