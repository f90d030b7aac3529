"""Odd paths work, or their fault is said."""

import os
from pathlib import Path

import pytest

from embedder.cli import main
from tests.commands import error_line

FAST = ["--loader", "memory", "--vector-size", "4", "--min-count", "1", "--epochs", "2"]
FAST += ["--save-every", "1epoch"]


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.row("B15")
@pytest.mark.parametrize(
    "name", ["with blanks", "-ünï-漢字", "%s{0}$HOME(a)'~#", "a" * 200]
)
def test_odd_names_are_names(name):
    """Of the text, the folder, its cache and an export; all relative."""
    folder = Path(name)
    folder.mkdir(exist_ok=True)
    text = folder / f"{name[:100]}.txt"
    text.write_text("a b c d a c\n" * 40)
    places = [f"--workdir=./{name}/run", f"--cache=./{name}/cache"]
    assert main(["train", f"./{text}", *places, *FAST]) == 0
    assert len(list((folder / "run/checkpoints").iterdir())) == 2
    assert main(["verify", f"./{name}/run"]) == 0
    to = f"--to=./{name}/vectors.parquet"
    assert main(["export", f"./{name}/run", to]) == 0
    assert main(["neighbors", f"./{name}/vectors.parquet", "a"]) == 0


@pytest.mark.row("B15")
@pytest.mark.parametrize("name", ["a[b]", "**", "a?", "a\\nb"])
def test_a_folder_that_orbax_takes_for_a_pattern_is_refused(capsys, name):
    folder = Path(name)
    folder.mkdir()
    (folder / "text.txt").write_text("a b c d a c\n" * 40)
    assert main(["train", f"{name}/text.txt", f"--workdir={name}/run", *FAST]) == 2
    assert "which are patterns to Orbax, got /" in error_line(capsys)
    assert os.listdir(name) == ["text.txt"]
    places = ["--workdir=run", f"--cache={name}/cache"]
    assert main(["train", f"{name}/text.txt", *places, *FAST]) == 0
    assert main(["export", "run", f"--to={name}/vectors.parquet"]) == 0
    assert main(["neighbors", f"{name}/vectors.parquet", "a"]) == 0


@pytest.mark.row("B15")
@pytest.mark.parametrize("place", ["corpus", "workdir", "cache"])
def test_a_loop_of_links_is_said(capsys, place):
    Path("text.txt").write_text("a b c d a c\n" * 40)
    Path("loop").symlink_to("loop")
    arguments = {
        "corpus": ["loop", "--workdir", "run"],
        "workdir": ["text.txt", "--workdir", "loop"],
        "cache": ["text.txt", "--workdir", "run", "--cache", "loop"],
    }[place]
    assert main(["train", *arguments, *FAST]) == 2
    assert "loop" in error_line(capsys)
    assert sorted(os.listdir()) == ["loop", "text.txt"]


@pytest.mark.row("B15")
def test_a_workdir_may_be_a_link():
    Path("text.txt").write_text("a b c d a c\n" * 40)
    Path("real").mkdir()
    Path("link").symlink_to("real")
    assert main(["train", "text.txt", "--workdir", "link", *FAST]) == 0
    assert Path("link").is_symlink() and Path("real/vectors.safetensors").exists()
