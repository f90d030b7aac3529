"""Numba's files: damage is found, disks that take no files are no error."""

import errno
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import numba.core.caching
import numpy as np
import pytest

from embedder.engine.kernel_cache import kept

ROOT = Path(__file__).parents[2]


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

    return kept(numba.njit(add))


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


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:1000])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip(path: Path) -> None:
    changed = bytearray(path.read_bytes())
    changed[len(changed) // 2] ^= 1
    path.write_bytes(changed)


@pytest.mark.row("F28")
@pytest.mark.parametrize("ending", ["nbi", "nbc"])
@pytest.mark.parametrize("damage", [cut, empty, flip])
def test_damage_is_named_and_compiled_anew(folder, caplog, ending, damage):
    added(compiled())
    path = next(path for path in files(folder) if path.suffix == f".{ending}")
    whole = path.read_bytes()
    damage(path)
    is_damaged = path.read_bytes() != whole
    assert added(compiled()) == ((0, 1) if is_damaged else (1, 0))
    line = f"Cache file {path} is damaged: it is rebuilt."
    assert caplog.messages == [line] * is_damaged
    assert is_damaged or (damage, ending) == (cut, "nbi")  # which is that short
    assert added(compiled()) == (1, 0)


@pytest.mark.row("F28")
def test_data_that_is_missing_is_compiled_anew(folder, caplog):
    added(compiled())
    next(path for path in files(folder) if path.suffix == ".nbc").unlink()
    assert added(compiled()) == (0, 1)
    assert added(compiled()) == (1, 0)
    assert not caplog.records


@pytest.mark.row("F28")
def test_a_full_disk_is_said_and_no_error(folder, caplog, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    caplog.set_level("INFO")
    function = compiled()
    monkeypatch.setattr(os, "replace", full)
    assert added(function) == (0, 1)
    (message,) = caplog.messages
    assert message.startswith(f"Compiled code is not kept: {folder}")
    assert "No space left on device" in message
    assert not files(folder)


@pytest.mark.row("F28")
def test_a_folder_that_vanishes_is_made_again(folder):
    function = compiled()
    shutil.rmtree(folder)
    assert added(function) == (0, 1)
    assert added(compiled()) == (1, 0)


@pytest.mark.row("F28")
def test_no_folder_at_all_is_said_and_no_error(folder, caplog, monkeypatch):
    def refuse(self):
        raise PermissionError

    caplog.set_level("INFO")
    monkeypatch.setattr(numba.core.caching._CacheLocator, "ensure_cache_path", refuse)
    assert added(compiled()) == (0, 1)
    assert caplog.messages == [
        "No folder takes compiled code: it is not kept (NUMBA_CACHE_DIR)."
    ]


def test_copies_of_a_source_file_share_what_one_of_them_compiled(tmp_path, monkeypatch):
    """As two checkouts or environments do. Other sources, or another Numba, have a
    folder of their own."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    source = "def add(array):\n    return array + 1\n"
    found = []
    for place, beside, version in [
        ("a", "", "1.0"),
        ("b", "", "1.0"),
        ("c", "other", "1.0"),
        ("d", "", "2.0"),
    ]:
        monkeypatch.setattr(numba, "__version__", version)
        path = tmp_path / place / "sums.py"
        path.parent.mkdir()
        path.write_text(source)
        path.with_name("beside.py").write_text(beside)
        spec = importlib.util.spec_from_file_location("sums", path)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "sums", module)
        spec.loader.exec_module(module)
        found.append(added(kept(numba.njit(module.add))))
    assert found == [(0, 1), (1, 0), (0, 1), (0, 1)]
    folders = {path.parent for path in files(tmp_path) if path.suffix == ".nbc"}
    assert {each.parent for each in folders} == {tmp_path / "user/embedder/numba"}
    assert len(folders) == 3


@pytest.mark.row("F28")
def test_without_a_home_no_folder_of_that_name_is_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # of no user
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.setattr(
        numba.core.caching.InTreeCacheLocator,
        "from_function",
        classmethod(lambda *arguments: None),
    )
    added(compiled())
    assert os.listdir(tmp_path) == []


@pytest.mark.slow
@pytest.mark.row("F28")
def test_a_run_by_the_kernel_survives_a_damaged_cache(tmp_path, folder):
    (tmp_path / "text.txt").write_text("a b c d a c\n" * 40)
    command = [sys.executable, "-m", "embedder.cli", "train", "text.txt"]
    command += ["--backend", "numba", "--loader", "memory", "--vector-size", "8"]
    command += ["--min-count", "1", "--epochs", "1", "--overwrite", "--workdir", "run"]
    environment = {"PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(folder)}
    for _ in range(2):
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=os.environ | environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        for path in files(folder):
            cut(path)
    assert done.stderr.count(" is damaged: it is rebuilt.") >= 1
    assert "Traceback" not in done.stderr
