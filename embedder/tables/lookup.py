"""The two tables of a model as a Haiku module: input rows and output rows, by id."""

import haiku as hk
import numpy as np

_ROWS_AT_ONCE = 2**16  # of the initial table: bounds the memory of the draws


class Tables(hk.Module):
    """Gathers rows of the input and of the output table, both [V, D]."""

    def __init__(self, num_rows: int, vector_size: int, dtype, seed: int):
        super().__init__(name="tables")
        self._shape = (num_rows, vector_size)
        self._dtype = dtype
        self._seed = seed

    def __call__(self, input_ids, output_ids):
        """Rows [len(input_ids), D] and [len(output_ids), D].

        Ids must be in range: an id outside is clamped without a word.
        """
        input_table = hk.get_parameter(
            "input", self._shape, self._dtype, init=self._uniform
        )
        output_table = hk.get_parameter(
            "output", self._shape, self._dtype, init=np.zeros
        )
        return input_table[input_ids], output_table[output_ids]

    def _uniform(self, shape, dtype):
        return initial_input(*shape, dtype, self._seed)


def tables(num_rows: int, vector_size: int, *, dtype, seed: int) -> hk.Transformed:
    """The lookup as pure functions, with the tables as parameters.

    `init(None, ids, ids) -> params`, {"tables": {"input": [V, D], "output": [V, D]}};
    `apply(params, input_ids, output_ids) -> rows`.
    """

    def lookup(input_ids, output_ids):
        return Tables(num_rows, vector_size, dtype, seed)(input_ids, output_ids)

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
