"""Puts the port in the place of the module `legacy`, for programs that are not changed.

    import migration.dropin  # before the first `import legacy`

or, with no change at all,

    python -m migration.dropin script.py [ARGUMENT ...]

After that `import legacy` gives `embedder.EmbeddingTrainer`. Only the public names are
there: a program that imports a module inside `legacy` is told so. The oracle itself
stays available to what imported it before, and to this project's own comparisons.
"""

import importlib.abc
import importlib.machinery
import runpy
import sys
import types
from pathlib import Path

_NAME = "legacy"


class _Refuse(importlib.abc.MetaPathFinder):
    """Says why a module inside `legacy` is not to be had."""

    def find_spec(self, name: str, path=None, target=None):
        if name.startswith(f"{_NAME}."):
            raise ModuleNotFoundError(
                f"`{name}` is internal to the NumPy trainer: with migration.dropin "
                f"`{_NAME}` has EmbeddingTrainer alone.",
                name=name,
            )
        return None


def install() -> None:
    """Makes `import legacy` give the port from here on.

    Raises:
      ImportError: `legacy` was imported before, so that some code has the NumPy trainer
        already.
    """
    present = sys.modules.get(_NAME)
    if isinstance(present, _Port):
        return
    if present is not None:
        raise ImportError(
            f"`{_NAME}` was imported before migration.dropin: import migration.dropin "
            "first."
        )
    sys.modules[_NAME] = _Port(_NAME, __doc__)
    sys.meta_path.insert(0, _Refuse())


class _Port(types.ModuleType):
    """The module `legacy` with the port in it, which is loaded when it is used."""

    __all__ = ["EmbeddingTrainer"]
    __path__: list[str] = []

    def __getattr__(self, name: str):
        if name not in self.__all__:
            raise AttributeError(f"module {_NAME!r} has no attribute {name!r}")
        from embedder import EmbeddingTrainer

        return EmbeddingTrainer


def main() -> None:
    """Runs the script named on the command line, as `python script.py` would."""
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print("usage: python -m migration.dropin script.py [ARGUMENT ...]")
        sys.exit(0 if len(sys.argv) > 1 else 2)
    del sys.argv[0]
    script = Path(sys.argv[0])
    if not script.is_file():
        print(f"migration.dropin: Script {script} does not exist.", file=sys.stderr)
        sys.exit(2)
    install()
    sys.path[0] = str(script.resolve().parent)
    runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    main()
else:
    install()
