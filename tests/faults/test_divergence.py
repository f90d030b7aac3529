"""Trainings that go wrong stop, and nothing of it becomes a result."""

import importlib
import os
import re
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

from embedder import read_ensemble, read_vectors
from embedder.base.limits import Limit
from embedder.cli.main import main
from embedder.encoders.networks.encoder import Encoder
from embedder.engine.checkpoints import Checkpoints
from embedder.tokens.trainer import TokensTrainer
from tests.commands import error_line, run_python

FAST = "text.txt --loader memory --vector-size 4 --min-count 1 --sample 0"
TABLES = f"{FAST} --max-pairs-per-row inf --alpha 1e30"
ENCODER = "examples.npz --model encoder --loader memory --no-report"
SEVERAL = "--seed 5 --replicas 3 --epochs 3"
RESULTS = {"vectors.txt", "vectors.safetensors", "replicas.safetensors", "model.npz"}


@pytest.fixture(autouse=True)
def own_folder(own_folder):
    Path("text.txt").write_text("a b c d a c\n" * 400)
    rng = np.random.default_rng(0)
    np.savez("examples.npz", X=rng.normal(size=(90, 4)), y=rng.integers(3, size=90))


def train(options: str) -> int:
    return main(["train", *options.split(), "--workdir", "run"])


def check_that_what_is_left_is_sound() -> list[int]:
    """Its checkpoints; there are no results."""
    assert not RESULTS & {*os.listdir("run")}
    saved = Checkpoints(Path("run/checkpoints"))
    for step in saved.steps():
        for array in saved.read(step).arrays.values():
            assert np.isfinite(array).all()
    return saved.steps()


@pytest.mark.spread(1)
@pytest.mark.row("F17")
@pytest.mark.parametrize(
    ("options", "setting"),
    [
        (TABLES, "Give a smaller `alpha` or `max_pairs_per_row`."),
        (f"{FAST} --optimizer adagrad --alpha 1e30", "Give a smaller `alpha`."),
        (f"{ENCODER} --learning-rate 1e30", "Give a smaller `learning_rate`."),
    ],
    ids=["tables", "adagrad", "encoder"],
)
def test_what_is_not_finite_ends_the_run_with_the_setting(capsys, options, setting):
    assert train(f"{options} --save-every 4") == 3
    assert setting in error_line(capsys)
    check_that_what_is_left_is_sound()


@pytest.mark.spread(2)
@pytest.mark.parametrize(
    ("scale", "options"),
    [
        (1, "--objective arcface --objective-args scale=64 margin=0.5"),
        (1, "--objective supcon --batch-size 2100"),
        (1, "--objective supcon --objective-args temperature=0.001"),
        (10_000, ""),
    ],
    ids=["arcface", "large batch", "temperature", "features without a scale"],
)
def test_a_large_loss_from_the_start_is_no_divergence(scale, options):
    x = np.random.default_rng(0).normal(size=(2100, 4))
    np.savez("examples.npz", X=scale * x, y=np.arange(2100) % 2)
    assert train(f"{ENCODER} --epochs 2 --learning-rate 1e-6 {options}") == 0


