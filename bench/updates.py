"""A model of a shop that is updated each day for ten days, beside training anew.

The base is trained on all baskets but those of the last ten days with sales; then each
day the model is updated with the baskets of that day. A share of the baskets, drawn by
a hash of their names, is held out: of old days, and of new ones. The last item of each
is ranked as in `bench.items`, and by cosine. Items without a vector are no candidates;
as the right item they are never found. Few items are new in ten days: with more days,
and several in an update, there are enough cases to tell how new items are found.
"""

import functools
import hashlib
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from bench.items import FILES
from bench.results import Results, Table, data_folder, grouped, spread, write_results
from embedder import EmbeddingTrainer, config
from embedder.api.train import train
from embedder.config.presets import PRESETS
from embedder.disk.workdir import Workdir
from embedder.metrics.intervals import Estimate, ratio_estimate
from embedder.metrics.ranking import by_vectors, last_items, target_ranks
from embedder.tokens.artefact import read_model

_OLD_SHARE, _NEW_SHARE = 0.1, 0.3  # of the baskets held out
_MIN_COUNT = 5
_PRESET = {x: PRESETS["items"][x] for x in PRESETS["items"] if x != "next_items"}
_EPOCHS = int(_PRESET["epochs"])
SCORES = "old baskets", "new baskets"
_NEW = "new items"
_NEW_SCORES = "HR@10", "HR@100", "MRR", "HR@10, cosine"
_TINY = {"backend": "numba", "threads": 1}  # updates of a few seconds


class Shop(NamedTuple):
    """Baskets: tables of sessions, and held-out ones as lists of items."""

    base: pl.DataFrame
    days: list[pl.DataFrame]  # of an update each
    held_out: dict[str, list[list[str]]]  # by the names of SCORES, and of new items


class Trained(NamedTuple):
    """Tables after the last day, [V, D]; of counting the pairs alone, [V, V]."""

    tokens: list[str]
    input: np.ndarray
    output: np.ndarray


def read_shop(num_days: int = 10, every: int = 1) -> Shop:
    """The baskets of online-retail, without those of the held-out share.

    Args:
      every: days of an update.
    """
    frame = pl.read_parquet(data_folder() / FILES["online-retail"])
    frame = frame.sort("timestamp", maintain_order=True)
    frame = frame.with_columns(day=pl.from_epoch("timestamp").dt.date())
    days = frame["day"].unique().sort()[-num_days:]
    is_new = pl.col("day") >= days[0]
    shares = pl.when(is_new).then(_NEW_SHARE).otherwise(_OLD_SHARE)
    names = frame["session"].unique().to_list()
    hashes = pl.DataFrame({"session": names, "hash": [*map(_hash, names)]})
    frame = frame.join(hashes, on="session", maintain_order="left")
    is_out = pl.col("hash") < shares
    base, new = frame.filter(~is_out & ~is_new), frame.filter(~is_out & is_new)
    old_out, new_out = (frame.filter(is_out & x) for x in (~is_new, is_new))
    held_out = {"old baskets": _baskets(old_out), "new baskets": _baskets(new_out)}
    held_out[_NEW] = [*_of_new_items(base, new, held_out["new baskets"])]
    updates = [days[start : start + every] for start in range(0, num_days, every)]
    parts = [new.filter(pl.col("day").is_between(x[0], x[-1])) for x in updates]
    return Shop(base, parts, held_out)


