"""Outputs of an encoder: embeddings, class probabilities, loss and accuracy.

Examples are passed to the compiled functions in groups of one size, the last one
padded. It is such that the activations of a group fit in memory, and that few examples
are not padded to many. K replicas, whose models have K first, compute a group in one
call: as many of them at once, by `vmap`, as memory allows.

Axis letters: K replicas, n examples, m examples of a group, E values of an embedding,
C classes.
"""

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from embedder.encoders.memory import output_bytes
from embedder.encoders.networks.encoder import Encoder, Outputs, make_encoder
from embedder.encoders.networks.network import Array, Model, Network, Pass
from embedder.encoders.update import Sums, loss_sums
from embedder.threads import use_threads

_GROUP = 1024  # examples that are computed at once, at most
_VALUES = {"cpu": 2**20}  # that replicas compute at once: a CPU's cache holds them
_DEVICE_VALUES = 2**26  # on other devices
_HELD_VALUES = 2**26  # of the outputs of all replicas for a group
_ACTIVATIONS = {"cpu": 2**28}  # bytes of those of a group, at most
_DEVICE_ACTIVATIONS = 2**30  # on other devices
_FEW_ACTIVATIONS = 2**24  # bytes up to which padding costs less than to compile anew
_MARGIN = 2  # XLA holds up to so many times what is estimated


def load_encoder(
    network: Network, arrays: Mapping[str, np.ndarray]
) -> tuple[Encoder, Model]:
    """The encoder of `network` with its parameters as `arrays` of an encoder file."""
    return load_model(network, network.to_model(arrays))


def load_model(network: Network, model: Model) -> tuple[Encoder, Model]:
    """The encoder of `network` for a model in NumPy, which it returns, too."""
    use_threads()
    return _encoder(network, jax.tree.leaves(model.params)[0].dtype.name), model


@functools.lru_cache(maxsize=8)
def _encoder(network: Network, dtype: str) -> Encoder:
    """Cached, because compiled functions are cached by encoder."""
    return make_encoder(network, dtype=dtype, seed=0)


def embed(encoder: Encoder, model: Model, features: np.ndarray) -> np.ndarray:
    """Embeddings of examples, the last hidden layer, [n, E] in the encoder's dtype."""
    return _apply(encoder, _embed, model, features, encoder.network.vector_size)


def scores(encoder: Encoder, model: Model, features: np.ndarray) -> np.ndarray:
    """Scores (logits) of the classes of examples, [n, C] in the encoder's dtype."""
    return _apply(encoder, _scores, model, features, encoder.network.num_classes)


def probabilities(encoder: Encoder, model: Model, features: np.ndarray) -> np.ndarray:
    """Probabilities of the classes of examples, [n, C]: softmax of the scores."""
    return softmax(scores(encoder, model, features))


def softmax(scores: np.ndarray) -> np.ndarray:
    """Probabilities of classes from their scores, over the last axis, in their dtype.

    p_c = exp(s_c) / sum_c exp(s_c)
    """
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def embed_replicas(
    encoder: Encoder, model: Model, features: np.ndarray
) -> Iterator[np.ndarray]:
    """Embeddings of one group of examples after the other, [K, m, E]."""
    return _groups(_replica_embed, encoder, model, features)


def score_replicas(
    encoder: Encoder, model: Model, features: np.ndarray
) -> Iterator[np.ndarray]:
    """Scores of the classes of one group of examples after the other, [K, m, C]."""
    return _groups(_replica_scores, encoder, model, features)


def network_outputs(
    encoder: Encoder, model: Model, features: np.ndarray
) -> Iterator[Outputs]:
    """Embeddings and scores of one group of examples after the other, with K = 1."""
    return _groups(_one_outputs, encoder, model, features, num=1)


def replica_outputs(
    encoder: Encoder, model: Model, features: np.ndarray
) -> Iterator[Outputs]:
    """Embeddings [K, m, E] and scores [K, m, C] of one group after the other."""
    return _groups(_replica_outputs, encoder, model, features)


def evaluate(
    encoder: Encoder,
    model: Model,
    features: np.ndarray,
    labels: np.ndarray,
    ids: np.ndarray,
) -> tuple[float, float]:
    """Mean cross entropy and accuracy of the examples `ids`, i64[n]."""
    data = features, labels, ids
    return _evaluate(_batch_sums, encoder, _on_one_device(model), *data)


def evaluate_replicas(
    encoder: Encoder,
    model: Model,
    features: np.ndarray,
    labels: np.ndarray,
    ids: np.ndarray,
) -> tuple[float, float]:
    """Means over K replicas of what `evaluate` returns; `model` have K first."""
    sums = functools.partial(_replica_sums, _num_at_once(encoder))
    data = features, labels, ids
    return _evaluate(sums, encoder, _on_one_device(model), *data)


def _evaluate(
    batch_sums: Callable[..., Sums],
    encoder: Encoder,
    model: Model,
    features: np.ndarray,
    labels: np.ndarray,
    ids: np.ndarray,
) -> tuple[float, float]:
    total, size = np.zeros(3), _group_size(encoder, len(ids))
    with jax.enable_x64(encoder.dtype == np.float64):
        for start in range(0, len(ids), size):
            group = ids[start : start + size]
            rows = features[group], labels[group], np.ones(len(group), encoder.dtype)
            batch = (_padded(each, size) for each in rows)
            sums = jax.device_get(batch_sums(encoder, model, *batch))
            total += [float(np.sum(x, dtype=np.float64)) for x in sums]
    return float(total[0] / total[1]), float(total[2] / total[1])


