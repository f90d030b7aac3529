"""Random changes of images while an encoder trains, as pure functions on the device.

What happens to an example is a function of its own key and pixels: neither the rest of
its batch nor the number of devices matters. An operation is a frozen dataclass with two
functions, `draw` of a key and `apply` of an image and what was drawn, so that a test
can apply the same draws in another way. Draws are float32 and int32, whatever the dtype
of the images.

Axis letters: B examples of a batch, H height, W width, C channels, K classes.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from embedder.errors import InputError

GREY = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in the luma (ITU-R BT.601)."""

_SPECS = "crop=N, resized-crop=SHARE, flip, colour=S, cutout=N or mixup=ALPHA"
_RATIO = 4 / 3  # of the sides of a crop that is resized, at most


class Operation(Protocol):
    """A random change of one image."""

    number: int  # its keys are folded with it, so that operations draw on their own

    def draw(self, key: jax.Array, shape: tuple[int, ...]) -> tuple[jax.Array, ...]:
        """What is random about the change of an image of `shape`, [H, W, C]."""

    def apply(self, image: jax.Array, *draws: jax.Array) -> jax.Array:
        """The changed image, [H, W, C], in its dtype."""


@dataclass(frozen=True)
class Crop:
    """The image, padded by reflection at each side, is cut at a random place.

    As in Wide Residual Networks (Zagoruyko & Komodakis 2016, arXiv:1605.07146).
    """

    padding: int
    number = 1

    def draw(self, key: jax.Array, shape: tuple[int, ...]) -> tuple[jax.Array, ...]:
        """Top and left of the cut in the padded image, i32 from 0 to 2 `padding`."""
        corner = jax.random.randint(key, (2,), 0, 2 * self.padding + 1, jnp.int32)
        return corner[0], corner[1]

    def apply(self, image: jax.Array, *draws: jax.Array) -> jax.Array:
        top, left = draws
        size = self.padding, self.padding
        padded = jnp.pad(image, (size, size, (0, 0)), mode="reflect")
        zero = jnp.zeros((), jnp.int32)
        return jax.lax.dynamic_slice(padded, (top, left, zero), image.shape)

    def check(self, height: int, width: int) -> None:
        """Raises InputError if images of this size are too small."""
        if self.padding >= min(height, width):
            raise InputError(
                f"`augment` crop={self.padding} must be less than the height and width "
                f"of images, {height} and {width}."
            )


@dataclass(frozen=True)
class ResizedCrop:
    """A random part of the image, scaled to its size by bilinear interpolation.

    Its area is uniform from `least` to 1 of the image's, the ratio of its sides
    log-uniform from 3/4 to 4/3; sides longer than the image's are those of the image
    (Szegedy et al. 2014, arXiv:1409.4842, section 6).
    """

    least: float
    number = 2

    def draw(self, key: jax.Array, shape: tuple[int, ...]) -> tuple[jax.Array, ...]:
        """Height, width, top and left of the part in pixels, f32."""
        height, width = shape[:2]
        area, ratio, top, left = jax.random.uniform(key, (4,), jnp.float32)
        area = self.least + (1 - self.least) * area
        root = jnp.exp((2 * ratio - 1) * math.log(_RATIO) / 2)
        side = jnp.sqrt(area)
        part_height = height * jnp.minimum(side * root, 1)
        part_width = width * jnp.minimum(side / root, 1)
        return (
            part_height,
            part_width,
            top * (height - part_height),
            left * (width - part_width),
        )

    def apply(self, image: jax.Array, *draws: jax.Array) -> jax.Array:
        height, width, top, left = (each.astype(image.dtype) for each in draws)
        rows = _bilinear(image.shape[0], height, top)
        columns = _bilinear(image.shape[1], width, left)
        product = jnp.einsum(
            *("ih,hwc,jw->ijc", rows, image, columns), precision="highest"
        )
        return product.astype(image.dtype)


@dataclass(frozen=True)
class Flip:
    """With probability 1/2 left and right are exchanged."""

    number = 3

    def draw(self, key: jax.Array, shape: tuple[int, ...]) -> tuple[jax.Array, ...]:
        """Whether to exchange, bool."""
        return (jax.random.uniform(key, (), jnp.float32) < 0.5,)

    def apply(self, image: jax.Array, *draws: jax.Array) -> jax.Array:
        return jnp.where(draws[0], image[:, ::-1], image)


