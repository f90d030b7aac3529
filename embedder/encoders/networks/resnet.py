"""resnet and wide-resnet: residual networks (He et al. 2015, arXiv:1512.03385) and wide
ones (Zagoruyko and Komodakis 2016, arXiv:1605.07146)."""

import functools
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from embedder.encoders.networks.convolution import is_plain, shifted
from embedder.encoders.networks.layers import (
    BatchNorm,
    Conv,
    as_images,
    drop_path,
    dropout,
    rematerialised,
)
from embedder.encoders.networks.network import (
    BaseNetwork,
    Draws,
    Forward,
    Pass,
    check_images,
)
from embedder.errors import InputError

_BLOCKS = {
    18: ((2, 2, 2, 2), False),
    34: ((3, 4, 6, 3), False),
    50: ((3, 4, 6, 3), True),
    101: ((3, 4, 23, 3), True),
    152: ((3, 8, 36, 3), True),
}
"""Blocks of each of the four stages, and whether they are bottlenecks (table 1)."""

_SMALL = 64  # images up to this size lose no pixels before the first stage


@dataclass(frozen=True, kw_only=True)
class ResNet(BaseNetwork):
    """[B, H, W] or [B, H, W, C] -> [B, 8 width], or 32 width of bottlenecks.

    Batch normalisation counts padding in no mean, which `hk.nets.ResNet` cannot: the
    last batch of an epoch is padded. The stride of a bottleneck is in its convolution
    of 3 x 3. Images up to 64 x 64 have a first convolution of 3 x 3 without stride or
    pooling, as for CIFAR.
    """

    name: ClassVar[str] = "resnet"
    cpu_overhead: ClassVar[float] = 1.25  # of its convolutions, measured

    depth: int = 18
    width: int = 64  # channels of the first stage
    drop_path: float = 0.0  # stochastic depth: of the last block; the first has 0
    remat: bool = False

    def __post_init__(self):
        check_images("resnet", self.example_shape)
        if self.depth not in _BLOCKS:
            known = ", ".join(map(str, _BLOCKS))
            raise InputError(
                f"`network_args` of resnet: depth must be one of {known}, got "
                f"{self.depth}."
            )

    @property
    def hidden_size(self) -> int:
        return self.width * 8 * (4 if _BLOCKS[self.depth][1] else 1)

    @property
    def needs_keys(self) -> bool:
        return self.drop_path > 0

    def hidden(self, draws: Draws) -> Forward:
        counts, is_bottleneck = _BLOCKS[self.depth]
        num_blocks = sum(counts)

        def forward(x: jax.Array, use: Pass) -> jax.Array:
            x = as_images(x, self.example_shape)
            if max(x.shape[1:3]) <= _SMALL:
                stem = Conv(self.width, 3, draws, "stem")
                x = jax.nn.relu(BatchNorm("stem_norm")(stem(x), use))
            else:
                stem = Conv(self.width, 7, draws, "stem", stride=2)
                x = _largest_around(jax.nn.relu(BatchNorm("stem_norm")(stem(x), use)))
            number = 0
            for stage, count in enumerate(counts):
                for place in range(count):
                    stride = 2 if stage and not place else 1
                    rate = self.drop_path * number / max(1, num_blocks - 1)
                    block = _Block(
                        self.width * 2**stage, stride, is_bottleneck, rate, number
                    )
                    x = rematerialised(
                        lambda x, block=block: block(x, use, draws), self.remat
                    )(x)
                    number += 1
            return x.mean(axis=(1, 2))

        return forward


