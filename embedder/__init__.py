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
    from embedder.run.train import train
    from embedder.tables.estimator import EmbeddingTrainer
    from embedder.tables.huffman import huffman_codes
    from embedder.tables.names import read_names
    from embedder.vectors.ensemble import Ensemble
    from embedder.vectors.ensemble_files import read_ensemble
    from embedder.vectors.evaluate import evaluate_analogies, evaluate_pairs
    from embedder.vectors.export import read_vectors, write_vectors
    from embedder.vectors.vectors import Vectors

__all__ = [
    "Config",
    "EmbeddingTrainer",
    "Ensemble",
    "FeatureEncoder",
    "Vectors",
    "compare_spaces",
    "evaluate_analogies",
    "evaluate_pairs",
    "every",
    "huffman_codes",
    "read_ensemble",
    "read_names",
    "read_vectors",
    "train",
    "write_vectors",
]

_MODULES = {
    "Config": "embedder.config",
    "EmbeddingTrainer": "embedder.tables.estimator",
    "Ensemble": "embedder.vectors.ensemble",
    "FeatureEncoder": "embedder.encoders.estimator",
    "Vectors": "embedder.vectors.vectors",
    "compare_spaces": "embedder.evaluation.compare",
    "evaluate_analogies": "embedder.vectors.evaluate",
    "evaluate_pairs": "embedder.vectors.evaluate",
    "every": "embedder.engine.callbacks",
    "huffman_codes": "embedder.tables.huffman",
    "read_ensemble": "embedder.vectors.ensemble_files",
    "read_names": "embedder.tables.names",
    "read_vectors": "embedder.vectors.export",
    "train": "embedder.run.train",
    "write_vectors": "embedder.vectors.export",
}


def __getattr__(name: str):
    if name not in _MODULES:
        raise AttributeError(f"module 'embedder' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
