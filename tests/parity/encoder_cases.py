"""Small examples for an encoder."""

import numpy as np

from embedder.config import Config, with_options
from embedder.data.examples.examples import Examples
from migration.parity.encoder_subject import EncoderSubject


def subject(
    shape=(6,), kind=np.float32, *, num=97, classes=4, hidden=(11, 9), **options
) -> EncoderSubject:
    """Examples whose label depends on their features, and an encoder for them."""
    rng = np.random.default_rng(3)
    labels = rng.integers(classes, size=num)
    labels[:classes] = np.arange(classes)
    centres = rng.normal(size=(classes, *shape))
    features = centres[labels] + rng.normal(scale=0.7, size=(num, *shape))
    if kind == np.uint8:
        features = np.clip(127 + 60 * features, 0, 255)
    names = [f"c{i}" for i in range(classes)]
    examples = Examples(
        features.astype(kind),
        labels.astype(np.int32),
        names,
        [str(i) for i in range(num)],
    )
    config = with_options(
        Config(),
        model="encoder",
        layers=(int(np.prod(shape)), *hidden, classes),
        validation_fraction=0.1,
        **{
            "loader": "memory",
            "optimizer": "sgd",
            "batch_size": 8,
            "learning_rate": 0.05,
        }
        | options,
    )
    return EncoderSubject(config, examples, "made here")
