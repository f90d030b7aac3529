"""Makes the folder that `bench gpu` needs on a machine with a GPU.

That machine is taken to have Python 3.12, jax, optax, orbax and pytest, and no way to
fetch anything. The folder has what else the base installation needs, but for packages
too large to carry (polars, TensorFlow, Numba); a corpus of ids; images; sets of words.
"""

import argparse
import json
import pickle
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import numpy as np

from bench.gpu.updates import write_encoded
from bench.results import CHECKOUT, data_folder

THERE = "jax", "optax", "orbax-checkpoint", "pytest"
PLATFORMS = "manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014"
LARGE = "numba", "llvmlite", "polars", "polars-runtime-32"
"""Packages that are left out: numba is used if the machine has it."""
LIMIT = 45 * 2**20  # bytes of the folder
IMAGES = 10_000
WORD_SETS = "wordsim353", "simlex999"
STAND_IN = '''
"""Stands for polars, which the kit leaves out: it can only be imported."""


class _Names(type):
    def __getattr__(cls, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return cls


class Absent(Exception, metaclass=_Names):
    """Any name of polars, errors among them."""

    def __init__(self, *arguments, **options):
        raise ImportError("polars is not in this kit.")


def __getattr__(name: str):
    return Absent
'''


def run(to: Path, *, python: str = "3.12", tiny: bool = False) -> None:
    """Makes the kit in the folder `to`, which is replaced, and prints the two lines to
    type there.

    Args:
      python: the version of Python there.
      tiny: a small corpus and few images, to try it.
    """
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    fetch_packages(to / "packages", python)
    write_data(to, is_tiny=tiny)
    size = sum(each.stat().st_size for each in to.rglob("*") if each.is_file())
    if size > LIMIT:
        raise SystemExit(f"bench: {to} has {size / 2**20:.0f} MiB, of at most 45.")
    print(f"{to}: {size / 2**20:.0f} MiB. In a copy of the checkout with it, type")
    print(f"export PYTHONPATH={to.name}/packages")
    print("python -m bench gpu --minutes 8 --to FOLDER")


def fetch_packages(to: Path, python: str) -> None:
    """Installs into a folder what the base needs and `THERE` does not bring."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    needed = resolved(project["dependencies"], python)
    left_out = {*LARGE, *resolved([*THERE], python)}
    pins = [f"{x}=={version}" for x, version in needed.items() if x not in left_out]
    options = "-qq", "--no-deps", "--target", str(to)
    pip("install", *options, *_for_there(python), *pins)
    (to / "polars.py").write_text(STAND_IN.lstrip())


def resolved(requirements: list[str], python: str) -> dict[str, str]:
    """Names and versions that pip would install on the machine with the GPU."""
    given = [each for each in requirements if not each.startswith("tensorflow")]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        options = "--dry-run", "--target", folder, "--report", str(report)
        pip("install", "-qq", *options, *_for_there(python), *given)
        found = json.loads(report.read_text())["install"]
    return {x["metadata"]["name"].lower(): x["metadata"]["version"] for x in found}


def _for_there(python: str) -> list[str]:
    platforms = [x for name in PLATFORMS for x in ("--platform", f"{name}_x86_64")]
    return ["--python-version", python, "--only-binary", ":all:", *platforms]


def pip(*arguments: str) -> None:
    """Runs pip."""
    subprocess.run([sys.executable, "-m", "pip", *arguments], check=True)


def write_data(to: Path, *, is_tiny: bool) -> None:
    """Writes the corpus as ids, images with their classes, and sets of words as rows of
    its vocabulary: tables are read by polars."""
    from embedder.config import Config
    from embedder.data.encode import encode
    from embedder.data.examples.array_files import read_idx
    from embedder.data.word_files import read_analogies, read_pairs
    from embedder.metrics.words import AnalogyQuestions, ScoredPairs
    from embedder.tokens.task import open_corpus

    data = data_folder()
    corpus = data / "wiki" / "wiki17m-0.txt.gz"
    if is_tiny:
        corpus = data / "small-text" / "lee_background.txt.gz"
    encoded = encode(open_corpus(str(corpus)), Config().tables.min_count)
    write_encoded(encoded, to / "corpus.npz")
    images = data / "fashion-mnist"
    num = 1_000 if is_tiny else IMAGES
    np.savez_compressed(
        to / "images.npz",
        features=read_idx(images / "t10k-images-idx3-ubyte.gz")[:num],
        labels=read_idx(images / "t10k-labels-idx1-ubyte.gz")[:num].astype(np.int32),
    )
    tokens, sets = encoded.vocabulary.tokens, data / "word-eval"
    files = {name: read_pairs(sets / f"{name}.tsv") for name in WORD_SETS}
    asked = {name: ScoredPairs(each, tokens) for name, each in files.items()}
    questions = AnalogyQuestions(read_analogies(sets / "questions-words.txt"), tokens)
    (to / "words.pickle").write_bytes(pickle.dumps((asked, questions)))


def main(arguments: list[str]) -> None:
    """Reads the command line, and makes the kit."""
    parser = argparse.ArgumentParser("python -m bench gpu kit", description=__doc__)
    parser.add_argument("--to", type=Path, default=CHECKOUT / "gpu-kit")
    parser.add_argument("--python", default="3.12", help="the version of Python there")
    parser.add_argument("--tiny", action="store_true", help="to try it")
    given = parser.parse_args(arguments)
    run(given.to, python=given.python, tiny=given.tiny)
