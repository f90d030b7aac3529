"""The parts of `bench gpu`, each run in a process of its own.

`python -m bench.gpu.parts NAME KIT` prints its results, each as a line of JSON, as soon
as it has them. With `--tiny` the sizes are such that a CPU passes all in minutes.
"""

import argparse
import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import pickle
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench.systems import machine

Result = dict[str, Any]
_PACKAGES = "jax", "jaxlib", "numpy", "optax", "dm-haiku", "numba", "torch"
_SIZE = 100  # dimensions


class Kit:
    """The data of the folder that `bench gpu kit` made, and whether sizes are tiny."""

    def __init__(self, folder: Path, *, is_tiny: bool = False):
        self.folder = folder
        self.is_tiny = is_tiny

    def corpus(self, words: int | None = None):
        """The corpus, or its first sequences with so many words."""
        from bench.gpu.updates import read_encoded

        words = min(words or sys.maxsize, 20_000) if self.is_tiny else words
        encoded = read_encoded(self.folder / "corpus.npz")
        return encoded if words is None else first_words(encoded, words)

    def images(self) -> tuple[np.ndarray, np.ndarray]:
        """Images u8[N, 28, 28] and their labels i32[N]."""
        with np.load(self.folder / "images.npz") as file:
            features, labels = file["features"], file["labels"]
        num = 256 if self.is_tiny else len(labels)
        return features[:num], labels[:num]


def first_words(encoded, words: int):
    """The first sequences of the first shard, `words` tokens or fewer, as a corpus with
    the whole vocabulary."""
    from embedder.data.encoded import Encoded

    ids, lengths = encoded.read(0)
    num = max(1, int(np.searchsorted(np.cumsum(lengths), words, "right")))
    lengths = lengths[:num]
    ids = ids[: lengths.sum()]
    raw = round(len(ids) * encoded.raw_tokens / encoded.num_tokens)
    return Encoded(
        encoded.vocabulary,
        np.array([len(ids)]),
        np.array([num]),
        lambda shard: (ids, lengths),
        raw,
    )


def device(kit: Kit) -> Iterator[Result]:
    """What the device is; the smallest update compiles and runs."""
    import jax

    from bench.gpu.updates import make_training, time_updates

    started = time.perf_counter()
    devices = jax.devices()
    yield {
        "device": f"{len(devices)} x {devices[0].device_kind}",
        "driver": _driver(),
        "versions": {name: _version(name) for name in _PACKAGES},
        "machine": machine(),
        "seconds until JAX has it": time.perf_counter() - started,
    }
    settings = {"vector_size": 16, "blocks_per_update": 1, "epochs": 1}
    found = time_updates(make_training(kit.corpus(100_000), settings), 1)
    yield {"update": "1 block, 16 dimensions"} | _speed(found)


def _driver() -> str:
    """Name, driver, memory and clock of the GPU, by nvidia-smi."""
    fields = "name,driver_version,memory.total,clocks.max.sm"
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]
    if shutil.which("nvidia-smi") is None:
        return "no nvidia-smi"
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    return done.stdout.strip()


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _speed(found: Result) -> Result:
    """What tables show of the times of an update."""
    seconds = statistics.median(found["update_seconds"])
    return {
        "us an update": 1e6 * seconds,
        "M words/s of updates": found["words_per_update"] / seconds / 1e6,
        "GFLOP/s": found["flops_per_update"] / seconds / 1e9,
        "trace s": found["trace_seconds"],
        "compile s": found["compile_seconds"],
    }


PARITY: dict[str, dict[str, Any]] = {
    "skip-gram": {},
    "CBOW": {"architecture": "cbow"},
    "CBOW, sums": {"architecture": "cbow", "cbow_mean": False},
    "Adagrad": {"optimizer": "adagrad"},
    "hierarchical softmax": {"hs": True, "negative": 0},
    "both": {"hs": True},
}
"""What is compared with the oracle after 100 updates, as settings."""


