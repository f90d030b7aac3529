"""Speed and quality on English Wikipedia: port, gensim and oracle on the same cores.

Programs take turns, seed after seed, so that a machine that drifts drifts for all.
"""

import statistics
import tempfile
from pathlib import Path
from typing import Any

from bench.results import Table, data_folder, write_results
from bench.systems import Measured, machine, measure

PROGRAMS: dict[str, tuple[str, dict[str, Any]]] = {
    "embedder": ("port", {}),
    "gensim, 2 workers": ("gensim", {"sg": 1, "workers": 2}),
    "legacy, 1 worker": ("oracle", {"workers": 1}),
    "legacy, 2 workers": ("oracle", {"workers": 2}),
}


def run(programs: list[str], epochs: int, seeds: list[int], name: str) -> Table:
    """Trains each of `programs` with each seed and scores the vectors."""
    samples = []
    for seed in seeds:
        for program in programs:
            sample = _sample(program, epochs, seed)
            print(f"{program}, seed {seed}: {sample}", flush=True)
            samples.append(sample)
    settings = {"epochs": epochs, "seeds": seeds, "corpus": "wiki17m-0.txt.gz"}
    write_results(name, machine=machine(), settings=settings, samples=samples)
    return _table(programs, samples)


def _sample(program: str, epochs: int, seed: int) -> dict[str, Any]:
    name, settings = PROGRAMS[program]
    corpus = data_folder() / "wiki" / "wiki17m-0.txt.gz"
    with tempfile.TemporaryDirectory() as folder:
        vectors = Path(folder, "vectors.bin")
        measured = measure(name, corpus, vectors, epochs=epochs, seed=seed, **settings)
        return {
            "program": program,
            "seed": seed,
            **measured._asdict(),
            "words_per_second": _rate(measured),
            **_scores(vectors),
        }


def _rate(measured: Measured) -> float:
    return measured.words / measured.train_seconds


def _scores(path: Path) -> dict[str, float]:
    from embedder import evaluate_analogies, evaluate_pairs, read_vectors

    vectors, sets = read_vectors(path), data_folder() / "word-eval"
    analogies = evaluate_analogies(vectors, sets / "questions-words.txt")
    return {
        "ws353": evaluate_pairs(vectors, sets / "wordsim353.tsv").spearman,
        "simlex": evaluate_pairs(vectors, sets / "simlex999.tsv").spearman,
        "analogies": 100 * analogies.total.accuracy,
    }


def _table(programs: list[str], samples: list[dict[str, Any]]) -> Table:
    columns = {
        "M words/s": lambda s: s["words_per_second"] / 1e6,
        "vocabulary s": lambda s: s["vocabulary_seconds"],
        "peak GiB": lambda s: s["peak_bytes"] / 2**30,
        "WS-353": lambda s: s["ws353"],
        "SimLex": lambda s: s["simlex"],
        "analogies %": lambda s: s["analogies"],
    }
    rows = []
    for program in programs:
        of_program = [s for s in samples if s["program"] == program]
        rows.append([program, *(_cell(map(f, of_program)) for f in columns.values())])
    return Table(["program", *columns], rows)


def _cell(values) -> str:
    """Median, and the range where there are several."""
    values = sorted(values)
    digits = 1 if values[-1] >= 10 else 2 if values[-1] >= 1 else 3
    text = f"{statistics.median(values):.{digits}f}"
    if len(values) > 1:
        text += f" ({values[0]:.{digits}f} to {values[-1]:.{digits}f})"
    return text
