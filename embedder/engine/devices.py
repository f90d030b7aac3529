"""Picks the devices of a run and their layout, and checks that its arrays fit."""

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import jax

from embedder.base.limits import gib, memory_limit
from embedder.config.run_options import DeviceOptions
from embedder.engine.collectives import TableSplit
from embedder.engine.mesh_layout import ONE_DEVICE, MeshLayout
from embedder.errors import InputError


class Demand(NamedTuple):
    """What the updates of a training need of devices."""

    num_blocks: int
    """Parts of an update that devices can share: more devices would be idle."""
    device_bytes: Callable[[MeshLayout], dict[str, int]] = lambda _: {}
    """Bytes on each device of a layout, by purpose; for `tables` that may be split."""
    option: str = ""
    """The setting that gives `num_blocks`."""
    tables: Literal["auto"] | TableSplit = "replicated"
    """Sharding of the parameters; auto: by rows if they do not fit on one device."""
    table_devices: int = 0
    """Devices that share one copy of sharded parameters; 0: all."""
    single_device_backend: str = ""
    """The `backend` of the training if it runs on a single device only; else empty."""
    replicas: int = 1
    """Models that devices can share."""


def pick_layout(
    options: DeviceOptions, demand: Demand, devices: Sequence[jax.Device] | None = None
) -> tuple[MeshLayout, str]:
    """The layout of a run on `devices` (default: all), and the reason, as text.

    Raises:
      InputError: the options contradict each other, or the devices.
    """
    devices = devices or jax.devices()
    _check_request(options, demand, len(devices))
    if demand.single_device_backend:
        return ONE_DEVICE, f"{demand.single_device_backend} takes one"
    tables = _pick_tables(options, demand, devices)
    is_requested = options.mode in ("sharded", "pmap") or options.devices > 1
    if not is_requested and tables == "replicated" and jax.process_count() == 1:
        groups = math.gcd(demand.replicas, len(devices))
        data = min(len(devices) // groups, demand.num_blocks)
        reason = _single_device_reason(options, demand, devices)
        if reason or groups * data == 1:
            return ONE_DEVICE, reason or "there is work for one"
        layout = MeshLayout("sharded", "replicated", data, 1, groups)
        return layout, "an update has work for them"
    num = options.devices or len(devices)
    table_devices = 1 if tables == "replicated" else demand.table_devices or num
    _check_grid(options.mode, num, table_devices)
    mode = "sharded" if options.mode == "auto" else options.mode
    grid = num // table_devices
    groups = math.gcd(demand.replicas, grid)
    if mode == "pmap" and groups != num:  # it has one axis
        groups = 1
    layout = MeshLayout(mode, tables, grid // groups, table_devices, groups)
    if is_requested:
        return layout, "requested"
    if tables == "replicated":
        return layout, "all processes take part"
    return layout, f"tables are split by {tables}"


def capacity(device: jax.Device, num_local: int) -> int:
    """Bytes that `device` can hold; CPU devices share the memory of the process.

    Args:
      num_local: devices of this process.
    """
    stats = device.memory_stats() if device.platform != "cpu" else None
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"]
    size = memory_limit().size
    return size // num_local if device.platform == "cpu" else size


def fits(needed: dict[str, int], devices: Sequence[jax.Device]) -> bool:
    """Whether each of `devices` in this process can hold `needed`, bytes by purpose."""
    local = [d for d in devices if d.process_index == jax.process_index()]
    return all(sum(needed.values()) <= capacity(d, len(local)) for d in local)


def all_layouts(num_devices: int, replicas: int = 1) -> list[MeshLayout]:
    """The layouts that use all devices, from whole tables to the smallest shards."""
    groups = math.gcd(replicas, num_devices)
    if num_devices == 1:
        return [MeshLayout()]
    return [
        MeshLayout("sharded", "replicated", num_devices // groups, 1, groups),
        MeshLayout("sharded", "columns", 1, num_devices),
        MeshLayout("sharded", "rows", 1, num_devices),
    ]


def check_fits(
    subject: str,
    demand: Demand,
    layout: MeshLayout,
    advice: str,
) -> None:
    """Checks that `layout` fits on its devices, before anything is allocated.

    Args:
      subject: subject of the message, in the plural.
      advice: what to do if no layout fits.

    Raises:
      InputError: it does not fit; the message says which layout would.
    """
    devices, needed = jax.devices(), demand.device_bytes(layout)
    if fits(needed, devices[: layout.num_devices]):
        return
    every = all_layouts(len(devices), demand.replicas)
    others = every if demand.tables != "replicated" else [layout]
    fitting = [
        repr(other.tables)
        for other in others
        if fits(demand.device_bytes(other), devices)
    ]
    if fitting:
        advice = f"on all {len(devices)} devices they fit with `mode` = 'sharded' and "
        advice += f"`table_sharding` = {' or '.join(fitting)}"
    else:
        advice = f"no layout fits on the devices here: {advice}, or more devices"
    local = [d for d in devices if d.process_index == jax.process_index()]
    room = min(capacity(d, len(local)) for d in local)
    shared = f" of {memory_limit().source}" if local[0].platform == "cpu" else ""
    raise InputError(
        f"{subject} need {gib(sum(needed.values()))} on each device with "
        f"`table_sharding` = {layout.tables!r}, and it has {gib(room)}{shared}: "
        f"{advice}."
    )


def _check_request(options: DeviceOptions, demand: Demand, available: int) -> None:
    """Checks that the options agree with each other and with the devices."""
    if options.devices > available:
        raise InputError(
            f"`devices` must be at most {available}, the number there is here, got "
            f"{options.devices}."
        )
    num_processes = jax.process_count()
    if num_processes > 1 and (
        options.mode in ("jit", "pmap") or options.devices not in (0, available)
    ):
        raise InputError(
            f"Of {num_processes} processes all {available} devices take part: `mode` "
            f"must be sharded and `devices` 0, got {options.mode} and "
            f"{options.devices}."
        )
    splits = demand.tables in ("columns", "rows")
    if options.mode == "jit" and (splits or options.devices > 1):
        raise InputError(
            f"`mode` jit takes one device with whole tables, got `devices` = "
            f"{options.devices} and `table_sharding` = {demand.tables!r}."
        )
    is_one = (
        options.mode in ("auto", "jit") and options.devices < 2 and num_processes == 1
    )
    backend = demand.single_device_backend
    if backend and (splits or not is_one):
        raise InputError(
            f"`backend` {backend} takes one process and one device, got "
            f"`mode` = {options.mode!r}, `devices` = {options.devices} and "
            f"`table_sharding` = {demand.tables!r} in {num_processes} processes."
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
    groups = math.gcd(demand.replicas, len(devices))
    needed = demand.device_bytes(ONE_DEVICE._replace(replica_devices=groups))
    return "replicated" if fits(needed, devices) else "rows"


def _single_device_reason(options: DeviceOptions, demand: Demand, devices) -> str:
    """Why a run takes one device by default; empty: it may take more."""
    if options.mode == "jit" or options.devices == 1:
        return "requested"
    if len(devices) == 1:
        return "there is one"
    if devices[0].platform == "cpu":
        return "CPU devices share their cores"
    if demand.num_blocks == demand.replicas == 1:
        return f"`{demand.option}` = 1 has work for one of {len(devices)}"
    return ""


def devices_line(demand: Demand, layout: MeshLayout, reason: str) -> str:
    """The devices of `layout`, their shards and the `reason`, as one line."""
    if layout.mode == "jit":
        return f"1 ({jax.devices()[0].device_kind}): {reason}"
    blocks_per_device = layout.num_blocks(demand.num_blocks) // layout.block_devices
    idle = layout.block_devices - -(-demand.num_blocks // blocks_per_device)
    unused = f"; {idle} of them without a part of an update" if idle else ""
    grid = f"{layout.data_devices} x {layout.table_devices}"
    if layout.replica_devices > 1:
        grid = f"{layout.replica_devices} x {grid}"
    replicas = replicas_text(demand.replicas, layout)
    return (
        f"{layout.num_devices} as {grid}, by {layout.mode}, tables {layout.tables}"
        f"{replicas}: {reason}{unused}"
    )


def replicas_text(replicas: int, layout: MeshLayout) -> str:
    """Which replicas each device has; empty: there is one model."""
    if replicas == 1:
        return ""
    if layout.replica_devices == 1:
        return f", all {replicas} replicas on each"
    return f", {replicas // layout.replica_devices} of {replicas} replicas on each"
