"""Numba's files: damage is found, disks that take no files are no error."""

import errno
import importlib.util
import os
import shutil
import sys
from pathlib import Path

import numba
import numba.core.caching
import numpy as np
import pytest

from embedder.disk.kernel_cache import cached_on_disk


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def compiled():
    """A function as a new process has it: it knows its files alone."""

    def add(array):
        return array + 1

    return cached_on_disk(numba.njit(add))


def added(function) -> tuple[int, int]:
    """Has it compiled; how often that was looked up in files, and found or not."""
    np.testing.assert_array_equal(function(np.arange(3)), [1, 2, 3])
    stats = function.stats
    return sum(stats.cache_hits.values()), sum(stats.cache_misses.values())


def test_what_was_compiled_is_found_again(folder, caplog):
    assert added(compiled()) == (0, 1)
    before = [path.read_bytes() for path in files(folder)]
    assert added(compiled()) == (1, 0)
    assert [path.read_bytes() for path in files(folder)] == before
    assert not caplog.records


def flipped(data: bytes) -> bytes:
    half = len(data) // 2
    return data[:half] + bytes([data[half] ^ 1]) + data[half + 1 :]


DAMAGES = {"cut": lambda x: x[:1000], "empty": lambda x: b"", "flipped": flipped}


@pytest.mark.row("F28")
@pytest.mark.parametrize("ending", ["nbi", "nbc"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_named_and_compiled_anew(folder, caplog, ending, damage):
    added(compiled())
    path = next(path for path in files(folder) if path.suffix == f".{ending}")
    whole = path.read_bytes()
    path.write_bytes(DAMAGES[damage](whole))
    is_damaged = path.read_bytes() != whole
    assert added(compiled()) == ((0, 1) if is_damaged else (1, 0))
    line = f"Cache file {path} is damaged: it is rebuilt."
    assert caplog.messages == [line] * is_damaged
    assert is_damaged or (damage, ending) == ("cut", "nbi")  # which is that short
    assert added(compiled()) == (1, 0)


@pytest.mark.row("F28")
@pytest.mark.parametrize("missing", ["*.nbc", "*"])
def test_files_that_are_missing_are_made_again(folder, caplog, missing):
    added(compiled())
    function = compiled()
    for path in filter(Path.is_file, list(folder.rglob(missing))):
        path.unlink()
    if missing == "*":
        shutil.rmtree(folder)
    assert added(function) == (0, 1)
    assert added(compiled()) == (1, 0)
    assert not caplog.records


@pytest.mark.row("F28")
@pytest.mark.parametrize("is_full", [True, False])
def test_a_full_disk_or_no_folder_is_said_and_no_error(
    folder, caplog, monkeypatch, is_full
):
    def fails(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    caplog.set_level("INFO")
    if is_full:
        function = compiled()
        monkeypatch.setattr(os, "replace", fails)
    else:
        locator = numba.core.caching._CacheLocator
        monkeypatch.setattr(locator, "ensure_cache_path", fails)
        function = compiled()
    assert added(function) == (0, 1)
    (message,) = caplog.messages
    if is_full:
        assert message.startswith(f"Compiled code is not kept: {folder}")
        assert "No space left on device" in message and not files(folder)
    else:
        expected = "No folder takes compiled code: it is not kept (NUMBA_CACHE_DIR)."
        assert message == expected


def test_copies_of_a_source_file_share_what_one_of_them_compiled(tmp_path, monkeypatch):
    """As two checkouts or environments do. Other sources, or another Numba, have a
    folder of their own."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    source = "def add(array):\n    return array + 1\n"
    found = []
    places = ("a", "", "1.0"), ("b", "", "1.0"), ("c", "other", "1.0"), ("d", "", "2.0")
    for place, beside, version in places:
        monkeypatch.setattr(numba, "__version__", version)
        path = tmp_path / place / "sums.py"
        path.parent.mkdir()
        path.write_text(source)
        path.with_name("beside.py").write_text(beside)
        spec = importlib.util.spec_from_file_location("sums", path)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "sums", module)
        spec.loader.exec_module(module)
        found.append(added(cached_on_disk(numba.njit(module.add))))
    assert found == [(0, 1), (1, 0), (0, 1), (0, 1)]
    folders = {path.parent for path in files(tmp_path) if path.suffix == ".nbc"}
    assert {each.parent for each in folders} == {tmp_path / "user/embedder/numba"}
    assert len(folders) == 3


@pytest.mark.row("F28")
def test_without_a_home_no_folder_of_that_name_is_made(own_folder, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # of no user
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.setattr(
        numba.core.caching.InTreeCacheLocator,
        "from_function",
        classmethod(lambda *arguments: None),
    )
    added(compiled())
    assert os.listdir() == []
