"""Batches of examples: a pure function of (seed, epoch, batch), for either loader.

All loaders give the same batches, bit for bit. `tfdata` and `memory` gather features
on the host, by tf.data and by threads; `resident` is for features that stay
on the devices: a batch is the ids of its examples.

Each of K replicas has an order of its own: ids are [S, B, K], and what is gathered by
them has K after B. One network has no such axis.
"""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from embedder.base.prefetch import parallel_map
from embedder.data.bootstrap import multiplicities
from embedder.data.examples.examples import Examples
from embedder.data.tfdata import import_tensorflow, quiet_options

_BYTES, _RESIDENT_BYTES = 2**23, 2**26  # of the features of a call
_CPU_OPERATIONS, _GPU_OPERATIONS = 2e10, 1e13  # of a second, rather few
_START = (-1,)  # position before the first batch of an epoch


class StepBatches(NamedTuple):
    """S consecutive updates of B examples each, of one network or of K replicas."""

    ids: np.ndarray  # i32[S, B] or [S, B, K], rows of the examples; 0 for padding;
    # with mixup [..., 2]
    weights: np.ndarray  # f32[S, B], 1, or 0 for padding; see `multiplicity`
    position: np.ndarray  # i64[S, 2]: epoch and batch
    progress: np.ndarray  # f64[S], fraction of the run done before each, in [0, 1)

    def __len__(self) -> int:
        return len(self.ids)


class Gathered(NamedTuple):
    """Features and labels of the examples of updates."""

    features: np.ndarray  # [S, B, ...] or [S, B, K, ...]
    labels: np.ndarray  # i32[S, B] or [S, B, K]


