"""New images through a trained encoder: a folder of PNGs, and the same as one idx file.

`embedder embed RUN DATA --to FILE` beside a plain loop over the files, which opens one
after the other by Pillow and gives batches of 256 to the same network. Each program
runs in a process of its own, by turns; `python -m bench.folders JSON FOLDER` is such a
process, and prints one line of JSON.
"""

import contextlib
import io
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bench.processes import run_python
from bench.results import Results, Table, data_folder, spread, write_results

PROGRAMS = {
    "embedder, folder": "images",
    "embedder, idx file": "images-idx3-ubyte",
    "loop over the files": "images",
}
"""Name in the table -> the data in the folder of the bench."""
_LOOP = "loop over the files"
_BATCH = 256  # images of the loop that the network gets at once
_COLUMNS = [
    *("program", "images/s", "start, s", "images/s read", "images/s by the network"),
    *("other, s", "largest difference of vectors"),
]


def run(
    images: int = 4000,
    samples: int = 3,
    network: Literal["conv-small", "resnet", "wide-resnet", "vit"] = "conv-small",
    network_args: tuple[str, ...] = (),
) -> Table:
    """New images through an encoder: `embedder embed` of a folder and of an idx file,
    beside a plain loop.

    Args:
      images: how many of Fashion-MNIST, as PNGs and in one file.
      samples: number of measurements of each.
      network: that of the encoder.
      network_args: its arguments, as NAME=VALUE.
    """
    settings = {"images": images, "network": network, "arguments": network_args}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in PROGRAMS}
    with tempfile.TemporaryDirectory() as folder:
        write_problem(settings, Path(folder))
        for _ in range(samples):
            ours = None
            for name, data in PROGRAMS.items():
                given = {"program": name, "data": data}
                found[name].append(measure(given, Path(folder)))
                vectors = np.load(Path(folder, "vectors.npy"))
                ours = vectors if ours is None else ours
                difference = float(np.abs(vectors - ours).max() / np.abs(ours).max())
                found[name][-1]["difference"] = difference
                print(f"{name}: {found[name][-1]['all']:.2f} s", file=sys.stderr)
    return table(write_results("folders", settings=settings, samples=found))


def table(results: Results) -> Table:
    """A row for each program."""
    num = results["settings"]["images"]
    rows = []
    for name, samples in results["samples"].items():

        def seconds(part: str, samples=samples) -> list[float]:
            return [sample[part] for sample in samples]

        rows.append(
            [
                name,
                spread(num / x for x in seconds("all")),
                spread(seconds("start")),
                spread(num / x for x in seconds("read")),
                spread(num / x for x in seconds("network")),
                spread(seconds("other")),
                f"{max(seconds('difference')):.0e}"
                if name != "embedder, folder"
                else "-",
            ]
        )
    return Table(_COLUMNS, rows)


