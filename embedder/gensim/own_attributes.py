"""Attributes that programs give a model or vectors, as parts of a file, see `files`."""

import logging
from typing import Any

import numpy as np

from embedder.gensim import files

_log = logging.getLogger("gensim.utils")
_SKIPPED = "`%s` is not saved: it is %s."


def parts(
    owner: Any, known: frozenset[str], ignore: Any, prefix: str
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Facts, and arrays by `prefix` and a name; logs what JSON has not.

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
        elif is_storable(value):
            arrays[f"{prefix}own.{name}"] = value
        else:
            _add_fact(facts, name, value)
    return facts, arrays


def restore(owner: Any, known: frozenset[str], saved: files.Saved, prefix: str) -> None:
    """Gives `owner` what `parts` made.

    Raises:
      ValueError: a name is one of ours.
    """
    prefix += "own."
    of_arrays = {
        name.removeprefix(prefix): array
        for name, array in saved.arrays.items()
        if name.startswith(prefix)
    }
    found = (saved.fact("own", dict) if "own" in saved.facts else {}) | of_arrays
    base = _class_of_ours(owner)
    for name in found:
        if name in known or hasattr(base, name):
            raise ValueError(f"`{name!r:.40}` must be no attribute of {base.__name__}")
    vars(owner).update(found)


def _class_of_ours(owner: Any) -> type:
    """The first base that is of this package: its attributes are not a program's."""
    package = f"{__package__}."
    return next(x for x in type(owner).__mro__ if x.__module__.startswith(package))


def is_storable(value: Any) -> bool:
    """Whether a file can have `value` as an array."""
    is_array = isinstance(value, np.ndarray) and value.ndim > 0
    return is_array and value.dtype.kind in "iufb" and value.dtype.itemsize <= 8


def _add_fact(facts: dict[str, Any], name: str, value: Any) -> None:
    try:
        found = files.as_json(value, name)
    except TypeError:
        _log.warning(_SKIPPED, name, f"of {type(value)}, which JSON has not")
        return
    if not _is_equal(found, value):
        _log.warning("`%s` is saved as JSON has it: %.80r.", name, found)
    facts[name] = found


def _is_equal(first: Any, second: Any) -> bool:
    try:
        return bool(first == second)
    except ValueError:  # arrays within
        return False
