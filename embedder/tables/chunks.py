"""Chunks: the bounded pieces in which a corpus is read."""

from typing import Literal, NamedTuple

import numpy as np
import polars as pl

UnicodeErrors = Literal["strict", "replace"]
"""For bytes that are not UTF-8, and NUL: raise an error, or replace by U+FFFD."""


class Chunk(NamedTuple):
    """Tokens of consecutive sequences."""

    tokens: pl.Series  # str[number of tokens], none empty
    lengths: np.ndarray  # i64[number of sequences], tokens of each, may be 0
    is_open: bool  # the last sequence continues in the next chunk
    weights: np.ndarray | None = None  # f32[number of sequences]; None: all are 1
