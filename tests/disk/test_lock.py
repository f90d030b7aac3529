"""One process writes to a folder at a time."""

import errno
import fcntl
import json
import os
import socket
from pathlib import Path

import pytest

from embedder.disk import lock
from embedder.disk.lock import LockedError, hold_lock


def test_the_lock_file_names_its_owner_and_is_removed(tmp_path):
    """After an error, too."""
    with pytest.raises(KeyError), hold_lock(tmp_path / ".lock"):
        owner = json.loads((tmp_path / ".lock").read_text())
        here = {"pid": os.getpid(), "host": socket.gethostname()}
        assert owner == {**here, "boot": lock._boot_id()}
        raise KeyError
    assert os.listdir(tmp_path) == []


BOOT = "5f0c1f58-8d8f-4b0e-9a53-6f6f6bb6a6b1"
MOUNTS = """\
22 1 254:0 / / rw,relatime - {root} /dev/vda rw
30 22 0:33 / /mnt rw shared:1 - nfs4 server:/home rw
31 22 0:33 / {folder} rw shared:1 master:2 - {kind} source rw
"""


@pytest.fixture
def disk(tmp_path, monkeypatch):
    """A function that sets the file system of a folder, and returns its lock file."""
    folder = tmp_path / "with a space"
    folder.mkdir()

    def on_file_system(kind: str, root: str = "nfs") -> Path:
        text = MOUNTS.format(
            folder=str(folder).replace(" ", "\\040"), kind=kind, root=root
        )
        (tmp_path / "mounts").write_text(text)
        (tmp_path / "boot").write_text(BOOT + "\n")
        monkeypatch.setattr(lock, "_MOUNTS", tmp_path / "mounts")
        monkeypatch.setattr(lock, "_BOOT_ID", tmp_path / "boot")
        return folder / ".lock"

    return on_file_system


def write_owner(path: Path, **owner) -> None:
    path.write_text(json.dumps({"pid": 12, "host": "another.example"} | owner))


@pytest.mark.row("F29")
@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "overlay", "tmpfs"])
def test_a_lock_of_the_same_boot_is_taken_over_whatever_its_host(disk, kind, caplog):
    path = disk(kind)
    write_owner(path, boot=BOOT)
    caplog.set_level("INFO")
    with hold_lock(path):
        assert json.loads(path.read_text())["boot"] == BOOT
    assert f"Process 12, which was writing to {path.parent}, has ended" in caplog.text


@pytest.mark.row("F29")
@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "fuse.sshfs", "9p", "", "new"])
def test_a_lock_on_a_network_disk_is_not_taken_over(disk, kind):
    path = disk(kind, root="ext4")
    write_owner(path, boot=BOOT)
    message = f"give --force-lock, or delete {path}"
    with pytest.raises(LockedError, match=message), hold_lock(path):
        pass
    with hold_lock(path, force=True):
        pass
    assert not path.exists()


@pytest.mark.row("F29")
@pytest.mark.parametrize("unknown", ["owner's boot", "boot", "disk", "locks"])
def test_a_lock_of_perhaps_another_machine_is_not_taken_over(
    disk, monkeypatch, caplog, unknown
):
    """And that a disk has no locks is logged."""

    def flock(file, how):
        raise OSError(errno.ENOLCK, "No locks available")

    path = disk("ext4")
    for owner in ("", "another") if unknown == "owner's boot" else ("", BOOT):
        write_owner(path, boot=owner)
        if unknown in ("boot", "disk"):
            name = {"boot": "_BOOT_ID", "disk": "_MOUNTS"}[unknown]
            monkeypatch.setattr(lock, name, Path("/nowhere"))
        if unknown == "locks":
            monkeypatch.setattr(fcntl, "flock", flock)
        message = "may be in use by process 12 of host another.example: if that has"
        with pytest.raises(LockedError, match=message), hold_lock(path):
            pass
        assert path.exists()
    path.unlink()
    with hold_lock(path):
        message = f"{path.parent}: the disk has no locks"
        assert (message in caplog.text) == (unknown == "locks")


@pytest.mark.parametrize("text", ["", "{", "[]", "1", '{"pid": "x", "host": ""}', "\0"])
def test_a_damaged_lock_file_that_nobody_holds_is_taken_over(tmp_path, text):
    (tmp_path / ".lock").write_text(text)
    with hold_lock(tmp_path / ".lock"):
        pass
    assert os.listdir(tmp_path) == []


def test_a_lock_file_deleted_before_it_is_locked_is_opened_again(tmp_path, monkeypatch):
    """Its former owner deletes it between our opening and locking it."""
    calls = []

    def flock(file, how, before=fcntl.flock):
        if not calls:
            (tmp_path / ".lock").unlink()
        calls.append(how)
        before(file, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with hold_lock(tmp_path / ".lock"):
        assert len(calls) == 2 and (tmp_path / ".lock").exists()