def parity(kit: Kit) -> Iterator[Result]:
    """100 updates of both programs, float32: the tolerance is that of the ladder."""
    from bench.gpu.updates import make_training
    from embedder.config import Config, with_options
    from migration.parity.ladder import first_updates
    from migration.parity.replicas import updates_stage as replicas_stage
    from migration.parity.updates import updates_stage

    encoded = kit.corpus(100_000)
    common: Result = {"vector_size": 64, "blocks_per_update": 4, "epochs": 1}
    common |= {"sample": 0.0}
    number = 10 if kit.is_tiny else 100
    for name, options in PARITY.items():
        options = common | options | {"backend": "xla", "loader": "memory"}
        sample = first_updates(with_options(Config(), **options), encoded, number)
        for line in updates_stage("100 updates", sample):
            yield {"case": name, "updates": sample.num_updates} | _line(line)
    few = first_words(encoded, 2_000 if kit.is_tiny else 25_000)
    for name in ("replicas", "bootstrap"):
        options = {"replicas": 3, "bootstrap": name == "bootstrap"}
        for line in replicas_stage(name, make_training(few, common | options)):
            yield {"case": f"3 models, {name}"} | _line(line)


def _line(line) -> Result:
    names = "quantity", "relative", "tolerance", "passed"
    return {name: getattr(line, name) for name in names}


def words(kit: Kit, size: int) -> Iterator[Result]:
    """Words a second of updates and of whole trainings, and their scores."""
    from bench.gpu.updates import make_training, time_training, time_updates
    from embedder.vectors.array_formats import read_npz

    encoded = kit.corpus()
    blocks = (1, 4) if kit.is_tiny else (64, 256, 1024)
    for num in blocks:
        settings = {"vector_size": size, "blocks_per_update": num, "epochs": 5}
        training = make_training(encoded, settings)
        found = time_updates(training, 3)
        about = {"dimensions": size, "blocks an update": num}
        yield about | _speed(found)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "vectors.npz")
            whole = time_training(training, path)
            yield about | {
                "M words/s of a training": whole["training_words_per_second"] / 1e6,
                "loss": whole["loss"],
                "peak MiB": whole["device_peak_bytes"] / 2**20,
            }
            if num != blocks[-1]:
                yield about | _scores(read_npz(path), kit)


def _scores(vectors, kit: Kit) -> Result:
    """By the whole vocabulary of the corpus, whose rows the kit has the words of."""
    from embedder.metrics.words import analogies_result

    pairs, questions = pickle.loads((kit.folder / "words.pickle").read_bytes())
    found = {name: each.score(vectors.matrix).spearman for name, each in pairs.items()}
    answers = analogies_result(questions.answers(vectors.unit))
    return found | {"analogies": answers.total.accuracy}


def bits(kit: Kit) -> Iterator[Result]:
    """The digest of the tables after an epoch, to compare with another process."""
    import jax

    from bench.gpu.updates import make_training
    from embedder.engine.epochs import run_epochs

    settings = {"vector_size": _SIZE, "blocks_per_update": 256, "epochs": 1}
    if kit.is_tiny:
        settings |= {"blocks_per_update": 2}
    training = make_training(kit.corpus(4_000_000), settings)
    last: list[Any] = []
    state, _ = run_epochs(training, training.initial_state(), last.append)
    content = hashlib.sha256()
    for table in jax.tree.leaves(state.params):
        content.update(np.asarray(table).tobytes())
    status = last[-1]
    seconds = status.seconds - status.compile_seconds
    yield {
        "flags": os.environ.get("XLA_FLAGS", ""),
        "digest": content.hexdigest()[:16],
        "M words/s of a training": status.items / seconds / 1e6,
    }


