"""Memory that tables and their updates need, on the host and on each device."""

import math
import os

import jax
import numpy as np

from embedder.config import Config
from embedder.config.settings import Interval
from embedder.config.token_options import TokensOptions
from embedder.data.blocks import weight_dtype
from embedder.data.encoded import TokenSource
from embedder.engine.devices import Demand, check_fits
from embedder.engine.mesh_layout import MeshLayout
from embedder.engine.rules import row_rule
from embedder.metrics.next_item_baselines import NEAR_ITEMS, SECOND_ORDER_ITEMS
from embedder.metrics.ranking import STEPS
from embedder.tokens.loader import choose_updates_per_call, loader_workers
from embedder.tokens.objective import num_positions
from embedder.tokens.prepare import UPDATES_AT_ONCE
from embedder.tokens.subwords import SUBWORDS_AT_ONCE
from embedder.tokens.train_step import TableParts, state_shapes

_ROW_COPIES = 6  # arrays as large as the rows of an update that XLA keeps at once
_BUILDING = "building graph"
_KEPT_OF_BUILDING = 1 / 4  # memory that libraries keep when a graph is built; measured


def memory_needed(
    config: Config,
    encoded: TokenSource,
    updates_per_call: int,
    parts: TableParts,
) -> dict[str, int]:
    """Host memory in bytes that a run needs at most, by purpose, beside Python and JAX.

    Args:
      config: resolved.
      updates_per_call: of a compiled call.
    """
    options, subwords = config.tables, parts.subwords
    block, num_blocks = options.update_size
    num_rows = len(encoded.vocabulary)
    itemsize = np.dtype(config.run.dtype).itemsize
    width = -(-options.vector_size // 16) * 16  # padded as in the kernel
    table = num_rows * width * itemsize
    tables = (1 + options.num_output_tables) * table
    lists = 0
    if subwords is not None:
        tables += subwords.num_rows * width * itemsize
        lists = subwords.num_bytes
    gathered = 2 * block + block // options.tile * options.num_noise  # rows of a block
    gathered += block * (1 + parts.depth) if parts.depth else 0
    replicas, cores = config.run.replicas, options.threads or os.cpu_count() or 1
    threads = min(cores, num_blocks) if replicas == 1 else 1  # of an update
    at_once = min(cores, replicas)  # updates
    per_row = width * itemsize + 40 + 50 * threads  # gradient, lists, and those of each
    output_rows = num_rows * options.num_output_tables
    row_state = _row_state_bytes(config, (num_rows, options.vector_size), output_rows)
    has_checkpoints = config.save.interval != Interval()
    workers = loader_workers(config.run)
    num_shards = min(workers + 2, len(encoded.shard_tokens))
    shards = num_shards * int(max(encoded.shard_tokens, default=0))
    checkpoints = 2 * tables + 2 * row_state  # two of them
    chunks = 3 * updates_per_call * block * num_blocks
    # draws, ids, sequence, radius; noise
    per_token = 25 + 4 * options.num_noise / options.tile
    per_token += 4 * _weight_bytes(config)  # while they are packed
    if options.has_whole_sequences:  # padding, at most as much as tokens; positions
        per_token = 2 * per_token + 40
    needed = {
        "tables": replicas * tables,
        "lists of subwords": 2 * lists,  # while they are made
        "Huffman tree": 150 * num_rows * options.has_node_output,  # while it is made
        "accumulators": replicas * 2 * row_state,  # and the first ones
        "row factors": (replicas + 1) * len(parts.factored) * num_rows * itemsize,
        "first vectors": replicas * table,
        "vectors to write": (replicas + 1) * table,
        "checkpoints": replicas * checkpoints if has_checkpoints else 0,
        "gradients": int(1.1 * at_once * num_blocks * gathered * per_row),
        "vocabulary": 150 * num_rows,
        **encoded.memory,
        "blocks": int(replicas * (shards + chunks) * per_token),
        "held-out scores": _scores_bytes(options, num_rows, itemsize),
        "counts of sessions": options.next_items * counts_bytes(num_rows, encoded),
        "TensorFlow": 650 * 2**20 if config.run.loader == "tfdata" else 0,
    }
    if _BUILDING in needed:  # it ends before there are tables
        building = needed[_BUILDING]
        later = sum(needed.values()) - building
        needed[_BUILDING] = max(int(_KEPT_OF_BUILDING * building), building - later)
    return needed


def _scores_bytes(options: TokensOptions, num_rows: int, itemsize: int) -> int:
    """Bytes for scores on what is held out, at most; those of parts of a mixture have
    some 2,000 sessions at a time, and the C library keeps what threads have freed."""
    if not options.holdout:
        return 0
    copy = num_rows * options.vector_size * itemsize  # of output rows
    steps = 8 * (NEAR_ITEMS + SECOND_ORDER_ITEMS) * num_rows * options.next_items
    return min(2**29, 2**27 + 100_000 * num_rows * options.next_items) + steps + copy


def counts_bytes(num_items: int, encoded: TokenSource) -> int:
    """Bytes of the counts of `next_items` at most, in memory; their file has a third.

    A pair of items takes 8 bytes, while counts are added up three times.
    """
    pairs = min((STEPS + 1) * encoded.num_tokens, 2 * num_items**2)
    return 24 * pairs + 16 * encoded.num_tokens


def device_bytes(
    config: Config,
    shape: tuple[int, int],
    layout: MeshLayout,
    size: int,
    parts: TableParts = TableParts(),  # noqa: B008 - it is immutable
) -> dict[str, int]:
    """Bytes of memory that a run needs on each device, by purpose.

    Args:
      config: resolved.
      shape: of the input table, [V, D].
      size: updates in a chunk.
    """
    options, subwords, factored = config.tables, parts.subwords, parts.factored
    block, num_blocks = options.update_size
    itemsize = np.dtype(config.run.dtype).itemsize
    sums_rows = row_rule(config.run.optimizer).sums_rows
    rows, columns = layout.device_shape(*shape)
    blocks = layout.num_blocks(num_blocks)
    local_blocks = blocks // layout.block_devices  # of one device
    tiles = block // options.tile
    positions = num_positions(block, options.tile, options.max_distance)
    rows_of_tile = options.tile + positions + options.num_noise
    if options.has_node_output:
        rows_of_tile += positions + options.tile * parts.depth
    output_rows, _ = layout.device_shape(shape[0] * options.num_output_tables, shape[1])
    weight = _weight_bytes(config)
    per_block = block * (9 + weight) + tiles * options.num_noise * 4
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
        "Huffman tree": 2 * (2 * shape[0] - 1) * 4 * options.has_node_output,
        "prepared updates": 2 * size * (blocks * prepared + local_blocks * pairs),
        "an update": row_copies * blocks * tiles * rows_of_tile * columns * itemsize,
    }
    if subwords is not None:
        rows, _ = layout.device_shape(subwords.num_rows, shape[1])
        words = blocks * tiles * positions  # of an update, at most
        needed["tables"] += rows * columns * itemsize
        needed["lists of subwords"] = subwords.num_bytes
        each = SUBWORDS_AT_ONCE[platform]
        if platform == "cpu" or subwords.longest > each:  # rows are stored
            needed["an update"] += 2 * words * each * columns * itemsize
        needed["row weights"] += rows * itemsize
    replicas = config.run.replicas // layout.replica_devices
    if options.has_node_output:  # scores of positions with paths of a tile, and terms
        scores = blocks * tiles * positions * options.tile * parts.depth * itemsize
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
    parts: TableParts = TableParts(),  # noqa: B008 - it is immutable
) -> Demand:
    """What tables of `shape` [V, D] require of the devices.

    Args:
      config: resolved.
      size: updates in a chunk; 0: those of a large corpus.
    """
    options, sharding = config.tables, config.tables.table_sharding
    block, num_blocks = options.update_size
    is_whole = options.update == "dense" or (parts.subwords and sharding == "auto")
    size = size or choose_updates_per_call(math.inf, block * num_blocks)
    return Demand(
        num_blocks=num_blocks,
        device_bytes=lambda layout: device_bytes(config, shape, layout, size, parts),
        option="blocks_per_update",
        tables="replicated" if is_whole else sharding,
        table_devices=options.table_devices,
        single_device_backend="numba" if options.backend == "numba" else "",
        replicas=config.run.replicas,
    )


def check_tables_fit(
    shape: tuple[int, int], required: Demand, layout: MeshLayout
) -> None:
    """Checks that tables of `shape` [V, D] fit on the devices of `layout`.

    Raises:
      InputError: they do not fit; the message names a layout that would.
    """
    what = f"Tables of {shape[0]} x {shape[1]}"
    advice = "give a smaller `vector_size`, a larger `min_count`"
    if required.replicas > 1:
        what = f"{what} of {required.replicas} replicas"
        advice = f"give fewer `replicas`, {advice.removeprefix('give ')}"
    check_fits(what, required, layout, advice)
