"""Every feature keeps what users are promised of all of them."""

import collections
import concurrent.futures
import contextlib
import functools
import gc
import hashlib
import inspect
import io
import json
import random
import re
import shutil
import signal
import socket
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import polars as pl
import pytest

from embedder import EmbeddingTrainer, FeatureEncoder, read_ensemble, read_vectors
from embedder.cli.main import main
from tests.contract.devices import TwoDevices
from tests.contract.events import at_each_event
from tests.contract.features import FEATURES, Feature, write_inputs
from tests.faults.forks import Forks

SHARED = "--save-every 4 --no-report"
NUMBA = "--backend numba"
FLOAT64 = "--dtype float64"
TIMED = "metrics.jsonl", "progress.jsonl", "corpus.json", "SHA256SUMS", ".lock"


class Result(NamedTuple):
    """What a run has trained.

    Attributes:
      arrays: of its model, or of its replicas, by their names.
      measured: of each line of metrics.jsonl, by their names.
      num_events: changes of the files in its folder.
    """

    run: Path
    arrays: dict[str, np.ndarray]
    measured: dict[str, list[float | None]]
    num_events: int = 0

    @classmethod
    def of(cls, run: Path) -> "Result":
        measured: dict[str, list[float | None]] = {}
        for line in (run / "metrics.jsonl").read_text().splitlines():
            for name, value in json.loads(line).items():
                if not re.search("seconds|per_second", name):
                    measured.setdefault(name, []).append(value)
        if (run / "model.npz").exists():
            with np.load(run / "model.npz") as file:
                arrays = {name: file[name] for name in file.files}
            del arrays["settings"]
            arrays.pop("history", None)  # of an encoder: as text, also the times
        else:
            arrays = {"vectors": read_ensemble(run).vectors}
        return cls(run, arrays, measured)

    def assert_is(self, other: "Result", atol: float = 0.0) -> None:
        """The same numbers, to the last bit or about."""
        assert self.measured.keys() == other.measured.keys()
        assert self.arrays.keys() == other.arrays.keys()
        for name, values in self.measured.items():
            one, two = (np.array(x, float) for x in (values, other.measured[name]))
            np.testing.assert_allclose(one, two, 10 * atol, atol, err_msg=name)
        for name, array in self.arrays.items():
            if array.dtype.kind == "f":
                pair = array, other.arrays[name]
                np.testing.assert_allclose(*pair, atol, atol, err_msg=name)
            else:
                np.testing.assert_array_equal(array, other.arrays[name], name)


class Place:
    """A folder with data, in which features are trained.

    Each result is of another set of flags, and is trained once.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._results: dict[tuple[str, str], Result] = {}
        self._stack = contextlib.ExitStack()

    def close(self) -> None:
        self._stack.close()

    @functools.cached_property
    def with_two_devices(self) -> TwoDevices:
        return self._stack.enter_context(TwoDevices())

    @functools.cached_property
    def forks(self) -> list[Forks]:
        """Two processes, each of which starts processes of its own."""
        return [self._stack.enter_context(Forks()) for _ in range(2)]

    def command(self, feature: Feature, flags: str = "", *, run: str) -> list[str]:
        """Of the XLA back end and the loader memory, where flags do not say another."""
        line = f"train {feature.command} {SHARED} {flags} --workdir {run}"
        if "--loader" not in line:
            line += " --loader memory"
        if "--backend" not in line and not feature.is_encoder:
            line += " --backend xla"
        return line.split()

    def result(self, feature: Feature, flags: str = "") -> Result:
        """What `embedder train` gives with these flags beside those of the feature."""
        key = feature.command, flags
        if key not in self._results:
            run = f"run{len(self._results)}"
            shutil.rmtree(run, ignore_errors=True)
            events: list[None] = []
            with at_each_event(Path(run), lambda: events.append(None)):
                assert run_here(self.command(feature, flags, run=run)) == (0, None)
            result = Result.of(self.folder / run)
            self._results[key] = result._replace(num_events=len(events))
        return self._results[key]


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("contract")
    write_inputs(folder)
    place = Place(folder)
    yield place
    place.close()


@pytest.fixture
def place(shared, monkeypatch) -> Place:
    monkeypatch.chdir(shared.folder)
    return shared


def run_here(arguments: list[str]) -> tuple[int, str | None]:
    """The exit code of `embedder`, and its error."""
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        code = main(arguments)
    last = errors.getvalue().rstrip().split("\n")[-1]
    return code, None if code == 0 else last


def digests(run: Path) -> dict[str, str]:
    """Of the files of a run that do not tell the time."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in run.iterdir()
        if path.is_file() and path.name not in TIMED
    }


