"""Outputs of an encoder: embeddings, class probabilities, loss and accuracy.

Examples are passed to the compiled functions in groups of one size, the last one
padded. It is such that the activations of a group fit in memory, and that few examples
are not padded to many. K replicas, whose models have K first, compute a group in one
call: as many of them at once, by `vmap`, as memory allows.

Axis letters: K replicas, n examples, m examples of a group, E values of an embedding,
C classes.
"""

import math
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any

import jax
import numpy as np

from embedder.base.threads import use_threads
from embedder.encoders.memory import output_bytes
from embedder.encoders.networks.encoder import Encoder
from embedder.encoders.networks.network import Array, Model, Network, Pass
from embedder.encoders.train_step import loss_sums
from embedder.engine.compilation import prepare_devices

_GROUP = 1024  # examples that are computed at once, at most
_VALUES = {"cpu": 2**20}  # that replicas compute at once: a CPU's cache holds them
_DEVICE_VALUES = 2**26  # on other devices
_HELD_VALUES = 2**26  # of the outputs of all replicas for a group
_ACTIVATIONS = {"cpu": 2**28}  # bytes of those of a group, at most
_DEVICE_ACTIVATIONS = 2**30  # on other devices
_FEW_ACTIVATIONS = 2**24  # bytes up to which padding costs less than to compile anew
_MARGIN = 2  # XLA holds up to so many times what is estimated


def load_model(network: Network, model: Model) -> tuple[Encoder, Model]:
    """The encoder of `network` for a model in NumPy, which it returns, too."""
    use_threads()
    return Encoder(network, jax.tree.leaves(model.params)[0].dtype), model


def embed(encoder: Encoder, model: Model, features: np.ndarray) -> np.ndarray:
    """Embeddings of examples, the last hidden layer, [n, E] in the encoder's dtype."""
    groups = embed_groups(encoder, model, features, num=1)
    return _joined(groups, len(features), encoder, encoder.network.vector_size)


def scores(encoder: Encoder, model: Model, features: np.ndarray) -> np.ndarray:
    """Scores (logits) of the classes of examples, [n, C] in the encoder's dtype."""
    groups = score_groups(encoder, model, features, num=1)
    return _joined(groups, len(features), encoder, encoder.network.num_classes)


def probabilities(encoder: Encoder, model: Model, features: np.ndarray) -> np.ndarray:
    """Probabilities of the classes of examples, [n, C]: softmax of the scores."""
    return softmax(scores(encoder, model, features))


def softmax(scores: np.ndarray) -> np.ndarray:
    """Probabilities of classes from their scores, over the last axis, in their dtype.

    p_c = exp(s_c) / sum_c exp(s_c)
    """
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def _joined(
    groups: Iterator[np.ndarray], num: int, encoder: Encoder, width: int
) -> np.ndarray:
    """The outputs of one network for `num` examples, [num, width]."""
    outputs, start = np.empty((num, width), encoder.dtype), 0
    for each in groups:
        outputs[start : start + each.shape[1]] = each[0]
        start += each.shape[1]
    return outputs


def evaluate(
    encoder: Encoder,
    model: Model,
    features: np.ndarray,
    labels: np.ndarray,
    ids: np.ndarray,
    num: int | None = 1,
) -> tuple[float, float]:
    """Mean cross entropy and accuracy of the examples `ids`, i64[n].

    Args:
      num: as of `embed_groups`; of K replicas they are means.
    """
    function, model = _sums[num is None], _on_one_device(model)
    at_once, total = _num_at_once(encoder), np.zeros(3)
    size = _group_size(encoder, len(ids))
    with jax.enable_x64(encoder.dtype == np.float64):
        for start in range(0, len(ids), size):
            group = ids[start : start + size]
            rows = features[group], labels[group], np.ones(len(group), encoder.dtype)
            batch = (_padded(each, size) for each in rows)
            sums = jax.device_get(function(at_once, encoder, model, *batch))
            total += [float(np.sum(x, dtype=np.float64)) for x in sums]
    return float(total[0] / total[1]), float(total[2] / total[1])


