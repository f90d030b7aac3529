"""K models side by side against one, and against one after another.

Subjects: `spirals`, a network [2, 32, 2] on two spirals of 100 points each, full batch,
100 steps of SGD; `mnist`, the MLP of `bench encoder`, one epoch of 10,000 images;
`wiki`, skip-gram on the first words of Wikipedia. Each measurement has a process of its
own; K and programs take turns. Compilation is not counted.
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bench.processes import run_python
from bench.results import Results, Table, data_folder, spread, write_results
from bench.systems import peak_bytes

SIDE_BY_SIDE, ONE_BY_ONE = "side by side", "one after another"
PYTORCH, PYTORCH_VMAP = "PyTorch, one after another", "PyTorch, torch.func.vmap"
NUMBERS: dict[str, dict[str, tuple[int, ...]]] = {
    "spirals": {
        SIDE_BY_SIDE: (1, 10, 100, 1_000, 10_000),
        ONE_BY_ONE: (1, 10, 100, 1_000),
        PYTORCH: (1, 10, 100),
        PYTORCH_VMAP: (1, 10, 100, 1_000),
    },
    "mnist": {SIDE_BY_SIDE: (1, 8, 32), ONE_BY_ONE: (1, 8)},
    "wiki": {SIDE_BY_SIDE: (1, 4, 8, 16)},
}
"""Numbers of models of each program."""
PROGRAMS = tuple(NUMBERS["spirals"])

STEPS, RATE = 100, 0.5
_WIKI_BYTES = 12_000_000  # of the text, two million words


def run(
    subjects: tuple[Literal["spirals", "mnist", "wiki"], ...] = tuple(NUMBERS),
    programs: tuple[str, ...] = PROGRAMS,
    most: int = 10_000,
    samples: int = 3,
) -> Table:
    """K models side by side against one, and against one after another.

    Args:
      subjects: what to train; default: all.
      programs: which to run; default: all.
      most: largest number of models.
      samples: repetitions; programs take turns.
    """
    found = []
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "words.txt")
        text.write_bytes(_words())
        for sample in range(samples):
            for subject in subjects:
                for program, number in _models(subject, programs, most):
                    settings = {"subject": subject, "program": program}
                    settings |= {"number": number, "text": str(text)}
                    arguments = "-m", "bench.replicas", json.dumps(settings)
                    result = run_python(*arguments)
                    result |= {"sample": sample, **settings}
                    del result["text"]
                    found.append(result)
                    print(result, file=sys.stderr, flush=True)
    settings = {"steps": STEPS, "subjects": subjects, "bytes": _WIKI_BYTES}
    return table(write_results("replicas", settings=settings, samples=found))


def _models(
    subject: str, programs: tuple[str, ...], most: int
) -> Iterator[tuple[str, int]]:
    """The programs that train `subject`, each with its numbers of models."""
    for program, numbers in NUMBERS[subject].items():
        if program in programs:
            yield from ((program, number) for number in numbers if number <= most)


def table(results: Results) -> Table:
    """A row for each subject, program and K: seconds, also as ratios in one sample."""
    rows: dict[tuple, list[dict[str, Any]]] = {}
    for each in results["samples"]:
        key = each["subject"], each["program"], each["number"]
        rows.setdefault(key, []).append(each)
    cells = []
    for (subject, program, number), found in rows.items():
        one = rows[subject, program, 1]
        together = rows.get((subject, SIDE_BY_SIDE, number), [])
        cells.append(
            [
                subject,
                program,
                f"{number:,}",
                spread([each["seconds"] for each in found]),
                _ratio(found, one),
                _ratio(found, together),
                f"{statistics.median(x['peak_bytes'] for x in found) / 2**20:.0f}",
            ]
        )
    columns = ["subject", "program", "K", "seconds", "to its K = 1"]
    return Table([*columns, "to side by side", "peak MiB"], cells)


def _ratio(of: list[dict[str, Any]], to: list[dict[str, Any]]) -> str:
    pairs = zip(of, to, strict=False)
    ratios = [a["seconds"] / b["seconds"] for a, b in pairs]
    return spread(ratios) if ratios else ""


def spirals(points: int = 100, turns: float = 1.75, noise: float = 0.05):
    """Two spirals of `points` points each: features f32[2 n, 2] and labels i32[2 n]."""
    rng = np.random.default_rng(0)
    share = np.sqrt(np.linspace(0.02, 1, points))
    angle = 2 * np.pi * turns * share
    arm = share[:, np.newaxis] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    features = np.concatenate([arm, -arm]) + noise * rng.normal(size=(2 * points, 2))
    return features.astype(np.float32), np.repeat(np.arange(2, dtype=np.int32), points)


def measure(settings: dict[str, Any]) -> dict[str, Any]:
    """Seconds and peak memory of one program in this process."""
    subject, program, number = (
        settings[key] for key in ("subject", "program", "number")
    )
    match program:
        case "PyTorch, one after another":
            seconds = _torch_one_by_one(number)
        case "PyTorch, torch.func.vmap":
            seconds = _torch_vmap(number)
        case _ if subject == "wiki":
            seconds = _tables(number, Path(settings["text"]))
        case "side by side":
            seconds = networks_side_by_side(subject, number)[0]()
        case _:
            calls = networks_side_by_side(subject, 1, models=number)
            seconds = sum(call() for call in calls)
    return {"seconds": seconds, "peak_bytes": peak_bytes()}


def networks_side_by_side(
    subject: str, replicas: int, models: int = 1
) -> list[Callable[[], float]]:
    """Functions that each train `replicas` networks, compiled before."""
    import jax

    from embedder.config import Config, with_options
    from embedder.data.examples.examples import Examples
    from embedder.encoders.plan import TrainingInputs, plan
    from embedder.encoders.trainer import EncoderTrainer

    if subject == "spirals":
        features, labels = spirals()
        layers, size, rate = (2, 32, 2), len(labels), RATE
    else:
        features, labels = _mnist()
        layers, size, rate = (784, 512, 10), 32, 0.01
    names = [str(each) for each in range(layers[-1])]
    examples = Examples(features, labels, names, [str(x) for x in range(len(labels))])
    config = with_options(
        Config(),
        model="encoder",
        layers=layers,
        optimizer="sgd",
        batch_size=size,
        learning_rate=rate,
        loader="memory",
        validation_fraction=0.0,
        replicas=replicas,
    )
    training = EncoderTrainer(plan(TrainingInputs(config, examples, range(1))))
    program = training.program
    calls = [batch for _, _, batch in training.host_batches(0)]
    if subject == "spirals":  # the updates of 100 epochs in one call
        (batch,) = calls
        batch = batch._replace(
            ids=np.repeat(batch.ids[:1], STEPS, axis=0),
            weights=np.repeat(batch.weights[:1], STEPS, axis=0),
            num=np.array([STEPS], np.int32),
        )
        calls = [batch]
    calls = [program.place_batch(batch) for batch in calls]
    first = training.initial_state()

    def train() -> float:
        state = jax.block_until_ready(program.place_state(first))
        started = time.perf_counter()
        for batch in calls:
            state, _ = program.apply_updates(state, batch)
        jax.block_until_ready(state)
        return time.perf_counter() - started

    train()  # compiles
    return models * [train]


def _mnist():
    from embedder.data.examples.array_files import read_idx

    folder = data_folder() / "mnist"
    images = read_idx(folder / "train-images-idx3-ubyte.gz")[:10_000]
    labels = read_idx(folder / "train-labels-idx1-ubyte.gz")[:10_000]
    return images.reshape(len(images), -1), labels.astype(np.int32)


def _tables(replicas: int, text: Path) -> float:
    """Seconds of an epoch by the CPU kernel: of K = 1 on one thread."""
    from embedder.config import Config, with_options
    from embedder.engine.epochs import run_epochs
    from embedder.tokens.plan import TrainingInputs, plan
    from embedder.tokens.task import open_corpus
    from embedder.tokens.trainer import TokensTrainer

    options: dict[str, Any] = {"backend": "numba", "epochs": 1}
    if replicas == 1:
        options["threads"] = 1
    config = with_options(Config(), replicas=replicas, **options)
    inputs = TrainingInputs(config=config, source=open_corpus(str(text)))
    training = TokensTrainer(plan(inputs))
    first = training.initial_state()
    calls = training.calls(training.program.place_state(first), 0)
    next(calls)  # compiles
    calls.close()
    started = time.perf_counter()
    run_epochs(training, first)
    return time.perf_counter() - started


def _words() -> bytes:
    import gzip

    with gzip.open(data_folder() / "wiki" / "wiki17m-0.txt.gz") as file:
        return file.read(_WIKI_BYTES)


def _torch_one_by_one(number: int) -> float:
    import torch

    torch.set_num_threads(2)
    x, y = (torch.from_numpy(array) for array in spirals())
    y = y.long()

    def train(seed: int) -> None:
        torch.manual_seed(seed)
        layers = torch.nn.Linear(2, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2)
        net = torch.nn.Sequential(*layers)
        optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
        for _ in range(STEPS):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()

    train(0)
    started = time.perf_counter()
    for seed in range(number):
        train(seed)
    return time.perf_counter() - started


def _torch_vmap(number: int) -> float:
    import torch
    from torch.func import functional_call, grad, stack_module_state, vmap

    torch.set_num_threads(2)
    x, y = (torch.from_numpy(array) for array in spirals())
    y = y.long()
    nets = [
        torch.nn.Sequential(
            torch.nn.Linear(2, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2)
        )
        for _ in range(number)
    ]
    first, _ = stack_module_state(nets)

    def loss(params):
        scores = functional_call(nets[0], params, (x,))
        return torch.nn.functional.cross_entropy(scores, y)

    gradients = vmap(grad(loss))

    def train() -> float:
        params = {name: value.detach().clone() for name, value in first.items()}
        started = time.perf_counter()
        for _ in range(STEPS):
            found = gradients(params)
            params = {name: params[name] - RATE * found[name] for name in params}
        return time.perf_counter() - started

    train()
    return train()


BENCHES = {"replicas": run}
TABLES = {"replicas": table}


if __name__ == "__main__":
    print(json.dumps(measure(json.loads(sys.argv[1]))))