@dataclass(frozen=True)
class BatchSource:
    """Makes the batches of any epoch, in any order."""

    examples: Examples
    train: np.ndarray  # i64[n], rows of the examples to train on
    batch_size: int
    seeds: tuple[int, ...]  # of the order of each replica
    epochs: range
    local: range  # the part of each batch to make, in [0, B); B and above is padding
    bootstrap: bool = False  # whether weights are those of a resample
    has_mixup: bool = False  # whether each example has another that it is mixed with

    @property
    def num_batches(self) -> int:
        """Batches of an epoch; the last may have fewer examples."""
        return -(-len(self.train) // self.batch_size)

    def order(self, epoch: int) -> np.ndarray:
        """Rows of the training examples in the order of `epoch`, i64[n] or [n, K].

        With mixup [..., 2]: beside each row another one, uniform over all of them.
        """
        orders = [self._order(seed, epoch) for seed in self.seeds]
        return np.stack(orders, axis=1) if self.has_replicas else orders[0]

    def _order(self, seed: int, epoch: int) -> np.ndarray:
        rng, num = np.random.default_rng([seed, epoch]), len(self.train)
        order = self.train[rng.permutation(num)]
        if not self.has_mixup:
            return order
        return np.stack([order, self.train[rng.integers(num, size=num)]], axis=1)

    @functools.cached_property
    def multiplicity(self) -> np.ndarray:
        """How often a bootstrap resample has each example, u8[examples, K] or without
        K: the weight of its loss; 0 for examples that are not trained on."""
        times_drawn = np.zeros((len(self.examples.labels), len(self.seeds)), np.uint8)
        num = len(self.train)
        for k, seed in enumerate(self.seeds):
            times_drawn[self.train, k] = multiplicities(0, num, num, seed)
        return times_drawn if self.has_replicas else times_drawn[:, 0]

    @property
    def has_replicas(self) -> bool:
        """Whether batches have an axis of replicas."""
        return len(self.seeds) > 1

    @property
    def example_axes(self) -> tuple[int, ...]:
        """The axes of ids after S and B: of replicas, if there are several, and of
        pairs with mixup."""
        replicas = (len(self.seeds),) if self.has_replicas else ()
        return (*replicas, 2) if self.has_mixup else replicas

    @property
    def update_bytes(self) -> int:
        """Bytes of the features of an update, of all replicas."""
        example = self.examples.features[:1].nbytes
        return example * self.batch_size * len(self.seeds) * (1 + self.has_mixup)

    def updates(
        self, order: np.ndarray, epoch: int, first: int, size: int
    ) -> StepBatches:
        """`size` batches from batch `first` of an epoch, past its end all padding.

        Args:
          order: as `order(epoch)` returns it.
        """
        numbers, local = np.arange(first, first + size), np.array(self.local)
        indices = numbers[:, np.newaxis] * self.batch_size + local
        is_real = (indices < len(order)) & (local < self.batch_size)
        ids = order[np.minimum(indices, len(order) - 1)]
        ids[~is_real] = 0
        weights = is_real.astype(np.float32)
        if self.bootstrap:
            rows = ids[..., 0] if self.has_mixup else ids
            replica = (np.arange(len(self.seeds)),) if self.has_replicas else ()
            drawn = self.multiplicity[rows, *replica]
            weights = drawn * weights.reshape(
                *weights.shape, *(1,) * (drawn.ndim - weights.ndim)
            )
        num_items = len(self.epochs) * len(order)
        done = (epoch - self.epochs.start) * len(order) + numbers * self.batch_size
        return StepBatches(
            ids=ids.astype(np.int32),
            weights=weights,
            position=np.stack([np.full(size, epoch), numbers], axis=1),
            progress=np.minimum(done / num_items, 1),
        )

    def gather(self, updates: StepBatches) -> Gathered:
        """Features and labels of the examples of `updates`."""
        ids = updates.ids
        return Gathered(self.examples.features[ids], self.examples.labels[ids])


def split_validation(
    num_examples: int, validation_fraction: float
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the training and of the validation examples, the last ones; i64[n]."""
    num_train = num_examples - round(num_examples * validation_fraction)
    return np.arange(num_train), np.arange(num_train, num_examples)


def updates_per_call(
    is_resident: bool, source: BatchSource, limit: float, operations: float, kind: str
) -> int:
    """Number of updates of a call, S: some megabytes of features, and about a second.

    A call cannot be stopped, and progress is that of whole calls. The features of all
    replicas count, so that their calls take about as long as those of one network.

    Args:
      limit: at most so many.
      operations: floating point operations of an update; NaN: not known.
      kind: JAX's name of the platform of the devices, "cpu" or another.
    """
    rate = _CPU_OPERATIONS if kind == "cpu" else _GPU_OPERATIONS
    if operations > 0:
        limit = min(limit, rate // operations)
    size = _RESIDENT_BYTES if is_resident else _BYTES
    whole = max(1, size // max(1, source.update_bytes))
    return int(max(1, min(whole, source.num_batches, limit)))


def epoch_updates(
    loader: Literal["tfdata", "memory", "resident"],
    source: BatchSource,
    epoch: int,
    *,
    size: int,
    workers: int,
    after: tuple[int, ...] = _START,
) -> Iterator[tuple[StepBatches, int, Gathered | None]]:
    """The calls of an epoch: updates, how many of them are real, and their examples.

    The examples are None for `resident`, which has them on the devices.

    Args:
      size: updates of a call.
      workers: threads that gather features.
      after: position of the last update to skip.
    """
    order = source.order(epoch)
    firsts = range((after or _START)[0] + 1, source.num_batches, size)

    def make(first: int) -> StepBatches:
        return source.updates(order, epoch, first, size)

    def gather(first: int) -> Gathered:
        return source.gather(make(first))

    gathered: Iterator[Gathered | None]
    match loader:
        case "resident":
            gathered = (None for _ in firsts)
        case "memory":
            gathered = parallel_map(gather, firsts, workers)
        case "tfdata":
            gathered = _by_tfdata(source, gather, firsts, workers)
    for first, arrays in zip(firsts, gathered, strict=True):
        yield make(first), min(size, source.num_batches - first), arrays


def _by_tfdata(
    source: BatchSource, gather: Callable[[int], Gathered], firsts: range, workers: int
) -> Iterator[Gathered]:
    """The examples of the updates from each of `firsts` by tf.data, in order."""
    tf = import_tensorflow()
    failures: list[Exception] = []
    features, labels = source.examples.features, source.examples.labels
    size = firsts.step
    shape = size, len(source.local), *source.example_axes
    empty = Gathered(
        np.empty((*shape, *features.shape[1:]), features.dtype),
        np.empty(shape, labels.dtype),
    )

    def gather_or_note(first) -> Gathered:
        try:
            return gather(int(first))
        except Exception as error:  # raised below: tf.data would log pages
            failures.append(error)
            return empty

    def load(first):
        dtypes = [tf.as_dtype(x.dtype) for x in empty]
        arrays = tf.numpy_function(gather_or_note, [first], dtypes, stateful=False)
        return tuple(
            tf.ensure_shape(x, e.shape) for x, e in zip(arrays, empty, strict=True)
        )

    dataset = (
        tf.data.Dataset.range(firsts.start, firsts.stop, firsts.step)
        .map(load, num_parallel_calls=workers, deterministic=True)
        .prefetch(2)
        .with_options(quiet_options(tf))
    )
    for arrays in dataset.as_numpy_iterator():
        if failures:
            break
        yield Gathered(*arrays)
    if failures:
        raise failures[0]
