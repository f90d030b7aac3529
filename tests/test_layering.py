"""Data flows one way: a module imports only rooms before its own."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = (
    *("checks", "threads", "limits", "config", "terminal", "disk", "data", "memory"),
    *("model", "train", "devices", "vectors", "epochs", "training", "encoder_outputs"),
    *("encoder_training", "hosts", "runs", "run", "preview"),
    *("estimator", "feature_encoder", "embedding", "arguments", "cli"),
)
MODULES = sorted((ROOT / "embedder").rglob("*.py"))
DATA_ORDER = (
    *(
        "ahead",
        "not_text",
        "text_files",
        "corpus",
        "demo",
        "vocabulary",
        "encoded",
        "encode",
        "noise",
    ),
    *("blocks", "loader", "images", "examples", "batches", "device_loader"),
)
DATA = sorted(p for p in MODULES if p.parent.name == "data" and p.stem != "__init__")
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


def rooms(path: Path) -> Iterator[str]:
    """The rooms of embedder that a file imports."""
    for name, _ in imports(path):
        if name.startswith("embedder."):
            yield name.split(".")[1]


def room_of(path: Path) -> str:
    return path.relative_to(ROOT / "embedder").parts[0].removesuffix(".py")


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_every_module_has_a_room():
    assert room_of(MODULES[0]) == "__init__"  # its names come from every room
    assert {room_of(path) for path in MODULES[1:]} == set(ROOMS)


@pytest.mark.parametrize("path", MODULES[1:], ids=relative)
def test_module_imports_only_rooms_before_its_own(path):
    own = ROOMS.index(room_of(path))
    later = [room for room in rooms(path) if room not in ROOMS[: own + 1]]
    assert later == []


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_module_imports_neither_the_oracle_nor_migration(path):
    """But for the verbs that are of migration, which are loaded when asked for."""
    found = {(name.split(".")[0], inside) for name, inside in imports(path)}
    others = {each for each in found if each[0] in _OUTSIDE}
    is_cli = path == ROOT / "embedder" / "cli.py"
    assert others == ({("migration", True)} if is_cli else set())


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_tensorflow_is_imported_only_within_functions_of_the_loader(path):
    found = [i for name, i in imports(path) if name.split(".")[0] == "tensorflow"]
    allowed = path == ROOT / "embedder" / "data" / "loader.py"
    assert found == ([True] if allowed else [])


@pytest.mark.parametrize("path", LEGACY, ids=relative)
def test_oracle_imports_numpy_and_the_standard_library_alone(path):
    packages = {name.split(".")[0] for name, _ in imports(path)}
    assert packages <= {"legacy", "numpy", *sys.stdlib_module_names}


@pytest.mark.parametrize("path", DATA, ids=relative)
def test_data_module_imports_only_those_before_it(path):
    names = [name.split(".") for name, _ in imports(path)]
    used = {parts[2] for parts in names if parts[:2] == ["embedder", "data"]}
    assert used <= {*DATA_ORDER[: DATA_ORDER.index(path.stem)]}


def test_every_data_module_has_its_place():
    assert sorted(DATA_ORDER) == [path.stem for path in DATA]
