"""What a run would do, and on which devices, without doing it."""

import contextlib
import io
import math
import tempfile
from pathlib import Path

import jax
from jax.sharding import NamedSharding

from embedder.config import Config, resolve, to_toml
from embedder.encoders.training import EncoderTraining
from embedder.engine.devices import (
    capacity,
    device_bytes,
    devices_line,
    fits,
    layouts,
    pick_layout,
)
from embedder.engine.layout import Layout, mesh_of, table_spec
from embedder.engine.memory import memory_lines
from embedder.run.train import open_job
from embedder.tables.loader import superblock_size
from embedder.tables.problem import Base
from embedder.tables.training import Training


def preview(
    config: Config,
    source: str | None,
    base: Base | None = None,
    *,
    cache: Path | None = None,
) -> str:
    """What `train` would do, as text; nothing is written but to `cache`, if given.

    Raises:
      OSError, ValueError: bad input.
    """
    with tempfile.TemporaryDirectory() as temporary:
        job = open_job(config, source, base)
        training = job.plan(config, cache or Path(temporary))
        if isinstance(training, EncoderTraining):
            about = [_examples_line(training)]
        else:
            about = [
                _vocabulary_line(training),
                _updates_line(training),
                _schedule_line(training),
            ]
        devices = f"devices: {training.devices_line}"
        toml = to_toml(training.config)
        return "\n".join([toml, *about, devices, *memory_lines(training)])


def _examples_line(training: EncoderTraining) -> str:
    source, examples = training.source, training.examples
    return (
        f"examples: {len(examples.labels)} of {len(examples.classes)} classes, "
        f"{len(source.train)} to train on, in {source.num_batches} updates an epoch"
    )


def _vocabulary_line(training: Training) -> str:
    encoded = training.encoded
    return (
        f"vocabulary: {len(encoded.vocabulary)} tokens, {encoded.num_tokens} of "
        f"{encoded.raw_tokens} occurrences"
    )


def _updates_line(training: Training) -> str:
    data, kept = training.config.tables, training.kept_tokens
    tokens = data.block * data.blocks_per_update
    updates = -int(-kept // tokens)
    return (
        f"updates: {updates} an epoch on average, "
        f"{updates * len(training.epochs)} in all, of {tokens} tokens each, compiled "
        f"by {training.backend}; "
        f"sample keeps {kept / training.encoded.num_tokens:.1%}"
    )


def _schedule_line(training: Training) -> str:
    rates = ", ".join(f"{training.rate(p):.4g}" for p in (0, 0.25, 0.5, 0.75, 1))
    return f"learning rate at 0, 25, 50, 75, 100 %: {rates}"


def devices_report(config: Config, num_rows: int) -> str:
    """The devices here, what a run would take of them, and what each would hold.

    Args:
      num_rows: tokens of the vocabulary.

    Raises:
      ValueError: `config` asks for what these devices cannot do.
    """
    if num_rows < 1:
        raise ValueError(f"`vocabulary` must be an integer >= 1, got {num_rows}.")
    config = resolve(config, math.inf)
    shape = num_rows, config.tables.vector_size
    layout, reason = pick_layout(config, shape)
    return "\n".join(
        [
            _devices_here(),
            f"train takes: {devices_line(config, layout, reason)}",
            "",
            *_layout_lines(config, shape, layout),
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


def _layout_lines(config: Config, shape: tuple[int, int], picked: Layout):
    """A line for each layout: MiB on each device, and whether they fit."""
    data = config.tables
    size = superblock_size(math.inf, data.block * data.blocks_per_update)
    yield f"MiB on each device for tables of {shape[0]} x {shape[1]}:"
    every, as_listed = layouts(len(jax.devices())), _on_mesh(picked)
    for layout in every if as_listed in every else [as_listed, *every]:
        needed = device_bytes(config, shape, layout, size)
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
