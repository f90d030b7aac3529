"""Layers that networks share, as functions and modules of Haiku.

Axis letters: B examples, H height, W width, C channels, T tokens.
"""

import math
from collections.abc import Callable
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from embedder.encoders.networks.convolution import convolution
from embedder.encoders.networks.network import Draws, Pass

_KEEP = 0.9  # of a moving average, at each update
_EPSILON = 1e-5


class Conv(hk.Module):
    """Convolution [B, H, W, C] -> [B, H', W', num], without bias, padding SAME."""

    def __init__(self, num: int, size: int, draws: Draws, name: str, stride: int = 1):
        super().__init__(name=name)
        self.num, self.size, self.stride, self.draws = num, size, stride, draws

    def __call__(self, x: jax.Array) -> jax.Array:
        shape = self.size, self.size, x.shape[-1], self.num
        kernel = hk.get_parameter("w", shape, x.dtype, init=self.draws)
        return convolution(x, kernel, self.stride)


def _filled(value: float) -> Any:
    """First values by NumPy, which has no program to compile."""
    return lambda shape, dtype: np.full(shape, value, dtype)


class BatchNorm(hk.Module):
    """Batch normalisation over all axes but the last (Ioffe and Szegedy 2015,
    arXiv:1502.03167).

    In training, means and variances are those of the batch on all devices; examples of
    weight 0, such as padding, do not count. Else they are the moving averages.
    """

    def __init__(self, name: str, scale: float = 1.0):
        super().__init__(name=name)
        self.scale = scale

    def __call__(self, x: jax.Array, use: Pass) -> jax.Array:
        size = x.shape[-1:]
        scale = hk.get_parameter("scale", size, x.dtype, init=_filled(self.scale))
        offset = hk.get_parameter("offset", size, x.dtype, init=_filled(0))
        # Half precision has too few digits for sums over a batch.
        exact = jnp.promote_types(x.dtype, jnp.float32)
        kept_mean = hk.get_state("mean", size, exact, init=_filled(0))
        kept_variance = hk.get_state("variance", size, exact, init=_filled(1))
        if use.is_training:
            mean, variance = _moments(x.astype(exact), use)
            hk.set_state("mean", _moved(kept_mean, mean))
            hk.set_state("variance", _moved(kept_variance, variance))
        else:
            mean, variance = kept_mean, kept_variance
        factor = jax.lax.rsqrt(variance + _EPSILON) * scale
        centred = x - _as_last(mean, x)
        return (centred * _as_last(factor, x) + _as_last(offset, x)).astype(x.dtype)


class LayerNorm(hk.Module):
    """Layer normalisation over the last axis (Ba et al. 2016, arXiv:1607.06450).

    That of Haiku with its gradient written out, which passes through memory less often
    (decision 134).
    """

    def __call__(self, x: jax.Array) -> jax.Array:
        size = x.shape[-1:]
        scale = hk.get_parameter("scale", size, x.dtype, init=_filled(1))
        offset = hk.get_parameter("offset", size, x.dtype, init=_filled(0))
        return _normalised(x, _as_last(scale, x)) + _as_last(offset, x)


@jax.custom_vjp
def _normalised(x: jax.Array, scale: jax.Array) -> jax.Array:
    """`x` [..., C] with mean 0 and variance 1 over C, times `scale` [1, ..., C]."""
    return _normalise(x, scale)[0]


def _normalise(x: jax.Array, scale: jax.Array):
    centred = x - x.mean(-1, keepdims=True)
    inverse = jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + _EPSILON)
    unscaled = centred * inverse
    return unscaled * scale, (unscaled, inverse, scale)


def _normalise_gradient(saved, gradient: jax.Array):
    unscaled, inverse, scale = saved
    inner = gradient * scale
    mean = inner.mean(-1, keepdims=True)
    along = (inner * unscaled).mean(-1, keepdims=True)
    axes = tuple(range(gradient.ndim - 1))
    of_scale = (gradient * unscaled).sum(axes, keepdims=True)
    return inverse * (inner - mean - unscaled * along), of_scale


_normalised.defvjp(_normalise, _normalise_gradient)


@jax.custom_vjp
def softmax(x: jax.Array) -> jax.Array:
    """softmax over the last axis, in the dtype of `x`.

    That of `jax.nn` with its gradient written out of the result alone, which is all
    that is kept for it (decision 134).
    """
    return _softmax(x)[0]


def _softmax(x: jax.Array):
    shares = jnp.exp(x - x.max(-1, keepdims=True))
    shares = shares / shares.sum(-1, keepdims=True)
    return shares, shares


def _softmax_gradient(shares: jax.Array, gradient: jax.Array):
    mean = (gradient * shares).sum(-1, keepdims=True)
    return (shares * (gradient - mean),)


softmax.defvjp(_softmax, _softmax_gradient)


def _as_last(values: jax.Array, x: jax.Array) -> jax.Array:
    """`values` [C] with as many axes as `x` [..., C]."""
    return values.reshape(*(1,) * (x.ndim - 1), -1)


def _moved(average: jax.Array, now: jax.Array) -> jax.Array:
    return (_KEEP * average + (1 - _KEEP) * now).astype(average.dtype)


def _moments(x: jax.Array, use: Pass) -> tuple[jax.Array, jax.Array]:
    """Mean and variance of the last axis over the examples of all devices."""
    axes = tuple(range(x.ndim - 1))
    weights = jnp.ones(x.shape[0], x.dtype) if use.weights is None else use.weights
    weights = weights.astype(x.dtype)
    places = math.prod(x.shape[1:-1])
    total = use.exchange.sum_blocks(weights.sum()) * places
    shares = (weights / jnp.maximum(total, 1)).reshape(-1, *(1,) * (x.ndim - 1))
    mean = use.exchange.sum_blocks((x * shares).sum(axes))
    squares = (x - _as_last(mean, x)) ** 2
    return mean, use.exchange.sum_blocks((squares * shares).sum(axes))


def dropout(x: jax.Array, rate: float, use: Pass, place: int) -> jax.Array:
    """`x` [B, ...] with values set to 0 with probability `rate`, the others scaled by
    1 / (1 - rate), in training (Srivastava et al. 2014, JMLR 15).

    Args:
      place: a number of this layer, folded into the keys of the examples.
    """
    return _masked(x, rate, use, place, x.shape[1:])


def drop_path(x: jax.Array, rate: float, use: Pass, place: int) -> jax.Array:
    """The same with whole examples: stochastic depth (Huang et al. 2016,
    arXiv:1603.09382)."""
    return _masked(x, rate, use, place, (1,) * (x.ndim - 1))


def _masked(
    x: jax.Array, rate: float, use: Pass, place: int, shape: tuple[int, ...]
) -> jax.Array:
    if not use.is_training or rate == 0 or use.keys is None:
        return x

    def mask(key: jax.Array) -> jax.Array:
        return jax.random.bernoulli(jax.random.fold_in(key, place), 1 - rate, shape)

    return jnp.where(jax.vmap(mask)(use.keys), x / (1 - rate), 0).astype(x.dtype)


def as_images(x: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Features [B, ...] of examples [H, W] or [H, W, C] as [B, H, W, C]."""
    height, width, *channels = shape
    return x.reshape(x.shape[0], height, width, *(channels or [1]))


def rematerialised(function: Callable, is_on: bool) -> Callable:
    """`function`, whose activations are computed again for the gradient if `is_on`
    (Chen et al. 2016, arXiv:1604.06174)."""
    return hk.remat(function) if is_on else function
