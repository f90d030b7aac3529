"""The kernel against updates that JAX derives; the ladder holds it to the oracle."""

import threading

import jax
import numba
import numpy as np
import pytest

from embedder.engine.rules import capped_sgd
from embedder.engine.state import device_state
from embedder.tables.cpu import kernel, products, simd
from embedder.tables.lookup import tables
from embedder.tables.update import Batch, Model, host_state, make_updates, objective_of
from migration.parity.updates import random_tables
from tests.parity.cases import CASES, NEGATIVE, Case

ARCHITECTURES = ["skipgram", "cbow"]
CAP = 5.0
MANY = Case("many", 50, (8, 3, 32), tile=8, noise=6, padding=5)


def model(case, architecture, dim=8, dtype="float32") -> Model:
    lookup = tables(case.num_rows, dim, dtype=np.dtype(dtype), seed=0)
    return Model(lookup, objective_of(architecture), case.window, NEGATIVE)


def start(case, dim=8, dtype="float32"):
    shape = case.num_rows, dim
    return host_state(capped_sgd(CAP), *random_tables(shape, dtype))


def batch(case, dtype="float32") -> Batch:
    updates = case.updates()
    return Batch(updates.blocks, rate=np.full(case.size[0], 0.05, dtype))


def by_kernel(case, architecture, dim=8, dtype="float32", threads=1, interval=1):
    apply = kernel.make_updates(
        model(case, architecture, dim, dtype),
        CAP,
        loss_interval=interval,
        threads=threads,
    )
    return apply(start(case, dim, dtype), batch(case, dtype))


def by_jax(case, architecture, dim=8, dtype="float32", interval=1):
    apply = make_updates(
        model(case, architecture, dim, dtype),
        capped_sgd(CAP),
        update="rows",
        loss_interval=interval,
    )
    with jax.enable_x64(True):
        return apply(device_state(start(case, dim, dtype)), batch(case, dtype))


def arrays(state) -> dict[str, np.ndarray]:
    return {name: np.array(x) for name, x in state.params["tables"].items()}