def write_problem(settings: dict[str, Any], folder: Path) -> None:
    """Writes the images as files and as one, and a run of the network, untrained."""
    from PIL import Image

    from embedder.cli.main import main
    from embedder.data.examples.array_files import read_idx

    found = (data_folder() / "fashion-mnist").glob("t10k-images-idx3-ubyte*")
    images = read_idx(next(found))
    num = settings["images"]
    images = np.concatenate([images] * -(-num // len(images)))[:num]
    (folder / "images").mkdir()
    for number, image in enumerate(images):
        Image.fromarray(image).save(folder / "images" / f"{number:06}.png")
    header = np.array([0x803, *images.shape], ">i4").tobytes()
    (folder / "images-idx3-ubyte").write_bytes(header + images.tobytes())
    np.savez(folder / "few.npz", X=images[:20], y=np.arange(20) % 10)
    command = ["train", str(folder / "few.npz"), "--model", "encoder", "--epochs", "0"]
    command += ["--network", settings["network"], "--workdir", str(folder / "run")]
    if settings["arguments"]:
        command += ["--network-args", *settings["arguments"]]
    with contextlib.redirect_stdout(io.StringIO()):
        if main([*command, "--no-report"]):
            raise SystemExit("bench: the run to embed with could not be made.")


def measure(settings: dict[str, Any], folder: Path) -> dict[str, float]:
    """Seconds of a program in a new process, all of it and by part."""
    environment = {"JAX_ENABLE_COMPILATION_CACHE": "false"}
    start = time.perf_counter()
    arguments = "-m", "bench.folders", json.dumps(settings), str(folder)
    found = run_python(*arguments, environment=environment)
    found["all"] = time.perf_counter() - start
    inner = found["read"] + found["network"] + found["start"]
    return found | {"other": found["all"] - inner}


def _by_command(folder: Path, data: str, timer: "_Timer") -> np.ndarray:
    from embedder.cli.main import main
    from embedder.encoders import new_examples
    from embedder.encoders.predictor import Predictor
    from embedder.vectors.export import read_vectors

    new_examples.read_new_examples = timer.timed("read", new_examples.read_new_examples)
    outputs = Predictor.predict_and_embed
    Predictor.predict_and_embed = timer.timed("network", outputs)  # type: ignore[method-assign]
    timer.start()
    command = ["embed", str(folder / "run"), str(folder / data)]
    with contextlib.redirect_stdout(io.StringIO()):
        if main([*command, "--to", str(folder / "new.npz")]):
            raise SystemExit(1)
    found = read_vectors(folder / "new.npz")
    numbers = [int(Path(key).stem) for key in found.keys]
    return found.matrix[np.argsort(numbers)]  # a folder is read in another order


def _by_loop(folder: Path, data: str, timer: "_Timer") -> np.ndarray:
    import jax
    from PIL import Image

    from embedder.encoders.artefact import read_model
    from embedder.encoders.outputs import load_model

    file = read_model(folder / "run")
    encoder, model = load_model(file.network, file.models[0])
    embed, scores = jax.jit(encoder.embed), jax.jit(encoder.scores)
    model = jax.device_put(model)

    def read() -> np.ndarray:
        paths = sorted((folder / data).iterdir())
        return np.stack([np.asarray(Image.open(path)) for path in paths])

    def outputs(images: np.ndarray) -> np.ndarray:
        parts = []
        for start in range(0, len(images), _BATCH):
            part = images[start : start + _BATCH]
            padded = np.pad(part, [(0, _BATCH - len(part)), (0, 0), (0, 0)])
            np.asarray(scores(model, padded))  # the command says classes, too
            parts.append(np.asarray(embed(model, padded))[: len(part)])
        return np.concatenate(parts)

    timer.start()
    images = timer.timed("read", read)()
    return timer.timed("network", outputs)(images)


class _Timer:
    """Seconds of parts of a program."""

    def __init__(self) -> None:
        self.seconds = {"read": 0.0, "network": 0.0}
        self._begin = time.perf_counter()

    def start(self) -> None:
        """Must be called where the packages are imported."""
        self.seconds["start"] = time.perf_counter() - self._begin

    def timed(self, part: str, function: Callable) -> Callable:
        """`function`, whose seconds count for `part`."""

        def call(*arguments: Any, **options: Any) -> Any:
            with self._measure(part):
                return function(*arguments, **options)

        return call

    @contextlib.contextmanager
    def _measure(self, part: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.seconds[part] += time.perf_counter() - begin


def main(arguments: list[str]) -> None:
    """Prints the seconds of a program as one line of JSON."""
    timer = _Timer()
    settings, folder = json.loads(arguments[0]), Path(arguments[1])
    by = _by_loop if settings["program"] == _LOOP else _by_command
    vectors = by(folder, settings["data"], timer)
    np.save(folder / "vectors.npy", vectors)
    print(json.dumps(timer.seconds))


BENCHES = {"folders": run}
TABLES = {"folders": table}


if __name__ == "__main__":
    main(sys.argv[1:])
