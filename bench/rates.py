"""The automatic learning rate, ALGORITHM.md (43), beside shares and multiples of it.

Each subject is trained with the automatic `alpha`, and with that times each factor;
the score says which was best.
"""

import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from bench import graphs, items
from bench.results import Results, Table, data_folder, grouped, spread, write_results
from embedder import Vectors, config, evaluate_pairs
from embedder.api.train import train
from embedder.data.encode import encode
from embedder.data.sources import file_corpus
from embedder.data.split import sequences
from embedder.disk.workdir import Workdir
from embedder.metrics.ranking import next_item
from embedder.tokens.artefact import ModelFile, read_model

_SHARE = 50  # of the nodes with known labels, in percent
_SPLITS = 3


class Subject(NamedTuple):
    """What is trained, and how it is scored."""

    path: str  # in the folder of data
    score_name: str
    score: Callable[[Path, ModelFile], float]
    settings: dict[str, Any]


def _hit_rate(path: Path, model: ModelFile) -> float:
    """Of the last items of the held-out sessions, as `bench items`."""
    encoded = encode(file_corpus(path), items.MIN_COUNT)
    sessions = sequences(encoded, items.HOLDOUT)
    counts = encoded.vocabulary.counts
    return next_item(model.input, counts, sessions, 10, output=model.output).hit_rate


def _micro_f1(path: Path, model: ModelFile) -> float:
    """Of labels from half of the nodes, in percent, as `bench graphs`."""
    name = path.name.split(".")[0]
    labels = path.with_name(f"{name}.{graphs.DATA[name][1]}")
    vectors = Vectors(model.tokens, model.input)
    predicted = graphs.of_vectors(vectors, labels)
    (score,) = [*graphs.f1_scores(*predicted, [_SHARE], _SPLITS).values()][1]
    return sum(score) / len(score)


def _word_pairs(path: Path, model: ModelFile) -> float:
    pairs = data_folder() / "word-eval" / "wordsim353.tsv"
    return evaluate_pairs(Vectors(model.tokens, model.input), pairs).spearman


_ITEMS = {"holdout": items.HOLDOUT, "min_count": items.MIN_COUNT}
_WALKS = {"walks": 80, "walk_length": 40, "window": 10, "vector_size": 128}
_WALKS |= {"epochs": 1}
_CBOW = {"architecture": "cbow"}
_RETAIL, _PATHS = "online-retail/baskets.parquet", "wikispeedia/paths.parquet"
SUBJECTS = {
    "baskets": Subject(_RETAIL, "HR@10", _hit_rate, _ITEMS),
    "baskets, 20 epochs": Subject(_RETAIL, "HR@10", _hit_rate, _ITEMS | {"epochs": 20}),
    "baskets, CBOW": Subject(_RETAIL, "HR@10", _hit_rate, _ITEMS | _CBOW),
    "click paths": Subject(_PATHS, "HR@10", _hit_rate, _ITEMS),
    "click paths, CBOW": Subject(_PATHS, "HR@10", _hit_rate, _ITEMS | _CBOW),
    "walks, Cora": Subject("graphs/cora.edges.tsv", "micro F1", _micro_f1, _WALKS),
    "walks, BlogCatalog": Subject(
        "graphs/blogcatalog.edges.tsv.gz", "micro F1", _micro_f1, _WALKS
    ),
    "words": Subject(
        "wiki/wiki17m-0.txt.gz", "WS-353", _word_pairs, {"epochs": 1, "min_count": 5}
    ),
}


def run(
    subjects: tuple[str, ...] = tuple(SUBJECTS),
    factors: tuple[float, ...] = (0.25, 0.5, 2.0, 4.0),
    seeds: tuple[int, ...] = (1, 2),
) -> Table:
    """The automatic learning rate beside shares and multiples of it.

    Args:
      subjects: what to train; default: all.
      factors: of the automatic rate, beside 1.
      seeds: each is trained once with each.
    """
    samples = []
    for name in subjects:
        for seed in seeds:
            automatic = 0.0
            for factor in [1.0, *sorted({*factors} - {1.0})]:
                found = measure(SUBJECTS[name], seed, factor * automatic or None)
                automatic = automatic or found["alpha"]
                sample = {"subject": name, "seed": seed, "factor": factor, **found}
                print(sample, flush=True)
                samples.append(sample)
    return table(write_results("rates", settings={"seeds": seeds}, samples=samples))


def measure(
    subject: Subject, seed: int, alpha: float | None
) -> dict[str, float | None]:
    """The rate at the start, None: automatic, and the score of one training; None: it
    diverged."""
    path = data_folder() / subject.path
    given = {"seed": seed, "alpha": alpha, "loader": "memory", **subject.settings}
    options = config.with_options(config.Config(), **given)
    with tempfile.TemporaryDirectory() as folder:
        workdir = Workdir(Path(folder))
        try:
            train(options, workdir.path, str(path))
        except FloatingPointError as error:
            if alpha is None:  # the bench is about that one
                raise
            print(error, flush=True)
            return {"alpha": alpha, "score": None}
        used = tomllib.loads(workdir.config.read_text())["tokens"]["alpha"]
        score = subject.score(path, read_model(workdir.model))
    return {"alpha": used, "score": float(score)}


def table(results: Results) -> Table:
    """A row for each subject: the automatic rate, and the score by the factor."""
    samples = results["samples"]
    factors = sorted({sample["factor"] for sample in samples})
    rows = []
    for name, own in grouped(samples, "subject").items():
        by_factor = grouped(own, "factor")
        scores = [
            _spread([x["score"] for x in by_factor[factor]])
            if factor in by_factor
            else ""
            for factor in factors
        ]
        alpha = f"{by_factor[1.0][0]['alpha']:.4f}"
        rows.append([name, SUBJECTS[name].score_name, alpha, *scores])
    titles = [f"times {factor:g}" if factor != 1 else "automatic" for factor in factors]
    return Table(["subject", "score", "automatic alpha", *titles], rows)


def _spread(scores: list[float | None]) -> str:
    found = [score for score in scores if score is not None]
    if not found:
        return "diverged"
    num = len(scores) - len(found)
    return spread(found) + (f", {num} of {len(scores)} diverged" if num else "")


BENCHES = {"rates": run}
TABLES = {"rates": table}
