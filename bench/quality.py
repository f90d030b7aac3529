"""Quality against words seen and against time, as a table and a plot.

A point is a whole training with its own schedule: scores within a training mean little,
since the learning rate falls until its end.
"""

from pathlib import Path
from typing import Any

from bench import cpu
from bench.results import Results, Table, grouped, spread, write_picture, write_results


def run(
    programs: tuple[str, ...] = ("embedder", "gensim, 2 workers", "legacy, 2 workers"),
    epochs: tuple[int, ...] = (1, 2, 3, 5),
    seeds: tuple[int, ...] = (1,),
) -> Table:
    """Quality against words seen and against time, as a plot.

    Args:
      programs: which to run.
      epochs: each program is trained once for each number of epochs.
      seeds: all that is repeated with each.
    """
    samples = cpu.train(programs, epochs, seeds, {})
    settings = {"epochs": epochs, "seeds": seeds, "corpus": "wiki17m-0"}
    results = write_results("quality", settings=settings, samples=samples)
    write_picture("quality", lambda path: draw(results, path))
    return table(results)


def table(results: Results) -> Table:
    """A row for each program and number of epochs: medians and ranges over seeds."""
    rows = []
    for program, curve in _curves(results).items():
        for point in curve:
            seconds = spread(s["train_seconds"] for s in point)
            scores = [spread(s[key] for s in point) for key in cpu.SCORES]
            words = f"{point[0]['words'] / 1e6:.0f}"
            rows.append([program, words, seconds, *scores])
    return Table(["program", "M words", "seconds", *cpu.SCORES.values()], rows)


def draw(results: Results, path: Path) -> None:
    """Plots every score over words (top row) and over seconds (bottom row)."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, len(cpu.SCORES), figsize=(11, 6), sharey="col")
    for row, (key, label) in zip(
        axes,
        (("words", "M words seen"), ("train_seconds", "seconds of training")),
        strict=True,
    ):
        scale = 1e6 if key == "words" else 1
        for axis, (score, title) in zip(row, cpu.SCORES.items(), strict=True):
            for program, curve in _curves(results).items():
                axis.plot(
                    [_mean(s[key] / scale for s in point) for point in curve],
                    [_mean(s[score] for s in point) for point in curve],
                    marker="o",
                    label=program,
                )
            axis.set(xlabel=label, ylabel=title)
            if key != "words":
                axis.set_xscale("log")
            axis.grid(alpha=0.3)
    axes[0][0].legend()
    figure.suptitle("Skip-gram, 100 dimensions, 17 M words of Wikipedia an epoch")
    figure.tight_layout()
    figure.savefig(path, dpi=80)
    pyplot.close(figure)


def _curves(results: Results) -> dict[str, list[list[dict[str, Any]]]]:
    """Program -> its points by number of epochs; a point has a sample of each seed."""
    return {
        program: [samples for _, samples in sorted(grouped(own, "epochs").items())]
        for program, own in grouped(results["samples"], "program").items()
    }


def _mean(values) -> float:
    values = list(values)
    return sum(values) / len(values)


BENCHES = {"quality": run}
TABLES = {"quality": table}
