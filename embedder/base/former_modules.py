"""Modules by the names that they had when a pickle was written."""

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType

_NOW = {
    "embedder.encoders.estimator": "embedder.api.encoder_estimator",
    "embedder.encoders.feature_ensemble": "embedder.api.feature_ensemble",
    "embedder.encoders.networks.wide_resnet": "embedder.encoders.networks.resnet",
    "embedder.tables.estimator": "embedder.api.token_estimator",
    "embedder.tables.vocabulary": "embedder.data.vocabulary",
    "embedder.threads": "embedder.base.threads",
}
"""Of version 1.0: modules whose classes its pickles name."""

_PACKAGES = {"embedder.tables"}


class _Former(ModuleType):
    """A module of a former name; it has what the one of today has."""

    def __getattr__(self, name: str):
        if name.startswith("__"):  # of the import system
            raise AttributeError(name)
        return getattr(importlib.import_module(_NOW[self.__name__]), name)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules of former names that nothing else finds."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in _NOW and fullname not in _PACKAGES:
            return None
        is_package = fullname in _PACKAGES
        return importlib.machinery.ModuleSpec(fullname, self, is_package=is_package)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Former(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def find_former_modules() -> None:
    """Lets pickles of earlier versions be read. To be called once."""
    sys.meta_path.append(_Finder())
