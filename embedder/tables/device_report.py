"""How tables lie on the devices here: `embedder devices`."""

import contextlib
import io
import math

import jax
from jax.sharding import NamedSharding

from embedder.config import Config, resolve
from embedder.engine.devices import (
    Demand,
    all_layouts,
    capacity,
    devices_line,
    fits,
    pick_layout,
)
from embedder.engine.layout import Layout, mesh_of, table_spec
from embedder.errors import InputError
from embedder.tables.memory import demand


def devices_report(config: Config, num_rows: int) -> str:
    """The devices here, what a run would take of them, and what each would hold.

    Args:
      num_rows: tokens of the vocabulary.

    Raises:
      ValueError: `config` asks for what these devices cannot do.
    """
    if num_rows < 1:
        raise InputError(f"`vocabulary` must be an integer >= 1, got {num_rows}.")
    config = resolve(config, math.inf)
    shape = num_rows, config.tables.vector_size
    asked = demand(config, shape)
    layout, reason = pick_layout(config.devices, asked)
    return "\n".join(
        [
            _devices_here(),
            f"train takes: {devices_line(asked, layout, reason)}",
            "",
            *_layout_lines(asked, shape, layout),
            "",
            *_drawings(config, shape, layout),
        ]
    )


def _devices_here() -> str:
    devices, local = jax.devices(), jax.local_devices()
    kinds = sorted({f"{d.platform} ({d.device_kind})" for d in devices})
    memory = min(capacity(d, len(local)) for d in local) / 2**30
    return (
        f"{len(devices)} devices: {', '.join(kinds)}; {memory:.2f} GiB each; process "
        f"{jax.process_index()} of {jax.process_count()} has {len(local)}"
    )


def _layout_lines(asked: Demand, shape: tuple[int, int], picked: Layout):
    """A line for each layout: MiB on each device, and whether they fit."""
    yield f"MiB on each device for tables of {shape[0]} x {shape[1]}:"
    every, as_listed = all_layouts(len(jax.devices())), _on_mesh(picked)
    for layout in every if as_listed in every else [as_listed, *every]:
        needed = asked.device_bytes(layout)
        parts = ", ".join(f"{name} {n / 2**20:.1f}" for name, n in needed.items())
        verdict = "fits" if fits(needed, jax.devices()) else "does not fit"
        yield (
            f"  {layout.tables}, {layout.data_devices} x {layout.table_devices}: "
            f"{sum(needed.values()) / 2**20:.1f}, {verdict} ({parts})"
        )


def _on_mesh(layout: Layout) -> Layout:
    """The same with axes that a mesh has; those of pmap lie alike."""
    return layout if layout.mode == "jit" else layout._replace(mode="sharded")


def _drawings(config: Config, shape: tuple[int, int], layout: Layout):
    """How arrays lie on the devices, drawn by JAX."""
    layout = _on_mesh(layout)
    mesh, data = mesh_of(layout), config.tables
    spec = jax.sharding.PartitionSpec(layout.exchange.blocks)
    wide = layout.padded_shape(*shape)
    for title, of, sharding in (
        (f"a table, {wide[0]} x {wide[1]}", wide, table_spec(layout)),
        (
            f"the blocks of an update, {layout.num_blocks(data.blocks_per_update)} x "
            f"{data.block} tokens",
            (layout.num_blocks(data.blocks_per_update), data.block),
            spec,
        ),
    ):
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            jax.debug.visualize_sharding(of, NamedSharding(mesh, sharding))
        yield f"{title}:\n{text.getvalue().rstrip()}"
