"""The report of `embedder devices`: devices, memory, and sharding of the tables."""

import contextlib
import io
import math

import jax
from jax.sharding import NamedSharding

from embedder.config import Config, resolve
from embedder.engine.devices import (
    Demand,
    capacity,
    devices_line,
    fits,
    layouts,
    pick_layout,
)
from embedder.engine.layout import Layout, mesh_of, table_spec
from embedder.errors import InputError
from embedder.tables.memory import demand


def devices_report(config: Config, num_rows: int) -> str:
    """The devices of this machine, and how a run would use them, as text.

    Args:
      num_rows: tokens of the vocabulary.

    Raises:
      InputError: these devices cannot do what `config` requests.
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
            f"a run uses: {devices_line(asked, layout, reason)}",
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
        f"{len(devices)} devices: {', '.join(kinds)}; {memory:.2f} GiB each; "
        f"{len(local)} of them in process {jax.process_index()} of "
        f"{jax.process_count()}"
    )


def _layout_lines(asked: Demand, shape: tuple[int, int], picked: Layout):
    """A line per layout: MiB needed on each device, and whether that fits."""
    yield f"MiB on each device for tables of {shape[0]} x {shape[1]}:"
    every, as_listed = layouts(len(jax.devices())), _on_mesh(picked)
    for layout in every if as_listed in every else [as_listed, *every]:
        needed = asked.device_bytes(layout)
        parts = ", ".join(f"{name} {n / 2**20:.1f}" for name, n in needed.items())
        verdict = "fits" if fits(needed, jax.devices()) else "does not fit"
        yield (
            f"  {layout.tables}, {layout.data_devices} x {layout.table_devices}: "
            f"{sum(needed.values()) / 2**20:.1f}, {verdict} ({parts})"
        )


def _on_mesh(layout: Layout) -> Layout:
    """`layout` with the axes of a mesh; pmap shards in the same way."""
    return layout if layout.mode == "jit" else layout._replace(mode="sharded")


def _drawings(config: Config, shape: tuple[int, int], layout: Layout):
    """Drawings by JAX of the sharding of arrays."""
    layout = _on_mesh(layout)
    mesh, data = mesh_of(layout), config.tables
    spec = jax.sharding.PartitionSpec(layout.exchange.blocks)
    wide = layout.whole_shape(*shape)
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
