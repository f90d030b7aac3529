"""Compiled programs, kept on disk between runs."""

import os
from pathlib import Path

import jax

_SECONDS = 0.1  # programs that compile faster than this are not worth a file


def keep_compiled_programs() -> None:
    """Lets JAX keep compiled programs in the user's cache folder.

    Nothing is changed where a folder is given to JAX already (JAX_COMPILATION_CACHE_DIR
    or its config), where JAX_ENABLE_COMPILATION_CACHE is false, or where there is no
    folder to write to.
    """
    if (
        jax.config.jax_compilation_cache_dir
        or not jax.config.jax_enable_compilation_cache
    ):
        return
    try:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(home) / "embedder" / "jax"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # no home, or not ours
        return
    if os.access(folder, os.W_OK):
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", _SECONDS)
