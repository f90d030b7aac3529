"""When a run saves, and what it does where it cannot."""

import types

import pytest

from embedder.engine.epochs import RunPosition, Snapshot
from embedder.run import saving
from embedder.run.saving import Saver
from embedder.run.stopping import Stop, Stopped
from embedder.settings import Interval
from embedder.stages import showing_stages


class Disk:
    """Stands for checkpoints: what was saved, and whether writing fails."""

    def __init__(self):
        self.saved, self.waits = [], 0
        self.fails = []  # whether the writes fail, one after the other
        self.is_slow = False  # whether it is still writing

    def save(self, step, arrays, facts, best):
        self.saved.append((step, facts["place"]["epoch"]))

    def is_written(self):
        if self.fails and self.saved and self.fails.pop(0):
            raise OSError(28, "The checkpoint was not written: full", "run/1")
        return not self.is_slow

    def wait(self):
        self.waits += 1


def status(updates: int, epoch: int = 0, is_epoch_end: bool = False):
    place = RunPosition(epoch + is_epoch_end, updates=updates)
    return types.SimpleNamespace(
        updates=updates,
        epoch=epoch,
        is_epoch_end=is_epoch_end,
        loss=1.0,
        recent_loss=1.0,
        best=None,
        snapshot=lambda: Snapshot({}, place),
    )


def saver(disk, stop=None, start=None, **interval) -> Saver:
    start = start or RunPosition(0)
    return Saver(disk, Interval(**interval), stop or Stop(), start=start, facts={})


def test_it_saves_after_so_many_updates():
    disk = Disk()
    save = saver(disk, updates=100, start=RunPosition(0, updates=50))
    for updates in (100, 149, 150, 151, 260, 359, 360):
        save(status(updates))
    assert [step for step, _ in disk.saved] == [150, 260, 360]


def test_it_saves_after_so_many_epochs():
    disk = Disk()
    save = saver(disk, epochs=2, start=RunPosition(1))
    for epoch in range(1, 6):
        save(status(10 * epoch, epoch))
        save(status(10 * epoch + 9, epoch, is_epoch_end=True))
    assert disk.saved == [(29, 3), (49, 5)]


def test_it_saves_after_some_time(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(saving.time, "monotonic", lambda: now[0])
    disk = Disk()
    save = saver(disk, seconds=60)
    for seconds, updates in ((159, 1), (160, 2), (161, 3), (219, 4), (220, 5)):
        now[0] = seconds
        save(status(updates))
    assert [step for step, _ in disk.saved] == [2, 5]


def test_a_pass_that_is_best_is_saved_where_that_is_wanted():
    for wanted, saved in ((True, [(7, 1)]), (False, [])):
        disk = Disk()
        made = Saver(disk, Interval(), Stop(), start=RunPosition(0), facts={})
        made._saves_best = wanted
        for updates, best in ((7, 7), (14, 7)):
            each = status(updates, epoch=updates // 7 - 1, is_epoch_end=True)
            each.best = best
            made(each)
        assert disk.saved == saved


def test_it_trains_while_the_disk_is_slower_than_the_interval(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(saving.time, "monotonic", lambda: now[0])
    disk = Disk()
    save = saver(disk, seconds=60)
    for seconds, disk.is_slow in ((160, False), (230, True), (300, True), (301, False)):
        now[0] = seconds
        save(status(seconds))
    assert [step for step, _ in disk.saved] == [160, 301]


def test_never_is_never():
    disk = Disk()
    save = saver(disk)
    save(status(10**9, epoch=1000, is_epoch_end=True))
    save.finish()
    assert not disk.saved


@pytest.mark.row("F11")
def test_a_failed_write_is_tried_again_with_the_newest(caplog):
    disk = Disk()
    disk.fails = [True, False, False]
    save = saver(disk, updates=10)
    for updates in (10, 11, 12, 13, 20, 21):
        save(status(updates))
    assert [step for step, _ in disk.saved] == [10, 11, 21]
    assert "run/1: The checkpoint was not written: full: tried again." in caplog.text


@pytest.mark.row("F11")
def test_a_second_failure_ends_the_run():
    disk = Disk()
    disk.fails = [True, True]
    save = saver(disk, updates=10)
    save(status(10))
    save(status(11))
    with pytest.raises(OSError, match="was not written: full"):
        save(status(12))


def test_failures_far_apart_do_not():
    disk = Disk()
    disk.fails = [True, False, False, True, False]
    save = saver(disk, updates=10)
    for updates in (10, 11, 12, 21, 22, 23):
        save(status(updates))
    assert [step for step, _ in disk.saved] == [10, 11, 21, 22]


@pytest.mark.row("F4")
def test_a_signal_saves_and_stops():
    disk, stop = Disk(), Stop()
    save = saver(disk, stop)
    save(status(1))
    assert stop.is_polled and not disk.saved
    stop.number = 15
    seen: list[str] = []
    stopped = pytest.raises(Stopped, match="Stopped after 2 updates, which are")
    with showing_stages(seen.append), stopped as caught:
        save(status(2))
    assert seen == ["stopping: saving a checkpoint; Ctrl-C again ends at once"]
    assert caught.value.number == 15
    assert disk.saved == [(2, 0)] and disk.waits == 1


def test_when_all_is_trained_a_signal_stops_at_once():
    stop = Stop()
    save = saver(Disk(), stop)
    save(status(1))
    save.finish()
    assert not stop.is_polled
