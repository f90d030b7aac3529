"""Batches of examples: a pure function of (seed, epoch, batch), by either loader.

Both loaders give the same batches, bit for bit. `tfdata` copies features together in
parallel, ahead of their use; for `memory` all features lie on the device, and a batch
is the numbers of its examples.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from embedder.encoders.examples import Examples
from embedder.engine.tfdata import import_tensorflow, quiet_options

_BYTES = {"tfdata": 2**23, "memory": 2**26}  # of features that a call trains on
_START = (-1,)


class Updates(NamedTuple):
    """Consecutive updates of B examples."""

    ids: np.ndarray  # i32[S, B], which examples; 0 for what fills up
    weights: np.ndarray  # f32[S, B], 1; 0 for what fills up
    position: np.ndarray  # i64[S, 2]: epoch and batch
    progress: np.ndarray  # f64[S], share of the run done before each, in [0, 1)

    def __len__(self) -> int:
        return len(self.ids)


class Copied(NamedTuple):
    """Features and labels of updates, copied together."""

    features: np.ndarray  # [S, B, ...]
    labels: np.ndarray  # i32[S, B]


@dataclass(frozen=True)
class BatchSource:
    """Makes any batches of any epoch."""

    examples: Examples
    train: np.ndarray  # i64[n], which are trained on
    batch_size: int
    seed: int
    epochs: range
    share: range  # examples of each batch to take, of 0 to B - 1; empty ones from B on

    @property
    def num_batches(self) -> int:
        """Of an epoch; the last may have fewer examples."""
        return -(-len(self.train) // self.batch_size)

    def order(self, epoch: int) -> np.ndarray:
        """The examples in the order of an epoch, i64[n]."""
        rng = np.random.default_rng([self.seed, epoch])
        return self.train[rng.permutation(len(self.train))]

    def updates(self, order: np.ndarray, epoch: int, first: int, size: int) -> Updates:
        """Batches from `first` of an epoch with this `order`, empty ones at its end."""
        numbers = np.arange(first, first + size)
        places = numbers[:, np.newaxis] * self.batch_size + np.array(self.share)
        is_real = (places < len(order)) & (np.array(self.share) < self.batch_size)
        ids = np.where(is_real, order[np.minimum(places, len(order) - 1)], 0)
        num_items = len(self.epochs) * len(order)
        done = (epoch - self.epochs.start) * len(order) + numbers * self.batch_size
        return Updates(
            ids=ids.astype(np.int32),
            weights=is_real.astype(np.float32),
            position=np.stack([np.full(size, epoch), numbers], axis=1),
            progress=np.minimum(done / num_items, 1),
        )

    def copied(self, updates: Updates) -> Copied:
        """What the updates are of."""
        ids = updates.ids
        return Copied(self.examples.features[ids], self.examples.labels[ids])


def split(num_examples: int, validation_fraction: float) -> tuple[np.ndarray, ...]:
    """Which examples are trained on, and which validate: the last ones, i64 of each."""
    num_validation = round(num_examples * validation_fraction)
    every = np.arange(num_examples)
    return every[: num_examples - num_validation], every[
        num_examples - num_validation :
    ]


def updates_of_a_call(
    loader: Literal["tfdata", "memory"], source: BatchSource, limit: float
) -> int:
    """How many updates one call of the program makes: some megabytes of features."""
    example = max(1, source.examples.features[:1].nbytes)
    whole = max(1, _BYTES[loader] // (example * source.batch_size))
    return int(max(1, min(whole, source.num_batches, limit)))


def epoch_updates(
    loader: Literal["tfdata", "memory"],
    source: BatchSource,
    epoch: int,
    *,
    size: int,
    workers: int,
    after: tuple[int, ...] = _START,
) -> Iterator[tuple[Updates, int, Copied | None]]:
    """Updates of an epoch in parts of `size`, how many are real, and what they are of.

    For `memory` that is None. `after` is the position of an update: what comes after it
    is made.
    """
    order = source.order(epoch)
    firsts = range((after or _START)[0] + 1, source.num_batches, size)

    def made(first: int) -> Updates:
        return source.updates(order, epoch, first, size)

    match loader:
        case "memory":
            for first in firsts:
                yield made(first), min(size, source.num_batches - first), None
        case "tfdata":
            parts = _by_tfdata(source, made, firsts, workers)
            for first, (updates, copied) in zip(firsts, parts, strict=True):
                yield updates, min(size, source.num_batches - first), copied


def _by_tfdata(source: BatchSource, made, firsts: range, workers: int):
    """Updates and their features by tf.data, in order."""
    tf = import_tensorflow()
    failures: list[Exception] = []
    features, labels = source.examples.features, source.examples.labels
    size = firsts.step
    shape = (size, len(source.share), *features.shape[1:])
    empty = Copied(np.empty(shape, features.dtype), np.empty(shape[:2], labels.dtype))

    def copied(first) -> Copied:
        try:
            return source.copied(made(int(first)))
        except Exception as error:  # raised below: tf.data would print pages
            failures.append(error)
            return empty

    def part(first):
        dtypes = [tf.as_dtype(x.dtype) for x in empty]
        found = tf.numpy_function(copied, [first], dtypes, stateful=False)
        return tuple(
            tf.ensure_shape(x, e.shape) for x, e in zip(found, empty, strict=True)
        )

    dataset = (
        tf.data.Dataset.range(firsts.start, firsts.stop, firsts.step)
        .map(part, num_parallel_calls=workers, deterministic=True)
        .prefetch(2)
        .with_options(quiet_options(tf))
    )
    for first, arrays in zip(firsts, dataset.as_numpy_iterator(), strict=True):
        if failures:
            break
        yield made(first), Copied(*arrays)
    if failures:
        raise failures[0]
