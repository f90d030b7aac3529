"""Which devices a run takes, tested without such devices."""

import re
from typing import NamedTuple

import jax
import pytest

from embedder.config import Config, resolve, with_options
from embedder.engine.devices import pick_layout
from embedder.engine.layout import Layout
from embedder.tables.memory import check_tables_fit, demand, device_bytes

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


def pick(num_devices: int, device: Device | None = None, **options) -> Layout:
    devices = [device or Device()] * num_devices
    given = config(**options)
    return pick_layout(given.devices, demand(given, SHAPE), devices)[0]


@pytest.mark.parametrize(
    ("num_devices", "options", "layout"),
    [
        (1, {}, Layout()),
        (8, {}, Layout()),
        (8, {"blocks_per_update": 4}, Layout("sharded", "replicated", 4, 1)),
        (2, {"blocks_per_update": 4}, Layout("sharded", "replicated", 2, 1)),
        (8, {"blocks_per_update": 4, "devices": 1}, Layout()),
        (8, {"devices": 2}, Layout("sharded", "replicated", 2, 1)),
        (8, {"mode": "jit"}, Layout()),
        (8, {"mode": "sharded"}, Layout("sharded", "replicated", 8, 1)),
        (8, {"mode": "pmap", "devices": 4}, Layout("pmap", "replicated", 4, 1)),
        (8, {"table_sharding": "rows"}, Layout("sharded", "rows", 1, 8)),
        (
            8,
            {"table_sharding": "columns", "devices": 4},
            Layout("sharded", "columns", 1, 4),
        ),
        (
            8,
            {"table_sharding": "rows", "table_devices": 2},
            Layout("sharded", "rows", 4, 2),
        ),
        (8, {"mode": "pmap", "table_sharding": "rows"}, Layout("pmap", "rows", 1, 8)),
    ],
)
def test_the_layout_follows_the_options_and_the_work(num_devices, options, layout):
    assert pick(num_devices, **options) == layout


@pytest.mark.parametrize(
    ("layout", "rows"), [(Layout(), 1000), (Layout("sharded", "rows", 1, 8), 125)]
)
def test_accumulators_take_the_place_of_row_weights(layout, rows):
    sgd, adagrad = (
        device_bytes(config(optimizer=name), (1000, 96), layout, 16)
        for name in ("sgd", "adagrad")
    )
    assert sgd["row weights"] == adagrad["accumulators"] == 2 * rows * 4
    assert sgd["accumulators"] == adagrad["row weights"] == 0
    assert adagrad["tables"] == sgd["tables"]
    for name in ("prepared updates", "an update"):
        assert adagrad[name] > sgd[name]


@pytest.mark.parametrize(("backend", "updates"), [("cpu", 1), ("gpu", 16)])
def test_row_weights_of_several_updates_are_summed_at_once_on_a_gpu(
    monkeypatch, backend, updates
):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    needed = device_bytes(config(), (1000, 96), Layout(), 16)
    assert needed["row weights"] == 2 * updates * 1000 * 4


def test_tables_larger_than_a_device_are_sharded_by_rows():
    needed = sum(device_bytes(config(), SHAPE, Layout(), 1024).values())
    small = Device(memory=needed - 1)
    assert pick(4, small) == Layout("sharded", "rows", 1, 4)
    assert pick(4, small, mode="pmap") == Layout("pmap", "rows", 1, 4)
    assert pick(4, small._replace(memory=needed)) == Layout()


def test_dense_updates_keep_whole_tables_where_they_do_not_fit():
    """They would be wrong on split ones: what does not fit is refused later."""
    assert pick(4, Device(memory=1), update="dense").tables == "replicated"


def test_numba_takes_one_of_several_devices():
    assert pick(4, backend="numba", blocks_per_update=4) == Layout()


def test_cpu_devices_are_used_only_on_request():
    cpu = Device("cpu")
    assert pick(4, cpu, blocks_per_update=4) == Layout()
    assert pick(4, cpu, devices=4) == Layout("sharded", "replicated", 4, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"devices": 5},
            "`devices` must be at most 4, the number there is here, got 5",
        ),
        (
            {"table_sharding": "rows", "table_devices": 3},
            "`table_devices` must divide the number of devices, 4, got 3",
        ),
        (
            {"table_sharding": "rows", "devices": 2, "table_devices": 4},
            "`table_devices` must divide the number of devices, 2, got 4",
        ),
        (
            {"table_devices": 2},
            "`table_devices` needs `table_sharding` columns or rows, got 'auto' with "
            "`table_devices` = 2",
        ),
        (
            {"mode": "pmap", "table_sharding": "rows", "table_devices": 2},
            "`mode` pmap has one axis of devices: `table_devices` must be 0 or 4",
        ),
        (
            {"mode": "jit", "table_sharding": "rows"},
            "`mode` jit takes one device with whole tables, got `devices` = 0 and "
            "`table_sharding` = 'rows'",
        ),
        (
            {"mode": "jit", "devices": 2},
            "got `devices` = 2 and `table_sharding` = 'auto'",
        ),
        (
            {"update": "dense", "table_sharding": "columns"},
            "`update` dense takes whole tables, got `table_sharding` = 'columns'",
        ),
        (
            {"backend": "numba", "mode": "sharded"},
            "`backend` numba takes one process and one device, got `mode` = ",
        ),
    ],
)
def test_options_that_devices_cannot_meet_are_refused(options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        pick(4, **options)


LARGE = (100_000, 100)


def refusal(layout: Layout, memory: int, num_devices: int) -> str:
    devices = [Device(memory=memory)] * num_devices
    with pytest.raises(ValueError) as error:
        check_tables_fit(LARGE, demand(config(), LARGE, 16), layout, devices)
    return str(error.value)


def test_tables_that_fit_nowhere_are_refused_before_the_start():
    message = refusal(Layout(), memory=2**26, num_devices=1)
    assert message == (
        "Tables of 100000 x 100 need 77.9 MiB on each device with `table_sharding` = "
        "'replicated', and it has 64.0 MiB: no layout fits on the devices here: give a "
        "smaller `vector_size`, a larger `min_count`, or more devices."
    )


def test_the_layout_that_would_fit_is_named():
    whole = Layout("sharded", "replicated", 4, 1)
    message = refusal(whole, memory=2**26, num_devices=4)
    assert (
        "fit with `mode` = 'sharded' and `table_sharding` = 'columns' or 'rows'"
        in message
    )


def test_what_fits_is_not_refused():
    needed = sum(device_bytes(config(), LARGE, Layout(), 16).values())
    asked = demand(config(), LARGE, 16)
    check_tables_fit(LARGE, asked, Layout(), [Device(memory=needed)])


def test_sharding_divides_the_bytes_of_tables():
    whole, columns, rows = (
        device_bytes(config(), (1000, 96), layout, 16)["tables"]
        for layout in (
            Layout(),
            Layout("sharded", "columns", 1, 4),
            Layout("sharded", "rows", 1, 4),
        )
    )
    assert whole == 2 * 1000 * 96 * 4
    assert columns == rows == whole // 4
