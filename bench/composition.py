"""Quality of trainings whose updates have different numbers of blocks.

An update sums the gradients of N blocks from random positions of a shard, ALGORITHM.md
(29). Every sample is a whole training, scored at its end, and is written as soon as it
is measured, so that a long table can be made in pieces.
"""

import itertools
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from bench import cpu
from bench.results import (
    CHECKOUT,
    Results,
    Table,
    commit,
    data_folder,
    read_results,
    spread,
    write_results,
)
from bench.systems import machine, measure
from embedder import Config, evaluate_pairs, read_vectors
from embedder.config import resolve, with_options
from embedder.data.encode import encode
from embedder.data.encoded import Encoded
from embedder.tokens.task import open_corpus

PROGRAMS = {"gensim": cpu.BASELINE}
_UPDATE = "tile", "noise", "block", "blocks_per_update", "alpha"
_ROW = "program", "epochs", *_UPDATE
_IN_CPU = {"wordsim353", "simlex999"}  # scored by `cpu.scores`


class Grid(NamedTuple):
    """What to train: all combinations of these."""

    blocks_per_update: tuple[int, ...]
    alphas: tuple[float, ...]  # beside the default of each number of blocks
    tiles: tuple[tuple[int, int], ...]  # tokens of a tile, and its noise tokens
    block: int | None  # tokens of a block; None: the default
    epochs: tuple[int, ...]
    seeds: tuple[int, ...]


def read_tile(text: str) -> tuple[int, int]:
    """Tokens and noise tokens of a tile, from TILE:NOISE."""
    tile, _, noise = text.partition(":")
    if not (tile.isdecimal() and noise.isdecimal()):
        raise SystemExit(f"bench: `tiles` must be TILE:NOISE, as 16:32, got {text!r}.")
    return int(tile), int(noise)


def run(
    corpus: Path | None = None,
    architecture: Literal["skipgram", "cbow"] = "skipgram",
    blocks_per_update: tuple[int, ...] = (1, 16, 64, 256, 1024),
    alphas: tuple[float, ...] = (),
    tiles: tuple[str, ...] = ("16:32",),
    block: int | None = None,
    epochs: tuple[int, ...] = (5,),
    seeds: tuple[int, ...] = (1,),
    programs: tuple[Literal["gensim"], ...] = (),
    keep: bool = False,
    name: str = "composition",
) -> Table:
    """Quality of trainings whose updates have different numbers of blocks.

    All combinations of the settings are trained.

    Args:
      corpus: a text file; none: 17 M words of Wikipedia.
      architecture: skipgram or cbow.
      blocks_per_update: numbers of blocks of an update.
      alphas: learning rates to train with, beside the default of each number.
      tiles: tokens of a tile and its noise tokens, as 16:32.
      block: tokens of a block; none: the default.
      epochs: passes over the corpus.
      seeds: each training is repeated with each.
      programs: others to train for the same numbers of epochs.
      keep: keep the samples of the same commit that the file already has.
      name: of the file in bench/results.
    """
    corpus = corpus or data_folder() / "wiki" / "wiki17m-0.txt.gz"
    shapes = tuple(read_tile(text) for text in tiles)
    grid = Grid(blocks_per_update, alphas, shapes, block, epochs, seeds)
    encoded = encode(open_corpus(str(corpus)), Config().tables.min_count)
    settings = {"corpus": corpus.name, "tokens": encoded.num_tokens}
    settings |= {"architecture": architecture, "sets": [p.stem for p in _more_sets()]}
    trainings = [*_trainings(grid, architecture, encoded), *_others(programs, grid)]
    samples = _kept_samples(name, settings) if keep else []
    if not _is_certain(now := commit(CHECKOUT)):
        _warn(f"no later run will keep these samples: the commit is {now!r}.")
    for training in trainings:
        if not any(training.items() <= sample.items() for sample in samples):
            sample = {"commit": commit(CHECKOUT), **training}
            sample |= _measure(corpus, architecture, training)
            print(sample, flush=True)
            samples.append(sample)
            write_results(name, settings=settings, samples=samples)
    return table(write_results(name, settings=settings, samples=samples))


