"""Loads batches onto the devices of a mesh before they are needed.

Each process reads only the parts of a batch that its own devices need, and each part
once however many devices need it, by several threads. The parts become one global array
over the devices of all processes.
"""

import collections
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from embedder.base.prefetch import prefetch
from embedder.engine.mesh_layout import Index, local_indices

_THREADS = 2  # that read
_NUM_PREFETCHED = 2  # batches that are loaded before they are asked for
_Bounds = tuple[tuple[int, int], ...]  # start and stop along each axis
_Parts = list[Future[list[jax.Array]]]


class HostBatch(Protocol):
    """A batch of named arrays on the host, any part of which can be read.

    Several threads call `read` at once.
    """

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of the whole array `name`, over all processes."""

    def read(self, name: str, index: Index) -> np.ndarray:
        """The part `index` of the array; only parts for local devices are read."""


class DeviceLoader:
    """Iterator over batches, each a dict of global arrays on the devices of a mesh.

    `next` raises errors of `source` or of a reader unchanged, after the batches before
    them. `close`, or the end of a `with` statement, ends every thread.

    Args:
      source: the batches; one thread iterates over them.
      mesh: devices, of one process or of several.
      specs: the sharding of each array, by name.
    """

    def __init__(
        self,
        source: Iterable[HostBatch],
        mesh: Mesh,
        specs: Mapping[str, PartitionSpec],
    ):
        self._shardings = {n: NamedSharding(mesh, spec) for n, spec in specs.items()}
        self._source = prefetch(source)
        self._pool = ThreadPoolExecutor(_THREADS)
        self._pending: collections.deque[dict[str, tuple[tuple[int, ...], _Parts]]]
        self._pending = collections.deque()
        self._error: Exception | None = None

    def __iter__(self) -> Iterator[dict[str, jax.Array]]:
        return self

    def __next__(self) -> dict[str, jax.Array]:
        try:
            self._fill()
            if not self._pending:
                raise self._error or StopIteration
            batch: dict[str, jax.Array] = {
                name: jax.make_array_from_single_device_arrays(
                    *(shape, self._shardings[name]),
                    [array for part in parts for array in part.result()],
                )
                for name, (shape, parts) in self._pending.popleft().items()
            }
        except BaseException:
            self.close()
            raise
        return batch

    def __enter__(self) -> "DeviceLoader":
        return self

    def __exit__(self, *exception) -> None:
        self.close()

    def close(self) -> None:
        """Ends every thread and drops the prefetched batches."""
        self._pending.clear()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._source.close()

    def _fill(self) -> None:
        while len(self._pending) <= _NUM_PREFETCHED and self._error is None:
            try:
                batch = next(self._source, None)
            except Exception as error:  # raised after the batches before it
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

    def _start(self, batch: HostBatch, name: str) -> _Parts:
        """Starts to read the distinct parts of an array that local devices need."""
        shape = batch.shape(name)
        wanted: dict[_Bounds, list[jax.Device]] = collections.defaultdict(list)
        for device, index in local_indices(self._shardings[name], shape).items():
            bounds = (p.indices(n)[:2] for p, n in zip(index, shape, strict=True))
            wanted[tuple(bounds)].append(device)
        return [
            self._pool.submit(_load, batch, name, bounds, devices)
            for bounds, devices in wanted.items()
        ]


def _load(
    batch: HostBatch, name: str, bounds: _Bounds, devices: Sequence[jax.Device]
) -> list[jax.Array]:
    """Reads one part and copies it to each of `devices`."""
    values = batch.read(name, tuple(slice(*bound) for bound in bounds))
    with jax.enable_x64(True):  # else float64 becomes float32
        return [jax.device_put(values, device) for device in devices]
