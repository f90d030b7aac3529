"""Replaces the module `legacy` by the port, for unchanged programs.

    import migration.dropin  # before the first `import legacy`

or, with no change at all,

    python -m migration.dropin script.py [ARGUMENT ...]

After that, the module `legacy` has `embedder.EmbeddingTrainer` and
`embedder.FeatureEncoder`, and nothing else: the import of a module inside `legacy`
raises ImportError with the reason.
"""

import importlib.abc
import importlib.machinery
import runpy
import sys
import types
from pathlib import Path

_NAME = "legacy"


class _Refuse(importlib.abc.MetaPathFinder):
    """Raises ImportError with the reason for modules inside `legacy`."""

    def find_spec(self, name: str, path=None, target=None):
        if name.startswith(f"{_NAME}."):
            raise ImportError(
                _internal(name)
            )  # without name=: else `from legacy import x` hides it
        return None


def install() -> None:
    """Makes every later `import legacy` import the port.

    Raises:
      ImportError: `legacy` was imported before: some code uses the NumPy trainer.
    """
    present = sys.modules.get(_NAME)
    if isinstance(present, _Port):
        return
    if present is not None:
        raise ImportError(
            f"`{_NAME}` was imported before migration.dropin: import migration.dropin "
            "first."
        )
    sys.modules[_NAME] = _Port()
    sys.meta_path.insert(0, _Refuse())


class _Port(types.ModuleType):
    """The module `legacy`, whose names are the port's; loads the port on first use."""

    __all__ = ["EmbeddingTrainer", "FeatureEncoder"]
    __path__: list[str] = []

    def __init__(self):
        super().__init__(_NAME, __doc__)
        self.__spec__ = importlib.machinery.ModuleSpec(_NAME, None, is_package=True)

    def __getattr__(self, name: str):
        if name not in self.__all__:
            raise AttributeError(_internal(f"{_NAME}.{name}"))
        import embedder

        return getattr(embedder, name)


def _internal(name: str) -> str:
    return (
        f"`{name}` is internal to the NumPy trainer, or does not exist: with "
        f"migration.dropin `{_NAME}` has EmbeddingTrainer and FeatureEncoder alone."
    )


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
    sys.path[0] = str(script.resolve().parent)
    runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    from migration import dropin  # which installs: this module is another, `__main__`

    dropin.main()
else:
    install()
