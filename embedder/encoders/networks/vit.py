"""vit: vision transformer (Dosovitskiy et al. 2020, arXiv:2010.11929)."""

import math
from dataclasses import dataclass
from typing import ClassVar

import haiku as hk
import jax
import jax.numpy as jnp

from embedder.encoders.networks.layers import (
    LayerNorm,
    as_images,
    drop_path,
    dropout,
    rematerialised,
    softmax,
)
from embedder.encoders.networks.network import (
    BaseNetwork,
    Draws,
    Forward,
    Pass,
    check_images,
)
from embedder.errors import InputError


@dataclass(frozen=True, kw_only=True)
class ViT(BaseNetwork):
    """[B, H, W] or [B, H, W, C] -> [B, width].

    Patches are tokens, with learned positions. A block is y = x + attention(norm(x)),
    y + mlp(norm(y)), with GELU and four times the width within the MLP. The embedding
    is the class token after a last norm, or the mean of all tokens.
    """

    name: ClassVar[str] = "vit"

    patch: int = 4  # pixels; it divides height and width
    width: int = 128
    depth: int = 6
    heads: int = 4
    pool: str = "class"  # or "mean", without a class token
    dropout: float = 0.0  # of the outputs of attention and MLP
    drop_path: float = 0.0  # stochastic depth: of the last block; the first has 0
    remat: bool = False

    def __post_init__(self):
        check_images("vit", self.example_shape)
        height, width = self.example_shape[:2]
        if height % self.patch or width % self.patch:
            raise InputError(
                f"`network_args` of vit: patch must divide the images, {height} x "
                f"{width}, got {self.patch}."
            )
        if self.width % self.heads:
            raise InputError(
                f"`network_args` of vit: heads must divide the width, {self.width}, "
                f"got {self.heads}."
            )
        if self.pool not in ("class", "mean"):
            raise InputError(
                f"`network_args` of vit: pool must be class or mean, got {self.pool!r}."
            )

    @property
    def hidden_size(self) -> int:
        return self.width

    @property
    def needs_keys(self) -> bool:
        return max(self.dropout, self.drop_path) > 0

    def hidden(self, draws: Draws) -> Forward:
        def linear(x: jax.Array, size: int, name: str) -> jax.Array:
            return hk.Linear(size, w_init=draws.linear, name=name)(x)

        def norm(x: jax.Array, name: str) -> jax.Array:
            return LayerNorm(name=name)(x)

        def attention(x: jax.Array, name: str) -> jax.Array:
            tokens = *x.shape[:2], self.heads, self.width // self.heads
            query, key, value = (
                linear(x, self.width, f"{name}_{part}").reshape(tokens)
                for part in ("query", "key", "value")
            )
            mixed = _attention(query, key, value)
            return linear(mixed.reshape(x.shape), self.width, f"{name}_output")

        def block(x: jax.Array, use: Pass, number: int) -> jax.Array:
            name, places = f"block_{number}", iter(range(4 * number, 4 * number + 4))
            rate = self.drop_path * number / max(1, self.depth - 1)

            def added(x: jax.Array, y: jax.Array) -> jax.Array:
                y = dropout(y, self.dropout, use, next(places))
                return x + drop_path(y, rate, use, next(places))

            x = added(x, attention(norm(x, f"{name}_norm_0"), f"{name}_attention"))
            y = linear(norm(x, f"{name}_norm_1"), 4 * self.width, f"{name}_mlp_0")
            return added(x, linear(jax.nn.gelu(y), self.width, f"{name}_mlp_1"))

        def forward(x: jax.Array, use: Pass) -> jax.Array:
            x = linear(self._patches(x), self.width, "patches")
            if self.pool == "class":
                token = hk.get_parameter(
                    "class_token", (1, 1, self.width), x.dtype, init=draws.small
                )
                token = jnp.broadcast_to(token, (x.shape[0], 1, self.width))
                x = jnp.concatenate([token, x], axis=1)
            shape = 1, x.shape[1], self.width
            x = x + hk.get_parameter("positions", shape, x.dtype, init=draws.small)
            for number in range(self.depth):
                x = rematerialised(
                    lambda x, number=number: block(x, use, number), self.remat
                )(x)
            x = norm(x, "norm")
            return x[:, 0] if self.pool == "class" else x.mean(axis=1)

        return forward

    def _patches(self, x: jax.Array) -> jax.Array:
        """[B, ...] -> [B, T, patch * patch * C], from the top left, by rows."""
        x, size = as_images(x, self.example_shape), self.patch
        rows, columns = x.shape[1] // size, x.shape[2] // size
        x = x.reshape(x.shape[0], rows, size, columns, size, x.shape[3])
        return x.transpose(0, 1, 3, 2, 4, 5).reshape(x.shape[0], rows * columns, -1)


def _attention(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
    """softmax(Q K^T / sqrt(c)) V of each head, [B, tokens, heads, c] each.

    That of `jax.nn` has a softmax of float32, of float64 too.
    """
    exact = jnp.promote_types(query.dtype, jnp.float32)
    query = query / math.sqrt(query.shape[-1])
    scores = jnp.einsum("bthc,bshc->bhts", query, key, preferred_element_type=exact)
    return jnp.einsum("bhts,bshc->bthc", softmax(scores).astype(value.dtype), value)
