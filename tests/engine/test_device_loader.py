import jax
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

from embedder.engine.device_loader import DeviceLoader
from tests.commands import no_new_threads

MESH = Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("data", "tables"))
SPECS = {"ids": PartitionSpec(None, "data"), "rate": PartitionSpec()}


class Arrays:
    """A batch in memory."""

    def __init__(self, **arrays):
        self.arrays = arrays

    def shape(self, name):
        return self.arrays[name].shape

    def read(self, name, index):
        return self.arrays[name][index]


class Broken(Arrays):
    def read(self, name, index):
        if name == "rate":
            raise OSError(5, "the disk is gone", "corpus.txt")
        return super().read(name, index)


def batch(value: float, kind=Arrays) -> Arrays:
    return kind(ids=np.full((2, 4), value, np.int32), rate=np.full(2, float(value)))


def test_float64_stays_float64():
    with DeviceLoader([batch(1)], MESH, SPECS) as loader:
        arrays = next(loader)
    assert arrays["rate"].dtype == np.float64
    assert arrays["ids"].dtype == np.int32


@pytest.mark.parametrize("failing", [0, 3])
def test_an_error_of_a_reader_is_raised_unchanged(failing):
    batches = [batch(i, Broken if i == failing else Arrays) for i in range(6)]
    with no_new_threads():
        loader = DeviceLoader(batches, MESH, SPECS)
        for _ in range(failing):
            next(loader)
        with pytest.raises(OSError, match="the disk is gone") as error:
            next(loader)
    assert error.value.filename == "corpus.txt"
