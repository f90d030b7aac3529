"""Whether all numbers of a state are finite, wherever its arrays are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from embedder.engine import epochs
from embedder.engine.epochs import is_finite


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("place", [0, 9, 23, None])
@pytest.mark.parametrize("on_host", [False, True])
def test_one_number_anywhere(dtype, place, on_host, monkeypatch):
    monkeypatch.setattr(epochs, "_CHUNK_VALUES", 10)
    values = np.zeros(24)
    if place is not None:
        values[place] = np.inf if place else np.nan
    with jax.enable_x64(dtype == "float64"):
        array = jnp.asarray(values.reshape(4, 6), dtype)
        assert array.dtype == dtype
    tree = {"a": np.asarray(array) if on_host else array, "key": jax.random.key(0)}
    tree |= {"count": np.int32(2), "none": np.zeros(0, np.float32)}
    assert is_finite(tree) == (place is None)


def test_arrays_that_numpy_cannot_read(monkeypatch):
    """As on a GPU: a compiled program looks at them."""
    monkeypatch.setattr(epochs, "_is_on_cpu", lambda array: False)
    assert is_finite([jnp.zeros(3), jnp.ones((2, 2))])
    assert not is_finite([jnp.zeros(3), jnp.array([[1.0, jnp.nan]])])
