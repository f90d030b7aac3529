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

from embedder import EmbeddingTrainer
from embedder.cli.main import main
from tests.commands import SECONDS, error_line

COMMAND = ["train", "text.txt", "--workdir", "run", "--loader", "memory"]
COMMAND += ["--vector-size", "4", "--min-count", "1"]
LONG = [*COMMAND, "--epochs", "100000", "--sample", "0"]


@pytest.fixture(autouse=True)
def own_folder(own_folder):
    """The model is there before `training` takes all the time of a core."""
    Path("text.txt").write_text("a b c d a c\n" * 40)
    trainer = EmbeddingTrainer(vector_size=4, min_count=1, epochs=0)
    trainer.fit([["a", "b"]]).save("model.npz")


@pytest.fixture
def training(own_folder):
    """A process that trains in `run` until it is told to stop."""
    process = subprocess.Popen(
        [sys.executable, "-m", "embedder.cli.main", *LONG],
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
def test_a_second_run_is_refused_and_the_first_goes_on(training, capsys):
    convert = ["convert", "model.npz", "run", "--overwrite"]
    for command in (LONG, [*LONG, "--overwrite"], [*LONG, "--force-lock"], convert):
        assert main(command) == 2
        message = f"run is in use by process {training.pid} of host "
        assert message in error_line(capsys)
    training.send_signal(signal.SIGTERM)
    *_, last = training.communicate(timeout=SECONDS)[1].splitlines()
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
@pytest.mark.row("F29")
def test_a_container_goes_on_under_another_host_name(training, capsys, monkeypatch):
    training.send_signal(signal.SIGKILL)
    training.wait()
    monkeypatch.setattr(socket, "gethostname", lambda: "started-again")
    mounts = "1 0 254:0 / / rw - ext4 /dev/vda rw\n"
    monkeypatch.setattr("embedder.disk.lock._MOUNTS", Path("mounts"))
    Path("mounts").write_text(mounts.replace("ext4", "nfs4"))
    assert main([*COMMAND, "--overwrite"]) == 2
    assert "--force-lock, or delete run/.lock." in error_line(capsys)
    Path("mounts").write_text(mounts)
    assert main([*COMMAND, "--overwrite"]) == 0
    said = capsys.readouterr().err
    assert f"Process {training.pid}, which was writing to run, has ended" in said
    assert not Path("run/.lock").exists()


@pytest.mark.row("F21", "F29")
@pytest.mark.parametrize("command", [COMMAND, ["convert", "model.npz", "run"]])
def test_a_lock_of_another_host_is_left_alone_or_taken_over_by_force(capsys, command):
    Path("run").mkdir()
    owner = json.dumps({"pid": os.getpid(), "host": f"not-{socket.gethostname()}"})
    Path("run/.lock").write_text(owner)
    assert main(command) == 2
    message = "if that has ended, give --force-lock, or delete run/.lock."
    assert message in error_line(capsys)
    assert os.listdir("run") == [".lock"]
    assert main([*command, "--force-lock"]) == 0
    assert not Path("run/.lock").exists()


@pytest.mark.row("F21")
def test_a_finished_run_is_read_where_nothing_can_be_written(capsys, monkeypatch):
    assert main(COMMAND) == 0

    def hold_lock(path, force):
        raise OSError(30, "Read-only file system", str(path))

    monkeypatch.setattr("embedder.disk.workdir.hold_lock", hold_lock)
    assert main(COMMAND) == 0
    assert "run: finished before" in capsys.readouterr().out
    assert main([*COMMAND, "--overwrite"]) == 3
    assert "run/.lock: Read-only file system." in error_line(capsys)


@pytest.mark.slow
@pytest.mark.row("F4")
def test_a_second_signal_leaves_no_damaged_checkpoint(training, capsys):
    """Whatever it was doing; that it ends at once, tests of `Stop` show."""
    training.send_signal(signal.SIGTERM)
    time.sleep(0.01)
    training.send_signal(signal.SIGTERM)
    training.communicate(timeout=SECONDS)
    assert training.returncode == 143
    main(["verify", "run"])
    said = capsys.readouterr().out
    assert "config.toml: whole" in said and "is damaged" not in said
