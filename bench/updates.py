"""A model of a shop that is updated each day for ten days, beside training anew.

The base is trained on all baskets but those of the last ten days with sales; then each
day the model is updated with the baskets of that day. A share of the baskets, drawn by
a hash of their names, is held out: of old days, and of new ones. The last item of each
is ranked as in `bench.items`, and by cosine. Items without a vector are no candidates;
as the right item they are never found.
"""

import hashlib
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from bench.items import FILES
from bench.results import (
    Results,
    Table,
    data_folder,
    grouped,
    spread,
    write_results,
)
from embedder import config
from embedder.evaluation.ranking import next_item
from embedder.presets import PRESETS
from embedder.run.train import train
from embedder.run.workdir import Workdir
from embedder.tables.artefact import read_model
from embedder.tables.split import Sequences

_OLD_SHARE, _NEW_SHARE = 0.1, 0.3  # of the baskets held out
_TOPN = 10
_MIN_COUNT = 5
_PRESET = PRESETS["items"]
_EPOCHS = int(_PRESET["epochs"])
SCORES = "old baskets", "new baskets", "new items"


class Shop(NamedTuple):
    """Baskets: tables of sessions, and held-out ones as lists of items."""

    base: pl.DataFrame
    days: list[pl.DataFrame]
    held_out: dict[str, list[list[str]]]  # by the names of SCORES


class Trained(NamedTuple):
    """Tables after the last day, [V, D]; of counting the pairs alone, [V, V]."""

    tokens: list[str]
    input: np.ndarray
    output: np.ndarray


def read_shop(num_days: int = 10) -> Shop:
    """The baskets of online-retail, without those of the held-out share."""
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
    held_out["new items"] = [*_of_new_items(base, new, held_out["new baskets"])]
    return Shop(base, [new.filter(pl.col("day") == day) for day in days], held_out)


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


def hit_rate(
    model: Trained, baskets: list[list[str]], is_cosine: bool = False
) -> float:
    """HR@10 of the last items of baskets in which they are not there before.

    All items of a basket count alike.

    Args:
      is_cosine: rank by the cosine with the mean of the items; else as in training.
    """
    ids = {token: i for i, token in enumerate(model.tokens)}
    cases = _cases(baskets)
    known = [
        [ids[item] for item in case if item in ids] for case in cases if case[-1] in ids
    ]
    known = [case for case in known if len(case) > 1]
    if not known:
        return 0.0
    sequences = Sequences(
        np.concatenate([*map(np.array, known)]).astype(np.int32),
        np.array([*map(len, known)]),
    )
    output = None if is_cosine else model.output
    found = next_item(
        *(model.input, np.ones(len(ids)), sequences, _TOPN), output=output, decay=1
    )
    return found.hit_rate * found.num_cases / len(cases)


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
        config.Config(), seed=seed, min_count=_MIN_COUNT, **_PRESET
    )
    if resume is not None:  # as --resume has it
        options = config.read_toml(Workdir(resume).config)
    options = config.with_options(options, **settings)
    train(options, run, str(source), resume=resume, grow=resume is not None)
    model = read_model(Workdir(run).model)
    return Trained(model.tokens, model.input, model.output)


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


def _count_rate(model: Trained, baskets: list[list[str]]) -> float:
    """`hit_rate` of counting, which looks at the item before the last alone."""
    ids, ranks = {token: i for i, token in enumerate(model.tokens)}, []
    for basket in _cases(baskets):
        known = [ids[item] for item in basket[:-1] if item in ids]
        if not known or basket[-1] not in ids:
            ranks.append(len(ids))
            continue
        scores = model.input[known[-1]].copy()
        scores[known] = -np.inf
        ranks.append(len(ids) - int((scores < scores[ids[basket[-1]]]).sum()))
    return float(np.mean(np.array(ranks) <= _TOPN)) if ranks else 0.0


class Program(NamedTuple):
    """How to train, and with what."""

    fit: Callable[[Shop, int, Path], Trained]
    about: str
    is_slow: bool = False  # trained with the first seed only


PROGRAMS = {
    "from the start": Program(_anew, "all days at once"),
    "no update": Program(_base, "the base alone"),
    "update": Program(_updated(), "--resume --grow"),
    "update, replay 0.1": Program(_updated(replay=0.1), "--replay 0.1", is_slow=True),
    "update, restart": Program(
        _updated(schedule="restart"), "--schedule restart: the full rate each day"
    ),
    "gensim, update": Program(_gensim, "build_vocab(update=True), train"),
    "counting, followed most often": Program(_counting, "all days"),
}


def run(programs: list[str], seeds: list[int], num_days: int = 10) -> Table:
    """Trains each of `programs` with each seed, and scores it after the last day."""
    shop, samples = read_shop(num_days), []
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            for program in programs:
                if PROGRAMS[program].is_slow and seed != seeds[0]:
                    continue
                start = time.perf_counter()
                model = PROGRAMS[program].fit(shop, seed, Path(folder))
                scores = _scores(program, model, shop)
                sample = {"program": program, "seed": seed, "scores": scores}
                sample |= {"items": len(model.tokens)}
                samples.append(sample)
                print(sample, round(time.perf_counter() - start), flush=True)
    about = {name: PROGRAMS[name].about for name in programs}
    about |= {"seeds": seeds, "days": num_days, "preset": dict(_PRESET)}
    cases = {name: len(baskets) for name, baskets in shop.held_out.items()}
    return table(
        write_results("updates", settings=about, baskets=cases, samples=samples)
    )


def _scores(program: str, model: Trained, shop: Shop) -> list[float]:
    """HR@10 by SCORES, and by SCORES with cosines; counting has none."""
    every = shop.held_out.values()
    if PROGRAMS[program].fit is _counting:
        return [_count_rate(model, baskets) for baskets in every]
    return [hit_rate(model, x, cosine) for cosine in (False, True) for x in every]


def table(results: Results) -> Table:
    """A row for each program."""
    columns = [*SCORES, *(f"{name}, cosine" for name in SCORES)]
    rows = []
    for program, samples in grouped(results["samples"], "program").items():
        each = zip(*(s["scores"] for s in samples), strict=True)
        shown = [spread(x, 3) for x in each]
        rows.append([program, *shown, *[""] * (len(columns) - len(shown))])
    return Table(["program", *columns], rows)
