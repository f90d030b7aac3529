"""Bad input is one clear line, exit code 2, and nothing is lost.

Each other module of this folder has the rows of a room.
"""

import importlib
import io
import os
import re
import shlex
from pathlib import Path

import pytest

from embedder.cli.main import main
from embedder.errors import InputError
from tests.refusals.rows import Refusal, write, write_shared

ROOMS = sorted(
    path.stem
    for path in Path(__file__).parent.glob("*.py")
    if path.stem != "rows" and not path.stem.startswith("test_")
)


def cells() -> list:
    found = []
    for room in ROOMS:
        rows = importlib.import_module(f"tests.refusals.{room}").ROWS
        for number, row in enumerate(rows):
            marks = [pytest.mark.row(*row.rows)] if row.rows else []
            name = row.call if isinstance(row.call, str) else row.message
            name = re.sub("[^0-9A-Za-z_. -]", "", name)[:60]
            found.append(pytest.param(row, id=f"{room} {number} {name}", marks=marks))
    return found


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> tuple[Path, dict[Path, tuple[int, int]]]:
    """A folder, and what is in it before and after each row."""
    folder = tmp_path_factory.mktemp("shared")
    write_shared(folder)
    return folder, content(folder)


def content(folder: Path) -> dict[Path, tuple[int, int]]:
    """The files of the folder, with when they were changed and their sizes."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in paths}


@pytest.mark.parametrize("row", cells())
def test_bad_input_is_refused_in_one_line(
    row: Refusal, shared, tmp_path, monkeypatch, capsys
):
    folder, whole = shared
    for path in folder.iterdir():
        os.symlink(path, tmp_path / path.name)
    for name, each in row.files.items():
        write(tmp_path / name, each)
    monkeypatch.chdir(tmp_path)
    before = content(tmp_path) | whole
    if isinstance(row.call, str):
        stdin = io.TextIOWrapper(io.BytesIO(row.stdin.encode()))
        monkeypatch.setattr("sys.stdin", stdin)
        assert main(shlex.split(row.call)) == 2
        *_, line = capsys.readouterr().err.splitlines()
        found = line.removeprefix("embedder: ")
        assert found != line
    else:
        with pytest.raises(row.error or InputError) as raised:
            row.call()
        assert type(raised.value) is (row.error or InputError)
        found = str(raised.value)
    assert re.fullmatch(re.escape(row.message).replace("…", ".*"), found), found
    after = content(tmp_path) | content(folder)
    assert {path: after.get(path) for path in before} == before
    new = {path for path in after.keys() - before.keys() if "cache" not in path.parts}
    assert not new or not isinstance(row.call, str)
