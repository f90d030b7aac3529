"""Faults of runs with replicas: each ends in one line, and leaves what is sound."""

import json
import os
import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pytest

from embedder import read_ensemble
from embedder.cli import main
from embedder.encoders import training as encoders
from embedder.errors import InputError
from embedder.limits import Limit
from embedder.run.checkpoints import Checkpoints
from embedder.tables.training import Training
from tests.commands import error_line, run_python

SEED, REPLICAS = 5, 3
TABLES = ["text.txt", "--loader", "memory", "--vector-size", "4", "--min-count", "1"]
TABLES += ["--sample", "0", "--epochs", "3", "--save-every", "16"]
ENCODER = ["examples.npz", "--model", "encoder", "--loader", "memory"]
SEVERAL = ["--seed", str(SEED), "--replicas", str(REPLICAS), "--workdir", "run"]
RESULTS = {"vectors.txt", "vectors.safetensors", "replicas.safetensors", "model.npz"}
BACKENDS = pytest.mark.parametrize("backend", ["xla", "numba"])


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("a b c d a c\n" * 400)
    rng = np.random.default_rng(0)
    np.savez("examples.npz", X=rng.normal(size=(90, 4)), y=rng.integers(3, size=90))


def train(*options: str) -> int:
    """`embedder train` with replicas; a later option overrides an earlier one."""
    return main(["train", *options[:1], *SEVERAL, *options[1:]])


def vectors() -> np.ndarray:
    return np.array(read_ensemble("run").vectors)


def files() -> set[str]:
    return {*os.listdir("run")} if Path("run").exists() else set()


# --- stopping and resuming


@pytest.mark.slow
@pytest.mark.row("F37")
@BACKENDS
def test_a_stopped_run_resumes_to_the_same_bits(stopped, capsys, backend):
    options = [*TABLES, "--backend", backend]
    assert train(*options) == 0
    expected = vectors()
    shutil.rmtree("run")
    stopped(*options, *SEVERAL)
    assert not RESULTS & files()
    assert train(*options) == 0
    assert "Resumes after " in capsys.readouterr().err
    np.testing.assert_array_equal(vectors(), expected)


@pytest.mark.row("F37")
@pytest.mark.parametrize("number", [1, 2, 4])
def test_another_number_of_replicas_is_refused(stopped, capsys, number):
    stopped(*TABLES, *SEVERAL)
    steps = Checkpoints(Path("run/checkpoints")).steps()
    assert train(*TABLES, "--replicas", str(number)) == 2
    assert f"`replicas` {REPLICAS} there, {number} now" in error_line(capsys)
    assert Checkpoints(Path("run/checkpoints")).steps() == steps
    assert not RESULTS & files()


