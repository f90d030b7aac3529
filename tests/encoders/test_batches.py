"""Batches of examples, in order and whole, and which loader makes them."""

import math
import time

import jax
import numpy as np
import pytest

from embedder.config import make_config
from embedder.config.run_options import RunOptions
from embedder.data.examples.batches import (
    BatchSource,
    epoch_updates,
    split_validation,
    updates_per_call,
)
from embedder.data.examples.examples import Examples
from embedder.encoders import memory
from embedder.encoders.memory import choose_loader
from embedder.encoders.plan import TrainingInputs, plan
from embedder.encoders.trainer import EncoderTrainer
from embedder.engine.epochs import run_epochs
from embedder.errors import InputError
from tests.encoders import image_cases
from tests.encoders.image_cases import make_training

EPOCH = 4
gathering = pytest.mark.parametrize("loader", ["memory", "tfdata"])


def make_examples() -> Examples:
    """Features whose values number the examples and the features in each."""
    features = np.arange(14 * 6).reshape(14, 2, 3).astype("u1")
    labels = (np.arange(14) % 3).astype(np.int32)
    return Examples(features, labels, list("abc"), [str(i) for i in range(14)])


def make_source(num_train=10, **changes) -> BatchSource:
    """Batches of 4 of the first examples of 14, in epochs 3 and 4."""
    fields = {
        "examples": make_examples(),
        "train": np.arange(num_train),
        "batch_size": 4,
        "seeds": (1,),
        "epochs": range(3, 5),
        "local": range(4),
    }
    return BatchSource(**fields | changes)


def parts(loader, source, *, size=2) -> list:
    return [*epoch_updates(loader, source, EPOCH, size=size, workers=2, after=(-1,))]


def test_the_share_of_validation_examples_is_rounded():
    for num, share, expected in ((100, 0.29, 29), (10, 0.26, 3), (10, 0.24, 2)):
        train, validation = split_validation(num, share)
        assert [*train, *validation] == [*range(num)] and len(validation) == expected


def test_order_stays_the_same_in_all_versions():
    """A change makes runs that go on from a checkpoint differ: say so in the notes."""
    assert make_source().order(EPOCH).tolist() == [7, 2, 8, 4, 0, 9, 3, 1, 6, 5]
    orders = [make_source(seeds=(s,)).order(e).tolist() for s in (0, 1) for e in (0, 1)]
    assert len(set(map(tuple, orders))) == 4


class SlowFeatures(np.ndarray):
    """The first example of the epoch takes a while."""

    def __getitem__(self, ids):
        if make_source().order(EPOCH)[0] in ids:
            time.sleep(0.1)
        return np.asarray(super().__getitem__(ids))


@gathering
def test_updates_are_in_order_however_long_each_takes(loader):
    examples = make_examples()
    slow = examples._replace(features=examples.features.view(SlowFeatures))
    for updates, _, gathered in parts(loader, make_source(examples=slow), size=1):
        np.testing.assert_array_equal(gathered.features, examples.features[updates.ids])


class DamagedFeatures(np.ndarray):
    """The first part of the epoch can be read; then the disk fails."""

    def __getitem__(self, ids):
        if make_source().order(EPOCH)[0] not in ids:
            raise OSError(5, "Input/output error", "images.npy")
        return np.asarray(super().__getitem__(ids))


@pytest.mark.parametrize("loader", ["resident", "memory", "tfdata"])
def test_error_in_an_update_comes_to_the_caller(monkeypatch, capfd, loader):
    def updates(self, order, epoch, first, size, before=BatchSource.updates):
        if first >= 2:
            raise ZeroDivisionError(f"batch {first}")
        return before(self, order, epoch, first, size)

    monkeypatch.setattr(BatchSource, "updates", updates)
    with pytest.raises(ZeroDivisionError, match="batch 2"):
        parts(loader, make_source())
    assert capfd.readouterr().err == ""


@gathering
def test_error_of_reading_comes_to_the_caller(capfd, loader):
    """Nothing is trained on that could not be read."""
    examples, found = make_examples(), []
    damaged = examples._replace(features=examples.features.view(DamagedFeatures))
    source = make_source(examples=damaged)
    with pytest.raises(OSError, match=r"\[Errno 5\] Input/output error: 'images.npy'"):
        found.extend(epoch_updates(loader, source, EPOCH, size=1, workers=2))
    for updates, _, gathered in found:
        np.testing.assert_array_equal(gathered.features, examples.features[updates.ids])
    assert capfd.readouterr().err == ""


