"""The objectives of encoders in plain NumPy: losses, and gradients by hand.

Equations (82) to (86) of embedder/ALGORITHM.md, example by example. Axis letters: A
examples, E values of an embedding, C classes, F features.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from legacy import network
from legacy.network import Layer


class Loss(NamedTuple):
    """The loss of a batch is sum(losses) / sum(counts); 0 if nothing counts."""

    losses: np.ndarray  # [A]
    counts: np.ndarray  # [A]
    slope: np.ndarray  # derivative of the loss, by scores [A, C] or embeddings [A, E]

    @property
    def mean(self) -> float:
        """The loss of the batch."""
        total = float(self.counts.sum())
        return float(self.losses.sum()) / total if total else 0.0


def _per_count(losses: np.ndarray, counts: np.ndarray, slope: np.ndarray) -> Loss:
    """`Loss` from the derivative of sum(losses)."""
    total = counts.sum()
    return Loss(losses, counts, slope / total if total else np.zeros_like(slope))


def softmax(
    scores: np.ndarray,
    labels: np.ndarray,
    weights: np.ndarray,
    smoothing: float = 0.0,
    class_weights: Sequence[float] = (),
) -> Loss:
    """(82), by scores [A, C]."""
    log_shares = network.log_softmax(scores)
    losses, counts = np.zeros_like(weights), np.zeros_like(weights)
    slope = np.zeros_like(scores)
    for a, label in enumerate(labels):
        target = np.full(scores.shape[1], smoothing / scores.shape[1], scores.dtype)
        target[label] += 1 - smoothing
        counts[a] = weights[a] * (class_weights[label] if class_weights else 1)
        losses[a] = -counts[a] * (target @ log_shares[a])
        slope[a] = counts[a] * (np.exp(log_shares[a]) - target)
    return _per_count(losses, counts, slope)


def arcface(
    scores: np.ndarray,
    labels: np.ndarray,
    weights: np.ndarray,
    margin: float,
    scale: float,
    smoothing: float = 0.0,
    class_weights: Sequence[float] = (),
) -> Loss:
    """(83), by scores [A, C], which are `scale` times cosines."""
    turned, slopes = scores.copy(), np.ones_like(scores)
    for a, label in enumerate(labels):
        cosine = scores[a, label] / scale
        angle = np.arccos(np.clip(cosine, -1, 1))
        if angle < np.pi - margin:
            turned[a, label] = scale * np.cos(angle + margin)
            sine = np.sin(angle)  # at angle 0 there is no derivative
            slopes[a, label] = np.sin(angle + margin) / sine if sine else 0
        else:
            turned[a, label] = scale * (cosine - margin * np.sin(margin))
    found = softmax(turned, labels, weights, smoothing, class_weights)
    return found._replace(slope=found.slope * slopes)


def supcon(
    embeddings: np.ndarray, labels: np.ndarray, weights: np.ndarray, temperature: float
) -> Loss:
    """(84), by embeddings [A, E]."""
    units, of_units = unit(embeddings), np.zeros_like(embeddings)
    losses, counts = np.zeros_like(weights), np.zeros_like(weights)
    real = [a for a in range(len(labels)) if weights[a] > 0]
    for i in real:
        others = [a for a in real if a != i]
        positives = [p for p in others if labels[p] == labels[i]]
        if not positives:
            continue
        counts[i] = weights[i]
        scores = units[others] @ units[i] / temperature
        log_shares = network.log_softmax(scores[np.newaxis])[0]
        for a, log_share in zip(others, log_shares, strict=True):
            slope = np.exp(log_share)
            if a in positives:
                losses[i] -= counts[i] * log_share / len(positives)
                slope -= 1 / len(positives)
            of_units[i] += counts[i] * slope * units[a] / temperature
            of_units[a] += counts[i] * slope * units[i] / temperature
    return _per_count(losses, counts, unit_slope(embeddings, of_units))


def simclr(embeddings: np.ndarray, weights: np.ndarray, temperature: float) -> Loss:
    """(85), by embeddings [A, E], in which the two views of an example are adjacent."""
    return supcon(embeddings, np.arange(len(embeddings)) // 2, weights, temperature)


def triplet(
    embeddings: np.ndarray, labels: np.ndarray, weights: np.ndarray, margin: float
) -> Loss:
    """(86), by embeddings [A, E]. Equally distant negatives share the derivative."""
    units, of_units = unit(embeddings), np.zeros_like(embeddings)
    losses, counts = np.zeros_like(weights), np.zeros_like(weights)
    real = [a for a in range(len(labels)) if weights[a] > 0]
    distances = 2 - 2 * (units @ units.T)
    for a in real:
        negatives = [n for n in real if labels[n] != labels[a]]
        for p in real:
            if p == a or labels[p] != labels[a] or not negatives:
                continue
            farther = [n for n in negatives if distances[a, n] > distances[a, p]]
            if farther:
                chosen = min(distances[a, n] for n in farther)
            else:
                chosen = max(distances[a, n] for n in negatives)
            counts[a] += weights[a]
            loss = distances[a, p] - chosen + margin
            if loss <= 0:
                continue
            losses[a] += weights[a] * loss
            # d = 2 - 2 z_a z_n, so that its derivative by z_a is -2 z_n.
            of_units[a] -= 2 * weights[a] * units[p]
            of_units[p] -= 2 * weights[a] * units[a]
            nearest = [n for n in (farther or negatives) if distances[a, n] == chosen]
            for n in nearest:
                of_units[a] += 2 * weights[a] * units[n] / len(nearest)
                of_units[n] += 2 * weights[a] * units[a] / len(nearest)
    return _per_count(losses, counts, unit_slope(embeddings, of_units))


def unit(rows: np.ndarray) -> np.ndarray:
    """`rows` [A, E] with length 1; a row of zeros stays."""
    return rows / _lengths(rows)


def unit_slope(rows: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """The derivative by `rows` of what has the derivative `slope` by their `unit`.

    (dL/dz - (dL/dz z) z) / |v| for z = v / |v|; 0 for a row of zeros.
    """
    units = unit(rows)
    along = (slope * units).sum(axis=1, keepdims=True)
    return (slope - along * units) / _lengths(rows) * rows.any(axis=1, keepdims=True)


def _lengths(rows: np.ndarray) -> np.ndarray:
    lengths = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    return np.where(lengths > 0, lengths, 1).astype(rows.dtype)


ByEmbeddings = Callable[[np.ndarray], Loss]
"""A loss of embeddings [A, E]."""
ByScores = Callable[[np.ndarray], Loss]
"""A loss of scores [A, C]."""


def update_by_scores(
    layers: Sequence[Layer], x: np.ndarray, loss: ByScores, rate: float
) -> list[Layer]:
    """The layers of an MLP after one step of SGD on a loss of its scores."""
    found = network.activations(layers, x)
    return _stepped(layers, _backward(layers, found, loss(found[-1]).slope), rate)


def update_by_cosines(
    layers: Sequence[Layer], x: np.ndarray, loss: ByScores, scale: float, rate: float
) -> list[Layer]:
    """The same for a last layer of cosines, whose biases are not used."""
    *hidden, last = layers
    found = _hidden(hidden, x)
    embeddings, columns = unit(found[-1]), unit(last.weights.T)
    slope = scale * loss(scale * (embeddings @ columns.T)).slope
    of_last = unit_slope(last.weights.T, slope.T @ embeddings).T
    of_hidden = unit_slope(found[-1], slope @ columns) * (found[-1] > 0)
    gradients = [
        *_backward(hidden, found, of_hidden),
        Layer(of_last, np.zeros_like(last.biases)),
    ]
    return _stepped(layers, gradients, rate)


def update_by_embeddings(
    layers: Sequence[Layer],
    x: np.ndarray,
    labels: np.ndarray,
    weights: np.ndarray,
    loss: ByEmbeddings,
    rate: float,
) -> list[Layer]:
    """The same on a loss of its embeddings, (22).

    The last layer learns to classify them by (23), and leaves them alone.
    """
    *hidden, last = layers
    found = _hidden(hidden, x)
    scores = found[-1] @ last.weights + last.biases
    of_scores = softmax(scores, labels, weights).slope
    of_hidden = loss(found[-1]).slope * (found[-1] > 0)
    gradients = [
        *_backward(hidden, found, of_hidden),
        Layer(found[-1].T @ of_scores, of_scores.sum(axis=0)),
    ]
    return _stepped(layers, gradients, rate)


def _hidden(layers: Sequence[Layer], x: np.ndarray) -> list[np.ndarray]:
    """x and h_1 to h_H of (21)."""
    found = network.activations(layers, x)
    return [*found[:-1], np.maximum(found[-1], 0)]


def _backward(
    layers: Sequence[Layer], found: Sequence[np.ndarray], slope: np.ndarray
) -> list[Layer]:
    """The gradient of each layer by (50), from the `slope` by z of the last one."""
    gradients = []
    for number in reversed(range(len(layers))):
        gradients.append(Layer(found[number].T @ slope, slope.sum(axis=0)))
        slope = (slope @ layers[number].weights.T) * (found[number] > 0)
    return gradients[::-1]


def _stepped(
    layers: Sequence[Layer], gradients: Sequence[Layer], rate: float
) -> list[Layer]:
    return [
        Layer(*(p - p.dtype.type(rate) * g for p, g in zip(layer, slope, strict=True)))
        for layer, slope in zip(layers, gradients, strict=True)
    ]
