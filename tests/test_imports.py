"""What is loaded when: a slow import must not stand before a quick answer."""

import pytest

from tests.commands import run_python

HEAVY = {"tensorflow", "jax", "polars", "scipy", "optax", "haiku"}
HELP = """
import contextlib, io
from embedder.cli import main
with contextlib.redirect_stdout(io.StringIO()):
    assert main(["train", "--help"]) == 0
"""


def loaded_by(code: str) -> set[str]:
    """Packages that a new interpreter has loaded after `code`."""
    code += "\nimport sys; print(*{name.split('.')[0] for name in sys.modules})"
    done = run_python("-c", code)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "code", ["import embedder; embedder.Config", HELP], ids=["import", "help"]
)
def test_quick_code_loads_nothing_slow(code):
    assert not loaded_by(code) & HEAVY


def test_reading_vectors_loads_no_jax():
    assert "jax" not in loaded_by("from embedder import read_vectors")


def test_estimator_loads_no_tensorflow():
    loaded = loaded_by("from embedder import EmbeddingTrainer")
    assert "jax" in loaded and "tensorflow" not in loaded


def test_embedder_does_not_load_the_room_gensim():
    found = run_python("-c", f"{HELP}\nimport embedder, sys; print(*sys.modules)")
    assert found.returncode == 0, found.stderr
    assert "embedder" in found.stdout.split()
    assert not [x for x in found.stdout.split() if x.startswith("embedder.gensim")]


def test_the_room_gensim_does_not_load_gensim():
    loaded = loaded_by("import embedder.gensim")
    assert "embedder" in loaded and not loaded & {"gensim", "tensorflow", "jax"}


def test_unknown_public_name_is_an_attribute_error():
    import embedder

    with pytest.raises(AttributeError, match="no attribute 'Trainer'"):
        _ = embedder.Trainer
