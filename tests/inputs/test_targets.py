"""What is written to is never a part of a run itself."""

import os
from pathlib import Path

import numpy as np
import pytest

from embedder.cli import main
from embedder.run.verify import verify
from tests.commands import error_line

FAST = ["--loader", "memory", "--vector-size", "4", "--min-count", "1"]
OWN = [
    *("RUN/model.npz", "RUN/vectors.safetensors", "RUN/vectors.txt"),
    *("RUN/vocab.parquet", "RUN/labels.parquet", "RUN/base.npz"),
    *("RUN/checkpoints/new.npz", "RUN/cache/new.bin", "RUN/tensorboard/new.txt"),
    *("RUN/../RUN/./model.npz", "link/model.npz", "linked.npz", "RUN/Model.npz"),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("targets")
    (folder / "text.txt").write_text("a b c d a c\n" * 20)
    run = folder / "RUN"
    options = [*FAST, "--epochs", "1", "--save-every", "1epoch"]
    assert (
        main(["train", str(folder / "text.txt"), "--workdir", str(run), *options]) == 0
    )
    (folder / "link").symlink_to(run)
    (folder / "linked.npz").symlink_to(run / "model.npz")
    return run


@pytest.fixture(autouse=True)
def own_folder(run, monkeypatch):
    monkeypatch.chdir(run.parent)


def content(run: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


@pytest.mark.row("B22")
@pytest.mark.parametrize("target", OWN)
def test_export_writes_over_no_part_of_a_run(run, capsys, target):
    before = content(run)
    assert main(["export", "RUN", "--to", target]) == 2
    message = f"`to` must not be a file of a run, got {os.path.normpath(target)}"
    assert message.replace("RUN/../", "") in error_line(capsys).replace("RUN/../", "")
    assert content(run) == before


@pytest.mark.row("B22")
@pytest.mark.parametrize("target", ["RUN/model.npz", "linked.npz", "RUN/config.toml"])
@pytest.mark.parametrize("source", ["RUN", "other.npz"])
def test_convert_writes_over_no_part_of_a_run(run, capsys, source, target):
    if source != "RUN":
        Path(source).write_bytes((run / "model.npz").read_bytes())
        target = "RUN/checkpoints"
    before = content(run)
    assert main(["convert", source, target, "--overwrite"]) == 2
    assert f"TARGET must not be a file of a run, got {target}" in error_line(capsys)
    assert content(run) == before


@pytest.mark.row("B22")
def test_embed_writes_over_no_part_of_a_run(capsys, tmp_path):
    x, y = np.eye(4, dtype=np.float32)[[0, 1] * 20], np.array([0, 1] * 20)
    np.savez(tmp_path / "data.npz", X=x, y=y)
    np.save(tmp_path / "new.npy", x)
    encoder = tmp_path / "ENCODER"
    command = ["train", str(tmp_path / "data.npz"), "--model", "encoder"]
    options = ["--workdir", str(encoder), "--loader", "memory", "--epochs", "1"]
    assert main([*command, *options]) == 0
    before = content(encoder)
    capsys.readouterr()
    for name in ("model.npz", "labels.parquet"):
        target = str(encoder / name)
        command = ["embed", str(encoder), str(tmp_path / "new.npy"), "--to", target]
        assert main(command) == 2
        assert f"`to` must not be a file of a run, got {target}" in error_line(capsys)
    assert content(encoder) == before


@pytest.mark.row("B22")
def test_other_names_in_a_run_are_free_and_it_stays_usable(run, capsys):
    for name in ("vectors.bin", "export/vectors.npz", "RUN.npz"):
        (run / name).parent.mkdir(exist_ok=True)
        assert main(["export", "RUN", "--to", f"RUN/{name}"]) == 0
    assert not [finding for finding in verify(run) if finding.fault]
    assert main(["train", "text.txt", "--workdir", "RUN", *FAST, "--overwrite"]) == 0
    assert (run / "vectors.bin").exists()


def test_a_folder_that_is_no_run_takes_any_name(run, tmp_path):
    (tmp_path / "config.toml").touch()  # of another program
    assert main(["export", "RUN", "--to", str(tmp_path / "model.npz")]) == 0
