"""The kernel beside what tests/parity holds to the oracle."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import jax
import numba
import numpy as np
import pytest

from embedder.tokens.cpu import kernel, products, rows, simd, thread
from embedder.tokens.cpu.kernel import TeamSize
from embedder.tokens.cpu.thread import apply_on_thread
from embedder.tokens.train_step import host_state
from migration.parity.updates import Sample, updates_stage
from tests.commands import no_new_threads
from tests.pairs import pairwise
from tests.parity.cases import Case, assert_pass

ARCHITECTURES = ["skipgram", "cbow"]
OPTIMIZERS = ["sgd", "adagrad"]
MANY = Case("many", 50, (8, 3, 32), tile=8, noise=6, padding=5)
WIDE = Case("wide", 50, (3, 40, 32), tile=8, noise=6, padding=5)


@pytest.mark.spread(1)
@pairwise(
    dim=[17, 1, 15, 16, 100],
    optimizer=OPTIMIZERS,
    dtype=["float32", "float64"],
    architecture=ARCHITECTURES,
)
def test_vectors_may_have_any_number_of_dimensions(dim, optimizer, dtype, architecture):
    options = {"update": "kernel", "optimizer": optimizer, "vector_size": dim}
    sample = MANY.sample(architecture, dtype, **options)
    assert_pass(updates_stage("one update", sample))


def start(sample: Sample):
    return host_state(sample.program.optimizer, sample.input, sample.output)


def program(sample: Sample, threads=1, interval=1):
    options = sample.config
    return kernel.place(
        sample.program.model,
        options.tables.max_pairs_per_row,
        loss_interval=interval,
        threads=threads,
        optimizer=options.run.optimizer,
    )


def by_kernel(sample: Sample, **options):
    """The arrays after the updates, and the losses."""
    state, loss = program(sample, **options).apply_updates(start(sample), sample.batch)
    return arrays(sample, state), loss


def arrays(sample: Sample, state) -> dict[str, np.ndarray]:
    """Copies of the tables, and of the accumulators where there are some."""
    kept = sample.program.optimizer.row_state(state.opt_state)
    return {name: np.array(x) for name, x in (state.params["tables"] | kept).items()}


def sample_of(case=MANY, architecture="skipgram", optimizer="sgd") -> Sample:
    return case.sample(architecture, "float32", update="kernel", optimizer=optimizer)


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

    sample = sample_of(MANY, architecture)
    one, one_loss = by_kernel(sample, interval=2)
    monkeypatch.setattr(kernel, "TeamSize", Changing)
    monkeypatch.setattr(kernel, "_TRIAL_TOKENS", 1)
    many, many_loss = by_kernel(sample, threads=3, interval=2)
    assert sizes == [(1, 2), (3, MANY.size[0] - 2)]
    np.testing.assert_equal(many, one)
    np.testing.assert_equal(many_loss, one_loss)


def test_trainings_in_two_threads_may_share_a_program():
    """Trainers with equal settings do: what a call computes in is its own."""
    sample = sample_of(WIDE)
    apply = program(sample).apply_updates
    many = jax.tree.map(lambda x: np.concatenate([x] * 20), sample.batch)
    other = many._replace(blocks=jax.tree.map(lambda x: x[::-1], many.blocks))
    alone = [arrays(sample, apply(start(sample), x)[0]) for x in (many, other)]
    with ThreadPoolExecutor(2) as pool:
        for _ in range(5):
            calls = [pool.submit(apply, start(sample), x) for x in (many, other)]
            found = [arrays(sample, call.result()[0]) for call in calls]
            np.testing.assert_equal(found, alone)


def test_every_nth_loss_is_reported_and_changes_nothing():
    every, losses = by_kernel(sample_of())
    seldom, some = by_kernel(sample_of(), interval=4)
    np.testing.assert_array_equal(some.total, losses.total[::4])
    np.testing.assert_equal(seldom, every)


@pytest.mark.parametrize("is_resumed", [False, True])
def test_two_calls_are_one_of_twice_as_many_updates(is_resumed):
    """Accumulators go from call to call, also by way of a checkpoint."""
    sample = sample_of(MANY, "cbow", "adagrad")
    adagrad, given, batch = program(sample), start(sample), sample.batch
    before = arrays(sample, given)
    twice = jax.tree.map(lambda x: np.concatenate([x, x]), batch)
    expected, _ = adagrad.apply_updates(given, twice)
    state, _ = adagrad.apply_updates(given, batch)
    np.testing.assert_equal(arrays(sample, given), before)
    if is_resumed:
        state = adagrad.place_state(adagrad.whole_state(state))
    state, _ = adagrad.apply_updates(state, batch)
    np.testing.assert_equal(arrays(sample, state), arrays(sample, expected))


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
    sample = sample_of(MANY, architecture, optimizer)
    sample.output[:] = value
    with np.errstate(invalid="ignore"):
        after, _ = by_kernel(sample)
    assert not np.isfinite(after["input"]).all()


def test_a_thread_that_cannot_start_ends_the_others(monkeypatch):
    """They would wait for it at the barrier."""

    class OneThread(kernel.ThreadPoolExecutor):
        def submit(self, function, thread):
            if thread == 1:
                raise KeyboardInterrupt
            return super().submit(function, thread)

    monkeypatch.setattr(kernel, "ThreadPoolExecutor", OneThread)
    with no_new_threads(), pytest.raises(KeyboardInterrupt):
        by_kernel(sample_of(), threads=2)


def test_what_is_compiled_is_found_again_by_its_types_and_the_text_of_all_sources():
    """Numba itself would look at one file only, and could mix up dtypes."""
    names = {
        apply_on_thread(dtype, optimizer, has_factors).py_func.__qualname__
        for dtype in ("float32", "float64")
        for optimizer in OPTIMIZERS
        for has_factors in (False, True)
    }
    assert len(names) == 8
    assert all(name.endswith(thread.SOURCES) for name in names)


def test_large_scores_keep_small_derivatives():
    """sigmoid(20) - 1 is -2e-9, and 0 in float32 if it is computed like that."""
    scores = np.full((4, 4), 20, np.float32)
    first, last = np.full(4, 6), np.full(4, 9)

    @numba.njit
    def errors(scores, weight, first, last):
        products.context_errors(scores, weight, 0, first, last, 7, 6)

    # of tokens 7 to 10, and positions 6 to 9
    errors(scores, np.ones(4, np.float32), first, last)
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


# --- the number of threads beside other programs, on machines that are simulated

CALL, TRIAL = 1024, 128  # updates of a call, and those of them that are a trial


def train(team: TeamSize, seconds: float, machine: Callable) -> float:
    """Updates a second on a machine that tells rate and share of a team size."""
    now, done = 0.0, 0

    def work(size: int, updates: int) -> None:
        nonlocal now, done
        rate, share = machine(size)
        team.record(size, updates, updates / rate, share)
        now, done = now + updates / rate, done + updates

    while now < seconds:
        left = CALL
        if (size := team.trial()) is not None:
            work(size, TRIAL)
            left -= TRIAL
        work(team.best, left)
    return done / now


def quiet(size: int) -> tuple[float, float]:
    """Each thread after the first adds half of what one makes."""
    return 10_000 * (1 + size) / 2, 0.99


def busy(size: int) -> tuple[float, float]:
    """Another program runs on one of two cores."""
    return (10_000, 0.99) if size == 1 else (2_400, 0.3)


@pytest.mark.row("F32")
def test_beside_a_busy_process_a_team_makes_what_one_thread_makes():
    team = TeamSize(2)
    assert train(team, 20, busy) > 0.9 * 10_000
    assert team.is_disturbed


@pytest.mark.row("F32")
def test_a_team_has_all_its_threads_again_when_the_other_process_has_ended():
    team = TeamSize(2)
    train(team, 5, busy)
    train(team, 2, quiet)
    assert not team.is_disturbed
    assert train(team, 1, quiet) == pytest.approx(15_000)


@pytest.mark.row("F32")
def test_a_large_team_gives_up_one_thread_for_one_busy_core():
    def machine(size):
        return (1_000.0 * size, 0.99) if size < 16 else (2_000.0, 0.3)

    team = TeamSize(16)
    assert train(team, 60, machine) > 0.9 * 15_000


def test_a_quiet_machine_is_never_tried_with_fewer_threads():
    team = TeamSize(4)
    for _ in range(1000):
        assert team.trial() is None and team.best == 4
        team.record(4, CALL, 0.01, 0.95)


def test_one_thread_is_never_disturbed():
    team = TeamSize(1)
    assert train(team, 1, lambda size: (10.0, 0.1)) == pytest.approx(10, rel=0.5)
    assert not team.is_disturbed


def test_one_slow_call_does_not_end_a_team():
    """Of a program that takes a core for a moment."""
    team = TeamSize(2)
    team.record(2, CALL, 0.1, 0.5)
    assert team.is_disturbed
    assert train(team, 5, quiet) > 0.98 * 15_000
    assert not team.is_disturbed
