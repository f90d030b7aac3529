"""The folder of a run: what may be written where, and what is refused."""

import os
from pathlib import Path

import pytest

from embedder.config import Config, resolve
from embedder.disk import workdir as folder
from embedder.disk.run_record import RunInputs, write_inputs
from embedder.disk.workdir import Workdir

CONFIG = resolve(Config(), 1000)


@pytest.fixture
def run(tmp_path) -> Workdir:
    """A run that has begun."""
    run = Workdir(tmp_path / "run")
    run.path.mkdir()
    manifest = [{"file": "text.txt", "bytes": 3}]
    write_inputs(run, RunInputs(CONFIG, CONFIG, manifest, source="text.txt"))
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
