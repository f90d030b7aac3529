"""Tiny networks of each kind on small images, with all that updates can have."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from PIL import Image

from embedder.config import Config, with_options
from embedder.data.examples.examples import Examples
from embedder.encoders.plan import TrainingInputs, plan
from embedder.encoders.trainer import EncoderTrainer
from embedder.engine.epochs import Checkpoint, run_epochs

SEED = 5
NETWORKS: dict[str, tuple[str, ...]] = {
    "conv-small": ("width=2", "size=5", "dropout=0.3"),
    "resnet": ("depth=18", "width=2", "drop_path=0.4"),
    "wide-resnet": ("depth=10", "width=1", "dropout=0.3"),
    "vit": ("width=8", "depth=2", "heads=2", "dropout=0.2", "drop_path=0.3"),
    "mlp": (),
}
"""Arguments of each network."""


def make_examples(num: int = 27) -> Examples:
    """Images of noise around one of three near each other, f64[num, 8, 8]."""
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=num).astype(np.int32)
    images = rng.normal(size=(num, 8, 8))
    images += 0.2 * rng.normal(size=(3, 8, 8))[labels]
    return Examples(images, labels, list("abc"), [str(i) for i in range(num)])


def make_training(
    network: str, epochs: int = 2, models: list[Config] | None = None, **options: Any
) -> EncoderTrainer:
    """Batches of 6 by SGD in float64; the last of an epoch has 4 of 22 examples."""
    config = make_config(network, **options)
    return EncoderTrainer(
        plan(TrainingInputs(config, make_examples(), range(epochs), models or ()))
    )


def make_config(network: str, **options: Any) -> Config:
    given: dict[str, Any] = {
        "model": "encoder",
        "network": network,
        "network_args": NETWORKS[network],
        "loader": "memory",
        "dtype": "float64",
        "optimizer": "sgd",
        "optimizer_args": ("momentum=0.9",),
        "learning_rate": 0.02,
        "batch_size": 6,
        "average": 0.9,
        "validation_fraction": 0.2,
        "seed": SEED,
        "mode": "jit",
    }
    return with_options(Config(), **given | options)


def trained(network: str, **options: Any) -> Checkpoint:
    training = make_training(network, **options)
    return run_epochs(training, training.initial_state())


def largest_difference(actual: Any, desired: Any) -> float:
    """Between the arrays of two trees, relative to 1 or to what is larger."""
    assert jax.tree.structure(actual) == jax.tree.structure(desired)
    found = 0.0
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(desired), strict=True):
        assert np.shape(a) == np.shape(b)
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        gap = np.abs(a - b) / np.maximum(np.abs(b), 1)
        found = max(found, float(np.max(gap, initial=0)))
    return found


def write_pngs(folder: Path, images: Sequence[np.ndarray]) -> None:
    """Images of pixels as 0.png, 1.png and so on."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, pixels in enumerate(images):
        Image.fromarray(np.asarray(pixels, np.uint8)).save(folder / f"{number}.png")
