import errno
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from embedder.encoders.networks.convolution import in_order
from embedder.engine import compilation
from tests.commands import run_python

TRAIN = """
from embedder import EmbeddingTrainer
EmbeddingTrainer(min_count=1, vector_size=100, epochs=1).fit([["a", "b"] * 9000])
"""


def compiled_programs(
    cache: Path, is_damaged: bool = False, **variables: str
) -> set[str]:
    """Trains in a new process; the files that are in the cache folder then."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    done = run_python("-c", TRAIN, env=environment | variables)
    assert done.returncode == 0, done.stderr
    lines = [f"Cache file {path} is damaged" for path in cache.rglob("jit_updates*")]
    assert done.stderr.count("\n") == (len(lines) if is_damaged else 0), done.stderr
    assert not is_damaged or all(line in done.stderr for line in lines)
    return {path.name for path in cache.rglob("jit_updates*")}


PLATFORM = """
import numpy as np
from embedder import EmbeddingTrainer, FeatureEncoder
from embedder.cli.main import main
open("t.txt", "w").write("a b c\\n" * 50)
np.savez("x.npz", X=np.eye(8), y=np.arange(8) % 2)
for line in ("train t.txt --min-count 1 --workdir r --loader memory",
             "train x.npz --model encoder --workdir e", "devices"):
    assert main(line.split()) == 2
for fit in (lambda: EmbeddingTrainer(min_count=1).fit([["a", "b"]] * 9),
            lambda: FeatureEncoder().fit(np.eye(8), np.arange(8) % 2)):
    try:
        fit()
    except ValueError as error:
        assert "must name platforms that are there, got 'nonsense'" in str(error)
    else:
        raise AssertionError
