"""`KeyedVectors` as facts and arrays of a file, see `files`, and back."""

import json
from typing import Any

import numpy as np
from numpy import float32 as REAL

from embedder.gensim import files, own_attributes
from embedder.gensim.own_attributes import is_storable
from embedder.gensim.paths import PATH

_KNOWN = frozenset(
    {
        "bucket",
        "buckets_word",
        "compatible_hash",
        "expandos",
        "index_to_key",
        "key_to_index",
        "lifecycle_events",
        "mapfile_path",
        "max_n",
        "min_n",
        "next_index",
        "norms",
        "vector_size",
        "vectors",
        "vectors_lockf",
        "vectors_ngrams",
        "vectors_ngrams_lockf",
        "vectors_vocab",
        "vectors_vocab_lockf",
    }
)
"""Attributes of vectors that are saved here, or follow from others."""


def parts(
    vectors: Any, ignore: Any, prefix: str
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Facts, and arrays by `prefix` and a name; paths follow from the counts.

    Raises:
      TypeError: keys or their attributes are no values of JSON.
    """
    left_out = {*ignore, *PATH}
    attributes = {k: x for k, x in vectors.expandos.items() if k not in left_out}
    own, own_arrays = own_attributes.parts(vectors, _KNOWN, ignore, "")
    arrays = {"vectors": vectors.vectors} if "vectors" not in ignore else {}
    arrays["keys"] = files.as_values(vectors.index_to_key, "index_to_key")
    if hasattr(vectors, "vectors_lockf"):
        arrays["vectors_lockf"] = np.atleast_1d(np.asarray(vectors.vectors_lockf, REAL))
    for name, array in attributes.items():
        if is_storable(array):
            arrays[f"attribute.{name}"] = array
        else:
            arrays[f"values.{name}"] = files.as_values(array.tolist(), name)
    facts = {
        "vector_size": int(vectors.vector_size),
        "next_index": int(vectors.next_index),
        "lifecycle_events": as_events(vectors),
        "own": own,
    }
    arrays |= own_arrays
    return facts, {prefix + name: array for name, array in arrays.items()}


def as_events(owner: Any) -> Any:
    """The lifecycle events of a model or vectors; what JSON has not, as text."""
    events = getattr(owner, "lifecycle_events", [])
    return json.loads(json.dumps(events, default=str))


def fill(vectors: Any, saved: files.Saved, prefix: str) -> None:
    """Gives new `vectors` what `parts` made.

    Raises:
      ValueError: parts are missing, or do not fit each other.
    """
    own = {
        name.removeprefix(prefix): name
        for name in saved.arrays
        if name.startswith(prefix)
    }
    keys = saved.values(f"{prefix}keys", (str, int, float, type(None)))
    size = saved.fact("vector_size", int)
    vectors.vector_size, vectors.index_to_key = size, keys
    vectors.key_to_index = {k: row for row, k in enumerate(keys) if k is not None}
    vectors.next_index = saved.fact("next_index", int)
    vectors.lifecycle_events = saved.fact("lifecycle_events", (list, type(None)))
    if len(vectors.key_to_index) + keys.count(None) < len(keys):
        raise ValueError("a key occurs twice")
    vectors.vectors = np.zeros((0, size), REAL)
    if "vectors" in own:
        vectors.vectors = saved.array(own["vectors"], 2, "f")
    if vectors.vectors.shape not in ((len(keys), size), (0, size)):
        shape = [*vectors.vectors.shape]
        raise ValueError(f"`vectors` must be {[len(keys), size]}, got {shape}")
    if "vectors_lockf" in own:
        vectors.vectors_lockf = saved.array(own["vectors_lockf"], 1, "f")
    for name, full in own.items():
        kind, _, attribute = name.partition(".")
        if kind == "attribute":
            vectors.expandos[attribute] = saved.array(full, 1, "iufb")
        elif kind == "values":
            values = np.empty(len(keys), object)
            values[:] = saved.values(full, object)
            vectors.expandos[attribute] = values
    own_attributes.restore(vectors, _KNOWN, saved, prefix)
    for attribute, array in vectors.expandos.items():
        if len(array) != len(keys):
            raise ValueError(f"`{attribute}` must have {len(keys)} values")