# --- which loader it is


def examples(num_bytes: int) -> Examples:
    features = np.zeros((10, num_bytes // 10), np.uint8)
    return Examples(features, np.zeros(10, np.int32), ["a"], [*"0123456789"])


@pytest.mark.parametrize(
    ("loader", "has_tensorflow", "num_bytes", "processes", "expected"),
    [
        ("auto", True, 1000, 1, ("memory", True)),
        ("auto", True, 1010, 1, ("tfdata", False)),
        ("auto", True, 1000, 2, ("tfdata", False)),
        ("auto", False, 2000, 1, ("memory", True)),
        ("auto", False, 2010, 1, ("memory", False)),
        ("memory", True, 2000, 1, ("memory", True)),
        ("memory", True, 2010, 1, ("memory", False)),
        ("memory", True, 10, 2, ("memory", False)),
        ("tfdata", True, 10, 1, ("tfdata", False)),
    ],
)
def test_features_that_fit_stay_on_the_device(
    monkeypatch, loader, has_tensorflow, num_bytes, processes, expected
):
    """`auto` in a quarter of its memory, without TensorFlow and `memory` in half."""
    monkeypatch.setattr(memory, "capacity", lambda device, num_local: 4000)
    monkeypatch.setattr(memory, "has_tensorflow", lambda: has_tensorflow)
    monkeypatch.setattr(memory, "check_tensorflow", lambda: None)
    monkeypatch.setattr(memory.jax, "process_count", lambda: processes)
    found = choose_loader(RunOptions(loader=loader), examples(num_bytes))
    assert found == expected


def test_features_that_do_not_fit_give_the_same_vectors(monkeypatch):
    x = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    options = {"loader": "memory", "model": "encoder", "epochs": 2, "layers": (6, 4, 2)}
    config = make_config(options)
    data = Examples(x, np.arange(40, dtype=np.int32) % 2, ["a", "b"], ["k"] * 40)
    found = []
    for room in (1 << 40, 1000):
        with monkeypatch.context() as patch:
            patch.setattr(memory, "capacity", lambda device, num_local: room)  # noqa: B023
            patch.setattr(memory, "has_tensorflow", lambda: False)
            training = EncoderTrainer(plan(TrainingInputs(config, data, range(2))))
        found.append(run_epochs(training, training.initial_state()).state.params)
    assert jax.tree.all(jax.tree.map(np.array_equal, *found))


@pytest.mark.row("F19")
@pytest.mark.parametrize(
    ("has_tensorflow", "advice"),
    [(True, "give --loader tfdata, a smaller network"), (False, "give a smaller net")],
)
def test_tfdata_is_advised_only_with_tensorflow(monkeypatch, has_tensorflow, advice):
    monkeypatch.setattr(memory, "has_tensorflow", lambda: has_tensorflow)
    monkeypatch.setattr(
        "embedder.encoders.plan.capacity", lambda device, num_local: 1000
    )
    with pytest.raises(InputError, match=f"The training needs .*: {advice}"):
        make_training("mlp")


def test_a_call_takes_about_a_second_whatever_the_network():
    """As a run stops, and says where it is, between calls."""
    source = make_source(4000)

    def size(operations: float, kind: str = "cpu", limit: float = math.inf) -> int:
        return updates_per_call(True, source, limit, operations, kind)

    assert [size(1e9), size(1e12), size(1e9, limit=7)] == [20, 1, 7]
    assert size(1e9, "gpu") == size(1) == size(math.nan) == source.num_batches
    labels = (np.arange(27) % 3).astype(np.int32)
    images = Examples(np.zeros((27, 64, 64)), labels, list("abc"), [*map(str, labels)])
    sizes = []
    for network, arguments in (("mlp", ()), ("resnet", ("depth=18", "width=32"))):
        config = image_cases.make_config(network, network_args=arguments)
        sizes.append(plan(TrainingInputs(config, images, range(2))).updates_per_call)
    assert sizes[0] == 4 > sizes[1]
