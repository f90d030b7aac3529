"""The programs that are compared, each trained in its own process.

`python -m bench.systems NAME CORPUS VECTORS JSON-SETTINGS` trains, writes the vectors
as a word2vec binary file and prints one line of JSON: seconds, words and peak memory.
"""

import gzip
import importlib.metadata
import json
import os
import platform
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from bench.processes import cpu_devices, run_python


class Measured(NamedTuple):
    """Times, words and peak memory of one training."""

    vocabulary_seconds: float  # reading, counting and encoding the corpus
    train_seconds: float  # after that, without compilation
    compile_seconds: float  # tracing, and compiling or loading from a cache
    words: int  # raw tokens trained on, all epochs
    peak_bytes: int  # resident memory of the largest process


def measure(name: str, corpus: Path, vectors: Path, **settings) -> Measured:
    """Trains with program `name`, alone in a new process.

    `devices` of the settings is the number of CPU devices of that process.
    """
    arguments = name, str(corpus), str(vectors), json.dumps(settings)
    environment = cpu_devices(settings.get("devices", 1))
    return Measured(
        **run_python("-m", "bench.systems", *arguments, environment=environment)
    )


def train_port(corpus: Path, vectors: Path, **settings) -> dict:
    """Trains as `embedder train` does; `settings` override the defaults."""
    from embedder import config
    from embedder.api import train as run
    from embedder.data.encode import encode_cached
    from embedder.data.graph import encode_graph, open_graph
    from embedder.tokens import task as tables_run
    from embedder.vectors.export import write_vectors

    statuses = []
    options = config.with_options(config.Config(), **settings)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        cache = Path(folder, "cache")
        if options.tables.walks:
            files = open_graph(corpus, options.tables)
            encode_graph(files, options.tables, cache)
        else:
            encode_cached(
                tables_run.open_corpus(str(corpus)), options.tables.min_count, cache
            )
        vocabulary_seconds = time.perf_counter() - start
        trained = run.train(
            options,
            Path(folder, "run"),
            str(corpus),
            cache=cache,
            on_status=statuses.append,
        )
        write_vectors(trained, vectors)
    end = statuses[-1]
    return {
        "vocabulary_seconds": vocabulary_seconds,
        "train_seconds": end.seconds - end.compile_seconds,
        "compile_seconds": end.compile_seconds,
        "words": end.items,
    }


def train_oracle(corpus: Path, vectors: Path, **settings) -> dict:
    """Trains the oracle; its vocabulary is timed by building it once more."""
    import legacy
    from embedder import Vectors
    from embedder.vectors.export import write_vectors
    from legacy.vocabulary import build_vocabulary, encode, read_text

    start = time.perf_counter()
    text = read_text(corpus)
    encode(text, build_vocabulary(text, settings.get("min_count", 5)).tokens)
    vocabulary_seconds = time.perf_counter() - start
    words = len(text.ids)
    del text
    start = time.perf_counter()
    trainer = legacy.EmbeddingTrainer(**settings).fit(corpus)
    seconds = time.perf_counter() - start - vocabulary_seconds
    write_vectors(Vectors(trainer.index_to_key, trainer.vectors), vectors)
    return {
        "vocabulary_seconds": vocabulary_seconds,
        "train_seconds": seconds,
        "compile_seconds": 0,
        "words": words * trainer.epochs,
    }


def train_gensim(
    corpus: Path, vectors: Path, architecture: str = "skipgram", **settings
) -> dict:
    """Trains gensim from `corpus_file`, which must be uncompressed text."""
    from gensim.models import Word2Vec

    settings["sg"] = int(architecture == "skipgram")

    with tempfile.TemporaryDirectory() as folder:
        text = corpus
        if corpus.suffix == ".gz":
            text = Path(folder, "corpus.txt")
            text.write_bytes(gzip.decompress(corpus.read_bytes()))
        model = Word2Vec(**settings)
        start = time.perf_counter()
        model.build_vocab(corpus_file=str(text))
        middle = time.perf_counter()
        model.train(
            corpus_file=str(text),
            total_words=model.corpus_total_words,
            total_examples=model.corpus_count,
            epochs=model.epochs,
        )
        end = time.perf_counter()
    model.wv.save_word2vec_format(str(vectors), binary=True)
    return {
        "vocabulary_seconds": middle - start,
        "train_seconds": end - middle,
        "compile_seconds": 0,
        "words": model.corpus_total_words * model.epochs,
    }


def peak_bytes() -> int:
    """Peak resident memory of this process or of its largest child."""
    kinds = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    return 1024 * max(resource.getrusage(kind).ru_maxrss for kind in kinds)


def machine() -> dict[str, str]:
    """CPU and versions of packages, for a file of results."""
    names = (
        "embedder-jax",
        "jax",
        "numba",
        "numpy",
        "tensorflow-cpu",
        "gensim",
        "torch",
    )
    return {
        "cpu": f"{os.cpu_count()} cores, {_cpu_model()}",
        "python": platform.python_version(),
        **{name: _version(name) for name in names},
    }


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return "unknown"
    lines = [line.split(":") for line in info.read_text().splitlines()]
    return next((line[1].strip() for line in lines if "model name" in line[0]), "")


def main(arguments: list[str]) -> None:
    """Trains as `arguments` say, and prints the result."""
    name, corpus, vectors, settings = arguments
    train = {"port": train_port, "oracle": train_oracle, "gensim": train_gensim}[name]
    result = train(Path(corpus), Path(vectors), **json.loads(settings))
    print(json.dumps(result | {"peak_bytes": peak_bytes()}))


if __name__ == "__main__":
    main(sys.argv[1:])
