"""A ReLU network as a classifier: its pass forward, its gradients by hand, its updates.

Symbols: B examples of a batch; layer l takes n_l features to n_{l+1} by W_l and b_l.

    z_l = a_l W_l + b_l        a_0 = x        a_{l+1} = max(z_l, 0), but for the last
    loss of an example with class y: log sum_c exp(z_c) - z_y, z of the last layer
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

OPTIMIZERS = {
    "sgd": {"momentum": 0.0},
    "adam": {"b1": 0.9, "b2": 0.999, "eps": 1e-8},
}
"""Arguments of each optimizer, and what they are if not given."""


class Layer(NamedTuple):
    """An affine map."""

    weights: np.ndarray  # [n_l, n_{l+1}]
    biases: np.ndarray  # [n_{l+1}]


class Sums(NamedTuple):
    """What examples add up to."""

    loss: float
    correct: float
    examples: float


def layers_of(flat: np.ndarray, widths: Sequence[int]) -> list[Layer]:
    """The layers in a flat array of all parameters, which they are views of."""
    layers, start = [], 0
    for inputs, outputs in zip(widths, widths[1:], strict=False):
        middle, end = start + inputs * outputs, start + (inputs + 1) * outputs
        weights = flat[start:middle].reshape(inputs, outputs)
        layers.append(Layer(weights, flat[middle:end]))
        start = end
    return layers


def num_parameters(widths: Sequence[int]) -> int:
    """Of all layers."""
    return sum((a + 1) * b for a, b in zip(widths, widths[1:], strict=False))


def initial_layers(widths: Sequence[int], dtype: str, seed: int) -> list[Layer]:
    """Weights uniform with variance 2 / n_l (He et al. 2015, arXiv:1502.01852),
    drawn layer after layer; biases zero."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))
    layers = []
    for inputs, outputs in zip(widths, widths[1:], strict=False):
        bound = (6 / inputs) ** 0.5
        weights = (2 * rng.random((inputs, outputs)) - 1) * bound
        layers.append(Layer(weights.astype(dtype), np.zeros(outputs, dtype)))
    return layers


def scaled(x: np.ndarray, dtype: str) -> np.ndarray:
    """Features [B, n_0] in `dtype`; u8, as pixels are, become numbers from 0 to 1."""
    return (
        x.astype(dtype) / np.dtype(dtype).type(255)
        if x.dtype == np.uint8
        else (x.astype(dtype, copy=False))
    )


def activations(layers: Sequence[Layer], x: np.ndarray) -> list[np.ndarray]:
    """a_0 to the last a, and then the scores [B, classes]."""
    found = [x]
    for number, layer in enumerate(layers, start=1):
        z = found[-1] @ layer.weights
        z += layer.biases
        found.append(np.maximum(z, 0, out=z) if number < len(layers) else z)
    return found


def log_softmax(scores: np.ndarray) -> np.ndarray:
    """log softmax of each row."""
    shifted = scores - scores.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def loss_sums(scores: np.ndarray, y: np.ndarray) -> Sums:
    """Loss and right answers, summed over a batch; y i[B] are classes."""
    own = log_softmax(scores)[np.arange(len(y)), y]
    correct = np.count_nonzero(scores.argmax(axis=1) == y)
    return Sums(-float(own.sum(dtype=np.float64)), correct, len(y))


def gradients(
    layers: Sequence[Layer],
    x: np.ndarray,
    y: np.ndarray,
    num_examples: int,
    into: Sequence[Layer],
) -> Sums:
    """Writes the gradients of the summed loss of x and y over `num_examples`."""
    found = activations(layers, x)
    sums = loss_sums(found[-1], y)
    slope = np.exp(log_softmax(found[-1]))  # dL/dz of the last layer, softmax - one-hot
    slope[np.arange(len(y)), y] -= 1
    slope /= num_examples
    for number in reversed(range(len(layers))):
        np.matmul(found[number].T, slope, out=into[number].weights)
        np.sum(slope, axis=0, out=into[number].biases)
        if number:
            slope = slope @ layers[number].weights.T
            slope *= found[number] > 0
    return sums


def num_slots(optimizer: str) -> int:
    """Arrays, of the size of the parameters, that an optimizer keeps."""
    return {"sgd": 1, "adam": 2}[optimizer]


def apply_update(
    optimizer: str,
    options: dict[str, float],
    rate: float,
    step: int,
    parameters: np.ndarray,
    slots: np.ndarray,
    gradient: np.ndarray,
) -> None:
    """One step downhill, in place: parameters and gradient [P], slots [slots, P].

    sgd, with momentum (Polyak 1964): m <- momentum m + g; p <- p - rate m.
    adam (Kingma and Ba 2015, arXiv:1412.6980): m <- b1 m + (1 - b1) g; v <- b2 v +
    (1 - b2) g^2; p <- p - rate m' / (sqrt(v') + eps), m' and v' divided by 1 - b^step.
    """
    if optimizer == "sgd":
        slots[0] *= options["momentum"]
        slots[0] += gradient
        parameters -= rate * slots[0]
        return
    b1, b2 = options["b1"], options["b2"]
    slots[0] = b1 * slots[0] + (1 - b1) * gradient
    slots[1] = b2 * slots[1] + (1 - b2) * gradient * gradient
    mean, square = slots[0] / (1 - b1**step), slots[1] / (1 - b2**step)
    parameters -= rate * mean / (np.sqrt(square) + options["eps"])


def split(num_examples: int, fraction: float) -> tuple[np.ndarray, np.ndarray]:
    """Which examples are trained on, and which validate: the last ones, i64 of each."""
    num_validation = round(num_examples * fraction)
    every = np.arange(num_examples)
    return every[: num_examples - num_validation], every[
        num_examples - num_validation :
    ]


def batches(
    train: np.ndarray, size: int, seed: int, epoch: int
) -> Iterator[np.ndarray]:
    """The examples of each batch of an epoch; the last may have fewer."""
    order = train[np.random.default_rng([seed, epoch]).permutation(len(train))]
    for start in range(0, len(order), size):
        yield order[start : start + size]
