"""The folder of a run: what may be written where, and what is refused."""

import json
import os

import pytest

from embedder.config import Config, read_toml, resolve, with_options
from embedder.run import workdir as folder
from embedder.run.inputs import check_same, write_settings
from embedder.run.workdir import Workdir

CONFIG = resolve(Config(), 1000)
MANIFEST = [{"file": "text.txt", "bytes": 3}]


@pytest.fixture
def run(tmp_path) -> Workdir:
    """A run that has begun."""
    run = Workdir(tmp_path / "run")
    run.path.mkdir()
    write_settings(run, CONFIG, "text.txt", MANIFEST)
    return run


def test_workdir_is_started_with_settings_and_finished_with_vectors(run):
    assert run.is_started and not run.is_finished
    run.vectors.touch()
    assert run.is_finished


def test_write_settings_writes_what_is_read_again(run):
    assert read_toml(run.config) == CONFIG
    assert json.loads(run.corpus.read_text())["source"] == os.path.abspath("text.txt")
    assert sorted(p.name for p in run.path.iterdir()) == ["config.toml", "corpus.json"]


def test_check_free_takes_a_new_an_empty_and_a_begun_folder(tmp_path, run):
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "new", tmp_path / "empty", run.path):
        folder.check_free(Workdir(path))


def test_check_free_refuses_a_file_and_other_files(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError, match="`workdir` must be a folder, .*file"):
        folder.check_free(Workdir(tmp_path / "file"))
    with pytest.raises(FileExistsError, match="`workdir` must be a run, or empty"):
        folder.check_free(Workdir(tmp_path))


def test_check_same_takes_the_same_and_what_changes_no_vector(run):
    check_same(run, CONFIG, MANIFEST)
    check_same(run, with_options(CONFIG, loader="memory", workers=7), MANIFEST)


def test_check_same_names_each_difference(run):
    other = with_options(CONFIG, window=3, seed=9)
    with pytest.raises(ValueError, match="`seed` 1 there, 9 now, `window` 5 there, 3"):
        check_same(run, other, MANIFEST)


def test_check_same_refuses_another_corpus(run):
    with pytest.raises(ValueError, match="run with other settings: another corpus"):
        check_same(run, CONFIG, [{"file": "text.txt", "bytes": 4}])


@pytest.mark.parametrize("text", ["{", "[]", "{}", "3"])
def test_check_same_names_a_damaged_corpus_file(run, text):
    run.corpus.write_text(text)
    with pytest.raises(ValueError, match="corpus.json is damaged .*--overwrite"):
        check_same(run, CONFIG, MANIFEST)


def test_clear_removes_what_a_run_wrote_and_nothing_else(run):
    run.cache.mkdir()
    (run.path / "notes.txt").touch()
    run.vectors.touch()
    folder.clear(run)
    assert sorted(p.name for p in run.path.iterdir()) == ["cache", "notes.txt"]


@pytest.mark.parametrize(
    ("name", "number"),
    [("unlink", 0), ("unlink", 1), ("unlink", 2), ("rmdir", 0), ("rmdir", 1)],
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
    folder.clear(run)
    assert list(run.path.iterdir()) == []


def test_append_metrics_adds_a_line_of_json(run):
    folder.append_metrics(run, {"epoch": 1})
    folder.append_metrics(run, {"epoch": 2})
    lines = run.metrics.read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [1, 2]


def test_write_text_keeps_the_old_file_where_it_fails(run):
    before = run.config.read_text()
    with pytest.raises(UnicodeEncodeError):
        folder.write_text(run.config, "\ud800")
    assert run.config.read_text() == before
    assert sorted(p.name for p in run.path.iterdir()) == ["config.toml", "corpus.json"]


def test_made_makes_parents_that_stay(tmp_path):
    with folder.created_folder(tmp_path / "a" / "b"):
        pass
    assert (tmp_path / "a" / "b").is_dir()


def test_made_takes_back_only_what_it_made(tmp_path):
    (tmp_path / "old").mkdir()
    with pytest.raises(KeyboardInterrupt):
        with folder.created_folder(tmp_path / "old" / "a" / "b"):
            (tmp_path / "old" / "a" / "b" / "file").touch()
            raise KeyboardInterrupt
    assert list((tmp_path / "old").iterdir()) == []
    assert (tmp_path / "old").is_dir()
