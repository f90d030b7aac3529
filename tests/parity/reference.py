"""The equations of the two losses as plain loops over tokens, in any NumPy dtype.

Neither program uses this. Its derivatives are taken by a complex step, f'(x) =
Im f(x + ih) / h, the finite difference that loses no digits.

Reference: Squire and Trapp 1998, SIAM Review 40(1), 110-112.
"""

from collections.abc import Callable

import numpy as np

_STEP = 1e-30


def loss(blocks, v, u, *, architecture: str, negative: int):
    """Loss of the blocks, with rows v[id] and u[place].

    `v` are rows of the input table by place [N, T, D]; `u` a pair, rows of the output
    table by place [N, T, D] and by noise id [N, G, K, D].
    """
    output, noise = u
    total = 0
    for n in range(len(blocks.ids)):
        for t in range(blocks.ids.shape[1]):
            context = _context(blocks.sequence[n], blocks.radius[n], t)
            tile = noise[n, t * noise.shape[1] // blocks.ids.shape[1]]
            if not context:
                continue
            share = negative / len(tile)
            if architecture == "skipgram":
                for j in context:
                    total += _softplus(-(v[n, t] @ output[n, j]))
                    total += share * sum(_softplus(v[n, t] @ row) for row in tile)
            else:
                mean = sum(v[n, j] for j in context) / len(context)
                total += _softplus(-(mean @ output[n, t]))
                total += share * sum(_softplus(mean @ row) for row in tile)
    return total


def derivative(function: Callable, x: np.ndarray) -> np.ndarray:
    """Derivative of the scalar `function` at the real array `x`, f64 of its shape."""
    result = np.empty(x.shape)
    for place in np.ndindex(x.shape):
        moved = x.astype(np.complex128)
        moved[place] += 1j * _STEP
        result[place] = function(moved).imag / _STEP
    return result


def _context(sequence, radius, t: int) -> list[int]:
    return [
        j
        for j in range(len(sequence))
        if 0 < abs(t - j) <= radius[t] and sequence[j] == sequence[t]
    ]


def _softplus(x):
    return np.log(1 + np.exp(x))
