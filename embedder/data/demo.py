"""The demo corpus: CPython's documentation topics, real English on every machine."""

import re

from embedder.data.corpus import Corpus, sequences_corpus

_WORD = re.compile(r"[a-z_]+(?:'[a-z]+)?")


def demo_corpus() -> Corpus:
    """The topics of Python's `help`, one paragraph a sequence, lower case words."""
    from pydoc_data.topics import topics

    paragraphs = (
        _WORD.findall(paragraph.lower().replace("\u2019", "'"))
        for topic in topics.values()
        for paragraph in topic.split("\n\n")
    )
    return sequences_corpus(paragraphs, name="demo")
