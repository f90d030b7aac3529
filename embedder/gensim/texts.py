"""Words of texts, as of `gensim.utils`, and the texts of its tutorials."""

import os
import re
import tempfile
import unicodedata
from collections.abc import Iterator

from embedder.gensim.corpora import to_unicode

_WORD = re.compile(r"((?!\d)\w)+")

common_texts = [
    line.split()
    for line in (
        "human interface computer",
        "survey user computer system response time",
        "eps user interface system",
        "system human system eps",
        "user response time",
        "trees",
        "graph trees",
        "graph minors trees",
        "graph minors survey",
    )
]
"""Titles of Deerwester et al. 1990, Indexing by latent semantic analysis, table 2."""


def get_tmpfile(suffix: str) -> str:
    """The path of a file of that name in a new temporary folder."""
    return os.path.join(tempfile.mkdtemp(), suffix)


def deaccent(text: str | bytes) -> str:
    """`text` without the accents of its letters."""
    parts = unicodedata.normalize("NFD", to_unicode(text))
    letters = "".join(x for x in parts if unicodedata.category(x) != "Mn")
    return unicodedata.normalize("NFC", letters)


def simple_tokenize(text: str) -> Iterator[str]:
    """The longest runs of letters and underscores."""
    return (match.group() for match in _WORD.finditer(text))


def tokenize(
    text: str | bytes,
    lowercase: bool = False,
    deacc: bool = False,
    encoding: str = "utf8",
    errors: str = "strict",
    to_lower: bool = False,
    lower: bool = False,
) -> Iterator[str]:
    """`simple_tokenize` of a text in `encoding`.

    Args:
      lowercase, to_lower, lower: any of them: in lower case.
      deacc: without accents.
      errors: as of `bytes.decode`.
    """
    decoded = to_unicode(text, encoding, errors)
    if lowercase or to_lower or lower:
        decoded = decoded.lower()
    return simple_tokenize(deaccent(decoded) if deacc else decoded)


def simple_preprocess(
    doc: str | bytes, deacc: bool = False, min_len: int = 2, max_len: int = 15
) -> list[str]:
    """The words of a text in lower case, of `min_len` to `max_len` characters."""
    return [
        word
        for word in tokenize(doc, lower=True, deacc=deacc, errors="ignore")
        if min_len <= len(word) <= max_len and not word.startswith("_")
    ]
