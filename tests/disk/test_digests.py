"""Sums of files, and what is found to be damaged."""

import re
import subprocess

import pytest

from embedder.disk.digests import (
    check_file,
    check_folder,
    files_in,
    read_sums,
    write_sums,
)


@pytest.fixture
def folder(tmp_path):
    """Three files with their sums, one in a folder, one with blanks in its name."""
    (tmp_path / "in").mkdir()
    for name in ("a", "in/b", "c  d"):
        (tmp_path / name).write_text(f"this is {name}")
    write_sums(tmp_path, files_in(tmp_path))
    return tmp_path


def test_sums_are_those_of_sha256sum(folder):
    command = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(read_sums(folder)) == ["a", "c  d", "in/b"]
    check_folder(folder)


@pytest.mark.parametrize("name", ["a", "in/b", "c  d"])
def test_every_change_is_found(folder, name):
    path = folder / name
    data = path.read_bytes()
    path.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    with pytest.raises(ValueError, match=f"{re.escape(name)} is not what was written"):
        check_folder(folder)
    path.unlink()
    with pytest.raises(ValueError, match=f"{re.escape(name)} is missing"):
        check_folder(folder)


def test_a_file_without_a_sum_is_found(folder):
    (folder / "e").touch()
    with pytest.raises(ValueError, match="e is not what was written"):
        check_folder(folder)
    with pytest.raises(ValueError, match="e is not what was written"):
        check_file(folder / "e", read_sums(folder).get("e"))


def test_no_change_of_the_sums_goes_unnoticed(folder):
    path = folder / "SHA256SUMS"
    data = path.read_bytes()
    for at in range(len(data)):
        for changed in (data[:at], data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]):
            path.write_bytes(changed)
            with pytest.raises(ValueError):
                check_folder(folder)


@pytest.mark.parametrize("name", ["/etc/passwd", "../a", "in/../../a"])
def test_names_do_not_lead_out_of_the_folder(folder, name):
    (folder / "SHA256SUMS").write_text(f"{'0' * 64}  {name}\n")
    with pytest.raises(ValueError, match="SHA256SUMS is not what was written"):
        read_sums(folder)


def test_a_file_may_get_its_name_later(tmp_path):
    part = tmp_path / "part"
    part.write_text("x")
    write_sums(tmp_path, [tmp_path / "whole"], moved={tmp_path / "whole": part})
    assert [*read_sums(tmp_path)] == ["whole"]
    part.rename(tmp_path / "whole")
    check_folder(tmp_path)
