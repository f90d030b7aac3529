"""What stalls or leaps is said while it happens."""

import threading
import time
from types import SimpleNamespace

import pytest

from embedder.hosts.watch import Watch


def status(updates: int, loss: float = 2.0, recent: float = 2.0, epoch: int = 0):
    return SimpleNamespace(
        updates=updates, epoch=epoch, is_epoch_end=False, loss=loss, recent_loss=recent
    )


@pytest.fixture
def watch():
    """Watches made by a test, which end with it."""
    made = []

    def make(*arguments, **options) -> Watch:
        made.append(Watch(*arguments, **options))
        return made[-1]

    yield make
    for each in made:
        each.end()


def wait_until(happened, seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not happened() and time.monotonic() < end:
        time.sleep(0.01)
    assert happened()


@pytest.mark.row("F8", "F18")
def test_a_stall_is_said_once(watch, caplog):
    each = watch(stalled=0.2)
    each.beat(status(7))
    wait_until(lambda: "since update 7: the loader or a device stalls" in caplog.text)
    time.sleep(0.3)
    assert len(caplog.records) == 1


def test_a_pause_is_no_stall(watch, caplog):
    each = watch(stalled=0.1)
    each.beat(status(7))
    each.pause()
    time.sleep(0.3)
    assert caplog.text == ""


def test_a_run_whose_steps_are_long_is_given_its_time(watch, caplog):
    each = watch(stalled=0.05)
    each.beat(status(1))
    time.sleep(0.2)
    each.beat(status(2))  # ten times that is 2 s
    caplog.clear()
    time.sleep(0.4)
    assert caplog.text == ""


def test_the_first_step_counts_among_the_long_ones(watch):
    seconds = []
    each = watch(0.1, on_hang=seconds.append)
    time.sleep(0.5)  # it compiles
    each.beat(status(1))
    time.sleep(0.6)
    assert not seconds


def test_a_hang_is_told(watch):
    seconds = []
    watch(0.1, on_hang=seconds.append).beat(status(1))
    wait_until(lambda: seconds)
    assert seconds[0] > 0.1


@pytest.mark.row("F18")
def test_a_leap_of_the_loss_is_said_once_an_epoch(watch, caplog):
    each = watch()
    each.beat(status(7, recent=5.9))
    assert caplog.text == ""
    each.beat(status(9, recent=6.1))
    each.beat(status(10, recent=7))
    assert "The loss leaps: 6.1 near update 9, in epoch 1" in caplog.text
    assert len(caplog.records) == 1
    each.beat(status(20, recent=9, epoch=1))
    assert len(caplog.records) == 2


def test_it_leaves_no_thread():
    before = threading.active_count()
    each = Watch(stalled=0.1)
    each.end()
    wait_until(lambda: threading.active_count() == before)
