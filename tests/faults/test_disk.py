"""Disks that are full, slow, or not what they should be; memory that ends."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from embedder.cli.main import main
from embedder.engine.checkpoints import Checkpoints
from tests.commands import error_line

OPTIONS = ["--loader", "memory", "--vector-size", "4", "--min-count", "1"]
OPTIONS += ["--epochs", "3", "--sample", "0"]
VECTORS = "run/vectors.safetensors"


@pytest.fixture(autouse=True)
def own_folder(own_folder):
    Path("text.txt").write_text("a b c d a c\n" * 200)


def train(*options: str, run: str = "run") -> int:
    return main(["train", "text.txt", "--workdir", run, *OPTIONS, *options])


def whole_vectors(*options: str) -> bytes:
    """Of a run that nothing happens to."""
    assert train(*options, run="whole") == 0
    return Path("whole/vectors.safetensors").read_bytes()


@pytest.mark.row("F12")
def test_a_folder_that_takes_no_files_is_said_before_training(capsys, monkeypatch):
    """Of checkpoints, in a run that goes on; of a disk that is mounted to be read, for
    which an error stands: root writes wherever it may."""
    whole_vectors()
    trains = "embedder.run.train_plan.run_epochs"
    monkeypatch.setattr(trains, lambda *_: pytest.fail("it trains"))
    Path("run").mkdir()
    Path("run/checkpoints").write_text("a file")
    for name in ("config.toml", "corpus.json"):
        shutil.copy(f"whole/{name}", "run")
    assert train() == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == "embedder: run/checkpoints: Not a directory."
    opened = os.open

    def no(path, flags, *rest, **options):
        if flags & os.O_CREAT and str(path).startswith("new"):
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", no)
    assert train(run="new") == 2
    assert "new/.lock: Permission denied." in error_line(capsys)
    assert not Path("new").exists()


def after_each_save(patch: pytest.MonkeyPatch, do) -> None:
    before = Checkpoints._forget

    def forget(self, *arguments):
        before(self, *arguments)
        do()

    patch.setattr(Checkpoints, "_forget", forget)


@pytest.mark.row("F12")
def test_checkpoints_that_vanish_are_made_anew(monkeypatch):
    """Somebody deletes the folder while the run goes on."""
    expected = whole_vectors()
    after_each_save(monkeypatch, lambda: shutil.rmtree("run/checkpoints"))
    assert train("--save-every", "1epoch") == 0
    assert Path(VECTORS).read_bytes() == expected


@pytest.mark.slow
@pytest.mark.row("F11")
def test_a_quota_ends_the_run_with_the_path_and_3_and_loses_nothing():
    expected = whole_vectors()
    limit = 'trap "" XFSZ; ulimit -f 3; exec "$@"'  # kilobytes of a file
    command = [sys.executable, "-m", "embedder.cli.main", "train", "text.txt", *OPTIONS]
    command = ["bash", "-c", limit, "sh", *command, "--workdir", "run"]
    command += ["--save-every", "20"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    assert re.search("embedder: .*run/.*: .*File too large", done.stderr)
    assert "Traceback" not in done.stderr
    assert train() == 0
    assert Path(VECTORS).read_bytes() == expected


@pytest.mark.slow
@pytest.mark.row("F11")
def test_a_full_disk_ends_the_run_with_3_and_a_larger_one_takes_it_up(
    tmp_path, capsys, request
):
    """Another program fills the disk, which only root can make, after a checkpoint."""
    expected, filler = whole_vectors("--epochs", "60"), Path("run/.filler.00000000.tmp")
    Path("run").mkdir()
    mount = "mount -t tmpfs -o size=300k tmpfs".split()
    if subprocess.run([*mount, str(tmp_path / "run")], capture_output=True).returncode:
        pytest.skip("a disk cannot be mounted here")
    request.addfinalizer(lambda: subprocess.run(["umount", str(tmp_path / "run")]))

    def fill() -> None:
        with open(filler, "ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))

    with pytest.MonkeyPatch.context() as patch:
        after_each_save(patch, fill)
        assert train("--save-every", "16", "--epochs", "60") == 3
    said = capsys.readouterr().err
    assert re.search("embedder: .*run.*: .*No space left on device", said)
    (kept,) = Checkpoints(Path("run/checkpoints")).steps()
    filler.unlink()
    assert train("--save-every", "never", "--epochs", "60") == 0
    assert f"Resumes after {kept} updates" in capsys.readouterr().err
    assert Path(VECTORS).read_bytes() == expected


@pytest.mark.row("F20")
def test_saves_on_a_slow_disk_never_overlap_and_that_is_said(monkeypatch, capsys):
    expected = whole_vectors()
    capsys.readouterr()
    writing, most, is_awaited = [], [], threading.Event()
    before, wait = Checkpoints._write, Checkpoints.wait

    def write(self, step, *rest):
        writing.append(step)
        most.append(len(writing))
        is_awaited.wait()
        before(self, step, *rest)
        writing.remove(step)

    def awaited(self):
        if not self.is_written():
            is_awaited.set()
        wait(self)

    monkeypatch.setattr(Checkpoints, "_write", write)
    monkeypatch.setattr(Checkpoints, "wait", awaited)
    assert train("--save-every", "1epoch") == 0
    assert len(most) == 3 and max(most) == 1
    assert "still being written: training waits" in capsys.readouterr().err
    assert Path(VECTORS).read_bytes() == expected


@pytest.mark.row("F19")
@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 9 GiB"),  # of NumPy, a device, the system
        RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9"),
        RuntimeError("can't start new thread"),
    ],
)
def test_memory_is_said_before_it_is_taken_and_where_it_ends(
    monkeypatch, capsys, error
):
    def run_epochs(*arguments):
        raise error

    monkeypatch.setattr("embedder.run.train_plan.run_epochs", run_epochs)
    assert train("--verbose") == 3
    said = "".join(capsys.readouterr())
    assert re.search(r"(?m)^memory: [0-9.]+ MiB \(tables ", said)
    assert re.search(r"(?m)^on each device: [0-9.]+ MiB \(tables ", said)
    assert re.search(rf"(?m)^embedder: .*{re.escape(str(error))}", said)
