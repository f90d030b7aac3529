"""`Phrases` and `FrozenPhrases` as facts and arrays of a file, and back."""

from typing import Any

import numpy as np

from embedder.gensim import files, own_attributes, saved_vectors
from embedder.gensim.phrase_scores import named_scorer, scorer_name

_NUMBER = (int, float)
_FACTS: dict[str, type | tuple[type, ...]] = {
    "delimiter": str,
    "min_count": _NUMBER,
    "threshold": _NUMBER,
}
_OF_COUNTS: dict[str, type | tuple[type, ...]] = {
    "corpus_word_count": int,
    "max_vocab_size": _NUMBER,
    "min_reduce": int,
    "progress_per": int,
}
_TABLES = {"Phrases": ("vocab", "i"), "FrozenPhrases": ("phrasegrams", "f")}
"""`KIND` -> the dictionary by text, and the kind of its values."""
_KNOWN = frozenset(
    {
        *_FACTS,
        *_OF_COUNTS,
        "connector_words",
        "lifecycle_events",
        "phrasegrams",
        "scoring",
        "vocab",
    }
)
"""Attributes that are saved here."""


def parts(phrases: Any, ignore: Any) -> files.Saved:
    """What `save` writes.

    Raises:
      TypeError: words are no text, or the scorer is no function of a module.
    """
    name, _ = _TABLES[phrases.KIND]
    facts = {x: files.as_json(getattr(phrases, x), x) for x in _names(phrases.KIND)}
    facts["scoring"] = scorer_name(phrases.scoring)
    facts["lifecycle_events"] = saved_vectors.as_events(phrases)
    table = getattr(phrases, name)
    dtype = np.int64 if name == "vocab" else np.float64
    arrays = {
        "connector_words": _texts(sorted(phrases.connector_words), "connector_words"),
        "texts": _texts([*table], name),
        name: np.fromiter(table.values(), dtype, len(table)),
    }
    facts["own"], own = own_attributes.parts(phrases, _KNOWN, ignore, "")
    return files.Saved(phrases.KIND, facts, arrays | own)


def fill(phrases: Any, saved: files.Saved) -> None:
    """Gives new `phrases` what `parts` made.

    Raises:
      ValueError: parts are missing, or do not fit each other.
    """
    vars(phrases).update(_attributes(saved))
    own_attributes.restore(phrases, _KNOWN, saved, "")


def _attributes(saved: files.Saved) -> dict[str, Any]:
    """Attributes of phrases by name.

    Raises:
      ValueError: parts are missing, or do not fit each other.
    """
    name, kind = _TABLES[saved.kind]
    found = {x: saved.fact(x, kinds) for x, kinds in _names(saved.kind).items()}
    found["scoring"] = named_scorer(saved.fact("scoring", str))
    found["lifecycle_events"] = saved.fact("lifecycle_events", (list, type(None)))
    found["connector_words"] = frozenset(saved.values("connector_words", str))
    texts, numbers = saved.values("texts", str), saved.array(name, 1, kind)
    if not len(texts) == len({*texts}) == len(numbers):
        raise ValueError(f"`{name}` must have one value for each text")
    return found | {name: dict(zip(texts, numbers.tolist(), strict=True))}


def _names(kind: str) -> dict[str, type | tuple[type, ...]]:
    return _FACTS | (_OF_COUNTS if kind == "Phrases" else {})


def _texts(values: list[Any], name: str) -> np.ndarray:
    if odd := [value for value in values if not isinstance(value, str)]:
        raise TypeError(f"`{name}` must be text to be saved, got {odd[0]!r:.40}.")
    return files.as_values(values, name)
