"""A model card: README.md of a folder of vectors, as Hugging Face shows it, or a file
beside an exported file."""

import re
from collections.abc import Sequence

from embedder.base.terminal import shown
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
    use = _USE[library].format(texts=shown(repr([first[0], " ".join(first)])))
    tags = "\n- ".join((library, *_TAGS))
    pipeline = "pipeline_tag: sentence-similarity\n"
    is_sentences = library == "sentence-transformers"
    parts = [
        f"---\nlibrary_name: {library}\n{pipeline * is_sentences}tags:\n- {tags}\n---",
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
    return _joined(parts, lines)


_READ = {
    ".onnx": """import onnxruntime

session = onnxruntime.InferenceSession({name})
print([(each.name, each.shape, each.type) for each in session.get_inputs()])
""",
    ".stablehlo": """from pathlib import Path

import jax.export

network = jax.export.deserialize(Path({name}).read_bytes())
print(network.in_avals, network.out_avals)
""",
    ".parquet": """import polars

table = polars.read_parquet({name})
""",
    ".csv": """import polars

table = polars.read_csv({name})
""",
    ".faiss": """import faiss
import polars

index = faiss.read_index({name})
keys = polars.read_parquet({keys})["key"]
""",
    ".sql": """import subprocess

subprocess.run(["psql", "-f", {name}], check=True)  # into the database of psql
""",
}
"""How files of these endings are read; {name} is the name in Python."""
_READ_ARRAYS = """from safetensors.numpy import load_file

arrays = load_file({name})
"""
_READ_FASTTEXT = """import fasttext

model = fasttext.load_model({name})
"""
_READ_VECTORS = """from embedder import read_vectors

vectors = read_vectors({name})
"""
_BY_GENSIM = """from gensim.models import KeyedVectors

vectors = KeyedVectors.load_word2vec_format({name}, binary={binary})
"""


def file_card(
    name: str, format: str | None, about: str, lines: Sequence[str] = ()
) -> str:
    """The text of a card beside an exported file.

    Args:
      name: of the file, without its folder.
      format: by which it was asked for; None: that of its ending.
      about: what it holds.
      lines: facts of the training; control characters are escaped.
    """
    parts = [
        "---\ntags:\n- embeddings\n- embedder\n---",
        "# Exported by embedder",
        _block("text", f"{shown(name)}: {shown(about)}"),
        "## Use",
        _block("python", _reading(name, format, about)),
    ]
    return _joined(parts, lines)


def _joined(parts: list[str], lines: Sequence[str]) -> str:
    """The text of a card of `parts`, and of the facts of the training."""
    if lines:
        parts = [*parts, "## Training", _block("text", "\n".join(map(shown, lines)))]
    return "\n\n".join(parts) + "\n"


def _reading(name: str, format: str | None, about: str) -> str:
    """Python that reads the file."""
    low, text = name.lower(), shown(repr(name))
    if format == "fasttext-bin":
        return _READ_FASTTEXT.format(name=text)
    for ending, code in _READ.items():
        if low.endswith(ending):
            return code.format(name=text, keys=shown(repr(f"{name}.keys.parquet")))
    if low.endswith(".bin") or (
        low.removesuffix(".gz").endswith((".txt", ".vec")) and format != "glove"
    ):
        return _BY_GENSIM.format(name=text, binary=low.endswith(".bin"))
    is_vectors = " x " not in about and " vectors of " in about
    return (_READ_VECTORS if is_vectors else _READ_ARRAYS).format(name=text)


def _block(language: str, text: str) -> str:
    """A fenced block: its fence is longer than any row of backticks in `text`."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"
