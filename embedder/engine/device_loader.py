"""Batches on the devices of a mesh, made ahead of their use.

Each process reads only the parts of a batch that its own devices need, each different
part once however many devices want it, by several threads; the parts become one array
over the devices of all processes.
"""

import collections
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from embedder.engine.ahead import read_ahead

Index = tuple[slice, ...]


class HostBatch(Protocol):
    """A batch of which any part can be read, by several threads at once."""

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of the whole array `name`."""

    def read(self, name: str, index: Index) -> np.ndarray:
        """A part of it; this process is asked for those of its own devices alone."""


class DeviceLoader:
    """Iterator over batches, each a dict of global arrays.

    Args:
      source: the batches, made as the iterator is resumed, in a thread.
      mesh: devices, of one process or of several.
      specs: how each array lies on the mesh, by name.
      ahead: batches made before they are asked for.
      threads: readers.

    An error in `source` or in a reader is raised by `next`, as it was. `close`, or the
    end of a `with`, ends every thread.
    """

    def __init__(
        self,
        source: Iterable[HostBatch],
        mesh: Mesh,
        specs: Mapping[str, PartitionSpec],
        *,
        ahead: int = 2,
        threads: int = 2,
    ):
        self._shardings = {n: NamedSharding(mesh, spec) for n, spec in specs.items()}
        self._source = read_ahead(source)
        self._pool = ThreadPoolExecutor(threads)
        self._ahead = ahead
        self._pending: collections.deque[dict] = collections.deque()
        self._error: Exception | None = None
        self.position = 0
        """Batches given so far: to go on from here, skip as many of the source."""

    def __iter__(self) -> Iterator[dict[str, jax.Array]]:
        return self

    def __next__(self) -> dict[str, jax.Array]:
        try:
            self._fill()
            if not self._pending:
                raise self._error or StopIteration
            batch = {
                name: self._assemble(name, shape, parts)
                for name, (shape, parts) in self._pending.popleft().items()
            }
        except BaseException:
            self.close()
            raise
        self.position += 1
        return batch

    def __enter__(self) -> "DeviceLoader":
        return self

    def __exit__(self, *exception) -> None:
        self.close()

    def close(self) -> None:
        """Ends every thread; batches made ahead are dropped."""
        self._pending.clear()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._source.close()

    def _fill(self) -> None:
        while len(self._pending) <= self._ahead and self._error is None:
            try:
                batch = next(self._source, None)
            except Exception as error:  # raised in its place, after what came before
                self._error = error
                return
            if batch is None:
                return
            self._pending.append(
                {
                    name: (batch.shape(name), self._start(batch, name))
                    for name in self._shardings
                }
            )

    def _start(self, batch: HostBatch, name: str) -> list[Future]:
        """Begins to read the different parts that devices here need of an array."""
        shape = batch.shape(name)
        wanted: dict[tuple, list[jax.Device]] = collections.defaultdict(list)
        places = self._shardings[name].addressable_devices_indices_map(shape)
        for device, index in places.items():
            bounds = (p.indices(n)[:2] for p, n in zip(index, shape, strict=True))
            wanted[tuple(bounds)].append(device)
        return [
            self._pool.submit(_place, batch, name, bounds, devices)
            for bounds, devices in wanted.items()
        ]

    def _assemble(self, name: str, shape, parts: list[Future]) -> jax.Array:
        arrays = [array for part in parts for array in part.result()]
        sharding = self._shardings[name]
        return jax.make_array_from_single_device_arrays(shape, sharding, arrays)


def _place(batch: HostBatch, name: str, bounds, devices) -> list[jax.Array]:
    """Reads one part and puts it on each of `devices`."""
    values = batch.read(name, tuple(slice(*bound) for bound in bounds))
    with jax.enable_x64(True):  # float64 stays as it is
        return [jax.device_put(values, device) for device in devices]
