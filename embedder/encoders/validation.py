"""Checks of the arrays that `FeatureEncoder` and its ensemble are given."""

import math
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

DTYPES: Any = [np.float64, np.float32, np.uint8]
"""Dtypes of features; others are cast to the first."""


def flat(X) -> Any:
    """X [n, ...] as [n, F], if it has more axes."""
    is_deep = isinstance(X, np.ndarray) and X.ndim > 2
    return X.reshape(len(X), math.prod(X.shape[1:])) if is_deep else X


def features_for(estimator: Any, X) -> np.ndarray:
    """X as features [n, F] for a fitted estimator.

    Raises:
      NotFittedError, ValueError: the estimator is not fitted, or X does not fit it.
    """
    check_is_fitted(estimator)
    return validate_data(estimator, flat(X), reset=False, dtype=DTYPES)
