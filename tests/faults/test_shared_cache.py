"""Caches that runs share: remnants of dead ones are removed, live ones are left."""

from pathlib import Path

import numpy as np
import pytest

from embedder.cli.main import main
from embedder.data import encode as encoding
from embedder.data.corpus import text_corpus
from embedder.data.encode import encode_cached
from tests.commands import run_python
from tests.encoders.image_cases import write_pngs

FAST = ["--loader", "memory", "--epochs", "1"]
TABLES = ["train", "text.txt", "--vector-size", "4", "--min-count", "1", *FAST]
ENCODER = ["train", "images", "--model", "encoder", *FAST]
KILLED = """
import os, sys
from embedder.cli.main import main
from embedder.data import encode
from embedder.data.examples import images

def die(*arguments):
    print("dies", flush=True)
    os.kill(os.getpid(), 9)

encode.write_vocabulary = images._decode = die
main(sys.argv[1:])
"""


@pytest.fixture(autouse=True)
def own_folder(own_folder):
    Path("text.txt").write_text("a b c d a c\n" * 40)
    for name in "ab":
        write_pngs(Path("images", name), np.zeros((2, 4, 4, 3)))


def parts(cache: str) -> list[Path]:
    return [path for path in Path(cache).glob(".*-*") if path.is_dir()]


@pytest.mark.slow
@pytest.mark.row("F30")
@pytest.mark.parametrize("command", [TABLES, ENCODER], ids=["tables", "encoder"])
@pytest.mark.parametrize("cache", ["cache", "one/cache"])
def test_a_run_removes_what_a_killed_one_left_in_its_cache(capsys, command, cache):
    places = ["--workdir", "one", "--cache", cache]
    killed = run_python("-c", KILLED, *command, *places)
    assert (killed.returncode, killed.stdout) == (-9, "dies\n"), killed.stderr
    (part,) = parts(cache)
    assert main([*command, "--workdir", "two", "--cache", cache]) == 0
    assert f"{part} was not finished: it is removed." in capsys.readouterr().err
    (folder,) = Path(cache).iterdir()
    assert not folder.name.startswith(".")


@pytest.mark.spread(1)
@pytest.mark.row("F30")
@pytest.mark.parametrize("workdir", ["two", "one"])
def test_a_run_leaves_what_a_live_one_writes_in_its_cache(monkeypatch, workdir):
    """`one/cache` is that of a run, too, which looks there when it begins."""
    write, seen = encoding.write_vocabulary, []

    def run_another(*arguments):
        monkeypatch.undo()
        monkeypatch.chdir(own)
        seen.extend(parts("one/cache"))
        places = ["--workdir", workdir, "--cache", "one/cache"]
        assert main([*ENCODER, *places]) == 0
        assert parts("one/cache") == seen
        return write(*arguments)

    own = Path.cwd()
    monkeypatch.setattr(encoding, "write_vocabulary", run_another)
    encoded = encode_cached(text_corpus("text.txt"), 1, Path("one/cache"))
    assert encoded.num_tokens == 240 and len(seen) == 1
    assert parts("one/cache") == []
