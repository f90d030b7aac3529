import threading

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

from embedder.engine.device_loader import DeviceLoader

MESH = Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("data", "tables"))
SPECS = {"ids": PartitionSpec(None, "data"), "rate": PartitionSpec()}


class Arrays:
    """A batch in memory that counts what is read."""

    def __init__(self, **arrays):
        self.arrays = arrays
        self.reads = []

    def shape(self, name):
        return self.arrays[name].shape

    def read(self, name, index):
        self.reads.append((name, index))
        return self.arrays[name][index]


class Broken(Arrays):
    def read(self, name, index):
        if name == "rate":
            raise OSError(5, "the disk is gone", "corpus.txt")
        return super().read(name, index)


def batch(value: float, kind=Arrays) -> Arrays:
    return kind(
        ids=np.full((2, 4), int(value), np.int32), rate=np.full(2, value, np.float64)
    )


def test_batches_come_in_order_and_whole():
    with DeviceLoader(map(batch, range(5)), MESH, SPECS) as loader:
        values = [float(each["rate"][0]) for each in loader]
    assert values == [0, 1, 2, 3, 4]
    assert loader.position == 5


def test_float64_stays_float64():
    with DeviceLoader([batch(1)], MESH, SPECS) as loader:
        arrays = next(loader)
    assert arrays["rate"].dtype == np.float64
    assert arrays["ids"].dtype == np.int32


def test_no_more_batches_are_made_than_asked_for():
    made = []

    def batches():
        for value in range(100):
            made.append(value)
            yield batch(value)

    with DeviceLoader(batches(), MESH, SPECS, num_prefetched=2) as loader:
        next(loader)
    assert len(made) <= 5  # one given, two prefetched, and one being made


def test_close_ends_every_thread():
    before = threading.active_count()
    loader = DeviceLoader(map(batch, range(100)), MESH, SPECS, threads=3)
    next(loader)
    loader.close()
    assert threading.active_count() == before


@pytest.mark.parametrize("failing", [0, 3])
def test_an_error_of_a_reader_is_raised_unchanged(failing):
    before = threading.active_count()
    batches = [batch(i, Broken if i == failing else Arrays) for i in range(6)]
    loader = DeviceLoader(batches, MESH, SPECS)
    for _ in range(failing):
        next(loader)
    with pytest.raises(OSError, match="the disk is gone") as error:
        next(loader)
    assert error.value.filename == "corpus.txt"
    assert threading.active_count() == before


def test_an_error_of_the_source_is_raised_unchanged():
    def batches():
        yield batch(0)
        raise ValueError("no second batch")

    loader = DeviceLoader(batches(), MESH, SPECS)
    with pytest.raises(ValueError, match="no second batch"):
        list(loader)
