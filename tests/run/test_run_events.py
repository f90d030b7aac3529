"""TensorBoard's events, read by their protocol buffers."""

import logging
from pathlib import Path

import numpy as np
import pytest
from tensorboardX.proto.event_pb2 import Event

from embedder.cli.main import main
from embedder.disk.workdir import Workdir
from embedder.run import curves
from embedder.run.curves import Events, row_norms
from tests.commands import json_lines

FAST = ["--loader", "memory", "--vector-size", "4", "--min-count", "1", "--sample", "0"]
FAST += ["--block", "32", "--blocks-per-update", "1"]


def events_of(folder: Path) -> list[Event]:
    """All events, by time: those of a resumed run are in a file of their own."""
    found = []
    for path in sorted(folder.glob("events.out.tfevents.*")):
        data = path.read_bytes()
        while data:  # a record: its length, a check of that, itself, a check of it
            size = int.from_bytes(data[:8], "little")
            found.append(Event.FromString(data[12 : 12 + size]))
            data = data[16 + size :]
    return found


@pytest.fixture
def run(own_folder, monkeypatch) -> Workdir:
    """A run whose points are one for each call."""
    monkeypatch.setattr(curves, "_EVERY", 0.0)
    monkeypatch.setattr(curves, "_SHARE", 0.0)
    Path("text.txt").write_text("a b c a b a d d e\n" * 200)
    command = ["train", "text.txt", *FAST, "--save-every", "16", "--workdir", "run"]
    assert main(command) == 0
    return Workdir(Path("run"))


@pytest.mark.slow
def test_points_within_epochs_are_scalars(run):
    found = {
        (value.tag, event.step): value.simple_value
        for event in events_of(run.events)
        for value in event.summary.value
        if value.WhichOneof("value") == "simple_value"
    }
    lines = json_lines(run.progress)
    assert len(lines) > 10
    for line in json_lines(run.metrics):
        for name in ("loss", "alpha"):
            assert found[name, line["updates"]] == pytest.approx(line[name], 1e-5)
    for line in lines:
        for name in ("loss", "words_per_second"):
            key = f"recent/{name}", line["updates"]
            assert (key in found) == (line[name] is not None)
            assert line[name] is None or found[key] == pytest.approx(line[name], 1e-6)


def test_row_norms_are_of_vectors_along_the_last_axis():
    array = np.array(
        [[[3.0, 4.0], [np.inf, 1.0]], [[0.0, 0.0], [1.0, 0.0]]], np.float32
    )
    np.testing.assert_array_equal(row_norms(array), [5.0, 0.0, 1.0])
    assert row_norms(np.ones(3)).size == row_norms(np.int32(3)).size == 0


@pytest.mark.row("F57")
def test_a_full_disk_is_one_warning_and_does_not_wait(tmp_path, monkeypatch, caplog):
    """Though more events come than a queue of tensorboardX holds."""

    def write(self, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tensorboardX.record_writer.RecordWriter.write", write)
    caplog.set_level(logging.WARNING, "embedder")
    events = Events(tmp_path / "tensorboard")
    for number in range(50):
        events.add(number, {"loss": 1.0})
    events.close()
    (record,) = caplog.records
    assert "tensorboard: No space left on device: Tensor" in record.getMessage()


def test_events_after_the_start_of_a_resumed_run_are_hidden(tmp_path):
    events = Events(tmp_path, 7)
    events.add(8, {"loss": 1.0})
    events.close()
    _, began, _ = events_of(tmp_path)
    assert (began.step, began.session_log.status) == (8, 1)  # START
