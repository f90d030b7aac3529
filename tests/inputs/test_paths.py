"""Odd paths work, or their fault is said; no target is a part of a run."""

import os
import socket
from pathlib import Path

import numpy as np
import pytest

from embedder import Vectors, read_vectors, write_vectors
from embedder.cli.main import main
from embedder.data.table_files import corpus_files
from tests.commands import error_line

FAST = ["--loader", "memory", "--vector-size", "4", "--min-count", "1", "--epochs", "2"]
FAST += ["--save-every", "1epoch"]
TEXT = "a b c d a c\n" * 40
NOT_UTF8 = os.fsdecode(b"caf\xe9")


@pytest.fixture(autouse=True)
def text(own_folder):
    Path("text.txt").write_text(TEXT)


def train(corpus: str = "text.txt", *options: str, workdir: str = "run") -> int:
    return main(["train", corpus, f"--workdir={workdir}", *FAST, *options])


@pytest.mark.spread(2)
@pytest.mark.row("B15")
@pytest.mark.parametrize(
    "name", ["with blanks", "-ünï-漢字", "%s{0}$HOME(a)'~#", "a" * 200]
)
def test_odd_names_are_names(name):
    """Of the text, the folder, its cache and an export; all relative."""
    folder = Path(name)
    folder.mkdir(exist_ok=True)
    text = folder / f"{name[:100]}.txt"
    text.write_text(TEXT)
    run = f"./{name}/run"
    assert train(f"./{text}", f"--cache=./{name}/cache", workdir=run) == 0
    assert len(list((folder / "run/checkpoints").iterdir())) == 2
    assert main(["verify", run]) == 0
    assert main(["export", run, f"--to=./{name}/vectors.parquet"]) == 0
    assert main(["neighbors", f"./{name}/vectors.parquet", "a"]) == 0


@pytest.mark.spread(2)
@pytest.mark.row("B15")
@pytest.mark.parametrize("name", ["a[b]", "**", "a?", "a\\nb"])
def test_a_folder_that_orbax_takes_for_a_pattern_is_no_workdir(capsys, name):
    Path(name).mkdir()
    Path("text.txt").rename(f"{name}/text.txt")
    assert train(f"{name}/text.txt", workdir=f"{name}/run") == 2
    assert "which Orbax takes for wildcards, got /" in error_line(capsys)
    assert os.listdir(name) == ["text.txt"]
    assert train(f"{name}/text.txt", f"--cache={name}/cache") == 0
    assert main(["export", "run", f"--to={name}/vectors.parquet"]) == 0
    assert main(["neighbors", f"{name}/vectors.parquet", "a"]) == 0


@pytest.mark.row("B15")
@pytest.mark.parametrize(
    "command", ["loop", "text.txt --workdir loop", "text.txt --cache loop"]
)
def test_a_loop_of_links_is_said(capsys, command):
    Path("loop").symlink_to("loop")
    workdir = [] if "workdir" in command else ["--workdir", "run"]
    assert main(["train", *command.split(), *workdir, *FAST]) == 2
    assert "loop" in error_line(capsys)
    assert sorted(os.listdir()) == ["loop", "text.txt"]


@pytest.mark.row("B15")
def test_a_workdir_may_be_a_link():
    Path("real").mkdir()
    Path("link").symlink_to("real")
    assert train(workdir="link") == 0
    assert Path("link").is_symlink() and Path("real/vectors.safetensors").exists()


@pytest.mark.row("B18")
def test_a_text_whose_name_is_not_utf8_is_trained_on(capsys):
    """In a folder of its own name; the run is found again, and goes on alone."""
    Path("text.txt").rename(f"{NOT_UTF8}.txt")
    assert main(["train", f"{NOT_UTF8}.txt", *FAST]) == 0
    assert main(["train", f"{NOT_UTF8}.txt", *FAST]) == 0
    assert "embedder-caf: finished before" in capsys.readouterr().out
    assert main(["train", "--workdir", "embedder-caf", *FAST]) == 0
    for number in "12":  # the second finds the cache
        assert train(f"{NOT_UTF8}.txt", f"--cache={NOT_UTF8}", workdir=number) == 0
    Path(f"{NOT_UTF8}.toml").write_text("[tokens]\nvector_size = 4\n")
    options = "--config", f"{NOT_UTF8}.toml", "--dry-run"
    assert train(f"{NOT_UTF8}.txt", *options, workdir="3") == 0


@pytest.mark.row("B18")
@pytest.mark.parametrize("ending", ["txt", "vec.gz", "bin", "safetensors", "npz"])
def test_vectors_whose_name_is_not_utf8_are_written_and_read(ending):
    vectors = Vectors(["a", "b"], np.eye(2, dtype=np.float32))
    write_vectors(vectors, f"{NOT_UTF8}.{ending}")
    assert read_vectors(f"{NOT_UTF8}.{ending}").keys == ["a", "b"]