def replicas(kit: Kit) -> Iterator[Result]:
    """Tables of K models side by side, 16 of them with their own rates; sums of rows by
    a mapped and by a flat `segment_sum`."""
    from bench.gpu.updates import make_training, time_updates
    from embedder.config import with_options
    from embedder.tokens.plan import TrainingPlan
    from embedder.tokens.trainer import TokensTrainer

    encoded = kit.corpus(2_000_000)
    options: Result = {"vector_size": _SIZE, "epochs": 1}
    options |= {"blocks_per_update": 1 if kit.is_tiny else 64}
    numbers = (1, 2) if kit.is_tiny else (1, 8, 100)
    for num in numbers:
        training = make_training(encoded, options | {"replicas": num})
        found = time_updates(training, 2)
        found["words_per_update"] *= num
        found["flops_per_update"] *= num
        yield {"models": num, "of": "tables"} | _speed(found)
    sweep = 2 if kit.is_tiny else 16
    config = make_training(encoded, options | {"replicas": sweep}).config
    rates = np.geomspace(0.01, 0.1, sweep)
    models = [with_options(config, alpha=float(x), replicas=1) for x in rates]
    found = time_updates(
        TokensTrainer(TrainingPlan(config, encoded, range(1), models=models)), 2
    )
    found["words_per_update"] *= sweep
    found["flops_per_update"] *= sweep
    yield {"models": sweep, "of": "a sweep of `alpha`"} | _speed(found)
    for num in numbers:
        yield {"models": num, "of": "sums of rows"} | _sums_of_rows(num, kit)


def _sums_of_rows(models: int, kit: Kit) -> Result:
    """Microseconds of a sum of rows by id: mapped over models, and with ids of all
    models in one range."""
    import jax
    import jax.numpy as jnp

    rows, num_rows = (1_000, 500) if kit.is_tiny else (20_000, 68_000)
    rng = np.random.default_rng(0)
    ids = jnp.asarray(rng.integers(0, num_rows, (models, rows)), jnp.int32)
    values = jnp.asarray(rng.standard_normal((models, rows, _SIZE)), jnp.float32)
    one = functools.partial(jax.ops.segment_sum, num_segments=num_rows)

    def flat(values, ids):
        ids = ids + num_rows * jnp.arange(models, dtype=jnp.int32)[:, None]
        found = jax.ops.segment_sum(
            values.reshape(-1, _SIZE), ids.reshape(-1), models * num_rows
        )
        return found.reshape(models, num_rows, _SIZE)

    found = {}
    for name, call in {"mapped": jax.vmap(one), "flat": flat}.items():
        compiled = jax.jit(call).lower(values, ids).compile()
        jax.block_until_ready(compiled(values, ids))
        started = time.perf_counter()
        for _ in range(10):
            last = compiled(values, ids)
        jax.block_until_ready(last)
        found[f"us {name}"] = 1e5 * (time.perf_counter() - started)
    return found


def small_networks(kit: Kit) -> Iterator[Result]:
    """100 updates of K small networks on the spirals, all in one call."""
    from bench.replicas import STEPS, networks_side_by_side

    for num in (1, 2) if kit.is_tiny else (1, 10, 100, 1000):
        (call,) = networks_side_by_side("spirals", num)
        seconds = statistics.median(call() for _ in range(3))
        rate = num * STEPS / seconds
        yield {"models": num, "of": "spirals", "s": seconds, "model updates/s": rate}


NETWORKS: dict[str, dict[str, Any]] = {
    "mlp": {"arguments": {}, "layers": (784, 512, 10)},
    "conv-small": {"arguments": {"width": 32, "size": 128}},
    "resnet": {"arguments": {"width": 64}},
    "vit": {"arguments": {"patch": 4, "width": 128, "depth": 6, "heads": 4}},
}
"""As in `bench.networks`; the images are those of the kit."""


