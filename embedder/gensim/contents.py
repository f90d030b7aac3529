"""Vectors, models and phrases as facts and arrays of a file, see `files`, and back.

A function `fill_...` gives a new object what `of_...` made; it raises ValueError if
parts are missing, or do not fit each other.
"""

import json
import logging
from collections import Counter
from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy import float32 as REAL

from embedder.gensim import files, paths
from embedder.gensim.phrase_scores import named_scorer, scorer_name

_NUMBER, _MAYBE = (int, float), (int, float, type(None))
_EVENTS = list, type(None)
_OF_MODELS: dict[str, Any] = {
    **dict.fromkeys(
        "alpha batch_words min_alpha min_alpha_yet_reached".split(), _NUMBER
    ),
    **dict.fromkeys("ns_exponent running_training_loss".split(), _NUMBER),
    **dict.fromkeys(
        "corpus_count corpus_total_words effective_min_count".split(), _MAYBE
    ),
    **dict.fromkeys("epochs max_final_vocab max_vocab_size min_count".split(), _MAYBE),
    **dict.fromkeys("null_word sample seed sorted_vocab".split(), _MAYBE),
    **dict.fromkeys("cbow_mean epochs_trained hs layer1_size negative".split(), int),
    **dict.fromkeys("sg train_count vector_size window workers".split(), int),
    **{"compute_loss": bool, "shrink_windows": bool, "loss_history": list},
    "total_train_time": _NUMBER,
}
"""Attributes of models that a file has, and their types."""
_OF_PHRASES: dict[str, Any] = {
    **{"delimiter": str, "min_count": _NUMBER, "threshold": _NUMBER},
}
_OF_COUNTS: dict[str, Any] = {
    **{"corpus_word_count": int, "max_vocab_size": _NUMBER, "min_reduce": int},
    "progress_per": int,
}
_BY_TEXT = {"Phrases": ("vocab", "i"), "FrozenPhrases": ("phrasegrams", "f")}
"""`KIND` of phrases -> the dictionary by text, and the kind of its values."""
_OUTPUTS = "syn1neg", "syn1"
_RAW = "raw_vocab.words", "raw_vocab.counts"

# Attributes that are saved here, have no effect, or follow from others:
_KNOWN_OF_VECTORS = frozenset(
    "bucket buckets_word compatible_hash expandos index_to_key key_to_index "
    "lifecycle_events mapfile_path max_n min_n next_index norms vector_size vectors "
    "vectors_lockf vectors_ngrams vectors_ngrams_lockf vectors_vocab "
    "vectors_vocab_lockf".split()
)
_KNOWN_OF_MODELS = frozenset(_OUTPUTS).union(
    _OF_MODELS,
    "_rule comment cum_table hashfxn lifecycle_events load load_fasttext_format random "
    "raw_vocab word_ngrams wv".split(),
)
_KNOWN_OF_PHRASES = frozenset(_OF_PHRASES).union(
    _OF_COUNTS, "connector_words lifecycle_events phrasegrams scoring vocab".split()
)
_SKIPPED = "`%s` is not saved: it is %s."
_log = logging.getLogger("gensim.utils")


