"""The two tables of a model as a Haiku module: rows of tokens, and of inner nodes of a
Huffman tree, by id."""

from collections.abc import Callable, Sequence
from typing import Any

import haiku as hk
import jax.numpy as jnp
import numpy as np

from embedder.tables.objective import Rows

_ROWS_AT_ONCE = 2**16  # of the initial table: bounds the memory of the draws


class Tables(hk.Module):
    """An input table [V, D], with a row for each token, and an output table [R, D].

    Args:
      num_rows, vector_size: V and D.
      dtype: of both tables.
      output_rows: R; None: V, a row for each token.
      input_init, output_init: initializers of Haiku, (shape, dtype) -> table.
    """

    def __init__(
        self,
        num_rows: int,
        vector_size: int,
        *,
        dtype: Any = jnp.float32,
        input_init: Callable[[Sequence[int], Any], Any],
        output_init: Callable[[Sequence[int], Any], Any] = jnp.zeros,
        output_rows: int | None = None,
        name: str = "tables",
    ):
        super().__init__(name=name)
        self.shape = (num_rows, vector_size)
        self.output_shape = (output_rows or num_rows, vector_size)
        self.dtype = dtype
        self.input_init = input_init
        self.output_init = output_init

    @property
    def input(self):
        """The input table, [V, D]."""
        return hk.get_parameter("input", self.shape, self.dtype, self.input_init)

    @property
    def output(self):
        """The output table, [R, D]."""
        return hk.get_parameter(
            "output", self.output_shape, self.dtype, self.output_init
        )

    def __call__(self, ids: Rows) -> Rows:
        """The rows [..., D] of `ids` [...], of each table its own.

        An id that is out of range is clamped, without an error: check on the host.
        """
        return Rows(self.input[ids.input], self.output[ids.output])


class UniformRows:
    """Initializer: uniform in [-0.5, 0.5) / D, the same rows for a seed and any dtype.

    Drawn by NumPy, as in the oracle (design: word2vec.c, Mikolov et al. 2013).
    """

    def __init__(self, seed: int):
        self.seed = seed

    def __call__(self, shape: Sequence[int], dtype: Any) -> np.ndarray:
        num_rows, vector_size = shape
        return initial_input(num_rows, vector_size, dtype, self.seed)


def tables(
    num_rows: int, vector_size: int, *, dtype, seed: int, output_rows: int | None = None
) -> hk.Transformed:
    """`Tables` as pure functions: `init(None, ids)` and `apply(params, ids)`.

    The parameters are {"tables": {"input": [V, D], "output": [R, D]}}, those of `init`
    arrays of NumPy; R is `output_rows`, or V if that is None.
    """

    def lookup(ids: Rows) -> Rows:
        module = Tables(
            num_rows,
            vector_size,
            dtype=dtype,
            input_init=UniformRows(seed),
            output_init=np.zeros,
            output_rows=output_rows,
        )
        return module(ids)

    return hk.without_apply_rng(hk.transform(lookup))


def initial_input(num_rows: int, vector_size: int, dtype, seed: int) -> np.ndarray:
    """Initial input table, uniform in [-0.5, 0.5) / D, [V, D]."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))
    table = np.empty((num_rows, vector_size), dtype)
    for start in range(0, num_rows, _ROWS_AT_ONCE):
        rows = table[start : start + _ROWS_AT_ONCE]
        rows[:] = rng.random(rows.shape, dtype=np.float32)
    table -= table.dtype.type(0.5)
    table /= table.dtype.type(vector_size)
    return table
