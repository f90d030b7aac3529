"""The NumPy trainer of embeddings that `embedder` ports, kept as its oracle.

Frozen when the port began, so that parity has something to be measured against: a
change needs a numbered entry in migration/archive/decisions.md. It imports NumPy and
the standard library alone.
"""

from legacy.mlp import FeatureEncoder
from legacy.trainer import EmbeddingTrainer

__all__ = ["EmbeddingTrainer", "FeatureEncoder"]
