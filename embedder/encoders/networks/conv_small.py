"""conv-small: three convolutions, for small images and small machines."""

from dataclasses import dataclass
from typing import ClassVar

import haiku as hk
import jax
import jax.numpy as jnp

from embedder.config.encoder_options import EncoderOptions
from embedder.encoders.networks.layers import BatchNorm, Conv, as_images, dropout
from embedder.encoders.networks.network import BaseNetwork, Draws, Forward, Pass
from embedder.errors import InputError


@dataclass(frozen=True, kw_only=True)
class ConvSmall(BaseNetwork):
    """[B, H, W] or [B, H, W, C] -> [B, size], in the dtype of the parameters.

    Three times a convolution of 3 x 3, batch normalisation, ReLU and the maximum of 2 x
    2; then a linear layer of all that is left, with ReLU.
    """

    name: ClassVar[str] = "conv-small"

    width: int = 32  # channels of the first convolution; the others have 2 and 4 times
    size: int = 128  # values of the embedding
    dropout: float = 0.0  # share of the last convolution's values

    @classmethod
    def is_auto(cls, options: EncoderOptions, example_shape: tuple[int, ...]) -> bool:
        return not options.layers and _takes(example_shape)

    def __post_init__(self):
        if not _takes(self.example_shape):
            raise InputError(
                "`network` conv-small needs images of 8 x 8 or larger, got examples "
                f"{list(self.example_shape)}."
            )

    @property
    def hidden_size(self) -> int:
        return self.size

    @property
    def needs_keys(self) -> bool:
        return self.dropout > 0

    def hidden(self, draws: Draws) -> Forward:
        def forward(x: jax.Array, use: Pass) -> jax.Array:
            x = as_images(x, self.example_shape)
            for number in range(3):
                x = Conv(self.width * 2**number, 3, draws, f"conv_{number}")(x)
                x = jax.nn.relu(BatchNorm(f"norm_{number}")(x, use))
                x = largest_of_squares(x)
            x = dropout(x.reshape(x.shape[0], -1), self.dropout, use, 0)
            x = hk.Linear(self.size, with_bias=False, w_init=draws, name="dense")(x)
            return jax.nn.relu(BatchNorm("norm_dense")(x, use))

        return forward


def _takes(shape: tuple[int, ...]) -> bool:
    """Whether examples are images that leave pixels after three maxima."""
    return len(shape) in (2, 3) and min(shape[:2]) >= 8


def largest_of_squares(x: jax.Array) -> jax.Array:
    """[B, H, W, C] -> [B, H // 2, W // 2, C], the maximum of each 2 x 2; what is left
    over at the ends is dropped."""
    height, width = x.shape[1] // 2, x.shape[2] // 2
    squares = x[:, : 2 * height, : 2 * width]
    return _largest(squares.reshape(x.shape[0], height, 2, width, 2, x.shape[3]))


@jax.custom_vjp
def _largest(parts: jax.Array) -> jax.Array:
    """[B, H, 2, W, 2, C] -> [B, H, W, C].

    The first of equal maxima has the gradient. Its place is found once: that of
    `jnp.max` compares the maximum with the values, and if XLA computes these again in
    another way, with other roundings, none is equal, and the gradient is infinite.
    """
    return jnp.max(parts, (2, 4))


def _largest_forward(parts: jax.Array) -> tuple[jax.Array, jax.Array]:
    return _largest(parts), _place_of_largest(parts)


def _place_of_largest(parts: jax.Array) -> jax.Array:
    """2 i + j of the first of the largest values, i8[B, H, W, C]."""
    best, place = parts[:, :, 0, :, 0], jnp.int8(0)
    for i, j in ((0, 1), (1, 0), (1, 1)):
        value = parts[:, :, i, :, j]
        is_larger = value > best
        best = jnp.where(is_larger, value, best)
        place = jnp.where(is_larger, jnp.int8(2 * i + j), place)
    return place


def _largest_backward(place: jax.Array, gradient: jax.Array) -> tuple[jax.Array]:
    places = jnp.arange(4, dtype=place.dtype).reshape(1, 1, 2, 1, 2, 1)
    is_largest = place[:, :, None, :, None] == places
    return (jnp.where(is_largest, gradient[:, :, None, :, None], 0),)


_largest.defvjp(_largest_forward, _largest_backward)
