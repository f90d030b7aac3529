"""Data flows one way: a module imports only rooms before its own."""

import ast
import functools
import sys
from collections.abc import Iterator
from pathlib import Path

import embedder

ROOT = Path(__file__).parents[1]
ROOMS = (
    *("errors", "settings", "options", "tables.options", "encoders.options", "config"),
    "presets",
    *("threads", "limits", "terminal", "stages", "disk", "vectors", "evaluation"),
    *("engine", "hosts"),
    *("run", "problem", "run.resuming", "run.loop", "run.longer", "report"),
    *("graphs", "tables", "encoders", "results"),
    *("report.of_encoder", "report.of_run", "report.of_projector", "report.compare"),
    *("report.verb", "watch"),
    *("families", "run.train", "run.preview", "sweep", "arguments", "parsing"),
    *("lookup", "neighbors", "scoring", "cards", "exports", "verbs", "cli"),
    "__main__",
    "gensim",
)
"""Packages and modules of embedder, each after all that it may import."""

FAMILIES = ("tables", "encoders")
MODULES = sorted((ROOT / "embedder").rglob("*.py"))
_OUTSIDE = {"legacy", "migration", "bench", "tests"}
LEGACY = sorted((ROOT / "legacy").rglob("*.py"))


@functools.cache
def imports(path: Path) -> list[tuple[str, bool]]:
    """Full names that a file imports, and whether that is inside a function."""
    return [*_imports(path)]


def _imports(path: Path) -> Iterator[tuple[str, bool]]:
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


PUBLIC = {*embedder.__all__, "__version__"}


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
        own = name.removeprefix("embedder.")
        if own != name and own not in PUBLIC:
            yield room_of(own)


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_every_module_has_a_room():
    found = {room_of(module_of(path)) for path in MODULES if module_of(path)}
    assert found == {*ROOMS}


def later_rooms(path: Path) -> list[str]:
    """Rooms that a file imports and that come after its own."""
    own = ROOMS.index(room_of(module_of(path)))
    return [room for room in rooms(path) if room not in ROOMS[: own + 1]]


def test_modules_import_only_rooms_before_their_own():
    faults = {relative(path): later_rooms(path) for path in MODULES[1:]}
    assert {path: later for path, later in faults.items() if later} == {}


def test_the_room_gensim_imports_public_names_alone():
    """It is built over the public API, so that nothing else has to know of it."""
    paths = [path for path in MODULES if package_of(path) == "gensim"]
    used = {
        name.removeprefix("embedder.")
        for path in paths
        for name, _ in imports(path)
        if name.startswith("embedder.") and not name.startswith("embedder.gensim")
    }
    assert len(paths) > 10
    assert used and used <= PUBLIC


def test_no_other_room_imports_gensim():
    others = [path for path in MODULES if package_of(path) != "gensim"]
    assert not [path for path in others if "gensim" in rooms(path)]


def families_in(path: Path) -> set[str]:
    """The families that a file imports."""
    return {*FAMILIES} & {room.split(".")[0] for room in rooms(path)}


def package_of(path: Path) -> str:
    return module_of(path).split(".")[0]


def test_families_know_nothing_of_each_other():
    known = {
        relative(path): families_in(path) - {package_of(path)}
        for path in MODULES
        if package_of(path) in FAMILIES
    }
    assert len(known) > 20
    assert {path: others for path, others in known.items() if others} == {}


def test_the_engine_and_runs_know_no_family():
    """The root of a run is given its problem."""
    packages = ("engine", "run", "hosts", "disk", "vectors")
    known = {
        relative(path): families_in(path)
        for path in MODULES
        if package_of(path) in packages
    }
    assert len(known) > 20
    assert {path: families for path, families in known.items() if families} == {}


def test_modules_import_neither_the_oracle_nor_migration():
    """But for the verbs that are of migration, which are loaded when asked for."""
    found = {
        (relative(path), package, inside)
        for path in MODULES
        for package, inside in top_packages(path)
        if package in _OUTSIDE
    }
    assert found == {("embedder/verbs.py", "migration", True)}


def top_packages(path: Path) -> list[tuple[str, bool]]:
    """Packages that a file imports, and whether that is inside a function."""
    return [(name.split(".")[0], inside) for name, inside in imports(path)]


def test_tensorflow_is_imported_only_within_a_function_of_one_module():
    found = [
        (relative(path), inside)
        for path in MODULES
        for package, inside in top_packages(path)
        if package == "tensorflow"
    ]
    assert found == [("embedder/engine/tfdata.py", True)]


def test_five_modules_know_of_tensorflow():
    """It may be absent: the others ask for a loader."""
    found = {
        relative(path).removeprefix("embedder/")
        for path in MODULES
        if any(name.startswith("embedder.engine.tfdata.") for name, _ in imports(path))
    }
    loaders = {"tables/loader.py", "encoders/loaders.py", "encoders/batches.py"}
    assert found == {*loaders, "tables/problem.py"}


def test_oracle_imports_numpy_and_the_standard_library_alone():
    allowed = {"legacy", "numpy", *sys.stdlib_module_names}
    packages = {
        (relative(path), package)
        for path in LEGACY
        for package, _ in top_packages(path)
    }
    assert ("legacy/blocks.py", "numpy") in packages
    assert {each for each in packages if each[1] not in allowed} == set()
