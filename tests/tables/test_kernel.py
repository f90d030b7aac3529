"""The kernel against updates that JAX derives; the ladder holds it to the oracle."""

import threading
from concurrent.futures import ThreadPoolExecutor

import jax
import numba
import numpy as np
import pytest

from embedder.engine.rules import capped_sgd, rowwise_adagrad
from embedder.engine.state import device_state
from embedder.tables.cpu import kernel, products, rows, simd, thread
from embedder.tables.cpu.thread import apply_on_thread
from embedder.tables.lookup import tables
from embedder.tables.prepare import Batch, Model, objective_of
from embedder.tables.update import host_state, make_updates
from migration.parity.updates import random_tables
from tests.pairs import pairwise
from tests.parity.cases import CASES, NEGATIVE, Case

ARCHITECTURES = ["skipgram", "cbow"]
OPTIMIZERS = ["sgd", "adagrad"]
CAP = 5.0
ADAGRAD = rowwise_adagrad()
RULES = {"sgd": capped_sgd(CAP), "adagrad": ADAGRAD}
MANY = Case("many", 50, (8, 3, 32), tile=8, noise=6, padding=5)
WIDE = Case("wide", 50, (3, 40, 32), tile=8, noise=6, padding=5)


def model(case, architecture, dim=8, dtype="float32") -> Model:
    lookup = tables(case.num_rows, dim, dtype=np.dtype(dtype), seed=0)
    return Model(lookup, objective_of(architecture), case.window, NEGATIVE)


def start(case, dim=8, dtype="float32", optimizer="sgd"):
    shape = case.num_rows, dim
    return host_state(RULES[optimizer], *random_tables(shape, dtype))


def batch(case, dtype="float32") -> Batch:
    updates = case.updates()
    return Batch(updates.blocks, rate=np.full(case.size[0], 0.05, dtype))


def by_kernel(
    case,
    architecture,
    dim=8,
    dtype="float32",
    threads=1,
    interval=1,
    optimizer="sgd",
):
    apply = kernel.make_updates(
        model(case, architecture, dim, dtype),
        CAP if optimizer == "sgd" else None,
        loss_interval=interval,
        threads=threads,
        optimizer=optimizer,
    )
    return apply(start(case, dim, dtype, optimizer), batch(case, dtype))


def by_jax(case, architecture, dim=8, dtype="float32", interval=1, optimizer="sgd"):
    apply = make_updates(
        model(case, architecture, dim, dtype),
        RULES[optimizer],
        update="rows",
        loss_interval=interval,
    )
    with jax.enable_x64(True):
        state = device_state(start(case, dim, dtype, optimizer))
        return apply(state, batch(case, dtype))


def arrays(state) -> dict[str, np.ndarray]:
    """Copies of the tables, and of the accumulators where there are some."""
    found = dict(state.params["tables"])
    if jax.tree.leaves(state.opt_state):
        found |= ADAGRAD.row_state(state.opt_state)
    return {name: np.array(x) for name, x in found.items()}


@pytest.mark.spread(1)
@pairwise(
    case=[*CASES, MANY],
    optimizer=OPTIMIZERS,
    dtype=["float32", "float64"],
    architecture=ARCHITECTURES,
)
def test_tables_and_losses_are_those_of_jax(case, optimizer, dtype, architecture):
    rtol = {"float32": 2e-6, "float64": 1e-13}[dtype]
    ours, our_loss = by_kernel(case, architecture, dtype=dtype, optimizer=optimizer)
    theirs, their_loss = by_jax(case, architecture, dtype=dtype, optimizer=optimizer)
    for name, table in arrays(theirs).items():
        assert table.dtype == dtype
        np.testing.assert_allclose(
            arrays(ours)[name], table, rtol=rtol, atol=rtol, strict=True
        )
    np.testing.assert_allclose(our_loss.total, their_loss.total, rtol=rtol)
    np.testing.assert_array_equal(our_loss.num_terms, their_loss.num_terms)
    assert int(ours.step) == int(theirs.step) == case.size[0]


@pytest.mark.spread(1)
@pairwise(dim=[1, 17, 15, 16, 100], architecture=ARCHITECTURES, optimizer=OPTIMIZERS)
def test_vectors_may_have_any_number_of_dimensions(dim, architecture, optimizer):
    ours = by_kernel(MANY, architecture, dim, optimizer=optimizer)
    theirs = by_jax(MANY, architecture, dim, optimizer=optimizer)
    for name, table in arrays(theirs[0]).items():
        assert arrays(ours[0])[name].shape == table.shape
        np.testing.assert_allclose(arrays(ours[0])[name], table, rtol=2e-6, atol=2e-6)


