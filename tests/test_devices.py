"""Which devices a run takes, tested without such devices."""

from typing import NamedTuple

import pytest

from embedder.config import Config, resolve, with_options
from embedder.engine.devices import pick_layout
from embedder.engine.mesh_layout import MeshLayout
from embedder.tokens.memory import demand, device_bytes

SHAPE = (1000, 100)


class Device(NamedTuple):
    """A device as far as `pick_layout` looks at it."""

    platform: str = "gpu"
    memory: int = 2**40
    process_index: int = 0
    device_kind: str = "some GPU"

    def memory_stats(self):
        return {"bytes_limit": self.memory}


def config(**options) -> Config:
    """For a corpus so small that an update has one block."""
    return resolve(with_options(Config(), **options), 10**5)


def pick(num_devices: int, device: Device | None = None, **options) -> MeshLayout:
    devices = [device or Device()] * num_devices
    given = config(**options)
    return pick_layout(given.devices, demand(given, SHAPE), devices)[0]


SHARDED = MeshLayout("sharded", "replicated", 4, 1)
ROWS = MeshLayout("sharded", "rows", 1, 8)


LAYOUTS = [
    (1, {}, MeshLayout()),
    (8, {}, MeshLayout()),
    (8, {"blocks_per_update": 4}, SHARDED),
    (2, {"blocks_per_update": 4}, MeshLayout("sharded", "replicated", 2, 1)),
    (8, {"blocks_per_update": 4, "devices": 1}, MeshLayout()),
    (8, {"devices": 2}, MeshLayout("sharded", "replicated", 2, 1)),
    (8, {"mode": "jit"}, MeshLayout()),
    (8, {"mode": "sharded"}, MeshLayout("sharded", "replicated", 8, 1)),
    (8, {"mode": "pmap", "devices": 4}, MeshLayout("pmap", "replicated", 4, 1)),
    (8, {"table_sharding": "rows"}, ROWS),
    (4, {"table_sharding": "columns"}, MeshLayout("sharded", "columns", 1, 4)),
    (
        8,
        {"table_sharding": "rows", "table_devices": 2},
        MeshLayout("sharded", "rows", 4, 2),
    ),
    (8, {"mode": "pmap", "table_sharding": "rows"}, MeshLayout("pmap", "rows", 1, 8)),
    (4, {"backend": "numba", "blocks_per_update": 4}, MeshLayout()),
]


@pytest.mark.parametrize(("num_devices", "options", "layout"), LAYOUTS, ids=str)
def test_the_layout_follows_the_options_and_the_work(num_devices, options, layout):
    assert pick(num_devices, **options) == layout


def test_the_layout_follows_the_devices():
    """Dense updates would be wrong on split tables: what does not fit is refused later.
    Devices of a CPU are used only on request."""
    needed = sum(device_bytes(config(), SHAPE, MeshLayout(), 1024).values())
    small = Device(memory=needed - 1)
    assert pick(4, small) == MeshLayout("sharded", "rows", 1, 4)
    assert pick(4, small, mode="pmap") == MeshLayout("pmap", "rows", 1, 4)
    assert pick(4, small._replace(memory=needed)) == MeshLayout()
    assert pick(4, Device(memory=1), update="dense").tables == "replicated"
    cpu = Device("cpu")
    assert pick(4, cpu, blocks_per_update=4) == MeshLayout()
    assert pick(4, cpu, devices=4) == SHARDED


def test_devices_of_one_axis_share_tables_or_do_not():
    """More refusals: tests/refusals."""
    message = "`mode` pmap has one axis of devices: `table_devices` must be 0 or 4"
    with pytest.raises(ValueError, match=message):
        pick(4, mode="pmap", table_sharding="rows", table_devices=2)
