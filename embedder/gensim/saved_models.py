"""`Word2Vec` as facts and arrays of a file, see `files`, and back."""

from collections import Counter
from typing import Any

import numpy as np

from embedder.gensim import files, own_attributes, paths, saved_vectors

_NUMBER, _MAYBE = (int, float), (int, float, type(None))
_FACTS: dict[str, type | tuple[type, ...]] = {
    "alpha": _NUMBER,
    "batch_words": _NUMBER,
    "cbow_mean": int,
    "compute_loss": bool,
    "corpus_count": _MAYBE,
    "corpus_total_words": _MAYBE,
    "effective_min_count": _MAYBE,
    "epochs": _MAYBE,
    "epochs_trained": int,
    "hs": int,
    "layer1_size": int,
    "loss_history": list,
    "max_final_vocab": _MAYBE,
    "max_vocab_size": _MAYBE,
    "min_alpha": _NUMBER,
    "min_alpha_yet_reached": _NUMBER,
    "min_count": _MAYBE,
    "negative": int,
    "ns_exponent": _NUMBER,
    "null_word": _MAYBE,
    "running_training_loss": _NUMBER,
    "sample": _MAYBE,
    "seed": _MAYBE,
    "sg": int,
    "shrink_windows": bool,
    "sorted_vocab": _MAYBE,
    "total_train_time": _NUMBER,
    "train_count": int,
    "vector_size": int,
    "window": int,
    "workers": int,
}
"""Attributes that a file of `save` has, and their types."""

_TABLES = "syn1neg", "syn1"
_RAW = "raw_vocab.words", "raw_vocab.counts"
_KNOWN = frozenset(
    {
        *_FACTS,
        *_TABLES,
        "_rule",
        "comment",
        "cum_table",
        "hashfxn",
        "lifecycle_events",
        "load",
        "load_fasttext_format",
        "random",
        "raw_vocab",
        "word_ngrams",
        "wv",
    }
)
"""Attributes of models that are saved here, have no effect, or follow from others."""


def parts(model: Any, ignore: Any) -> files.Saved:
    """What `save` writes.

    Raises:
      TypeError, ValueError: `fill` would not take it; the message names the attribute.
    """
    of_vectors, arrays = model.wv.parts(ignore, prefix="wv.")
    facts = {x: files.as_json(getattr(model, x, None), x) for x in _FACTS}
    known = _KNOWN - {"comment"}  # which may be any value, as those of programs
    own, own_arrays = own_attributes.parts(model, known, ignore, "")
    facts |= {"wv": of_vectors, "comment": own.pop("comment", None), "own": own}
    facts["lifecycle_events"] = saved_vectors.as_events(model)
    for name in _TABLES:
        if hasattr(model, name) and name not in ignore:
            arrays[name] = getattr(model, name)
    if model.raw_vocab is not None and "raw_vocab" not in ignore:
        arrays |= _raw_counts(model.raw_vocab)
    saved = files.Saved(model.KIND, facts, arrays | own_arrays)
    _check(saved, model.VECTORS.filled(_of_vectors(saved), prefix="wv."))
    return saved


def facts(saved: files.Saved) -> dict[str, Any]:
    """Attributes of a model by name.

    Raises:
      ValueError: one is missing or of another type.
    """
    found = {name: saved.fact(name, kinds) for name, kinds in _FACTS.items()}
    kinds = list, type(None)
    return found | {"lifecycle_events": saved.fact("lifecycle_events", kinds)}


def fill(model: Any, saved: files.Saved) -> None:
    """Gives a new `model` what `parts` made.

    Raises:
      ValueError: parts are missing, or do not fit each other.
    """
    vars(model).update(facts(saved), comment=saved.facts.get("comment"))
    model.wv = model.VECTORS.from_saved(_of_vectors(saved), prefix="wv.")
    _check(saved, model.wv)
    own_attributes.restore(model, _KNOWN, saved, "")
    for name in saved.arrays.keys() & {*_TABLES}:
        setattr(model, name, saved.arrays[name])
    if _RAW[0] in saved.arrays:
        model.raw_vocab = _raw_vocab(saved)
    if model.hs and len(model.wv):
        paths.set_paths(model.wv, len(getattr(model, "syn1", model.wv)))
    if model.negative and len(model.wv):
        model.make_cum_table()


def _raw_counts(counts: dict[Any, int]) -> dict[str, np.ndarray]:
    """The counts of all words, which `keep_raw_vocab` keeps: text and i64.

    Raises:
      TypeError: a word is no value of JSON.
    """
    words = files.as_values([*counts], "raw_vocab")
    numbers = np.fromiter(counts.values(), np.int64, len(counts))
    return dict(zip(_RAW, (words, numbers), strict=True))


def _raw_vocab(saved: files.Saved) -> Counter[Any]:
    words = saved.values(_RAW[0], (str, int, float, type(None)))
    counts = saved.array(_RAW[1], 1, "i")
    if len({*words}) != len(counts):
        raise ValueError("`raw_vocab` must have one count for each word")
    return Counter(dict(zip(words, counts.tolist(), strict=True)))


def _of_vectors(saved: files.Saved) -> files.Saved:
    return saved._replace(facts=saved.fact("wv", dict))


def _check(saved: files.Saved, vectors: Any) -> None:
    """Raises ValueError unless tables fit the vectors; added keys have no rows."""
    found = facts(saved)
    if found["vector_size"] != vectors.vector_size:
        raise ValueError(
            f"`vector_size` is {found['vector_size']}, of its vectors "
            f"{vectors.vector_size}"
        )
    most, size = len(vectors), found["layer1_size"]
    for name in saved.arrays.keys() & {*_TABLES}:
        rows, width = saved.array(name, 2, "f").shape
        if rows > most or width != size:
            raise ValueError(f"`{name}` must be {[most, size]}, got {[rows, width]}")
