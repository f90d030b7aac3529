"""Digests of files, and the damage that they reveal."""

import re
import subprocess

import pytest

from embedder.disk.digests import (
    check_digest,
    check_digests,
    files_in,
    read_digests,
    write_digests,
)


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


@pytest.mark.parametrize("name", ["a", "in/b", "c  d"])
def test_every_change_is_found(folder, name):
    path = folder / name
    data = path.read_bytes()
    path.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    with pytest.raises(ValueError, match=f"{re.escape(name)} is not what was written"):
        check_digests(folder)
    path.unlink()
    with pytest.raises(ValueError, match=f"{re.escape(name)} is missing"):
        check_digests(folder)


def test_a_file_without_a_digest_is_damage(folder):
    (folder / "e").touch()
    with pytest.raises(ValueError, match="e is not what was written"):
        check_digests(folder)
    with pytest.raises(ValueError, match="e is not what was written"):
        check_digest(folder / "e", read_digests(folder).get("e"))


def test_every_change_of_the_digests_is_found(folder):
    path = folder / "SHA256SUMS"
    data = path.read_bytes()
    for at in range(len(data)):
        for changed in (data[:at], data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]):
            path.write_bytes(changed)
            with pytest.raises(ValueError):
                check_digests(folder)


@pytest.mark.parametrize("name", ["/etc/passwd", "../a", "in/../../a"])
def test_untrusted_names_stay_in_the_folder(folder, name):
    (folder / "SHA256SUMS").write_text(f"{'0' * 64}  {name}\n")
    with pytest.raises(ValueError, match="SHA256SUMS is not what was written"):
        read_digests(folder)


def test_a_file_may_be_renamed_later(tmp_path):
    temporary = tmp_path / "temporary"
    temporary.write_text("x")
    write_digests(
        tmp_path, [tmp_path / "whole"], temporary={tmp_path / "whole": temporary}
    )
    assert [*read_digests(tmp_path)] == ["whole"]
    temporary.rename(tmp_path / "whole")
    check_digests(tmp_path)