def _trainings(
    grid: Grid, architecture: str, encoded: Encoded
) -> Iterator[dict[str, Any]]:
    """Settings of the trainings of `grid`, resolved for `encoded`."""
    row_updates = encoded.vocabulary.row_updates

    def resolved(epochs: int, **options) -> dict[str, Any]:
        config = with_options(Config(), architecture=architecture, **options)
        tables = resolve(config, encoded.num_tokens, epochs, row_updates).tables
        return {key: getattr(tables, key) for key in _UPDATE}

    for seed, epochs, (tile, noise), blocks, alpha in itertools.product(
        grid.seeds,
        grid.epochs,
        grid.tiles,
        grid.blocks_per_update,
        (None, *grid.alphas),
    ):
        update = resolved(
            epochs,
            tile=tile,
            noise=noise,
            block=grid.block,
            blocks_per_update=blocks,
            alpha=alpha,
        )
        run = {"program": "embedder", "epochs": epochs, "seed": seed}
        yield {**run, **update, "default": update == resolved(epochs)}


def _others(programs: tuple[str, ...], grid: Grid) -> Iterator[dict[str, Any]]:
    for seed, epochs, name in itertools.product(grid.seeds, grid.epochs, programs):
        yield {"program": PROGRAMS[name], "epochs": epochs, "seed": seed}


def _kept_samples(name: str, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """Samples of the file `name` that were measured at the commit of the checkout."""
    try:
        results = read_results(name)
    except FileNotFoundError:
        return []
    about = settings | {"machine": machine()}
    before = results["settings"] | {"machine": results["machine"]}
    if different := [key for key in about if before.get(key) != about[key]]:
        key = different[0]
        raise SystemExit(
            f"bench: `keep` needs results of the same {key}, but {name}.json has"
            f" {before.get(key)!r}, and this run {about[key]!r}. Give another `name`."
        )
    now, samples = commit(CHECKOUT), results["samples"]
    kept = [s for s in samples if _is_certain(now) and s["commit"] == now]
    if dropped := len(samples) - len(kept):
        _warn(
            f"{dropped} samples of {name}.json are dropped: it is not certain that they"
            f" are of this commit, {now!r}."
        )
    return kept


def _is_certain(commit: str) -> bool:
    """Whether `commit` says which code ran."""
    return commit != "unknown" and not commit.endswith("dirty")


def _warn(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


def _measure(
    corpus: Path, architecture: str, training: dict[str, Any]
) -> dict[str, float]:
    program, own = cpu.PROGRAMS[training["program"]]
    if program == "port":
        own = {key: training[key] for key in _UPDATE}  # any backend
    own = own | {key: training[key] for key in ("epochs", "seed")}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "vectors.bin")
        measured = measure(program, corpus, path, architecture=architecture, **own)
        return {"seconds": measured.train_seconds, **cpu.scores(path), **_more(path)}


def _more_sets() -> list[Path]:
    """Files of similarity sets that `cpu.scores` does not read."""
    paths = sorted((data_folder() / "word-eval").glob("*.tsv"))
    return [path for path in paths if path.stem not in _IN_CPU]


def _more(path: Path) -> dict[str, float]:
    vectors = read_vectors(path)
    return {p.stem: evaluate_pairs(vectors, p).spearman for p in _more_sets()}


def table(results: Results) -> Table:
    """A row for each setting: medians and ranges over seeds."""
    titles = cpu.SCORES | {name: name for name in results["settings"]["sets"]}
    rows: dict[tuple, list[dict[str, Any]]] = {}
    for sample in results["samples"]:
        rows.setdefault(tuple(sample.get(key) for key in _ROW), []).append(sample)
    columns = ["program", "epochs", "tile:noise", "blocks (tokens) an update", "alpha"]
    return Table(
        [*columns, "seeds", *titles.values(), "seconds"],
        [_row(rows[key], titles) for key in sorted(rows, key=_order)],
    )


def _order(row: tuple) -> tuple:
    """Rows by epochs, those of other programs after those of the port."""
    program, epochs, *update = row
    return epochs, program != "embedder", program, *(x or 0 for x in update)


def _row(samples: list[dict[str, Any]], titles: dict[str, str]) -> list[str]:
    first = samples[0]
    scores = [spread(s[key] for s in samples) for key in (*titles, "seconds")]
    row = [first["program"], str(first["epochs"]), *_update_cells(first)]
    return [*row, str(len(samples)), *scores]


def _update_cells(sample: dict[str, Any]) -> list[str]:
    if "block" not in sample:
        return ["", "", ""]
    tile, noise, block, blocks, alpha = (sample[key] for key in _UPDATE)
    mark = ", default" if sample["default"] else ""
    size = f"{blocks:,} ({blocks * block:,}){mark}"
    return [f"{tile}:{noise}", size, f"{alpha:.4f}"]


BENCHES = {"composition": run}
TABLES = dict.fromkeys(("composition", "composition-cbow"), table)
