"""Weights of sessions: a column of a table, by which the pairs of a session count.

All rows of a session have its weight. Sessions with weight 0 are left out, and so are
rows without a weight; other wrong values are refused.
"""

import numpy as np
import polars as pl

from embedder.errors import InputError

_SMALLEST, _LARGEST = 1e-6, 1e6  # sums of such weights are exact enough in float32
_GIVEN = "given_weight"


def weight_columns(name: str, dtype: pl.DataType) -> list[pl.Expr]:
    """The column `name` as numbers, "weight", and as it is."""
    column = pl.col(name)
    if dtype == pl.String:
        column = pl.when(column != "").then(column)  # `replace` would read all rows
    numbers = column.cast(pl.Float64, strict=False)
    return [numbers.alias("weight"), column.alias(_GIVEN)]


def check_weights(rows: pl.DataFrame, name: str, source: str) -> None:
    """Checks the columns of `weight_columns`; nulls are missing values.

    Args:
      name, source: of the column and of the table, for messages.

    Raises:
      InputError: a value is text, or neither 0 nor in the bounds.
    """
    weight = rows["weight"]
    is_right = (weight == 0) | weight.is_between(_SMALLEST, _LARGEST)
    wrong = rows.filter(rows[_GIVEN].is_not_null() & ~is_right.fill_null(False))
    if len(wrong):
        value = wrong[_GIVEN][0]
        raise InputError(
            f"`weights` must be a column of numbers from {_SMALLEST} to {_LARGEST}, or "
            f"0 to leave a session out: `{name}` of {source} has {value!r}."
        )


def weights_of_sessions(
    sessions: pl.Series, weights: pl.Series, lengths: np.ndarray, name: str, source: str
) -> np.ndarray:
    """The weight of each session, f64[number of sessions].

    Args:
      sessions, weights: of each row; those of a session are consecutive.
      lengths: rows of each session.
      name, source: as of `check_weights`.

    Raises:
      InputError: a session has two weights.
    """
    of_rows = weights.to_numpy()
    found = of_rows[np.cumsum(lengths) - lengths]
    expected = np.repeat(found, lengths)
    (wrong,) = np.nonzero(of_rows != expected)
    if len(wrong):
        row = int(wrong[0])
        raise InputError(
            "`weights` must be the same in all rows of a session: session "
            f"{sessions[row]!r} has {float(expected[row])} and {float(of_rows[row])} "
            f"in `{name}` of {source}. Give each session one number, as the mean or "
            "the largest of its rows."
        )
    return found
