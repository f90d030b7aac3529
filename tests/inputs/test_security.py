"""Files of strangers run nothing, lead nowhere, and do not rule the terminal."""

import ast
import json
import os
import stat
import tempfile
from pathlib import Path

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image

from embedder.cli.main import main
from embedder.vectors.export import read_vectors
from tests.commands import error_line

ROOT = Path(__file__).parents[2]
PROGRAM = sorted(
    path
    for folder in ("embedder", "migration", "legacy")
    for path in (ROOT / folder).rglob("*.py")
)
BANNED_MODULES = {"pickle", "cPickle", "dill", "marshal", "shelve", "joblib", "yaml"}
BANNED_NAMES = {"eval", "exec", "__import__"}
BANNED_CALLS = {"system", "popen", "Popen", "check_output", "getoutput"}
FAST = ["--loader", "memory", "--vector-size", "4", "--min-count", "1", "--epochs", "1"]


@pytest.fixture(autouse=True)
def text(own_folder):
    Path("text.txt").write_text("a b c d a c\n" * 40)


@pytest.mark.spread(255)
@pytest.mark.parametrize("path", PROGRAM, ids=lambda p: str(p.relative_to(ROOT)))
def test_nothing_is_unpickled_evaluated_or_given_to_a_shell(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = {alias.name.split(".")[0] for alias in node.names}
            names |= {(getattr(node, "module", "") or "").split(".")[0]}
            assert not names & BANNED_MODULES, node.lineno
            assert "subprocess" not in names or path.name == "untrusted.py"
        if isinstance(node, ast.Name):
            assert node.id not in BANNED_NAMES, node.lineno
        if isinstance(node, ast.Attribute):
            assert node.attr not in BANNED_CALLS, node.lineno
        if isinstance(node, ast.keyword):
            value = getattr(node.value, "value", None)
            assert (node.arg, value) != ("allow_pickle", True), node.value.lineno
            assert node.arg != "shell", node.value.lineno


@pytest.mark.row("B11")
def test_a_pickle_is_not_run(tmp_path, capsys):
    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "owned"),)

    bomb = np.array([Bomb()], dtype=object)
    names = "format", "vectors", "tokens", "token_ends", "X", "y"
    np.savez("file.npz", **dict.fromkeys(names, bomb))
    for command in ("neighbors file.npz a", "train file.npz --model encoder"):
        assert main(command.split()) == 2
        assert "holds pickled objects, which are not read" in error_line(capsys)
    assert not Path("owned").exists()


def test_files_have_the_mode_of_the_user_and_lie_in_the_workdir(monkeypatch):
    """By the umask: the group reads, others have nothing. All is data that any program
    reads, and no code."""
    before = os.umask(0o027)
    monkeypatch.setattr(tempfile, "tempdir", "/nonexistent")
    train = ["train", "text.txt", "--workdir", "run", *FAST, "--save-every", "1epoch"]
    try:
        assert main(train) == 0
        assert sorted(os.listdir()) == ["run", "text.txt"]
        for ending in ("txt", "vec.gz", "bin", "npz", "safetensors", "parquet"):
            assert main(["export", "run", "--to", f"out.{ending}"]) == 0
    finally:
        os.umask(before)
    paths = [*Path("run").rglob("*"), *Path().glob("out.*")]
    assert len(paths) > 30 and not [path for path in paths if "tmp" in path.name]
    for path in paths:
        expected = 0o750 if path.is_dir() else 0o640
        assert stat.S_IMODE(path.stat().st_mode) == expected, path
        assert path.is_dir() or not path.read_bytes().startswith(b"\x80")
        assert path.suffix not in (".py", ".pkl", ".pickle", ".sh")
    json.loads(Path("run/corpus.json").read_text())


HOSTILE = ["\x1b[2J", "\x1b]0;title\x07", "x\u202ey", "\u2066z", "<script>", "\x9b1m"]


