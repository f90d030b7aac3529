"""One process writes to a folder at a time."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from embedder.disk.lock import LockedError, held

ROOT = Path(__file__).parents[2]
HOLDER = """
import sys, time
from pathlib import Path
from embedder.disk.lock import held
with held(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    """A process that holds the lock of the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / ".lock")],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_the_file_says_who_holds_it_and_goes(tmp_path):
    with held(tmp_path / ".lock"):
        owner = json.loads((tmp_path / ".lock").read_text())
        assert owner == {"pid": os.getpid(), "host": socket.gethostname()}
    assert os.listdir(tmp_path) == []


def test_it_goes_with_an_error(tmp_path):
    with pytest.raises(KeyError), held(tmp_path / ".lock"):
        raise KeyError
    assert os.listdir(tmp_path) == []


def test_a_second_is_refused_with_the_first_ones_name(tmp_path, holder):
    message = f"{tmp_path} is in use by process {holder.pid} of host "
    with pytest.raises(LockedError, match=message), held(tmp_path / ".lock"):
        pass
    assert holder.poll() is None and (tmp_path / ".lock").exists()


def test_a_dead_ones_is_taken_over_and_said_so(tmp_path, holder, caplog):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (tmp_path / ".lock").exists()
    caplog.set_level("INFO")
    with held(tmp_path / ".lock"):
        assert json.loads((tmp_path / ".lock").read_text())["pid"] == os.getpid()
    assert f"Process {holder.pid}, which was writing to {tmp_path}" in caplog.text
    assert os.listdir(tmp_path) == []


def test_one_of_another_host_is_left_to_people(tmp_path):
    text = json.dumps({"pid": 12, "host": "another.example"})
    (tmp_path / ".lock").write_text(text)
    message = "may be in use by process 12 of host another.example: if that has ended"
    with pytest.raises(LockedError, match=message), held(tmp_path / ".lock"):
        pass
    assert (tmp_path / ".lock").read_text() == text


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "x", "host": ""}', "\0"])
def test_a_file_that_nobody_holds_and_nobody_can_read_is_taken(tmp_path, text):
    (tmp_path / ".lock").write_text(text)
    with held(tmp_path / ".lock"):
        pass
    assert os.listdir(tmp_path) == []


def test_a_disk_without_locks_is_said(tmp_path, monkeypatch, caplog):
    import errno
    import fcntl

    def flock(file, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with held(tmp_path / ".lock"):
        assert f"{tmp_path}: the disk has no locks" in caplog.text


def test_a_file_that_was_deleted_meanwhile_is_no_lock(tmp_path, monkeypatch):
    """Between opening and locking, the one before deletes the file."""
    import fcntl

    calls = []

    def flock(file, how, before=fcntl.flock):
        if not calls:
            (tmp_path / ".lock").unlink()
        calls.append(how)
        before(file, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with held(tmp_path / ".lock"):
        assert len(calls) == 2 and (tmp_path / ".lock").exists()
