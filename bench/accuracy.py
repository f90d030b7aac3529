"""Accuracy and retrieval of encoders on test images, by commands as a user gives them.

Each case is an `embedder train` of the training images with each seed, and an
`embedder evaluate` of the test images, whose figures it prints.
"""

import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.processes import run_python
from bench.results import Results, Table, data_folder, grouped, spread, write_results

CASES = {
    "conv-small": "fashion-mnist --network conv-small",
    "conv-small, MNIST": "mnist --network conv-small --augment crop=2",
    "mlp": "fashion-mnist --network mlp --layers 784 256 64 10",
    "resnet": "fashion-mnist --network resnet --network-args depth=18 width=8",
    "wide-resnet": "fashion-mnist --network wide-resnet "
    "--network-args depth=10 width=1",
    "vit": "fashion-mnist --network vit --network-args patch=7 width=64 depth=4",
    "softmax": "fashion-mnist --objective softmax --objective-args smoothing=0.1",
    "arcface": "fashion-mnist --objective arcface",
    "supcon": "fashion-mnist --objective supcon --vector-size 64",
    "triplet": "fashion-mnist --objective triplet",
    "simclr": "fashion-mnist --objective simclr --augment resized-crop=0.3 flip",
}
"""Name -> folder of the data, and what `embedder train` is given."""

SCORES = "recall@1", "mAP@R", "10-NN accuracy"
_EMBEDDER = "-m", "embedder.cli.main"


def run(
    cases: tuple[str, ...] = tuple(CASES),
    seeds: tuple[int, ...] = (1, 2, 3),
    epochs: int = 8,
    batch_size: int = 128,
    learning_rate: float = 0.002,
    name: str = "accuracy",
) -> Table:
    """Accuracy and retrieval of encoders on test images.

    Args:
      cases: what to train; default: all.
      seeds: each is trained once with each.
      epochs: passes over the 60,000 training images.
      batch_size: images of an update.
      learning_rate: of the optimizer.
      name: of the file in bench/results.
    """
    settings: dict[str, Any] = {"epochs": epochs, "batch_size": batch_size}
    settings |= {"learning_rate": learning_rate}
    samples = []
    for case in cases:
        for seed in seeds:
            sample = {"case": case, "seed": seed, **measure(case, seed, settings)}
            print(sample, flush=True)
            samples.append(sample)
    about = {"cases": {case: CASES[case] for case in cases}, **settings}
    return table(write_results(name, settings=about, samples=samples))


def measure(case: str, seed: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Scores of one training on the 10,000 test images, and of their pixels."""
    folder, *own = shlex.split(CASES[case])
    data = data_folder() / folder
    every = {"seed": seed, **settings}
    given = [f"--{x.replace('_', '-')}={y}" for x, y in every.items()]
    test = next(data.glob("t10k-images-idx3-ubyte*"))
    with tempfile.TemporaryDirectory() as temporary:
        workdir = str(Path(temporary, "run"))
        run = "train", str(data), "--model", "encoder", "--workdir", workdir
        subprocess.run([sys.executable, *_EMBEDDER, *run, *own, *given], check=True)
        evaluate = "evaluate", workdir, "--examples", str(test), "--json"
        found = run_python(*_EMBEDDER, *evaluate)
    retrieval = found["retrieval"]
    pixels = retrieval["baselines"]["input features"]
    return {
        "accuracy": found.get("accuracy"),
        "scores": {name: retrieval["scores"][name]["value"] for name in SCORES},
        "pixels": {name: pixels[name]["value"] for name in SCORES},
    }


def table(results: Results) -> Table:
    """A row for each case, after one for the pixels of each data set."""
    rows: dict[str, list[str]] = {}
    for case, own in grouped(results["samples"], "case").items():
        data = results["settings"]["cases"][case].split()[0]
        pixels = (f"{own[0]['pixels'][name]:.3f}" for name in SCORES)
        rows.setdefault(data, [data, "pixels", "", *pixels])
        known = [x["accuracy"] for x in own if x["accuracy"] is not None]
        scores = (spread((x["scores"][name] for x in own), 3) for name in SCORES)
        encoder = case.split(",")[0]
        rows[case] = [data, encoder, spread(known, 4) if known else "", *scores]
    return Table(["data", "encoder", "accuracy", *SCORES], [*rows.values()])


BENCHES = {"accuracy": run}
TABLES = dict.fromkeys(("accuracy", "accuracy-others"), table)
