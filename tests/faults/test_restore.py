"""From which checkpoint a run goes on, and from which it does not."""

import os
import shutil
from pathlib import Path

import pytest

from embedder.cli.main import main
from tests.commands import error_line, flip, train_runs

OPTIONS = ["--loader", "memory", "--vector-size", "4", "--min-count", "1"]
OPTIONS += ["--epochs", "3", "--sample", "0", "--save-every", "8"]
TEXT = "a b c d a c\n" * 200


@pytest.fixture(autouse=True)
def own_folder(own_folder):
    Path("text.txt").write_text(TEXT)


@pytest.fixture
def unfinished(stopped) -> list[int]:
    """A run that was stopped, and its checkpoints, the oldest first."""
    stopped("text.txt", "--workdir", "run", *OPTIONS)
    steps = sorted(int(path.name) for path in Path("run/checkpoints").iterdir())
    assert len(steps) == 2
    return steps


def train(*options: str) -> int:
    return main(["train", "text.txt", "--workdir", "run", *OPTIONS, *options])


def results(run: str | Path = "run") -> bytes:
    return Path(run, "model.npz").read_bytes()


@pytest.fixture(scope="module")
def expected(tmp_path_factory) -> bytes:
    """What a run makes that was never stopped."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "text.txt").write_text(TEXT)
    train_runs(folder, run=f"text.txt {' '.join(OPTIONS)}")
    return results(folder / "run")


@pytest.mark.spread(1)
@pytest.mark.row("F13", "F14")
@pytest.mark.parametrize("change", ["flip", "cut", "remove"])
def test_a_damaged_one_is_named_and_the_one_before_is_taken(
    unfinished, expected, capsys, change
):
    older, newer = unfinished
    folder = Path(f"run/checkpoints/{newer}")
    files = [p for p in folder.rglob("*") if p.is_file() and p.name != "SHA256SUMS"]
    path = max(files, key=lambda p: p.stat().st_size)
    if change == "flip":
        flip(path)
    else:
        data = path.read_bytes()[:-9]
        path.unlink()
        if change == "cut":
            path.write_bytes(data)
    assert main(["verify", "run"]) == 1
    assert f"checkpoints/{newer}: is damaged" in capsys.readouterr().out
    assert train() == 0
    said = capsys.readouterr().err
    assert f"checkpoints/{newer} is damaged (" in said
    assert f"Resumes after {older} updates" in said
    assert results() == expected


@pytest.mark.row("F14")
def test_a_step_that_is_asked_for_is_taken_and_no_other(unfinished, expected, capsys):
    older, newer = unfinished
    assert main(["train", "--workdir", "run", "--step", "7"]) == 2
    message = f"`step` must be of a checkpoint in {os.getcwd()}/run/checkpoints "
    assert f"{message}({older}, {newer}), got 7." in error_line(capsys)
    shutil.copytree("run", "copy")
    assert main(["train", "--workdir", "copy", "--step", str(older)]) == 0
    assert f"Resumes after {older} updates" in capsys.readouterr().err
    assert results("copy") == expected
    Path(f"run/checkpoints/{older}/facts/metadata").write_text("{")
    assert main(["train", "--workdir", "run", "--step", str(older)]) == 2
    assert f"checkpoints/{older} is damaged (" in error_line(capsys)
    assert not Path("run/model.npz").exists()
    assert main(["train", "--workdir", "copy", "--step", str(older)]) == 2
    assert "copy is finished" in error_line(capsys)


@pytest.mark.row("F15")
def test_a_checkpoint_of_another_run_is_refused(unfinished, capsys):
    shutil.move("run", "other")
    assert train("--seed", "6") == 0  # of the same sizes
    Path("run/vectors.safetensors").unlink()
    shutil.rmtree("run/checkpoints")
    shutil.move("other/checkpoints", "run/checkpoints")
    capsys.readouterr()
    assert train("--seed", "6") == 2
    assert "is of another training, `seed` 1 there, 6 now: give" in error_line(capsys)


@pytest.mark.row("B16")
def test_a_corpus_that_changed_is_refused_unless_forced(unfinished, expected, capsys):
    """Other tokens are refused even then."""
    Path("text.txt").write_text(TEXT.replace("d", "e"))
    assert train("--force") == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("embedder: The run was started with other words: ")
    assert not Path("run/model.npz").exists()
    Path("text.txt").write_text(TEXT + "\n")
    assert train() == 2
    sizes = f"text.txt of {len(TEXT)} bytes there, {len(TEXT) + 1} now"
    assert f"another corpus ({sizes}). Give" in error_line(capsys)
    assert train("--force") == 0
    assert "run was started with another corpus" in capsys.readouterr().err
    assert results() == expected


@pytest.mark.spread(1)
@pytest.mark.row("F2", "F3")
@pytest.mark.parametrize("name", ["900.orbax-checkpoint-tmp", "900"])
def test_what_was_being_written_is_named_removed_and_never_read(
    unfinished, expected, capsys, name
):
    """One checkpoint holds all that it takes: nothing else but settings is read."""
    newer = Path(f"run/checkpoints/{unfinished[-1]}")
    part = newer.with_name(name)
    shutil.copytree(newer, part)
    (part / "SHA256SUMS").unlink()
    assert main(["verify", "run"]) == 1
    assert f"checkpoints/{name}: was not finished" in capsys.readouterr().out
    Path("run/metrics.jsonl").unlink()
    for folder in ("tensorboard", "cache"):
        shutil.rmtree(f"run/{folder}")
    assert train() == 0
    said = capsys.readouterr().err
    assert f"{name} was not finished: it is removed." in said
    assert f"Resumes after {newer.name} updates" in said
    assert not part.exists() and results() == expected
