"""Atomic creation of folders, and removal of unfinished ones."""

import errno
import fcntl
import json
import os
import socket
from pathlib import Path

import pytest

from embedder.disk.folders import (
    atomic_folder,
    remove_unfinished_folders,
    unfinished_folders,
)
from embedder.disk.lock import hold_lock


def leave_unfinished(parent: Path, name: str = "a") -> Path:
    """The temporary folder of a process that was killed while it wrote."""
    temporary = parent / f".{name}-01234567"
    temporary.mkdir()
    (temporary / "file").write_text("half")
    owner = {"pid": 99, "host": socket.gethostname()}
    temporary.with_name(f"{temporary.name}.lock").write_text(json.dumps(owner))
    return temporary


def test_a_folder_appears_when_it_is_complete(tmp_path):
    with atomic_folder(tmp_path / "new" / "a") as temporary:
        (temporary / "file").write_text("whole")
        assert not (tmp_path / "new" / "a").exists()
    assert (tmp_path / "new" / "a" / "file").read_text() == "whole"
    assert os.listdir(tmp_path / "new") == ["a"]


def test_a_failed_folder_is_removed(tmp_path):
    with pytest.raises(ZeroDivisionError), atomic_folder(tmp_path / "a") as temporary:
        (temporary / "file").write_text("half")
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == []


def test_an_existing_folder_stays(tmp_path):
    with atomic_folder(tmp_path / "a") as temporary:
        (temporary / "file").write_text("second")
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "file").write_text("first")
    assert (tmp_path / "a" / "file").read_text() == "first"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.row("F30")
@pytest.mark.parametrize("left", ["both", "folder", "lock"])
def test_the_folder_of_a_killed_process_is_logged_and_removed(tmp_path, caplog, left):
    caplog.set_level("INFO")
    temporary = leave_unfinished(tmp_path)
    if left == "folder":  # by a version without locks
        temporary.with_name(f"{temporary.name}.lock").unlink()
    if left == "lock":
        (temporary / "file").unlink()
        temporary.rmdir()
    (tmp_path / "other").mkdir()
    (tmp_path / ".other-file").touch()
    assert unfinished_folders(tmp_path) == [temporary]
    remove_unfinished_folders(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".other-file", "other"]
    assert f"{temporary} was not finished: it is removed." in caplog.text


@pytest.mark.row("F30")
def test_the_folder_of_a_live_process_stays(tmp_path, caplog):
    caplog.set_level("INFO")
    with atomic_folder(tmp_path / "a") as temporary:
        remove_unfinished_folders(tmp_path)
        assert temporary.is_dir()
        assert f"{temporary} is not finished and stays" in caplog.text
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.row("F30")
def test_the_folder_of_another_host_stays(tmp_path, caplog):
    caplog.set_level("INFO")
    temporary = leave_unfinished(tmp_path)
    owner = {"pid": 99, "host": "another"}
    temporary.with_name(f"{temporary.name}.lock").write_text(json.dumps(owner))
    remove_unfinished_folders(tmp_path)
    assert (temporary / "file").exists() and "stays" in caplog.text


@pytest.mark.row("F30")
@pytest.mark.parametrize("fault", ["no locks", "locks that exclude nobody"])
def test_nothing_is_removed_where_the_disk_has_no_locks(tmp_path, monkeypatch, fault):
    temporary = leave_unfinished(tmp_path)

    def flock(file, operation):
        if fault == "no locks":
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    remove_unfinished_folders(tmp_path)
    assert (temporary / "file").exists()


@pytest.mark.row("F30")
def test_a_folder_that_cannot_be_removed_is_no_error(tmp_path, monkeypatch, caplog):
    """A cache may be read-only."""
    caplog.set_level("INFO")
    temporary = leave_unfinished(tmp_path)

    def refuse(*arguments, **options):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("embedder.disk.folders.hold_lock", refuse)
    remove_unfinished_folders(tmp_path)
    assert temporary.exists() and "stays" in caplog.text


def test_the_parent_may_be_missing(tmp_path):
    remove_unfinished_folders(tmp_path / "none")
    assert unfinished_folders(tmp_path / "none") == []


def test_the_lock_is_that_of_lock_files(tmp_path):
    with atomic_folder(tmp_path / "a") as temporary:
        with pytest.raises(ValueError, match=f"in use by process {os.getpid()} of"):
            with hold_lock(temporary.with_name(f"{temporary.name}.lock")):
                pass
