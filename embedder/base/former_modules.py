"""Modules by the names that they had when a pickle was written."""

import importlib
import sys
from importlib.machinery import ModuleSpec
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


class _Finder:
    """Finds and loads modules of former names that nothing else finds. It is no class
    of `importlib.abc`, whose import takes 10 ms, as long as that of embedder."""

    def find_spec(
        self, fullname: str, path: object, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _NOW and fullname not in _PACKAGES:
            return None
        return ModuleSpec(fullname, self, is_package=fullname in _PACKAGES)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Former(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def find_former_modules() -> None:
    """Lets pickles of earlier versions be read. To be called once."""
    sys.meta_path.append(_Finder())
