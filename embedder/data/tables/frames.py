"""Tables in memory, of polars, Arrow and pandas, as lazy frames."""

import importlib.util
import sys
from typing import Any

import numpy as np
import polars as pl

from embedder.disk.files import short_reason
from embedder.errors import InputError


def lazy_frame(source: object) -> pl.LazyFrame | None:
    """The table that `source` is; None: it is not one.

    Takes frames of polars and of pandas, and what has columns and the Arrow C stream,
    as tables of Arrow. Raises InputError if polars cannot read the table.
    """
    if isinstance(source, pl.LazyFrame):
        return source
    if isinstance(source, pl.DataFrame):
        return source.lazy()
    is_table = hasattr(source, "columns") or hasattr(source, "column_names")
    try:
        pandas = sys.modules.get("pandas")  # which is not imported for this
        is_pandas = pandas is not None and isinstance(source, pandas.DataFrame)
        if is_pandas and importlib.util.find_spec("pyarrow") is None:
            frame: Any = source  # polars reads most types through pyarrow
            columns = [frame.iloc[:, number] for number in range(frame.shape[1])]
            return pl.DataFrame([_column(str(x.name), x) for x in columns]).lazy()
        if is_table and hasattr(source, "__arrow_c_stream__"):
            return pl.DataFrame(source).lazy()
        return None
    except (pl.exceptions.PolarsError, TypeError, ValueError, ImportError) as error:
        kind = type(source).__name__
        reason = short_reason(error)
        raise InputError(f"The {kind} cannot be read as a table: {reason}.") from error


def _column(name: str, column: Any) -> pl.Series:
    """A column of pandas, null where a value is missing."""
    if hasattr(column.dtype, "categories"):
        categories = _column(name, column.dtype.categories.to_series())
        codes = pl.Series(column.cat.codes.to_numpy())
        return categories.gather(codes.cast(pl.UInt32, strict=False))
    missing = column.isna().to_numpy()
    match getattr(column.dtype, "kind", "O"):
        case "i" | "u" | "f" | "b":
            series = pl.Series(name, _numbers(column, missing))
        case "M" | "m":
            return _times(name, column)
        case _:
            return _objects(name, column, missing)
    return series.set(pl.Series(missing), None) if missing.any() else series


def _numbers(column: Any, missing: np.ndarray) -> np.ndarray:
    """Numbers in the dtype of the column, 0 where one is missing."""
    dtype = getattr(column.dtype, "numpy_dtype", None)  # of columns with a mask
    if dtype is None or not missing.any():
        return column.to_numpy(dtype=dtype)
    return column.to_numpy(dtype=dtype, na_value=dtype.type(0))


def _times(name: str, column: Any) -> pl.Series:
    """Dates and times, with a time zone in UTC, or durations; NaT is null."""
    has_zone = hasattr(column.dtype, "tz")
    if has_zone:
        column = column.dt.tz_convert("UTC").dt.tz_localize(None)
    values = column.to_numpy()
    unit, _ = np.datetime_data(values.dtype)
    if unit == "s":  # polars has none
        values = values.astype(f"{values.dtype.kind}8[ms]")
    series = pl.Series(name, values)
    return series.dt.replace_time_zone("UTC") if has_zone else series


def _objects(name: str, column: Any, missing: np.ndarray) -> pl.Series:
    """Text, lists and other Python objects, which must have one type."""
    values = [None if no else x for x, no in zip(column, missing, strict=True)]
    try:
        series = pl.Series(name, values)
    except (pl.exceptions.PolarsError, TypeError, ValueError) as error:
        first_line, *_ = str(error).splitlines()
        raise InputError(f"column `{name}`: {first_line}") from error
    if isinstance(series.dtype, pl.Array):  # NumPy arrays of one length
        return series.cast(pl.List(series.dtype.inner))
    return series