@pytest.mark.parametrize(
    "architecture", ["skipgram", pytest.param("cbow", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    ("dtype", "rtol"),
    [("float32", 2e-6), pytest.param("float64", 1e-13, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("case", [*CASES, MANY], ids=lambda case: case.name)
def test_tables_and_losses_are_those_of_jax(case, dtype, rtol, architecture):
    ours, our_loss = by_kernel(case, architecture, dtype=dtype)
    theirs, their_loss = by_jax(case, architecture, dtype=dtype)
    for name, table in arrays(theirs).items():
        assert table.dtype == dtype
        np.testing.assert_allclose(
            arrays(ours)[name], table, rtol=rtol, atol=rtol, strict=True
        )
    np.testing.assert_allclose(our_loss.total, their_loss.total, rtol=rtol)
    np.testing.assert_array_equal(our_loss.num_terms, their_loss.num_terms)
    assert int(ours.step) == int(theirs.step) == case.size[0]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(
    "dim", [1, 17, *(pytest.param(d, marks=pytest.mark.slow) for d in (15, 16, 100))]
)
def test_vectors_may_have_any_number_of_dimensions(dim, architecture):
    ours, theirs = by_kernel(MANY, architecture, dim), by_jax(MANY, architecture, dim)
    for name, table in arrays(theirs[0]).items():
        assert arrays(ours[0])[name].shape == (MANY.num_rows, dim)
        np.testing.assert_allclose(arrays(ours[0])[name], table, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("threads", [2, 3, 12, 50])
def test_any_number_of_threads_gives_the_same_bits(threads, architecture):
    one, one_loss = by_kernel(MANY, architecture)
    many, many_loss = by_kernel(MANY, architecture, threads=threads)
    for name, table in arrays(one).items():
        np.testing.assert_array_equal(arrays(many)[name], table)
    np.testing.assert_array_equal(many_loss.total, one_loss.total)


@pytest.mark.row("F32")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_team_that_changes_its_size_gives_the_same_bits(monkeypatch, architecture):
    """Within a call, as it does beside a busy process."""
    sizes = []

    class Changing(kernel.TeamSize):
        best = 3

        def trial(self):
            return 1

        def record(self, size, updates, *rest):
            sizes.append((size, updates))

    one, one_loss = by_kernel(MANY, architecture, interval=2)
    monkeypatch.setattr(kernel, "TeamSize", Changing)
    monkeypatch.setattr(kernel, "_TRIAL_TOKENS", 1)
    many, many_loss = by_kernel(MANY, architecture, threads=3, interval=2)
    assert sizes == [(1, 2), (3, MANY.size[0] - 2)]
    for name, table in arrays(one).items():
        np.testing.assert_array_equal(arrays(many)[name], table)
    for ours, theirs in zip(many_loss, one_loss, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_every_nth_loss_is_reported_and_changes_nothing():
    every, losses = by_kernel(MANY, "skipgram")
    seldom, some = by_kernel(MANY, "skipgram", interval=4)
    np.testing.assert_array_equal(some.total, losses.total[::4])
    for name, table in arrays(every).items():
        np.testing.assert_array_equal(arrays(seldom)[name], table)


def test_a_second_call_goes_on_in_the_same_memory():
    apply = kernel.make_updates(model(MANY, "cbow"), CAP, loss_interval=1, threads=2)
    first, _ = apply(start(MANY), batch(MANY))
    memory = first.params["tables"]["input"].ctypes.data
    second, _ = apply(first, batch(MANY))
    assert second.params["tables"]["input"].ctypes.data == memory
    assert memory % 64 == 0
    assert int(second.step) == 2 * MANY.size[0]


def test_the_state_that_is_given_from_elsewhere_is_left_as_it_is():
    before = start(MANY)
    copies = arrays(before)
    kernel.make_updates(model(MANY, "skipgram"), CAP, loss_interval=1, threads=1)(
        before, batch(MANY)
    )
    for name, table in arrays(before).items():
        np.testing.assert_array_equal(table, copies[name])


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_stays_in_sight(value, architecture):
    state = start(MANY)
    broken = {name: np.array(x) for name, x in arrays(state).items()}
    broken["output"][:] = value
    state = host_state(capped_sgd(CAP), **broken)
    apply = kernel.make_updates(
        model(MANY, architecture), CAP, loss_interval=1, threads=1
    )
    with np.errstate(invalid="ignore"):
        after, _ = apply(state, batch(MANY))
    assert not np.isfinite(arrays(after)["input"]).all()


def test_a_thread_that_cannot_start_ends_the_others(monkeypatch):
    """They would wait for it at the barrier."""

    class OneThread(kernel.ThreadPoolExecutor):
        def submit(self, function, thread):
            if thread == 1:
                raise KeyboardInterrupt
            return super().submit(function, thread)

    monkeypatch.setattr(kernel, "ThreadPoolExecutor", OneThread)
    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        by_kernel(MANY, "skipgram", threads=2)
    assert threading.active_count() == before


def test_what_is_compiled_is_found_again_by_dtype_and_the_text_of_all_sources():
    """Numba itself would look at one file only, and mix dtypes up."""
    names = {
        kernel._work(dtype).py_func.__qualname__ for dtype in ("float32", "float64")
    }
    assert len(names) == 2
    assert all(name.endswith(kernel._SOURCES) for name in names)


def test_one_compilation_serves_arrays_that_may_be_written_and_those_that_may_not():
    apply = kernel.make_updates(model(MANY, "cbow"), CAP, loss_interval=1, threads=1)
    state, _ = apply(start(MANY), batch(MANY))
    frozen = jax.tree.map(lambda x: x.view(), batch(MANY))
    for x in jax.tree.leaves(frozen):
        x.flags.writeable = False
    apply(state, frozen)
    assert len(kernel._work("float32").signatures) == 1


def test_large_scores_keep_small_derivatives():
    """sigmoid(20) - 1 is -2e-9, and 0 in float32 if it is computed like that."""
    scores = np.full((4, 4), 20, np.float32)
    first, last = np.zeros(4, np.int64), np.full(4, 3)
    products.context_errors(scores, 0, first, last, 1)
    expected = np.full((4, 4), -1 / (1 + np.exp(20)))
    expected[[0, 1, 2], [1, 2, 3]] = 0  # a token is no context of its own
    np.testing.assert_allclose(scores, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "cores"), [("max 100000", 8), ("250000 100000", 3), ("9999 100000", 1)]
)
def test_cores_are_those_of_the_quota(tmp_path, monkeypatch, text, cores):
    (tmp_path / "cpu.max").write_text(text)
    monkeypatch.setattr(kernel, "_QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr(kernel.os, "sched_getaffinity", lambda _: set(range(8)))
    assert kernel.available_cores() == cores


def test_exp_is_exact_to_some_units_in_the_last_place():
    for dtype, rtol in ((np.float32, 3e-7), (np.float64, 6e-16)):
        x = np.linspace(-87, 87, 4001).astype(dtype)
        ours = np.array([products.exp(value) for value in x])
        np.testing.assert_allclose(ours, np.exp(x.astype(np.float64)), rtol=rtol)
    assert products.exp(np.float32(1000)) == products.exp(np.float32(87))
    assert products.exp(np.float32(-1000)) == products.exp(np.float32(-87))


def test_sums_of_sixteen_vectors_lie_in_rows_of_four():
    @numba.njit
    def sums(x, out):
        simd.store_sums(
            out,
            1,
            2,
            (
                *(simd.load(x, 0, 0), simd.load(x, 1, 0), simd.load(x, 2, 0)),
                *(simd.load(x, 3, 0), simd.load(x, 4, 0), simd.load(x, 5, 0)),
                *(simd.load(x, 6, 0), simd.load(x, 7, 0), simd.load(x, 8, 0)),
                *(simd.load(x, 9, 0), simd.load(x, 10, 0), simd.load(x, 11, 0)),
                *(simd.load(x, 12, 0), simd.load(x, 13, 0), simd.load(x, 14, 0)),
                simd.load(x, 15, 0),
            ),
        )

    x = np.arange(256.0).reshape(16, 16)
    out = np.zeros((6, 7))
    sums(x, out)
    np.testing.assert_array_equal(out[1:5, 2:6], x.sum(axis=1).reshape(4, 4))
    assert out.sum() == x.sum()
