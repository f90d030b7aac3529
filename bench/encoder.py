"""Seconds of an epoch of an encoder, and accuracy: oracle, port and PyTorch.

Programs take turns, each in its own process.
"""

import statistics
import sys
from pathlib import Path
from typing import Any, Literal

from bench import encoders, networks
from bench.encoders import SYSTEMS
from bench.results import (
    Results,
    Table,
    data_folder,
    spread,
    write_picture,
    write_results,
)

NETS: dict[str, dict[str, Any]] = {
    "mlp": {
        "layers": [784, 512, 10],
        "batch_size": 32,
        "learning_rate": 0.01,
        "validation_fraction": 0.2,
        "epochs": 5,
    },
    "images": {
        "layers": [224 * 224 * 3, 2048, 1024, 512, 5],
        "batch_size": 32,
        "learning_rate": 0.001,
        "examples": 96,
        "epochs": 4,
    },
    "deep": {
        "layers": [2056] * 91,
        "batch_size": 216,
        "learning_rate": 1e-5,
        "examples": 216,
        "epochs": 3,
    },
}
"""The networks. `deep` has a 32nd of the batch size for GPUs, 6912."""

BASE = "PyTorch, eager"


def run(
    net: Literal[
        *("mlp", "images", "deep"), *("conv-small", "resnet", "wide-resnet", "vit")
    ] = "mlp",
    systems: tuple[str, ...] = (),
    samples: int = 3,
    data: str = "mnist",
) -> Table:
    """Seconds of an epoch of an encoder, and accuracy after each.

    Args:
      net: an MLP on MNIST, one on large images, or 90 layers; or a network of images,
        whose updates a second are measured beside PyTorch's.
      systems: which to run; default: all.
      samples: number of measurements of each.
      data: mnist or fashion-mnist, for an MLP.
    """
    if net in networks.NETS:
        return networks.run(net, systems, samples)
    systems = systems or tuple(SYSTEMS)
    settings = _settings(net, data)
    results: dict[str, list[dict[str, Any]]] = {system: [] for system in systems}
    for number in range(samples):
        for system in systems:
            found = encoders.measure(system, **settings, scores=number == 0)
            results[system].append(found)
            print(f"{system}: {found['seconds'][-1]:.3f} s", file=sys.stderr)
    name = f"encoder-{net}" if data == "mnist" or net != "mlp" else f"encoder-{data}"
    kept = _kept_settings(net, data)
    return table(write_results(name, settings=kept, samples=results))


def _settings(net: str, data: str) -> dict[str, Any]:
    """Settings of `net`, and the path of its data; only mlp has data on disk."""
    if net == "mlp":
        return NETS[net] | {"data": str(data_folder() / data)}
    return NETS[net]


def _kept_settings(net: str, data: str) -> dict[str, Any]:
    """Settings of `net` to write to the results, with the name of its data."""
    return NETS[net] | {"data": data if net == "mlp" else "random"}


