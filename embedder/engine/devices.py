"""Which devices a run takes, in which layout, and whether its arrays fit on them."""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import jax

from embedder.engine.exchange import TableSplit
from embedder.engine.layout import ONE_DEVICE, Layout
from embedder.errors import InputError
from embedder.limits import gib, memory_limit
from embedder.options import DeviceOptions


class Demand(NamedTuple):
    """What the updates of a family ask of devices."""

    num_blocks: int
    """Parts of an update that devices can share: no more of them have work."""
    device_bytes: Callable[[Layout], dict[str, int]]
    """Bytes on each device of a layout, by what needs them."""
    option: str = ""
    """The setting that gives `num_blocks`."""
    tables: Literal["auto"] | TableSplit = "replicated"
    """How parameters are sharded; auto: by rows where they do not fit on a device."""
    table_devices: int = 0
    """Devices that share one copy of sharded parameters; 0: all."""
    one_device: str = ""
    """The setting that allows one process and one device alone; empty: none does."""


def pick_layout(
    options: DeviceOptions,
    demand: Demand,
    devices: Sequence[jax.Device] | None = None,
) -> tuple[Layout, str]:
    """The layout of a run, and why it is this one.

    Raises:
      ValueError: the options ask for what these devices cannot do.
    """
    devices = devices or jax.devices()
    _check_request(options, demand, len(devices))
    if demand.one_device:
        return ONE_DEVICE, f"{demand.one_device} takes one"
    tables = _pick_tables(options, demand, devices)
    asks = options.mode in ("sharded", "pmap") or options.devices > 1
    if not asks and tables == "replicated" and jax.process_count() == 1:
        work = min(len(devices), options.devices or demand.num_blocks)
        reason = _why_one(options, demand, devices)
        if reason or work == 1:
            return ONE_DEVICE, reason or "there is work for one"
        return Layout("sharded", "replicated", work, 1), "an update has work for them"
    num = options.devices or len(devices)
    table_devices = 1 if tables == "replicated" else demand.table_devices or num
    _check_grid(options.mode, num, table_devices)
    mode = "sharded" if options.mode == "auto" else options.mode
    layout = Layout(mode, tables, num // table_devices, table_devices)
    if asks:
        return layout, "they are asked for"
    if tables == "replicated":
        return layout, "all processes take part"
    return layout, f"tables are split by {tables}"


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


def check_fits(
    what: str,
    demand: Demand,
    layout: Layout,
    advice: str,
    devices: Sequence[jax.Device] | None = None,
) -> None:
    """Refuses a layout that does not fit on the devices, before anything is made.

    Args:
      what: what is too large, in the plural.
      advice: what to do where no layout fits.

    Raises:
      ValueError: as said; the message says which layout would fit.
    """
    devices = devices or jax.devices()
    needed = demand.device_bytes(layout)
    if fits(needed, devices[: layout.num_devices]):
        return
    others = layouts(len(devices)) if demand.tables != "replicated" else [layout]
    found = [
        repr(other.tables)
        for other in others
        if fits(demand.device_bytes(other), devices)
    ]
    if found:
        advice = f"on all {len(devices)} devices they fit with `mode` = 'sharded' and "
        advice += f"`table_sharding` = {' or '.join(found)}"
    else:
        advice = f"no layout fits on the devices here: {advice}, or more devices"
    local = [d for d in devices if d.process_index == jax.process_index()]
    room = min(capacity(d, len(local)) for d in local)
    shared = f" of {memory_limit().source}" if local[0].platform == "cpu" else ""
    raise InputError(
        f"{what} need {gib(sum(needed.values()))} on each device with "
        f"`table_sharding` = {layout.tables!r}, and it has {gib(room)}{shared}: "
        f"{advice}."
    )


def _check_request(options: DeviceOptions, demand: Demand, available: int) -> None:
    """Refuses options that contradict each other, or what is there."""
    if options.devices > available:
        raise InputError(
            f"`devices` must be at most {available}, the number there is here, got "
            f"{options.devices}."
        )
    several = jax.process_count()
    if several > 1 and (
        options.mode in ("jit", "pmap") or options.devices not in (0, available)
    ):
        raise InputError(
            f"Of {several} processes all {available} devices take part: `mode` must be "
            f"sharded and `devices` 0, got {options.mode} and {options.devices}."
        )
    splits = demand.tables in ("columns", "rows")
    if options.mode == "jit" and (splits or options.devices > 1):
        raise InputError(
            f"`mode` jit takes one device with whole tables, got `devices` = "
            f"{options.devices} and `table_sharding` = {demand.tables!r}."
        )
    if demand.table_devices > 1 and not splits:
        raise InputError(
            "`table_devices` needs `table_sharding` columns or rows, got "
            f"{demand.tables!r} with `table_devices` = {demand.table_devices}."
        )
    is_one = options.mode in ("auto", "jit") and options.devices < 2 and several == 1
    if demand.one_device and (splits or not is_one):
        raise InputError(
            f"`backend` {demand.one_device} takes one process and one device, got "
            f"`mode` = {options.mode!r}, `devices` = {options.devices} and "
            f"`table_sharding` = {demand.tables!r} in {several} processes."
        )


def _check_grid(mode: str, num: int, table_devices: int) -> None:
    if num % table_devices:
        raise InputError(
            f"`table_devices` must divide the number of devices, {num}, got "
            f"{table_devices}."
        )
    if mode == "pmap" and 1 < table_devices < num:
        raise InputError(
            f"`mode` pmap has one axis of devices: `table_devices` must be 0 or {num}, "
            f"got {table_devices}."
        )


def _pick_tables(options: DeviceOptions, demand: Demand, devices) -> TableSplit:
    if demand.tables != "auto":
        return demand.tables
    if len(devices) == 1 or options.mode == "jit":
        return "replicated"
    needed = demand.device_bytes(ONE_DEVICE)
    return "replicated" if fits(needed, devices) else "rows"


def _why_one(options: DeviceOptions, demand: Demand, devices) -> str:
    """Why a run that asks for nothing takes one device; empty: it may take more."""
    if options.mode == "jit" or options.devices == 1:
        return "that is asked for"
    if len(devices) == 1:
        return "there is one"
    if devices[0].platform == "cpu":
        return "those of a CPU share its cores"
    if demand.num_blocks == 1:
        return f"`{demand.option}` = 1 has work for one of {len(devices)}"
    return ""


def devices_line(demand: Demand, layout: Layout, reason: str) -> str:
    """Which devices take part, what each has, and the `reason` for that."""
    if layout.mode == "jit":
        return f"1 ({jax.devices()[0].device_kind}): {reason}"
    idle = _num_idle(layout, demand.num_blocks)
    unused = f"; {idle} of them without a part of an update" if idle else ""
    return (
        f"{layout.num_devices} as {layout.data_devices} x {layout.table_devices}, by "
        f"{layout.mode}, tables {layout.tables}: {reason}{unused}"
    )


def _num_idle(layout: Layout, num_blocks: int) -> int:
    """How many of the devices that share blocks get empty ones alone."""
    blocks = layout.num_blocks(num_blocks) // layout.block_devices
    return layout.block_devices - -(-num_blocks // blocks)