def test_hostile_tokens_are_kept_and_shown_as_escapes(capsys):
    line = " ".join([*HOSTILE, "a"])
    Path("text.txt").write_text(f"{line}\n" * 40)
    assert main(["train", "text.txt", "--workdir", "run", *FAST]) == 0
    assert sorted(read_vectors("run/vectors.txt").keys) == sorted([*HOSTILE, "a"])
    assert main(["neighbors", "run", *HOSTILE, "a"]) == 0
    assert main(["analogy", "run", *HOSTILE[:3]]) == 0
    assert main(["neighbors", "run", "\x1b[31m"]) == 2
    printed = "".join(capsys.readouterr())
    assert printed.replace("\n", "").isprintable()
    assert r"\x1b[2J" in printed and r"x\u202ey" in printed and "<script>" in printed


@pytest.mark.parametrize(
    "name", ["a\x1b]0;b\x07.txt", "a\nembedder: all is well\n.txt"]
)
def test_hostile_paths_are_shown_as_escapes(capsys, name):
    assert main(["train", name]) == 2
    assert error_line(capsys).isprintable()
    Path(name).write_text("a b\n" * 40)
    assert main(["train", name, "--workdir", f"run-{name}", *FAST]) == 0
    printed = "".join(capsys.readouterr())
    assert printed.replace("\n", "").isprintable()
    assert "\nembedder: all is well" not in printed


def test_sums_that_lead_out_of_the_run_are_refused(capsys):
    assert main(["train", "text.txt", "--workdir", "run", *FAST]) == 0
    Path("run/SHA256SUMS").write_text(f"{'0' * 64}  ../text.txt\n")
    assert main(["verify", "run"]) == 1
    said = capsys.readouterr().out
    assert "SHA256SUMS: is damaged" in said and "text.txt:" not in said


@pytest.mark.parametrize(("target", "code"), [("secret.txt", 0), ("folder", 3)])
def test_overwriting_does_not_follow_links_out_of_the_run(target, code):
    """What lies behind a link in the run is not removed with the run's files.

    The link to a file is replaced, that to a folder is refused.
    """
    Path("secret.txt").write_text("keep me")
    Path("folder").mkdir()
    Path("folder/file").write_text("me too")
    command = ["train", "text.txt", "--workdir", "run", *FAST]
    assert main(command) == 0
    place = Path("run/metrics.jsonl" if target == "secret.txt" else "run/tensorboard")
    place.rename("moved")
    place.symlink_to(Path(target).absolute())
    assert main([*command, "--overwrite"]) == code
    assert place.is_symlink() == (code != 0)
    assert Path("secret.txt").read_text() == "keep me"
    assert Path("folder/file").read_text() == "me too"


POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 4\n%%EndComments\n%%EOF\n"


@pytest.mark.row("B17")
@pytest.mark.parametrize("verb", ["train", "embed"])
def test_postscript_named_png_starts_no_program(tmp_path, monkeypatch, capsys, verb):
    """Pillow would give it to Ghostscript, whether that is in PATH or not."""
    mark, program = tmp_path / "started", tmp_path / "gs"
    program.write_text(f"#!/bin/sh\ntouch '{mark}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    start = EpsImagePlugin.Ghostscript
    monkeypatch.setattr(
        EpsImagePlugin, "Ghostscript", lambda *x, **y: (mark.touch(), start(*x, **y))
    )
    for name in ("a/0.png", "a/1.png", "b/0.png", "b/1.png"):
        Path("images", name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4)).save(Path("images", name))
    command = ["train", "images", "--model", "encoder", "--workdir", "run", *FAST[:2]]
    if verb == "embed":
        assert main([*command, "--epochs", "1"]) == 0
        command = ["embed", "run", "images/a/0.png"]
    Path("images/a/0.png").write_bytes(POSTSCRIPT)
    capsys.readouterr()
    assert main(command) == 2
    assert not mark.exists()
    formats = "must be PNG, JPEG, BMP, GIF, WEBP or TIFF, whatever its name says."
    assert error_line(capsys).endswith(f"0.png is not a whole image: it {formats}")
