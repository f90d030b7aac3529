"""Batches of examples: the same from both loaders, in order, and whole."""

import dataclasses
import math
import time

import numpy as np
import pytest

from embedder.encoders.batches import (
    BatchSource,
    Updates,
    epoch_updates,
    split_validation,
    updates_per_call,
)
from embedder.encoders.examples import Examples

EPOCH = 4
every = pytest.mark.parametrize("loader", ["resident", "memory", "tfdata"])
gathering = pytest.mark.parametrize("loader", ["memory", "tfdata"])


def make_examples(num=14, dtype="u1") -> Examples:
    """Features whose values number the examples and the features in each."""
    features = np.arange(num * 6).reshape(num, 2, 3).astype(dtype)
    labels = (np.arange(num) % 3).astype(np.int32)
    return Examples(features, labels, list("abc"), [str(i) for i in range(num)])


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


def parts(loader, source, *, size=2, workers=2, epoch=EPOCH, after=(-1,)) -> list:
    return list(
        epoch_updates(loader, source, epoch, size=size, workers=workers, after=after)
    )


def real(parts) -> Updates:
    """The real updates, one after another."""
    fields = zip(
        *([x[:num] for x in updates] for updates, num, _ in parts), strict=True
    )
    return Updates(*map(np.concatenate, fields))


def assert_same(actual, desired) -> None:
    for name, a, b in zip(desired._fields, actual, desired, strict=True):
        np.testing.assert_array_equal(a, b, err_msg=name, strict=True)


@pytest.mark.spread(3)
@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("workers", [1, 3])
@gathering
def test_loaders_give_the_same_updates(loader, size, workers):
    first, second = (
        parts(each, make_source(), size=size, workers=workers)
        for each in (loader, "resident")
    )
    assert [num for _, num, _ in first] == [num for _, num, _ in second]
    for (a, _, _), (b, _, _) in zip(first, second, strict=True):
        assert_same(a, b)


@pytest.mark.parametrize("dtype", ["u1", "f4", "f8"])
@gathering
def test_the_examples_of_updates_are_gathered(tmp_path, loader, dtype):
    """From a memory-mapped file too."""
    examples = make_examples(dtype=dtype)
    np.save(tmp_path / "features.npy", examples.features)
    if dtype == "u1":
        mapped = np.load(tmp_path / "features.npy", mmap_mode="r")
        examples = examples._replace(features=mapped)
    for updates, _, gathered in parts(loader, make_source(examples=examples)):
        features, labels = gathered
        desired = examples.features[updates.ids]
        np.testing.assert_array_equal(features, desired, strict=True)
        desired = examples.labels[updates.ids]
        np.testing.assert_array_equal(labels, desired, strict=True)


def test_features_on_the_devices_are_not_gathered():
    assert {gathered for _, _, gathered in parts("resident", make_source())} == {None}


def test_updates_have_their_dtypes_and_shapes():
    updates, num, _ = parts("memory", make_source(), size=3)[0]
    found = [(x.dtype.str, x.shape) for x in updates]
    assert found == [("<i4", (3, 4)), ("<f4", (3, 4)), ("<i8", (3, 2)), ("<f8", (3,))]
    assert len(updates) == num == 3


@pytest.mark.parametrize(
    "train", [range(1), range(4), range(8), range(10), range(11), [13, 2, 7]]
)
@pytest.mark.parametrize("size", [1, 2, 7])
def test_every_example_to_train_on_occurs_once_an_epoch(train, size):
    source = make_source(train=np.array(train))
    whole = [each for each, _, _ in parts("memory", source, size=size)]
    ids = np.concatenate([each.ids[each.weights == 1] for each in whole])
    assert sorted(ids.tolist()) == sorted(train)
    assert sum(each.weights.sum() for each in whole) == len(train)


def test_the_last_batch_is_padded_with_weight_0():
    updates = real(parts("memory", make_source(10)))
    assert updates.weights.tolist() == [[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 0, 0]]
    assert updates.ids[2, 2:].tolist() == [0, 0]


@every
def test_the_last_call_is_padded_with_empty_updates(loader):
    updates, num, _ = parts(loader, make_source(10), size=2)[-1]
    assert (len(updates), num) == (2, 1)
    assert not updates.weights[1].any() and not updates.ids[1].any()


def test_position_and_progress_are_of_the_run():
    updates = real(parts("memory", make_source(10)))
    assert updates.position.tolist() == [[EPOCH, 0], [EPOCH, 1], [EPOCH, 2]]
    np.testing.assert_allclose(updates.progress, [10 / 20, 14 / 20, 18 / 20])
    first = real(parts("memory", make_source(10), epoch=3))
    np.testing.assert_allclose(first.progress, [0, 4 / 20, 8 / 20])


def test_order_depends_on_seed_and_epoch_only():
    desired = make_source().order(EPOCH)
    for changes in (
        {"batch_size": 3},
        {"local": range(1, 2)},
        {"epochs": range(9)},
        {"examples": make_examples(dtype="f8")},
    ):
        np.testing.assert_array_equal(make_source(**changes).order(EPOCH), desired)