@pairwise(threads=[2, 3, 8, 64], architecture=ARCHITECTURES, optimizer=OPTIMIZERS)
def test_any_number_of_threads_gives_the_same_bits(threads, architecture, optimizer):
    """Also more threads than cores, and more than an update has blocks."""
    one, one_loss = by_kernel(WIDE, architecture, optimizer=optimizer)
    many, many_loss = by_kernel(
        WIDE, architecture, threads=threads, optimizer=optimizer
    )
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


def test_trainings_in_two_threads_may_share_a_program():
    """Trainers with equal settings do: what a call computes in is its own."""
    apply = kernel.make_updates(
        model(WIDE, "skipgram"), CAP, loss_interval=1, threads=1
    )
    many = jax.tree.map(lambda x: np.concatenate([x] * 20), batch(WIDE))
    other = many._replace(blocks=jax.tree.map(lambda x: x[::-1], many.blocks))
    alone = [arrays(apply(start(WIDE), x)[0]) for x in (many, other)]
    with ThreadPoolExecutor(2) as pool:
        for _ in range(5):
            calls = [pool.submit(apply, start(WIDE), x) for x in (many, other)]
            for call, expected in zip(calls, alone, strict=True):
                for name, table in arrays(call.result()[0]).items():
                    np.testing.assert_array_equal(table, expected[name])


def test_every_nth_loss_is_reported_and_changes_nothing():
    every, losses = by_kernel(MANY, "skipgram")
    seldom, some = by_kernel(MANY, "skipgram", interval=4)
    np.testing.assert_array_equal(some.total, losses.total[::4])
    for name, table in arrays(every).items():
        np.testing.assert_array_equal(arrays(seldom)[name], table)


def adagrad_program(threads=1):
    return kernel.place(
        model(MANY, "cbow"), None, loss_interval=1, threads=threads, optimizer="adagrad"
    )


def addresses(state) -> list[int]:
    found = [
        *state.params["tables"].values(),
        *ADAGRAD.row_state(state.opt_state).values(),
    ]
    return [array.ctypes.data for array in found]


def test_a_second_call_goes_on_in_the_same_memory():
    apply = adagrad_program(threads=2).apply_updates
    first, _ = apply(start(MANY, optimizer="adagrad"), batch(MANY))
    before = addresses(first)
    second, _ = apply(first, batch(MANY))
    assert addresses(second) == before
    assert before[0] % 64 == 0
    assert int(second.step) == 2 * MANY.size[0]


@pytest.mark.parametrize("is_resumed", [False, True])
def test_two_calls_are_one_of_twice_as_many_updates(is_resumed):
    """Accumulators go from call to call, also by way of a checkpoint."""
    program = adagrad_program()
    twice = jax.tree.map(lambda x: np.concatenate([x, x]), batch(MANY))
    expected, _ = program.apply_updates(start(MANY, optimizer="adagrad"), twice)
    state, _ = program.apply_updates(start(MANY, optimizer="adagrad"), batch(MANY))
    if is_resumed:
        state = program.place_state(program.whole_state(state))
    state, _ = program.apply_updates(state, batch(MANY))
    for name, array in arrays(expected).items():
        np.testing.assert_array_equal(arrays(state)[name], array)


def test_the_whole_state_is_a_copy_of_plain_arrays():
    program = adagrad_program()
    state, _ = program.apply_updates(start(MANY, optimizer="adagrad"), batch(MANY))
    whole, copies = program.whole_state(state), arrays(state)
    program.apply_updates(state, batch(MANY))
    for name, array in arrays(whole).items():
        np.testing.assert_array_equal(array, copies[name], strict=True)
    for array in jax.tree.leaves((whole.params, whole.opt_state)):
        assert type(array) is np.ndarray and array.flags.c_contiguous
        assert not array.flags.writeable


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_state_that_is_given_from_elsewhere_is_left_as_it_is(optimizer):
    before = start(MANY, optimizer=optimizer)
    copies = arrays(before)
    apply = kernel.make_updates(
        model(MANY, "skipgram"), CAP, loss_interval=1, threads=1, optimizer=optimizer
    )
    apply(before, batch(MANY))
    for name, table in arrays(before).items():
        np.testing.assert_array_equal(table, copies[name])


