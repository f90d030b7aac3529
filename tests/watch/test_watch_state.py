"""What the files of a run tell while others write them."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embedder.config import Config, to_toml, with_options
from embedder.disk.lock import _boot_id, ended_owner, hold_lock
from embedder.errors import InputError
from embedder.run.workdir import Workdir
from embedder.watch.frame import curves_of, ending, silence, status
from embedder.watch.state import read_state


def start(path: Path, *, is_longer: bool = False) -> Workdir:
    """The folder of a run that has its settings."""
    run = Workdir(path / "longer" if is_longer else path)
    run.path.mkdir(parents=True, exist_ok=True)
    run.config.write_text(to_toml(with_options(Config(), epochs=4)))
    return run


def point(updates: float, **values) -> str:
    at = {"epoch": 1, "updates": updates, "progress": updates / 100}
    return json.dumps({**at, "seconds": updates * 2.0, **values}) + "\n"


BEST = {"best_by": "held-out", "holdout": 0.1}


def metrics(epoch: int, **values) -> str:
    return json.dumps({"epoch": epoch, "updates": 25 * epoch, **values}) + "\n"


@pytest.mark.row("B67")
def test_a_run_that_is_not_started_is_waited_for(tmp_path):
    for path in (tmp_path / "new", tmp_path):
        state = read_state(path)
        assert state.phase == "waiting" and "waiting" in status(state)
    with hold_lock(tmp_path / ".lock"):
        assert "prepares" in status(read_state(tmp_path))


@pytest.mark.row("B67")
def test_something_else_than_a_run_is_refused(tmp_path):
    (tmp_path / "other.txt").write_text("")
    with pytest.raises(InputError, match="RUN must be a run, or empty, or new"):
        read_state(tmp_path)
    with pytest.raises(InputError, match="RUN must be a folder, got the file"):
        read_state(tmp_path / "other.txt")


def test_curves_are_of_the_file_with_more_points(tmp_path):
    run = start(tmp_path)
    assert "no update is done yet" in status(read_state(tmp_path))
    run.metrics.write_text(metrics(1, loss=3.0, held_out=0.5) + metrics(2, loss=2.0))
    run.progress.write_text(point(10))
    state = read_state(tmp_path)
    assert state.points("loss") == [(25, 3.0), (50, 2.0)]
    assert state.points("held_out") == [(25, 0.5)] and state.updates == 50
    run.progress.write_text("".join(point(x, loss=x / 10) for x in (10, 30, 60)))
    state = read_state(tmp_path)
    assert state.points("loss") == [(10, 1.0), (30, 3.0), (60, 6.0)]
    assert (state.updates, state.fraction) == (60, 0.6)


def test_the_time_left_is_told_by_lines_since_the_run_was_resumed(tmp_path):
    run = start(tmp_path)
    run.progress.write_text(point(10, seconds=900.0) + point(20, seconds=1000.0))
    assert read_state(tmp_path).seconds_left == pytest.approx(800)
    run.progress.write_text(run.progress.read_text() + point(21, seconds=1.0))
    assert read_state(tmp_path).seconds_left is None
    run.progress.write_text(run.progress.read_text() + point(31, seconds=11.0))
    assert read_state(tmp_path).seconds_left == pytest.approx(69)


@pytest.mark.row("B69")
def test_half_written_and_damaged_lines_are_left_out(tmp_path):
    run, whole = start(tmp_path), point(10, loss=1.0)
    run.progress.write_text(f'{whole}[1]\n{{"updates": "x"}}\n{point(20)[:9]}')
    run.metrics.write_text(metrics(1, loss=3.0) + "}\n" + metrics(2, loss=2.0)[:7])
    state = read_state(tmp_path)
    assert [line["updates"] for line in state.progress] == [10]
    assert state.points("loss") == [(10, 1.0)] and state.metrics.num_damaged == 2


@pytest.mark.row("B69")
@settings(max_examples=200)
@given(data=st.binary(max_size=200), cut=st.integers(0, 200))
def test_any_bytes_are_read(data, cut, tmp_path_factory):
    run = start(tmp_path_factory.mktemp("run"))
    whole = (point(10, loss=1.0) * 3).encode()
    run.progress.write_bytes(whole + data + whole[:cut])
    run.metrics.write_bytes(data)
    state = read_state(run.path)
    assert len(state.progress) >= 3 and status(state)
    assert state.points("loss")[0] == (10, 1.0) and state.seconds_left is None


@pytest.mark.row("B69")
def test_numbers_that_are_not_finite_are_left_out(tmp_path):
    run = start(tmp_path)
    run.progress.write_text(point(10, loss=float("nan")) + point(20, loss=1e301))
    state = read_state(tmp_path)
    assert len(state.progress) == 2 and state.points("loss") == []


def test_the_longer_run_is_shown_until_it_is_finished(tmp_path):
    run = start(tmp_path)
    run.vectors.write_bytes(b"")
    assert read_state(tmp_path).phase == "finished"
    longer = start(tmp_path, is_longer=True)
    longer.progress.write_text(point(70))
    state = read_state(tmp_path)
    assert (state.phase, state.updates) == ("training", 70)
    longer.vectors.write_bytes(b"")
    assert read_state(tmp_path).phase == "finished"


def write_lock(path: Path, pid: int, **values) -> None:
    owner = {"pid": pid, "host": socket.gethostname(), "boot": _boot_id()}
    path.write_text(json.dumps(owner | values))


@pytest.fixture(scope="module")
def ended() -> int:
    """The id of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