def test_order_stays_the_same_in_all_versions():
    """A change makes runs that go on from a checkpoint differ: say so in the notes."""
    assert make_source().order(EPOCH).tolist() == [7, 2, 8, 4, 0, 9, 3, 1, 6, 5]
    orders = [make_source(seeds=(s,)).order(e).tolist() for s in (0, 1) for e in (0, 1)]
    assert len(set(map(tuple, orders))) == 4


@every
@pytest.mark.parametrize("size", [1, 2, 3])
def test_resuming_after_an_update_gives_the_rest(loader, size):
    whole = real(parts(loader, make_source(10), size=size))
    for done in range(2):
        rest = parts(loader, make_source(10), size=size, after=(done,))
        assert_same(real(rest), Updates(*(x[done + 1 :] for x in whole)))
    assert parts(loader, make_source(10), size=size, after=(2,)) == []
    assert_same(real(parts(loader, make_source(10), size=size, after=())), whole)


@every
@pytest.mark.parametrize("local", [range(1), range(1, 3), range(3, 4)])
def test_a_local_part_of_a_batch_has_these_examples_of_it(loader, local):
    whole = real(parts("memory", make_source(10)))
    mine = real(parts(loader, make_source(10, local=local)))
    columns = slice(local.start, local.stop)
    ids, weights = whole.ids[:, columns], whole.weights[:, columns]
    expected = Updates(ids, weights, whole.position, whole.progress)
    assert_same(mine, expected)


@every
def test_a_local_part_beyond_the_batch_is_padding(loader):
    """3 devices with 2 each of 4: the last has none."""
    whole = real(parts("memory", make_source(10)))
    parts_of_batches = [
        real(parts(loader, make_source(10, local=range(i, i + 2)))) for i in (0, 2, 4)
    ]
    ids = np.concatenate([each.ids for each in parts_of_batches], axis=1)
    weights = np.concatenate([each.weights for each in parts_of_batches], axis=1)
    filler = np.zeros((3, 2), np.int32)
    np.testing.assert_array_equal(ids, np.hstack([whole.ids, filler]))
    np.testing.assert_array_equal(weights, np.hstack([whole.weights, filler]))


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


class Damaged(Exception):
    """What a reader may raise."""


class DamagedSource(BatchSource):
    """Cannot make what comes after the first two batches."""

    def updates(self, order, epoch, first, size) -> Updates:
        if first >= 2:
            raise Damaged(f"batch {first}")
        return super().updates(order, epoch, first, size)


class DamagedFeatures(np.ndarray):
    """The first part of the epoch can be read; then the disk fails."""

    def __getitem__(self, ids):
        if make_source().order(EPOCH)[0] not in ids:
            raise OSError(5, "Input/output error", "images.npy")
        return np.asarray(super().__getitem__(ids))


@every
def test_error_in_an_update_comes_to_the_caller(capfd, loader):
    fields = dataclasses.fields(BatchSource)
    source = DamagedSource(*(getattr(make_source(), each.name) for each in fields))
    with pytest.raises(Damaged, match="batch 2"):
        parts(loader, source)
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


@pytest.mark.parametrize(
    ("is_resident", "example_bytes", "num", "limit", "expected"),
    [
        (False, 2**10, 10**6, math.inf, 2**23 / 2**10 / 4),
        (True, 2**10, 10**6, math.inf, 2**26 / 2**10 / 4),
        (False, 2**10, 10**6, 100, 100),
        (True, 2**10, 10**6, 1, 1),
        (False, 2**30, 10**6, 100, 1),
        (False, 3, 10, math.inf, 3),
        (False, 3, 10, 2, 2),
        (True, 3, 1, math.inf, 1),
    ],
    ids=[
        *("megabytes", "more_on_devices", "limit", "limit_1", "large_examples"),
        *("small_epoch", "limit_of_small", "one_example"),
    ],
)
def test_updates_per_call(is_resident, example_bytes, num, limit, expected):
    features = np.broadcast_to(np.uint8(0), (num, example_bytes))
    examples = make_examples()._replace(features=features)
    source = make_source(num, examples=examples)
    assert updates_per_call(is_resident, source, limit) == expected


@pytest.mark.parametrize(
    ("num", "fraction", "num_train"),
    [(10, 0.0, 10), (10, 0.2, 8), (7, 0.3, 5), (3, 0.1, 3), (2, 0.99, 0), (1, 0.0, 1)],
)
def test_split_holds_out_the_last_examples(num, fraction, num_train):
    train, held = split_validation(num, fraction)
    assert train.tolist() == list(range(num_train))
    assert held.tolist() == list(range(num_train, num))
    assert train.dtype == held.dtype == np.int64


def test_memory_needs_no_tensorflow(monkeypatch):
    monkeypatch.setattr("embedder.encoders.batches.import_tensorflow", None)
    assert parts("memory", make_source())
