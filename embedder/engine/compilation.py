"""What is set before JAX compiles anything: a cache on disk, and flags of XLA."""

import importlib.metadata
import importlib.util
import logging
import os
from pathlib import Path

import jax
from jax._src import compilation_cache
from jax._src.compilation_cache_interface import CacheInterface

from embedder.disk.cache_files import read_cache_file, write_cache_file

_SLOW_SCATTERS = {"0.10.2", "0.11.0"}  # of jaxlib; see jax-ml/jax issue 38806
_FAST_SCATTERS = "--xla_backend_extra_options=-nvptx-allow-ftz-atomics"
_log = logging.getLogger(__name__)
_SECONDS = 0.1  # programs that compile faster than this are not worth a file


class _Cache(CacheInterface):
    """Compiled programs in files that tell of damage.

    JAX's own class leaves half a file where it is killed, never replaces a damaged one,
    and warns in two lines of each.
    """

    def __init__(self, folder: Path):
        self._path = folder
        self._takes_files = True

    def get(self, key: str) -> bytes | None:
        return read_cache_file(self._path / f"{key}-sealed")

    def put(self, key: str, value: bytes) -> None:
        if not self._takes_files:
            return
        try:
            write_cache_file(self._path / f"{key}-sealed", value)
        except OSError as error:
            self._takes_files = False
            _say_not_kept(self._path, error.strerror)


def keep_compiled_programs() -> None:
    """Lets JAX keep compiled programs in the user's cache folder.

    Nothing is changed where a folder is given to JAX already (JAX_COMPILATION_CACHE_DIR
    or its config), where JAX_ENABLE_COMPILATION_CACHE is false, or where there is no
    folder to write to, which the log says.
    """
    if (
        jax.config.jax_compilation_cache_dir
        or not jax.config.jax_enable_compilation_cache
    ):
        return
    folder = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "embedder" / "jax"
    try:
        folder = folder.expanduser()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:  # no home, or not ours
        return _say_not_kept(folder, getattr(error, "strerror", error))
    if not os.access(folder, os.W_OK):
        return _say_not_kept(folder, "it is not ours to write to")
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", _SECONDS)
    compilation_cache._cache = _Cache(folder)  # there is no public way


def _say_not_kept(folder: Path, why: object) -> None:
    _log.info("Programs of XLA are not kept: %s: %s.", folder, str(why).rstrip("."))


def avoid_slow_scatters() -> None:
    """Sets a flag without which some versions of jaxlib crawl on a GPU.

    They compile the addition of float32 rows to a table into loops of compare and swap,
    some 450 times slower where words are frequent. XLA reads its flags when a device is
    first used: what is too late, or in the way of flags that are there, is warned of.
    """
    version = importlib.metadata.version("jaxlib")
    if version not in _SLOW_SCATTERS or not _has_cuda():
        return
    flags = os.environ.get("XLA_FLAGS", "")
    if _FAST_SCATTERS in flags:
        return
    if "--xla_backend_extra_options" in flags or _has_started():
        _log.warning(
            "jaxlib %s adds rows to tables up to 450 times too slowly on a GPU: start "
            "Python with XLA_FLAGS=%s, or install another version.",
            version,
            _FAST_SCATTERS,
        )
        return
    os.environ["XLA_FLAGS"] = f"{flags} {_FAST_SCATTERS}".strip()


def _has_cuda() -> bool:
    plugins = ("jax_cuda12_plugin", "jax_cuda13_plugin")
    return any(importlib.util.find_spec(plugin) is not None for plugin in plugins)


def _has_started() -> bool:
    """Whether JAX has used a device; there is no public way to ask."""
    from jax._src import xla_bridge

    return xla_bridge.backends_are_initialized()
