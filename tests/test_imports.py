"""What is loaded when: a slow import must not stand before a quick answer."""

import pytest

import embedder
from tests.commands import run_python

HELP = """
import contextlib, io, embedder
embedder.Config
from embedder.cli.main import main
with contextlib.redirect_stdout(io.StringIO()):
    assert main(["train", "--help"]) == main(["sweep", "--help"]) == 0
"""
SLOW = {"tensorflow", "jax", "polars", "scipy", "optax", "haiku", "safetensors"}
CASES = [
    # code, what it loads, and what it does not
    (HELP, {"embedder"}, SLOW | {"numpy", "embedder.gensim"}),
    ("import embedder.metrics.words, embedder.vectors.export", {"numpy"}, SLOW),
    ("from embedder import read_vectors", {"embedder"}, {"jax"}),
    ("from embedder import EmbeddingTrainer", {"jax"}, {"tensorflow", "scipy.sparse"}),
    ("import embedder.gensim", {"embedder"}, {"gensim", "tensorflow", "jax"}),
]


def loaded_by(code: str) -> set[str]:
    """Packages and modules that a new interpreter has loaded after `code`, which draws
    none of the user's random numbers."""
    program = f"import random, sys; state = random.getstate()\n{code}\n"
    program += "assert random.getstate() == state; print(*sys.modules)"
    done = run_python("-c", program)
    assert done.returncode == 0, done.stderr
    return {*done.stdout.split()}


@pytest.mark.parametrize(("code", "some", "none"), CASES)
def test_what_code_loads(code, some, none):
    loaded = loaded_by(code)
    assert some <= loaded and not loaded & none


def test_unknown_public_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Trainer'"):
        _ = embedder.Trainer


def test_the_function_train_keeps_its_name():
    """The room `embedder.train` has it, too."""
    code = "from embedder import FeatureEncoder, train; train.__kwdefaults__['grow']"
    assert "embedder.engine.epochs" in loaded_by(code)
