"""Folders that are whole or not there, and what is left of them."""

import errno
import fcntl
import json
import os
import socket
from pathlib import Path

import pytest

from embedder.disk.lock import held
from embedder.disk.parts import parts_in, remove_parts, whole_folder


def leave_part(place: Path, name: str = "a") -> Path:
    """What a process leaves that is killed while it writes the folder."""
    part = place / f".{name}-01234567"
    part.mkdir()
    (part / "file").write_text("half")
    owner = {"pid": 99, "host": socket.gethostname()}
    part.with_name(f"{part.name}.lock").write_text(json.dumps(owner))
    return part


def test_a_folder_gets_its_name_when_it_is_whole(tmp_path):
    with whole_folder(tmp_path / "new" / "a") as part:
        (part / "file").write_text("whole")
        assert not (tmp_path / "new" / "a").exists()
    assert (tmp_path / "new" / "a" / "file").read_text() == "whole"
    assert os.listdir(tmp_path / "new") == ["a"]


def test_a_folder_that_fails_leaves_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError), whole_folder(tmp_path / "a") as part:
        (part / "file").write_text("half")
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == []


def test_a_folder_that_is_there_already_stays(tmp_path):
    with whole_folder(tmp_path / "a") as part:
        (part / "file").write_text("second")
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "file").write_text("first")
    assert (tmp_path / "a" / "file").read_text() == "first"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.row("F30")
@pytest.mark.parametrize("left", ["both", "part", "lock"])
def test_what_a_dead_process_left_is_named_and_removed(tmp_path, caplog, left):
    caplog.set_level("INFO")
    part = leave_part(tmp_path)
    if left == "part":  # by a version without locks
        part.with_name(f"{part.name}.lock").unlink()
    if left == "lock":
        (part / "file").unlink()
        part.rmdir()
    (tmp_path / "other").mkdir()
    (tmp_path / ".other-file").touch()
    assert parts_in(tmp_path) == [part]
    remove_parts(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".other-file", "other"]
    assert f"{part} was not finished: it is removed." in caplog.text


@pytest.mark.row("F30")
def test_what_a_live_process_writes_stays(tmp_path, caplog):
    caplog.set_level("INFO")
    with whole_folder(tmp_path / "a") as part:
        remove_parts(tmp_path)
        assert part.is_dir()
        assert f"{part} is not finished and stays" in caplog.text
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.row("F30")
def test_what_another_host_may_be_writing_stays(tmp_path, caplog):
    caplog.set_level("INFO")
    part = leave_part(tmp_path)
    owner = {"pid": 99, "host": "another"}
    part.with_name(f"{part.name}.lock").write_text(json.dumps(owner))
    remove_parts(tmp_path)
    assert (part / "file").exists() and "stays" in caplog.text


@pytest.mark.row("F30")
@pytest.mark.parametrize("fault", ["no locks", "locks that exclude nobody"])
def test_nothing_is_removed_where_the_disk_has_no_locks(tmp_path, monkeypatch, fault):
    part = leave_part(tmp_path)

    def flock(file, operation):
        if fault == "no locks":
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    remove_parts(tmp_path)
    assert (part / "file").exists()


@pytest.mark.row("F30")
def test_a_part_that_cannot_be_removed_is_no_error(tmp_path, monkeypatch, caplog):
    """A cache may be one that is only read."""
    caplog.set_level("INFO")
    part = leave_part(tmp_path)

    def refuse(*arguments, **options):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("embedder.disk.parts.held", refuse)
    remove_parts(tmp_path)
    assert part.exists() and "stays" in caplog.text


def test_there_need_not_be_such_a_place(tmp_path):
    remove_parts(tmp_path / "none")
    assert parts_in(tmp_path / "none") == []


def test_the_lock_is_that_of_a_run(tmp_path):
    with whole_folder(tmp_path / "a") as part:
        with pytest.raises(ValueError, match=f"in use by process {os.getpid()} of"):
            with held(part.with_name(f"{part.name}.lock")):
                pass
