"""The encoder programs that are compared, each trained in its own process.

`python -m bench.encoders JSON` trains and prints one line of JSON. All start from the
same weights and take the same batches in the same order, in float32. The first epoch
or the first updates, which compile, are reported on their own.
"""

import itertools
import json
import sys
import time
from typing import Any

import numpy as np

from bench.processes import cpu_devices, run_python

SYSTEMS = {
    "legacy, 1 process": {"kind": "legacy", "workers": 1},
    "legacy, 2 processes": {"kind": "legacy", "workers": 2},
    "embedder, scan": {"kind": "port", "loader": "memory"},
    "embedder, scan, 2 devices": {"kind": "port", "loader": "memory", "devices": 2},
    "embedder, loop with tf.data": {"kind": "port", "loader": "tfdata"},
    "embedder, loop, a step a call": {
        "kind": "port",
        "loader": "memory",
        "save_every": 1,
    },
    "PyTorch, eager": {"kind": "torch", "threads": 2},
    "PyTorch, eager, 1 thread": {"kind": "torch", "threads": 1},
    "PyTorch, compiled": {"kind": "torch", "threads": 2, "compile": True},
    "PyTorch, compiled, 1 thread": {"kind": "torch", "threads": 1, "compile": True},
}
"""Name in the tables -> settings of the process."""


def measure(system: str, **settings) -> dict[str, Any]:
    """Result of a system, which runs alone in a new process."""
    own = SYSTEMS[system] | settings
    environment = cpu_devices(own.get("devices", 1))
    if own["kind"] == "legacy":  # small products are faster by one thread
        environment |= {"OPENBLAS_NUM_THREADS": "1"}
    arguments = "-m", "bench.encoders", json.dumps(own)
    return run_python(*arguments, environment=environment)


def examples_of(data: str, layers: list[int], num: int):
    """The examples at `data`, or `num` random images if there is no `data`."""
    from embedder.config.encoder_options import EncoderOptions
    from embedder.data.examples.example_formats import open_examples
    from embedder.data.examples.examples import Examples

    if data:
        return open_examples(data, EncoderOptions()).read(None)
    rng = np.random.default_rng(0)
    features = rng.integers(0, 256, size=(num, layers[0]), dtype=np.uint8)
    labels = (np.arange(num) % layers[-1]).astype(np.int32)
    names = [str(i) for i in range(layers[-1])]
    return Examples(features, labels, names, [str(i) for i in range(num)])


def port_config(settings: dict[str, Any]):
    """The config of a training of the port."""
    from embedder.config import Config, with_options

    names = ("loader", "devices", "save_every", "batch_size", "learning_rate", "mode")
    given = {name: settings[name] for name in names if name in settings}
    return with_options(
        Config(),
        model="encoder",
        layers=tuple(settings["layers"]),
        optimizer="sgd",
        validation_fraction=settings.get("validation_fraction", 0.0),
        **given,
    )


def train_port(settings: dict[str, Any], examples) -> dict[str, Any]:
    """Trains the port: seconds of each epoch and of compilation, accuracies."""
    import jax

    from embedder.encoders.outputs import evaluate
    from embedder.encoders.plan import TrainingInputs, plan
    from embedder.encoders.train_step import model_of
    from embedder.encoders.trainer import EncoderTrainer

    epochs = settings["epochs"]
    started = time.perf_counter()
    training = EncoderTrainer(
        plan(TrainingInputs(port_config(settings), examples, range(epochs)))
    )
    state = training.program.place_state(training.initial_state())
    held = np.arange(training.items, len(examples.labels))
    validation = examples.features, examples.labels, held
    seconds, accuracies, compiling = [], [], 0.0
    for epoch in range(epochs):
        began = time.perf_counter()
        for call in training.calls(state, epoch):
            state = call.state
            compiling = compiling or call.call_seconds
        jax.block_until_ready(state)
        seconds.append(time.perf_counter() - began)
        if len(held):
            network = training.program.encoder
            accuracies.append(evaluate(network, model_of(state), *validation)[1])
    return {
        "start": began - started - sum(seconds[:-1]),
        "compile": compiling,
        "seconds": seconds,
        "accuracy": accuracies,
    }


def train_legacy(settings: dict[str, Any], examples) -> dict[str, Any]:
    """Trains the oracle; an epoch is the difference of a long and a short training."""
    from legacy import FeatureEncoder

    x = examples.features.reshape(len(examples.labels), -1)
    held = round(len(x) * settings.get("validation_fraction", 0.0))
    train = slice(0, len(x) - held)

    def fitted(epochs: int, fraction: float, rows) -> tuple[float, Any]:
        encoder = FeatureEncoder(
            tuple(settings["layers"]),
            batch_size=settings["batch_size"],
            learning_rate=settings["learning_rate"],
            workers=settings["workers"],
            epochs=epochs,
            validation_fraction=fraction,
        )
        began = time.perf_counter()
        encoder.fit(x[rows], examples.labels[rows])
        return time.perf_counter() - began, encoder

    short, _ = fitted(1, 0.0, train)
    long, _ = fitted(3, 0.0, train)
    accuracies = []
    if held and settings.get("scores"):
        fraction = settings["validation_fraction"]
        _, encoder = fitted(settings["epochs"], fraction, slice(None))
        accuracies = [each["val_accuracy"] for each in encoder.history_]
    every = [short, *[(long - short) / 2] * 2]
    return {"start": 0.0, "compile": 0.0, "seconds": every, "accuracy": accuracies}