@pytest.mark.slow
@pytest.mark.row("F37")
def test_another_mode_goes_on_and_says_that_bits_may_differ(stopped, capsys):
    assert train(*TABLES) == 0
    expected = vectors()
    shutil.rmtree("run")
    stopped(*TABLES, *SEVERAL)
    assert train(*TABLES, "--mode", "sharded", "--devices", "1") == 0
    assert "Vectors may differ in their last bits" in capsys.readouterr().err
    np.testing.assert_allclose(vectors(), expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.row("F37")
@pytest.mark.parametrize("replicas", ["2", "3"])
def test_another_number_of_devices_goes_on(stopped, replicas):
    """Of two replicas each device then has one; three do not divide by two devices."""
    options = [*TABLES, *SEVERAL, "--replicas", replicas]
    assert main(["train", *options]) == 0
    expected = vectors()
    shutil.rmtree("run")
    stopped(*options)
    two = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    command = ["-m", "embedder.cli", "train", *options, "--devices", "2"]
    done = run_python(*command, "--mode", "sharded", env=os.environ | two)
    assert done.returncode == 0, done.stderr
    assert "Resumes after " in done.stderr
    assert "Vectors may differ in their last bits" in done.stderr
    np.testing.assert_allclose(vectors(), expected, atol=1e-5)


# --- one replica diverges


def steep_for_one(original: Callable, self, model, source, epoch, position):
    """From the second epoch on, the learning rate of replica 1 is out of bounds."""
    for updates, num, batch in original(self, model, source, epoch, position):
        if epoch and source.seed == SEED + 1:
            batch = batch._replace(rate=np.full_like(batch.rate, 1e30))
        yield updates, num, batch


@pytest.mark.slow
@pytest.mark.row("F38")
@BACKENDS
def test_one_replica_that_diverges_ends_the_run_with_the_setting(
    capsys, monkeypatch, backend
):
    """The checkpoints before are sound: from them the run goes on to the same bits."""
    options = [*TABLES, "--backend", backend, "--max-pairs-per-row", "inf"]
    options += ["--alpha", "0.01"]
    assert train(*options) == 0
    expected = vectors()
    shutil.rmtree("run")
    original = Training._calls_of
    with monkeypatch.context() as patch:
        patch.setattr(
            Training, "_calls_of", lambda *args: steep_for_one(original, *args)
        )
        assert train(*options) == 3
    line = capsys.readouterr().err.splitlines()[-1]
    assert re.fullmatch(
        r"embedder: (The loss near update [0-9]+ is (nan|inf), of the epoch before "
        r"[0-9.]+|Parameters or the optimizer's state after [0-9]+ updates are not "
        r"finite): training diverged. Give a smaller `alpha` or `max_pairs_per_row`.",
        line,
    )
    assert not RESULTS & files()
    saved = Checkpoints(Path("run/checkpoints"))
    assert saved.steps()
    for step in saved.steps():
        for array in saved.read(step).arrays.values():
            assert np.isfinite(array).all()
    assert train(*options) == 0
    np.testing.assert_array_equal(vectors(), expected)


@pytest.mark.row("F38")
def test_one_encoder_that_diverges_ends_the_run_with_the_setting(capsys, monkeypatch):
    original, number = encoders.make_encoder, iter(range(REPLICAS))

    def huge_for_one(*arguments, **options):
        encoder = original(*arguments, **options)
        factor = np.float32(1e38 if next(number) == 1 else 1)
        model = jax.tree.map(lambda x: x * factor, encoder.init())
        return encoder._replace(init=lambda: model)

    monkeypatch.setattr(encoders, "make_encoder", huge_for_one)
    with np.errstate(over="ignore"):
        assert train(*ENCODER) == 3
    line = error_line(capsys)
    assert "training diverged. Give a smaller `learning_rate`." in line
    assert not RESULTS & files()


# --- a damaged file of replicas


@pytest.fixture
def whole() -> bytes:
    """The file of replicas of a finished run."""
    assert train(*TABLES, "--epochs", "1") == 0
    return Path("run/replicas.safetensors").read_bytes()


def replace(data: bytes) -> None:
    """A new file: an array that is mapped keeps the old one."""
    path = Path("run/replicas.safetensors")
    path.unlink()
    path.write_bytes(data)


def assert_refused(capsys) -> None:
    """In one line by the reader and the verb; `verify` names the file."""
    with pytest.raises(InputError, match="is not a whole replicas file: ") as caught:
        read_ensemble("run")
    assert len(str(caught.value).splitlines()) == 1
    capsys.readouterr()
    assert main(["neighbors", "run", "a"]) == 2
    assert "run/replicas.safetensors is not a whole" in error_line(capsys)
    assert main(["verify", "run"]) == 1
    assert "replicas.safetensors: is not what was written" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.row("F39")
def test_a_file_cut_short_is_refused_at_any_length(whole, capsys):
    for length in range(0, len(whole), 7):
        replace(whole[:length])
        with pytest.raises(InputError, match="is not a whole replicas file: "):
            read_ensemble("run")
    replace(whole[:-1])
    assert_refused(capsys)


@pytest.mark.slow
@pytest.mark.row("F39")
def test_a_flipped_byte_is_refused(whole, capsys):
    for byte in (0, 9, len(whole) // 2, len(whole) - 1):
        data = bytearray(whole)
        data[byte] ^= 1
        replace(data)
        assert_refused(capsys)


def with_header(data: bytes, change: Callable[[dict], object]) -> bytes:
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    change(header)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data[8 + size :]


def set_shape(name: str, *shape: int) -> Callable[[dict], object]:
    return lambda header: header[name].update(shape=shape)


def longer_vectors(header: dict) -> None:
    """The shape and the offsets agree, the file is shorter."""
    header["vectors"]["shape"][0] = 10**9
    first, last = header["vectors"]["data_offsets"]
    header["vectors"]["data_offsets"] = [first, first + (last - first) // 3 * 10**9]


@pytest.mark.spread(4)
@pytest.mark.row("F39", "B21")
@pytest.mark.parametrize(
    "change",
    [
        set_shape("vectors", 10**12, 4, 4),
        set_shape("vectors", 2**62, 2**62, 2**62),
        set_shape("vectors", 4, 3, 4),
        set_shape("tokens", 10**15),
        set_shape("counts", 10**15),
        longer_vectors,
        lambda header: header.pop("vectors"),
    ],
    ids=["K", "overflow", "K and V", "tokens", "counts", "offsets", "none"],
)
def test_claims_of_other_sizes_are_refused_without_their_memory(whole, capsys, change):
    replace(with_header(whole, change))
    assert_refused(capsys)


@pytest.mark.row("F39", "B21")
def test_a_claim_of_a_long_header_is_refused(whole, capsys):
    for size in (2**63, 2**40, len(whole)):
        replace(struct.pack("<Q", size) + whole[8:])
        assert_refused(capsys)


# --- too many replicas


@pytest.mark.row("F40")
def test_more_replicas_than_memory_holds_are_refused_with_the_number(capsys):
    assert train(*TABLES, "--replicas", "1024", "--vector-size", "1280000") == 2
    line = error_line(capsys)
    assert "Tables of 4 x 1280000 of 1024 replicas need " in line
    assert "no layout fits on the devices here: give fewer `replicas`, a sm" in line
    assert not files()


@pytest.mark.spread(1)
@pytest.mark.row("F40")
@pytest.mark.parametrize("source", [TABLES, ENCODER], ids=["tables", "encoder"])
def test_replicas_that_the_host_cannot_hold_are_refused_with_the_number(
    capsys, monkeypatch, source
):
    limit = Limit(2**20, "its container (/sys/fs/cgroup/memory.max)")
    monkeypatch.setattr("embedder.engine.memory.memory_limit", lambda: limit)
    assert train(*source, "--replicas", "1000") == 2
    line = error_line(capsys)
    assert re.search(r"must fit in the 1.0 MiB of its container .*, got [0-9.]+ ", line)
    assert "give fewer `replicas`, " in line
    assert not files()


@pytest.mark.row("B25")
@pytest.mark.parametrize("source", [TABLES, ENCODER], ids=["tables", "encoder"])
@pytest.mark.parametrize("number", [0, -1, 65537, 10**9, 10**30])
def test_a_number_of_replicas_out_of_bounds_is_refused_at_once(capsys, source, number):
    assert train(*source, "--replicas", str(number)) == 2
    message = f"`replicas` must be an integer from 1 to 65536, got {number}."
    assert error_line(capsys) == f"embedder: {message}"
    assert not files()
