"""A model card: README.md of a folder of vectors, as Hugging Face shows it."""

import re
from collections.abc import Sequence

from embedder.terminal import shown
from embedder.vectors.vectors import Vectors

_TAGS = ("embeddings", "static-embeddings", "word2vec", "embedder")
_SHOWN = 60  # characters of a token in an example
_USE = {
    "sentence-transformers": """from sentence_transformers import SentenceTransformer

model = SentenceTransformer("path/to/this/folder")
vectors = model.encode({texts})
""",
    "model2vec": """from model2vec import StaticModel

model = StaticModel.from_pretrained("path/to/this/folder")
vectors = model.encode({texts})
""",
}
_UNKNOWN = {
    "sentence-transformers": "counts as a vector of zeros, which shortens the mean and "
    "leaves its direction",
    "model2vec": "is left out",
}


def model_card(library: str, vectors: Vectors, lines: Sequence[str] = ()) -> str:
    """The text of README.md for a folder that `library` loads.

    Args:
      library: sentence-transformers or model2vec.
      vectors: those in the folder.
      lines: facts of the training; control characters are escaped.
    """
    num_rows, size = vectors.matrix.shape
    first = [key[:_SHOWN] for key in vectors.keys[:2]]
    use = _USE[library].format(texts=ascii_or_text([first[0], " ".join(first)]))
    parts = [
        _head(library),
        "# Vectors of tokens",
        f"{num_rows:,} tokens have a vector of {size} numbers each. They were trained "
        "by `embedder`, as word2vec trains, on the tokens around each token.",
        "## Use",
        _block("python", use),
        "A text is split at ASCII white space, and each token is looked up as it is: "
        "write tokens as the training data has them, in the same case. The vector of a "
        "text is the mean of the vectors of its tokens. An unknown token "
        f"{_UNKNOWN[library]}.",
    ]
    if lines:
        parts += ["## Training", _block("text", "\n".join(map(shown, lines)))]
    return "\n\n".join(parts) + "\n"


def ascii_or_text(texts: list[str]) -> str:
    """A Python list of `texts`, with characters that are not printable escaped."""
    return shown(repr(texts))


def _head(library: str) -> str:
    """Metadata in YAML, all of them words of ours."""
    task = {"sentence-transformers": "sentence-similarity"}.get(library)
    lines = [f"library_name: {library}"]
    if task:
        lines.append(f"pipeline_tag: {task}")
    lines += ["tags:", *(f"- {tag}" for tag in (library, *_TAGS))]
    return "\n".join(["---", *lines, "---"])


def _block(language: str, text: str) -> str:
    """A fenced block: its fence is longer than any row of backticks in `text`."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"
