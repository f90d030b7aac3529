"""Mirrors of runs: what is copied, who may write, and where a run goes on."""

import json
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

from embedder.cli import main
from embedder.disk import store
from embedder.disk.digests import read_digests
from embedder.engine import epochs
from embedder.errors import InputError
from embedder.run import inputs, mirror_files
from embedder.run import mirror as mirrors
from embedder.run.checkpoints import Checkpoints
from embedder.run.mirror import Mirror
from embedder.run.train import train
from embedder.run.workdir import Workdir

TABLES = ("corpus.txt", "--loader", "memory", "--epochs", "2", "--vector-size", "4")
TABLES += ("--min-count", "1", "--block", "32", "--blocks-per-update", "2")
ENCODER = ("examples.npz", "--model", "encoder", "--loader", "memory", "--epochs", "2")
ENCODER += ("--batch-size", "16", "--optimizer", "adam")


@pytest.fixture(autouse=True)
def data(tmp_path, text_file, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    np.savez("examples.npz", X=rng.random((300, 6)), y=rng.integers(3, size=300))


@pytest.fixture
def last_line(capsys):
    return lambda: capsys.readouterr().err.splitlines()[-1]


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
    lines = Path("run/metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [1, 2]


def test_a_finished_run_comes_back_from_its_mirror(capsys):
    command = ["train", *TABLES, "--workdir", "run", "--mirror", "mirror"]
    assert main(command) == 0
    shutil.rmtree("run")
    assert main(command) == 0
    assert "finished before" in capsys.readouterr().out
    assert content("run") == content("mirror")
    assert main(["verify", "run"]) == 0
    assert main(["train", "--workdir", "run"]) == 0


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
def test_a_mirror_in_memory_or_at_a_url_is_the_same(stopped):
    command = [*TABLES, "--workdir", "run", "--mirror", "memory://bucket/run"]
    stopped(*command)
    shutil.rmtree("run")
    assert main(["train", *command]) == 0
    assert main(["train", *TABLES, "--workdir", "whole"]) == 0
    assert content("run") == content("whole")
    assert main(["train", *TABLES, "--resume", "memory://bucket/run"]) == 0


@pytest.mark.slow
@pytest.mark.row("F43")
def test_a_folder_that_is_further_than_its_mirror_wins(stopped, capsys):
    options = *TABLES, "--epochs", "3", "--workdir", "run"
    stopped(*options, "--mirror", "mirror")
    shutil.copytree("run", "before")
    stopped(*options, epoch=2)
    command = ["train", *options, "--mirror", "mirror"]
    assert main(command) == 0
    shown = capsys.readouterr().err
    assert "run is further than mirror: the run goes on from it." in shown
    assert content("run") == content("mirror")
    shutil.rmtree("run")
    Path("before").rename("run")
    assert main(command) == 0
    captured = capsys.readouterr()
    assert "mirror is further than run" in captured.err
    assert "finished before" in captured.out


def test_a_step_may_be_in_the_mirror_alone(stopped, capsys, last_line):
    stopped(*TABLES, "--workdir", "run", "--mirror", "mirror", "--keep", "9")
    (step, *_) = manifest().steps
    shutil.rmtree("run")
    command = ["train", *TABLES, "--workdir", "run", "--mirror", "mirror", "--step"]
    assert main([*command, "999"]) == 2
    assert "`step` must be of a checkpoint in" in (line := last_line())
    assert f"({step})" in line
    assert main([*command, str(step)]) == 0
    assert f"Resumes after {step} updates" in capsys.readouterr().err


@pytest.mark.spread(7)
@pytest.mark.row("B34")
@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("", "`mirror` must be a folder, or a URL that can be written, such as"),
        ("-", "`mirror` must be a folder, or a URL that can be written"),
        ("https://example.org/run?sig=hunter2", "a URL that can be written"),
        ("s3://***@bucket/run", "`mirror` must be a folder, or a URL"),
        ("s3://bucket/*", "`mirror` must be without *, ? and [, got s3://bucket/*."),
        ("nope://bucket/run", "nope://bucket/run cannot be accessed: Protocol not"),
        ("zip://a::s3://b/c", "URLs within URLs (::) are not read"),
        ("run", "`mirror` must be outside of the workdir run, got run."),
        ("run/mirror", "`mirror` must be outside of the workdir run"),
        (".", "`mirror` must be outside of the workdir run"),
        ("corpus.txt", "`mirror` must be a folder, got the file corpus.txt."),
        ("a::b", "`mirror` must be without ::, got 'a::b'."),
        ("others", "`mirror` must be the mirror of a run, or empty, or new"),
    ],
)
def test_a_wrong_mirror_is_one_line(target, message, last_line):
    Path("others").mkdir()
    Path("others/photo.png").write_bytes(b"mine")
    assert main(["train", *TABLES, "--workdir", "run", "--mirror", target]) == 2
    line = last_line()
    assert line.startswith("embedder: ") and message in line
    assert "hunter2" not in line
    assert not Path("run").exists()
    assert Path("others/photo.png").read_bytes() == b"mine"