def _hash(name: str) -> float:
    """A number in [0, 1) for a name."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4]) / 2**32


def _baskets(frame: pl.DataFrame) -> list[list[str]]:
    grouped_items = frame.group_by("session", maintain_order=True).agg("item")
    return grouped_items["item"].to_list()


def _of_new_items(
    base: pl.DataFrame, new: pl.DataFrame, baskets: list[list[str]]
) -> Iterator[list[str]]:
    """For each item that is frequent enough only with the new days: each basket that
    has it, with the item last."""
    before, after = (_frequent(x) for x in (base, pl.concat([base, new])))
    found = after - before
    for basket in baskets:
        for item in sorted(found.intersection(basket)):
            yield [*(x for x in basket if x != item), item]


def _frequent(frame: pl.DataFrame) -> set[str]:
    counts = frame["item"].value_counts()
    return {*counts.filter(pl.col("count") >= _MIN_COUNT)["item"]}


def target_rank(
    model: Trained, baskets: list[list[str]], is_cosine: bool = False
) -> np.ndarray:
    """The rank of the last item of each basket in which it is not there before, f64[N];
    inf: it has no vector, or no other item of the basket has one.

    All items of a basket count alike.

    Args:
      is_cosine: rank by the cosine with the mean of the items; else as in training.
    """
    ids = {token: i for i, token in enumerate(model.tokens)}
    cases = _cases(baskets)
    known = [[ids[item] for item in case if item in ids] for case in cases]
    is_known = [x[-1] in ids and len(y) > 1 for x, y in zip(cases, known, strict=True)]
    ranks = np.full(len(cases), np.inf)
    if any(is_known):
        found = [x for x, is_one in zip(known, is_known, strict=True) if is_one]
        sequences = np.concatenate(found), np.array([*map(len, found)])
        scorer = by_vectors(model.input, None if is_cosine else model.output, decay=1)
        one_each = last_items(sequences, "excluded")
        ranks[is_known], _ = target_ranks(scorer, one_each, len(ids))
    return ranks


def _cases(baskets: list[list[str]]) -> list[list[str]]:
    return [x for x in baskets if len(x) > 1 and x[-1] not in x[:-1]]


def _anew(shop: Shop, seed: int, folder: Path) -> Trained:
    every = pl.concat([shop.base, *shop.days])
    return _run(folder / "anew", every, seed)


def _base(shop: Shop, seed: int, folder: Path) -> Trained:
    return _run(folder / "base", shop.base, seed)


def _updated(**settings: Any) -> Callable[[Shop, int, Path], Trained]:
    """Trains the base, and updates it with each day."""

    def fit(shop: Shop, seed: int, folder: Path) -> Trained:
        last, model = folder / "base", _base(shop, seed, folder)
        for number, day in enumerate(shop.days):
            run = folder / f"{number}-{'-'.join(map(str, settings.values()))}"
            model = _run(run, day, seed, last, **settings)
            last = run
        return model

    return fit


def _run(
    run: Path,
    baskets: pl.DataFrame,
    seed: int,
    resume: Path | None = None,
    **settings: Any,
) -> Trained:
    """The model of a run on `baskets`; of a finished one as it is."""
    source = run.with_suffix(".parquet")
    if not source.exists():  # its time is part of the manifest
        baskets.select("session", "item", "timestamp").write_parquet(source)
    options = config.with_options(
        config.Config(), seed=seed, min_count=_MIN_COUNT, **_PRESET, **_TINY
    )
    if resume is not None:  # as --resume has it
        options = config.read_toml(Workdir(resume).config)
    options = config.with_options(options, **settings)
    train(options, run, str(source), resume=resume, grow=resume is not None)
    model = read_model(Workdir(run).model)
    return Trained(model.tokens, model.input, model.output)


def _partial_fit(replay: float) -> Callable[[Shop, int, Path], Trained]:
    """The same in Python: an epoch for each day."""

    def fit(shop: Shop, seed: int, folder: Path) -> Trained:
        seen = _baskets(shop.base)
        trainer = EmbeddingTrainer.preset("items", seed=seed, min_count=_MIN_COUNT)
        trainer.fit(seen)
        for day in map(_baskets, shop.days):
            earlier = seen if replay else None
            trainer.partial_fit(day, grow=True, replay=replay, earlier=earlier)
            seen = [*seen, *day]
        trainer.save(folder / "partial_fit.npz")
        model = read_model(folder / "partial_fit.npz")
        return Trained(model.tokens, model.input, model.output)

    return fit


def _gensim(shop: Shop, seed: int, folder: Path) -> Trained:
    from gensim.models import Word2Vec

    text = _baskets(shop.base)
    model = Word2Vec(
        text, sg=1, workers=2, seed=seed, epochs=_EPOCHS, min_count=_MIN_COUNT
    )
    for day in shop.days:
        text = _baskets(day)
        model.build_vocab(text, update=True)
        model.train(text, total_examples=len(text), epochs=model.epochs)
    return Trained(model.wv.index_to_key, model.wv.vectors, model.syn1neg)


def _counting(shop: Shop, seed: int, folder: Path) -> Trained:
    """How often each item came right after another one, [V, V]."""
    every = pl.concat([shop.base, *shop.days])
    tokens = sorted(_frequent(every))
    ids = {token: i for i, token in enumerate(tokens)}
    after = np.zeros((len(tokens), len(tokens)), np.float32)
    for basket in _baskets(every):
        known = [ids[item] for item in basket if item in ids]
        np.add.at(after, (known[:-1], known[1:]), 1)
    return Trained(tokens, after, after)


def _count_rank(model: Trained, baskets: list[list[str]]) -> np.ndarray:
    """`target_rank` of counting, which looks at the item before the last alone."""
    ids, ranks = {token: i for i, token in enumerate(model.tokens)}, []
    for basket in _cases(baskets):
        known = [ids[item] for item in basket[:-1] if item in ids]
        if not known or basket[-1] not in ids:
            ranks.append(np.inf)
            continue
        scores = model.input[known[-1]].copy()
        scores[known] = -np.inf
        ranks.append(len(ids) - int((scores < scores[ids[basket[-1]]]).sum()))
    return np.array(ranks, float)


class Program(NamedTuple):
    """How to train, and with what."""

    fit: Callable[[Shop, int, Path], Trained]
    about: str


PROGRAMS = {
    "from the start": Program(_anew, "all days at once"),
    "no update": Program(_base, "the base alone"),
    "update": Program(_updated(), "--resume --grow"),
    "update, replay 0.1": Program(_updated(replay=0.1), "--replay 0.1"),
    "update, restart": Program(
        _updated(schedule="restart"), "--schedule restart: the full rate each day"
    ),
    "partial_fit": Program(_partial_fit(0.0), "grow=True: an epoch each day"),
    "partial_fit, replay 0.1": Program(_partial_fit(0.1), "replay=0.1, earlier="),
    "gensim, update": Program(_gensim, "build_vocab(update=True), train"),
    "counting, followed most often": Program(_counting, "all days"),
}


def run(
    programs: tuple[str, ...] = tuple(PROGRAMS),
    seeds: tuple[int, ...] = (1, 2, 3),
    days: int = 10,
    every: int = 1,
    name: str = "updates",
) -> Table:
    """A model of a shop, updated each day, beside training anew and gensim's update.

    Args:
      programs: which to run; default: all.
      seeds: each program is trained once with each.
      days: the last days with sales.
      every: days of an update.
      name: of the file in bench/results.
    """
    shop, samples = read_shop(days, every), []
    of_new: dict[str, list[np.ndarray]] = {program: [] for program in programs}
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            for program in programs:
                start = time.perf_counter()
                model = PROGRAMS[program].fit(shop, seed, Path(folder))
                scores = _scores(program, model, shop)
                of_new[program].append(_new_scores(program, model, shop))
                sample = {"program": program, "seed": seed, "scores": scores}
                sample |= {"items": len(model.tokens)}
                samples.append(sample)
                print(sample, round(time.perf_counter() - start), flush=True)
    about: dict[str, Any] = {name: PROGRAMS[name].about for name in programs}
    about |= {"seeds": seeds, "days": days, "every": every, "preset": dict(_PRESET)}
    cases = {name: len(baskets) for name, baskets in shop.held_out.items()}
    items = [case[-1] for case in _cases(shop.held_out[_NEW])]
    cases |= {"different new items": len({*items})}
    found = {k: _estimates(np.mean(x, axis=0), items) for k, x in of_new.items()}
    results = {"baskets": cases, "samples": samples, "new items": found}
    return table(write_results(name, settings=about, **results))


def _rankers(program: str) -> list[Callable[..., np.ndarray]]:
    """By output vectors and by cosines; by counts."""
    if PROGRAMS[program].fit is _counting:
        return [_count_rank]
    return [target_rank, functools.partial(target_rank, is_cosine=True)]


def _scores(program: str, model: Trained, shop: Shop) -> list[float]:
    """HR@10 by SCORES, and by SCORES with cosines; counting has none."""
    return [
        float(np.mean(rank(model, shop.held_out[name]) <= 10))
        for rank in _rankers(program)
        for name in SCORES
    ]


def _new_scores(program: str, model: Trained, shop: Shop) -> np.ndarray:
    """The scores _NEW_SCORES of each case of new items, f64[N, 4 or 3]."""
    ranks, *cosine = (rank(model, shop.held_out[_NEW]) for rank in _rankers(program))
    return np.stack(
        [ranks <= 10, ranks <= 100, 1 / ranks, *(x <= 10 for x in cosine)], 1
    )


def _estimates(scores: np.ndarray, items: list[str]) -> list[Estimate]:
    """The mean of each column of the scores of cases, with an interval by resamples of
    the new items, of which each has all its cases."""
    if not items:
        return []
    _, group = np.unique(items, return_inverse=True)
    sizes = np.bincount(group).astype(float)
    return [ratio_estimate(np.bincount(group, x), sizes) for x in scores.T]


def table(results: Results) -> Table:
    """A row for each program: medians and ranges over seeds; of new items means over
    seeds with 95 % intervals by items."""
    columns = [*SCORES, *(f"{name}, cosine" for name in SCORES)]
    titles = [f"{_NEW}, {name}" for name in _NEW_SCORES]
    rows = []
    for program, samples in grouped(results["samples"], "program").items():
        each = zip(*(s["scores"] for s in samples), strict=True)
        shown = [spread(x, 3) for x in each]
        shown += [""] * (len(columns) - len(shown))
        found = ["{:.3f} [{:.3f}, {:.3f}]".format(*x) for x in results[_NEW][program]]
        rows.append([program, *shown, *found, *[""] * (len(titles) - len(found))])
    return Table(["program", *columns, *titles], rows)


BENCHES = {"updates": run}
TABLES = dict.fromkeys(("updates", "updates-new-items"), table)
