"""Files of a cache: damage is found and removed."""

import pytest

from embedder.disk.cache_files import read_cache_file, write_cache_file

CONTENT = bytes(range(256)) * 5


@pytest.fixture
def path(tmp_path):
    write_cache_file(tmp_path / "file", CONTENT)
    return tmp_path / "file"


@pytest.mark.parametrize("content", [b"", b"x", CONTENT])
def test_what_was_written_is_read(tmp_path, content, caplog):
    write_cache_file(tmp_path / "file", content)
    assert read_cache_file(tmp_path / "file") == content
    assert not caplog.records


def test_a_missing_file_is_not_logged(tmp_path, caplog):
    assert read_cache_file(tmp_path / "file") is None
    assert not caplog.records


@pytest.mark.row("F28")
@pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 700])
def test_a_file_cut_short_is_logged_and_removed(path, size, caplog):
    path.write_bytes(path.read_bytes()[:size])
    assert read_cache_file(path) is None
    assert caplog.messages == [f"Cache file {path} is damaged: it is rebuilt."]
    assert not path.exists()


@pytest.mark.row("F28")
@pytest.mark.parametrize("offset", [0, 640, -1])
def test_a_flipped_bit_is_found(path, offset, caplog):
    changed = bytearray(path.read_bytes())
    changed[offset] ^= 1
    path.write_bytes(changed)
    assert read_cache_file(path) is None
    assert f"{path} is damaged" in caplog.text


def test_an_unreadable_file_is_logged_and_stays(tmp_path, caplog):
    (tmp_path / "file").mkdir()
    assert read_cache_file(tmp_path / "file") is None
    assert f"{tmp_path / 'file'} is not read (Is a directory)" in caplog.text
    assert (tmp_path / "file").exists()
