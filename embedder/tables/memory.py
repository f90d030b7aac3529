"""How much memory tables and their updates need, on the host and on each device."""

import math
from collections.abc import Sequence

import jax
import numpy as np

from embedder.config import Config
from embedder.engine.devices import Demand, check_fits
from embedder.engine.layout import Layout
from embedder.errors import InputError
from embedder.settings import Interval
from embedder.tables.encoded import Encoded
from embedder.tables.loader import superblock_size

_PASSES = 6  # arrays as large as the rows of an update that XLA keeps at once


def memory_needed(
    config: Config, encoded: Encoded, superblock_size: int
) -> dict[str, int]:
    """Bytes that a run needs at most, by what needs them, beside Python and JAX.

    `config` is resolved; `superblock_size` is in updates.
    """
    data = config.tables
    num_rows = len(encoded.vocabulary)
    width = -(-data.vector_size // 16) * 16  # as wide as rows of the kernel are
    table = num_rows * width * np.dtype(config.run.dtype).itemsize
    is_saved = config.save.interval != Interval()
    num_shards = min(config.run.workers + 2, len(encoded.shard_tokens))
    shards = num_shards * int(max(encoded.shard_tokens, default=0))
    superblocks = 3 * superblock_size * data.block * data.blocks_per_update
    per_token = 25 + 4 * data.noise / data.tile  # draws, ids, sequence, radius; noise
    return {
        "tables": 2 * table,
        "first vectors": table,
        "vectors to write": 2 * table,
        "checkpoints": 4 * table if is_saved else 0,  # packed, and the one before
        "vocabulary": 150 * num_rows,
        "counting tokens": encoded.counting_bytes,
        "blocks": int((shards + superblocks) * per_token),
        "TensorFlow": 650 * 2**20 if config.run.loader == "tfdata" else 0,
    }


def device_bytes(
    config: Config, shape: tuple[int, int], layout: Layout, size: int
) -> dict[str, int]:
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


def demand(config: Config, shape: tuple[int, int], size: int = 0) -> Demand:
    """What tables of `shape`, [V, D], ask of devices.

    Args:
      config: resolved.
      size: updates in a superblock; 0: as of a large corpus.

    Raises:
      ValueError: dense updates of sharded tables are asked for.
    """
    options, sharding = config.tables, config.tables.table_sharding
    if options.update == "dense" and sharding in ("columns", "rows"):
        raise InputError(
            f"`update` dense takes whole tables, got `table_sharding` = {sharding!r}."
        )
    tokens = options.block * options.blocks_per_update
    size = size or superblock_size(math.inf, tokens)
    return Demand(
        num_blocks=options.blocks_per_update,
        device_bytes=lambda layout: device_bytes(config, shape, layout, size),
        option="blocks_per_update",
        tables="replicated" if options.update == "dense" else sharding,
        table_devices=options.table_devices,
        single_device_backend="numba" if options.backend == "numba" else "",
    )


def check_tables_fit(
    shape: tuple[int, int],
    asked: Demand,
    layout: Layout,
    devices: Sequence[jax.Device] | None = None,
) -> None:
    """Refuses tables of `shape` that do not fit on the devices of `layout`.

    Raises:
      ValueError: as said; the message says which layout would fit.
    """
    what = f"Tables of {shape[0]} x {shape[1]}"
    advice = "give a smaller `vector_size`, a larger `min_count`"
    check_fits(what, asked, layout, advice, devices)