def _apply(
    encoder: Encoder,
    function: Callable[[Encoder, Model, Array], jax.Array],
    model: Model,
    features: np.ndarray,
    width: int,
) -> np.ndarray:
    outputs = np.empty((len(features), width), encoder.dtype)
    model, size = _on_one_device(model), _group_size(encoder, len(features))
    with jax.enable_x64(encoder.dtype == np.float64):
        for start in range(0, len(features), size):
            group = _padded(np.asarray(features[start : start + size]), size)
            rows = outputs[start : start + size]
            rows[:] = np.asarray(function(encoder, model, group))[: len(rows)]
    return outputs


def _groups(
    function: Callable[..., Any],
    encoder: Encoder,
    model: Model,
    features: np.ndarray,
    num: int | None = None,
) -> Iterator[Any]:
    """The outputs of K replicas for one group of examples after the other, [K, m, .]

    Args:
      num: K; None: `model` has K first.
    """
    num = len(jax.tree.leaves(model)[0]) if num is None else num
    size, at_once = _group_size(encoder, len(features), num), _num_at_once(encoder)
    is_float64 = encoder.dtype == np.float64
    with jax.enable_x64(is_float64):
        model = jax.device_put(_on_one_device(model))  # else for every group
    for start in range(0, len(features), size):
        rows = np.asarray(features[start : start + size])
        with jax.enable_x64(is_float64):  # not across the yield
            group = _padded(rows, size)
            found = function(at_once, encoder, model, group)
        yield jax.tree.map(functools.partial(_first, len(rows)), found)


def _first(num: int, outputs: jax.Array) -> np.ndarray:
    """Outputs of the examples of a group that are no padding, [K, num, .]."""
    return np.asarray(outputs)[:, :num]


def group_bytes(encoder: Encoder, num_examples: int, num_replicas: int) -> int:
    """Bytes that the outputs of examples need on the device at once, estimated."""
    size = _group_size(encoder, num_examples, num_replicas)
    at_once = min(num_replicas, _num_at_once(encoder))
    return _MARGIN * at_once * size * _example_bytes(encoder)


def _group_size(encoder: Encoder, num_examples: int, num_replicas: int = 1) -> int:
    """Number of examples of a group, all outputs of which are held at once."""
    network, each = encoder.network, _example_bytes(encoder)
    outputs = network.vector_size + network.num_classes
    most = _power_of_two(_activation_limit() // each)
    least = _power_of_two(_FEW_ACTIVATIONS // each)
    needed = 2 ** math.ceil(math.log2(max(1, num_examples)))
    size = min(_GROUP, most, max(least, needed))
    return max(1, min(size, _HELD_VALUES // (num_replicas * outputs)))


def _power_of_two(number: int) -> int:
    """The largest power of two up to `number`, at least 1."""
    return 2 ** (max(1, number).bit_length() - 1)


def _activation_limit() -> int:
    return _ACTIVATIONS.get(jax.default_backend(), _DEVICE_ACTIVATIONS)


def _example_bytes(encoder: Encoder) -> int:
    return output_bytes(encoder.network, encoder.dtype.name)


def _num_at_once(encoder: Encoder) -> int:
    """Number of replicas that compute a group by one `vmap`, at most."""
    network = encoder.network
    outputs = network.vector_size + network.num_classes
    example = math.prod(network.example_shape) + outputs
    values = _VALUES.get(jax.default_backend(), _DEVICE_VALUES)
    fitting = _activation_limit() // (_GROUP * _example_bytes(encoder))
    return max(1, min(values // (_GROUP * example), fitting))


def _padded(rows: np.ndarray, size: int) -> np.ndarray:
    """`rows` with zeros up to the number that the functions are compiled for."""
    missing = size - len(rows)
    return np.pad(rows, [(0, missing)] + [(0, 0)] * (rows.ndim - 1))


_embed = jax.jit(lambda encoder, model, x: encoder.embed(model, x), static_argnums=0)
_scores = jax.jit(lambda encoder, model, x: encoder.scores(model, x), static_argnums=0)
_outputs = jax.jit(
    lambda encoder, model, x: encoder.outputs(model, x, Pass())[0], static_argnums=0
)
_batch_sums = jax.jit(loss_sums, static_argnums=0)


def _of_each(function: Callable) -> Callable:
    """`function` of each of K replicas, `at_once` of them by one `vmap`, compiled."""

    def call(at_once: int, encoder: Encoder, model: Model, *batch: Array):
        def of_one(one: Model):
            return function(encoder, one, *batch)

        return jax.lax.map(of_one, model, batch_size=at_once)

    return jax.jit(call, static_argnums=(0, 1))


_replica_embed = _of_each(lambda encoder, model, x: encoder.embed(model, x))
_replica_scores = _of_each(lambda encoder, model, x: encoder.scores(model, x))
_replica_outputs = _of_each(
    lambda encoder, model, x: encoder.outputs(model, x, Pass())[0]
)
_replica_sums = _of_each(loss_sums)


def _one_outputs(at_once: int, encoder: Encoder, model: Model, x: Array) -> Outputs:
    found = _outputs(encoder, model, x)
    return jax.tree.map(lambda y: y[np.newaxis], found)


def _on_one_device(model: Model) -> Model:
    """The parameters, replicated on every device, on one device of this process."""
    return jax.tree.map(
        lambda x: x.addressable_data(0) if isinstance(x, jax.Array) else x, model
    )
