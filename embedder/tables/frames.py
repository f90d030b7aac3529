"""Tables in memory, of polars, Arrow and pandas, as lazy frames."""

import polars as pl

from embedder.errors import InputError


def lazy_frame(source: object) -> pl.LazyFrame | None:
    """The table that `source` is; None: it is not one.

    Takes frames of polars, and what has columns and the Arrow C stream, as tables of
    Arrow and frames of pandas.

    Raises:
      InputError: polars cannot read the table.
    """
    if isinstance(source, pl.LazyFrame):
        return source
    if isinstance(source, pl.DataFrame):
        return source.lazy()
    is_table = hasattr(source, "columns") or hasattr(source, "column_names")
    if not is_table or not hasattr(source, "__arrow_c_stream__"):
        return None
    try:
        return pl.DataFrame(source).lazy()
    except (pl.exceptions.PolarsError, TypeError, ValueError, ImportError) as error:
        kind = type(source).__name__  # of pandas, which needs pyarrow for it
        raise InputError(f"The {kind} cannot be read as a table: {error}.") from error
