"""The folder of a run: what may be written where, and what is refused."""

import os
from pathlib import Path

import pytest

from embedder.config import Config, resolve
from embedder.disk import workdir as folder
from embedder.disk.run_record import RunInputs, write_inputs
from embedder.disk.workdir import Workdir

CONFIG = resolve(Config(), 1000)
MANIFEST = [{"file": "text.txt", "bytes": 3}]


@pytest.fixture
def run(tmp_path) -> Workdir:
    """A run that has begun."""
    run = Workdir(tmp_path / "run")
    run.path.mkdir()
    write_inputs(run, RunInputs(CONFIG, CONFIG, MANIFEST, source="text.txt"))
    return run


@pytest.mark.parametrize(
    ("name", "number"), [("unlink", 0), ("unlink", 2), ("rmdir", 1)]
)
def test_clearing_that_is_killed_can_be_done_again(run, monkeypatch, name, number):
    run.checkpoints.mkdir()
    run.events.mkdir()
    run.vectors.touch()
    before, calls = getattr(os, name), []

    def killed(path, *rest, **options):
        calls.append(path)
        if len(calls) > number:
            raise KeyboardInterrupt
        before(path, *rest, **options)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, name, killed)
        folder.clear(run)
    folder.check_free(run)
    (run.path / "notes.txt").touch()  # of others
    run.cache.mkdir()
    folder.clear(run)
    assert sorted(path.name for path in run.path.iterdir()) == ["cache", "notes.txt"]


@pytest.mark.parametrize("is_written_first", [True, False])
def test_a_run_that_begins_in_these_moments_is_no_folder_of_others(
    tmp_path, monkeypatch, is_written_first
):
    run = Workdir(tmp_path)
    part = tmp_path / ".corpus.json.0123abcd.tmp"
    part.touch()
    before = Path.iterdir

    def listing(path):
        if is_written_first:
            part.rename(run.corpus)
        listed = [*before(path)]
        if not is_written_first:
            part.rename(run.corpus)
        return iter(listed)

    monkeypatch.setattr(Path, "iterdir", listing)
    folder.check_free(run)


def test_folders_that_are_made_stay_unless_there_is_an_error(tmp_path):
    with folder.created_folder(tmp_path / "a" / "b"):
        pass
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "old").mkdir()
    with pytest.raises(KeyboardInterrupt):
        with folder.created_folder(tmp_path / "old" / "a" / "b"):
            (tmp_path / "old" / "a" / "b" / "file").touch()
            raise KeyboardInterrupt
    assert list((tmp_path / "old").iterdir()) == []