def _compiled(function: Callable) -> tuple[Callable, Callable]:
    """`function` of one network, and of each of K, `at_once` of them by one `vmap`;
    outputs have K first."""

    def of_one(at_once: int, encoder: Encoder, model: Model, *batch: Array):
        return jax.tree.map(lambda y: y[None], function(encoder, model, *batch))

    def of_each(at_once: int, encoder: Encoder, model: Model, *batch: Array):
        def of_one(one: Model):
            return function(encoder, one, *batch)

        return jax.lax.map(of_one, model, batch_size=at_once)

    return jax.jit(of_one, static_argnums=(0, 1)), jax.jit(
        of_each, static_argnums=(0, 1)
    )


_sums = _compiled(loss_sums)


def _groups_of(function: Callable) -> Callable[..., Iterator[Any]]:
    """The function of `embed_groups`, `score_groups` and `output_groups`."""
    compiled = _compiled(function)

    def groups(
        encoder: Encoder, model: Model, features: np.ndarray, num: int | None = None
    ) -> Iterator[Any]:
        prepare_devices()
        call = compiled[num is None]
        num = len(jax.tree.leaves(model)[0]) if num is None else num
        size, at_once = _group_size(encoder, len(features), num), _num_at_once(encoder)
        is_float64 = encoder.dtype == np.float64
        with jax.enable_x64(is_float64):
            model = jax.device_put(_on_one_device(model))  # else for every group
        for start in range(0, len(features), size):
            rows = np.asarray(features[start : start + size])
            with jax.enable_x64(is_float64):  # not across the yield
                outputs = call(at_once, encoder, model, _padded(rows, size))
            without_padding = itemgetter((slice(None), slice(len(rows))))
            yield jax.tree.map(without_padding, jax.device_get(outputs))

    return groups


embed_groups = _groups_of(lambda encoder, model, x: encoder.embed(model, x))
"""Embeddings of one group of examples after the other, [K, m, E]. The last argument is
1 of one network; None: `model` has K first."""
score_groups = _groups_of(lambda encoder, model, x: encoder.scores(model, x))
"""The same of scores of the classes, [K, m, C]."""
output_groups = _groups_of(
    lambda encoder, model, x: encoder.outputs(model, x, Pass())[0]
)
"""The same of `Outputs`."""


def group_bytes(encoder: Encoder, num_examples: int, num_replicas: int) -> int:
    """Bytes that the outputs of examples need on the device at once, estimated."""
    size = _group_size(encoder, num_examples, num_replicas)
    at_once = min(num_replicas, _num_at_once(encoder))
    return _MARGIN * at_once * size * output_bytes(encoder)


def _group_size(encoder: Encoder, num_examples: int, num_replicas: int = 1) -> int:
    """Number of examples of a group, all outputs of which are held at once."""
    network, each = encoder.network, output_bytes(encoder)
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


def _num_at_once(encoder: Encoder) -> int:
    """Number of replicas that compute a group by one `vmap`, at most."""
    network = encoder.network
    outputs = network.vector_size + network.num_classes
    example = math.prod(network.example_shape) + outputs
    values = _VALUES.get(jax.default_backend(), _DEVICE_VALUES)
    fitting = _activation_limit() // (_GROUP * output_bytes(encoder))
    return max(1, min(values // (_GROUP * example), fitting))


def _padded(rows: np.ndarray, size: int) -> np.ndarray:
    """`rows` with zeros up to the number that the functions are compiled for."""
    missing = size - len(rows)
    return np.pad(rows, [(0, missing)] + [(0, 0)] * (rows.ndim - 1))


def _on_one_device(model: Model) -> Model:
    """The parameters, replicated on every device, on one device of this process."""
    return jax.tree.map(
        lambda x: x.addressable_data(0) if isinstance(x, jax.Array) else x, model
    )
