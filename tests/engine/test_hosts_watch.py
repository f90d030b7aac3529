"""Stalls and spikes of the loss are logged while they happen."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest

from embedder.engine.hosts import processes
from embedder.engine.hosts.watch import Watch
from tests.commands import SECONDS


def status(updates: int, loss: float = 2.0, recent: float = 2.0, epoch: int = 0):
    return SimpleNamespace(
        updates=updates, epoch=epoch, is_epoch_end=False, loss=loss, recent_loss=recent
    )


@pytest.fixture
def clock() -> list[float]:
    """Time that passes when a test says so."""
    return [1000.0]


@pytest.fixture
def told() -> list[float]:
    """Seconds of all hangs."""
    return []


@pytest.fixture
def watch(clock, told) -> Watch:
    """A watch that says a stall after 60 s and a hang after 100 s."""
    return Watch(100, told.append, stalled=60, clock=lambda: clock[0])


def wait(watch: Watch, clock: list[float], seconds: float) -> None:
    clock[0] += seconds
    watch.check()


@pytest.mark.row("F8", "F18")
def test_a_stall_is_said_once(watch, clock, caplog):
    watch.beat(status(7))
    wait(watch, clock, 60)
    assert caplog.text == ""
    wait(watch, clock, 1)
    wait(watch, clock, 1)
    [record] = caplog.records
    assert record.getMessage() == (
        "No update for 61 s, since update 7: the loader or a device stalls."
    )
    watch.beat(status(8))
    wait(watch, clock, 621)
    assert caplog.records[-1].args[1] == 8


def test_a_pause_is_no_stall(watch, clock, caplog, told):
    watch.beat(status(7))
    watch.pause()
    wait(watch, clock, 1000)
    assert caplog.text == "" and not told
    watch.beat(status(8))
    wait(watch, clock, 61)  # the pause was no step: it makes none of the next ones long
    assert "since update 8" in caplog.text


@pytest.mark.parametrize(("first", "second"), [(0, 50), (400, 0)])
def test_a_run_whose_steps_are_long_is_given_its_time(
    watch, clock, caplog, told, first, second
):
    """Also of its first one, before which nothing is awaited: it compiles."""
    clock[0] += first
    watch.check()
    for updates, seconds in ((1, second), (2, 0)):
        watch.beat(status(updates))
        clock[0] += seconds
    longest = max(10 * second, 2 * first)
    wait(watch, clock, longest)
    assert caplog.text == "" and not told
    wait(watch, clock, 1)
    assert "since update 2" in caplog.text and told == [longest + 1]


@pytest.mark.row("F18")
def test_a_leap_of_the_loss_is_said_once_an_epoch(watch, caplog):
    watch.beat(status(7, recent=5.9))
    assert caplog.text == ""
    watch.beat(status(9, recent=6.1))
    watch.beat(status(10, recent=7))
    assert "The loss spikes: 6.1 near update 9, in epoch 1" in caplog.text
    assert len(caplog.records) == 1
    watch.beat(status(20, recent=9, epoch=1))
    assert len(caplog.records) == 2


@pytest.mark.row("F8")
def test_its_thread_checks_until_the_end():
    checked = threading.Event()
    watch = Watch(0.01, on_hang=lambda seconds: checked.set(), stalled=0.01)
    thread = watch.start()
    watch.beat(status(1))
    assert checked.wait(SECONDS)
    watch.end()
    thread.join()


@pytest.mark.row("B18")
def test_a_message_may_name_a_file_that_is_not_utf8(monkeypatch):
    """Else the error would be another, and the others would wait for this process."""
    gather = processes.multihost_utils
    monkeypatch.setattr(gather, "process_allgather", lambda array: np.stack([array]))
    assert processes._gather_messages("caf\udce9 is no file") == [
        r"caf\udce9 is no file"
    ]
