"""Random changes of images: each beside plain loops over NumPy arrays, same draws."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from embedder.encoders.augment import (
    GREY,
    Colour,
    Crop,
    Cutout,
    Flip,
    Operation,
    ResizedCrop,
    example_keys,
    make_augment,
    mixup_weights,
)

SHAPES = [(6, 6, 1), (7, 5, 3), (5, 6, 4)]
ALL = ("crop=2", "flip", "colour=0.4", "cutout=3", "resized-crop=0.3")
NUM = 12


def images_of(shape: tuple[int, ...], dtype=np.float32) -> np.ndarray:
    return np.random.default_rng(0).random((NUM, *shape)).astype(dtype)


def seed_key(seed: int) -> jax.Array:
    key = jax.random.key(0, impl="threefry2x32")
    for part in (seed % 2**32, seed >> 32):
        key = jax.random.fold_in(key, part)
    return key


def keys(num: int = NUM, seed: int = 3, epoch: int = 2) -> jax.Array:
    return example_keys(seed_key(seed), epoch, jnp.arange(num, dtype=jnp.int32))


def crop_oracle(operation: Crop, image, top, left):
    """Reflection without the edge itself: -1 is 1, size is size - 2."""
    height, width, _ = image.shape
    found = np.empty_like(image)
    for i, j in itertools.product(range(height), range(width)):
        row, column = i + top - operation.padding, j + left - operation.padding
        row = abs(row) if row < height else 2 * (height - 1) - row
        column = abs(column) if column < width else 2 * (width - 1) - column
        found[i, j] = image[row, column]
    return found


def resized_crop_oracle(operation, image, part_height, part_width, top, left):
    height, width, _ = image.shape
    found = np.zeros_like(image)
    for i, j in itertools.product(range(height), range(width)):
        y = np.clip(top + (i + 0.5) * part_height / height - 0.5, 0, height - 1)
        x = np.clip(left + (j + 0.5) * part_width / width - 0.5, 0, width - 1)
        y0, x0 = int(np.floor(y)), int(np.floor(x))
        y1, x1 = min(y0 + 1, height - 1), min(x0 + 1, width - 1)
        upper = (1 - (x - x0)) * image[y0, x0] + (x - x0) * image[y0, x1]
        lower = (1 - (x - x0)) * image[y1, x0] + (x - x0) * image[y1, x1]
        found[i, j] = (1 - (y - y0)) * upper + (y - y0) * lower
    return found


def flip_oracle(operation, image, flips):
    return np.stack([row[::-1] for row in image]) if flips else image


def luma_oracle(pixel) -> float:
    if len(pixel) != 3:
        return sum(pixel) / len(pixel)
    return sum(weight * value for weight, value in zip(GREY, pixel, strict=True))


def colour_oracle(operation, image, brightness, contrast, saturation):
    found = np.clip(brightness * image, 0, 1)
    pixels = [luma_oracle(pixel) for row in found for pixel in row]
    mean = sum(pixels) / len(pixels)
    found = np.clip(contrast * found + (1 - contrast) * mean, 0, 1)
    if image.shape[-1] != 3:
        return found
    for row in found:
        for pixel in row:
            grey = luma_oracle(pixel)
            pixel[:] = np.clip(saturation * pixel + (1 - saturation) * grey, 0, 1)
    return found


def cutout_oracle(operation: Cutout, image, row, column):
    found = image.copy()
    start = row - operation.side // 2, column - operation.side // 2
    for i, j in itertools.product(range(operation.side), repeat=2):
        place = start[0] + i, start[1] + j
        if 0 <= place[0] < image.shape[0] and 0 <= place[1] < image.shape[1]:
            found[place] = 0
    return found


ORACLES = {
    "crop=2": (Crop(2), crop_oracle),
    "resized-crop=0.3": (ResizedCrop(0.3), resized_crop_oracle),
    "flip": (Flip(), flip_oracle),
    "colour=0.4": (Colour(0.4), colour_oracle),
    "cutout=3": (Cutout(3), cutout_oracle),
    "cutout=4": (Cutout(4), cutout_oracle),
}


def draw_all(operation: Operation, shape: tuple[int, ...], num: int = NUM) -> list:
    """What an operation draws for each key, [num] each."""
    return [*jax.vmap(lambda key: operation.draw(key, shape))(keys(num))]


def by_oracle(function, operation, images, draws) -> np.ndarray:
    """An operation by plain loops in float64, with the draws that are given."""
    wide = [
        np.asarray(each).astype(each.dtype if each.dtype.kind != "f" else "f8")
        for each in draws
    ]
    return np.stack(
        [
            function(operation, image.astype(np.float64), *(x[n] for x in wide))
            for n, image in enumerate(images)
        ]
    )


@pytest.mark.spread(1)
@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_operation_matches_plain_loops(name, shape, dtype):
    operation, function = ORACLES[name]
    assert make_augment([name]).operations == (operation,)
    images, draws = images_of(shape, dtype), draw_all(operation, shape)
    with jax.enable_x64(dtype == np.float64):
        actual = np.asarray(jax.jit(jax.vmap(operation.apply))(images, *draws))
    assert actual.dtype == dtype and actual.shape == images.shape
    expected = by_oracle(function, operation, images, draws)
    tolerance = 1e-6 if dtype == np.float32 else 1e-14
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance)
    assert (actual != images).any()


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(7, 5), (7, 5, 3)], ids=str)
def test_operations_are_applied_one_after_the_other(shape):
    """In one order, whatever they are given in."""
    assert make_augment(ALL) == make_augment(ALL[::-1])
    augment, images = make_augment(ALL), images_of(shape)
    actual = np.asarray(jax.jit(augment)(images, keys()))
    found = images.reshape(*images.shape[:3], -1)
    drawn = jax.vmap(lambda key: augment.draws(key, found.shape[1:]))(keys())
    functions = {type(each): function for each, function in ORACLES.values()}
    for operation, draws in zip(augment.operations, drawn, strict=True):
        found = by_oracle(functions[type(operation)], operation, found, draws)
    np.testing.assert_allclose(actual, found.reshape(images.shape), rtol=0, atol=2e-6)
    assert actual.dtype == np.float32


def draws_of(operation: Operation, shape=(8, 6, 3)) -> list[np.ndarray]:
    return [*map(np.asarray, draw_all(operation, shape, 4000))]


@pytest.mark.parametrize(
    ("operation", "sizes"),
    [(Crop(2), (5, 5)), (Flip(), (2,)), (Cutout(3), (8, 6))],
    ids=["crops", "flips", "squares"],
)
def test_places_are_uniform(operation, sizes):
    for drawn, size in zip(draws_of(operation), sizes, strict=True):
        counts, expected = np.bincount(drawn, minlength=size), 4000 / size
        assert len(counts) == size
        assert (abs(counts - expected) < 5 * np.sqrt(expected)).all()


def test_factors_of_colours_are_uniform():
    for drawn in draws_of(Colour(0.4)):
        assert 0.6 <= drawn.min() < 0.601 and 1.399 < drawn.max() <= 1.4
        assert abs(drawn.mean() - 1) < 5 * 0.4 / np.sqrt(3 * 4000)


def test_parts_that_are_resized_lie_within_the_image():
    height, width, top, left = draws_of(ResizedCrop(0.25))
    assert (top >= 0).all() and (top + height <= 8 + 1e-5).all()
    assert (left >= 0).all() and (left + width <= 6 + 1e-5).all()
    area, ratio = height * width / 48, (height / 8) / (width / 6)
    assert 0.25 - 1e-5 < area.min() < 0.26 and 0.98 < area.max() <= 1 + 1e-5
    assert 0.75 - 1e-5 < ratio.min() < 0.76 and 1.32 < ratio.max() < 4 / 3 + 1e-5


def test_keys_are_of_seed_epoch_and_row():
    def data(seed, epoch, rows):
        return jax.random.key_data(
            example_keys(seed_key(seed), epoch, jnp.asarray(rows))
        ).tolist()

    assert data(1, 2, [3, 4]) == data(1, 2, [3]) + data(1, 2, [4])
    found = [
        tuple(data(seed, epoch, [row])[0])
        for seed in (0, 1, 2**32, 2**64 - 1)
        for epoch in (0, 1)
        for row in (0, 1, 2**31 - 1)
    ]
    assert len({*found}) == len(found)


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.2, 4.0])
def test_weights_of_mixup_have_the_moments_of_beta(alpha):
    weights = np.asarray(mixup_weights(alpha, keys(4000)), np.float64)
    variance = 1 / (4 * (2 * alpha + 1))
    assert weights.dtype == np.float64 and 0 <= weights.min() <= weights.max() <= 1
    assert abs(weights.mean() - 0.5) < 5 * np.sqrt(variance / 4000)
    assert abs(weights.var() / variance - 1) < 0.15