def of_vectors(
    vectors: Any, ignore: Any, prefix: str
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Facts, and arrays by `prefix` and a name; paths follow from the counts.

    Raises:
      TypeError: keys or their attributes are no values of JSON.
    """
    left_out = {*ignore, *paths.PATH}
    own, own_arrays = _own_parts(vectors, _KNOWN_OF_VECTORS, ignore)
    arrays = {"vectors": vectors.vectors} if "vectors" not in ignore else {}
    arrays["keys"] = files.as_values(vectors.index_to_key, "index_to_key")
    if hasattr(vectors, "vectors_lockf"):
        arrays["vectors_lockf"] = np.atleast_1d(np.asarray(vectors.vectors_lockf, REAL))
    for name, array in vectors.expandos.items():
        if name in left_out:
            continue
        if _is_storable(array):
            arrays[f"attribute.{name}"] = array
        else:
            arrays[f"values.{name}"] = files.as_values(array.tolist(), name)
    facts = {
        "vector_size": int(vectors.vector_size),
        "next_index": int(vectors.next_index),
        "none_row": vectors.key_to_index.get(None, -1),  # others of None are free
        "lifecycle_events": _as_events(vectors),
        "own": own,
    }
    arrays |= own_arrays
    return facts, {prefix + name: array for name, array in arrays.items()}


def fill_vectors(vectors: Any, saved: files.Saved, prefix: str) -> None:
    own = {x.removeprefix(prefix): x for x in saved.arrays if x.startswith(prefix)}
    keys = saved.values(f"{prefix}keys", Hashable)
    size = saved.fact("vector_size", int)
    vectors.vector_size, vectors.index_to_key = size, keys
    vectors.key_to_index = {k: row for row, k in enumerate(keys) if k is not None}
    vectors.next_index = saved.fact("next_index", int)
    vectors.lifecycle_events = saved.fact("lifecycle_events", _EVENTS)
    none_row = saved.facts.get("none_row", -1)
    if none_row in range(len(keys)) and keys[none_row] is None:
        vectors.key_to_index[None] = none_row
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
    _restore_own(vectors, _KNOWN_OF_VECTORS, saved, prefix)
    for attribute, array in vectors.expandos.items():
        if len(array) != len(keys):
            raise ValueError(f"`{attribute}` must have {len(keys)} values")


def of_model(model: Any, ignore: Any) -> files.Saved:
    """What `save` writes of a `Word2Vec`.

    Raises:
      TypeError, ValueError: `fill_model` would not take it; the message names the
        attribute.
    """
    vectors_facts, arrays = model.wv.parts(ignore, prefix="wv.")
    facts = _facts(model, sorted(_OF_MODELS))
    known = _KNOWN_OF_MODELS - {"comment"}  # which may be any value, as programs' own
    own, own_arrays = _own_parts(model, known, ignore)
    facts |= {"wv": vectors_facts, "comment": own.pop("comment", None), "own": own}
    facts["lifecycle_events"] = _as_events(model)
    for name in _OUTPUTS:
        if hasattr(model, name) and name not in ignore:
            arrays[name] = getattr(model, name)
    if model.raw_vocab is not None and "raw_vocab" not in ignore:
        words = files.as_values([*model.raw_vocab], "raw_vocab")
        numbers = np.fromiter(model.raw_vocab.values(), np.int64, len(model.raw_vocab))
        arrays |= dict(zip(_RAW, (words, numbers), strict=True))
    saved = files.Saved(model.KIND, facts, arrays | own_arrays)
    _check(saved, model.VECTORS.filled(_of_vectors(saved), prefix="wv."))
    return saved


def model_facts(saved: files.Saved) -> dict[str, Any]:
    """Attributes of a model by name; ValueError if one has another type."""
    kinds = _OF_MODELS | {"lifecycle_events": _EVENTS}
    return {name: saved.fact(name, kind) for name, kind in kinds.items()}


def fill_model(model: Any, saved: files.Saved) -> None:
    vars(model).update(model_facts(saved), comment=saved.facts.get("comment"))
    model.wv = model.VECTORS.from_saved(_of_vectors(saved), prefix="wv.")
    _check(saved, model.wv)
    _restore_own(model, _KNOWN_OF_MODELS, saved, "")
    for name in saved.arrays.keys() & {*_OUTPUTS}:
        setattr(model, name, saved.arrays[name])
    if _RAW[0] in saved.arrays:
        words = saved.values(_RAW[0], Hashable)
        counts = saved.array(_RAW[1], 1, "i")
        if len({*words}) != len(counts):
            raise ValueError("`raw_vocab` must have one count for each word")
        model.raw_vocab = Counter(dict(zip(words, counts.tolist(), strict=True)))
    if model.hs and len(model.wv):
        paths.set_paths(model.wv, len(getattr(model, "syn1", model.wv)))
    if model.negative and len(model.wv):
        model.make_cum_table()


def _of_vectors(saved: files.Saved) -> files.Saved:
    return saved._replace(facts=saved.fact("wv", dict))


def _check(saved: files.Saved, vectors: Any) -> None:
    """Raises ValueError unless tables fit the vectors; added keys have no rows."""
    facts = model_facts(saved)
    if facts["vector_size"] != vectors.vector_size:
        raise ValueError(
            f"`vector_size` is {facts['vector_size']}, of its vectors "
            f"{vectors.vector_size}"
        )
    most, size = len(vectors), facts["layer1_size"]
    for name in saved.arrays.keys() & {*_OUTPUTS}:
        rows, width = saved.array(name, 2, "f").shape
        if rows > most or width != size:
            raise ValueError(f"`{name}` must be {[most, size]}, got {[rows, width]}")


def of_phrases(phrases: Any, ignore: Any) -> files.Saved:
    """What `save` writes of `Phrases` or `FrozenPhrases`.

    Raises:
      TypeError: words are no text, or the scorer is no function of a module.
    """
    name, kind = _BY_TEXT[phrases.KIND]
    facts = _facts(phrases, _phrases_names(phrases.KIND))
    facts["scoring"] = scorer_name(phrases.scoring)
    facts["lifecycle_events"] = _as_events(phrases)
    table = getattr(phrases, name)
    arrays = {
        "connector_words": _texts(sorted(phrases.connector_words), "connector_words"),
        "texts": _texts([*table], name),
        name: np.fromiter(table.values(), f"{kind}8", len(table)),
    }
    facts["own"], own = _own_parts(phrases, _KNOWN_OF_PHRASES, ignore)
    return files.Saved(phrases.KIND, facts, arrays | own)


def fill_phrases(phrases: Any, saved: files.Saved) -> None:
    name, kind = _BY_TEXT[saved.kind]
    kinds = _phrases_names(saved.kind)
    attributes = {x: saved.fact(x, of_fact) for x, of_fact in kinds.items()}
    attributes["scoring"] = named_scorer(saved.fact("scoring", str))
    attributes["lifecycle_events"] = saved.fact("lifecycle_events", _EVENTS)
    attributes["connector_words"] = frozenset(saved.values("connector_words", str))
    texts, numbers = saved.values("texts", str), saved.array(name, 1, kind)
    if not len(texts) == len({*texts}) == len(numbers):
        raise ValueError(f"`{name}` must have one value for each text")
    attributes[name] = dict(zip(texts, numbers.tolist(), strict=True))
    vars(phrases).update(attributes)
    _restore_own(phrases, _KNOWN_OF_PHRASES, saved, "")


def _phrases_names(kind: str) -> dict[str, Any]:
    return _OF_PHRASES | (_OF_COUNTS if kind == "Phrases" else {})


def _texts(values: list[Any], name: str) -> np.ndarray:
    if odd := [value for value in values if not isinstance(value, str)]:
        raise TypeError(f"`{name}` must be text to be saved, got {odd[0]!r:.40}.")
    return files.as_values(values, name)


def _facts(owner: Any, names: Any) -> dict[str, Any]:
    return {name: files.as_json(getattr(owner, name, None), name) for name in names}


def _as_events(owner: Any) -> Any:
    """The lifecycle events of `owner`; what JSON has not, as text."""
    events = getattr(owner, "lifecycle_events", [])
    return json.loads(json.dumps(events, default=str))


def _own_parts(
    owner: Any, known: frozenset[str], ignore: Any
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Attributes that a program gave: facts, and arrays; logs what JSON has not.

    Args:
      known: names of attributes that are saved otherwise, or follow from others.
    """
    facts: dict[str, Any] = {}
    base = _class_of_ours(owner)
    arrays: dict[str, np.ndarray] = {}
    for name, value in vars(owner).items():
        if name in known or name in ignore:
            continue
        if hasattr(base, name):
            _log.warning(_SKIPPED, name, "in place of a method or constant")
        elif _is_storable(value):
            arrays[f"own.{name}"] = value
        else:
            _add_fact(facts, name, value)
    return facts, arrays


def _restore_own(
    owner: Any, known: frozenset[str], saved: files.Saved, prefix: str
) -> None:
    """Gives `owner` what `_own_parts` made; ValueError if a name is one of ours."""
    prefix += "own."
    own = dict(saved.fact("own", dict)) if "own" in saved.facts else {}
    for name, array in saved.arrays.items():
        if name.startswith(prefix):
            own[name.removeprefix(prefix)] = array
    base = _class_of_ours(owner)
    for name in own:
        if name in known or hasattr(base, name):
            raise ValueError(f"`{name!r:.40}` must be no attribute of {base.__name__}")
    vars(owner).update(own)


def _class_of_ours(owner: Any) -> type:
    """The first base that is of this package: its attributes are not a program's."""
    package = f"{__package__}."
    return next(x for x in type(owner).__mro__ if x.__module__.startswith(package))


def _is_storable(value: Any) -> bool:
    """Whether a file can have `value` as an array."""
    is_array = isinstance(value, np.ndarray) and value.ndim > 0
    return is_array and value.dtype.kind in "iufb" and value.dtype.itemsize <= 8


def _add_fact(facts: dict[str, Any], name: str, value: Any) -> None:
    try:
        fact = files.as_json(value, name)
    except TypeError:
        _log.warning(_SKIPPED, name, f"of {type(value)}, which JSON has not")
        return
    try:
        is_equal = bool(fact == value)
    except ValueError:  # arrays within
        is_equal = False
    if not is_equal:
        _log.warning("`%s` is saved as JSON has it: %.80r.", name, fact)
    facts[name] = fact
