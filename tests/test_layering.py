"""Data flows one way: a module imports only rooms before its own."""

import ast
import functools
import graphlib
import sys
from pathlib import Path

import pytest

import embedder

ROOT = Path(__file__).parents[1]
ROOMS = (
    *("errors", "base", "config", "disk", "vectors", "metrics", "engine", "run"),
    *("data", "tokens", "encoders", "report", "api", "sweep", "gensim", "cli"),
    "__main__",
)
"""The folders of embedder, and two modules, each after all that it may import."""

MODULES = sorted((ROOT / "embedder").rglob("*.py"))
LEGACY = sorted((ROOT / "legacy").rglob("*.py"))
POSIX_MODULES = {"fcntl", "grp", "pty", "pwd", "resource", "termios", "tty"}
PUBLIC = {*embedder.__all__, "__version__"}


@functools.cache
def imports(path: Path) -> list[tuple[str, bool]]:
    """Full names that a file imports, and whether that is inside a function."""
    found: list[tuple[str, bool]] = []

    def visit(node: ast.AST, inside: bool) -> None:
        if isinstance(node, ast.Import):
            found.extend((name.name, inside) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: import by the full name"
            found.extend((f"{node.module}.{name.name}", inside) for name in node.names)
        inside |= isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.expr):  # in which no import can be
                visit(child, inside)

    visit(ast.parse(path.read_text(encoding="utf-8")), False)
    return found


def top_packages(path: Path) -> list[tuple[str, bool]]:
    """Packages that a file imports, and whether that is inside a function."""
    return [(name.split(".")[0], inside) for name, inside in imports(path)]


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def module_of(path: Path) -> str:
    """The module of a file, without the package `embedder`."""
    parts = path.relative_to(ROOT / "embedder").with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def rooms(path: Path) -> list[str]:
    """The rooms of embedder that a file imports."""
    names = (
        name.removeprefix("embedder.")
        for name, _ in imports(path)
        if name.startswith("embedder.")
    )
    return [name.split(".")[0] for name in names if name not in PUBLIC]


def in_packages(*packages: str) -> list[Path]:
    found = [x for x in MODULES if module_of(x).split(".")[0] in packages]
    assert len(found) > 10
    return found


def test_modules_import_only_rooms_before_their_own():
    own = {path: module_of(path).split(".")[0] for path in MODULES if module_of(path)}
    assert {*own.values()} == {*ROOMS}
    faults = [
        (relative(path), room)
        for path, its_room in own.items()
        for room in rooms(path)
        if room not in ROOMS[: ROOMS.index(its_room) + 1]
    ]
    assert faults == []


def test_no_modules_import_each_other():
    """Not in a circle either, nor inside functions or for types alone."""
    known = {f"embedder.{module_of(path)}": path for path in MODULES}
    following = {
        path: {
            found
            for name, _ in imports(path)
            if (found := _module(name, known)) != path and found
        }
        for path in MODULES
    }
    try:
        graphlib.TopologicalSorter(following).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" < ".join(map(relative, error.args[1])))


def _module(name: str, known: dict[str, Path]) -> Path | None:
    """The file of a module, or of a name in one; None: it is a public name."""
    return known.get(name) or known.get(name.rpartition(".")[0])


def test_the_room_gensim_imports_public_names_alone_and_no_other_imports_it():
    """It is built over the public API, so that nothing else has to know of it."""
    paths = in_packages("gensim")
    used = {name for path in paths for name, _ in imports(path)}
    others = {x for x in used if x.startswith("embedder.") and "gensim" not in x}
    assert others and {x.removeprefix("embedder.") for x in others} <= PUBLIC
    assert not [x for x in MODULES if x not in paths and "gensim" in rooms(x)]


def test_families_know_nothing_of_each_other():
    known = [x for x in in_packages("encoders") if "tokens" in rooms(x)]
    assert [*map(relative, known)] == []


def test_few_modules_import_what_is_outside():
    """Verbs of migration are loaded when asked for. TensorFlow may be absent: others
    than the modules of loaders ask for a loader."""
    outside = {"legacy", "migration", "bench", "tests", "tensorflow"}
    found = {
        (relative(path), *each)
        for path in MODULES
        for each in top_packages(path)
        if each[0] in outside
    }
    assert found == {
        ("embedder/cli/verbs.py", "migration", True),
        ("embedder/data/tfdata.py", "tensorflow", True),
    }
    tfdata = {
        relative(path).removeprefix("embedder/")
        for path in MODULES
        if any(name.startswith("embedder.data.tfdata.") for name, _ in imports(path))
    }
    loaders = {"tokens/loader.py", "encoders/memory.py", "data/examples/batches.py"}
    assert tfdata == {*loaders, "tokens/task.py"}
    allowed = {"legacy", "numpy", *sys.stdlib_module_names}
    packages = {package for path in LEGACY for package, _ in top_packages(path)}
    assert "numpy" in packages and packages <= allowed


def test_no_module_of_posix_is_imported_with_a_module():
    """Windows has none of them."""
    paths = [*MODULES, *LEGACY, *(ROOT / "migration").rglob("*.py")]
    found = {
        (relative(path), package, inside)
        for path in paths
        for package, inside in top_packages(path)
        if package in POSIX_MODULES
    }
    assert ("embedder/disk/lock.py", "fcntl", True) in found
    assert [each for each in found if not each[-1]] == []
