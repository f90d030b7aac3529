"""Layers of networks of images in plain NumPy: what they compute, and their derivatives
by hand.

A layer returns its result and a cache; the function that is called `..._slopes` makes
of the derivative `slope` of a loss by the result those by the input and the parameters.

Axis letters: B examples, H height, W width, C channels, N channels of a result, T
tokens, A heads.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

EPSILON = 1e-5  # added to variances

Slices = tuple[slice, slice, slice]


class Window(NamedTuple):
    """How a window of h x w moves over images, with XLA's padding SAME."""

    padding: list[tuple[int, int]]  # before and after, of B, H, W and C
    met: list[list[Slices]]  # [h][w]: the pixels that this place of the window meets


def window(shape: tuple[int, ...], size: int, stride: int) -> Window:
    """Of images [B, H, W, C]; results are of ceil(H / stride) x ceil(W / stride).

    A pixel of padding that cannot be shared comes after the image.
    """
    axes, padding = [], [(0, 0)]
    for length in shape[1:3]:
        count = -(-length // stride)
        spread = (count - 1) * stride  # from the first place of the window to the last
        missing = max(spread + size - length, 0)
        padding.append((missing // 2, missing - missing // 2))
        axes.append([slice(i, i + spread + 1, stride) for i in range(size)])
    met = [[(slice(None), row, column) for column in axes[1]] for row in axes[0]]
    return Window([*padding, (0, 0)], met)


def _without(padding: list[tuple[int, int]], padded: np.ndarray) -> np.ndarray:
    """The images that were padded."""
    ends = zip(padding, padded.shape, strict=True)
    return padded[tuple(slice(low, length - high) for (low, high), length in ends)]


def _places(size: int) -> Iterator[tuple[int, int]]:
    return ((i, j) for i in range(size) for j in range(size))


def convolution(x: np.ndarray, kernel: np.ndarray, stride: int = 1):
    """[B, H, W, C] by a kernel [h, h, C, N]: y = sum_ij x_ij k_ij, with x_ij the pixels
    that place ij of the kernel meets."""
    found = window(x.shape, len(kernel), stride)
    padded = np.pad(x, found.padding)
    y = sum(padded[found.met[i][j]] @ kernel[i, j] for i, j in _places(len(kernel)))
    return y, (padded, kernel, found)


def convolution_slopes(slope: np.ndarray, cache) -> tuple[np.ndarray, np.ndarray]:
    """By the images, dx_ij = sum of dy k_ij^T, and by the kernel, dk_ij = x_ij^T dy."""
    padded, kernel, found = cache
    of_padded, of_kernel = np.zeros_like(padded), np.zeros_like(kernel)
    for i, j in _places(len(kernel)):
        of_padded[found.met[i][j]] += slope @ kernel[i, j].T
        pixels = padded[found.met[i][j]]
        of_kernel[i, j] = np.tensordot(pixels, slope, ((0, 1, 2), (0, 1, 2)))
    return _without(found.padding, of_padded), of_kernel


def largest(x: np.ndarray, size: int, stride: int):
    """The maximum of each window; padding is smaller than any value. Of equal ones the
    first has the derivative."""
    found = window(x.shape, size, stride)
    padded = np.pad(x, found.padding, constant_values=-np.inf)
    values = np.stack([padded[found.met[i][j]] for i, j in _places(size)])
    y = values.max(axis=0)
    is_largest = values == y
    is_first = is_largest & (is_largest.cumsum(axis=0) == 1)
    return y, (padded.shape, is_first, size, found)


def largest_slopes(slope: np.ndarray, cache) -> np.ndarray:
    shape, is_first, size, found = cache
    of_padded = np.zeros(shape)
    for here, (i, j) in zip(is_first, _places(size), strict=True):
        of_padded[found.met[i][j]] += here * slope
    return _without(found.padding, of_padded)


class Moments(NamedTuple):
    """Mean and variance of each channel, [C]."""

    mean: np.ndarray
    variance: np.ndarray


def batch_norm(
    x: np.ndarray, weights: np.ndarray, scale: np.ndarray, offset: np.ndarray
):
    """[B, ..., C] normalised by the moments of the batch, in which an example counts
    `weights` [B] times; also returns those."""
    rows = x.reshape(-1, x.shape[-1])
    shares = np.repeat(weights, len(rows) // len(x))
    shares = (shares / shares.sum())[:, np.newaxis]
    mean = (shares * rows).sum(axis=0)
    variance = (shares * (rows - mean) ** 2).sum(axis=0)
    moments = Moments(mean, variance)
    y = normalised(x, moments, scale, offset)
    return y, (x, shares, scale, moments), moments


def normalised(
    x: np.ndarray, moments: Moments, scale: np.ndarray, offset: np.ndarray
) -> np.ndarray:
    """scale (x - mean) / sqrt(variance + epsilon) + offset, of [..., C]."""
    deviation = np.sqrt(moments.variance + EPSILON)
    return scale * (x - moments.mean) / deviation + offset


def batch_norm_slopes(slope: np.ndarray, cache):
    """By x, scale and offset.

    With u = (x - m) / d, d^2 = v + epsilon, and shares s of m and v that sum to 1:
    dv = -sum(du u) / (2 d^2), dm = -sum(du) / d, dx = du / d + s dm + 2 s (x - m) dv.
    """
    x, shares, scale, (mean, variance) = cache
    rows = slope.reshape(-1, slope.shape[-1])
    centred = x.reshape(rows.shape) - mean
    deviation = np.sqrt(variance + EPSILON)
    units = centred / deviation
    of_units = rows * scale
    of_variance = -(of_units * units).sum(axis=0) / (2 * deviation**2)
    of_mean = -of_units.sum(axis=0) / deviation
    of_rows = of_units / deviation + shares * (of_mean + 2 * centred * of_variance)
    return of_rows.reshape(x.shape), (rows * units).sum(axis=0), rows.sum(axis=0)


def layer_norm(x: np.ndarray, scale: np.ndarray, offset: np.ndarray):
    """[..., C] normalised by the mean and the variance of each row."""
    deviation = np.sqrt(x.var(axis=-1, keepdims=True) + EPSILON)
    units = (x - x.mean(axis=-1, keepdims=True)) / deviation
    return scale * units + offset, (units, deviation, scale)


def layer_norm_slopes(slope: np.ndarray, cache):
    """By x, scale and offset: dx = (du - mean(du) - u mean(du u)) / d."""
    units, deviation, scale = cache
    of_units = slope * scale
    along = (of_units * units).mean(axis=-1, keepdims=True)
    of_x = of_units - of_units.mean(axis=-1, keepdims=True) - units * along
    rows = tuple(range(slope.ndim - 1))
    return of_x / deviation, (slope * units).sum(axis=rows), slope.sum(axis=rows)


def linear(x: np.ndarray, weights: np.ndarray, biases: np.ndarray | float = 0.0):
    """[..., C] -> [..., N]."""
    return x @ weights + biases, (x, weights)


def linear_slopes(slope: np.ndarray, cache):
    """By x, weights and biases."""
    x, weights = cache
    rows, of_rows = x.reshape(-1, x.shape[-1]), slope.reshape(-1, slope.shape[-1])
    return slope @ weights.T, rows.T @ of_rows, of_rows.sum(axis=0)


def relu(x: np.ndarray):
    return np.maximum(x, 0), x


def relu_slopes(slope: np.ndarray, cache: np.ndarray) -> np.ndarray:
    """0 where x is 0."""
    return slope * (cache > 0)


_GELU = np.sqrt(2 / np.pi), 0.044715


def gelu(x: np.ndarray):
    """x (1 + tanh(r (x + c x^3))) / 2, with r = sqrt(2 / pi) and c = .044715 (Hendrycks
    and Gimpel 2016, arXiv:1606.08415)."""
    root, cube = _GELU
    tanh = np.tanh(root * (x + cube * x**3))
    return x * (1 + tanh) / 2, (x, tanh)


def gelu_slopes(slope: np.ndarray, cache) -> np.ndarray:
    x, tanh = cache
    root, cube = _GELU
    inner = root * (1 + 3 * cube * x**2)
    return slope * ((1 + tanh) + x * (1 - tanh**2) * inner) / 2


def attention(query: np.ndarray, key: np.ndarray, value: np.ndarray):
    """softmax(Q K^T / sqrt(C)) V of each head, of [B, A, T, C] each."""
    scores = query @ _turned(key) / np.sqrt(query.shape[-1])
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares = powers / powers.sum(axis=-1, keepdims=True)
    return shares @ value, (query, key, value, shares)


def attention_slopes(slope: np.ndarray, cache):
    """By Q, K and V: of scores z with shares p, dz = p (dp - sum(p dp))."""
    query, key, value, shares = cache
    of_shares = slope @ _turned(value)
    of_scores = of_shares - (shares * of_shares).sum(axis=-1, keepdims=True)
    of_scores *= shares / np.sqrt(query.shape[-1])
    return of_scores @ key, _turned(of_scores) @ query, _turned(shares) @ slope


def _turned(x: np.ndarray) -> np.ndarray:
    return x.swapaxes(-1, -2)


def masked(x: np.ndarray, keep: np.ndarray, rate: float):
    """Dropout: `x` where it is kept, over the share that is kept; else 0."""
    return masked_slopes(x, (keep, rate)), (keep, rate)


def masked_slopes(slope: np.ndarray, cache: Any) -> np.ndarray:
    keep, rate = cache
    return np.where(keep, slope / (1 - rate), 0)
