"""Files: whole or not there, and errors that name them."""

import pytest

from embedder.disk.files import errors_named, pack_strings, unpack_strings, whole_file


def test_whole_file_takes_its_place_when_it_is_whole(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with whole_file(path) as part:
        part.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_whole_file_leaves_the_old_one_after_an_error(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), whole_file(path) as part:
        part.write_text("half")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_strings_come_back_from_their_arrays():
    strings = ["a b", "", "\u00e4\u4e2d", "c"]
    assert unpack_strings(*pack_strings(strings)) == strings


def test_errors_named_gives_a_name_to_errors_without_one(tmp_path):
    with pytest.raises(OSError, match="No space left on device: .*run"):
        with errors_named(tmp_path / "run"):
            raise OSError(28, "No space left on device")


def test_errors_named_keeps_a_name(tmp_path):
    with pytest.raises(OSError, match="No space left on device: 'other'"):
        with errors_named(tmp_path / "run"):
            raise OSError(28, "No space left on device", "other")
