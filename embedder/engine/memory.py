"""How much memory a run needs, and whether there is so much for it."""

import numpy as np

from embedder.config import Config
from embedder.settings import Interval
from embedder.limits import gib, memory_limit
from embedder.tables.encoded import Encoded


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


def check_memory(needed: dict[str, int], advice: str) -> None:
    """Refuses a run that no memory here can ever hold, before anything is made.

    Args:
      needed: bytes, by what needs them.
      advice: what to do, a clause.

    Raises:
      ValueError: as said; the message says what needs how much.
    """
    total, limit = sum(needed.values()), memory_limit()
    if total > limit.size:
        parts = ", ".join(f"{name} {gib(n)}" for name, n in needed.items() if n)
        raise ValueError(
            f"The run must fit in the {gib(limit.size)} of {limit.source}, got "
            f"{gib(total)} ({parts}): {advice}"
        )


def memory_lines(training) -> list[str]:
    """What a training needs of the machine and of each device, for people."""
    return [
        f"memory: {_in_all(training.memory)}",
        f"on each device: {_in_all(training.device_memory)}",
    ]


def _in_all(needed: dict[str, int]) -> str:
    parts = ", ".join(f"{name} {n / 2**20:.1f}" for name, n in needed.items() if n)
    return f"{sum(needed.values()) / 2**20:.1f} MiB ({parts})"