assert main(["doctor"]) == 0
"""


@pytest.mark.slow
def test_a_platform_that_is_not_there_is_one_line(tmp_path):
    environment = {**os.environ, "JAX_PLATFORMS": "nonsense"}
    done = run_python("-c", PLATFORM, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "devices: none: JAX_PLATFORMS must" in done.stdout
    said = [x for x in done.stderr.splitlines() if x.startswith("embedder: ")]
    assert len(said) == 3 and all(": JAX_PLATFORMS must name" in x for x in said)


def test_a_python_that_embedder_cannot_run_with_is_one_line(tmp_path):
    (tmp_path / "t.txt").write_text("a b c\n" * 50)
    train = "embedder", "train", "t.txt", "--min-count", "1"
    guarded = {**os.environ, "JAX_TRANSFER_GUARD": "disallow"}
    for arguments, environment, said in (
        (["-m", *train], guarded, "JAX_TRANSFER_GUARD must allow copies to devices"),
        (["-OO", "-m", *train], None, "python -OO leaves out docstrings"),
    ):
        done = run_python(*arguments, env=environment, cwd=tmp_path)
        (line,) = done.stderr.splitlines()
        assert done.returncode == 2 and line.startswith(f"embedder: {said}")


@pytest.mark.slow
def test_programs_are_in_the_folder_that_jax_is_given(tmp_path):
    """Of ours nothing is there then, as where it is off or cannot be made."""
    theirs = tmp_path / "theirs"
    options = {
        "JAX_COMPILATION_CACHE_DIR": str(theirs),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    assert not compiled_programs(tmp_path / "ours", **options)
    assert [*theirs.glob("jit_updates*-cache")]
    (tmp_path / "file").touch()
    assert not compiled_programs(tmp_path / "file" / "cache")
    off = {"JAX_ENABLE_COMPILATION_CACHE": "false"}
    assert not compiled_programs(tmp_path / "off", **off)


@pytest.mark.slow
@pytest.mark.row("F28")
def test_a_damaged_program_is_named_and_compiled_anew(tmp_path):
    """What an earlier run compiled is found by a later one."""
    names = compiled_programs(tmp_path)
    assert names and compiled_programs(tmp_path) == names
    whole = {path: path.read_bytes() for path in tmp_path.rglob("jit_updates*")}
    for path in whole:
        path.write_bytes(whole[path][:1000])
    assert compiled_programs(tmp_path, is_damaged=True) == names
    assert all(len(path.read_bytes()) > 1000 for path in whole)
    assert compiled_programs(tmp_path) == names


@pytest.mark.row("F28")
def test_a_full_disk_is_logged_once_and_raises_nothing(tmp_path, monkeypatch, caplog):
    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    caplog.set_level("INFO")
    cache = compilation._Cache(tmp_path)
    monkeypatch.setattr(os, "replace", full)
    for key in "ab":
        cache.put(key, b"program")
        assert cache.get(key) is None
    assert caplog.messages == [
        f"The compilation cache is off: {tmp_path}: No space left on device."
    ]
    assert os.listdir(tmp_path) == []


@pytest.mark.row("F28")
@pytest.mark.parametrize("where", ["file/cache", "proc", "~nobody-here/cache"])
def test_a_cache_folder_that_cannot_be_made_is_logged(
    tmp_path, monkeypatch, caplog, where
):
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    path = {"proc": "/proc/1"}.get(where, where)
    monkeypatch.setenv("XDG_CACHE_HOME", path)
    caplog.set_level("INFO")
    before = jax.config.jax_compilation_cache_dir
    was_enabled = jax.config.jax_enable_compilation_cache  # a bench turns it off
    jax.config.update("jax_compilation_cache_dir", None)
    jax.config.update("jax_enable_compilation_cache", True)
    try:
        compilation.enable_compilation_cache()
        assert jax.config.jax_compilation_cache_dir is None
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
        jax.config.update("jax_enable_compilation_cache", was_enabled)
    (message,) = caplog.messages
    assert message.startswith(f"The compilation cache is off: {path}/embedder/jax: ")


FLAG = "--xla_backend_extra_options=-nvptx-allow-ftz-atomics"


@pytest.fixture
def affected(monkeypatch):
    """A jaxlib that is slow, with CUDA, before a device was used."""
    monkeypatch.setattr(compilation, "_SLOW_SCATTERS", {"0.0.1"})
    monkeypatch.setattr(compilation.importlib.metadata, "version", lambda _: "0.0.1")
    monkeypatch.setattr(compilation, "_has_cuda", lambda: True)
    monkeypatch.setattr(compilation, "_has_started", lambda: False)


@pytest.mark.row("F25")
@pytest.mark.parametrize(
    ("given", "changes", "flags"),
    [
        ("--xla_dump_to=here", {}, f"--xla_dump_to=here {FLAG}"),
        ("", {"_SLOW_SCATTERS": {"0.0.2"}}, ""),
        ("", {"_has_cuda": bool}, ""),
        ("", {"_has_started": lambda: True}, None),
        ("--xla_backend_extra_options=-other", {}, None),
    ],
)
def test_an_affected_version_gets_the_flag(
    affected, monkeypatch, caplog, given, changes, flags
):
    """Once. Where it cannot be set, as a device was used or other options are given,
    there is a warning: flags are None."""
    monkeypatch.setenv("XLA_FLAGS", given)
    for name, value in changes.items():
        monkeypatch.setattr(compilation, name, value)
    for _ in range(2):
        compilation.avoid_slow_scatters()
    assert os.environ["XLA_FLAGS"] == (given if flags is None else flags)
    assert (FLAG in caplog.text) == (flags is None) == bool(caplog.records)


OF_AN_ENCODER = """
import sys
from embedder.cli.main import main
from embedder.engine import compilation
compilation._has_cuda = lambda: True
compilation._SLOW_SCATTERS = {compilation.importlib.metadata.version("jaxlib")}
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
@pytest.mark.row("F25")
def test_a_run_of_an_encoder_gets_the_flag(tmp_path):
    """Also where `loader` auto asks how much memory the devices have."""
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "points.npz", X=rng.random((9, 4)), y=np.arange(9) % 3)
    arguments = ["train", tmp_path / "points.npz", "--model", "encoder"]
    arguments += ["--loader", "auto", "--dry-run"]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
    done = run_python("-c", OF_AN_ENCODER, *arguments, env=environment)
    assert done.returncode == 0, done.stderr
    assert "too slowly" not in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(
    jax.__version_info__ < (0, 10, 2), reason="no jaxlib before 0.10.2 knows the flag"
)
def test_the_flag_does_no_harm_on_a_cpu():
    """And whether a device was used is known."""
    code = (
        "from embedder.engine.compilation import _has_started as started, jax; "
        "before = started(); print(jax.jit(lambda x: x + 1)(1), before, started())"
    )
    environment = {**os.environ, "XLA_FLAGS": FLAG, "JAX_PLATFORMS": "cpu"}
    done = run_python("-c", code, env=environment)
    assert (done.stdout, done.returncode) == ("2 False True\n", 0)


def test_convolutions_are_those_of_xla_which_have_all_threads():
    def program(options: dict[str, str]) -> str:
        jitted = jax.jit(in_order, compiler_options=options)
        x, kernel = jnp.ones((128, 14, 14, 32)), jnp.ones((3, 3, 32, 64))
        return jitted.lower(x, kernel).compile().as_text()

    assert "ynn" in program({})  # else the options are no longer needed
    assert "ynn" not in program(compilation.convolution_options())