def table(results: Results) -> Table:
    """Medians and ranges for each system; times also relative to PyTorch's."""
    samples, settings = results["samples"], results["settings"]
    base = _epoch_seconds(samples.get(BASE, []))
    num = settings.get("examples")
    rows = []
    for system, measured in samples.items():
        times = _epoch_seconds(measured)
        ratios = [a / b for a, b in zip(times, base, strict=False)]
        accuracy = measured[0]["accuracy"]
        row = [system, spread(times, 3), spread(ratios, 2) if ratios else "-"]
        if num:
            steps = -(-num // settings["batch_size"])
            row.append(f"{steps / statistics.median(times):.3g}")
            row.append(f"{_gigabytes(settings) * steps / statistics.median(times):.3g}")
        else:
            row.append(", ".join(f"{100 * each:.2f}" for each in accuracy) or "-")
        row.append(spread((sample["compile"] for sample in measured), 2))
        rows.append(row)
    last = ["steps/s", "GB/s of weights"] if num else ["accuracy % after each epoch"]
    columns = ["system", "s an epoch", "to PyTorch, eager", *last, "first call, s"]
    return Table(columns, rows)


def _epoch_seconds(measured: list[dict[str, Any]]) -> list[float]:
    """Median epoch of each sample, without the first, which compiles."""
    return [statistics.median(sample["seconds"][1:]) for sample in measured]


def _gigabytes(settings) -> float:
    """GB that an update must read and write: weights three times, gradients twice."""
    layers = settings["layers"]
    numbers = sum((a + 1) * b for a, b in zip(layers, layers[1:], strict=False))
    return 5 * 4 * numbers / 1e9


def run_busy(updates_of_a_call: int = 334, data: str = "mnist") -> Table:
    """Time that a training waits for data, with and without cache and prefetch.

    Args:
      updates_of_a_call: updates between two time stamps; 334 are the program's.
      data: mnist or fashion-mnist.
    """
    settings = _settings("mlp", data) | {"updates_of_a_call": updates_of_a_call}
    SYSTEMS["busy"] = {"kind": "busy"}
    spans = encoders.measure("busy", **settings)["spans"]
    write_picture("encoder-busy", lambda path: _draw(spans, path))
    shares = {name: share(each) for name, each in spans.items()}
    seconds = {name: each[-1][2] for name, each in spans.items()}
    kept = settings | {"data": data}
    return busy_table(
        write_results("encoder-busy", settings=kept, samples=shares, seconds=seconds)
    )


def busy_table(results: Results) -> Table:
    """A row for each input; older results have no seconds of an epoch."""
    seconds = results.get("seconds", {})
    rows = [
        [name, f"{seconds[name]:.2f}" if name in seconds else "", f"{100 * value:.1f}"]
        for name, value in results["samples"].items()
    ]
    return Table(["input", "s an epoch", "% of the time computes"], rows)


def share(spans: list[tuple[float, float, float]]) -> float:
    """Share of the time since the second call that is not spent waiting for data."""
    waited = sum(got - asked for asked, got, _ in spans[1:])
    return 1 - waited / (spans[-1][2] - spans[1][0])


def _draw(spans: dict[str, list], path: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(10, 2.6))
    for row, (name, each) in enumerate(spans.items()):
        computes = [(got, end - got) for _, got, end in each]
        waits = [(asked, got - asked) for asked, got, _ in each]
        axis.broken_barh(computes, (row - 0.4, 0.8), facecolor="tab:blue")
        axis.broken_barh(waits, (row - 0.4, 0.8), facecolor="tab:red")
        axis.text(0.01, row, f"{name}: {100 * share(each):.0f} %", va="center")
    axis.set(xlabel="seconds of an epoch; blue: computes, red: waits for data")
    axis.set_yticks([])
    axis.set_xlim(0, max(each[-1][2] for each in spans.values()))
    figure.tight_layout()
    figure.savefig(path, dpi=80)
    pyplot.close(figure)


def run_modes(
    devices: tuple[int, ...] = (1, 2),
    samples: int = 2,
    net: Literal["mlp", "images", "deep"] = "deep",
    data: str = "mnist",
) -> Table:
    """Steps of 90 layers by jit, sharded and pmap.

    Args:
      devices: numbers of devices; each is measured in its own process.
      samples: number of measurements of each.
      net: an MLP on MNIST, one on large images, or 90 layers.
      data: mnist or fashion-mnist, for the net mlp.
    """
    settings = _settings(net, data)
    results: dict[str, list[dict[str, Any]]] = {}
    cells = [("jit", 1)] + [(m, n) for n in devices for m in ("sharded", "pmap")]
    for _ in range(samples):
        for mode, num in cells:
            own = {"kind": "port", "loader": "memory", "mode": mode, "devices": num}
            SYSTEMS[f"{mode}, {num}"] = own
            found = encoders.measure(f"{mode}, {num}", **settings)
            results.setdefault(f"{mode}, {num}", []).append(found)
    kept = _kept_settings(net, data)
    return modes_table(write_results("encoder-modes", settings=kept, samples=results))


def modes_table(results: Results) -> Table:
    """Medians and ranges for each mode and number of devices."""
    samples = results["samples"]
    first = _epoch_seconds(samples["jit, 1"])
    rows = []
    for name, measured in samples.items():
        times = _epoch_seconds(measured)
        ratios = [a / b for a, b in zip(times, first, strict=True)]
        rows.append([name, spread(times, 2), spread(ratios, 2)])
    return Table(["mode, devices", "s a step", "to jit"], rows)


BENCHES = {"encoder": run, "encoder-modes": run_modes, "encoder-busy": run_busy}
TABLES = {
    **dict.fromkeys(
        ("encoder-mlp", "encoder-fashion-mnist", "encoder-images", "encoder-deep"),
        table,
    ),
    "encoder-modes": modes_table,
    "encoder-busy": busy_table,
}