def test_adagrad_is_its_equation_for_gradients_of_whole_tables():
    """Ids repeat within a block, between blocks and between updates."""
    case = Case("repeated", 3, (2, 2, 16), tile=4, noise=6, padding=3)
    lookup, before = model(case, "cbow", dtype="float64"), batch(case, "float64")
    tables, sums = arrays(start(case, dtype="float64")), np.zeros((2, 3))
    plain = make_updates(lookup, capped_sgd(np.inf), update="dense", loss_interval=1)
    for s, rate in enumerate(before.rate):
        blocks = jax.tree.map(lambda x, s=s: x[s : s + 1], before.blocks)
        with jax.enable_x64(True):
            state = device_state(host_state(capped_sgd(np.inf), **tables))
            after = arrays(plain(state, Batch(blocks, rate=np.ones(1)))[0])
        for number, (name, table) in enumerate(tables.items()):
            gradient = table - after[name]
            sums[number] += (gradient**2).mean(axis=1)
            scale = rate / (np.sqrt(sums[number]) + 1e-8)
            tables[name] = table - scale[:, np.newaxis] * gradient
    ours, _ = by_kernel(case, "cbow", dtype="float64", optimizer="adagrad")
    for number, (name, table) in enumerate(tables.items()):
        np.testing.assert_allclose(arrays(ours)[name], table, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(
            arrays(ours)[f"{name}_accumulator"], sums[number], rtol=1e-12
        )


def _for_python(function):
    """A function that Python calls, which calls a compiled one."""

    @simd.entry()
    def called(*arguments):
        return function(*arguments)

    return called


@pytest.mark.parametrize(("start", "step"), [(0.0, 0.5e8), (1e-30, 0.5e8), (4, 0.25)])
def test_the_scale_of_adagrad_is_exact_for_small_accumulators_too(start, step):
    """Not by an estimate of the root, which would be NaN or 0 near 0."""
    accumulate = _for_python(rows.accumulate)
    for dtype in (np.float32, np.float64):
        sums = np.array([start], dtype)
        scale = accumulate(sums, 0, dtype(0), dtype(0.5))
        assert scale == pytest.approx(step, rel=1e-6) and sums[0] == dtype(start)


@pairwise(value=[np.nan, np.inf], architecture=ARCHITECTURES, optimizer=OPTIMIZERS)
def test_what_is_not_finite_stays_in_sight(value, architecture, optimizer):
    broken = arrays(start(MANY))
    broken["output"][:] = value
    state = host_state(RULES[optimizer], **broken)
    apply = kernel.make_updates(
        model(MANY, architecture), CAP, loss_interval=1, threads=1, optimizer=optimizer
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


def test_what_is_compiled_is_found_again_by_its_types_and_the_text_of_all_sources():
    """Numba itself would look at one file only, and could mix up dtypes."""
    names = {
        apply_on_thread(dtype, optimizer, weight).py_func.__qualname__
        for dtype in ("float32", "float64")
        for optimizer in RULES
        for weight in ("uint8", "float32")
    }
    assert len(names) == 8
    assert all(name.endswith(thread.SOURCES) for name in names)


def test_one_compilation_serves_arrays_that_may_be_written_and_those_that_may_not():
    apply = kernel.make_updates(model(MANY, "cbow"), CAP, loss_interval=1, threads=1)
    state, _ = apply(start(MANY), batch(MANY))
    frozen = jax.tree.map(lambda x: x.view(), batch(MANY))
    for x in jax.tree.leaves(frozen):
        x.flags.writeable = False
    apply(state, frozen)
    compiled = apply_on_thread("float32", "sgd", "uint8", "", False, False)
    assert len(compiled.signatures) == 1


def test_large_scores_keep_small_derivatives():
    """sigmoid(20) - 1 is -2e-9, and 0 in float32 if it is computed like that."""
    scores = np.full((4, 4), 20, np.float32)
    first, last = np.full(4, 6), np.full(4, 9)

    @numba.njit
    def errors(scores, weight, first, last):
        products.context_errors(scores, weight, 0, first, last, 7, 6)

    errors(
        scores, np.ones(4, np.float32), first, last
    )  # of tokens 7 to 10, and positions 6 to 9
    expected = np.full((4, 4), -1 / (1 + np.exp(20)))
    expected[[0, 1, 2], [1, 2, 3]] = 0  # a token is no context of its own
    np.testing.assert_allclose(scores, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "cores"), [("max 100000", 8), ("250000 100000", 3), ("9999 100000", 1)]
)
def test_cores_are_those_of_the_quota(tmp_path, monkeypatch, text, cores):
    (tmp_path / "cpu.max").write_text(text)
    monkeypatch.setattr(kernel, "_QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr(kernel, "cores_by_affinity", lambda: 8)
    assert kernel.available_cores() == cores


def test_exp_is_exact_to_some_units_in_the_last_place():
    exp = _for_python(products.exp)
    for dtype, rtol in ((np.float32, 3e-7), (np.float64, 6e-16)):
        x = np.linspace(-87, 87, 4001).astype(dtype)
        ours = np.array([exp(value) for value in x])
        np.testing.assert_allclose(ours, np.exp(x.astype(np.float64)), rtol=rtol)
    assert exp(np.float32(1000)) == exp(np.float32(87))
    assert exp(np.float32(-1000)) == exp(np.float32(-87))


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