@pytest.mark.row("B34")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "mirror/mirror.json is damaged"),
        ("[]", "mirror/mirror.json is damaged"),
        ('{"format": 2}', "mirror/mirror.json is damaged"),
        ("../../escaped", "mirror/mirror.json is damaged"),
        ("/etc/passwd", "mirror/mirror.json is damaged"),
        (".lock", "mirror/mirror.json is damaged"),
        ("checkpoints/../../x", "mirror/mirror.json is damaged"),
        ("config.toml", "mirror/mirror.json is damaged"),  # without corpus.json
        (f"checkpoints/{'9' * 5000}/x", "mirror/mirror.json is damaged"),
    ],
)
def test_a_manifest_that_was_not_written_by_us_is_refused(text, message, last_line):
    Path("mirror").mkdir()
    if text[0] not in "{[":
        entry = {"path": "config.toml", "size": 1, "sha256": "0" * 64}
        values = {"format": 1, "writer": "", "finished": False, "files": {text: entry}}
        text = json.dumps(values)
    Path("mirror/mirror.json").write_text(text)
    assert main(["train", *TABLES, "--workdir", "run", "--mirror", "mirror"]) == 2
    assert message in last_line()
    assert not Path("run").exists()


@pytest.mark.slow
@pytest.mark.row("F43")
def test_the_mirror_of_another_run_is_refused(stopped, last_line):
    stopped(*TABLES, "--workdir", "run", "--mirror", "mirror")
    before = Path("mirror/mirror.json").read_bytes()
    other = ["train", *TABLES, "--window", "2", "--workdir", "new"]
    assert main([*other, "--mirror", "mirror"]) == 2
    assert last_line() == (
        "embedder: `mirror` mirror has a run with other settings: `window` 5 there, 2 "
        "now. Give the corpus and the settings of that run to go on with it, or "
        "another --mirror; --overwrite deletes it and starts anew."
    )
    Path("corpus.txt").write_text("a b c d\n" * 100)
    command = ["train", *TABLES, "--workdir", "new", "--mirror", "mirror"]
    assert main(command) == 2
    assert "another corpus" in last_line()
    assert Path("mirror/mirror.json").read_bytes() == before
    assert main([*command, "--overwrite"]) == 0
    assert content("new") == content("mirror")
    assert_whole()


@pytest.mark.row("F43")
def test_a_refused_command_leaves_the_mirror_as_it_is(stopped, last_line):
    stopped(*TABLES, "--workdir", "run", "--mirror", "mirror")
    before = Path("mirror/mirror.json").read_bytes()
    command = ["train", *TABLES, "--workdir", "new", "--mirror", "mirror"]
    assert main([*command, "--overwrite", "--step", "4"]) == 2
    assert "`step` must be of a run that resumes" in last_line()
    assert Path("mirror/mirror.json").read_bytes() == before


@pytest.mark.slow
def test_a_finished_run_is_not_replaced(capsys):
    """Also if its owner has deleted its checkpoints."""
    options = *TABLES, "--save-every", "4", "--workdir", "run", "--mirror", "mirror"
    assert main(["train", *options]) == 0
    assert manifest().steps
    shutil.rmtree("run/checkpoints")
    Path("run/vectors.txt").unlink()
    capsys.readouterr()
    assert main(["train", *options]) == 0
    assert "further" not in capsys.readouterr().err
    assert not Path("run/vectors.txt").exists()
    assert_whole()


def test_sweeps_and_parity_have_no_mirror(last_line):
    for verb, hint in (("sweep", ", did you mean `--report`?"), ("parity", ".")):
        assert main([verb, "--mirror", "mirror"]) == 2
        assert last_line() == f"embedder: Unknown option `--mirror`{hint}"


@pytest.mark.slow
@pytest.mark.row("F43")
@pytest.mark.parametrize("change", ["flip", "remove"])
def test_a_damaged_checkpoint_of_a_mirror_is_left_out(change, stopped, capsys):
    options = *TABLES, "--save-every", "4"
    stopped(*options, "--workdir", "run", "--mirror", "mirror")
    assert main(["train", *options, "--workdir", "whole"]) == 0
    newest, older = manifest().steps
    path = Path(f"mirror/checkpoints/{newest}/state/manifest.ocdbt")
    if change == "flip":
        path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])
    else:
        path.unlink()
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
def test_data_are_replaced_in_a_run_killed_before_its_last_file(stopped):
    """SHA256SUMS names its results already, which are not there."""
    stopped(*TABLES, "--workdir", "run")
    run = Workdir("run")
    run.sums.write_text(run.sums.read_text() + f"{'0' * 64}  vectors.safetensors\n")
    inputs.replace_data(run, "there.txt", [])
    inputs.check_sound(run)
    assert inputs.source_of(run) == os.path.abspath("there.txt")
    assert "vectors.safetensors" not in read_digests(run.path)


