"""Speed and quality of vectors from n-grams: the port, fastText and gensim.

All train on the same text on two threads. A share of the words of WordSim-353 and
SimLex-999 is withheld: the text lacks them, so their vectors are of n-grams alone. That
is what rare-word sets ask for. fastText is run where its package `fasttext` can be
imported; that takes no seed, but two threads never train the same vectors twice.

`python -m bench.subwords PROGRAM CORPUS WORDS OUT JSON-SETTINGS` trains one program in
a process of its own and writes the vectors of the words.
"""

import gzip
import importlib.util
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy import stats

from bench.processes import run_python
from bench.results import Results, Table, data_folder, grouped, spread, write_results
from bench.systems import peak_bytes

PROGRAMS = "embedder", "fastText, 2 threads", "gensim, 2 workers"
SETS = {"WS-353": "wordsim353.tsv", "SimLex": "simlex999.tsv"}
_SHARE = 0.3  # of the words that are withheld
_THREADS = 2

Pairs = list[tuple[str, str, float]]


def run(
    programs: tuple[str, ...] = PROGRAMS,
    lines: int = 0,
    epochs: int = 5,
    seeds: tuple[int, ...] = (1,),
    vector_size: int = 100,
    architecture: Literal["skipgram", "cbow"] = "skipgram",
    buckets: int = 2_000_000,
    name: str = "subwords",
) -> Table:
    """Vectors from n-grams: speed, and quality on words that the text does not have.

    Args:
      programs: which to run; default: all.
      lines: of Wikipedia; 0: all of its 17 M words.
      epochs: passes over the text.
      seeds: each program is trained once with each.
      vector_size: dimensions of a vector.
      architecture: skipgram or cbow.
      buckets: numbers that n-grams are hashed to.
      name: of the file in bench/results.
    """
    settings: dict[str, Any] = {"vector_size": vector_size, "epochs": epochs}
    settings |= {"architecture": architecture, "buckets": buckets}
    sets = {name: read_pairs(data_folder() / "word-eval" / SETS[name]) for name in SETS}
    rated = [pair for pairs in sets.values() for pair in pairs]
    words = sorted({word for pair in rated for word in pair[:2]})
    rng = np.random.default_rng(0)
    withheld = {word for word in words if rng.random() < _SHARE}
    samples = []
    with tempfile.TemporaryDirectory() as folder:
        corpus, listed = Path(folder, "corpus.txt"), Path(folder, "words.json")
        num_words = write_text(corpus, withheld, lines)
        listed.write_text(json.dumps(words))
        for seed, program in itertools.product(seeds, programs):
            if "fastText" in program and importlib.util.find_spec("fasttext") is None:
                print("bench: fasttext is not installed, left out.", file=sys.stderr)
                continue
            out = Path(folder, "vectors.npy")
            given = json.dumps({**settings, "seed": seed})
            paths = map(str, (corpus, listed, out))
            done = run_python("-m", "bench.subwords", program, *paths, given)
            sample = {"program": program, "seed": seed, "words": num_words, **done}
            vectors = dict(zip(words, np.load(out), strict=True))
            sample |= {
                name: score(pairs, vectors, withheld) for name, pairs in sets.items()
            }
            print(sample, flush=True)
            samples.append(sample)
    facts = {"withheld": len(withheld), "lines": lines, **settings}
    return table(write_results(name, settings=facts, samples=samples))


def table(results: Results) -> Table:
    """The table of a file of results."""
    epochs = results["settings"]["epochs"]
    columns = ["program", "words/s", "times fastText", "peak MiB"]
    columns += [f"{name}, {kind}" for name in SETS for kind in ("known", "withheld")]
    groups, rows = grouped(results["samples"], "program"), []
    base = groups.get(PROGRAMS[1])
    seconds = None if base is None else np.median([x["seconds"] for x in base])
    for program, samples in groups.items():
        speeds = [x["words"] * epochs / x["seconds"] for x in samples]
        times = [seconds / x["seconds"] for x in samples] if seconds else []
        row = [program, spread(speeds, 0), spread(times) if times else "-"]
        row.append(spread((x["peak_bytes"] / 2**20 for x in samples), 0))
        for name, kind in itertools.product(SETS, (0, 1)):
            row.append(spread((x[name][kind] for x in samples), 3))
        rows.append(row)
    return Table(columns, rows)