@dataclass(frozen=True)
class Colour:
    """Brightness, contrast and saturation are scaled, one after the other.

    Each factor f is uniform from 1 - `strength` to 1 + `strength`: x becomes f x, then
    f x + (1 - f) times the mean luma of the image, then f x + (1 - f) times the luma of
    the pixel; after each, values are clipped to 0 to 1. Only images of three channels
    have saturation; the luma of others is the mean of their channels.
    """

    strength: float
    number = 4

    def draw(self, key: jax.Array, shape: tuple[int, ...]) -> tuple[jax.Array, ...]:
        """The three factors, f32."""
        low, high = 1 - self.strength, 1 + self.strength
        brightness, contrast, saturation = jax.random.uniform(
            key, (3,), jnp.float32, low, high
        )
        return brightness, contrast, saturation

    def apply(self, image: jax.Array, *draws: jax.Array) -> jax.Array:
        brightness, contrast, saturation = (x.astype(image.dtype) for x in draws)
        image = jnp.clip(brightness * image, 0, 1)
        image = _blend(image, jnp.mean(_luma(image)), contrast)
        if image.shape[-1] != 3:
            return image
        return _blend(image, _luma(image), saturation)


@dataclass(frozen=True)
class Cutout:
    """A square around a random pixel is black; it may reach over the edge.

    DeVries & Taylor 2017, arXiv:1708.04552.
    """

    side: int
    number = 5

    def draw(self, key: jax.Array, shape: tuple[int, ...]) -> tuple[jax.Array, ...]:
        """Row and column of the pixel, i32."""
        rows, columns = jax.random.split(key)
        return (
            jax.random.randint(rows, (), 0, shape[0], jnp.int32),
            jax.random.randint(columns, (), 0, shape[1], jnp.int32),
        )

    def apply(self, image: jax.Array, *draws: jax.Array) -> jax.Array:
        row, column = (place - self.side // 2 for place in draws)
        i = jnp.arange(image.shape[0])[:, jnp.newaxis]
        j = jnp.arange(image.shape[1])[jnp.newaxis]
        in_rows = (i >= row) & (i < row + self.side)
        in_square = in_rows & (j >= column) & (j < column + self.side)
        return jnp.where(in_square[..., jnp.newaxis], 0, image)


@dataclass(frozen=True)
class Augment:
    """The operations of a specification; hashable, so that programs are cached by it.

    `mixup` is the parameter of `mixup_weights`, which the caller applies; 0: none.
    """

    operations: tuple[Operation, ...] = ()
    mixup: float = 0.0

    def __call__(self, images: jax.Array, keys: jax.Array | None) -> jax.Array:
        """The changed images, in the shape and dtype of `images`.

        Args:
          images: f32 or f64 [B, H, W] or [B, H, W, C], from 0 to 1.
          keys: [B], of each example, see `example_keys`; None: there is no operation.
        """
        if not self.operations:
            return images
        assert keys is not None, "operations draw"
        with_channels = images[..., jnp.newaxis] if images.ndim == 3 else images
        return jax.vmap(self._of_one)(with_channels, keys).reshape(images.shape)

    def draws(
        self, key: jax.Array, shape: tuple[int, ...]
    ) -> list[tuple[jax.Array, ...]]:
        """What each operation draws for the image of `key`, [H, W, C]."""
        return [
            each.draw(jax.random.fold_in(key, each.number), shape)
            for each in self.operations
        ]

    def check(self, shape: tuple[int, ...]) -> None:
        """Checks that examples of `shape` are images that the operations fit.

        Raises:
          InputError: they are not.
        """
        if not self.operations:
            return
        if len(shape) not in (2, 3):
            raise InputError(
                "`augment` applies only to images, [height, width] or [height, width, "
                f"channels], got examples of {list(shape)}."
            )
        for each in self.operations:
            if isinstance(each, Crop):
                each.check(*shape[:2])

    def _of_one(self, image: jax.Array, key: jax.Array) -> jax.Array:
        drawn = self.draws(key, image.shape)
        for each, draws in zip(self.operations, drawn, strict=True):
            image = each.apply(image, *draws)
        return image


def _integer(text: str) -> int | None:
    is_valid = text.isascii() and text.isdigit() and int(text) >= 1
    return int(text) if is_valid else None


def _number(is_valid: Callable[[float], bool]) -> Callable[[str], float | None]:
    def read(text: str) -> float | None:
        try:
            number = float(text)
        except ValueError:
            return None
        return number if is_valid(number) else None

    return read


_SHARE = _number(lambda x: 0 < x < 1)
_OPERATIONS: dict[str, tuple[Any, str, Callable[[str], Any]]] = {
    "resized-crop": (ResizedCrop, "NUMBER must be a number above 0, below 1", _SHARE),
    "crop": (Crop, "N must be an integer >= 1", _integer),
    "flip": (Flip, "", str),
    "colour": (
        *(Colour, "NUMBER must be a number above 0, at most 1"),
        _number(lambda x: 0 < x <= 1),
    ),
    "cutout": (Cutout, "N must be an integer >= 1", _integer),
    "mixup": (
        *(float, "NUMBER must be a number above 0"),
        _number(lambda x: 0 < x < math.inf),
    ),
}
"""Of each name: what it makes of a value, the rule of the value, and its reader."""


def make_augment(spec: Sequence[str]) -> Augment:
    """The operations named by texts such as flip or crop=4.

    They are applied in one order, whatever that of the texts: resized-crop, crop, flip,
    colour, cutout.

    Raises:
      InputError: a name is unknown or twice, or a value is wrong.
    """
    operations: dict[str, Any] = {}
    for text in map(str, spec):
        name, equals, value = text.partition("=")
        if name in operations:
            raise InputError(f"`augment` must have {name} once, got {list(spec)}.")
        make, rule, read = _OPERATIONS.get(name, (None, "", str))
        if make is None or (equals and not rule):
            raise InputError(f"`augment` must be {_SPECS}, got {text!r}.")
        if rule and read(value) is None:
            raise InputError(f"`augment` {name}={rule}, got {text!r}.")
        operations[name] = make(read(value)) if rule else make()
    mixup = operations.pop("mixup", 0.0)
    return Augment(tuple(operations[x] for x in _OPERATIONS if x in operations), mixup)


def example_keys(seed: jax.Array, epoch: int | jax.Array, rows: jax.Array) -> jax.Array:
    """The key of each example in an epoch, folded from seed, epoch and row.

    Args:
      seed: the key of a run.
      rows: i32[B], rows of the examples in the data.
    """
    of_epoch = jax.random.fold_in(seed, epoch)
    return jax.vmap(jax.random.fold_in, (None, 0))(of_epoch, rows)


def mixup_weights(alpha: float, keys: jax.Array) -> jax.Array:
    """lambda of equation (79) for each example, f32[B], from Beta(alpha, alpha)."""

    def weight(key: jax.Array) -> jax.Array:
        own = jax.random.fold_in(key, 6)
        return jax.random.beta(own, alpha, alpha, dtype=jnp.float32)

    return jax.vmap(weight)(keys)


def mixup(first: jax.Array, second: jax.Array, weights: jax.Array) -> jax.Array:
    """Mixtures of examples and others, equation (79): `weights` times the first.

    Args:
      first, second: [B, ...], images, or probabilities of the classes [B, K].
      weights: [B], see `mixup_weights`.

    Reference: Zhang et al. 2018, arXiv:1710.09412, section 2.
    """
    share = weights.astype(first.dtype).reshape(-1, *(1,) * (first.ndim - 1))
    return share * first + (1 - share) * second


def _bilinear(size: int, part: jax.Array, start: jax.Array) -> jax.Array:
    """Weights [size, size] that scale `part` pixels from `start` on to `size` pixels.

    Pixel i of the result is at start + (i + 1/2) part / size - 1/2 of the image, or at
    its nearest pixel.
    """
    pixels = jnp.arange(size, dtype=part.dtype)
    place = jnp.clip(start + (pixels + 0.5) * part / size - 0.5, 0, size - 1)
    return jnp.maximum(0, 1 - jnp.abs(place[:, jnp.newaxis] - pixels[jnp.newaxis]))


def _luma(image: jax.Array) -> jax.Array:
    """The luma of each pixel, [H, W, 1], of an image [H, W, C]."""
    if image.shape[-1] != 3:
        return jnp.mean(image, axis=-1, keepdims=True)
    weights = jnp.array([[GREY]], image.dtype)
    return jnp.sum(weights * image, axis=-1, keepdims=True)


def _blend(image: jax.Array, other: jax.Array, share: jax.Array) -> jax.Array:
    return jnp.clip(share * image + (1 - share) * other, 0, 1)
