"""wide-resnet: wide residual networks (Zagoruyko and Komodakis 2016,
arXiv:1605.07146)."""

from dataclasses import dataclass
from typing import ClassVar

import jax

from embedder.encoders.networks.layers import (
    BatchNorm,
    Conv,
    as_images,
    dropout,
    rematerialised,
)
from embedder.encoders.networks.network import BaseNetwork, Draws, Forward, Pass
from embedder.encoders.networks.resnet import check_images
from embedder.errors import InputError


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
