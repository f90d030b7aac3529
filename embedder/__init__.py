"""Embeddings of words, products and graph nodes, trained with JAX.

The public names below are loaded when first asked for, so that `import embedder` and
`embedder --help` are quick: JAX, polars and TensorFlow come with what uses them.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from embedder.config import Config
    from embedder.encoders.estimator import FeatureEncoder
    from embedder.engine.callbacks import every
    from embedder.evaluation.compare import compare_spaces
    from embedder.results import read_vectors
    from embedder.run.train import train
    from embedder.tables.estimator import EmbeddingTrainer
    from embedder.tables.huffman import huffman_codes
    from embedder.tables.names import read_names
    from embedder.tables.phrases import find_phrases
    from embedder.vectors.ensemble import Ensemble
    from embedder.vectors.ensemble_files import read_ensemble
    from embedder.vectors.evaluate import evaluate_analogies, evaluate_pairs
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
    "read_vectors",
    "train",
    "write_fasttext_model",
    "write_vectors",
]

__version__ = "1.0.0"

_MODULES = {
    "Config": "embedder.config",
    "EmbeddingTrainer": "embedder.tables.estimator",
    "Ensemble": "embedder.vectors.ensemble",
    "FastTextModel": "embedder.vectors.fasttext_bin",
    "FeatureEncoder": "embedder.encoders.estimator",
    "Vectors": "embedder.vectors.vectors",
    "compare_spaces": "embedder.evaluation.compare",
    "evaluate_analogies": "embedder.vectors.evaluate",
    "evaluate_pairs": "embedder.vectors.evaluate",
    "every": "embedder.engine.callbacks",
    "find_phrases": "embedder.tables.phrases",
    "huffman_codes": "embedder.tables.huffman",
    "ngram_buckets": "embedder.vectors.subwords",
    "read_ensemble": "embedder.vectors.ensemble_files",
    "read_fasttext_model": "embedder.vectors.fasttext_bin",
    "read_names": "embedder.tables.names",
    "read_vectors": "embedder.results",
    "train": "embedder.run.train",
    "write_fasttext_model": "embedder.vectors.fasttext_bin",
    "write_vectors": "embedder.vectors.export",
}


def __getattr__(name: str):
    if name not in _MODULES:
        raise AttributeError(f"module 'embedder' has no attribute {name!r}")
    if name == "FeatureEncoder":  # an estimator of scikit-learn
        from embedder.errors import check_installed

        check_installed("sklearn", "`FeatureEncoder`")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