def _problem(name: str, kit: Kit, folder: Path) -> Result:
    """Settings of `bench.networks` for a network, with its data in `folder`."""
    from bench.networks import COMMON, write_problem

    batch = 8 if kit.is_tiny else 128
    features, labels = kit.images()
    num = 2 * batch if kit.is_tiny else len(labels) // batch * batch
    features, labels = features[:num], labels[:num]
    settings = COMMON | NETWORKS[name] | {"net": name, "batch_size": batch}
    settings |= {"updates": num // batch, "shape": [28, 28]}
    write_problem(settings, folder, (features, labels))
    return settings


def networks(kit: Kit) -> Iterator[Result]:
    """Updates a second of this program."""
    from bench.networks import train_port

    for name in NETWORKS:
        for dtype in ("same", "bfloat16"):
            with tempfile.TemporaryDirectory() as folder:
                settings = _problem(name, kit, Path(folder)) | {"compute_dtype": dtype}
                about = {"network": name, "program": "embedder", "arithmetic": dtype}
                yield about | _rates(train_port(settings, Path(folder)), settings)


def problems(kit: Kit, to: Path) -> Iterator[Result]:
    """Settings of each network, and its data in a folder of its name."""
    for name in NETWORKS:
        (to / name).mkdir()
        yield _problem(name, kit, to / name)


def torch_networks(kit: Kit, *, is_compiled: bool) -> Iterator[Result]:
    """The same updates by PyTorch, in a process without JAX and Haiku: without flax
    Haiku has a module that `torch.compile` stumbles over."""
    if importlib.util.find_spec("torch") is None:
        yield {"left out": "PyTorch is not installed."}
        return
    from bench.networks import train_torch

    program = "PyTorch, compiled" if is_compiled else "PyTorch, eager"
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "bench.gpu.parts", "problems"]
        command += [str(kit.folder), "--to", folder, *kit.is_tiny * ["--tiny"]]
        environment = os.environ | {"JAX_PLATFORMS": "cpu"}
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, text=True, check=True
        )
        for given in map(json.loads, done.stdout.splitlines()):
            for dtype in ("same", "bfloat16"):
                settings = given | {"compute_dtype": dtype, "compile": is_compiled}
                about = {"network": given["net"], "program": program}
                found = train_torch(settings, Path(folder, given["net"]))
                yield about | {"arithmetic": dtype} | _rates(found, settings)


def _rates(found: Result, settings: Result) -> Result:
    seconds = statistics.median(found["seconds"][1:])
    return {
        "updates/s": settings["updates"] / seconds,
        "images/s": settings["updates"] * settings["batch_size"] / seconds,
        "first call s": found["first"],
        "peak MiB": found["peak"] / 2**20,
    }


def modes(kit: Kit) -> Iterator[Result]:
    """The same updates by jit, sharded and pmap on one device."""
    from bench.gpu.updates import make_training, time_updates

    encoded = kit.corpus(2_000_000)
    options: Result = {"vector_size": _SIZE, "epochs": 1, "devices": 1}
    options |= {"blocks_per_update": 2 if kit.is_tiny else 256}
    for mode in ("jit", "sharded", "pmap"):
        found = time_updates(make_training(encoded, options | {"mode": mode}), 3)
        yield {"mode": mode} | _speed(found)


def several_devices(kit: Kit) -> Iterator[Result]:
    """The same updates shared by 2, 4 and 8 devices, if they are there."""
    import jax

    from bench.gpu.updates import make_training, time_updates

    options: Result = {"vector_size": _SIZE, "epochs": 1, "mode": "sharded"}
    options |= {"blocks_per_update": 8 if kit.is_tiny else 1024}
    there = [num for num in (2, 4, 8) if num <= len(jax.devices())]
    for num in there:
        training = make_training(kit.corpus(2_000_000), options | {"devices": num})
        yield {"devices": num} | _speed(time_updates(training, 2))
    if not there:
        yield {"left out": "There is one device."}


def resume(kit: Kit) -> Iterator[Result]:
    """A training of images is killed after its first save, and goes on.

    It ends with its last epoch: the table of labels after it needs polars.
    """
    features, labels = kit.images()
    with tempfile.TemporaryDirectory() as folder:
        data, run = Path(folder, "images.npz"), Path(folder, "run")
        np.savez(data, X=features, y=labels)
        epochs = 6 if kit.is_tiny else 30
        command = [sys.executable, "-m", "embedder", "train", str(data)]
        command += ["--model", "encoder", "--network", "conv-small", "--loader"]
        command += ["memory", "--epochs", str(epochs), "--workdir", str(run)]
        command += ["--save-every", "5"]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as child:
            while child.poll() is None and not _has_checkpoint(run):
                time.sleep(0.02)
            was_running = child.poll() is None
            child.send_signal(signal.SIGKILL)
        done = subprocess.run(command, capture_output=True, text=True)
        lines = done.stderr.splitlines()
        metrics = run / "metrics.jsonl"
        trained = len(metrics.read_text().splitlines()) if metrics.exists() else 0
        yield {
            "killed while it trained": was_running,
            "resumes": next((x for x in lines if "Resumes after" in x), ""),
            "epochs": f"{trained} of {epochs}",
        }


