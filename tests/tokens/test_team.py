"""The number of threads beside other programs, on machines that are simulated."""

from collections.abc import Callable

import pytest

from embedder.tokens.cpu.kernel import TeamSize

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
