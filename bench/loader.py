"""Throughput of batches to devices: by `DeviceLoader`, and by one thread.

Sources: chunks of tokens in memory, and images in compressed files, one for each
row of a batch, in the two shapes that Wide-ResNets are trained on. Batches are taken as
fast as they come, and then with a pause after each, for as long as one thread needs to
make a batch: an accelerator that computes.

`python -m bench.loader DEVICES JSON` measures one number of devices.
"""

import json
import statistics
import sys
import tempfile
import time
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from bench.processes import run_on_devices
from bench.results import Results, Table, write_results
from embedder.engine.device_loader import DeviceLoader, HostBatch, Index

_BATCHES = 24
_WAYS = ("naive", "loader", "naive, busy", "loader, busy")
_LARGE, _SMALL = (224, 224, 3), (30, 30, 1)
_SPEC = P("data")  # rows of a batch are sharded over the devices


class Blocks:
    """A chunk: token ids in memory, i32[rows, tokens]."""

    def __init__(self, number: int, settings: dict[str, Any], folder: Path):
        size = settings["rows"], settings["tokens"]
        self._ids = np.full(size, number, np.int32)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._ids.shape

    def read(self, name: str, index: Index) -> np.ndarray:
        return self._ids[index]


class Images:
    """Images, each in its own compressed file, u8[rows, height, width, channels]."""

    size = _LARGE

    def __init__(self, number: int, settings: dict[str, Any], folder: Path):
        self._folder, self._rows = folder, settings["images"]

    def shape(self, name: str) -> tuple[int, ...]:
        return (self._rows, *self.size)

    def read(self, name: str, index: Index) -> np.ndarray:
        rows = range(*index[0].indices(self._rows))
        files = (_image_file(self._folder, row, self.size) for row in rows)
        return np.stack([_read_image(file, self.size) for file in files])


class SmallImages(Images):
    """The same of 30 x 30 grey pixels."""

    size = _SMALL


SOURCES = {
    "blocks in memory": Blocks,
    "images of 224 x 224 x 3": Images,
    "images of 30 x 30": SmallImages,
}


def run(
    devices: tuple[int, ...] = (1, 2, 4, 8),
    samples: int = 5,
    rows: int = 1024,
    tokens: int = 2048,
    images: int = 64,
) -> Table:
    """Throughput of batches to devices, by DeviceLoader and by one thread.

    Args:
      devices: numbers of devices; each is measured in its own process.
      samples: number of measurements of each.
      rows: rows of a batch of token ids.
      tokens: tokens of a row.
      images: images of a batch.
    """
    settings = {"samples": samples, "rows": rows, "tokens": tokens, "images": images}
    results = []
    for num_devices in devices:
        results += run_on_devices("bench.loader", num_devices, settings)
    return table(write_results("loader", settings=settings, samples=results))


def table(results: Results) -> Table:
    """MB/s of both loaders and their ratio, with idle and with busy devices."""
    rows = []
    for each in results["samples"]:
        seconds = {way: statistics.median(each[way]) for way in _WAYS}
        rows.append([each["source"], str(each["devices"])])
        for busy in ("", ", busy"):
            naive, ours = (seconds[f"{way}{busy}"] for way in ("naive", "loader"))
            speeds = [f"{each['megabytes'] / x:.0f}" for x in (naive, ours)]
            rows[-1] += [*speeds, f"{naive / ours:.2f}"]
    columns = ["source", "devices", "one thread, MB/s", "DeviceLoader, MB/s", "ratio"]
    columns += ["one thread, busy", "DeviceLoader, busy", "ratio"]
    return Table(columns, rows)


def measure(num_devices: int, settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Seconds for all batches by both loaders, which take turns, for each source."""
    mesh = Mesh(np.array(jax.devices()[:num_devices]), ("data",))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write_images(folder, settings["images"])
        for source, kind in SOURCES.items():
            seconds: dict[str, list[float]] = {way: [] for way in _WAYS}

            def batches(kind=kind) -> Iterator[HostBatch]:
                return (kind(i, settings, folder) for i in range(_BATCHES))

            for _ in range(settings["samples"]):
                busy = 0.0
                for suffix in ("", ", busy"):
                    arrays = _one_thread(batches(), mesh)
                    seconds[f"naive{suffix}"].append(_take(arrays, busy))
                    arrays = _by_loader(batches(), mesh)
                    seconds[f"loader{suffix}"].append(_take(arrays, busy))
                    busy = seconds["naive"][-1] / _BATCHES
            size = sum(array.nbytes for array in _one_thread(batches(), mesh)) / 1e6
            yield {
                "source": source,
                "devices": num_devices,
                "megabytes": size,
                **seconds,
            }


def _by_loader(batches: Iterable[HostBatch], mesh: Mesh) -> Iterator[jax.Array]:
    with DeviceLoader(batches, mesh, {"x": _SPEC}) as loader:
        for arrays in loader:
            yield arrays["x"]


def _one_thread(batches: Iterable[HostBatch], mesh: Mesh) -> Iterator[jax.Array]:
    """Reads the whole batch, then copies one slice after the other to its device."""
    sharding = NamedSharding(mesh, _SPEC)
    for batch in batches:
        shape = batch.shape("x")
        whole = batch.read("x", tuple(slice(0, size) for size in shape))
        indices = sharding.addressable_devices_indices_map(shape).items()
        parts = [jax.device_put(whole[index], device) for device, index in indices]
        yield jax.make_array_from_single_device_arrays(shape, sharding, parts)


def _take(arrays: Iterator[jax.Array], busy: float) -> float:
    """Seconds to take all arrays, with a pause of `busy` seconds after each."""
    start = time.perf_counter()
    for array in arrays:
        jax.block_until_ready(array)
        time.sleep(busy)
    return time.perf_counter() - start


def _write_images(folder: Path, number: int) -> None:
    rng = np.random.default_rng(1)
    for row in range(number):
        coarse = rng.integers(0, 255, (56, 56, 3), dtype=np.uint8)
        image = coarse.repeat(4, axis=0).repeat(4, axis=1)
        for size in (_LARGE, _SMALL):
            part = image[: size[0], : size[1], : size[2]]
            _image_file(folder, row, size).write_bytes(zlib.compress(part.tobytes()))


def _image_file(folder: Path, row: int, size: tuple[int, ...]) -> Path:
    return folder / f"{row}-{size[0]}.z"


def _read_image(path: Path, size: tuple[int, ...]) -> np.ndarray:
    return np.frombuffer(zlib.decompress(path.read_bytes()), np.uint8).reshape(size)


def main(arguments: list[str]) -> None:
    """Prints all results as one line of JSON."""
    print(json.dumps([*measure(int(arguments[0]), json.loads(arguments[1]))]))


BENCHES = {"loader": run}
TABLES = {"loader": table}


if __name__ == "__main__":
    main(sys.argv[1:])
