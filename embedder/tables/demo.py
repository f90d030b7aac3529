"""The demo corpus: CPython's documentation topics, real English on every machine."""

import re
from collections.abc import Iterator

from embedder.tables.corpus import Corpus, sequences_corpus

_WORD = re.compile(r"[a-z_]+(?:'[a-z]+)?")


def demo_corpus() -> Corpus:
    """The topics of Python's `help`: one sequence a paragraph, words in lower case."""
    return sequences_corpus(demo_sequences(), name="demo")


def demo_sequences() -> Iterator[list[str]]:
    """The sequences of `demo_corpus`."""
    from pydoc_data.topics import topics

    for topic in topics.values():
        for paragraph in topic.split("\n\n"):
            yield _WORD.findall(paragraph.lower().replace("\u2019", "'"))
