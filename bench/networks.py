"""Updates of networks of images: the port beside PyTorch.

Programs start from the same parameters and take the same batches in the same order, in
float32, SGD without momentum. They take turns, each in its own process. `python -m
bench.networks JSON FOLDER` is such a process: it trains on the arrays in the folder,
writes embeddings there, and prints one line of JSON.
"""

import json
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.processes import run_python
from bench.results import Results, Table, spread, write_results

NETS: dict[str, dict[str, Any]] = {
    "conv-small": {
        "shape": [28, 28],
        "arguments": {"width": 32, "size": 128},
        "batch_size": 128,
        "updates": 40,
    },
    "resnet": {
        "shape": [32, 32, 3],
        "arguments": {"width": 64},
        "batch_size": 32,
        "updates": 4,
    },
    "wide-resnet": {
        "shape": [32, 32, 3],
        "arguments": {"depth": 16, "width": 4},
        "batch_size": 32,
        "updates": 4,
    },
    "vit": {
        "shape": [32, 32, 3],
        "arguments": {"patch": 4, "width": 128, "depth": 6, "heads": 4},
        "batch_size": 64,
        "updates": 8,
    },
}
"""Examples, arguments and updates of an epoch; resnet has its default depth, 18."""

SYSTEMS: dict[str, dict[str, Any]] = {
    "embedder": {"program": "port"},
    "PyTorch, eager": {"program": "torch"},
    "PyTorch, eager, channels last": {"program": "torch", "channels_last": True},
    "PyTorch, compiled": {"program": "torch", "compile": True},
    "PyTorch, compiled, channels last": {
        "program": "torch",
        "compile": True,
        "channels_last": True,
    },
}
"""Name in the table -> settings of the process; `vit` has no channels last."""

BASE = "PyTorch, eager"
COMMON = {"classes": 10, "learning_rate": 0.01, "epochs": 3}
EMBEDDED = 64  # examples whose embeddings are compared


def systems_of(net: str) -> list[str]:
    """Names of the programs for `net`."""
    return [name for name in SYSTEMS if net != "vit" or "channels" not in name]


def run(net: str, systems: tuple[str, ...], samples: int) -> Table:
    """Measures and writes bench/results/encoder-NET.json."""
    known = systems_of(net)
    if unknown := [name for name in systems if name not in known]:
        raise SystemExit(f"bench: `systems` must be of {known}, got {unknown}.")
    settings = COMMON | NETS[net] | {"net": net}
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in systems or known}
    with tempfile.TemporaryDirectory() as folder:
        write_problem(settings, Path(folder))
        for number in range(samples):
            vectors = {}
            for name, found in results.items():
                found.append(measure(SYSTEMS[name] | settings, Path(folder)))
                vectors[name] = np.load(Path(folder, "embeddings.npy"))
                found[-1]["difference"] = None
                if "embedder" in vectors:
                    ours = vectors["embedder"]
                    difference = np.abs(vectors[name] - ours).max() / np.abs(ours).max()
                    found[-1]["difference"] = float(difference)
                seconds = found[-1]["seconds"][-1]
                print(f"{number}: {name}: {seconds:.3f} s", file=sys.stderr)
    return table(write_results(f"encoder-{net}", settings=settings, samples=results))


def measure(settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Trains in a new process, in which nothing compiled is in a cache."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {
            "JAX_ENABLE_COMPILATION_CACHE": "false",
            "TORCHINDUCTOR_CACHE_DIR": cache,
        }
        arguments = "-m", "bench.networks", json.dumps(settings), str(folder)
        return run_python(*arguments, environment=environment)


def table(results: Results) -> Table:
    """A row for each program; ratios are of times within a sample."""
    samples, updates = results["samples"], results["settings"]["updates"]
    base = [_epoch_seconds(sample) for sample in samples.get(BASE, [])]
    rows = []
    for name, measured in samples.items():
        times = [_epoch_seconds(sample) for sample in measured]
        ratios = [a / b for a, b in zip(times, base, strict=False)]
        differences = [sample["difference"] for sample in measured]
        is_known = name != "embedder" and None not in differences
        rows.append(
            [
                name,
                spread(updates / seconds for seconds in times),
                spread(ratios, 2) if ratios else "-",
                spread((sample["first"] for sample in measured), 1),
                spread((sample["peak"] / 2**20 for sample in measured), 0),
                f"{max(differences):.0e}" if is_known else "-",
            ]
        )
    return Table(_COLUMNS, rows)


_COLUMNS = [
    "program",
    "updates/s",
    "time, to PyTorch, eager",
    "first call, s",
    "peak memory, MiB",
    "largest difference of vectors",
]


def _epoch_seconds(sample: dict[str, Any]) -> float:
    """The median epoch without the first, in which all is compiled."""
    return statistics.median(sample["seconds"][1:])


def write_problem(
    settings: dict[str, Any],
    folder: Path,
    examples: tuple[np.ndarray, np.ndarray] | None = None,
) -> None:
    """Writes examples, the order of each epoch and the first parameters.

    Args:
      examples: features and labels; None: `random_images`.
    """
    features, labels = examples or random_images(settings)
    np.savez(folder / "examples.npz", features=features, labels=labels)
    training = _training(settings, folder)
    orders = [training.source.order(epoch) for epoch in range(settings["epochs"])]
    np.save(folder / "orders.npy", orders)
    first = training.initial_state().params
    np.savez(folder / "params.npz", **_named_params(first))


