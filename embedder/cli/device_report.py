"""Placement of tables on the devices of this machine: `embedder devices`."""

import contextlib
import io
import math
from collections.abc import Iterator

import jax
from jax.sharding import NamedSharding, PartitionSpec

from embedder.config import Config, resolve
from embedder.engine.compilation import prepare_devices
from embedder.engine.devices import (
    Demand,
    all_layouts,
    capacity,
    devices_line,
    fits,
    pick_layout,
)
from embedder.engine.mesh_layout import MeshLayout, mesh_of, table_spec
from embedder.errors import InputError
from embedder.tokens.memory import demand
from embedder.tokens.train_step import TableParts


def devices_report(config: Config, num_rows: int) -> str:
    """Text: the devices, the layout that a run would use, and memory and sharding.

    Args:
      num_rows: tokens of the vocabulary.

    Raises:
      InputError: `num_rows` is below 1, or these devices cannot do what `config` says.
    """
    prepare_devices()
    if num_rows < 1:
        raise InputError(f"`vocabulary` must be an integer >= 1, got {num_rows}.")
    config = resolve(config, math.inf)
    shape = num_rows, config.tables.vector_size
    path_rows = 0
    if config.tables.has_node_output:  # about, of a text
        path_rows = math.ceil(math.log2(max(num_rows, 2))) + 4
    required = demand(config, shape, parts=TableParts(depth=path_rows))
    layout, reason = pick_layout(config.devices, required)
    return "\n".join(
        [
            _devices_line(),
            f"a run uses: {devices_line(required, layout, reason)}",
            "",
            *_layout_lines(required, shape, layout),
            "",
            *_sharding_drawings(config, shape, layout),
        ]
    )


def _devices_line() -> str:
    devices, local = jax.devices(), jax.local_devices()
    kinds = sorted({f"{d.platform} ({d.device_kind})" for d in devices})
    memory = min(capacity(d, len(local)) for d in local) / 2**30
    return (
        f"{len(devices)} devices: {', '.join(kinds)}; {memory:.2f} GiB each; "
        f"{len(local)} of them in process {jax.process_index()} of "
        f"{jax.process_count()}"
    )


def _layout_lines(
    required: Demand, shape: tuple[int, int], picked: MeshLayout
) -> Iterator[str]:
    """A heading, then for each layout MiB on each device, and whether they fit."""
    yield f"MiB on each device for tables of {shape[0]} x {shape[1]}:"
    candidates, on_mesh = all_layouts(len(jax.devices())), _on_mesh(picked)
    for layout in candidates if on_mesh in candidates else [on_mesh, *candidates]:
        needed = required.device_bytes(layout)
        parts = ", ".join(f"{name} {n / 2**20:.1f}" for name, n in needed.items())
        verdict = "fits" if fits(needed, jax.devices()) else "does not fit"
        yield (
            f"  {layout.tables}, {layout.data_devices} x {layout.table_devices}: "
            f"{sum(needed.values()) / 2**20:.1f}, {verdict} ({parts})"
        )


def _on_mesh(layout: MeshLayout) -> MeshLayout:
    """The layout as one over a mesh; pmap puts arrays on the same devices."""
    return layout if layout.mode == "jit" else layout._replace(mode="sharded")


def _sharding_drawings(
    config: Config, shape: tuple[int, int], layout: MeshLayout
) -> Iterator[str]:
    """The sharding of a table and of the blocks of an update, drawn by JAX."""
    layout = _on_mesh(layout)
    options = config.tables
    block, num_blocks = options.update_size
    rows, columns = layout.padded_shape(*shape)  # padded
    num_blocks = layout.num_blocks(num_blocks)
    blocks_spec = PartitionSpec(layout.exchange.blocks)
    table = f"a table, {rows} x {columns}"
    blocks = f"the blocks of an update, {num_blocks} x {block} tokens"
    yield _drawing(table, (rows, columns), layout, table_spec(layout))
    yield _drawing(blocks, (num_blocks, block), layout, blocks_spec)


def _drawing(
    title: str, shape: tuple[int, int], layout: MeshLayout, spec: PartitionSpec
) -> str:
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        sharding = NamedSharding(mesh_of(layout), spec)
        jax.debug.visualize_sharding(shape, sharding)
    return f"{title}:\n{text.getvalue().rstrip()}"