def _has_checkpoint(run: Path) -> bool:
    """Whether a checkpoint of a run is whole."""
    return any(each.name.isdigit() for each in run.glob("checkpoints/*"))


def cpu(kit: Kit) -> Iterator[Result]:
    """The kernel of the CPU of this machine, by threads."""
    if importlib.util.find_spec("numba") is None:
        yield {"left out": "Numba is not installed."}
        return
    from embedder.base.threads import available_cores
    from embedder.config import Config, resolve, with_options
    from embedder.engine.epochs import run_epochs
    from embedder.tokens.plan import TrainingPlan
    from embedder.tokens.trainer import TokensTrainer

    encoded = kit.corpus(2_000_000)
    for threads in (1, 2, 4, 8, 16):
        if threads > available_cores():
            return
        options: Result = {"vector_size": _SIZE, "threads": threads, "epochs": 1}
        options |= {"backend": "numba", "blocks_per_update": 64, "loader": "memory"}
        config = resolve(with_options(Config(), **options), encoded.num_tokens)
        training = TokensTrainer(TrainingPlan(config, encoded, range(1)))
        for number in range(3):  # the first compiles
            last: list[Any] = []
            run_epochs(training, training.initial_state(), last.append)
            seconds = last[-1].seconds - last[-1].compile_seconds
            if number:
                rate = last[-1].items / seconds / 1e6
                yield {"threads": threads, "M words/s of a training": rate}


def profile(kit: Kit, to: Path | None = None) -> Iterator[Result]:
    """The trace of one call of updates, for a browser."""
    import jax

    from bench.gpu.updates import make_training
    from embedder.engine.epochs import run_epochs

    settings = {"vector_size": _SIZE, "blocks_per_update": 256, "epochs": 1}
    if kit.is_tiny:
        settings |= {"blocks_per_update": 2}
    training = make_training(kit.corpus(300_000), settings)
    run_epochs(training, training.initial_state())  # compiles
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            run_epochs(training, training.initial_state())
        traces = [*Path(folder).rglob("*.trace.json.gz")]
        sizes = [each.stat().st_size for each in traces]
        if to is not None and traces:
            shutil.copy(traces[0], to / "profile.trace.json.gz")
    yield {"traces": len(traces), "bytes": sum(sizes)}


PARTS: dict[str, Callable[..., Iterator[Result]]] = {
    "device": device,
    "parity": parity,
    "words-100": functools.partial(words, size=100),
    "bits": bits,
    "replicas": replicas,
    "networks": networks,
    "small-networks": small_networks,
    "modes": modes,
    "devices": several_devices,
    "words-300": functools.partial(words, size=300),
    "resume": resume,
    "torch-eager": functools.partial(torch_networks, is_compiled=False),
    "cpu": cpu,
    "profile": profile,
    "problems": problems,
    "torch-compiled": functools.partial(torch_networks, is_compiled=True),
}


def main(arguments: list[str]) -> None:
    """Runs one part."""
    parser = argparse.ArgumentParser("python -m bench.gpu.parts", description=__doc__)
    parser.add_argument("part", choices=[*PARTS])
    parser.add_argument("kit", type=Path)
    parser.add_argument("--to", type=Path)
    parser.add_argument("--tiny", action="store_true")
    given = parser.parse_args(arguments)
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    options = {"to": given.to} if given.part in ("profile", "problems") else {}
    with tempfile.TemporaryDirectory() as cache:  # a program is compiled once
        os.environ["JAX_COMPILATION_CACHE_DIR"] = cache
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        for result in PARTS[given.part](Kit(given.kit, is_tiny=given.tiny), **options):
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
