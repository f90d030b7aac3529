"""Throughput, memory and quality on English Wikipedia: port, gensim and oracle.

All run on the same cores and read the same plain text. Programs take turns, seed after
seed, so that a drift of the machine affects all of them.
"""

import gzip
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from bench.results import Results, Table, data_folder, grouped, spread, write_results
from bench.systems import Measured, measure

BASELINE, HS_BASELINE = "gensim, 2 workers", "gensim, hs, 2 workers"
_HS = {"hs": True, "negative": 0}
PROGRAMS: dict[str, tuple[str, dict[str, Any]]] = {
    "embedder": ("port", {"backend": "numba"}),
    "embedder, 1 thread": ("port", {"backend": "numba", "threads": 1}),
    "embedder, XLA": ("port", {"backend": "xla"}),
    "embedder, 2 devices": (
        "port",
        {"mode": "sharded", "devices": 2, "blocks_per_update": 2},
    ),
    "gensim, 1 worker": ("gensim", {"workers": 1}),
    BASELINE: ("gensim", {"workers": 2}),
    "embedder, hs": ("port", {"backend": "numba", **_HS}),
    HS_BASELINE: ("gensim", {"workers": 2, **_HS}),
    "legacy, 1 worker": ("oracle", {"workers": 1}),
    "legacy, 2 workers": ("oracle", {"workers": 2}),
}
SCORES = {"ws353": "WS-353", "simlex": "SimLex", "analogies": "analogies %"}


def run(
    programs: tuple[str, ...] = tuple(PROGRAMS),
    epochs: int = 5,
    seeds: tuple[int, ...] = (1,),
    vector_size: int = 100,
    architecture: Literal["skipgram", "cbow"] = "skipgram",
    name: str = "cpu",
) -> Table:
    """Throughput, memory and quality on 17 M words of Wikipedia.

    Args:
      programs: which to run; default: all.
      epochs: passes over the corpus.
      seeds: each program is trained once with each.
      vector_size: dimensions of a vector.
      architecture: skipgram or cbow.
      name: of the file in bench/results.
    """
    options = {"vector_size": vector_size, "architecture": architecture}
    samples = train(programs, (epochs,), seeds, options)
    settings = {"epochs": epochs, "seeds": seeds, "corpus": "wiki17m-0", **options}
    return table(write_results(name, settings=settings, samples=samples))


def train(
    programs: tuple[str, ...],
    epochs: tuple[int, ...],
    seeds: tuple[int, ...],
    options: dict,
) -> list[dict[str, Any]]:
    """One sample for each seed, number of epochs and program, in this order."""
    samples = []
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder, "wiki17m-0.txt")
        packed = data_folder() / "wiki" / "wiki17m-0.txt.gz"
        corpus.write_bytes(gzip.decompress(packed.read_bytes()))
        for seed in seeds:
            for number in epochs:
                for program in programs:
                    settings = {"epochs": number, "seed": seed, **options}
                    sample = _sample(program, corpus, settings)
                    print(f"{program}, {settings}: {sample}", flush=True)
                    samples.append({"epochs": number, "seed": seed, **sample})
    return samples


def _sample(program: str, corpus: Path, settings: dict[str, Any]) -> dict[str, Any]:
    name, own = PROGRAMS[program]
    with tempfile.TemporaryDirectory() as folder:
        vectors = Path(folder, "vectors.bin")
        measured = measure(name, corpus, vectors, **settings, **own)
        return {
            "program": program,
            **measured._asdict(),
            "words_per_second": _rate(measured),
            **scores(vectors),
        }


def _rate(measured: Measured) -> float:
    return measured.words / measured.train_seconds


def scores(path: Path) -> dict[str, float]:
    """WS-353, SimLex and analogies of a file of vectors, by the keys of SCORES."""
    from embedder import evaluate_analogies, evaluate_pairs, read_vectors

    vectors, sets = read_vectors(path), data_folder() / "word-eval"
    analogies = evaluate_analogies(vectors, sets / "questions-words.txt")
    return {
        "ws353": evaluate_pairs(vectors, sets / "wordsim353.tsv").spearman,
        "simlex": evaluate_pairs(vectors, sets / "simlex999.tsv").spearman,
        "analogies": 100 * analogies.total.accuracy,
    }


def table(results: Results) -> Table:
    """Medians and ranges for each program; throughput also relative to gensim's."""
    samples = results["samples"]
    programs = {s["program"] for s in samples}
    base = BASELINE if BASELINE in programs else HS_BASELINE
    columns: dict[str, Callable[[dict], float]] = {
        "M words/s": lambda s: s["words_per_second"] / 1e6,
        "vocabulary s": lambda s: s["vocabulary_seconds"],
        "compile s": lambda s: s["compile_seconds"],
        "peak GiB": lambda s: s["peak_bytes"] / 2**30,
        **{title: lambda s, key=key: s[key] for key, title in SCORES.items()},
    }
    rates = {
        (s["program"], s["epochs"], s["seed"]): s["words_per_second"] for s in samples
    }
    rows = []
    for program, of_program in grouped(samples, "program").items():
        ratios = [
            rates[program, *key] / rates[base, *key]
            for name, *key in rates
            if name == program and (base, *key) in rates
        ]
        row = [spread(f(s) for s in of_program) for f in columns.values()]
        rows.append([program, row[0], spread(ratios) if ratios else "", *row[1:]])
    titles = list(columns)
    return Table(["program", titles[0], f"to {base}", *titles[1:]], rows)


BENCHES = {"cpu": run}
TABLES = dict.fromkeys(("cpu", "cpu-300", "cpu-all", "cpu-cbow", "cpu-hs"), table)
