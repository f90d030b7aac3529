"""The networks of images in PyTorch, layer by layer as in `embedder`.

A part of a network has the name of the Haiku module whose parameters it takes. Axes are
those of PyTorch: B examples, C channels, H height, W width; T tokens, E their width.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

_BLOCKS = 2  # of each of the four stages of ResNet-18
_NEW = 0.1  # share of the batch in a moving average


class SameConv(nn.Conv2d):
    """Convolution without bias; a pixel of padding too many goes to the end."""

    def __init__(self, channels: int, num: int, size: int, stride: int = 1):
        super().__init__(channels, num, size, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        pads = []
        for length, size, stride in zip(
            x.shape[2:], self.kernel_size, self.stride, strict=True
        ):
            total = max((-(-length // stride) - 1) * stride + size - length, 0)
            pads.append((total // 2, total - total // 2))
        (top, bottom), (left, right) = pads
        if (top, left) == (bottom, right):
            return functional.conv2d(x, self.weight, None, self.stride, (top, left))
        padded = functional.pad(x, (left, right, top, bottom))
        return functional.conv2d(padded, self.weight, None, self.stride)


class Norm(nn.modules.batchnorm._BatchNorm):
    """Batch normalisation of [B, C] or [B, C, H, W], which notes B H W."""

    num = 1  # values of which the last variance was; before there is none: 1

    def __init__(self, channels: int):
        super().__init__(channels, eps=1e-5, momentum=_NEW)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.num = x.numel() // x.shape[1]
        return super().forward(x)

    def _check_input_dim(self, x: Tensor) -> None:
        pass


class Network(nn.Module):
    """A network of parts; `hidden` gives the embedding."""

    def __init__(self, vector_size: int, num_classes: int):
        super().__init__()
        self.parts = nn.ModuleDict()
        self.parts["classes"] = nn.Linear(vector_size, num_classes)

    def hidden(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """Scores [B, classes] of images [B, C, H, W]."""
        return self.parts["classes"](self.hidden(x))


class MLP(Network):
    """As `embedder.encoders.networks.mlp` with one hidden layer."""

    def __init__(self, shape, num_classes: int, size: int = 512):
        super().__init__(size, num_classes)
        self.parts["hidden/~/linear_0"] = nn.Linear(math.prod(shape), size)

    def hidden(self, x: Tensor) -> Tensor:
        return functional.relu(self.parts["hidden/~/linear_0"](x.flatten(1)))


class ConvSmall(Network):
    """As `embedder.encoders.networks.conv_small`."""

    def __init__(self, shape, num_classes: int, width: int = 32, size: int = 128):
        super().__init__(size, num_classes)
        height, length, channels = shape
        for number in range(3):
            num = width * 2**number
            self.parts[f"conv_{number}"] = SameConv(channels, num, 3)
            self.parts[f"norm_{number}"] = Norm(num)
            channels, height, length = num, height // 2, length // 2
        left = height * length * channels
        self.parts["dense"] = nn.Linear(left, size, bias=False)
        self.parts["norm_dense"] = Norm(size)

    def hidden(self, x: Tensor) -> Tensor:
        for number in range(3):
            x = self.parts[f"norm_{number}"](self.parts[f"conv_{number}"](x))
            x = functional.max_pool2d(functional.relu(x), 2)
        x = x.permute(0, 2, 3, 1).flatten(1)  # channels last, as the weights
        return functional.relu(self.parts["norm_dense"](self.parts["dense"](x)))


class ResNet(Network):
    """As `embedder.encoders.networks.resnet` with depth 18, for images up to 64 x 64.

    ResNet-18 has no bottlenecks.
    """

    def __init__(self, shape, num_classes: int, width: int = 64):
        super().__init__(8 * width, num_classes)
        self.parts["stem"] = SameConv(shape[2], width, 3)
        self.parts["stem_norm"] = Norm(width)
        channels = width
        self.strides = [2 if n and not n % _BLOCKS else 1 for n in range(4 * _BLOCKS)]
        for number, stride in enumerate(self.strides):
            num, name = width * 2 ** (number // _BLOCKS), f"block_{number}"
            if stride > 1:
                shortcut = SameConv(channels, num, 1, stride)
                self.parts[f"{name}_conv_shortcut"] = shortcut
                self.parts[f"{name}_norm_shortcut"] = Norm(num)
            self.parts[f"{name}_conv_0"] = SameConv(channels, num, 3, stride)
            self.parts[f"{name}_norm_0"] = Norm(num)
            self.parts[f"{name}_conv_1"] = SameConv(num, num, 3)
            self.parts[f"{name}_norm_1"] = Norm(num)
            channels = num

    def hidden(self, x: Tensor) -> Tensor:
        x = functional.relu(self.parts["stem_norm"](self.parts["stem"](x)))
        for number, stride in enumerate(self.strides):
            y = functional.relu(self._normed(x, number, "0"))
            y = self._normed(y, number, "1")
            x = self._normed(x, number, "shortcut") if stride > 1 else x
            x = functional.relu(x + y)
        return x.mean((2, 3))

    def _normed(self, x: Tensor, number: int, name: str) -> Tensor:
        x = self.parts[f"block_{number}_conv_{name}"](x)
        return self.parts[f"block_{number}_norm_{name}"](x)


class WideResNet(Network):
    """As `embedder.encoders.networks.resnet` with three groups."""

    def __init__(self, shape, num_classes: int, depth: int = 16, width: int = 4):
        super().__init__(64 * width, num_classes)
        blocks, channels = (depth - 2) // 6, 16
        self.strides = [2 if n and not n % blocks else 1 for n in range(3 * blocks)]
        self.parts["stem"] = SameConv(shape[2], channels, 3)
        for number, stride in enumerate(self.strides):
            num, name = 16 * width * 2 ** (number // blocks), f"block_{number}"
            if stride > 1 or channels != num:
                self.parts[f"{name}_shortcut"] = SameConv(channels, num, 1, stride)
            self.parts[f"{name}_norm_0"] = Norm(channels)
            self.parts[f"{name}_conv_0"] = SameConv(channels, num, 3, stride)
            self.parts[f"{name}_norm_1"] = Norm(num)
            self.parts[f"{name}_conv_1"] = SameConv(num, num, 3)
            channels = num
        self.parts["norm"] = Norm(channels)

    def hidden(self, x: Tensor) -> Tensor:
        x = self.parts["stem"](x)
        for number in range(len(self.strides)):
            name = f"block_{number}"
            active = functional.relu(self.parts[f"{name}_norm_0"](x))
            if f"{name}_shortcut" in self.parts:
                x = self.parts[f"{name}_shortcut"](active)
            y = self.parts[f"{name}_conv_0"](active)
            y = functional.relu(self.parts[f"{name}_norm_1"](y))
            x = x + self.parts[f"{name}_conv_1"](y)
        return functional.relu(self.parts["norm"](x)).mean((2, 3))


class ViT(Network):
    """As `embedder.encoders.networks.vit` with a class token."""

    def __init__(
        self,
        shape,
        num_classes: int,
        patch: int = 4,
        width: int = 128,
        depth: int = 6,
        heads: int = 4,
    ):
        super().__init__(width, num_classes)
        self.patch, self.depth, self.heads = patch, depth, heads
        height, length, channels = shape
        tokens = 1 + (height // patch) * (length // patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.zeros(1, tokens, width))
        self.parts["patches"] = nn.Linear(patch * patch * channels, width)
        for number in range(depth):
            name = f"block_{number}"
            for part in ("query", "key", "value", "output"):
                self.parts[f"{name}_attention_{part}"] = nn.Linear(width, width)
            self.parts[f"{name}_mlp_0"] = nn.Linear(width, 4 * width)
            self.parts[f"{name}_mlp_1"] = nn.Linear(4 * width, width)
            self.parts[f"{name}_norm_0"] = nn.LayerNorm(width, eps=1e-5)
            self.parts[f"{name}_norm_1"] = nn.LayerNorm(width, eps=1e-5)
        self.parts["norm"] = nn.LayerNorm(width, eps=1e-5)

    def hidden(self, x: Tensor) -> Tensor:
        x = self.parts["patches"](self._patches(x))
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], 1) + self.positions
        for number in range(self.depth):
            name = f"block_{number}"
            x = x + self._attention(self.parts[f"{name}_norm_0"](x), name)
            y = self.parts[f"{name}_mlp_0"](self.parts[f"{name}_norm_1"](x))
            x = x + self.parts[f"{name}_mlp_1"](functional.gelu(y, approximate="tanh"))
        return self.parts["norm"](x[:, 0])

    def _attention(self, x: Tensor, name: str) -> Tensor:
        """[B, T, E] -> [B, T, E]."""
        query, key, value = (
            self.parts[f"{name}_attention_{part}"](x)
            .unflatten(2, (self.heads, -1))
            .transpose(1, 2)
            for part in ("query", "key", "value")
        )
        found = functional.scaled_dot_product_attention(query, key, value)
        return self.parts[f"{name}_attention_output"](found.transpose(1, 2).flatten(2))

    def _patches(self, x: Tensor) -> Tensor:
        """[B, C, H, W] -> [B, T, patch * patch * C], from the top left, by rows."""
        x = x.unflatten(3, (-1, self.patch)).unflatten(2, (-1, self.patch))
        return x.permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)


NETWORKS: dict[str, type[Network]] = {
    "mlp": MLP,
    "conv-small": ConvSmall,
    "resnet": ResNet,
    "wide-resnet": WideResNet,
    "vit": ViT,
}


def make_network(
    name: str,
    shape: list[int],
    num_classes: int,
    arguments: Mapping[str, Any],
    params: Mapping[str, np.ndarray],
) -> Network:
    """A network with parameters of `embedder`, named MODULE/NAME.

    Raises:
      ValueError: parameters and those of the network are not the same.
    """
    height, width, *channels = shape
    images = height, width, *(channels or [1])
    network = NETWORKS[name](images, num_classes, **arguments)
    left = dict(network.named_parameters())
    with torch.no_grad():
        for path, array in params.items():
            parameter = left.pop(_torch_name(path))
            parameter.copy_(torch.from_numpy(_torch_order(path, array)))
    if left:
        raise ValueError(f"`params` must have {[*left]}.")
    return network


def _torch_name(path: str) -> str:
    module, name = path.rsplit("/", 1)
    if module == "~":
        return name
    names = {"w": "weight", "b": "bias", "scale": "weight", "offset": "bias"}
    return f"parts.{module}.{names[name]}"


def _torch_order(path: str, array: np.ndarray) -> np.ndarray:
    """Kernels [h, w, in, out] as [out, in, h, w], weights [in, out] as [out, in]."""
    if path.endswith("/w"):
        order = (3, 2, 0, 1) if array.ndim == 4 else (1, 0)
        array = array.transpose(order)
    return np.ascontiguousarray(array)


def use_biased_variances(network: nn.Module, updates: int) -> None:
    """Makes the moving averages of variances those of biased ones, as `embedder` has.

    PyTorch normalises by the biased variance of a batch, sum / n, and averages the
    unbiased one, sum / (n - 1), from a start of 1. All batches must be of one size.
    """
    for part in network.modules():
        if isinstance(part, Norm):
            assert part.running_var is not None
            start = (1 - _NEW) ** updates
            moved = (part.running_var - start) * (1 - 1 / part.num)
            part.running_var.copy_(start + moved)
