"""Three programs for gensim, `migration/recipes/`, with gensim and with our classes.

No line of them differs: ours are run by `python -m embedder.gensim`.
"""

import statistics
from pathlib import Path
from typing import Any

from bench.judges import PROGRAMS
from bench.processes import run_python
from bench.results import Results, Table, data_folder, grouped, spread, write_results

_FOLDER = Path(__file__).parents[1] / "migration" / "recipes"
_GRAPH, _SETS = "graphs/blogcatalog", "word-eval"
RECIPES = {
    "item2vec": ("online-retail/baskets.parquet",),
    "node2vec": (f"{_GRAPH}.edges.tsv.gz", f"{_GRAPH}.labels.tsv.gz"),
    "text": (
        "wiki/wiki17m-0.txt.gz",
        f"{_SETS}/wordsim353.tsv",
        f"{_SETS}/questions-words.txt",
    ),
}
"""Recipe -> the data that it is given."""


def run(
    programs: tuple[str, ...] = tuple(RECIPES),
    seeds: tuple[int, ...] = (1, 2, 3),
    limit: int | None = None,
) -> Table:
    """Three programs for gensim, with gensim and with embedder's classes.

    Args:
      programs: item2vec, node2vec, text; default: all.
      seeds: each is run once with each.
      limit: baskets, nodes of a walk, or sentences that a program uses; default: all.
    """
    samples: list[dict[str, Any]] = []
    for name in programs:
        data = [str(data_folder() / each) for each in RECIPES[name]]
        options = [] if limit is None else ["--limit", str(limit)]
        for seed in seeds:
            given = str(_FOLDER / f"{name}.py"), *data, "--seed", str(seed), *options
            for program, prefix in PROGRAMS.items():
                sample = {"recipe": name, "seed": seed, "program": program}
                sample |= run_python(*prefix, *given)
                print(sample, flush=True)
                samples.append(sample)
    about = {"seeds": seeds, "limit": limit}
    return table(write_results("recipes", settings=about, samples=samples))


def table(results: Results) -> Table:
    """A row for each score of a recipe; the time is that of the class alone."""
    rows = []
    for recipe, samples in grouped(results["samples"], "recipe").items():
        theirs, ours = (grouped(samples, "program")[name] for name in PROGRAMS)
        times = (statistics.median(x["seconds"] for x in own) for own in (theirs, ours))
        gensim, embedder = times
        for score in ours[0]["scores"]:
            both = (spread(x["scores"][score] for x in own) for own in (theirs, ours))
            rows.append([recipe, score, *both, f"{embedder / gensim:.2f}"])
    columns = ["recipe", "score", "gensim", "embedder", "time, embedder to gensim"]
    return Table(columns, rows)


BENCHES = {"recipes": run}
TABLES = {"recipes": table}
