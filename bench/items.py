"""The next item of a session, in baskets of a shop and in click paths, beside gensim.

A tenth of the sessions is held out, the same of every program. The last item of each
is ranked by the mean product of its output vector with the input vectors of the items
before it, which are no candidates: hit rate, NDCG and MRR of all items. Beside them are
scores that need no training: the most popular items, and two ways of counting.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.results import Results, Table, data_folder, grouped, spread, write_results
from embedder import config
from embedder.api.train import train
from embedder.config.presets import PRESETS
from embedder.data.encode import encode
from embedder.data.encoded import Encoded
from embedder.data.sources import file_corpus
from embedder.data.split import Sequences, held_out, sequences
from embedder.disk.workdir import Workdir
from embedder.metrics.counting import followed_most_often, same_session
from embedder.metrics.ranking import last_items, next_item, ranking, target_ranks
from embedder.tokens.artefact import read_model

FILES = {
    "online-retail": "online-retail/baskets.parquet",
    "wikispeedia": "wikispeedia/paths.parquet",
}
HOLDOUT = 0.1
_TOPN = 10
MIN_COUNT = 5
_SCORES = "HR@10", "NDCG@10", "MRR"


class Trained(NamedTuple):
    """Tables of a training, [V, D] in the order of the corpus's vocabulary."""

    input: np.ndarray
    output: np.ndarray
    seconds: float  # without reading, counting and compilation


def _port(path: Path, encoded: Encoded, seed: int, **settings: Any) -> Trained:
    statuses: list[Any] = []
    options = config.with_options(
        config.Config(), seed=seed, holdout=HOLDOUT, min_count=MIN_COUNT, **settings
    )
    with tempfile.TemporaryDirectory() as folder:
        train(options, Path(folder), str(path), on_status=statuses.append)
        model = read_model(Workdir(Path(folder)).model)
    assert model.tokens == encoded.vocabulary.tokens
    seconds = statuses[-1].seconds - statuses[-1].compile_seconds
    return Trained(model.input, model.output, seconds)


def _gensim(path: Path, encoded: Encoded, seed: int, **settings: Any) -> Trained:
    """Trains on the sessions that are not held out; items of no other have zeros."""
    from gensim.models import Word2Vec

    text = training_sessions(encoded)
    model = Word2Vec(workers=2, seed=seed, min_count=1, **settings)
    model.build_vocab(text)
    start = time.perf_counter()
    model.train(text, total_examples=len(text), epochs=model.epochs)
    seconds = time.perf_counter() - start
    known = [encoded.vocabulary.ids[key] for key in model.wv.index_to_key]
    tables = np.zeros((2, len(encoded.vocabulary), model.vector_size), np.float32)
    tables[0, known], tables[1, known] = model.wv.vectors, model.syn1neg
    return Trained(*tables, seconds)


def counted(encoded: Encoded, sessions: Sequences) -> dict[str, list[float]]:
    """Scores of items by counts in the sessions that are not held out."""
    ids, num_items = encoded.vocabulary.ids, len(encoded.vocabulary)
    trained = [np.array([ids[x] for x in keys]) for keys in training_sessions(encoded)]
    given = np.concatenate(trained), np.array([len(x) for x in trained])
    cases = last_items(sessions, "excluded")
    scorers = {
        "counting, same session": same_session(given, num_items),
        "counting, followed most often": followed_most_often(given, num_items),
    }
    return {
        name: [*ranking(target_ranks(scorer, cases, num_items), _TOPN)[:3]]
        for name, scorer in scorers.items()
    }


def training_sessions(encoded: Encoded) -> list[list[str]]:
    """The items of each session that is not held out."""
    found: list[list[str]] = []
    for shard in range(len(encoded.shard_tokens)):
        ids, lengths = encoded.shard(shard, seed=0, epoch=0)
        is_out = held_out(shard, len(lengths), HOLDOUT)
        parts = np.split(ids, np.cumsum(lengths)[:-1])
        kept = (part for part, out in zip(parts, is_out, strict=True) if not out)
        found += [[encoded.vocabulary.tokens[i] for i in part] for part in kept]
    return found


class Program(NamedTuple):
    """How to train, and with what."""

    fit: Callable[..., Trained]
    settings: dict[str, Any]
    is_slow: bool = False  # trained with the first seed only


_ITEMS = {x: PRESETS["items"][x] for x in PRESETS["items"] if x != "next_items"}
_EPOCHS = {"epochs": _ITEMS["epochs"]}
_WHOLE = {"window": 1000, "shrink_windows": False}
PROGRAMS = {
    "embedder, defaults": Program(_port, _EPOCHS),
    "embedder, preset items": Program(_port, dict(_ITEMS)),
    "embedder, CBOW": Program(_port, {"architecture": "cbow", **_EPOCHS}),
    "gensim, skip-gram": Program(_gensim, {"sg": 1, **_EPOCHS}),
    "gensim, CBOW": Program(_gensim, {"sg": 0, **_EPOCHS}),
    "gensim, window 10": Program(_gensim, {"sg": 1, **_ITEMS, "window": 10}),
    "gensim, as the preset": Program(_gensim, {"sg": 1, **_ITEMS, **_WHOLE}, True),
}


def run(
    data: tuple[str, ...] = tuple(FILES),
    programs: tuple[str, ...] = tuple(PROGRAMS),
    seeds: tuple[int, ...] = (1, 2, 3),
) -> Table:
    """The last item of held-out sessions, beside gensim.

    Args:
      data: online-retail, wikispeedia; default: both.
      programs: which to run; default: all.
      seeds: each program is trained once with each.
    """
    samples: list[dict[str, Any]] = []
    baselines: dict[str, dict[str, list[float]]] = {}
    for name in data:
        path = data_folder() / FILES[name]
        encoded = encode(file_corpus(path), MIN_COUNT)
        sessions = sequences(encoded, HOLDOUT)
        baselines[name] = counted(encoded, sessions)
        for seed in seeds:
            for program in programs:
                fit, settings, is_slow = PROGRAMS[program]
                if is_slow and seed != seeds[0]:
                    continue
                found = fit(path, encoded, seed, **settings)
                scored = next_item(
                    found.input,
                    encoded.vocabulary.counts,
                    sessions,
                    _TOPN,
                    output=found.output,
                )
                sample = {"data": name, "program": program, "seed": seed}
                sample |= {"seconds": found.seconds, "scores": list(scored[:3])}
                samples.append(sample | {"cases": scored.num_cases})
                baselines[name]["the most popular items"] = list(scored.baseline[:3])
                print(samples[-1], flush=True)
    about = {name: PROGRAMS[name].settings for name in programs} | {"seeds": seeds}
    results = {"settings": about, "baselines": baselines, "samples": samples}
    return table(write_results("items", **results))


def table(results: Results) -> Table:
    """For each data set a row for each baseline, and one for each program."""
    rows = []
    for name, samples in grouped(results["samples"], "data").items():
        for baseline, scores in sorted(results["baselines"][name].items()):
            rows.append([name, baseline, *(f"{value:.3f}" for value in scores), ""])
        for program, own in grouped(samples, "program").items():
            each = zip(*(s["scores"] for s in own), strict=True)
            seconds = spread(s["seconds"] for s in own)
            rows.append([name, program, *(spread(x, 3) for x in each), seconds])
    return Table(["data", "program", *_SCORES, "training s"], rows)


BENCHES = {"items": run}
TABLES = {"items": table}
