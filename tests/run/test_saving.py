"""When a run saves, and what it does where it cannot."""

import pytest

from embedder.config.settings import Interval
from embedder.engine.epochs import Checkpoint, Progress, Status
from embedder.engine.hosts.joining import watch
from embedder.run import saving
from embedder.run.saving import Saver
from embedder.run.stopping import Stop
from tests.commands import status


class Disk:
    """Stands for checkpoints: what was saved, and whether writing fails."""

    def __init__(self):
        self.saved = []
        self.fails = []  # whether the writes fail, one after the other
        self.is_slow = False  # whether it is still writing

    def save(self, step, arrays, facts, best):
        self.saved.append((step, facts["place"]["epoch"]))

    def is_written(self):
        if self.fails and self.saved and self.fails.pop(0):
            raise OSError(28, "The checkpoint was not written: full", "run/1")
        return not self.is_slow

    def wait(self):
        pass


def told(updates: int, epoch: int = 0, is_epoch_end: bool = False) -> Status:
    end = Checkpoint({}, Progress(epoch + is_epoch_end, updates=updates))
    given = {"updates": updates, "epoch": epoch, "is_epoch_end": is_epoch_end}
    return status(**given, snapshot=lambda: end)


@pytest.fixture(autouse=True)
def watches(monkeypatch):
    """None goes on after its test, and tells that a training stalls."""
    started = []
    monkeypatch.setattr(saving, "watch", lambda: started.append(watch()) or started[-1])
    yield
    for each in started:
        each.end()


def saver(disk, start=None, **interval) -> Saver:
    start = start or Progress(0)
    return Saver(disk, Interval(**interval), Stop(), start=start, facts={})


@pytest.fixture
def now(monkeypatch) -> list[float]:
    """The time that the program reads."""
    found = [100.0]
    monkeypatch.setattr(saving.time, "monotonic", lambda: found[0])
    return found


def test_it_saves_after_so_many_updates_or_epochs():
    disk = Disk()
    save = saver(disk, updates=100, start=Progress(0, updates=50))
    for updates in (100, 149, 150, 151, 260, 359, 360):
        save(told(updates))
    assert [step for step, _ in disk.saved] == [150, 260, 360]
    disk = Disk()
    save = saver(disk, epochs=2, start=Progress(1))
    for epoch in range(1, 6):
        save(told(10 * epoch, epoch))
        save(told(10 * epoch + 9, epoch, is_epoch_end=True))
    assert disk.saved == [(29, 3), (49, 5)]
    disk = Disk()
    save = saver(disk)  # never
    save(told(10**9, epoch=1000, is_epoch_end=True))
    save.finish()
    assert not disk.saved


def test_it_saves_after_some_time_unless_the_disk_is_slower(now):
    disk = Disk()
    save = saver(disk, seconds=60)
    for now[0], updates in ((159, 1), (160, 2), (161, 3), (219, 4), (220, 5)):
        save(told(updates))
    for now[0], disk.is_slow in ((280, False), (350, True), (420, True), (421, False)):
        save(told(int(now[0])))
    assert [step for step, _ in disk.saved] == [2, 5, 280, 421]


@pytest.mark.row("F11")
def test_a_failed_write_is_tried_again_with_the_newest(caplog):
    """A second failure at once ends the run."""
    disk = Disk()
    disk.fails = [True, False, False, True, False, False, True, True]
    save = saver(disk, updates=10)
    for updates in (10, 11, 12, 21, 22, 23, 33, 34):
        save(told(updates))
    assert [step for step, _ in disk.saved] == [10, 11, 21, 22, 33, 34]
    assert "run/1: The checkpoint was not written: full: tried again." in caplog.text
    with pytest.raises(OSError, match="was not written: full"):
        save(told(35))
