"""Data flows one way: a module imports only rooms before its own."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = (
    *("errors", "settings", "options", "tables.options", "encoders.options", "config"),
    *("threads", "limits", "terminal", "disk", "vectors", "engine", "hosts"),
    *("run", "problem", "run.resuming", "run.loop", "tables", "encoders", "families"),
    *("run.train", "run.preview", "arguments", "parsing", "verbs", "cli"),
)
"""Packages and modules of embedder, each after all that it may import."""

FAMILIES = ("tables", "encoders")
MODULES = sorted((ROOT / "embedder").rglob("*.py"))
_OUTSIDE = {"legacy", "migration", "bench", "tests"}
LEGACY = sorted((ROOT / "legacy").rglob("*.py"))


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Full names that a file imports, and whether that is inside a function."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((name.name, id(node) in inside) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: import by the full name"
            for name in node.names:
                yield f"{node.module}.{name.name}", id(node) in inside


def room_of(module: str) -> str:
    """The most special room that a module, or a name in one, belongs to."""
    parts = module.split(".")
    return next(
        room
        for room in (".".join(parts[:2]), parts[0])
        if room in ROOMS or len(room.split(".")) == 1
    )


def module_of(path: Path) -> str:
    """The module of a file, without the package `embedder`."""
    parts = path.relative_to(ROOT / "embedder").with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def rooms(path: Path) -> Iterator[str]:
    """The rooms of embedder that a file imports."""
    for name, _ in imports(path):
        if name.startswith("embedder."):
            yield room_of(name.removeprefix("embedder."))


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_every_module_has_a_room():
    found = {room_of(module_of(path)) for path in MODULES if module_of(path)}
    assert found == {*ROOMS}


@pytest.mark.parametrize("path", MODULES[1:], ids=relative)
def test_module_imports_only_rooms_before_its_own(path):
    own = ROOMS.index(room_of(module_of(path)))
    later = [room for room in rooms(path) if room not in ROOMS[: own + 1]]
    assert later == []


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_families_know_nothing_of_each_other(path):
    family = module_of(path).split(".")[0]
    others = {*FAMILIES} - {family} if family in FAMILIES else set()
    assert not others & {room.split(".")[0] for room in rooms(path)}


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_the_engine_and_runs_know_no_family(path):
    """The root of a run is given its problem."""
    module = module_of(path)
    if module.split(".")[0] in ("engine", "run", "hosts", "disk", "vectors"):
        assert not {*FAMILIES} & {room.split(".")[0] for room in rooms(path)}


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_module_imports_neither_the_oracle_nor_migration(path):
    """But for the verbs that are of migration, which are loaded when asked for."""
    found = {(name.split(".")[0], inside) for name, inside in imports(path)}
    others = {each for each in found if each[0] in _OUTSIDE}
    is_verbs = path == ROOT / "embedder" / "verbs.py"
    assert others == ({("migration", True)} if is_verbs else set())


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_tensorflow_is_imported_only_within_a_function_of_one_module(path):
    found = [i for name, i in imports(path) if name.split(".")[0] == "tensorflow"]
    allowed = path == ROOT / "embedder" / "engine" / "tfdata.py"
    assert found == ([True] if allowed else [])


@pytest.mark.parametrize("path", LEGACY, ids=relative)
def test_oracle_imports_numpy_and_the_standard_library_alone(path):
    packages = {name.split(".")[0] for name, _ in imports(path)}
    assert packages <= {"legacy", "numpy", *sys.stdlib_module_names}