def random_images(settings: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Images of a mean that their class has, so that something is learned."""
    rng = np.random.default_rng(0)
    shape, classes = settings["shape"], settings["classes"]
    num = settings["batch_size"] * settings["updates"]
    labels = (np.arange(num) % classes).astype(np.int32)
    means = rng.integers(0, 200, (classes, *shape))
    features = means[labels] + rng.integers(0, 56, (num, *shape))
    return features.astype(np.uint8), labels


def _named_params(params) -> dict[str, np.ndarray]:
    """Parameters named MODULE/NAME."""
    from embedder.encoders.networks.network import Model, named_arrays

    arrays = named_arrays(Model(params)).items()
    return {name.partition("/")[2]: np.asarray(array) for name, array in arrays}


def _training(settings: dict[str, Any], folder: Path):
    from embedder.config import Config, with_options
    from embedder.data.examples.examples import Examples
    from embedder.encoders.plan import TrainingInputs, plan
    from embedder.encoders.trainer import EncoderTrainer

    texts = (f"{name}={value}" for name, value in settings["arguments"].items())
    config = with_options(
        Config(),
        model="encoder",
        network=settings["net"],
        network_args=tuple(texts),
        layers=tuple(settings.get("layers", ())),
        compute_dtype=settings.get("compute_dtype", "same"),
        optimizer="sgd",
        learning_rate=settings["learning_rate"],
        rate_schedule="constant",
        batch_size=settings["batch_size"],
        loader="memory",
        devices=1,
    )
    with np.load(folder / "examples.npz") as file:
        features, labels = file["features"], file["labels"]
    names = [str(i) for i in range(settings["classes"])]
    keys = [str(i) for i in range(len(labels))]
    examples = Examples(features, labels, names, keys)
    return EncoderTrainer(
        plan(TrainingInputs(config, examples, range(settings["epochs"])))
    )


def train_port(settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Trains the port; all updates of an epoch are one call."""
    import jax

    from embedder.encoders.outputs import embed
    from embedder.encoders.train_step import model_of

    training = _training(settings, folder)
    state = training.program.place_state(training.initial_state())
    seconds, first = [], 0.0
    for epoch in range(settings["epochs"]):
        began = time.perf_counter()
        for call in training.calls(state, epoch):
            state = call.state
            first = first or call.call_seconds
        jax.block_until_ready(state)
        seconds.append(time.perf_counter() - began)
    memory = jax.devices()[0].memory_stats() or {}  # a CPU has none
    peak = memory.get("peak_bytes_in_use") or peak_memory()
    features = training.examples.features[:EMBEDDED]
    vectors = embed(training.program.encoder, model_of(state), features)
    np.save(folder / "embeddings.npy", vectors)
    return {"seconds": seconds, "first": first, "peak": peak}


def train_torch(settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Trains with PyTorch, on a GPU if there is one, on images in its memory."""
    import torch

    from bench.torch_networks import make_network, use_biased_variances

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cudnn.allow_tf32 = False  # as the port, which takes full float32
    with np.load(folder / "examples.npz") as file:
        features, labels = file["features"], file["labels"]
    with np.load(folder / "params.npz") as file:
        params = dict(file)
    orders = torch.from_numpy(np.load(folder / "orders.npy")).to(device)
    size, arguments = settings["batch_size"], settings["arguments"]
    made = settings["net"], settings["shape"], settings["classes"], arguments, params
    is_last = settings.get("channels_last", False)
    order = torch.channels_last if is_last else torch.contiguous_format
    network = make_network(*made).to(device).to(memory_format=order)
    images = features if features.ndim == 4 else features[..., np.newaxis]
    x = torch.from_numpy(images.transpose(0, 3, 1, 2)).float() / 255
    x = x.to(device).contiguous(memory_format=order)
    y = torch.from_numpy(labels.astype(np.int64)).to(device)
    optimizer = torch.optim.SGD(network.parameters(), lr=settings["learning_rate"])
    apply = torch.compile(network) if settings.get("compile") else network

    is_half = settings.get("compute_dtype") == "bfloat16"

    def update(ids) -> None:
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=is_half):
            loss = torch.nn.functional.cross_entropy(apply(x[ids]), y[ids])
        loss.backward()
        optimizer.step()

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    seconds, first = [], 0.0
    for epoch in range(settings["epochs"]):
        began = time.perf_counter()
        for ids in orders[epoch].split(size):
            update(ids)
            if not first:
                wait()
                first = time.perf_counter() - began
        wait()
        seconds.append(time.perf_counter() - began)
    on_gpu = torch.cuda.max_memory_allocated() if device == "cuda" else 0
    peak = on_gpu or peak_memory()
    use_biased_variances(network, orders.numel() // size)
    network.eval()
    with torch.no_grad():
        vectors = network.hidden(x[:EMBEDDED]).cpu().numpy()
    np.save(folder / "embeddings.npy", vectors)
    return {"seconds": seconds, "first": first, "peak": peak}


def peak_memory() -> int:
    """Largest resident memory of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


TRAIN = {"port": train_port, "torch": train_torch}


def main() -> None:
    """Trains as the argument says, and prints what was measured."""
    settings, folder = json.loads(sys.argv[1]), Path(sys.argv[2])
    print(json.dumps(TRAIN[settings["program"]](settings, folder)))


TABLES = dict.fromkeys((f"encoder-{net}" for net in NETS), table)


if __name__ == "__main__":
    main()
