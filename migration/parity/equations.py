"""The equations of the two losses as plain loops over tokens, in any NumPy dtype, and
that of bootstrap resamples.

Neither program uses this. Derivatives are by complex-step differentiation, f'(x) =
Im f(x + ih) / h, which has no cancellation error.

Reference: Squire and Trapp 1998, SIAM Review 40(1), 110-112.
"""

from collections.abc import Callable, Sequence

import numpy as np

_STEP = 1e-30


def loss(
    blocks,
    input,
    output=None,
    noise=None,
    nodes=None,
    *,
    architecture: str,
    negative: int,
    signs=None,
    cbow_mean: bool = True,
    log_noise=None,
):
    """Loss of `blocks`, a `legacy.blocks.Blocks`; a scalar of the rows' dtype.

    Args:
      input, output: rows of the two tables by position, [N, T, D].
      noise: rows of the output table by noise id, [N, G, K, D].
      nodes: rows of inner nodes above the token of a position, [N, T, L, D]; None:
        there is no hierarchical softmax.
      signs: of `nodes`, [N, T, L]: 2 c - 1 of a code c; 0: padding.
      cbow_mean: False: of CBOW, the sum of the contexts in the place of their mean.
      log_noise: log weights of noise, of all tokens, [V]; for "cbow-softmax".
    """
    total = 0
    for n in range(len(blocks.ids)):
        for t in range(blocks.ids.shape[1]):
            context = _context(blocks.sequence[n], blocks.radius[n], t)
            if not context:
                continue
            weights = [1.0 for _ in context]
            if architecture == "cbow-softmax":
                weights = [0.5 ** (abs(t - j) - 1) for j in context]
            divisor = sum(weights) if cbow_mean else 1
            mean = sum(w * input[n, j] for w, j in zip(weights, context, strict=True))
            mean = mean / divisor
            if nodes is not None:
                given = [mean]
                if architecture == "skipgram":
                    given = [input[n, j] for j in context]
                for row in given:
                    for sign, node in zip(signs[n, t], nodes[n, t], strict=True):
                        total += abs(sign) * _softplus(sign * (row @ node))
            if not negative:
                continue
            of_tile = n, t * noise.shape[1] // blocks.ids.shape[1]
            tile = noise[of_tile]
            share = negative / len(tile)
            if architecture == "skipgram":
                for j in context:
                    total += _softplus(-(input[n, t] @ output[n, j]))
                    total += share * _softplus(tile @ input[n, t]).sum()
            elif architecture == "cbow":
                total += _softplus(-(mean @ output[n, t]))
                total += share * _softplus(tile @ mean).sum()
            else:
                score = mean @ output[n, t] - log_noise[blocks.ids[n, t]]
                others = tile @ mean - log_noise[blocks.noise[of_tile]]
                total += np.log(np.exp(score) + np.exp(others).sum()) - score
    return total


def derivative_along(
    function: Callable, at: Sequence[np.ndarray], directions: Sequence[np.ndarray]
) -> float:
    """Derivative of the scalar `function` of real arrays along `directions`."""
    moved = (x + 1j * _STEP * step for x, step in zip(at, directions, strict=True))
    return float(function(*moved).imag / _STEP)


def resample(sizes: np.ndarray, seed: int) -> list[np.ndarray]:
    """How often each sequence of each shard is drawn, i64[n_z], ALGORITHM.md (55).

    Args:
      sizes: number of sequences of each shard, n_z.
    """

    def draws(*key: int) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))

    total = sum(sizes)
    return [
        np.bincount(draws(2, z).integers(sizes[z], size=num), minlength=sizes[z])
        for z, num in enumerate(draws(2).multinomial(total, np.array(sizes) / total))
    ]


def _context(sequence, radius, t: int) -> list[int]:
    return [
        j
        for j in range(len(sequence))
        if 0 < abs(t - j) <= radius[t] and sequence[j] == sequence[t]
    ]


def _softplus(x):
    return np.log(1 + np.exp(x))