@pytest.mark.row("F43")
def test_a_manifest_whose_answer_was_lost_stays_true(stopped, monkeypatch):
    """It is there though writing it failed: the next copy overwrites no file of it."""

    def copy() -> str:
        with open(run.metrics, "a") as file:
            file.write("{}\n")
        mirror.start(Checkpoints(run.checkpoints))
        return mirror.close()

    def put(self, name, *arguments):
        if name == "mirror.json":
            raise OSError("killed")
        before(self, name, *arguments)

    stopped(*TABLES, "--workdir", "run", "--mirror", "mirror")
    run, before = Workdir("run"), store.Store._put
    mirror = Mirror("mirror", run)
    mirror._claim(mirror._manifest.files)
    assert copy() == ""
    known = mirror._manifest
    assert copy() == ""
    entry = manifest().files["metrics.jsonl"]
    assert entry.path == "metrics.jsonl" != known.files["metrics.jsonl"].path
    mirror._manifest = known
    monkeypatch.setattr(store.Store, "_put", put)
    assert "killed" in copy()
    assert manifest().files["metrics.jsonl"] == entry
    mirror_files.fetch(store.Store("mirror", ""), entry, Path("fetched"))


@pytest.mark.row("F43")
def test_a_damaged_file_of_a_mirror_is_refused(stopped, last_line):
    stopped(*TABLES, "--workdir", "run", "--mirror", "mirror")
    Path("mirror/vocab.parquet").write_bytes(b"x")
    shutil.rmtree("run")
    command = ["train", *TABLES, "--workdir", "run", "--mirror", "mirror"]
    assert main(command) == 2
    assert "mirror/vocab.parquet is not what was written: give" in last_line()
    assert not [path for path in Path("run").glob("*") if path.name != "cache"]


@pytest.mark.slow
@pytest.mark.row("F43")
def test_a_killed_copy_leaves_the_older_manifest_true(stopped, monkeypatch):
    """After each number of writes: all that the manifest names is whole."""
    stopped(*TABLES, "--workdir", "run", "--mirror", "first")
    assert main(["train", *TABLES, "--workdir", "run"]) == 0
    num_writes, before = 0, store.Store._put
    for at in range(1000):
        shutil.rmtree("mirror", ignore_errors=True)
        shutil.copytree("first", "mirror")
        count = 0

        def put(self, name, *arguments, at=at):
            nonlocal count
            count += 1
            if count > at:
                raise OSError("killed")
            before(self, name, *arguments)

        monkeypatch.setattr(store.Store, "_put", put)
        code = main(["train", *TABLES, "--workdir", "run", "--mirror", "mirror"])
        for name, entry in manifest().files.items():
            fetched = Path("fetched", name)
            mirror_files.fetch(store.Store("mirror", ""), entry, fetched)
        num_writes += 1
        if code == 0:
            break
    assert num_writes > 10
    assert_whole()


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
def test_a_stop_says_that_the_mirror_is_behind(monkeypatch, capsys):
    def tell(self, place, *rest):
        if place.epoch == 1:
            signal.raise_signal(signal.SIGTERM)
        return before(self, place, *rest)

    def put(self, name, *arguments):
        if "/" in name:
            raise OSError("away")
        write(self, name, *arguments)

    before, write = epochs._Reporter._status, store.Store._put
    monkeypatch.setattr(epochs._Reporter, "_status", tell)
    monkeypatch.setattr(store.Store, "_put", put)
    assert main(["train", *TABLES, "--workdir", "run", "--mirror", "mirror"]) == 143
    line = capsys.readouterr().err.splitlines()[-1]
    assert "updates, which are saved. Mirror mirror is behind run: it has no" in line


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


def test_a_bug_in_the_copying_ends_the_run_as_one(monkeypatch, capsys):
    def fail(self):
        raise ZeroDivisionError

    monkeypatch.setattr(mirrors.Mirror, "_copy", fail)
    assert main(["train", *TABLES, "--workdir", "run", "--mirror", "mirror"]) == 70
    assert "copying failed (ZeroDivisionError). The mirror" in capsys.readouterr().err


@pytest.mark.slow
def test_train_of_python_takes_a_mirror(text_file):
    from embedder.config import Config, with_options

    config = with_options(Config(), epochs=1, vector_size=4, loader="memory")
    options = {"source": str(text_file), "mirror": Path("mirror")}
    vectors = train(config, "run", **options)
    shutil.rmtree("run")
    again = train(config, "run", **options)
    np.testing.assert_array_equal(vectors.matrix, again.matrix)
    with pytest.raises(InputError, match="other settings"):
        train(with_options(config, seed=2), "new", **options)


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
