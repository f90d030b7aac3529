"""An index of faiss: unit vectors by their inner product, which is the cosine.

The number of a vector in the index is its row; the keys are in a table beside it.
"""

from pathlib import Path

import numpy as np

from embedder.errors import check_installed
from embedder.threads import use_threads
from embedder.vectors.array_formats import key_column
from embedder.vectors.reduce import Dtype
from embedder.vectors.vectors import Vectors


def write_faiss(vectors: Vectors, path: Path, *, dtype: Dtype | None = None) -> None:
    """Writes an exact index, of float32 or float16.

    Raises:
      InputError: faiss is not installed.
    """
    check_installed("faiss", "`format` faiss")
    import faiss

    unit = np.ascontiguousarray(vectors.unit, np.float32)
    size = unit.shape[1]
    index: faiss.Index = faiss.IndexFlatIP(size)
    if dtype is not None:
        index = faiss.IndexScalarQuantizer(
            size, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT
        )
    index.train(unit)
    index.add(unit)
    with open(path, "wb") as file:  # faiss has no error for a full disk
        file.write(faiss.serialize_index(index).data)


def write_keys(vectors: Vectors, path: Path) -> None:
    """Writes the columns key and, if there are counts, count, a row for each vector."""
    import polars as pl

    use_threads()
    table = pl.DataFrame({"key": key_column(vectors.keys, vectors.key_type)})
    if vectors.counts is not None:
        table = table.with_columns(pl.Series("count", vectors.counts))
    with open(path, "wb") as file:
        table.write_parquet(file)
