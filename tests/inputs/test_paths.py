"""Odd paths work, or their fault is said."""

import os
import socket
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from embedder.cli import main
from embedder.tables.corpus_files import corpus_files
from embedder.terminal import shown
from embedder.vectors.export import read_vectors, write_vectors
from embedder.vectors.vectors import Vectors
from tests.commands import error_line

FAST = ["--loader", "memory", "--vector-size", "4", "--min-count", "1", "--epochs", "2"]
FAST += ["--save-every", "1epoch"]


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


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
    text.write_text("a b c d a c\n" * 40)
    places = [f"--workdir=./{name}/run", f"--cache=./{name}/cache"]
    assert main(["train", f"./{text}", *places, *FAST]) == 0
    assert len(list((folder / "run/checkpoints").iterdir())) == 2
    assert main(["verify", f"./{name}/run"]) == 0
    to = f"--to=./{name}/vectors.parquet"
    assert main(["export", f"./{name}/run", to]) == 0
    assert main(["neighbors", f"./{name}/vectors.parquet", "a"]) == 0


@pytest.mark.spread(2)
@pytest.mark.row("B15")
@pytest.mark.parametrize("name", ["a[b]", "**", "a?", "a\\nb"])
def test_a_folder_that_orbax_takes_for_a_pattern_is_refused(capsys, name):
    folder = Path(name)
    folder.mkdir()
    (folder / "text.txt").write_text("a b c d a c\n" * 40)
    assert main(["train", f"{name}/text.txt", f"--workdir={name}/run", *FAST]) == 2
    assert "which Orbax takes for wildcards, got /" in error_line(capsys)
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


NOT_UTF8 = os.fsdecode(b"caf\xe9")


@pytest.mark.row("B18")
def test_a_text_whose_name_is_not_utf8_is_trained_on(capsys):
    """In a folder of its own name; the run is found again, and goes on alone."""
    Path(f"{NOT_UTF8}.txt").write_text("a b c d a c\n" * 40)
    assert main(["train", f"{NOT_UTF8}.txt", *FAST]) == 0
    assert main(["train", f"{NOT_UTF8}.txt", *FAST]) == 0
    assert "embedder-caf: finished before" in capsys.readouterr().out
    assert main(["train", "--workdir", "embedder-caf", *FAST]) == 0
    for number in (1, 2):  # the second finds the cache
        places = [f"--workdir=run{number}", f"--cache={NOT_UTF8}"]
        assert main(["train", f"{NOT_UTF8}.txt", *places, *FAST]) == 0


@pytest.mark.row("B18")
@pytest.mark.parametrize("is_above", [False, True])
def test_a_workdir_that_is_not_utf8_is_refused_with_that_reason(
    monkeypatch, capsys, is_above
):
    Path("text.txt").write_text("a b c d a c\n" * 40)
    text, workdir = Path("text.txt").absolute(), NOT_UTF8
    if is_above:
        Path(NOT_UTF8).mkdir()
        monkeypatch.chdir(NOT_UTF8)
        workdir = "run"
    assert main(["train", str(text), "--workdir", workdir, *FAST]) == 2
    assert "`workdir` must be a path in UTF-8, got '/" in error_line(capsys)
    assert not Path(workdir).exists()


@pytest.mark.row("B18")
@pytest.mark.parametrize("ending", ["txt", "vec.gz", "bin", "safetensors", "npz"])
def test_vectors_whose_name_is_not_utf8_are_written_and_read(tmp_path, ending):
    vectors = Vectors(["a", "b"], np.eye(2, dtype=np.float32))
    write_vectors(vectors, f"{NOT_UTF8}.{ending}")
    assert read_vectors(f"{NOT_UTF8}.{ending}").keys == ["a", "b"]


@pytest.mark.row("B18")
def test_parquet_whose_name_is_not_utf8_is_refused_with_that_reason(capsys):
    pl.DataFrame({"x": [1.0, 2.0], "label": [0, 1]}).write_parquet("a.parquet")
    os.rename("a.parquet", f"{NOT_UTF8}.parquet")
    vectors = Vectors(["a", "b"], np.eye(2, dtype=np.float32))
    write_vectors(vectors, "vectors.txt")
    for command in (
        ["train", f"{NOT_UTF8}.parquet", "--model", "encoder"],
        ["export", "vectors.txt", "--to", f"{NOT_UTF8}.parquet"],
        ["neighbors", f"{NOT_UTF8}.parquet", "a"],
    ):
        assert main(command) == 2
        reason = f"A parquet file must be a path in UTF-8, got '{NOT_UTF8}.parquet'"
        assert shown(reason) in error_line(capsys)


