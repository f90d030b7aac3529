"""Means of vectors that differ by a rotation."""

import numpy as np
import pytest

from embedder.encoders.alignment import (
    aligned_mean,
    rotated_mean,
    rotations_to_first,
)

RNG = np.random.default_rng(0)
VECTORS = RNG.normal(size=(50, 4))


def random_rotation() -> np.ndarray:
    return np.linalg.qr(RNG.normal(size=(4, 4)))[0]


def test_rotated_copies_have_the_first_as_their_mean():
    copies = np.stack([VECTORS, *(VECTORS @ random_rotation() for _ in range(5))])
    assert np.abs(np.mean(copies, axis=0) - VECTORS).max() > 0.1
    found = aligned_mean(copies)
    np.testing.assert_allclose(found.mean, VECTORS, atol=1e-13)
    assert found.rotations.shape == (6, 4, 4)


def test_rotation_is_orthogonal_and_the_best():
    noisy = VECTORS @ random_rotation() + 0.1 * RNG.normal(size=VECTORS.shape)
    _, found = rotations_to_first([np.stack([VECTORS, noisy])])
    np.testing.assert_allclose(found.T @ found, np.eye(4), atol=1e-14)
    least = np.linalg.norm(noisy @ found - VECTORS)
    for _ in range(100):
        other = np.linalg.qr(found + 0.1 * RNG.normal(size=(4, 4)))[0]
        other = other * np.sign((other * found).sum(axis=0))
        assert np.linalg.norm(noisy @ other - VECTORS) > least


def test_vectors_are_not_scaled():
    found = aligned_mean(np.stack([VECTORS, 3 * VECTORS]))
    np.testing.assert_allclose(found.mean, 2 * VECTORS, rtol=1e-13)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_mean_by_stored_rotations_is_the_same(dtype):
    copies = RNG.normal(size=(3, 50, 4)).astype(dtype)
    found = aligned_mean(copies)
    assert found.mean.dtype == found.rotations.dtype == dtype
    again = rotated_mean(copies, found.rotations)
    assert again.dtype == dtype
    np.testing.assert_allclose(again, found.mean, rtol=1e-5, atol=1e-6)
    part = rotated_mean(copies[:, :2], found.rotations)
    np.testing.assert_allclose(part, found.mean[:2], rtol=1e-5, atol=1e-6)


def test_groups_of_examples_give_the_rotations_of_all():
    copies = RNG.normal(size=(3, 50, 4))
    groups = (copies[:, start : start + 7] for start in range(0, 50, 7))
    found, whole = rotations_to_first(groups), rotations_to_first([copies])
    np.testing.assert_allclose(found, whole, atol=1e-13)
    np.testing.assert_array_equal(found[0], np.eye(4))
    assert np.abs(rotations_to_first([copies[:, :7]]) - whole).max() > 0.1
