"""Disks that are full, slow, or not what they should be."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from embedder.cli import main
from embedder.limits import Limit
from embedder.run import checkpoints as checkpoint
from tests.commands import error_line

OPTIONS = ["--loader", "memory", "--vector-size", "4", "--min-count", "1"]
OPTIONS += ["--epochs", "3", "--sample", "0"]
FILLER = ".filler.00000000.tmp"


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("a b c d a c\n" * 200)


def train(*options: str) -> int:
    return main(["train", "text.txt", "--workdir", "run", *OPTIONS, *options])


def whole_vectors(*options: str) -> bytes:
    """Of a run that nothing happens to."""
    command = ["train", "text.txt", "--workdir", "whole", *OPTIONS, *options]
    assert main(command) == 0
    return Path("whole/vectors.safetensors").read_bytes()


@pytest.mark.row("F12")
def test_no_folder_for_checkpoints_is_said_before_training(capsys, monkeypatch):
    """Neither in a new run nor in one that goes on."""
    whole_vectors()
    capsys.readouterr()
    Path("run").mkdir()
    Path("run/checkpoints").write_text("a file")
    monkeypatch.setattr(
        "embedder.run.loop.run_epochs", lambda *_: pytest.fail("it trains")
    )
    assert train() == 2
    message = "`workdir` must be a run, or empty, or new: run holds other files."
    assert message in error_line(capsys)
    for name in ("config.toml", "corpus.json"):
        shutil.copy(f"whole/{name}", "run")
    assert train() == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == "embedder: run/checkpoints: Not a directory."


@pytest.mark.row("F12")
def test_a_workdir_that_is_a_file_is_said_before_training(capsys):
    Path("run").touch()
    assert train() == 2
    assert "`workdir` must be a folder, got the file run." in error_line(capsys)


@pytest.mark.row("F12")
def test_a_folder_that_takes_no_files_is_said_before_training(capsys, monkeypatch):
    """Stands for a disk that is mounted to be read: root writes wherever it may."""
    opened = os.open

    def no(path, flags, *rest, **options):
        if flags & os.O_CREAT and str(path).startswith("run"):
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", no)
    assert train() == 2
    assert "run/.lock: Permission denied." in error_line(capsys)
    assert not Path("run").exists()


@pytest.mark.row("F12")
def test_checkpoints_that_vanish_are_made_anew(monkeypatch, capsys):
    """Somebody deletes the folder while the run goes on."""
    expected = whole_vectors()
    written = checkpoint.Checkpoints._forget

    def forget(self, *arguments):
        written(self, *arguments)
        subprocess.run(["rm", "-r", str(self.folder)], check=True)

    monkeypatch.setattr(checkpoint.Checkpoints, "_forget", forget)
    assert train("--save-every", "1epoch") == 0
    assert Path("run/vectors.safetensors").read_bytes() == expected


def limited(size: int, *options: str) -> subprocess.CompletedProcess[str]:
    """`embedder train` whose files may have `size` kilobytes."""
    limit = 'trap "" XFSZ; ulimit -f "$0"; exec "$@"'
    command = [sys.executable, "-m", "embedder.cli", "train", "text.txt"]
    return subprocess.run(
        ["bash", "-c", limit, str(size), *command, "--workdir", "run"]
        + [*OPTIONS, *options],
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.row("F11")
def test_a_quota_ends_the_run_with_the_path_and_3_and_loses_nothing():
    expected = whole_vectors()
    done = limited(3, "--save-every", "20")
    assert done.returncode == 3, done.stderr
    assert re.search("embedder: .*run/.*: .*File too large", done.stderr)
    assert "Traceback" not in done.stderr
    assert train() == 0
    assert Path("run/vectors.safetensors").read_bytes() == expected


@pytest.fixture
def small_disk(tmp_path):
    """A disk of its own at `run`, of 300 kB; only root can make one."""
    Path("run").mkdir()
    command = "mount -t tmpfs -o size=300k tmpfs".split() + [str(tmp_path / "run")]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("a disk cannot be mounted here")
    yield tmp_path / "run"
    subprocess.run(["umount", str(tmp_path / "run")], check=True)


@pytest.mark.slow
@pytest.mark.row("F11")
def test_a_full_disk_ends_the_run_with_3_and_a_larger_one_takes_it_up(
    small_disk, capsys
):
    """Another program fills the disk after the first checkpoint."""
    expected = whole_vectors("--epochs", "60")
    before = checkpoint.Checkpoints._forget

    def fill(self, *arguments):
        before(self, *arguments)
        with open(small_disk / FILLER, "ab", buffering=0) as file:
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(4096))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint.Checkpoints, "_forget", fill)
        assert train("--save-every", "16", "--epochs", "60") == 3
    captured = capsys.readouterr()
    assert re.search("embedder: .*run.*: .*No space left on device", captured.err)
    (kept,) = checkpoint.Checkpoints(small_disk / "checkpoints").steps()
    os.unlink(small_disk / FILLER)
    assert train("--save-every", "never", "--epochs", "60") == 0
    assert f"Resumes after {kept} updates" in capsys.readouterr().err
    assert Path("run/vectors.safetensors").read_bytes() == expected


@pytest.mark.row("F20")
def test_saves_on_a_slow_disk_never_overlap_and_that_is_said(monkeypatch, capsys):
    expected = whole_vectors()
    capsys.readouterr()
    writing, most = [], []
    before = checkpoint.Checkpoints._write

    def write(self, step, *rest):
        writing.append(step)
        most.append(len(writing))
        time.sleep(0.3)
        before(self, step, *rest)
        writing.remove(step)

    monkeypatch.setattr(checkpoint.Checkpoints, "_write", write)
    assert train("--save-every", "1epoch") == 0
    assert len(most) == 3 and max(most) == 1
    assert "still being written: training waits" in capsys.readouterr().err
    assert Path("run/vectors.safetensors").read_bytes() == expected


@pytest.mark.row("F19")
def test_what_memory_cannot_hold_is_refused_before_anything_is_written(capsys):
    assert train("--vector-size", "1000000000") == 2
    line = error_line(capsys)
    assert re.search("need [0-9.]+ GiB .*, and it has [0-9.]+ GiB", line)
    assert not Path("run").exists()


@pytest.mark.row("F19")
@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 9 GiB"),
        RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9"),
        RuntimeError("can't start new thread"),
    ],
)
def test_memory_that_ends_while_it_trains_is_one_line(monkeypatch, capsys, error):
    """Of NumPy, of a device, of the system."""

    def run_epochs(*arguments):
        raise error

    monkeypatch.setattr("embedder.run.loop.run_epochs", run_epochs)
    assert train() == 3
    assert str(error) in error_line(capsys)


@pytest.mark.row("F19")
@pytest.mark.parametrize("options", ["--dry-run", "--verbose"])
def test_memory_is_said_before_it_is_taken(capsys, options):
    assert train(options) == 0
    said = "".join(capsys.readouterr())
    assert re.search(r"(?m)^memory: [0-9.]+ MiB \(tables ", said)
    assert re.search(r"(?m)^on each device: [0-9.]+ MiB \(tables ", said)


@pytest.mark.row("F33")
@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("memory", "must fit in the 0.0 MiB of its container (/sys/fs/cgroup/memory."),
        (
            "devices",
            "and it has 0.0 MiB of its container (/sys/fs/cgroup/memory.max): ",
        ),
    ],
)
def test_the_limit_of_a_container_is_what_a_run_must_fit_in(
    capsys, monkeypatch, module, message
):
    limit = Limit(1000, "its container (/sys/fs/cgroup/memory.max)")
    monkeypatch.setattr(f"embedder.engine.{module}.memory_limit", lambda: limit)
    assert train() == 2
    assert message in error_line(capsys)
    assert not Path("run").exists()
