"""Steps that networks of images in plain NumPy consist of, forward and backward.

A step is a function of an array that returns its result, and the function that takes
the derivative of a loss by the result to that by the array. Steps with parameters add
their gradients to the `Use` of the network.

Parameters have the names of the port, {module: {name: array}}. Random masks are given.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from migration.parity import layers

Back = Callable[[np.ndarray], np.ndarray]
Step = Callable[[np.ndarray], tuple[np.ndarray, Back]]
Arrays = Mapping[str, Mapping[str, np.ndarray]]
Keep = Callable[[int, float, tuple[int, ...]], np.ndarray]
"""Place of a layer, rate, shape of a mask -> which values it keeps, [B, *shape]."""

_KEPT = 0.9  # of a moving average


@dataclass
class Use:
    """One use of a network on a batch: what it reads, and what it leaves behind."""

    params: Arrays
    averages: Arrays
    weights: np.ndarray | None = (
        None  # [B], how often examples count; None: no training
    )
    keep: Keep | None = None  # needed where something is dropped
    gradients: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    moved: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)

    def _learn(self, module: str, **slopes: np.ndarray) -> None:
        """Adds to the gradients of a module, of those parameters that it has."""
        own = self.gradients.setdefault(module, {})
        for name, slope in slopes.items():
            if name in self.params[module]:
                own[name] = own.get(name, 0) + slope

    def _back(self, name: str, slopes: Callable, cache: object, *own: str) -> Back:
        """The backward pass of a layer, whose `slopes` are of x and of `own`."""

        def back(slope: np.ndarray) -> np.ndarray:
            of_x, *of_own = slopes(slope, cache)
            self._learn(name, **dict(zip(own, of_own, strict=True)))
            return of_x

        return back

    def conv(self, name: str, stride: int = 1) -> Step:
        def step(x: np.ndarray):
            y, cache = layers.convolution(x, self.params[name]["w"], stride)
            return y, self._back(name, layers.convolution_slopes, cache, "w")

        return step

    def norm(self, name: str) -> Step:
        """Batch normalisation."""

        def step(x: np.ndarray):
            own = self.params[name]
            kept = layers.Moments(**self.averages[name])
            if self.weights is None:
                return layers.normalised(x, kept, **own), _no_derivative
            y, cache, now = layers.batch_norm(x, self.weights, **own)
            self.moved[name] = {
                kind: _KEPT * old + (1 - _KEPT) * new
                for kind, old, new in zip(kept._fields, kept, now, strict=True)
            }
            of_norm = layers.batch_norm_slopes, cache
            return y, self._back(name, *of_norm, "scale", "offset")

        return step

    def layer_norm(self, name: str) -> Step:
        def step(x: np.ndarray):
            y, cache = layers.layer_norm(x, **self.params[name])
            of_norm = layers.layer_norm_slopes, cache
            return y, self._back(name, *of_norm, "scale", "offset")

        return step

    def linear(self, name: str) -> Step:
        def step(x: np.ndarray):
            own = self.params[name]
            y, cache = layers.linear(x, own["w"], own.get("b", 0.0))
            return y, self._back(name, layers.linear_slopes, cache, "w", "b")

        return step

    def attention(self, name: str, heads: int) -> Step:
        """[B, T, C] -> [B, T, C]."""

        def step(x: np.ndarray):
            parts, backs = [], []
            for part in ("query", "key", "value"):
                found, back = self.linear(f"{name}_{part}")(x)
                parts.append(_split(found, heads))
                backs.append(back)
            found, cache = layers.attention(*parts)
            y, back_of_output = self.linear(f"{name}_output")(_joined(found))

            def back(slope: np.ndarray) -> np.ndarray:
                within = _split(back_of_output(slope), heads)
                slopes = layers.attention_slopes(within, cache)
                pairs = zip(backs, slopes, strict=True)
                return sum(each(_joined(of_part)) for each, of_part in pairs)

            return y, back

        return step

    def with_class_token(self, x: np.ndarray):
        """[B, T, C] -> [B, 1 + T, C]."""
        token = np.broadcast_to(
            self.params["~"]["class_token"], (len(x), 1, x.shape[2])
        )

        def back(slope: np.ndarray) -> np.ndarray:
            self._learn("~", class_token=slope[:, :1].sum(axis=0, keepdims=True))
            return slope[:, 1:]

        return np.concatenate([token, x], axis=1), back

    def with_positions(self, x: np.ndarray):
        def back(slope: np.ndarray) -> np.ndarray:
            self._learn("~", positions=slope.sum(axis=0, keepdims=True))
            return slope

        return x + self.params["~"]["positions"], back

    def dropout(self, rate: float, place: int) -> Step:
        return partial(self._masked, rate, place, lambda x: x.shape[1:])

    def drop_path(self, rate: float, place: int) -> Step:
        """Whole examples: stochastic depth."""
        return partial(self._masked, rate, place, lambda x: (1,) * (x.ndim - 1))

    def _masked(self, rate: float, place: int, shape_of, x: np.ndarray):
        if self.weights is None or rate == 0:
            return x, _same
        assert self.keep is not None
        y, cache = layers.masked(x, self.keep(place, rate, shape_of(x)), rate)
        return y, partial(layers.masked_slopes, cache=cache)


def _same(slope: np.ndarray) -> np.ndarray:
    return slope


def _no_derivative(slope: np.ndarray) -> np.ndarray:
    raise AssertionError("no gradient goes through moving averages")


def _split(x: np.ndarray, heads: int) -> np.ndarray:
    """[B, T, A C] -> [B, A, T, C]."""
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def _joined(x: np.ndarray) -> np.ndarray:
    """[B, A, T, C] -> [B, T, A C]."""
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


# --- steps without parameters


def relu(x: np.ndarray):
    y, cache = layers.relu(x)
    return y, partial(layers.relu_slopes, cache=cache)


def gelu(x: np.ndarray):
    y, cache = layers.gelu(x)
    return y, partial(layers.gelu_slopes, cache=cache)


def largest_of_squares(x: np.ndarray):
    """The maximum of each 2 x 2; what is left over at the ends is dropped."""
    height, width = (length // 2 * 2 for length in x.shape[1:3])
    whole = x[:, :height, :width]
    y, cache = layers.largest(whole, 2, 2)

    def back(slope: np.ndarray) -> np.ndarray:
        of_x = np.zeros_like(x)
        of_x[:, :height, :width] = layers.largest_slopes(slope, cache)
        return of_x

    return y, back


def largest_around(x: np.ndarray):
    """The maximum of 3 x 3 at every second pixel."""
    y, cache = layers.largest(x, 3, 2)
    return y, partial(layers.largest_slopes, cache=cache)


def mean_of_places(x: np.ndarray):
    """[B, ..., C] -> [B, C]."""
    places = tuple(range(1, x.ndim - 1))
    count = np.prod([x.shape[axis] for axis in places])
    return x.mean(axis=places), lambda slope: np.broadcast_to(
        np.expand_dims(slope, places) / count, x.shape
    )


def flat(x: np.ndarray):
    """[B, ...] -> [B, F]."""
    return x.reshape(len(x), -1), lambda slope: slope.reshape(x.shape)


def first_token(x: np.ndarray):
    """[B, T, C] -> [B, C]."""

    def back(slope: np.ndarray) -> np.ndarray:
        of_x = np.zeros_like(x)
        of_x[:, 0] = slope
        return of_x

    return x[:, 0], back


def patches(size: int) -> Step:
    """[B, H, W, C] -> [B, T, size size C], from the top left, by rows."""

    def step(x: np.ndarray):
        rows, columns = (
            [slice(low, low + size) for low in range(0, length, size)]
            for length in x.shape[1:3]
        )
        squares = [(slice(None), row, column) for row in rows for column in columns]

        def back(slope: np.ndarray) -> np.ndarray:
            of_x = np.zeros_like(x)
            for number, square in enumerate(squares):
                of_x[square] = slope[:, number].reshape(x[square].shape)
            return of_x

        return np.stack([x[at].reshape(len(x), -1) for at in squares], axis=1), back

    return step


# --- steps of steps


def chain(*steps: Step) -> Step:
    """One after the other."""

    def step(x: np.ndarray):
        backs: list[Back] = []
        for each in steps:
            x, back = each(x)
            backs.append(back)

        def all_back(slope: np.ndarray) -> np.ndarray:
            for back in reversed(backs):
                slope = back(slope)
            return slope

        return x, all_back

    return step


def added(one: Step, other: Step) -> Step:
    """The sum of both, of the same array."""

    def step(x: np.ndarray):
        (first, back), (second, other_back) = one(x), other(x)
        return first + second, lambda slope: back(slope) + other_back(slope)

    return step


def unchanged(x: np.ndarray):
    return x, _same