def read_pairs(path: Path) -> Pairs:
    """Two words and a score a line, apart by tabs; other lines are left out."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        first, second, *others = line.split("\t")
        scores = [x for x in others if x.replace(".", "", 1).isdigit()]
        if scores:
            found.append((first.lower(), second.lower(), float(scores[0])))
    return found


def write_text(path: Path, withheld: set[str], lines: int) -> int:
    """Writes the text without the words `withheld`; returns how many words it has."""
    num_words = 0
    packed = data_folder() / "wiki" / "wiki17m-0.txt.gz"
    with gzip.open(packed, "rt", encoding="utf-8") as source, open(path, "w") as file:
        for line in itertools.islice(source, lines or None):
            kept = [word for word in line.split() if word not in withheld]
            file.write(" ".join(kept) + "\n")
            num_words += len(kept)
    return num_words


def score(
    pairs: Pairs, vectors: dict[str, np.ndarray], withheld: set[str]
) -> tuple[float, float]:
    """Spearman correlation of cosines, of pairs without and with a withheld word."""
    found = []
    for has in (False, True):
        some = [x for x in pairs if has == bool({x[0], x[1]} & withheld)]
        cosines = [_cosine(vectors[a], vectors[b]) for a, b, _ in some]
        rho = stats.spearmanr(cosines, [x[2] for x in some]).statistic
        found.append(float(rho))
    return found[0], found[1]


def _cosine(a: np.ndarray, b: np.ndarray) -> float:
    length = np.linalg.norm(a) * np.linalg.norm(b)
    return float(a @ b / length) if length else 0.0


def _train(program: str, corpus: str, words: list[str], given: dict) -> Iterator:
    """Seconds of the training, all of it; then the vectors of `words`."""
    buckets, is_cbow = given.pop("buckets"), given["architecture"] == "cbow"
    start = time.perf_counter()
    if program == "embedder":
        from embedder import EmbeddingTrainer

        trainer = EmbeddingTrainer(subwords=(3, 6), buckets=buckets, noise=32, **given)
        trainer.fit(corpus, verbose=False)
        yield time.perf_counter() - start
        found = trainer
    elif program == "gensim, 2 workers":
        from gensim.models import FastText

        given["sg"] = int(given.pop("architecture") == "skipgram")
        given |= {"bucket": buckets, "workers": _THREADS}
        found = FastText(corpus_file=corpus, **given).wv
        yield time.perf_counter() - start
    else:
        import fasttext

        model = fasttext.train_unsupervised(
            corpus,
            model="cbow" if is_cbow else "skipgram",
            dim=given["vector_size"],
            epoch=given["epochs"],
            minCount=5,
            bucket=buckets,
            t=1e-3,
            thread=_THREADS,
            verbose=0,
        )
        yield time.perf_counter() - start
        yield np.array([model.get_word_vector(word) for word in words])
        return
    size = given["vector_size"]
    yield np.array([_vector(found, word, size) for word in words])


def _vector(found: Any, word: str, size: int) -> np.ndarray:
    """Of a word; 0 if it has no n-gram."""
    try:
        return found[word]
    except KeyError:
        return np.zeros(size, np.float32)


def main(arguments: list[str]) -> None:
    """Trains as `arguments` say, and prints the result."""
    program, corpus, listed, out, settings = arguments
    words = json.loads(Path(listed).read_text())
    seconds, vectors = _train(program, corpus, words, json.loads(settings))
    np.save(out, vectors)
    print(json.dumps({"seconds": seconds, "peak_bytes": peak_bytes()}))


BENCHES = {"subwords": run}
TABLES = dict.fromkeys(("subwords", "subwords-cbow"), table)


if __name__ == "__main__":
    main(sys.argv[1:])