@pytest.mark.row("B18")
def test_a_run_in_a_folder_that_is_not_utf8_is_read_but_not_its_checkpoints(
    capsys, monkeypatch
):
    assert train() == 0
    os.rename("run", NOT_UTF8)
    assert main(["neighbors", NOT_UTF8, "a"]) == 0
    capsys.readouterr()
    monkeypatch.chdir(NOT_UTF8)
    for command in (["verify", "."], ["train", "../text.txt", "--workdir", "new"]):
        assert main(command) == 2
        assert "`workdir` must be a path in UTF-8, got '/" in error_line(capsys)
    assert not Path("new").exists()


@pytest.mark.row("B22")
def test_the_log_says_how_many_files_of_runs_are_left_out(caplog):
    Path("two").mkdir()
    for workdir in ("one", "two/three"):
        assert train("*.txt", "--save-every", "never", workdir=workdir) == 0
    caplog.clear()
    caplog.set_level("INFO")
    assert corpus_files("**/*.txt") == [Path("text.txt")]
    assert caplog.messages == ["Corpus **/*.txt: files that runs wrote, left out: 2."]
    Path("one/own.txt").write_text("a b")
    with pytest.raises(FileNotFoundError, match="one has only files that runs wrote"):
        corpus_files("one")
    assert corpus_files("one/vectors.txt") == [Path("one/vectors.txt")]  # asked for
    for name in ("config.toml", "corpus.json"):  # names as of a run
        Path(name).write_text("a b\n")
    assert corpus_files("*.txt") == [Path("text.txt")]


@pytest.mark.row("B22")
def test_the_log_says_what_a_folder_of_texts_has_beside_them(caplog):
    caplog.set_level("INFO")
    for name in "a.txt b.log c.md .hidden below/d.txt below/e/f.txt.gz".split():
        path = Path("texts", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("a b\n")
    assert corpus_files("texts") == [Path("texts/a.txt")]
    assert caplog.messages == [
        "Corpus texts: files that do not end in .txt or .gz, left out: 2.",
        "Corpus texts: texts in folders below, left out: 2; a glob takes them: "
        "'texts/**/*.txt'.",
    ]


def test_a_target_may_be_no_part_of_a_run_but_a_new_file_in_it(capsys):
    assert train() == 0
    capsys.readouterr()
    Path("link").symlink_to("run")
    Path("linked.npz").symlink_to("run/model.npz")
    for target in ("link/model.npz", "linked.npz"):
        for command in (["export", "run", "--to"], ["convert", "run", "--overwrite"]):
            assert main([*command, target]) == 2
            assert f" must not be a file of a run, got {target}" in error_line(capsys)
    for name in ("vectors.bin", "export/vectors.npz", "RUN.npz"):
        Path("run", name).parent.mkdir(exist_ok=True)
        assert main(["export", "run", "--to", f"run/{name}"]) == 0
    assert main(["verify", "run"]) == 0
    assert train("text.txt", "--overwrite") == 0
    assert Path("run/vectors.bin").exists()
    Path("config.toml").touch()  # of another program: this folder is no run
    assert main(["export", "run", "--to", "model.npz"]) == 0


@pytest.mark.row("B24")
@pytest.mark.parametrize("name", ["/dev/stdin", "/proc/self/fd/0", "/dev/../dev/stdin"])
def test_a_stream_as_corpus_is_refused_with_what_to_do(capsys, name):
    with open("text.txt") as file:
        before = os.dup(0)
        os.dup2(file.fileno(), 0)
        try:
            assert train(name) == 2
        finally:
            os.dup2(before, 0)
            os.close(before)
    assert error_line(capsys) == (
        f"embedder: Corpus {name} must be a file on disk, not a stream: it is read "
        "more than once. Write the text to a file."
    )
    assert not Path("run").exists()


@pytest.mark.row("B24")
@pytest.mark.parametrize("source", ["texts", "texts/*.txt", "**"])
@pytest.mark.parametrize("kind", ["pipe", "socket", "broken link"])
def test_what_is_no_file_among_texts_is_named(capsys, source, kind):
    Path("texts/folder.txt").mkdir(parents=True)
    Path("text.txt").rename("texts/a.txt")
    if kind == "pipe":
        os.mkfifo("texts/b.txt")
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as end:
            end.bind("texts/b.txt")
    else:
        Path("texts/b.txt").symlink_to("nowhere")
    assert train(source) == 2
    fault = "No such file" if kind == "broken link" else "must be a regular file"
    line = error_line(capsys)
    assert "texts/b.txt" in line and fault in line
    assert not Path("run").exists()
