"""Settings of JAX before it compiles: the compilation cache, and flags of XLA."""

import functools
import importlib.metadata
import importlib.util
import logging
import os
from pathlib import Path
from typing import Any

import jax
from jax._src import compilation_cache
from jax._src.compilation_cache_interface import CacheInterface

from embedder.disk.cache_files import (
    read_cache_file,
    user_cache_folder,
    write_cache_file,
)
from embedder.errors import InputError

_SLOW_SCATTERS = {"0.10.2", "0.11.0"}  # versions of jaxlib; jax-ml/jax issue 38806
_FAST_SCATTERS = "--xla_backend_extra_options=-nvptx-allow-ftz-atomics"
_CONVOLUTIONS = {  # what YNNPACK computes: matrix products and sums
    "xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_DOT,"
    "LIBRARY_FUSION_TYPE_REDUCE"
}
_log = logging.getLogger(__name__)
_MIN_SECONDS = 0.1  # of compile time; faster programs are not cached


class _Cache(CacheInterface):
    """The compilation cache of JAX, in files with a checksum.

    JAX's own class leaves half a file when it is killed, never replaces a damaged file,
    and logs two lines for each. Its public settings are the folder and the size: one
    for the class is missing, and `CacheInterface` is private, too (jax-ml/jax issue
    15739 asks for more of the cache in public).
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._is_writable = True

    def get(self, key: str) -> bytes | None:
        return read_cache_file(self._folder / f"{key}-sealed")

    def put(self, key: str, value: bytes) -> None:
        if not self._is_writable:
            return
        try:
            write_cache_file(self._folder / f"{key}-sealed", value)
        except OSError as error:
            self._is_writable = False
            _log_cache_off(self._folder, error.strerror)


def enable_compilation_cache() -> None:
    """Makes JAX cache compiled programs in the user's cache folder, on disk.

    Changes nothing if JAX already has a folder (JAX_COMPILATION_CACHE_DIR or its
    config), if JAX_ENABLE_COMPILATION_CACHE is false, or if the folder is not writable,
    which is logged.
    """
    config: Any = jax.config  # its options are attributes that its type does not list
    if config.jax_compilation_cache_dir or not config.jax_enable_compilation_cache:
        return
    folder = user_cache_folder() / "jax"
    try:
        folder = folder.expanduser()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:  # no home folder, or no permission
        return _log_cache_off(folder, getattr(error, "strerror", error))
    if not os.access(folder, os.W_OK):
        return _log_cache_off(folder, "it is not writable")
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", _MIN_SECONDS)
    compilation_cache._cache = _Cache(folder)  # see `_Cache`


def _log_cache_off(folder: Path, why: object) -> None:
    _log.info("The compilation cache is off: %s: %s.", folder, str(why).rstrip("."))


@functools.cache
def convolution_options() -> dict[str, str]:
    """Options of XLA, as `jax.jit` takes them, for programs with convolutions.

    On CPUs jaxlib 0.10 gives convolutions to YNNPACK, which computes each in one thread
    unless it is fused with a sum (bench/README.md#networks-of-images). Without it XLA
    has its own, in all threads; sums and matrix products stay with YNNPACK. Versions
    that do not know the option get none.
    """
    if jax.default_backend() != "cpu":
        return {}
    try:
        jax.jit(lambda: 0, compiler_options=_CONVOLUTIONS).lower().compile()
    except jax.errors.JaxRuntimeError:  # no such option
        return {}
    return _CONVOLUTIONS


@functools.cache
def prepare_devices() -> None:
    """To be called before the first use of a device.

    Raises:
      InputError: JAX_PLATFORMS names a platform that is not there, or
        JAX_TRANSFER_GUARD forbids copies.
    """
    avoid_slow_scatters()
    guard = str(getattr(jax.config, "jax_transfer_guard", None))
    if guard.startswith("disallow"):
        raise InputError(
            "JAX_TRANSFER_GUARD must allow copies to devices, of each batch, got "
            f"{guard!r}: unset it."
        )
    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:  # jax 0.10 has an assert for CUDA
        named = getattr(jax.config, "jax_platforms", None)
        if not named:
            raise
        why = " ".join(str(error).partition("(set JAX")[0].split()).rstrip(".")
        raise InputError(
            f"JAX_PLATFORMS must name platforms that are there, got {named!r}"
            f"{f' ({why})' if why else ''}: unset it, or JAX_PLATFORMS=cpu."
        ) from error


def avoid_slow_scatters() -> None:
    """Sets an XLA flag for versions of jaxlib whose scatter-add is slow on a GPU.

    They compile scatter-add of float32 to loops of compare-and-swap, about 450 times
    slower where rows repeat. XLA reads its flags when a device is first used: a warning
    is logged if that is over, or if the user has set such flags.
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
    """Whether JAX has used a device; there is no public way to ask (jax-ml/jax issue
    23320)."""
    from jax._src import xla_bridge

    return xla_bridge.backends_are_initialized()
