"""Settings of tables, and what those that are left open become for a corpus."""

import dataclasses
import math
import os
from dataclasses import dataclass
from typing import ClassVar, Literal

from embedder.errors import InputError
from embedder.settings import (
    integer,
    multiple,
    number,
    positive_finite,
    setting,
    text,
    validate,
)

Architecture = Literal["skipgram", "cbow"]
"""Predict the contexts from each token (skipgram), or each token from them (cbow)."""


def _below_alpha(section, name: str) -> None:
    """A number from 0 to the section's `alpha`, which is checked before."""
    alpha = section.alpha or default_alpha(section.architecture, math.inf)
    number("a number from 0 to `alpha`", lambda x: 0 <= x <= alpha)(section, name)


@dataclass(frozen=True, kw_only=True)
class TablesOptions:
    """Vectors of tokens: how text becomes blocks, what is learned, and how."""

    best_needs: ClassVar[str] = "best_by"
    """The option that tells which epoch is the best."""

    min_count: int = setting(5, integer(1))
    """Drop tokens that occur less often."""
    sample: float = setting(1e-3, number("a number from 0 to 1", lambda x: 0 <= x <= 1))
    """Downsample tokens more frequent than this share of the corpus; 0 keeps all."""
    ns_exponent: float = setting(0.75, number("a finite number", math.isfinite))
    """Noise ids are drawn in proportion to count ** ns_exponent."""
    unicode_errors: Literal["strict", "replace"] = setting("strict")
    """Bytes that are not UTF-8 text: refuse the corpus, or replace them by U+FFFD."""
    architecture: Architecture = setting("skipgram")
    """Predict the contexts from each token, or each token from their mean."""
    vector_size: int = setting(100, integer(1))
    """Dimensions of a vector."""
    window: int = setting(5, integer(1, 127))
    """Largest distance of a context; each token draws its own from 1 to this."""
    negative: int = setting(5, integer(1))
    """Negatives that a pair counts for."""
    noise: int = setting(32, integer(1))
    """Noise ids of a tile."""
    tile: int = setting(16, integer(1))
    """Tokens that share noise ids; it divides the block."""
    block: int | None = setting(None, multiple(of="tile"))
    """Tokens in a block; none: 64, raised to a multiple of `tile`."""
    blocks_per_update: int = setting(1, integer(1))
    """Blocks whose gradients are summed into one update."""
    alpha: float | None = setting(None, number("a finite number > 0", positive_finite))
    """Learning rate at the start; none: by the size of the corpus, 0.05 to 0.025,
    for cbow 0.2 to 0.1."""
    min_alpha: float = setting(1e-4, _below_alpha)
    """Learning rate at the end; it falls linearly."""
    max_pairs_per_row: float | None = setting(
        None, number("a number > 0", lambda x: x > 0), formerly="cap"
    )
    """A row moves in one update at most as far as this many pairs would move it; none:
    1.6 / alpha, at most 128; inf: no limit."""
    update: Literal["rows", "dense"] = setting("rows")
    """Differentiate the gathered rows, or whole tables: slow, for checks."""
    backend: Literal["auto", "xla", "numba"] = setting("auto")
    """What compiles the updates: numba is faster on a CPU, and takes some seconds the
    first time ever; auto: numba for long runs on a CPU, xla for all others."""
    threads: int = setting(0, integer(0), changes_vectors=False, is_per_host=True)
    """Threads of the numba backend; 0: one for each core. An update has work for as
    many as it has tiles. Results are the same for any number."""
    table_sharding: Literal["auto", "replicated", "columns", "rows"] = setting(
        "auto", changes_vectors=False, formerly="tables"
    )
    """Tables are replicated on each device, or sharded by columns or by rows; auto:
    replicated where they fit on a device, else rows."""
    table_devices: int = setting(0, integer(0), changes_vectors=False)
    """Of the devices, how many share one copy of sharded tables; 0: all."""
    best_by: str = setting("", text)
    """Similarity set to score the vectors by after each epoch: the checkpoint of the
    best is kept."""

    def __post_init__(self):
        validate(self)
        if self.backend == "numba" and self.update == "dense":
            raise InputError("`update` must be 'rows' with numba, got 'dense'.")
        if self.best_by:
            object.__setattr__(self, "best_by", os.path.abspath(self.best_by))

    def check_optimizer(self, name: str) -> None:
        """Refuses an optimizer that tables lack: InputError."""
        if name not in ("sgd", "adagrad"):
            raise InputError(
                f"`optimizer` of tables must be 'sgd' or 'adagrad', got {name!r}."
            )


def default_alpha(architecture: Architecture, num_tokens: float) -> float:
    """Learning rate at the start for a corpus of `num_tokens`: small ones want more.

    Skip-gram: 0.05 up to 1 M tokens, then falling with their number to the power -0.225
    to 0.025 from 22 M on. CBOW: four times that, since its gradient is divided by the
    number of contexts.
    """
    alpha = min(max(0.05 * (1e6 / max(num_tokens, 1)) ** 0.225, 0.025), 0.05)
    return {"skipgram": 1, "cbow": 4}[architecture] * alpha


def default_block(tile: int) -> int:
    """Tokens in a block: 64, raised to a multiple of `tile`.

    Larger blocks are faster, and lose where words are to be told apart that are used
    alike: SimLex first.
    """
    return -(-64 // tile) * tile


def default_max_pairs_per_row(alpha: float, tokens_per_update: int) -> float:
    """1.6 / alpha: above about 3 / alpha training diverges once rows reach the limit.

    Half of that, at most 128, or 64 when an update has more than 2048 tokens.
    """
    return min(1.6 / alpha, 128.0 if tokens_per_update <= 2048 else 64.0)


def resolve_options(options: TablesOptions, num_tokens: float) -> TablesOptions:
    """`options` with None replaced by what it becomes for `num_tokens`."""
    block = options.block or default_block(options.tile)
    alpha = options.alpha or default_alpha(options.architecture, num_tokens)
    max_pairs = options.max_pairs_per_row or default_max_pairs_per_row(
        alpha, block * options.blocks_per_update
    )
    return dataclasses.replace(
        options, block=block, alpha=alpha, max_pairs_per_row=max_pairs
    )
