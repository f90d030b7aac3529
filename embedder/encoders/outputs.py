"""What an encoder says of examples, some at a time: vectors, scores, how good it is.

Axis letters: n examples, E widths of the last hidden layer, C classes.
"""

import functools

import jax
import numpy as np

from embedder.encoders import update as classify
from embedder.encoders.networks import Encoder, encoder, params_of
from embedder.threads import use_threads

_AT_ONCE = 1024  # examples that are looked at together


def network_of(layers: list[tuple[np.ndarray, np.ndarray]]) -> tuple[Encoder, dict]:
    """The network of weights [in, out] and biases [out], and its parameters."""
    use_threads()
    widths = len(layers[0][0]), *(len(biases) for _, biases in layers)
    return _network(widths, layers[0][0].dtype.name), params_of(layers)


@functools.lru_cache(maxsize=8)
def _network(widths: tuple[int, ...], dtype: str) -> Encoder:
    """The network, kept so that the same again is not compiled again."""
    return encoder(widths, dtype=dtype, seed=0)


def embed(network: Encoder, params, features: np.ndarray) -> np.ndarray:
    """The last hidden layer of examples, [n, E]."""
    return _apply(network, _embed, params, features, network.widths[-2])


def scores(network: Encoder, params, features: np.ndarray) -> np.ndarray:
    """The scores of the classes of examples, [n, C]."""
    return _apply(network, _scores, params, features, network.widths[-1])


def probabilities(network: Encoder, params, features: np.ndarray) -> np.ndarray:
    """The softmax of the scores, [n, C]."""
    found = scores(network, params, features)
    shares = np.exp(found - found.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


def judged(
    network: Encoder, params, features: np.ndarray, labels: np.ndarray, which
) -> tuple[float, float]:
    """Mean loss and accuracy of the examples `which`, i64[n]."""
    params, total = _on_one_device(params), np.zeros(3)
    with jax.enable_x64(network.dtype == np.float64):
        for start in range(0, len(which), _AT_ONCE):
            part = which[start : start + _AT_ONCE]
            weights = _filled(np.ones(len(part), network.dtype))
            batch = _filled(features[part]), _filled(labels[part]), weights
            sums = jax.device_get(_batch_sums(network, params, *batch))
            total += [float(x) for x in sums]
    return float(total[0] / total[1]), float(total[2] / total[1])


def _apply(network: Encoder, function, params, features, width: int) -> np.ndarray:
    found = np.empty((len(features), width), network.dtype)
    params = _on_one_device(params)
    with jax.enable_x64(network.dtype == np.float64):
        for start in range(0, len(features), _AT_ONCE):
            part = _filled(np.asarray(features[start : start + _AT_ONCE]))
            rows = found[start : start + _AT_ONCE]
            rows[:] = np.asarray(function(network, params, part))[: len(rows)]
    return found


def _filled(rows: np.ndarray) -> np.ndarray:
    """`rows` up to the number that programs are compiled for."""
    missing = _AT_ONCE - len(rows)
    return np.pad(rows, [(0, missing)] + [(0, 0)] * (rows.ndim - 1))


_embed = jax.jit(lambda network, params, x: network.embed(params, x), static_argnums=0)
_scores = jax.jit(
    lambda network, params, x: network.scores(params, x), static_argnums=0
)
_batch_sums = jax.jit(classify.sums_of, static_argnums=0)


def _on_one_device(params):
    """The parameters, which every device has whole, on one of this process."""
    return jax.tree.map(
        lambda x: x.addressable_data(0) if isinstance(x, jax.Array) else x, params
    )
