"""Files and folders: written whole or not at all, and damage is found."""

import errno
import fcntl
import json
import os
import re
import socket
import subprocess
from pathlib import Path

import pytest

from embedder.disk.cache_files import read_cache_file, write_cache_file
from embedder.disk.digests import check_digests, files_in, read_digests, write_digests
from embedder.disk.files import atomic_file, name_file_in_errors
from embedder.disk.folders import (
    atomic_folder,
    remove_unfinished_folders,
    unfinished_folders,
)
from embedder.disk.workdir import Workdir, locked
from embedder.errors import InputError
from tests.commands import flip


def test_atomic_file_keeps_the_old_one_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), atomic_file(path) as temporary:
        temporary.write_text("half")
        raise KeyboardInterrupt
    assert path.read_text() == "old" and [*tmp_path.iterdir()] == [path]
    with atomic_file(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new" and [*tmp_path.iterdir()] == [path]


def test_a_file_that_is_replaced_keeps_its_mode(tmp_path):
    path = tmp_path / "file"
    path.touch()
    path.chmod(0o640)
    with atomic_file(path) as temporary:
        temporary.write_text("new")
    assert path.read_text() == "new" and path.stat().st_mode & 0o777 == 0o640


def test_a_named_pipe_is_written_into(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with subprocess.Popen(["cat", path], stdout=subprocess.PIPE) as reader:
        with atomic_file(path) as temporary:
            temporary.write_text("new")
        assert reader.communicate(timeout=60)[0] == b"new"
    assert path.is_fifo()


@pytest.mark.parametrize("name", ["v" * 255, "ä" * 127])
def test_a_name_may_be_as_long_as_the_system_takes(tmp_path, name):
    with atomic_file(tmp_path / name) as temporary:
        temporary.write_text("new")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_link_to_no_folder_is_named(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "no")
    for folder in (tmp_path / "link", tmp_path / "link" / "run"):
        with pytest.raises(InputError, match=r"link is a link to .*no, which does not"):
            with locked(Workdir(folder)):
                pass


@pytest.mark.parametrize("given", [(), ("other",)])
def test_errors_name_a_file(tmp_path, given):
    message = f"No space left on device: '{given[0] if given else tmp_path / 'run'}'"
    with pytest.raises(OSError, match=re.escape(message)):
        with name_file_in_errors(tmp_path / "run"):
            raise OSError(28, "No space left on device", *given)


# --- of a cache

CONTENT = bytes(range(256)) * 5


@pytest.mark.row("F28")
def test_a_damaged_file_of_a_cache_is_logged_and_removed(tmp_path, caplog):
    path = tmp_path / "file"
    assert read_cache_file(path) is None
    for content in (b"", b"x", CONTENT):
        write_cache_file(path, content)
        assert read_cache_file(path) == content
    assert not caplog.records
    whole = path.read_bytes()
    damaged = [whole[:size] for size in (0, 1, 31, 32, 33, 700)]
    for at in (0, 640, len(whole) - 1):
        damaged.append(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    for data in damaged:
        path.write_bytes(data)
        caplog.clear()
        assert read_cache_file(path) is None
        assert caplog.messages == [f"Cache file {path} is damaged: it is rebuilt."]
        assert not path.exists()
    path.mkdir()
    assert read_cache_file(path) is None and path.exists()
    assert f"{path} is not read (Is a directory)" in caplog.text


# --- digests


@pytest.fixture
def folder(tmp_path):
    """Three files with their digests: one in a subfolder, one with spaces in it."""
    (tmp_path / "in").mkdir()
    for name in ("a", "in/b", "c  d"):
        (tmp_path / name).write_text(f"this is {name}")
    write_digests(tmp_path, files_in(tmp_path))
    return tmp_path


def test_digests_have_the_format_of_sha256sum(folder):
    command = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(read_digests(folder)) == ["a", "c  d", "in/b"]
    check_digests(folder)


def test_every_change_of_the_digests_is_found(folder):
    path = folder / "SHA256SUMS"
    data = path.read_bytes()
    for at in range(len(data)):
        for changed in (data[:at], data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]):
            path.write_bytes(changed)
            with pytest.raises(ValueError):
                check_digests(folder)


@pytest.mark.parametrize("name", ["a", "in/b", "c  d"])
def test_every_change_of_a_file_is_found(folder, name):
    path = folder / name
    data = path.read_bytes()
    flip(path, 0)
    with pytest.raises(ValueError, match=f"{re.escape(name)} is not what was written"):
        check_digests(folder)
    path.unlink()
    with pytest.raises(ValueError, match=f"{re.escape(name)} is missing"):
        check_digests(folder)
    path.write_bytes(data)
    (folder / "new").touch()  # has no digest
    with pytest.raises(ValueError, match="new is not what was written"):
        check_digests(folder)


@pytest.mark.parametrize("name", ["/etc/passwd", "../a", "in/../../a"])
def test_untrusted_names_stay_in_the_folder(folder, name):
    (folder / "SHA256SUMS").write_text(f"{'0' * 64}  {name}\n")
    with pytest.raises(ValueError, match="SHA256SUMS is not what was written"):
        read_digests(folder)


# --- folders


def leave_unfinished(parent: Path, name: str = "a") -> Path:
    """The temporary folder of a process that was killed while it wrote."""
    temporary = parent / f".{name}-01234567"
    temporary.mkdir()
    (temporary / "file").write_text("half")
    owner = {"pid": 99, "host": socket.gethostname()}
    temporary.with_name(f"{temporary.name}.lock").write_text(json.dumps(owner))
    return temporary


def test_a_folder_appears_when_it_is_complete(tmp_path):
    """One that exists stays."""
    with pytest.raises(ZeroDivisionError), atomic_folder(tmp_path / "a") as temporary:
        (temporary / "file").write_text("half")
        raise ZeroDivisionError
    for text in ("first", "second"):
        with atomic_folder(tmp_path / "a") as temporary:
            (temporary / "file").write_text(text)
            assert (tmp_path / "a").exists() == (text == "second")
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
@pytest.mark.parametrize("fault", ["no locks", "locks that exclude nobody", "host"])
def test_nothing_is_removed_where_the_disk_has_no_locks(tmp_path, monkeypatch, fault):
    """Or of another host."""
    temporary = leave_unfinished(tmp_path)

    def flock(file, operation):
        if fault == "no locks":
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    if fault == "host":
        owner = json.dumps({"pid": 99, "host": "another"})
        temporary.with_name(f"{temporary.name}.lock").write_text(owner)
    else:
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
