"""Outputs of an encoder: embeddings, class probabilities, loss and accuracy.

Examples are passed to the compiled functions in groups of one size, the last one
padded.

Axis letters: n examples, E values of an embedding, C classes.
"""

import functools
from collections.abc import Callable, Mapping

import jax
import numpy as np

from embedder.encoders.networks import (
    Array,
    Encoder,
    Network,
    Params,
    make_encoder,
)
from embedder.encoders.update import Sums, loss_sums
from embedder.threads import use_threads

_GROUP = 1024  # examples that are computed at once


def load_encoder(
    network: Network, arrays: Mapping[str, np.ndarray]
) -> tuple[Encoder, Params]:
    """The encoder of `network` with its parameters as `arrays` of an encoder file."""
    use_threads()
    dtype = next(iter(arrays.values())).dtype.name
    return _encoder(network, dtype), network.to_params(arrays)


@functools.lru_cache(maxsize=8)
def _encoder(network: Network, dtype: str) -> Encoder:
    """Cached, because compiled functions are cached by encoder."""
    return make_encoder(network, dtype=dtype, seed=0)


def embed(encoder: Encoder, params: Params, features: np.ndarray) -> np.ndarray:
    """Embeddings of examples, the last hidden layer, [n, E] in the encoder's dtype."""
    return _apply(encoder, _embed, params, features, encoder.network.vector_size)


def scores(encoder: Encoder, params: Params, features: np.ndarray) -> np.ndarray:
    """Scores (logits) of the classes of examples, [n, C] in the encoder's dtype."""
    return _apply(encoder, _scores, params, features, encoder.network.num_classes)


def probabilities(encoder: Encoder, params: Params, features: np.ndarray) -> np.ndarray:
    """Probabilities of the classes of examples, [n, C]: softmax of the scores."""
    logits = scores(encoder, params, features)
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def evaluate(
    encoder: Encoder,
    params: Params,
    features: np.ndarray,
    labels: np.ndarray,
    ids: np.ndarray,
) -> tuple[float, float]:
    """Mean cross entropy and accuracy of the examples `ids`, i64[n]."""
    return _evaluate(_batch_sums, encoder, params, features, labels, ids)


def evaluate_replicas(
    encoder: Encoder,
    params: Params,
    features: np.ndarray,
    labels: np.ndarray,
    ids: np.ndarray,
) -> tuple[float, float]:
    """Means over K replicas of what `evaluate` returns; `params` have K first."""
    return _evaluate(_replica_sums, encoder, params, features, labels, ids)


def _evaluate(
    batch_sums: Callable[..., Sums],
    encoder: Encoder,
    params: Params,
    features: np.ndarray,
    labels: np.ndarray,
    ids: np.ndarray,
) -> tuple[float, float]:
    params, total = _on_one_device(params), np.zeros(3)
    with jax.enable_x64(encoder.dtype == np.float64):
        for start in range(0, len(ids), _GROUP):
            group = ids[start : start + _GROUP]
            weights = _padded(np.ones(len(group), encoder.dtype))
            batch = _padded(features[group]), _padded(labels[group]), weights
            sums = jax.device_get(batch_sums(encoder, params, *batch))
            total += [float(np.sum(x, dtype=np.float64)) for x in sums]
    return float(total[0] / total[1]), float(total[2] / total[1])


def _apply(
    encoder: Encoder,
    function: Callable[[Encoder, Params, Array], jax.Array],
    params: Params,
    features: np.ndarray,
    width: int,
) -> np.ndarray:
    outputs = np.empty((len(features), width), encoder.dtype)
    params = _on_one_device(params)
    with jax.enable_x64(encoder.dtype == np.float64):
        for start in range(0, len(features), _GROUP):
            group = _padded(np.asarray(features[start : start + _GROUP]))
            rows = outputs[start : start + _GROUP]
            rows[:] = np.asarray(function(encoder, params, group))[: len(rows)]
    return outputs


def _padded(rows: np.ndarray) -> np.ndarray:
    """`rows` with zeros up to the number that the functions are compiled for."""
    missing = _GROUP - len(rows)
    return np.pad(rows, [(0, missing)] + [(0, 0)] * (rows.ndim - 1))


_embed = jax.jit(lambda encoder, params, x: encoder.embed(params, x), static_argnums=0)
_scores = jax.jit(
    lambda encoder, params, x: encoder.scores(params, x), static_argnums=0
)
_batch_sums = jax.jit(loss_sums, static_argnums=0)


@functools.partial(jax.jit, static_argnums=0)
def _replica_sums(encoder: Encoder, params: Params, *batch: Array) -> Sums:
    """The sums of each replica, [K]; one after the other, to save memory."""
    return jax.lax.map(lambda one: loss_sums(encoder, one, *batch), params)


def _on_one_device(params: Params) -> Params:
    """The parameters, replicated on every device, on one device of this process."""
    return jax.tree.map(
        lambda x: x.addressable_data(0) if isinstance(x, jax.Array) else x, params
    )
