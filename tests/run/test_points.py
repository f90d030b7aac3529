"""progress.jsonl: lines within epochs, also of runs that are killed and resume."""

import logging
import signal
from pathlib import Path
from unittest.mock import Mock

import pytest

from embedder.engine.epochs import Status
from embedder.run import curves
from embedder.run.curves import Points
from embedder.run.verify import verify
from tests.commands import json_lines, run_python, status

FAST = ["--loader", "memory", "--vector-size", "4", "--min-count", "1", "--sample", "0"]
FAST += ["--block", "32", "--blocks-per-update", "1"]


def told(updates: int, seconds: float, **values) -> Status:
    at = {"updates": updates, "progress": updates / 1e6, "items": updates}
    return status(seconds=seconds, **at | {"recent_loss": 0.0} | values)


def test_a_line_has_the_mean_loss_and_the_speed_since_the_one_before(tmp_path):
    path, events = tmp_path / "progress.jsonl", Mock()
    adder = Points(path, events)
    adder.add(told(1, 0.5))
    for number in range(2, 7):
        adder.add(told(10 * number, 0.5 * number, recent_loss=float(number)))
    first, second = json_lines(path)
    names = "updates", "loss", "words_per_second"
    assert [first[name] for name in names] == [1, None, None]
    assert (second["updates"], second["seconds"]) == (50, 2.5)
    assert second["loss"] == (2 + 3 + 4 + 5) / 4
    assert second["words_per_second"] == round(49 / 2)
    recent = {"recent/loss": 3.5, "recent/words_per_second": 24}
    assert events.add.call_args.args == (50, recent)


@pytest.mark.parametrize("is_on_cpu", [True, False])
def test_a_line_of_a_run_on_a_cpu_says_how_busy_it_was(
    tmp_path, monkeypatch, is_on_cpu
):
    clock = iter([10.0, 13.0, 19.0])
    monkeypatch.setattr(curves.time, "process_time", lambda: next(clock))
    monkeypatch.setattr(curves, "available_cores", lambda: 2)
    path = tmp_path / "progress.jsonl"
    adder = Points(path, Mock(), is_on_cpu)
    for number in range(3):
        adder.add(told(number, 3.0 * number))
    busy = [line.get("cpu_busy") for line in json_lines(path)]
    assert busy == ([None, 0.5, 1.0] if is_on_cpu else [None] * 3)


@pytest.mark.row("F57")
def test_a_file_that_cannot_be_written_is_one_warning(tmp_path, caplog):
    caplog.set_level(logging.WARNING, "embedder")
    adder = Points(tmp_path / "none" / "progress.jsonl", Mock())
    for number in range(5):
        adder.add(told(number, 3.0 * number))
    (record,) = caplog.records
    assert "progress.jsonl: No such file or directory" in record.getMessage()


CHILD = """
import runpy, sys
from embedder.run import curves
curves._EVERY = curves._SHARE = 0.0
runpy.run_module("tests.contract.events", run_name="__main__")
"""


def killed(event: int):
    """A run with a line for each call, that is killed at the event."""
    arguments = ["train", "text.txt", "--workdir", "run", "--save-every", "8", *FAST]
    return run_python("-c", CHILD, event, 9, ".", *arguments)


@pytest.mark.slow
@pytest.mark.row("F57")
def test_lines_of_a_run_that_is_killed_have_no_updates_twice(own_folder):
    Path("text.txt").write_text("a b c a b a d d e f g h\n" * 200)
    whole = killed(0)
    assert whole.returncode == 0, whole.stderr
    expected = Path("run/vectors.safetensors").read_bytes()
    of_whole = [line["updates"] for line in json_lines("run/progress.jsonl")]
    assert of_whole == sorted({*of_whole}) and len(of_whole) > 20
    num_events = int(whole.stdout.splitlines()[-1])
    Path("run").rename("whole")
    for share in (0.35, 0.15, 0.15):
        done = killed(int(num_events * share))
        assert done.returncode == -signal.SIGKILL, done.stderr
    assert Path("run/checkpoints").is_dir()
    with open("run/progress.jsonl", "a") as file:
        file.write('{"upda')  # as of a kill within a line
    assert killed(0).returncode == 0
    updates = [line["updates"] for line in json_lines("run/progress.jsonl")]
    assert updates == sorted({*updates}) and {*updates} == {*of_whole}
    assert Path("run/vectors.safetensors").read_bytes() == expected
    assert [str(x) for x in verify(Path("run")) if x.fault] == []