@pytest.mark.row("B18")
def test_a_run_in_a_folder_that_is_not_utf8_is_read_but_not_its_checkpoints(capsys):
    Path("text.txt").write_text("a b c d a c\n" * 40)
    assert main(["train", "text.txt", "--workdir", "run", *FAST]) == 0
    os.rename("run", NOT_UTF8)
    assert main(["neighbors", NOT_UTF8, "a"]) == 0
    capsys.readouterr()
    assert main(["verify", NOT_UTF8]) == 2
    assert "`workdir` must be a path in UTF-8, got '/" in error_line(capsys)


@pytest.mark.slow
@pytest.mark.row("B18")
def test_settings_and_a_new_image_whose_names_are_not_utf8(capsys):
    Path("text.txt").write_text("a b c d a c\n" * 40)
    Path(f"{NOT_UTF8}.toml").write_text("[model]\nvector_size = 3\n")
    options = ["--config", f"{NOT_UTF8}.toml", "--workdir", "run", *FAST[:2]]
    assert main(["train", "text.txt", *options, "--min-count", "1"]) == 0
    np.savez("a.npz", X=np.eye(4), y=np.arange(4) % 2)
    assert main(["train", "a.npz", "--model", "encoder", "--epochs", "1"]) == 0
    np.save(f"{NOT_UTF8}.npy", np.eye(4))
    capsys.readouterr()
    assert main(["embed", "embedder-a", f"{NOT_UTF8}.npy"]) == 2
    assert "FILE must be a path in UTF-8, got 'caf" in error_line(capsys)


@pytest.mark.row("B22")
@pytest.mark.parametrize("source", ["**/*.txt", "./**/*[a-z].txt"])
def test_what_runs_wrote_is_left_out_of_a_glob(capsys, source):
    Path("texts").mkdir()
    for name in ("texts/a.txt", "texts/b.txt"):
        Path(name).write_text("a b c d a c\n" * 40)
    for workdir, done in (("one", "done"), ("two", "done"), ("one", "finished before")):
        capsys.readouterr()
        assert main(["train", source, "--workdir", workdir, *FAST]) == 0
        assert f"{workdir}: {done}" in capsys.readouterr().out
        keys = read_vectors(f"{workdir}/vectors.txt").keys
        assert sorted(keys) == ["a", "b", "c", "d"]


@pytest.mark.row("B22")
def test_the_log_says_how_many_files_of_runs_are_left_out(caplog):
    Path("text.txt").write_text("a b c d a c\n" * 40)
    for workdir in ("one", "two/three"):
        Path(workdir).parent.mkdir(exist_ok=True)
        assert main(["train", "*.txt", "--workdir", workdir, *FAST[:-2]]) == 0
    caplog.clear()
    caplog.set_level("INFO")
    assert corpus_files("**/*.txt") == [Path("text.txt")]
    assert caplog.messages == ["Corpus **/*.txt: files that runs wrote, left out: 2."]
    Path("one/own.txt").write_text("a b")
    with pytest.raises(FileNotFoundError, match="one has only files that runs wrote"):
        corpus_files("one")
    assert corpus_files("one/vectors.txt") == [Path("one/vectors.txt")]  # asked for


def test_a_folder_with_names_like_those_of_a_run_is_no_run():
    for name in ("config.toml", "corpus.json", "a.txt"):
        Path(name).write_text("a b\n")
    assert corpus_files("*.txt") == [Path("a.txt")]


@pytest.mark.row("B24")
@pytest.mark.parametrize(
    "name", ["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0", "/dev/../dev/stdin"]
)
def test_a_stream_as_corpus_is_refused_with_what_to_do(capsys, name):
    Path("text.txt").write_text("a b c d a c\n" * 40)
    with open("text.txt") as file:
        before = os.dup(0)
        os.dup2(file.fileno(), 0)
        try:
            assert main(["train", name, "--workdir", "run", *FAST]) == 2
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
    Path("texts/a.txt").write_text("a b c d a c\n" * 40)
    match kind:
        case "pipe":
            os.mkfifo("texts/b.txt")
        case "socket":
            with socket.socket(socket.AF_UNIX) as end:
                end.bind("texts/b.txt")
        case "broken link":
            Path("texts/b.txt").symlink_to("nowhere")
    assert main(["train", source, "--workdir", "run", *FAST]) == 2
    fault = "No such file" if kind == "broken link" else "must be a regular file"
    line = error_line(capsys)
    assert "texts/b.txt" in line and fault in line
    assert not Path("run").exists()