@dataclass(frozen=True)
class _Block:
    """Two convolutions of 3 x 3, or three with a bottleneck, beside a shortcut."""

    width: int
    stride: int
    is_bottleneck: bool
    drop: float
    number: int

    def __call__(self, x: jax.Array, use: Pass, draws: Draws) -> jax.Array:
        shortcut, out = x, self.width * (4 if self.is_bottleneck else 1)
        if self.stride > 1 or x.shape[-1] != out:
            shortcut = self._conv(x, out, 1, draws, "shortcut", self.stride)
            shortcut = self._norm(shortcut, use, "shortcut")
        if self.is_bottleneck:
            sizes = [(self.width, 1, 1), (self.width, 3, self.stride), (out, 1, 1)]
        else:
            sizes = [(self.width, 3, self.stride), (out, 3, 1)]
        for place, (num, size, stride) in enumerate(sizes):
            x = self._conv(x, num, size, draws, str(place), stride)
            is_last = place == len(sizes) - 1
            # Blocks begin as their shortcuts (Goyal et al. 2017, arXiv:1706.02677).
            x = self._norm(x, use, str(place), 0.0 if is_last else 1.0)
            x = x if is_last else jax.nn.relu(x)
        return jax.nn.relu(shortcut + drop_path(x, self.drop, use, self.number))

    def _conv(self, x, num: int, size: int, draws: Draws, name: str, stride: int):
        return Conv(num, size, draws, f"block_{self.number}_conv_{name}", stride)(x)

    def _norm(self, x, use: Pass, name: str, scale: float = 1.0):
        return BatchNorm(f"block_{self.number}_norm_{name}", scale)(x, use)


def _largest_around(x: jax.Array) -> jax.Array:
    """The maximum of 3 x 3 at every second pixel."""
    if is_plain():  # ONNX has no windows over four axes
        rows = shifted(x, (3, 3), 2, -float("inf"))
        return functools.reduce(jnp.maximum, [each for row in rows for each in row])
    return jax.lax.reduce_window(
        x, -float("inf"), jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME"
    )


@dataclass(frozen=True, kw_only=True)
class WideResNet(BaseNetwork):
    """[B, H, W] or [B, H, W, C] -> [B, 16 width 2**(groups - 1)].

    Blocks have batch normalisation and ReLU before each of two convolutions of 3 x 3;
    groups after the first begin with a stride of 2. The depth counts layers with
    weights: that of WRN-28-10 is 28 with three groups of four blocks, and their three
    shortcuts do not count. A depth of 2 + 2 groups blocks is taken, too: 50 is four
    groups of six.
    """

    name: ClassVar[str] = "wide-resnet"
    cpu_overhead: ClassVar[float] = 1.25  # of its convolutions, measured

    depth: int = 16
    width: int = 4  # the first group has 16 width channels
    groups: int = 3
    dropout: float = 0.0  # between the convolutions of a block
    remat: bool = False

    def __post_init__(self):
        check_images("wide-resnet", self.example_shape)
        if self.num_blocks < 1 or self.depth not in (
            2 * self.groups * self.num_blocks + 2,
            2 * self.groups * self.num_blocks + 4,
        ):
            step = 2 * self.groups
            raise InputError(
                f"`network_args` of wide-resnet: depth must be {step} n + 4 or {step} "
                f"n + 2 with {self.groups} groups, got {self.depth}."
            )

    @property
    def num_blocks(self) -> int:
        """Blocks of a group."""
        return (self.depth - 2) // (2 * self.groups)

    @property
    def hidden_size(self) -> int:
        return self._channels(self.groups - 1)

    @property
    def needs_keys(self) -> bool:
        return self.dropout > 0

    def _channels(self, group: int) -> int:
        return 16 * self.width * 2**group

    def hidden(self, draws: Draws) -> Forward:
        def block(x: jax.Array, use: Pass, group: int, number: int) -> jax.Array:
            place = group * self.num_blocks + number
            name, num = f"block_{place}", self._channels(group)
            stride = 2 if group and not number else 1
            active = jax.nn.relu(BatchNorm(f"{name}_norm_0")(x, use))
            if stride > 1 or x.shape[-1] != num:
                x = Conv(num, 1, draws, f"{name}_shortcut", stride)(active)
            y = Conv(num, 3, draws, f"{name}_conv_0", stride)(active)
            y = jax.nn.relu(BatchNorm(f"{name}_norm_1")(y, use))
            y = dropout(y, self.dropout, use, place)
            return x + Conv(num, 3, draws, f"{name}_conv_1")(y)

        def forward(x: jax.Array, use: Pass) -> jax.Array:
            x = Conv(16, 3, draws, "stem")(as_images(x, self.example_shape))
            for group in range(self.groups):
                for number in range(self.num_blocks):
                    x = rematerialised(
                        lambda x, group=group, number=number: block(
                            x, use, group, number
                        ),
                        self.remat,
                    )(x)
            x = jax.nn.relu(BatchNorm("norm")(x, use))
            return x.mean(axis=(1, 2))

        return forward