def loaders_give_the_same_bits(place: Place, feature: Feature) -> None:
    place.result(feature, "--loader tfdata").assert_is(place.result(feature))


def backend(feature: Feature, number: int) -> str:
    """Flags of the kernel for every other of the features that it computes."""
    has_kernel = not feature.is_encoder and "kernel" not in feature.unlike
    return NUMBA if has_kernel and (FEATURES.index(feature) + number) % 2 else ""


def stopped_it_goes_on_to_the_same_bits(place: Place, feature: Feature) -> None:
    """By SIGTERM, at another place for each feature."""
    flags = backend(feature, 0)
    whole = place.result(feature, flags)
    shutil.rmtree("stopped", ignore_errors=True)
    count, share = 0, 0.1 + 0.4 * (FEATURES.index(feature) % 7) / 7

    def event() -> None:
        nonlocal count
        count += 1
        if count == int(share * whole.num_events):
            signal.raise_signal(signal.SIGTERM)

    command = place.command(feature, flags, run="stopped")
    with at_each_event(Path("stopped"), event):
        assert run_here(command)[0] == 143
    assert run_here(command) == (0, None)
    assert digests(Path("stopped")) == digests(whole.run)
    Result.of(Path("stopped")).assert_is(whole)


def killed_it_goes_on_to_the_same_bits(place: Place, feature: Feature) -> None:
    """By SIGKILL at random changes of files: before, within and after a save."""
    flags = backend(feature, 1)
    whole = place.result(feature, flags)
    rng, kills, code = random.Random(FEATURES.index(feature)), 0, -9
    shutil.rmtree("killed", ignore_errors=True)
    command = place.command(feature, flags, run="killed")
    while code:
        event = rng.randrange(1, whole.num_events // 2) if kills < 2 else 0
        run = "tests.contract.events", event, 9, "killed", *command
        done = place.forks[0].run(*run)
        code = done.returncode
        assert code in (0, -9), done.stderr
        kills += code == -9
    assert kills > 0
    assert digests(Path("killed")) == digests(whole.run)
    assert not [*Path("killed/checkpoints").glob("*tmp*")]


def a_replica_is_the_run_of_its_seed(place: Place, feature: Feature) -> None:
    together = place.result(feature, f"{FLOAT64} --replicas 2")
    for number in range(2):
        alone = place.result(feature, f"{FLOAT64} --seed {1 + number}")
        if feature.is_encoder:
            for name, array in alone.arrays.items():
                if array.dtype.kind == "f":
                    one = together.arrays[name][number]
                    np.testing.assert_allclose(one, array, atol=1e-9, err_msg=name)
        else:
            one = read_ensemble(together.run).replica(number)
            vectors = read_vectors(alone.run)
            assert one.keys == vectors.keys
            np.testing.assert_allclose(one.matrix, vectors.matrix, atol=1e-9)


def the_kernel_computes_what_xla_does(place: Place, feature: Feature) -> None:
    place.result(feature, NUMBA).assert_is(place.result(feature), 1e-4)


def any_number_of_threads_gives_the_same_bits(place: Place, feature: Feature) -> None:
    three = place.result(feature, f"{NUMBA} --threads 3")
    three.assert_is(place.result(feature, NUMBA))


def what_is_saved_is_read_as_it_was(place: Place, feature: Feature) -> None:
    run = place.result(feature).run
    vectors = read_vectors(run)
    kind = FeatureEncoder if feature.is_encoder else EmbeddingTrainer
    model = kind.load(run / "model.npz")
    model.save("again.npz")
    with np.load(run / "model.npz") as one, np.load("again.npz") as other:
        assert {*one.files} == {*other.files}
        for name in one.files:
            np.testing.assert_array_equal(one[name], other[name], name)
    if feature.is_encoder:
        X, _ = in_memory(feature.data)
        atol = 0.1 if "bfloat16" in feature.command else 1e-6
        np.testing.assert_allclose(model.transform(X), vectors.matrix, atol=atol)
    else:
        assert model.index_to_key == vectors.keys
        np.testing.assert_array_equal(model.vectors, vectors.matrix)
        text = read_vectors(run / "vectors.txt")
        assert text.keys == vectors.keys
        np.testing.assert_allclose(text.matrix, vectors.matrix, rtol=1e-6)


def python_trains_what_the_command_does(place: Place, feature: Feature) -> None:
    """From the file, and from what it holds, in memory."""
    trained = place.result(feature)
    settings: dict[str, Any] = {}
    for section in tomllib.loads((trained.run / "config.toml").read_text()).values():
        settings |= section
    # A graph in memory has its edges in another order than a file.
    in_memories = [] if feature.data.suffix == ".tsv" else [in_memory(feature.data)]
    for data in [feature.data, *in_memories]:
        if feature.is_encoder:
            model = fit_encoder(settings, data)
        elif "--resume" in feature.command:
            model = update(settings, data, "--grow" in feature.command)
        else:
            model = fit(settings, data)
        model.save("python.npz")
        with np.load("python.npz") as file:
            for name, array in trained.arrays.items():
                if array.dtype.kind == "f":
                    pair = file[name], array
                    np.testing.assert_allclose(*pair, rtol=1e-14, err_msg=name)


def in_memory(path: Path) -> Any:
    """What the file holds, as Python has it."""
    if path.suffix == ".npz":
        with np.load(path) as file:
            return file["X"], file["y"]
    if path.suffix == ".parquet":
        return pl.read_parquet(path)
    return [line.split() for line in path.read_text().splitlines()]


def chosen(settings: dict[str, Any], function: Callable) -> dict[str, Any]:
    """The settings that the function has arguments for."""
    names = inspect.signature(function).parameters
    return {k: x for k, x in settings.items() if k in names and x != ""}


def fit(settings: dict[str, Any], data: Any) -> EmbeddingTrainer:
    settings = settings | {"cap": settings.get("max_pairs_per_row")}
    trainer = EmbeddingTrainer(**chosen(settings, EmbeddingTrainer))
    if settings["walks"]:
        return trainer.fit_graph(data, **chosen(settings, trainer.fit_graph))
    return trainer.fit(data, **chosen(settings, trainer.fit))


def update(settings: dict[str, Any], data: Any, grow: bool) -> EmbeddingTrainer:
    trainer = EmbeddingTrainer.load("old/model.npz")
    options = chosen(settings, trainer.partial_fit)
    if settings["replay"]:
        options["earlier"] = "text.txt"
    return trainer.partial_fit(data, grow=grow, **options)


def fit_encoder(settings: dict[str, Any], data: Any) -> FeatureEncoder:
    settings = settings | {
        "layers": tuple(settings["layers"]) or None,
        "schedule": settings["rate_schedule"],
        "vector_size": settings["embedding_size"],
        "init_from": settings["init_network"],
        "freeze": settings["freeze_modules"],
        "augment": tuple(settings["augment"]),
    }
    for name in ("network_args", "objective_args", "optimizer_args", "schedule_args"):
        pairs = (each.split("=") for each in settings[name])
        settings[name] = {key: of_text(value) for key, value in pairs} or None
    X, y = in_memory(data) if isinstance(data, Path) else data
    return FeatureEncoder(**chosen(settings, FeatureEncoder)).fit(X, y)


def of_text(value: str) -> Any:
    with contextlib.suppress(json.JSONDecodeError):
        return json.loads(value)
    return value


def two_devices_compute_what_one_does(place: Place, feature: Feature) -> None:
    """In one of the layouts, another one for each feature."""
    layouts = [f"--mode {mode}" for mode in ("sharded", "pmap")]
    if not feature.is_encoder:
        tables = [f"--table-sharding {x}" for x in ("replicated", "columns", "rows")]
        layouts = [f"{mode} {x}" for mode in layouts for x in tables]
    layout = layouts[FEATURES.index(feature) % len(layouts)]
    shutil.rmtree("two", ignore_errors=True)
    command = place.command(feature, f"{FLOAT64} --devices 2 {layout}", run="two")
    code, errors = place.with_two_devices.main(command)
    assert code == 0, errors
    Result.of(Path("two")).assert_is(place.result(feature, FLOAT64), 1e-9)


def two_processes_compute_what_one_does(place: Place, feature: Feature) -> None:
    shutil.rmtree("two", ignore_errors=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    peers = f"{FLOAT64} --coordinator 127.0.0.1:{port} --num-processes 2"

    def process(number: int) -> subprocess.CompletedProcess[str]:
        flags = f"{peers} --process-id {number}"
        command = place.command(feature, flags, run="two")
        return place.forks[number].run("tests.contract.events", 0, 0, "two", *command)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        both = [*pool.map(process, range(2))]
    assert [done.returncode for done in both] == [0, 0], [x.stderr for x in both]
    Result.of(Path("two")).assert_is(place.result(feature, FLOAT64), 1e-9)


def standard_input_is_as_the_file(place: Place, feature: Feature) -> None:
    corpus = io.TextIOWrapper(io.BytesIO(feature.data.read_bytes()))
    shutil.rmtree("piped", ignore_errors=True)
    command = place.command(feature, run="piped")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", corpus)
        assert run_here(["train", "-", *command[2:]]) == (0, None)
    Result.of(Path("piped")).assert_is(place.result(feature))


def memory_is_at_most_what_was_said(place: Place, feature: Feature) -> None:
    """Of a device: the arrays that JAX has while files of the run are written."""
    has_size = re.search("--(resume|init-from|layers) ", feature.command)
    size = "" if has_size else "--vector-size 512"
    command = place.command(feature, size, run="large")
    shutil.rmtree("large", ignore_errors=True)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert run_here([*command, "--dry-run"]) == (0, None)
    (most,) = re.findall("on each device: ([0-9.,]+) MiB", said.getvalue())

    def live() -> int:
        return sum(x.nbytes for x in jax.live_arrays())

    gc.collect()
    before, used = live(), [0]
    with at_each_event(Path("large"), lambda: used.append(live())):
        assert run_here(command) == (0, None)
    assert 0 < max(used) - before <= (float(most.replace(",", "")) + 0.1) * 2**20


class Invariant(NamedTuple):
    """What holds for every feature.

    Attributes:
      flags: of the command that is refused where the invariant means nothing.
      rows: of the matrix of faults.
      fast: for how many of the features that are tested by default it is so, too:
        those for which the fewest invariants before it are.
    """

    name: str
    check: Callable[[Place, Feature], None]
    flags: str = ""
    rows: tuple[str, ...] = ()
    fast: int = 99


KILLS = "F1", "F2", "F3", "F36", "F44", "F47", "F58", "F60"
STOPS = "F4", "F37", "F44"
DEVICES = "F23", "B9", "F47"
INVARIANTS = [
    Invariant("loaders", loaders_give_the_same_bits, "--loader tfdata", fast=3),
    Invariant("stopped", stopped_it_goes_on_to_the_same_bits, "", STOPS, fast=7),
    Invariant("killed", killed_it_goes_on_to_the_same_bits, "", KILLS, fast=0),
    Invariant("replicas", a_replica_is_the_run_of_its_seed, "--replicas 2", fast=3),
    Invariant("kernel", the_kernel_computes_what_xla_does, NUMBA),
    Invariant("threads", any_number_of_threads_gives_the_same_bits, "--threads 3"),
    Invariant("saved", what_is_saved_is_read_as_it_was),
    Invariant("python", python_trains_what_the_command_does, fast=6),
    Invariant("devices", two_devices_compute_what_one_does, "--devices 2", DEVICES, 3),
    Invariant("processes", two_processes_compute_what_one_does, fast=0),
    Invariant("input", standard_input_is_as_the_file, fast=4),
    Invariant("memory", memory_is_at_most_what_was_said, fast=0),
]
SEED = 538
"""With it few cells by default are dear: images by other loaders or on devices."""
FOR_TOKENS = "embedder: `{}` applies only to `model` = 'tokens', got {} with 'encoder'."
UNLIKE = {
    "kernel": FOR_TOKENS.format("backend", "'numba'"),
    "threads": FOR_TOKENS.format("threads", 3),
    "input": "a file of examples is no stream",
}
"""Of all encoders, as in `Feature.unlike`."""


def cells() -> Iterator:
    """All; those that are not tested by default are slow."""
    num_cells = collections.Counter[str]()
    for number, each in enumerate(INVARIANTS):
        having = []
        for feature in FEATURES:
            unlike = {**(UNLIKE if feature.is_encoder else {}), **feature.unlike}
            assert not {*unlike} - {each.name for each in INVARIANTS}
            reason = unlike.get(each.name)
            if reason is None or reason.startswith("embedder: "):
                having.append((feature, reason))
        fast = [feature.name for feature, _ in having if feature.is_fast]
        random.Random(SEED + number).shuffle(fast)
        fast = sorted(fast, key=lambda name: num_cells[name])[: each.fast]
        num_cells.update(fast if each.fast < 99 else ())
        for feature, reason in having:
            marks = [pytest.mark.row(*each.rows)] if each.rows else []
            marks += [pytest.mark.tfdata] if each.name == "loaders" else []
            if feature.name not in fast:
                marks.append(pytest.mark.slow)
            name = f"{each.name}-{feature.name}"
            yield pytest.param(feature, each, reason, id=name, marks=marks)


@pytest.mark.usefixtures("usual_backend")
@pytest.mark.parametrize(("feature", "invariant", "refusal"), [*cells()])
def test_a_feature_has_an_invariant_or_is_refused(place, feature, invariant, refusal):
    if refusal is None:
        invariant.check(place, feature)
    else:
        command = place.command(feature, invariant.flags, run="refused")
        assert run_here(command) == (2, refusal)
