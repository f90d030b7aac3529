"""Checks of the arrays that `FeatureEncoder` and its ensemble are given."""

import math
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from embedder.encoders.examples import without_channel
from embedder.errors import InputError

DTYPES: Any = [np.float64, np.float32, np.uint8]
"""Dtypes of features; others are cast to the first."""


def flat(X) -> Any:
    """X [n, ...] as [n, F], if it has more axes."""
    is_deep = isinstance(X, np.ndarray) and X.ndim > 2
    return X.reshape(len(X), math.prod(X.shape[1:])) if is_deep else X


def features_for(estimator: Any, X) -> np.ndarray:
    """X as features [n, F] for a fitted estimator.

    Integers are pixels, if it was trained on uint8; numbers of 0 to 1 are what pixels
    are scaled to.

    Raises:
      NotFittedError, ValueError: the estimator is not fitted, or X does not fit it.
    """
    check_is_fitted(estimator)
    own = vars(estimator)  # former pickles lack both
    shape, kind = own.get("_shape", ()), own.get("_kind")
    if isinstance(X, np.ndarray) and len(shape) > 1:
        _check_shape(X, shape)
    x = validate_data(estimator, flat(X), reset=False, dtype=DTYPES)
    if kind != "uint8" or x.dtype == np.uint8:
        return x
    given = np.asarray(X).dtype
    is_whole = given.kind in "iu"
    low, high = x.min(), x.max()
    if low < 0 or high > (255 if is_whole else 1):
        hint = ": give X.astype(np.uint8)" if 0 <= low and 1 < high <= 255 else ""
        raise InputError(
            "`X` must be of uint8, 0 to 255, as in `fit`, or scaled to 0 to 1, got "
            f"{given} of {low:g} to {high:g}{hint}."
        )
    return x.astype(np.uint8) if is_whole else x


def _check_shape(X: np.ndarray, shape: tuple[int, ...]) -> None:
    """Raises InputError unless X is [n, *shape], or such examples as rows."""
    num = math.prod(shape)
    is_flat = X.ndim < 2 or (X.ndim == 2 and X.shape[1] == num)
    if is_flat or without_channel(X.shape[1:]) == without_channel(shape):
        return
    axes = ", ".join(map(str, shape))
    is_one = without_channel(X.shape) == without_channel(shape)
    one = " One example is X[np.newaxis]." if is_one else ""
    raise InputError(
        f"`X` must be [n, {axes}], as in `fit`, or rows of {num} numbers, got "
        f"{list(X.shape)}.{one}"
    )