def train_torch(settings: dict[str, Any], examples) -> dict[str, Any]:
    """Trains with PyTorch, on features in [0, 1] in memory."""
    import torch

    from embedder.data.examples.batches import BatchSource, split_validation
    from legacy.network import initial_layers

    torch.set_num_threads(settings["threads"])
    layers = settings["layers"]
    parts = []
    for own in initial_layers(layers, "float32", 1):
        linear = torch.nn.Linear(*own.weights.shape)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(own.weights.T.copy()))
            linear.bias.copy_(torch.from_numpy(own.biases))
        parts += [linear, torch.nn.ReLU()]
    net = torch.nn.Sequential(*parts[:-1])
    optimizer = torch.optim.SGD(net.parameters(), lr=settings["learning_rate"])
    x = examples.features.reshape(len(examples.labels), -1)
    is_large = x.nbytes > 2**28  # float32 would be four times as large
    x = torch.from_numpy(x) if is_large else torch.from_numpy(x).float() / 255
    y = torch.from_numpy(examples.labels.astype(np.int64))
    train, held = split_validation(len(y), settings.get("validation_fraction", 0.0))
    size, epochs = settings["batch_size"], settings["epochs"]
    source = BatchSource(examples, train, size, (1,), range(epochs), range(size))

    def step(inputs, targets):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(inputs), targets)
        loss.backward()
        optimizer.step()

    run = torch.compile(step) if settings.get("compile") else step
    seconds, accuracies, compiling = [], [], 0.0
    for epoch in range(epochs):
        order = torch.from_numpy(source.order(epoch))
        began = time.perf_counter()
        for start in range(0, len(order), size):
            ids = order[start : start + size]
            inputs = x[ids].float() / 255 if is_large else x[ids]
            run(inputs, y[ids])
            compiling = compiling or time.perf_counter() - began
        seconds.append(time.perf_counter() - began)
        with torch.no_grad():
            if len(held):
                found = net(x[held[0] :]).argmax(dim=1) == y[held[0] :]
                accuracies.append(float(found.float().mean()))
    return {
        "start": 0.0,
        "compile": compiling if settings.get("compile") else 0.0,
        "seconds": seconds,
        "accuracy": accuracies,
    }


def busy(settings: dict[str, Any], examples) -> dict[str, Any]:
    """When each call of a training waits for data, and when it computes.

    Variants: PNG images are decoded for every batch, or once (cache); batches are made
    in advance (prefetch), or on request.
    """
    import jax

    from embedder.encoders.plan import TrainingInputs, plan
    from embedder.encoders.trainer import EncoderTrainer

    found = {}
    for cached, ahead in itertools.product((False, True), (False, True)):
        config = port_config(settings | {"loader": "tfdata" if ahead else "memory"})
        given = examples if cached else examples._replace(features=Packed(examples))
        training = EncoderTrainer(plan(TrainingInputs(config, given, range(2))))
        training._is_resident = False  # batches are made on the host in all variants
        training.updates_per_call = settings["updates_of_a_call"]
        training.program = _program(training)
        state = training.program.place_state(training.initial_state())
        for epoch in range(2):  # the first compiles
            began, spans = time.perf_counter(), []
            batches = _batches(training, epoch, ahead)
            while True:
                asked = time.perf_counter()
                batch = next(batches, None)
                if batch is None:
                    break
                got = time.perf_counter()
                state, _ = training.program.apply_updates(state, batch)
                jax.block_until_ready(state)
                spans.append((asked - began, got - began, time.perf_counter() - began))
        name = f"{'cache' if cached else 'no cache'}, {'' if ahead else 'no '}prefetch"
        found[name] = spans
    return {"spans": found}


def _program(training):
    from embedder.encoders.optimizers import make_optimizer
    from embedder.encoders.train_step import Feeding, make_encoder_program

    config = training.config
    feeding = Feeding(config.encoder.batch_size, is_resident=False)
    optimizer = make_optimizer(config)
    return make_encoder_program(
        training.program.learning, optimizer, training.layout, feeding
    )


def _batches(training, epoch: int, ahead: bool):
    from embedder.encoders.train_step import Batches

    if ahead:
        yield from (batch for _, _, batch in training.host_batches(epoch))
        return
    source, size = training.source, training.updates_per_call
    order = source.order(epoch)
    for first in range(0, source.num_batches, size):
        updates = source.updates(order, epoch, first, size)
        features, labels = source.gather(updates)
        num = np.array([min(size, source.num_batches - first)], np.int32)
        yield Batches(features, labels, None, updates.weights, num)


class Packed:
    """Images in PNG, each decoded on every access."""

    def __init__(self, examples):
        import io

        from PIL import Image

        images = examples.features
        self.shape, self.dtype, self.nbytes = images.shape, images.dtype, images.nbytes
        self._first = images[:1]
        self._files = []
        for image in images:
            file = io.BytesIO()
            Image.fromarray(image).save(file, "png", compress_level=1)
            self._files.append(file.getvalue())

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index) -> np.ndarray:
        import io

        from PIL import Image

        if isinstance(index, slice):  # to learn shape and dtype
            return self._first
        images = [
            np.asarray(Image.open(io.BytesIO(self._files[i]))) for i in index.ravel()
        ]
        return np.stack(images).reshape(*index.shape, *self.shape[1:])


def main() -> None:
    """Runs the system that the argument describes, and prints its result."""
    settings = json.loads(sys.argv[1])
    examples = examples_of(
        settings.get("data", ""), settings["layers"], settings.get("examples", 0)
    )
    systems = {
        "port": train_port,
        "legacy": train_legacy,
        "torch": train_torch,
        "busy": busy,
    }
    print(json.dumps(systems[settings["kind"]](settings, examples)))


if __name__ == "__main__":
    main()
