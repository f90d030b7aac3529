"""Mirrors of runs: what is copied, who may write, and where a run goes on."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from embedder.cli.main import main
from embedder.disk import store
from embedder.disk.workdir import Workdir
from embedder.engine.checkpoints import Checkpoints
from embedder.run import mirror_files
from embedder.run.mirror import Mirror
from tests.commands import flip, json_lines, last_line

TABLES = ("corpus.txt", "--loader", "memory", "--epochs", "2", "--vector-size", "4")
TABLES += ("--min-count", "1", "--block", "32", "--blocks-per-update", "2")
ENCODER = ("examples.npz", "--model", "encoder", "--loader", "memory", "--epochs", "2")
ENCODER += ("--batch-size", "16", "--optimizer", "adam", "--no-report")


@pytest.fixture(autouse=True)
def data(own_folder, text_file):
    rng = np.random.default_rng(0)
    np.savez("examples.npz", X=rng.random((300, 6)), y=rng.integers(3, size=300))


def content(folder: str, names=("vectors.safetensors", "model.npz")) -> list[bytes]:
    return [Path(folder, name).read_bytes() for name in names]


def manifest(folder="mirror") -> mirror_files.Manifest:
    found = mirror_files.read_manifest(store.Store(folder, "`mirror`"))
    assert found is not None
    return found


def assert_whole(folder="mirror") -> None:
    """All that the manifest of a mirror names is there, and nothing else."""
    files = manifest(folder).files
    for name, entry in files.items():
        mirror_files.fetch(store.Store(folder, ""), entry, Path("fetched", name))
    there = {str(p.relative_to(folder)) for p in Path(folder).rglob("*") if p.is_file()}
    assert there == {entry.path for entry in files.values()} | {"mirror.json"}


@pytest.mark.spread(1)
@pytest.mark.parametrize("options", [TABLES, ENCODER], ids=["tables", "encoder"])
def test_a_run_goes_on_from_its_mirror(options, stopped, capsys):
    """With an empty folder, to the bits of a run that was never stopped."""
    assert main(["train", *options, "--workdir", "whole"]) == 0
    command = [*options, "--workdir", "run", "--mirror", "mirror"]
    stopped(*command)
    assert_whole()
    assert not manifest().finished and manifest().steps
    shutil.rmtree("run")
    assert main(["train", *command]) == 0
    shown = capsys.readouterr().err
    assert "mirror is further than run: the run goes on from it." in shown
    assert f"Resumes after {manifest().steps[-1]} updates" in shown
    assert content("run") == content("whole") == content("mirror")
    assert_whole()
    assert all(name == entry.path for name, entry in manifest().files.items())
    assert main(["verify", "mirror"]) == 0
    assert [line["epoch"] for line in json_lines("run/metrics.jsonl")] == [1, 2]
    shutil.rmtree("run")  # and it comes back when it is finished
    assert main(["train", *command]) == 0
    assert "finished before" in capsys.readouterr().out
    assert content("run") == content("mirror")
    assert main(["verify", "run"]) == main(["train", "--workdir", "run"]) == 0
    Path("run/vectors.txt").unlink(missing_ok=True)  # by its owner
    assert main(["train", *command]) == 0 and not Path("run/vectors.txt").exists()


def test_a_step_may_be_in_the_mirror_alone_which_may_be_at_a_url(stopped, capsys):
    url = "memory://bucket/run"
    stopped(*TABLES, "--workdir", "run", "--mirror", url, "--keep", "9")
    steps = [path.name for path in Path("run/checkpoints").iterdir()]
    shutil.rmtree("run")
    command = ["train", *TABLES, "--workdir", "run", "--mirror", url, "--step"]
    assert main([*command, "999"]) == 2
    line = last_line(capsys)
    assert "`step` must be of a checkpoint in" in line and steps[0] in line
    assert main([*command, steps[0]]) == 0
    assert f"Resumes after {steps[0]} updates" in capsys.readouterr().err
    assert main(["train", *TABLES, "--resume", url]) == 0


def test_a_mirror_may_have_the_times_of_another_machine(stopped, capsys):
    """The corpus was copied to the new machine, to another folder."""
    stopped(*TABLES, "--workdir", "run", "--mirror", "mirror")
    shutil.rmtree("run")
    Path("there").mkdir()
    Path("corpus.txt").rename("there/corpus.txt")
    os.utime("there/corpus.txt", (1, 1))
    there = "there/corpus.txt", *TABLES[1:]
    assert main(["train", *there, "--workdir", "run", "--mirror", "mirror"]) == 0
    assert "Resumes after" in capsys.readouterr().err
    assert main(["train", "--workdir", "run"]) == 0
    assert "finished before" in capsys.readouterr().out
    assert main(["verify", "run"]) == 0


@pytest.mark.slow
@pytest.mark.row("F43")
def test_a_folder_that_is_further_than_its_mirror_wins(stopped, capsys):
    options = *TABLES, "--epochs", "3", "--workdir", "run"
    stopped(*options, "--mirror", "mirror")
    stopped(*options, epoch=2)
    assert main(["train", *options, "--mirror", "mirror"]) == 0
    shown = capsys.readouterr().err
    assert "run is further than mirror: the run goes on from it." in shown
    assert content("run") == content("mirror")


@pytest.mark.slow
@pytest.mark.row("F43")
def test_the_mirror_of_another_run_is_refused(stopped, capsys):
    stopped(*TABLES, "--workdir", "run", "--mirror", "mirror")
    before = Path("mirror/mirror.json").read_bytes()
    other = ["train", *TABLES, "--window", "2", "--workdir", "new"]
    assert main([*other, "--mirror", "mirror"]) == 2
    assert last_line(capsys) == (
        "embedder: `mirror` mirror has a run with other settings: `window` 5 there, 2 "
        "now. Give the corpus and the settings of that run to go on with it, or "
        "another --mirror; --overwrite deletes it and starts anew."
    )
    Path("corpus.txt").write_text("a b c d\n" * 100)
    command = ["train", *TABLES, "--workdir", "new", "--mirror", "mirror"]
    assert main(command) == 2
    assert "another corpus" in last_line(capsys)
    assert main([*command, "--overwrite", "--step", "4"]) == 2
    assert "`step` must be of a run that resumes" in last_line(capsys)
    assert main([*command, "--step", "999"]) == 2
    assert Path("mirror/mirror.json").read_bytes() == before
    assert main([*command, "--overwrite"]) == 0
    assert content("new") == content("mirror")
    assert_whole()


@pytest.mark.slow
@pytest.mark.row("F43")
def test_a_damaged_checkpoint_of_a_mirror_is_left_out(stopped, capsys):
    options = *TABLES, "--save-every", "4"
    stopped(*options, "--workdir", "run", "--mirror", "mirror")
    assert main(["train", *options, "--workdir", "whole"]) == 0
    newest, older = manifest().steps
    flip(Path(f"mirror/checkpoints/{newest}/state/manifest.ocdbt"), 0)
    shutil.rmtree("run")
    command = ["train", *options, "--workdir", "run", "--mirror", "mirror"]
    assert main(command) == 0
    shown = capsys.readouterr().err
    assert f"checkpoint {newest} is left out" in shown
    assert f"Resumes after {older} updates" in shown
    assert content("run") == content("whole") == content("mirror")
    assert_whole()


@pytest.mark.row("F43")
@pytest.mark.parametrize("step", ["newest", "given"])
def test_a_folder_is_not_replaced_by_damaged_checkpoints(step, stopped, capsys):
    """The mirror claims to be further, but only its older checkpoint is whole."""
    options = *TABLES, "--save-every", "4", "--workdir", "run"
    stopped(*options, "--mirror", "mirror")
    newest, older = manifest().steps
    Path(f"mirror/checkpoints/{newest}/state/manifest.ocdbt").unlink()
    shutil.rmtree(f"run/checkpoints/{newest}")
    Path("run/checkpoints/mine").touch()  # as it is not replaced, this stays
    given = ["--step", str(newest)] if step == "given" else []
    code = main(["train", *options, "--mirror", "mirror", *given])
    shown = capsys.readouterr().err
    assert "mirror is damaged: the run goes on from run." in shown
    assert Path("run/checkpoints/mine").exists()
    if given:
        assert code == 2 and f"got {newest}." in shown
    else:
        assert code == 0 and f"Resumes after {older} updates" in shown
        assert_whole()


@pytest.mark.row("F43")
def test_a_damaged_file_of_a_mirror_is_refused(stopped, capsys):
    stopped(*TABLES, "--workdir", "run", "--mirror", "mirror")
    Path("mirror/vocab.parquet").write_bytes(b"x")
    shutil.rmtree("run")
    command = ["train", *TABLES, "--workdir", "run", "--mirror", "mirror"]
    assert main(command) == 2
    assert "mirror/vocab.parquet is not what was written: give" in last_line(capsys)
    assert not [path for path in Path("run").glob("*") if path.name != "cache"]


@pytest.mark.row("F43")
def test_a_mirror_that_fails_does_not_stop_the_training(monkeypatch, capsys):
    """Then the last line says so, and the same command brings it up to date."""
    before = store.Store._put

    def put(self, name, *arguments):
        if name != "mirror.json":
            raise OSError(28, "No space left on device", name)
        before(self, name, *arguments)

    command = ["train", *TABLES, "--workdir", "run", "--mirror", "mirror"]
    with monkeypatch.context() as patch:
        patch.setattr(store.Store, "_put", put)
        assert main(command) == 3
    captured = capsys.readouterr()
    assert "run: done." in captured.out
    assert "The mirror is behind; the run goes on." in captured.err
    assert captured.err.splitlines()[-1].startswith(
        "embedder: Mirror mirror is behind run: it has no checkpoint ([Errno 28] No "
        "space left on device"
    )
    assert main(command) == 0
    assert content("run") == content("mirror")
    assert_whole()


@pytest.mark.row("F43")
def test_another_process_that_takes_over_the_mirror_keeps_it(stopped):
    """The first one, which was thought dead, writes no manifest any more."""
    stopped(*TABLES, "--workdir", "run", "--mirror", "mirror")
    run = Workdir("run")
    first = Mirror("mirror", run)
    first._claim(first._manifest.files)
    assert main(["train", *TABLES, "--workdir", "other", "--mirror", "mirror"]) == 0
    assert main(["train", *TABLES, "--workdir", "run"]) == 0
    before = Path("mirror/mirror.json").read_bytes()
    first.start(Checkpoints(run.checkpoints))
    behind = first.close()
    assert "Another process writes to mirror now" in behind
    assert Path("mirror/mirror.json").read_bytes() == before
    assert_whole()


def test_checkpoints_that_are_copied_are_not_removed(tmp_path):
    written = []
    checkpoints = Checkpoints(tmp_path / "c", 1, lambda: written.append(1))
    checkpoints.folder.mkdir()
    arrays = {"x": np.arange(3)}
    checkpoints.save(1, arrays, {})
    checkpoints.wait()
    with checkpoints.held() as steps:
        assert steps == [1]
        checkpoints.save(2, arrays, {})
        checkpoints.wait()
        assert checkpoints.steps() == [2, 1]
    assert checkpoints.steps() == [2] and len(written) == 2


@pytest.mark.row("B30")
def test_no_secret_of_a_mirror_is_shown_or_written(capsys, monkeypatch):
    def fail(fs, path, *arguments, **options):
        raise OSError(f"{path} of memory://me:hunter2@bucket/run is away")

    url = "memory://me:hunter2@bucket/secret"
    command = ["train", *TABLES, "--workdir", "run", "--mirror", url]
    assert main(command) == 0
    monkeypatch.setattr("embedder.disk.remote._WAITS", ())
    monkeypatch.setattr("fsspec.implementations.memory.MemoryFileSystem._open", fail)
    assert main([*command, "--overwrite"]) == 2
    shown = capsys.readouterr()
    assert "memory://***@bucket/secret cannot be accessed" in shown.err
    assert "hunter2" not in shown.out + shown.err
    paths = [path for path in Path("run").rglob("*") if path.is_file()]
    assert paths and not [p for p in paths if b"hunter2" in p.read_bytes()]
