"""Which devices a run takes, how its arrays lie on them, and whether they fit."""

import math
from collections.abc import Sequence

import jax
import numpy as np

from embedder.config import Config
from embedder.engine.exchange import TableSplit
from embedder.engine.layout import ONE_DEVICE, Layout
from embedder.limits import gib, memory_limit
from embedder.tables.loader import superblock_size

_PASSES = 6  # arrays as large as the rows of an update that XLA keeps at once


def pick_layout(
    config: Config, shape: tuple[int, int], devices: Sequence[jax.Device] | None = None
) -> tuple[Layout, str]:
    """The layout of a run with tables of `shape`, [V, D], and why it is this one.

    `config` is resolved.

    Raises:
      ValueError: it asks for what these devices cannot do.
    """
    devices = devices or jax.devices()
    parallel, options = config.devices, config.tables
    _check_request(config, len(devices))
    if config.tables.backend == "numba":
        return ONE_DEVICE, "numba takes one"
    tables = _pick_tables(config, shape, devices)
    asks = parallel.mode in ("sharded", "pmap") or parallel.devices > 1
    if not asks and tables == "replicated" and jax.process_count() == 1:
        work = min(len(devices), parallel.devices or config.tables.blocks_per_update)
        reason = _why_one(config, devices)
        if reason or work == 1:
            return Layout(), reason or "there is work for one"
        return Layout("sharded", "replicated", work, 1), "an update has work for them"
    num = parallel.devices or len(devices)
    table_devices = 1 if tables == "replicated" else options.table_devices or num
    _check_grid(parallel.mode, num, table_devices)
    mode = "sharded" if parallel.mode == "auto" else parallel.mode
    layout = Layout(mode, tables, num // table_devices, table_devices)
    if asks:
        return layout, "they are asked for"
    if tables == "replicated":
        return layout, "all processes take part"
    return layout, f"tables are split by {tables}"


def device_bytes(config: Config, shape: tuple[int, int], layout: Layout, size: int):
    """Bytes that a run needs on each device, by what needs them.

    Args:
      shape: of a table, [V, D].
      size: updates in a superblock.
    """
    data = config.tables
    itemsize = np.dtype(config.run.dtype).itemsize
    rows, columns = layout.device_shape(*shape)
    blocks = layout.num_blocks(data.blocks_per_update)
    own_blocks = blocks // layout.block_devices
    tiles = data.block // data.tile
    rows_of_tile = 2 * data.tile + 2 * data.window + data.noise
    per_block = data.block * 9 + tiles * data.noise * 4
    positions = data.tile + 2 * data.window
    prepared = tiles * rows_of_tile * (4 + itemsize)  # ids and weights, of all blocks
    pairs = data.block * (positions + itemsize)  # of own blocks
    return {
        "tables": 2 * rows * columns * itemsize,
        "row weights": 2 * rows * itemsize,
        "blocks": 2 * size * own_blocks * per_block,
        "prepared updates": 2 * size * (blocks * prepared + own_blocks * pairs),
        "an update": _PASSES * blocks * tiles * rows_of_tile * columns * itemsize,
    }


def capacity(device: jax.Device, num_local: int) -> int:
    """Bytes that `device` can hold; CPU devices share that of the process."""
    stats = device.memory_stats() if device.platform != "cpu" else None
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"]
    size = memory_limit().size
    return size // num_local if device.platform == "cpu" else size


def fits(needed: dict[str, int], devices: Sequence[jax.Device]) -> bool:
    """Whether every one of `devices` of this process can hold what is needed."""
    local = [d for d in devices if d.process_index == jax.process_index()]
    return all(sum(needed.values()) <= capacity(d, len(local)) for d in local)


def layouts(num_devices: int) -> list[Layout]:
    """The layouts of all devices, of those that hold most of a table to the least."""
    if num_devices == 1:
        return [Layout()]
    return [
        Layout("sharded", "replicated", num_devices, 1),
        Layout("sharded", "columns", 1, num_devices),
        Layout("sharded", "rows", 1, num_devices),
    ]


def check_devices(
    config: Config,
    shape: tuple[int, int],
    layout: Layout,
    size: int,
    devices: Sequence[jax.Device] | None = None,
) -> None:
    """Refuses a layout that does not fit on the devices, before anything is made.

    Raises:
      ValueError: as said; the message says which layout would fit.
    """
    devices = devices or jax.devices()
    needed = device_bytes(config, shape, layout, size)
    if fits(needed, devices[: layout.num_devices]):
        return
    found = [
        repr(other.tables)
        for other in layouts(len(devices))
        if fits(device_bytes(config, shape, other, size), devices)
        and (config.tables.update == "rows" or other.tables == "replicated")
    ]
    if found:
        advice = f"on all {len(devices)} devices they fit with `mode` = 'sharded' and "
        advice += f"`tables` = {' or '.join(found)}"
    else:
        advice = "no layout fits on the devices here: give a smaller `vector_size`, a "
        advice += "larger `min_count`, or more devices"
    local = [d for d in devices if d.process_index == jax.process_index()]
    room = min(capacity(d, len(local)) for d in local)
    shared = f" of {memory_limit().source}" if local[0].platform == "cpu" else ""
    raise ValueError(
        f"Tables of {shape[0]} x {shape[1]} need {gib(sum(needed.values()))} on each "
        f"device with `tables` = {layout.tables!r}, and it has {gib(room)}{shared}: "
        f"{advice}."
    )


def _check_request(config: Config, available: int) -> None:
    """Refuses options that contradict each other, or what is there."""
    parallel, options = config.devices, config.tables
    if parallel.devices > available:
        raise ValueError(
            f"`devices` must be at most {available}, the number there is here, got "
            f"{parallel.devices}."
        )
    several = jax.process_count()
    if several > 1 and (
        parallel.mode in ("jit", "pmap") or parallel.devices not in (0, available)
    ):
        raise ValueError(
            f"Of {several} processes all {available} devices take part: `mode` must be "
            f"sharded and `devices` 0, got {parallel.mode} and {parallel.devices}."
        )
    splits = options.tables in ("columns", "rows")
    if parallel.mode == "jit" and (splits or parallel.devices > 1):
        raise ValueError(
            f"`mode` jit takes one device with whole tables, got `devices` = "
            f"{parallel.devices} and `tables` = {options.tables!r}."
        )
    if splits and options.update == "dense":
        raise ValueError(
            f"`update` dense takes whole tables, got `tables` = {options.tables!r}."
        )
    if options.table_devices > 1 and not splits:
        raise ValueError(
            "`table_devices` needs `tables` columns or rows, got "
            f"{options.tables!r} with `table_devices` = {options.table_devices}."
        )
    is_one = parallel.mode in ("auto", "jit") and parallel.devices < 2 and several == 1
    if options.backend == "numba" and (splits or not is_one):
        raise ValueError(
            "`backend` numba takes one process and one device, got `mode` = "
            f"{parallel.mode!r}, `devices` = {parallel.devices} and `tables` = "
            f"{options.tables!r} in {several} processes."
        )


def _check_grid(mode: str, num: int, table_devices: int) -> None:
    if num % table_devices:
        raise ValueError(
            f"`table_devices` must divide the number of devices, {num}, got "
            f"{table_devices}."
        )
    if mode == "pmap" and 1 < table_devices < num:
        raise ValueError(
            f"`mode` pmap has one axis of devices: `table_devices` must be 0 or {num}, "
            f"got {table_devices}."
        )


def _pick_tables(config: Config, shape, devices) -> TableSplit:
    parallel, options = config.devices, config.tables
    if options.tables != "auto":
        return options.tables
    is_dense = config.tables.update == "dense"
    if is_dense or len(devices) == 1 or parallel.mode == "jit":
        return "replicated"
    size = superblock_size(math.inf, options.block * options.blocks_per_update)
    needed = device_bytes(config, shape, ONE_DEVICE, size)
    return "replicated" if fits(needed, devices) else "rows"


def _why_one(config: Config, devices) -> str:
    """Why a run that asks for nothing takes one device; empty: it may take more."""
    blocks = config.tables.blocks_per_update
    if config.devices.mode == "jit" or config.devices.devices == 1:
        return "that is asked for"
    if len(devices) == 1:
        return "there is one"
    if devices[0].platform == "cpu":
        return "those of a CPU share its cores"
    if blocks == 1:
        return f"`blocks_per_update` = 1 has work for one of {len(devices)}"
    return ""


def devices_line(config: Config, layout: Layout, reason: str) -> str:
    """Which devices take part, what each has, and the `reason` for that."""
    if layout.mode == "jit":
        return f"1 ({jax.devices()[0].device_kind}): {reason}"
    idle = _num_idle(layout, config.tables.blocks_per_update)
    unused = f"; {idle} of them without a block of an update" if idle else ""
    return (
        f"{layout.num_devices} as {layout.data_devices} x {layout.table_devices}, by "
        f"{layout.mode}, tables {layout.tables}: {reason}{unused}"
    )


def _num_idle(layout: Layout, blocks_per_update: int) -> int:
    """How many of the devices that share blocks get empty ones alone."""
    blocks = layout.num_blocks(blocks_per_update) // layout.block_devices
    return layout.block_devices - -(-blocks_per_update // blocks)
