"""Quality against words seen and against time, as a table and a picture.

A point is a whole training with its own schedule: scores in the midst of one say
little, since the learning rate falls to its end.
"""

from pathlib import Path
from typing import Any

from bench import cpu
from bench.results import Table, write_picture, write_results
from bench.systems import machine


def run(programs: list[str], epochs: list[int], seeds: list[int]) -> Table:
    """Trains each program for each number of epochs, with each seed."""
    samples = cpu.train(programs, epochs, seeds, {})
    settings = {"epochs": epochs, "seeds": seeds, "corpus": "wiki17m-0"}
    write_results("quality", machine=machine(), settings=settings, samples=samples)
    write_picture("quality", lambda path: draw(programs, samples, path))
    return table(programs, samples)


def table(programs: list[str], samples: list[dict[str, Any]]) -> Table:
    """A row for each program and number of epochs, of the medians over seeds."""
    rows = []
    for program in programs:
        for points in _points(program, samples):
            seconds = cpu.cell([s["train_seconds"] for s in points])
            scores = [cpu.cell([s[key] for s in points]) for key in cpu.SCORES]
            words = f"{points[0]['words'] / 1e6:.0f}"
            rows.append([program, words, seconds, *scores])
    return Table(["program", "M words", "seconds", *cpu.SCORES.values()], rows)


def draw(programs: list[str], samples: list[dict[str, Any]], path: Path) -> None:
    """Draws every score over words (above) and over seconds (below)."""
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
            for program in programs:
                points = _points(program, samples)
                axis.plot(
                    [_mean(s[key] / scale for s in point) for point in points],
                    [_mean(s[score] for s in point) for point in points],
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


def _points(program: str, samples: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The samples of `program`, those of as many epochs together."""
    of_program = [s for s in samples if s["program"] == program]
    return [
        [s for s in of_program if s["epochs"] == epochs]
        for epochs in sorted({s["epochs"] for s in of_program})
    ]


def _mean(values) -> float:
    values = list(values)
    return sum(values) / len(values)
