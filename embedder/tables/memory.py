"""Memory that tables and their updates need, on the host and on each device."""

import math
import os
from collections.abc import Sequence

import jax
import numpy as np

from embedder.config import Config
from embedder.engine.devices import Demand, check_fits
from embedder.engine.layout import Layout
from embedder.engine.rules import row_rule
from embedder.errors import InputError
from embedder.settings import Interval
from embedder.tables.blocks import weight_dtype
from embedder.tables.encoded import TokenSource
from embedder.tables.loader import loader_workers, superblock_size
from embedder.tables.objective import num_positions
from embedder.tables.prepare import UPDATES_AT_ONCE
from embedder.tables.subwords import SUBWORDS_AT_ONCE, SubwordTable
from embedder.tables.update import state_shapes

_ROW_COPIES = 6  # arrays as large as the rows of an update that XLA keeps at once
_BUILDING = "building graph"
_KEPT_OF_BUILDING = 1 / 4  # memory that libraries keep when a graph is built; measured


def memory_needed(
    config: Config,
    encoded: TokenSource,
    superblock_size: int,
    factored: Sequence[str] = (),
    path_rows: int = 0,
    subwords: SubwordTable | None = None,
) -> dict[str, int]:
    """Host memory in bytes that a run needs at most, by purpose, beside Python and JAX.

    Args:
      config: resolved.
      superblock_size: updates in a superblock.
      factored: names of the tables whose rows have factors.
      path_rows: nodes of the longest path of hierarchical softmax; 0: there is none.
      subwords: of a model with subwords.
    """
    data = config.tables
    block, num_blocks = data.update_size
    num_rows = len(encoded.vocabulary)
    itemsize = np.dtype(config.run.dtype).itemsize
    width = -(-data.vector_size // 16) * 16  # padded as in the kernel
    table = num_rows * width * itemsize
    tables = (1 + data.num_output_tables) * table
    lists = 0
    if subwords is not None:
        tables += subwords.sizes.num_rows * width * itemsize
        lists = subwords.num_bytes
    gathered = 2 * block + block // data.tile * data.num_noise  # rows of a block
    gathered += block * (1 + path_rows) if path_rows else 0
    replicas, cores = config.run.replicas, data.threads or os.cpu_count() or 1
    threads = min(cores, num_blocks) if replicas == 1 else 1  # of an update
    at_once = min(cores, replicas)  # updates
    per_row = width * itemsize + 40 + 50 * threads  # gradient, lists, and those of each
    output_rows = num_rows * data.num_output_tables
    row_state = _row_state_bytes(config, (num_rows, data.vector_size), output_rows)
    has_checkpoints = config.save.interval != Interval()
    workers = loader_workers(config.run)
    num_shards = min(workers + 2, len(encoded.shard_tokens))
    shards = num_shards * int(max(encoded.shard_tokens, default=0))
    checkpoints = 2 * tables + 2 * row_state  # two of them
    superblocks = 3 * superblock_size * block * num_blocks
    per_token = (
        25 + 4 * data.num_noise / data.tile
    )  # draws, ids, sequence, radius; noise
    per_token += 4 * _weight_bytes(config)  # while they are packed
    if data.has_whole_sequences:  # padding, at most as much as tokens; positions
        per_token = 2 * per_token + 40
    needed = {
        "tables": replicas * tables,
        "lists of subwords": 2 * lists,  # while they are made
        "Huffman tree": 150 * num_rows if data.hs else 0,  # while it is made
        "accumulators": replicas * 2 * row_state,  # and the first ones
        "row factors": (replicas + 1) * len(factored) * num_rows * itemsize,
        "first vectors": replicas * table,
        "vectors to write": (replicas + 1) * table,
        "checkpoints": replicas * checkpoints if has_checkpoints else 0,
        "gradients": int(1.1 * at_once * num_blocks * gathered * per_row),
        "vocabulary": 150 * num_rows,
        **encoded.memory,
        "blocks": int(replicas * (shards + superblocks) * per_token),
        "held-out scores": 2**27 if data.holdout else 0,
        "TensorFlow": 650 * 2**20 if config.run.loader == "tfdata" else 0,
    }
    if _BUILDING in needed:  # it ends before there are tables
        building = needed[_BUILDING]
        later = sum(needed.values()) - building
        needed[_BUILDING] = max(int(_KEPT_OF_BUILDING * building), building - later)
    return needed


def device_bytes(
    config: Config,
    shape: tuple[int, int],
    layout: Layout,
    size: int,
    factored: Sequence[str] = (),
    path_rows: int = 0,
    subwords: SubwordTable | None = None,
) -> dict[str, int]:
    """Bytes of memory that a run needs on each device, by purpose.

    Args:
      config: resolved.
      shape: of the input table, [V, D].
      size: updates in a superblock.
      factored: names of the tables whose rows have factors.
      path_rows: nodes of the longest path of hierarchical softmax; 0: there is none.
      subwords: of a model with subwords.
    """
    data = config.tables
    block, num_blocks = data.update_size
    itemsize = np.dtype(config.run.dtype).itemsize
    sums_rows = row_rule(config.run.optimizer).sums_rows
    rows, columns = layout.device_shape(*shape)
    blocks = layout.num_blocks(num_blocks)
    local_blocks = blocks // layout.block_devices  # of one device
    tiles = block // data.tile
    positions = num_positions(block, data.tile, data.max_distance)
    rows_of_tile = data.tile + positions + data.num_noise
    if data.hs:
        rows_of_tile += positions + data.tile * path_rows
    output_rows, _ = layout.device_shape(shape[0] * data.num_output_tables, shape[1])
    weight = _weight_bytes(config)
    per_block = block * (9 + weight) + tiles * data.num_noise * 4
    prepared = tiles * rows_of_tile * (4 + itemsize)  # ids and weights of a block
    if factored:
        prepared += tiles * rows_of_tile * (4 + itemsize)  # ids that move; factors
    if sums_rows:
        prepared += tiles * rows_of_tile * (4 + 4)  # row and slot of each occurrence
    pairs = block * (positions + itemsize * (1 + bool(weight)))  # of local blocks
    platform = "cpu" if jax.default_backend() == "cpu" else "gpu"
    at_once = UPDATES_AT_ONCE[platform]
    row_copies = _ROW_COPIES + 2 * sums_rows  # summed gradients and deltas
    needed = {
        "tables": (rows + output_rows) * columns * itemsize,
        "accumulators": _row_state_bytes(config, (rows, columns), output_rows),
        "row factors": len(factored) * rows * itemsize,
        "row weights": 0 if sums_rows else at_once * (rows + output_rows) * itemsize,
        "blocks": 2 * size * local_blocks * per_block,
        "Huffman tree": 2 * (2 * shape[0] - 1) * 4 if data.hs else 0,
        "prepared updates": 2 * size * (blocks * prepared + local_blocks * pairs),
        "an update": row_copies * blocks * tiles * rows_of_tile * columns * itemsize,
    }
    if subwords is not None:
        rows, _ = layout.device_shape(subwords.sizes.num_rows, shape[1])
        words = blocks * tiles * positions  # of an update, at most
        needed["tables"] += rows * columns * itemsize
        needed["lists of subwords"] = subwords.num_bytes
        each = SUBWORDS_AT_ONCE[platform]
        if platform == "cpu" or subwords.sizes.longest > each:  # rows are stored
            needed["an update"] += 2 * words * each * columns * itemsize
        needed["row weights"] += rows * itemsize
    replicas = config.run.replicas // layout.replica_devices
    if data.hs:  # scores of all positions with all paths of a tile, and their terms
        scores = blocks * tiles * positions * data.tile * path_rows * itemsize
        needed["an update"] += 4 * scores
    return {purpose: replicas * bytes for purpose, bytes in needed.items()}


def _weight_bytes(config: Config) -> int:
    """Bytes of the weight of a token in a block; 0: blocks have no weights."""
    has_weights = bool(config.tables.weights)
    dtype = weight_dtype(has_weights, bootstrap=config.run.bootstrap)
    return 0 if dtype is None else np.dtype(dtype).itemsize


def _row_state_bytes(config: Config, shape: tuple[int, int], output_rows: int) -> int:
    """Bytes of what the optimizer keeps for the rows of both tables, [V, D] and
    [output_rows, D]."""
    rule = row_rule(config.run.optimizer)
    shapes = state_shapes(rule, shape, config.run.dtype, output_rows)
    arrays = rule.row_state(shapes.opt_state).values()
    return sum(math.prod(x.shape) * x.dtype.itemsize for x in arrays)


def demand(
    config: Config,
    shape: tuple[int, int],
    size: int = 0,
    factored: Sequence[str] = (),
    path_rows: int = 0,
    subwords: SubwordTable | None = None,
) -> Demand:
    """What tables of `shape` [V, D] require of the devices.

    Args:
      config: resolved.
      size: updates in a superblock; 0: those of a large corpus.
      factored: names of the tables whose rows have factors.
      path_rows: nodes of the longest path of hierarchical softmax; 0: there is none.
      subwords: of a model with subwords; its tables are not sharded by rows.

    Raises:
      InputError: `config` has dense updates of sharded tables.
    """
    options, sharding = config.tables, config.tables.table_sharding
    block, num_blocks = options.update_size
    if options.update == "dense" and sharding in ("columns", "rows"):
        raise InputError(
            f"`update` dense takes whole tables, got `table_sharding` = {sharding!r}."
        )
    is_whole = options.update == "dense" or (options.subwords and sharding == "auto")
    size = size or superblock_size(math.inf, block * num_blocks)
    return Demand(
        num_blocks=num_blocks,
        device_bytes=lambda layout: device_bytes(
            config, shape, layout, size, factored, path_rows, subwords
        ),
        option="blocks_per_update",
        tables="replicated" if is_whole else sharding,
        table_devices=options.table_devices,
        single_device_backend="numba" if options.backend == "numba" else "",
        replicas=config.run.replicas,
    )


def check_tables_fit(
    shape: tuple[int, int],
    required: Demand,
    layout: Layout,
    devices: Sequence[jax.Device] | None = None,
) -> None:
    """Checks that tables of `shape` [V, D] fit on the devices of `layout`.

    Args:
      devices: None: those of JAX.

    Raises:
      InputError: they do not fit; the message names a layout that would.
    """
    what = f"Tables of {shape[0]} x {shape[1]}"
    advice = "give a smaller `vector_size`, a larger `min_count`"
    if required.replicas > 1:
        what = f"{what} of {required.replicas} replicas"
        advice = f"give fewer `replicas`, {advice.removeprefix('give ')}"
    check_fits(what, required, layout, advice, devices)
