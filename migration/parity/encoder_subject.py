"""The subject of the parity ladder of an encoder, and its lines on layers."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from embedder.config import Config, with_options
from embedder.config.encoder_options import EncoderOptions
from embedder.data.examples.example_formats import open_examples
from embedder.data.examples.examples import Examples
from embedder.encoders.plan import TrainingInputs, plan
from embedder.encoders.trainer import EncoderTrainer
from embedder.errors import InputError
from legacy import network
from migration.parity.difference import Difference, difference, worst

_EVERY = 10**9


class EncoderSubject(NamedTuple):
    """The settings and the examples that the ladder compares on."""

    config: Config
    examples: Examples
    source: str

    def training(self, **options) -> EncoderTrainer:
        """A training of one epoch, with `options` changed."""
        config = with_options(self.config, **options)
        return EncoderTrainer(plan(TrainingInputs(config, self.examples, range(1))))


def encoder_subject(config: Config, source: str | None, num: int) -> EncoderSubject:
    """The first `num` examples at `source`; 0: all.

    Raises:
      InputError: there are none, or they do not agree with `config`.
      OSError: they cannot be read.
    """
    if source is None:
        raise InputError("`corpus` must be given for an encoder, got none.")
    if config.run.optimizer not in network.OPTIMIZERS:
        raise InputError(
            f"`optimizer` must be one of the NumPy trainer's, "
            f"{' or '.join(network.OPTIMIZERS)}, got {config.run.optimizer!r}."
        )
    config = _of_the_oracle(config)
    read = open_examples(source, config.encoder, config.run.workers).read(None)
    num = min(num or _EVERY, len(read.labels))
    first = read._replace(
        features=read.features[:num], labels=read.labels[:num], keys=read.keys[:num]
    )
    return EncoderSubject(config, first, source)


_ONLY_DEFAULT = (
    *("objective", "objective_args", "class_weights", "augment", "warmup"),
    *("weight_decay", "clip_norm", "average", "compute_dtype"),
    *("init_network", "freeze_modules"),
)
"""Settings that the NumPy trainer does not have."""


def _of_the_oracle(config: Config) -> Config:
    """`config` with the network of the NumPy trainer, or with one of images.

    Raises:
      InputError: it has settings that the NumPy trainer does not have.
    """
    given, default = config.encoder, EncoderOptions()
    for name in _ONLY_DEFAULT:
        value, expected = getattr(given, name), getattr(default, name)
        if value != expected:
            raise InputError(
                f"`{name}` must be its default, {expected!r}, to compare with the "
                f"NumPy trainer, got {value!r}."
            )
    if given.rate_schedule not in ("auto", "constant"):
        raise InputError(
            "`rate_schedule` must be constant, the NumPy trainer's, got "
            f"{given.rate_schedule!r}."
        )
    network = given.network if has_network(config) else "mlp"
    return with_options(config, network=network, rate_schedule="constant")


def has_network(config: Config) -> bool:
    """Whether the settings name a network of images, which only one stage compares."""
    return config.encoder.network not in ("auto", "mlp")


def layer_lines(
    stage: str, title: str, dtype: str, ours, theirs, *, tolerance: float
) -> Iterator[Difference]:
    pairs = zip(ours, theirs, strict=True)
    for number, (mine, other) in enumerate(pairs, start=1):
        named = ", ".join(filter(None, (f"layer {number}", title)))
        yield worst(
            difference(stage, named, a, b, dtype=dtype, tolerance=tolerance)
            for a, b in zip(mine, other, strict=True)
        )


def numbers_of(examples: Examples) -> tuple[np.ndarray, np.ndarray]:
    """Features [n, F] and labels, as the oracle takes them."""
    return examples.features.reshape(len(examples.labels), -1), examples.labels


def dtypes_of(subject: EncoderSubject) -> tuple[str, ...]:
    return tuple(dict.fromkeys(("float64", subject.config.run.dtype)))
