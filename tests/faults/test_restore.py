"""From which checkpoint a run goes on, and from which it does not."""

import json
import os
import shutil
from pathlib import Path

import pytest

from embedder.cli import main
from tests.commands import error_line

OPTIONS = ["--loader", "memory", "--vector-size", "4", "--min-count", "1"]
OPTIONS += ["--epochs", "9", "--sample", "0", "--save-every", "8"]


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("a b c d a c\n" * 200)


@pytest.fixture
def unfinished(stopped, capsys) -> list[int]:
    """A run that was stopped, and its checkpoints, the oldest first."""
    stopped("text.txt", "--workdir", "run", *OPTIONS)
    steps = sorted(int(path.name) for path in Path("run/checkpoints").iterdir())
    assert len(steps) == 2
    return steps


def train(*options: str) -> int:
    return main(["train", "text.txt", "--workdir", "run", *OPTIONS, *options])


def results(run: str = "run") -> bytes:
    return Path(run, "model.npz").read_bytes()


@pytest.fixture(scope="module")
def expected(tmp_path_factory) -> bytes:
    """What a run makes that was never stopped."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "text.txt").write_text("a b c d a c\n" * 200)
    command = ["train", str(folder / "text.txt"), "--workdir", str(folder / "run")]
    assert main([*command, *OPTIONS]) == 0
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
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes({"flip": data, "cut": data[:-9], "remove": b""}[change])
    if change == "remove":
        path.unlink()
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


@pytest.mark.row("F14")
@pytest.mark.parametrize("options", [[], ["--overwrite"]])
def test_a_step_of_nothing_is_refused(unfinished, capsys, options):
    run = "run" if options else "new"
    command = ["train", "text.txt", "--workdir", run, *OPTIONS, "--step", "7"]
    assert main([*command, *options]) == 2
    assert "`step` must be of a run that resumes, got 7: " in error_line(capsys)
    assert len(list(Path("run/checkpoints").iterdir())) == 2
    assert not Path("new").exists()


@pytest.mark.spread(1)
@pytest.mark.row("F15")
@pytest.mark.parametrize(
    ("options", "difference"),
    [
        (["--vector-size", "5"], "`vector_size` 4 there, 5 now"),
        (["--dtype", "float64"], "`dtype` 'float32' there, 'float64' now"),
        (["--seed", "2"], "`seed` 1 there, 2 now"),
        (["--min-count", "2"], "`min_count` 1 there, 2 now"),
    ],
)
def test_a_run_of_another_kind_is_refused_with_both_values(
    unfinished, capsys, options, difference
):
    assert train(*options) == 2
    assert difference in error_line(capsys)
    steps = sorted(int(path.name) for path in Path("run/checkpoints").iterdir())
    assert steps == unfinished


@pytest.mark.row("F15")
def test_a_checkpoint_of_another_run_is_refused(unfinished, capsys):
    shutil.move("run", "other")
    other = ["--seed", "6"]  # of the same sizes
    assert main(["train", "text.txt", "--workdir", "run", *OPTIONS, *other]) == 0
    Path("run/vectors.safetensors").unlink()
    shutil.rmtree("run/checkpoints")
    shutil.move("other/checkpoints", "run/checkpoints")
    capsys.readouterr()
    assert main(["train", "text.txt", "--workdir", "run", *OPTIONS, *other]) == 2
    assert "is of another training, `seed` 1 there, 6 now: give" in error_line(capsys)


@pytest.mark.slow
@pytest.mark.row("F16")
def test_another_mode_goes_on_and_says_that_bits_may_differ(unfinished, capsys):
    assert train("--mode", "sharded", "--devices", "1") == 0
    said = capsys.readouterr().err
    assert "Vectors may differ in their last bits" in said
    assert "layout: jit replicated 1 x 1, now sharded replicated 1 x 1" in said


@pytest.mark.row("B16")
def test_a_corpus_that_changed_is_refused_unless_forced(unfinished, expected, capsys):
    os.utime("text.txt")
    assert train() == 2
    assert "other settings: another corpus." in error_line(capsys)
    assert train("--force") == 0
    assert "run was started with another corpus" in capsys.readouterr().err
    assert results() == expected


@pytest.mark.row("B16")
def test_other_tokens_are_refused_even_then(unfinished, capsys):
    Path("text.txt").write_text("a b c e a c\n" * 200)
    assert train("--force") == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("embedder: The run was started with other words: ")
    assert not Path("run/model.npz").exists()


@pytest.mark.row("F2")
@pytest.mark.parametrize("name", ["900.orbax-checkpoint-tmp", "900"])
def test_what_was_being_written_is_named_removed_and_never_read(
    unfinished, expected, capsys, name
):
    newer = Path(f"run/checkpoints/{unfinished[-1]}")
    part = newer.with_name(name)
    shutil.copytree(newer, part)
    (part / "SHA256SUMS").unlink()
    assert main(["verify", "run"]) == 1
    assert f"checkpoints/{name}: was not finished" in capsys.readouterr().out
    assert train() == 0
    said = capsys.readouterr().err
    assert f"{name} was not finished: it is removed." in said
    assert f"Resumes after {newer.name} updates" in said
    assert not part.exists() and results() == expected


@pytest.mark.row("F3")
def test_one_item_holds_all_that_it_takes(unfinished, expected, capsys):
    """Nothing else of the run is read, but the settings: no two can be out of step."""
    for name in ("metrics.jsonl", "tensorboard", "cache"):
        path = Path("run", name)
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert train() == 0
    assert results() == expected


@pytest.mark.row("F1")
def test_the_curve_has_each_epoch_once(unfinished):
    assert train() == 0
    lines = Path("run/metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [*range(1, 10)]