@pytest.mark.row("F56")
def test_a_killed_run_is_told_by_its_lock(tmp_path, ended):
    run = start(tmp_path)
    run.progress.write_text(point(10))
    write_lock(run.lock, os.getpid())
    state = read_state(tmp_path)
    assert status(state).startswith("Training: 10.0 % of 4 epochs, 10 updates")
    assert silence(state) == ""
    write_lock(run.lock, ended)
    past = time.time() - 125
    for path in run.path.iterdir():
        os.utime(path, (past, past))
    state = read_state(tmp_path)
    assert status(state).startswith("Unfinished")
    assert silence(state).startswith(
        f"Process {ended} has ended before the run was finished: nothing was written "
        "for 2 min 0"
    )
    write_lock(run.lock, ended, host="elsewhere")
    os.utime(run.lock, (past, past))
    assert silence(read_state(tmp_path)).startswith("Nothing was written for 2 min")
    run.lock.unlink()
    assert silence(read_state(tmp_path)).startswith("No process trains it: nothing")


def end(run: Workdir, how: str, message: str) -> str:
    """What is shown of a run that ended so."""
    run.ended.write_text(json.dumps({"how": how, "message": message}))
    return ending(read_state(run.path))


def test_why_a_run_ended_is_told_until_it_is_trained_again(tmp_path, ended):
    run = start(tmp_path)
    assert ending(read_state(tmp_path)) == ""
    assert end(run, "diverged", "The loss is nan.") == "Diverged: The loss is nan."
    assert end(run, "stopped", "x\x1b[2J") == "Stopped: x\\x1b[2J"
    assert end(run, "won", "x") == ""
    run.ended.write_text('{"how": "failed"')
    assert ending(read_state(tmp_path)) == ""
    write_lock(run.lock, os.getpid())  # a process resumes it
    assert end(run, "failed", "No space left on device") == ""
    write_lock(run.lock, ended)
    assert end(run, "failed", "No space").startswith("Failed: ")
    run.vectors.write_bytes(b"")
    assert ending(read_state(tmp_path)) == ""


def test_a_run_that_ended_early_says_why(tmp_path):
    run = start(tmp_path)
    config = with_options(Config(), epochs=4, patience=2, **BEST)
    run.config.write_text(to_toml(config))
    run.metrics.write_text(metrics(1, loss=3.0) + metrics(2, loss=2.0))
    run.vectors.write_bytes(b"")
    assert status(read_state(tmp_path)) == (
        "Finished: 2 of 4 epochs, 50 updates; early: 2 evaluations in a row were no "
        "better (patience)."
    )
    run.metrics.write_text("".join(metrics(epoch, loss=1.0) for epoch in range(1, 5)))
    assert status(read_state(tmp_path)) == "Finished: 4 epochs, 100 updates."


@pytest.mark.parametrize(
    ("manifest", "unit"),
    [
        ([{"columns": {"session": "s", "item": "i"}, "keys": "text"}], "items/s"),
        ([{"columns": {"source": "a", "target": "b"}}], "words/s"),
        ([{"file": "x.txt", "columns": 3}, 7], "words/s"),
        ({"damaged": 1}, "words/s"),
        (None, "words/s"),
    ],
)
def test_speed_counts_what_the_progress_line_counts(tmp_path, manifest, unit):
    """Files name the items of sessions `words`, too."""
    run = start(tmp_path)
    if manifest is not None:
        run.corpus.write_text(json.dumps({"manifest": manifest}))
    lines = (metrics(i, loss=1.0, words=9, words_per_second=5.0 + i) for i in (1, 2))
    run.metrics.write_text("".join(lines))
    curve = curves_of(read_state(tmp_path))[-1]
    assert (curve.name, curve.points) == (unit, [(25, 6.0), (50, 7.0)])


@pytest.mark.row("F56")
@pytest.mark.parametrize("text", ["", "{", '{"pid": -1, "host": "x"}', "[1]", "\0"])
def test_a_damaged_lock_tells_nothing(text, tmp_path):
    (tmp_path / ".lock").write_text(text)
    assert ended_owner(tmp_path / ".lock") is None
    assert ended_owner(tmp_path / "none") is None


def test_a_run_that_is_started_anew_meanwhile_is_waited_for(tmp_path, monkeypatch):
    run = start(tmp_path)
    monkeypatch.setattr(
        "embedder.watch.state.read_toml", lambda path: run.config.unlink() or open(path)
    )
    assert read_state(tmp_path).phase == "waiting"