@pytest.mark.parametrize("objective", ["supcon", "triplet"])
def test_batches_without_a_pair_change_no_embedding(objective):
    """Their loss is of nothing, and not a number of nothing."""
    x = np.random.default_rng(0).normal(size=(90, 4))
    np.savez("examples.npz", X=x, y=np.arange(90) // 2)
    options = f"--objective {objective} --batch-size 4 --epochs 2"
    assert train(f"{ENCODER} {options}") == 0
    assert np.isfinite(read_vectors("run").matrix).all()


@pytest.mark.slow
@pytest.mark.row("F17")
def test_the_step_and_the_loss_before_are_named(capsys):
    """Long before the end of the epoch, whose blocks would take days."""
    Path("text.txt").write_text("a b c d a c\n" * 40_000)
    assert train(f"{TABLES} --save-every never") == 3
    line = error_line(capsys)
    found = re.search(r"The loss near update ([0-9]+) is (nan|inf), of the epoch", line)
    assert found and int(found[1]) < 3000
    assert "before none: training diverged. Give a smaller" in line


@pytest.mark.slow
@pytest.mark.row("F17")
def test_the_last_checkpoint_goes_on_with_a_smaller_rate(stopped, capsys):
    """Rolling back is a new run, from what was still good."""
    stopped(*FAST.split(), "--workdir", "run", "--epochs", "3")
    (newest, *_) = Checkpoints(Path("run/checkpoints")).steps()
    smaller = ["--resume", "run", "--workdir", "next", "--alpha", "0.01"]
    assert main(["train", "text.txt", *smaller]) == 0
    said = capsys.readouterr().err
    assert f"run is not finished: its checkpoint {newest} is used." in said
    assert "Starts from the vectors of 4 words; 0 are new" in said
    assert np.isfinite(read_vectors("next").matrix).all()


@pytest.mark.row("F18", "B7")
def test_trainings_that_learn_nothing_say_so(capsys):
    """Of a rate that is too small to change a bit, and of a corpus without pairs."""
    np.savez("examples.npz", X=-np.ones((8, 2)), y=np.arange(8) % 2)
    assert train(f"{ENCODER} --learning-rate 1e-30 --save-every never") == 0
    said = "The loss of epoch 2 equals that of the epoch before to the last bit"
    assert said in capsys.readouterr().err
    Path("text.txt").write_text("a\nb\nc\n" * 20)
    assert train(f"{FAST} --overwrite") == 0
    assert "nothing is learned" in capsys.readouterr().err


# --- replicas


@pytest.mark.slow
@pytest.mark.row("F38")
@pytest.mark.parametrize("backend", ["xla", "numba"])
def test_one_replica_that_diverges_ends_the_run_with_the_setting(
    capsys, monkeypatch, backend
):
    """The checkpoints before are sound: from them the run goes on to the same bits."""
    options = f"{FAST} --max-pairs-per-row inf --alpha 0.01 {SEVERAL} --save-every 16"
    options += f" --backend {backend}"
    assert train(options) == 0
    expected = read_ensemble("run").vectors.copy()
    shutil.rmtree("run")
    original = TokensTrainer._calls_of

    def steep(self, model, source, epoch, position):
        """From the second epoch on, the rate of replica 1 is out of bounds."""
        for updates, num, batch in original(self, model, source, epoch, position):
            if epoch and source.seed == 6:
                batch = batch._replace(rate=np.full_like(batch.rate, 1e30))
            yield updates, num, batch

    with monkeypatch.context() as patch:
        patch.setattr(TokensTrainer, "_calls_of", steep)
        assert train(options) == 3
    line = capsys.readouterr().err.splitlines()[-1]
    assert "training diverged. Give a smaller `alpha` or `max_pairs_per_row`." in line
    assert check_that_what_is_left_is_sound()
    assert train(options) == 0
    np.testing.assert_array_equal(read_ensemble("run").vectors, expected)


@pytest.mark.row("F38")
def test_one_encoder_that_diverges_ends_the_run_with_the_setting(capsys, monkeypatch):
    original, number = Encoder.init, iter(range(3))

    def huge_for_one(self):
        if self.seed == 0:  # of shapes
            return original(self)
        factor = np.float32(1e38 if next(number) == 1 else 1)
        return jax.tree.map(lambda x: x * factor, original(self))

    monkeypatch.setattr(Encoder, "init", huge_for_one)
    with np.errstate(over="ignore"):
        assert train(f"{ENCODER} {SEVERAL}") == 3
    line = error_line(capsys)
    assert "training diverged. Give a smaller `learning_rate`." in line
    check_that_what_is_left_is_sound()


@pytest.mark.slow
@pytest.mark.row("F16", "F37")
@pytest.mark.parametrize("replicas", ["1", "2", "3"])
def test_another_number_of_devices_goes_on(stopped, replicas):
    """Of two replicas each device then has one; three do not divide by two."""
    options = [*FAST.split(), "--replicas", replicas, "--workdir"]
    assert main(["train", *options, "whole"]) == 0
    stopped(*options, "run")
    two = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    command = ["-m", "embedder.cli.main", "train", *options, "run", "--devices", "2"]
    done = run_python(*command, "--mode", "sharded", env=os.environ | two)
    assert done.returncode == 0, done.stderr
    assert "Resumes after " in done.stderr
    assert "Vectors may differ in their last bits" in done.stderr
    read = read_vectors if replicas == "1" else read_ensemble
    found, expected = (vars(read(run)) for run in ("run", "whole"))
    name = "matrix" if replicas == "1" else "vectors"
    np.testing.assert_allclose(found[name], expected[name], atol=1e-5)


@pytest.mark.spread(2)
@pytest.mark.row("F33", "F40")
@pytest.mark.parametrize(
    ("module", "options", "message"),
    [
        ("memory", f"{FAST} --vector-size 80000", "must fit in the 1.0 MiB of its con"),
        ("devices", f"{FAST} --vector-size 80000", "and it has 1.0 MiB of its contain"),
        ("memory", f"{ENCODER} --replicas 1000", "give fewer `replicas`, "),
    ],
)
def test_the_limit_of_a_container_is_what_a_run_must_fit_in(
    capsys, monkeypatch, module, options, message
):
    limit = Limit(2**20, "its container (/sys/fs/cgroup/memory.max)")
    room = importlib.import_module(f"embedder.engine.{module}")
    monkeypatch.setattr(room, "memory_limit", lambda: limit)
    assert train(options) == 2
    assert message in error_line(capsys)
    assert not Path("run").exists()
