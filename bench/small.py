"""Quality of neighbours on a small corpus: 300 news articles, 60 k words.

The score is the mean cosine similarity of a token and its 10 nearest neighbours, in
reference vectors from a large corpus (17 M words of Wikipedia, say). The row "chance"
has the mean of all pairs. Tokens that differ only in case and punctuation count once,
and tokens that the reference lacks are skipped.
"""

import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from bench.results import Results, Table, data_folder, grouped, spread, write_results
from bench.systems import measure
from embedder import Vectors, read_vectors

TOPN = 10
SETTINGS = {"min_count": 2, "epochs": 10}
PROGRAMS: dict[str, tuple[str, dict[str, Any]]] = {
    "embedder, skip-gram": ("port", {}),
    "gensim, skip-gram": ("gensim", {"workers": 1}),
    "legacy, skip-gram": ("oracle", {}),
    "embedder, CBOW": ("port", {"architecture": "cbow"}),
    "gensim, CBOW": ("gensim", {"architecture": "cbow", "workers": 1}),
}


def run(
    reference: Path,
    seeds: tuple[int, ...] = (1, 2, 3),
    programs: tuple[str, ...] = tuple(PROGRAMS),
) -> Table:
    """Quality of neighbours after training on 60 k words.

    Args:
      reference: file of vectors that were trained on a large corpus.
      seeds: each program is trained once with each.
      programs: which to run; default: all.
    """
    vectors = read_vectors(reference)
    samples = [
        {"program": program, "seed": seed, **_sample(program, seed, vectors)}
        for seed in seeds
        for program in programs
    ]
    settings = SETTINGS | {"seeds": seeds, "corpus": "lee_background.txt.gz"}
    return table(write_results("small", settings=settings, samples=samples))


def _sample(program: str, seed: int, reference: Vectors) -> dict[str, float]:
    name, settings = PROGRAMS[program]
    corpus = data_folder() / "small-text" / "lee_background.txt.gz"
    with tempfile.TemporaryDirectory() as folder:
        vectors = Path(folder, "vectors.bin")
        measure(name, corpus, vectors, seed=seed, **SETTINGS, **settings)
        score, chance = neighbour_score(read_vectors(vectors), reference)
    return {"score": score, "chance": chance}


def neighbour_score(vectors: Vectors, reference: Vectors) -> tuple[float, float]:
    """Mean reference cosine of tokens with their neighbours, and of all pairs."""
    words = {}
    for row, key in enumerate(vectors.keys):
        word = re.sub("[^a-z]", "", key.lower())
        if word in reference:
            words.setdefault(word, row)
    unit = vectors.unit[list(words.values())]
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -np.inf)
    nearest = np.argpartition(-cosines, TOPN, axis=1)[:, :TOPN]
    wanted = reference.unit[[reference.index(word) for word in words]]
    truth = wanted @ wanted.T
    others = ~np.eye(len(words), dtype=bool)
    score = np.take_along_axis(truth, nearest, axis=1).mean()
    return float(score), float(truth[others].mean())


def table(results: Results) -> Table:
    """A row for each program, and one for all pairs of tokens."""
    samples = results["samples"]
    rows = [
        [program, spread((s["score"] for s in own), 4)]
        for program, own in grouped(samples, "program").items()
    ]
    rows.append(["chance", f"{samples[0]['chance']:.4f}"])
    return Table(["program", "mean reference cosine of 10 neighbours"], rows)


BENCHES = {"small": run}
TABLES = {"small": table}
