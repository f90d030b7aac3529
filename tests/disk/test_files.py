"""Atomic writes of files, and errors that name a file."""

import pytest

from embedder.disk.files import atomic_file, name_file_in_errors


def test_atomic_file_replaces_the_old_one(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with atomic_file(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_atomic_file_keeps_the_old_one_after_an_error(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), atomic_file(path) as temporary:
        temporary.write_text("half")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_errors_without_a_file_name_get_one(tmp_path):
    with pytest.raises(OSError, match="No space left on device: .*run"):
        with name_file_in_errors(tmp_path / "run"):
            raise OSError(28, "No space left on device")


def test_errors_with_a_file_name_keep_it(tmp_path):
    with pytest.raises(OSError, match="No space left on device: 'other'"):
        with name_file_in_errors(tmp_path / "run"):
            raise OSError(28, "No space left on device", "other")
