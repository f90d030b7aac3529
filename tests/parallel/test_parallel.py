"""Many devices compute what one does, and exchange no tables.

Two devices are tested with each feature, in tests/contract.
"""

import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from bench.collectives import collectives
from embedder import read_ensemble
from embedder.cli.main import main
from tests.commands import run_python

TOKENS = "text.txt --vector-size 10 --min-count 1 --block 16 --blocks-per-update 6"
TOKENS += " --backend xla"
ENCODER = "images.npz --model encoder --batch-size 10"
SMALL = "--network conv-small --network-args width=2 size=6"
KINDS = {
    "sgd": TOKENS,
    "adagrad": f"{TOKENS} --optimizer adagrad --architecture cbow",
    "replicas": f"{TOKENS} --replicas 6",
    "mlp": f"{ENCODER} --layers 64 6 3",
    "supcon": f"{ENCODER} {SMALL} --objective supcon",
    "bfloat16": f"{ENCODER} {SMALL} --compute-dtype bfloat16 --optimizer sgd",
}
V, D = 97, 10  # of a table: eight divides neither


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder, rng = tmp_path_factory.mktemp("parallel"), np.random.default_rng(0)
    words = [f"w{i}" for i in range(V)]
    lines = [words, *(rng.choice(words, size=20) for _ in range(100))]
    (folder / "text.txt").write_text("\n".join(map(" ".join, lines)))
    labels = rng.integers(3, size=37)  # the last batch has 7
    images = rng.integers(200, size=(37, 8, 8)) + 20 * labels[:, None, None]
    np.savez(folder / "images.npz", X=images.astype(np.uint8), y=labels)
    (folder / "space.toml").write_text("alpha = [0.3, 0.5]\nwindow = [2, 4]")
    return folder


@pytest.fixture(autouse=True)
def here(folder, monkeypatch) -> None:
    monkeypatch.chdir(folder)


def command(kind: str, run: str) -> str:
    shared = "--epochs 1 --loader memory --no-report"
    shared += "" if kind == "bfloat16" else " --dtype float64"
    return f"train {KINDS[kind]} {shared} --workdir {run}"


def on_devices(number: int, command: str, xla: str = "", **variables: str) -> None:
    """Runs `embedder` in a process with so many devices of a CPU."""
    flags = f"--xla_force_host_platform_device_count={number} {xla}"
    variables |= {"XLA_FLAGS": flags, "JAX_NUMPY_RANK_PROMOTION": "raise"}
    arguments = [*command.split(), "--devices", number]
    done = run_python("-m", "embedder.cli.main", *arguments, env=os.environ | variables)
    assert done.returncode == 0, done.stderr


def trained(run: str) -> dict[str, np.ndarray]:
    if not Path(run, "model.npz").exists():
        return {"vectors": read_ensemble(run).vectors}
    with np.load(Path(run, "model.npz")) as file:
        arrays = {name: file[name] for name in file.files}
    return {name: x for name, x in arrays.items() if x.dtype.kind == "f"}


def differences(kind: str, run: str) -> dict[str, float]:
    """Of the arrays of a run from those of a run on one device."""
    if not Path(kind).exists():
        assert main(command(kind, kind).split()) == 0
    found, expected = trained(run), trained(kind)
    assert found.keys() == expected.keys()
    return {name: np.abs(x - expected[name]).max() for name, x in found.items()}


LAYOUTS = [
    *(("sharded", "replicated", 1), ("pmap", "replicated", 1)),
    *(("sharded", "columns", n) for n in (8, 4, 2)),
    *(("sharded", "rows", n) for n in (8, 4, 2)),
    *(("pmap", "rows", 8), ("pmap", "columns", 8)),
]


@pytest.mark.row("F23", "B9")
@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_eight_devices_compute_what_one_does_and_exchange_no_tables(tmp_path, layout):
    """Accumulators of Adagrad, too, in every second layout."""
    mode, tables, number = layout
    kind = ("sgd", "adagrad")[LAYOUTS.index(layout) % 2]
    run = "-".join(map(str, layout))
    flags = f" --mode {mode} --table-sharding {tables}"
    flags += f" --table-devices {number}" if number > 1 else ""
    xla = f"--xla_dump_to={tmp_path} --xla_dump_hlo_as_text"
    xla += " --xla_backend_optimization_level=0"
    uncached = {"JAX_ENABLE_COMPILATION_CACHE": "0"}  # else nothing is dumped
    on_devices(8, command(kind, run) + flags, xla, **uncached)
    assert max(differences(kind, run).values()) < 1e-12
    programs = tmp_path.glob("*after_optimizations.txt")
    shapes = [x.shape for path in programs for x in collectives(path.read_text())]
    rows = -(-V // number)
    assert shapes, "nothing is exchanged: of another program"
    assert not [shape for shape in shapes if {*shape} & {V, rows, number * rows}]


@pytest.mark.slow
@pytest.mark.row("F47", "F23", "B9")
@pytest.mark.parametrize(("kind", "mode"), [("mlp", "pmap"), ("supcon", "sharded")])
def test_batches_that_eight_devices_do_not_divide_are_those_of_one(kind, mode):
    """The examples and statistics of all of them are one batch."""
    on_devices(8, f"{command(kind, f'8-{kind}')} --mode {mode}")
    assert max(differences(kind, f"8-{kind}").values()) < 1e-10


@pytest.mark.slow
@pytest.mark.row("F47")
def test_bfloat16_is_the_same_on_two_devices_up_to_its_rounding():
    on_devices(2, command("bfloat16", "half") + " --mode sharded")
    found = differences("bfloat16", "half")
    assert 0 < max(found.values()) < 0.01, found
    assert {x.dtype.name for x in trained("half").values()} == {"float32"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "flags"), [(4, ""), (4, "--table-sharding columns --table-devices 2")]
)
def test_replicas_that_devices_share_are_those_of_one(number, flags):
    run = f"replicas{len(flags)}"
    on_devices(number, f"{command('replicas', run)} --mode sharded {flags}")
    assert differences("replicas", run)["vectors"] < 1e-12


@pytest.mark.slow
def test_models_of_a_sweep_are_the_same_on_four_devices():
    sweep = f"sweep space.toml {TOKENS} --epochs 1 --dtype float64 --workdir"
    assert main(f"{sweep} sweep1".split()) == 0
    on_devices(4, f"{sweep} sweep4 --mode sharded")
    one, four = (
        pl.read_csv(f"sweep{number}/trials.csv").sort("trial") for number in (1, 4)
    )
    assert one["held_out"].n_unique() == len(one) == 5
    np.testing.assert_allclose(four["held_out"], one["held_out"], rtol=1e-9)
