"""Networks of images in plain NumPy, with gradients by hand, in float64.

They are written from the papers and from what ALGORITHM.md adds to them: see `steps`
for what they consist of, and `layers` for the derivatives.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from migration.parity.objectives import softmax
from migration.parity.steps import (
    Back,
    Step,
    Use,
    added,
    chain,
    first_token,
    flat,
    gelu,
    largest_around,
    largest_of_squares,
    mean_of_places,
    patches,
    relu,
    unchanged,
)

Arguments = Mapping[str, Any]
"""The `network_args`, with their defaults."""
Shape = tuple[int, ...]
"""Of an example, [H, W, C]."""


class Outputs(NamedTuple):
    """What a network says of a batch."""

    embeddings: np.ndarray  # [B, E]
    scores: np.ndarray  # [B, classes]


def outputs(name: str, arguments: Arguments, use: Use, x: np.ndarray) -> Outputs:
    """Of images [B, H, W, C] or [B, H, W]."""
    return _both(name, arguments, use, x)[0]


def loss(
    name: str, arguments: Arguments, use: Use, x: np.ndarray, labels: np.ndarray
) -> float:
    """(23) of a batch with the weights of `use`."""
    assert use.weights is not None
    found = outputs(name, arguments, use, x)
    return softmax(found.scores, labels, use.weights).mean


def learn(
    name: str, arguments: Arguments, use: Use, x: np.ndarray, labels: np.ndarray
) -> float:
    """The same; leaves in `use` the gradients, and the averages after the batch."""
    assert use.weights is not None
    found, back_of_head, back = _both(name, arguments, use, x)
    terms = softmax(found.scores, labels, use.weights)
    back(back_of_head(terms.slope))
    return terms.mean


def _both(
    name: str, arguments: Arguments, use: Use, x: np.ndarray
) -> tuple[Outputs, Back, Back]:
    images = x.reshape(*x.shape[:3], -1)
    hidden = NETWORKS[name](use, images.shape[1:], arguments)
    if "projection" in use.params:
        hidden = chain(hidden, use.linear("projection"))
    embeddings, back = hidden(images)
    scores, back_of_head = use.linear("classes")(embeddings)
    return Outputs(embeddings, scores), back_of_head, back


def stepped(use: Use, rate: float) -> dict[str, dict[str, np.ndarray]]:
    """The parameters after one update by SGD."""
    return {
        module: {
            name: p - rate * use.gradients[module][name] for name, p in own.items()
        }
        for module, own in use.params.items()
    }


def conv_small(use: Use, shape: Shape, arguments: Arguments) -> Step:
    """Three times a convolution, normalisation, ReLU and pooling; a linear layer."""
    steps: list[Step] = []
    for number in range(3):
        steps += [use.conv(f"conv_{number}"), use.norm(f"norm_{number}"), relu]
        steps += [largest_of_squares]
    steps += [flat, use.dropout(arguments["dropout"], 0)]
    return chain(*steps, use.linear("dense"), use.norm("norm_dense"), relu)


_STAGES = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
}
"""Blocks of the stages of a resnet, table 1 of the paper. From 50 on a block is a
bottleneck."""
_SMALL = 64  # pixels, up to which a resnet loses none before its first stage


def resnet(use: Use, shape: Shape, arguments: Arguments) -> Step:
    counts, is_deep = _STAGES[arguments["depth"]], arguments["depth"] >= 50
    if max(shape[:2]) <= _SMALL:
        steps = [use.conv("stem"), use.norm("stem_norm"), relu]
    else:
        steps = [use.conv("stem", stride=2), use.norm("stem_norm"), relu]
        steps += [largest_around]
    number, last = 0, sum(counts) - 1
    for stage, count in enumerate(counts):
        for place in range(count):
            stride = 2 if stage > 0 and place == 0 else 1
            rate = arguments["drop_path"] * number / last
            # A bottleneck has four times as many channels after it, so the first has a
            # shortcut of its own.
            is_same = place > 0 or (stage == 0 and not is_deep)
            path = _residual(use, f"block_{number}", stride, is_deep)
            path = chain(path, use.drop_path(rate, number))
            steps += [added(_shortcut(use, number, stride, is_same), path), relu]
            number += 1
    return chain(*steps, mean_of_places)


def _residual(use: Use, name: str, stride: int, is_deep: bool) -> Step:
    strides = (1, stride, 1) if is_deep else (stride, 1)
    steps: list[Step] = []
    for place, own in enumerate(strides):
        steps += [use.conv(f"{name}_conv_{place}", own)]
        steps += [use.norm(f"{name}_norm_{place}"), relu]
    return chain(*steps[:-1])


def _shortcut(use: Use, number: int, stride: int, is_same: bool) -> Step:
    if is_same:
        return unchanged
    name = f"block_{number}"
    conv = use.conv(f"{name}_conv_shortcut", stride)
    return chain(conv, use.norm(f"{name}_norm_shortcut"))


def wide_resnet(use: Use, shape: Shape, arguments: Arguments) -> Step:
    """Blocks with normalisation and ReLU before their convolutions."""
    groups = arguments["groups"]
    count = (arguments["depth"] - 2) // (2 * groups)
    steps: list[Step] = [use.conv("stem")]
    for place in range(groups * count):
        name = f"block_{place}"
        stride = 2 if place and place % count == 0 else 1
        first = chain(use.norm(f"{name}_norm_0"), relu)
        path = chain(
            *(use.conv(f"{name}_conv_0", stride), use.norm(f"{name}_norm_1"), relu),
            use.dropout(arguments["dropout"], place),
            use.conv(f"{name}_conv_1"),
        )
        # The stem has 16 channels, the first group 16 width.
        if stride > 1 or (place == 0 and arguments["width"] > 1):
            shortcut = use.conv(f"{name}_shortcut", stride)
            steps += [first, added(shortcut, path)]
        else:
            steps += [added(unchanged, chain(first, path))]
    return chain(*steps, use.norm("norm"), relu, mean_of_places)


def vit(use: Use, shape: Shape, arguments: Arguments) -> Step:
    """Blocks x + attention(norm(x)), x + mlp(norm(x)) of patches as tokens."""
    has_token = arguments["pool"] == "class"
    steps: list[Step] = [patches(arguments["patch"]), use.linear("patches")]
    steps += [use.with_class_token] if has_token else []
    steps += [use.with_positions]
    depth = arguments["depth"]
    for number in range(depth):
        name, place = f"block_{number}", 4 * number
        rate = arguments["drop_path"] * number / max(depth - 1, 1)
        attended = use.attention(f"{name}_attention", arguments["heads"])
        mixed = chain(use.linear(f"{name}_mlp_0"), gelu, use.linear(f"{name}_mlp_1"))
        for half, path in enumerate((attended, mixed)):
            path = chain(
                use.layer_norm(f"{name}_norm_{half}"),
                path,
                use.dropout(arguments["dropout"], place + 2 * half),
                use.drop_path(rate, place + 2 * half + 1),
            )
            steps += [added(unchanged, path)]
    return chain(
        *steps, use.layer_norm("norm"), first_token if has_token else mean_of_places
    )


NETWORKS: dict[str, Callable[[Use, Shape, Arguments], Step]] = {
    "conv-small": conv_small,
    "resnet": resnet,
    "wide-resnet": wide_resnet,
    "vit": vit,
}
