import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TRAIN = """
from embedder import EmbeddingTrainer
EmbeddingTrainer(min_count=1, vector_size=100, epochs=1).fit([["a", "b"] * 9000])
"""


def compiled_programs(cache: Path, **variables: str) -> set[str]:
    """Trains in a new process; the files that are in the cache folder then."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(cache)}
    del environment["JAX_ENABLE_COMPILATION_CACHE"]
    done = subprocess.run(
        [sys.executable, "-c", TRAIN],
        env=environment | variables,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return {path.name for path in cache.rglob("*-cache")}


def test_a_later_run_finds_what_an_earlier_one_compiled(tmp_path):
    first = compiled_programs(tmp_path)
    assert first
    assert compiled_programs(tmp_path) == first


def test_a_folder_given_to_jax_is_used_instead(tmp_path):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    assert not compiled_programs(ours, JAX_COMPILATION_CACHE_DIR=str(theirs))


def test_no_folder_to_write_to_is_no_error(tmp_path):
    (tmp_path / "file").touch()
    assert not compiled_programs(tmp_path / "file" / "cache")


def test_the_cache_can_be_switched_off(tmp_path):
    assert not compiled_programs(tmp_path, JAX_ENABLE_COMPILATION_CACHE="false")
