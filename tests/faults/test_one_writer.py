"""Two runs in one folder: the second is refused, and the first goes on."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from embedder.cli import main
from embedder.tables.estimator import EmbeddingTrainer
from tests.commands import error_line

FAST = ["--loader", "memory", "--vector-size", "4", "--min-count", "1"]
LONG = [*FAST, "--epochs", "100000", "--sample", "0"]


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("a b c d a c\n" * 40)


@pytest.fixture
def model():
    """A model file, which is there before `training` takes all the time of a core."""
    trainer = EmbeddingTrainer(vector_size=4, min_count=1, epochs=0)
    trainer.fit([["a", "b"]]).save("model.npz")


@pytest.fixture
def training():
    """A process that trains in `run` until it is told to stop."""
    command = [sys.executable, "-m", "embedder.cli", "train", "text.txt"]
    process = subprocess.Popen(
        [*command, "--workdir", "run", *LONG],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    for line in process.stderr:
        if line.startswith("epoch 3/"):
            break
    yield process
    process.kill()
    process.communicate()


@pytest.mark.row("F21")
def test_a_second_run_is_refused_and_the_first_goes_on(model, training, capsys):
    for options in ([], ["--overwrite"], ["--force-lock"]):
        assert main(["train", "text.txt", "--workdir", "run", *LONG, *options]) == 2
        message = f"run is in use by process {training.pid} of host "
        assert message in error_line(capsys)
    assert main(["convert", "model.npz", "run", "--overwrite"]) == 2
    assert message in error_line(capsys)
    training.send_signal(signal.SIGTERM)
    *_, last = training.communicate(timeout=60)[1].splitlines()
    assert training.returncode == 143 and "Stopped after" in last
    assert not Path("run/.lock").exists()
    assert not list(of_session(training.pid))


def of_session(session: int) -> Iterator[int]:
    """Processes that a process has left, which led the session."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                yield int(path.parent.name)


@pytest.mark.slow
@pytest.mark.row("F21")
def test_the_lock_of_a_killed_run_is_taken_over_and_said(training, capsys):
    training.send_signal(signal.SIGKILL)
    training.wait()
    assert Path("run/.lock").exists()
    command = ["train", "text.txt", "--workdir", "run", *FAST, "--epochs", "1"]
    assert main([*command, "--overwrite"]) == 0
    said = capsys.readouterr().err
    assert f"Process {training.pid}, which was writing to run, has ended" in said
    assert not Path("run/.lock").exists()


@pytest.mark.slow
@pytest.mark.row("F29")
def test_a_container_goes_on_under_another_host_name(training, capsys, monkeypatch):
    training.send_signal(signal.SIGKILL)
    training.wait()
    monkeypatch.setattr(socket, "gethostname", lambda: "started-again")
    mounts = "1 0 254:0 / / rw - ext4 /dev/vda rw\n"
    Path("mounts").write_text(mounts)
    monkeypatch.setattr("embedder.disk.lock._MOUNTS", Path("mounts"))
    command = ["train", "text.txt", "--workdir", "run", *FAST, "--epochs", "1"]
    Path("mounts").write_text(mounts.replace("ext4", "nfs4"))
    assert main([*command, "--overwrite"]) == 2
    assert "--force-lock, or delete run/.lock." in error_line(capsys)
    Path("mounts").write_text(mounts)
    assert main([*command, "--overwrite"]) == 0
    said = capsys.readouterr().err
    assert f"Process {training.pid}, which was writing to run, has ended" in said
    assert not Path("run/.lock").exists()


@pytest.mark.row("F21", "F29")
@pytest.mark.parametrize("verb", ["train", "convert"])
def test_a_lock_of_another_host_is_left_alone_or_taken_over_by_force(
    model, capsys, verb
):
    Path("run").mkdir()
    owner = json.dumps({"pid": os.getpid(), "host": f"not-{socket.gethostname()}"})
    Path("run/.lock").write_text(owner)
    command = {
        "train": ["train", "text.txt", "--workdir", "run", *FAST],
        "convert": ["convert", "model.npz", "run"],
    }[verb]
    assert main(command) == 2
    message = "if that has ended, give --force-lock, or delete run/.lock."
    assert message in error_line(capsys)
    assert os.listdir("run") == [".lock"]
    assert main([*command, "--force-lock"]) == 0
    assert not Path("run/.lock").exists()


@pytest.mark.row("F21")
def test_a_finished_run_is_read_where_nothing_can_be_written(capsys, monkeypatch):
    command = ["train", "text.txt", "--workdir", "run", *FAST]
    assert main(command) == 0

    def hold_lock(path, force):
        raise OSError(30, "Read-only file system", str(path))

    monkeypatch.setattr("embedder.run.workdir.hold_lock", hold_lock)
    assert main(command) == 0
    assert "run: finished before" in capsys.readouterr().out
    assert main([*command, "--overwrite"]) == 3
    assert "run/.lock: Read-only file system." in error_line(capsys)


@pytest.mark.slow
@pytest.mark.row("F4")
def test_a_second_signal_leaves_no_damaged_checkpoint(training, capsys):
    """Whatever it was doing; that it ends at once, tests of `Stop` show."""
    training.send_signal(signal.SIGTERM)
    time.sleep(0.01)
    training.send_signal(signal.SIGTERM)
    training.communicate(timeout=60)
    assert training.returncode == 143
    main(["verify", "run"])
    said = capsys.readouterr().out
    assert "config.toml: whole" in said and "is damaged" not in said
