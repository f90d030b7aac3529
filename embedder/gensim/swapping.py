"""Puts classes in place of gensim's, and back; where gensim is not installed, makes
modules of its names that have these alone."""

import contextlib
import importlib
import importlib.util
import os
import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

GENSIM_VERSION = "4.4.0"
"""The version of gensim whose interface this is."""


class Replacements(NamedTuple):
    """Names that are replaced, or made, and their values."""

    modules: Mapping[
        str, Mapping[str, Any]
    ]  # by module; the package is `gensim.models`
    utils: Mapping[str, Any]  # of `gensim.utils`, where that is made
    tests: Mapping[str, Any]  # of `gensim.test.utils`


_PACKAGE = "gensim.models"
_OWN_HOME = "gensim.models.doc2vec"
"""A module that has gensim's own Word2Vec and KeyedVectors in any case.

gensim's Doc2Vec goes on to use these, so its pickles name them as of that module, and
gensim reads them with and without embedder.
"""
_SUBCLASSES = "gensim.models.poincare", _OWN_HOME
"""Modules that derive classes of their own from gensim's: loaded before these go."""

CHILDREN = str(Path(__file__).with_name("children"))
"""The folder whose `gensim` swaps the classes where it is imported."""

_originals: dict[str, Any] = {}  # gensim's modules and `unpickle`, while it is swapped
_swapped: list[Replacements] = []  # the last that were swapped in


def swap_in(replacements: Replacements) -> None:
    """Replaces the classes in gensim's modules, which it makes if there are none.

    A module of gensim is replaced by a copy with other names, as the methods of its
    classes look up each other in it. The package `gensim.models` itself has no methods.
    """
    if _originals or _is_made("gensim"):
        return
    _swapped[:] = [replacements]
    modules = replacements.modules
    if _import_gensim() is None:
        _make_modules(replacements)
        return
    package = importlib.import_module(_PACKAGE)
    for name in (*modules, *_SUBCLASSES):
        importlib.import_module(name)
    for name in modules.keys() - {_PACKAGE}:
        _originals[name] = sys.modules[name]
        copy = types.ModuleType(name, sys.modules[name].__doc__)
        vars(copy).update(vars(sys.modules[name]) | dict(modules[name]))
        _set_module(name, copy)
    for name, value in modules[_PACKAGE].items():
        _originals[name] = getattr(package, name)
        setattr(package, name, value)
    for kind in (_originals["Word2Vec"], _originals["KeyedVectors"]):
        kind.__module__ = _OWN_HOME
    utils = vars(importlib.import_module("gensim.utils"))
    _originals["unpickle"] = utils["unpickle"]
    utils["unpickle"] = _unpickle


def swap_in_children() -> None:
    """Has processes that this one starts, in any way, swap the classes as well.

    A child gets the environment, and one of `multiprocessing` also `sys.path`.
    """
    if CHILDREN not in sys.path:
        sys.path.insert(1, CHILDREN)  # the first is the program's own folder
    known = os.environ.get("PYTHONPATH")
    if CHILDREN not in (known or "").split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [CHILDREN, known]))


def _import_gensim() -> Any:
    """The package gensim itself; None: it is not installed."""
    path = sys.path[:]
    sys.path[:] = [folder for folder in path if folder != CHILDREN]
    try:
        if importlib.util.find_spec("gensim") is None:
            return None
        return importlib.import_module("gensim")
    finally:
        sys.path[:] = path


def swap_out() -> None:
    """Puts gensim's own classes back, or removes the modules that were made."""
    if _originals:
        vars(sys.modules["gensim.utils"])["unpickle"] = _originals.pop("unpickle")
    for name in ("Word2Vec", "KeyedVectors"):
        if name in _originals:
            _originals[name].__module__ = f"{_PACKAGE}.{name.lower()}"
    for name, value in _originals.items():
        if name in sys.modules:
            _set_module(name, value)
        else:
            setattr(sys.modules[_PACKAGE], name, value)
    _originals.clear()
    for name in [name for name in sys.modules if _is_made(name)]:
        del sys.modules[name]
    sys.meta_path[:] = [x for x in sys.meta_path if not isinstance(x, _Refuser)]


def _unpickle(path: Any) -> Any:
    """`gensim.utils.unpickle`: files of gensim name classes of gensim."""
    with own_classes() as gensim:
        return gensim.utils.unpickle(path)


def _set_module(name: str, module: types.ModuleType) -> None:
    """Makes `module` the one that is imported by a name."""
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    setattr(sys.modules[parent], child, module)


@contextlib.contextmanager
def own_classes() -> Iterator[Any]:
    """The package gensim with its own classes within the body; None: not installed."""
    is_swapped = bool(_originals) or _is_made("gensim")
    swap_out()
    try:
        yield _import_gensim()
    finally:
        if is_swapped:
            swap_in(*_swapped)


def _is_made(name: str) -> bool:
    return isinstance(sys.modules.get(name), _Made)


class _Made(types.ModuleType):
    """A module of gensim's name that only has what embedder gives."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"module {self.__name__!r} {_lack(name)}")


class _Refuser:
    """Says what to install, where a program imports more of gensim than was made."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Raises ModuleNotFoundError for a name within gensim."""
        package, _, rest = name.partition(".")
        if package == "gensim":  # another name than `name`, else Python hides the text
            raise ModuleNotFoundError(f"The module {_lack(rest)}", name=package)


def _lack(name: str) -> str:
    return f"of embedder.gensim has no {name!r}, which gensim has: pip install gensim."


def _make_modules(replacements: Replacements) -> None:
    parts = {"gensim": {"__version__": GENSIM_VERSION}, **replacements.modules}
    parts |= {"gensim.utils": replacements.utils, "gensim.test": {}}
    parts["gensim.test.utils"] = replacements.tests
    for name, values in parts.items():
        module = _Made(name)
        module.__path__ = []  # a package: its modules can be imported
        module.__spec__ = importlib.util.spec_from_loader(name, None, is_package=True)
        vars(module).update(values)
        if name == "gensim":
            sys.modules[name] = module
        else:
            _set_module(name, module)
    sys.meta_path.insert(0, _Refuser())
