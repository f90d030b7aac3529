"""Matrix products, derivatives and losses of four tokens at a time.

Arrays have two axes; rows are padded with zeros to a multiple of LANES. `x` are rows of
tokens, `y` of positions, `z` of noise; `g` and `f` are the scores of tokens with
positions and with noise, or the derivatives of the loss by them. Rows and columns come
in fours. Numbers in brackets are equations of embedder/ALGORITHM.md.
"""

import math

import numpy as np
from numba import types
from numba.extending import overload

from embedder.tokens.cpu.simd import (
    LANES,
    add_columns,
    add_product,
    add_rows,
    cast_like,
    compiled,
    four_zeros,
    load,
    store_four,
    store_sums,
    two_to_the,
    zeros,
)

_FACTORS = 512  # of at most 2 each, whose product is a float64


@compiled(forceinline=True)
def scores(x, i, y, start, stop, out, o, shift):
    """out[o : o + 4, j - shift] = x[i : i + 4] @ y[j].T, j of start:stop in fours."""
    for j in range(start, stop, 4):
        a0 = a1 = a2 = a3 = zeros(x)
        b0 = b1 = b2 = b3 = zeros(x)
        c0 = c1 = c2 = c3 = zeros(x)
        e0 = e1 = e2 = e3 = zeros(x)
        for d in range(0, x.shape[1], LANES):
            y0, y1 = load(y, j, d), load(y, j + 1, d)
            y2, y3 = load(y, j + 2, d), load(y, j + 3, d)
            v = load(x, i, d)
            a0, a1 = add_product(a0, v, y0), add_product(a1, v, y1)
            a2, a3 = add_product(a2, v, y2), add_product(a3, v, y3)
            v = load(x, i + 1, d)
            b0, b1 = add_product(b0, v, y0), add_product(b1, v, y1)
            b2, b3 = add_product(b2, v, y2), add_product(b3, v, y3)
            v = load(x, i + 2, d)
            c0, c1 = add_product(c0, v, y0), add_product(c1, v, y1)
            c2, c3 = add_product(c2, v, y2), add_product(c3, v, y3)
            v = load(x, i + 3, d)
            e0, e1 = add_product(e0, v, y0), add_product(e1, v, y1)
            e2, e3 = add_product(e2, v, y2), add_product(e3, v, y3)
        upper = a0, a1, a2, a3, b0, b1, b2, b3
        lower = c0, c1, c2, c3, e0, e1, e2, e3
        store_sums(out, o, j - shift, upper + lower)


@compiled(forceinline=True)
def _in_columns(part, out, o, arguments):
    """Calls `part`, which writes the rows o : o + 4 of `out`, for all columns: with 16
    sums where there are as many, which keep the multipliers busy."""
    four, width = four_zeros(out), out.shape[1]
    whole = width - width % (4 * LANES)
    for d in range(0, whole, 4 * LANES):
        part(four + four + four + four, d, out, o, arguments)
    match (width - whole) // LANES:
        case 1:
            part(four, whole, out, o, arguments)
        case 2:
            part(four + four, whole, out, o, arguments)
        case 3:
            part(four + four + four, whole, out, o, arguments)


@compiled(forceinline=True)
def combine_rows(out, o, band, f, i, z):
    """out[o : o + 4] = g[m : m + 4, start - shift : stop - shift] @ y[start:stop]
    + f[i : i + 4] @ z, with `band` = (g, m, shift, y, start, stop)."""
    _in_columns(_rows, out, o, (band, f, i, z))


@compiled(forceinline=True)
def _rows(sums, d, out, o, arguments):
    (g, m, shift, y, start, stop), f, i, z = arguments
    for r in range(start, stop):
        sums = add_rows(sums, g, m, r - shift, y, r, d)
    for r in range(len(z)):
        sums = add_rows(sums, f, i, r, z, r, d)
    store_four(out, o, d, sums)


@compiled(forceinline=True)
def combine_columns(out, o, f, k, x, i):
    """out[o : o + 4] = f[:, k : k + 4].T @ x[i : i + len(f)]"""
    _in_columns(_columns, out, o, (f, k, x, i))


@compiled(forceinline=True)
def _columns(sums, d, out, o, arguments):
    f, k, x, i = arguments
    for r in range(len(f)):
        sums = add_columns(sums, f, r, k, x, i + r, d)
    store_four(out, o, d, sums)


@compiled(forceinline=True)
def combine_band(out, o, g, j, tokens, row_of, shift, x):
    """out[o : o + 4] = sum over tokens t of g[row, k : k + 4].T x[row], with row =
    row_of[t] and k = j - shift[t]; `tokens` is the first of them and the one after."""
    _in_columns(_band, out, o, (g, j, tokens, row_of, shift, x))


@compiled(forceinline=True)
def _band(sums, d, out, o, arguments):
    g, j, tokens, row_of, shift, x = arguments
    for t in range(tokens[0], tokens[1]):
        sums = add_columns(sums, g, row_of[t], j - shift[t], x, row_of[t], d)
    store_four(out, o, d, sums)


@compiled(forceinline=True)
def context_errors(g, weight, o, first, last, t, shift):
    """Replaces the scores g[o : o + 4] of four tokens, from token t on, by the
    derivatives of weight softplus(-g), (9): e_tj = -weight sigma(-g), and 0 where token
    t and position j = column + shift are no pair, (32); weight is from row o on."""
    for q in range(4):
        of_token = -weight[o + q]
        low, high = first[o + q] - shift, last[o + q] - shift
        itself = t + q - shift
        for c in range(g.shape[1]):
            error = of_token * sigmoid(-g[o + q, c])
            is_pair = (c >= low) & (c <= high) & (c != itself)
            g[o + q, c] = error if is_pair else cast_like(0, error)


@compiled(forceinline=True)
def noise_errors(f, i, scale, o, num_noise):
    """Replaces the scores f[i : i + 4] of four tokens by the derivatives of scale
    softplus(f), (10): e_tk = scale sigma(f), (32) and (36); scale is from row o on."""
    for q in range(4):
        of_token = scale[o + q]  # read once: LLVM must assume that f overlaps it
        for k in range(f.shape[1]):
            error = of_token * sigmoid(f[i + q, k])
            f[i + q, k] = error if k < num_noise else cast_like(0, error)


@compiled()
def context_loss(g, weight, o, first, last, t, shift):
    """Sum of weight softplus(-score) over the pairs of four tokens, (7); as
    `noise_loss`.

    A token has at most 254 contexts, so one product has room for all factors.
    """
    loss = 0.0
    for q in range(4):
        product = 1.0
        for j in range(first[o + q], last[o + q] + 1):
            if j != t + q:
                score = g[o + q, j - shift]
                loss += weight[o + q] * max(-score, cast_like(0, score))
                product *= 1 + np.float64(exp(-abs(score)))
        loss += weight[o + q] * math.log(product)
    return loss


@compiled()
def noise_loss(f, i, scale, o, num_noise):
    """Sum of scale softplus(score) over the noise of four tokens, (7) and (8).

    log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|)). The logarithms of factors up to 2
    add up to the logarithm of their product; a float64 has room for a thousand factors.
    """
    loss = 0.0
    for q in range(4):
        for start in range(0, num_noise, _FACTORS):
            linear, product = 0.0, 1.0
            for k in range(start, min(start + _FACTORS, num_noise)):
                score = f[i + q, k]
                linear += max(score, cast_like(0, score))
                product *= 1 + np.float64(exp(-abs(score)))
            loss += scale[o + q] * (linear + math.log(product))
    return loss


@compiled()
def softplus(x):
    """log(1 + exp(x))"""
    return max(x, cast_like(0, x)) + math.log1p(math.exp(-abs(x)))


@compiled()
def sigmoid(x):
    """1 / (1 + exp(-x))"""
    return cast_like(1, x) / (cast_like(1, x) + exp(-x))


# Without "reassoc", which would add up the two parts of ln 2.
@compiled(fastmath={"contract"})
def exp(x):
    """exp(x) to some units in the last place; x is clipped to [-87, 87].

    exp(x) = 2^n exp(r) with r = x - n ln 2, ln 2 in two parts (Cody and Waite), and
    |r| <= ln(2) / 2, where 8 terms of the series are enough for float32 and 14 for
    float64. Numba itself does not vectorize exp.
    """
    x = min(max(x, cast_like(-87, x)), cast_like(87, x))
    n = np.floor(x * cast_like(1.4426950408889634, x) + cast_like(0.5, x))
    r = x - n * cast_like(0.693359375, x) + n * cast_like(2.1219444005469058e-4, x)
    p = _high_terms(r)
    p = p * r + cast_like(1 / 720, x)
    p = p * r + cast_like(1 / 120, x)
    p = p * r + cast_like(1 / 24, x)
    p = p * r + cast_like(1 / 6, x)
    p = p * r + cast_like(1 / 2, x)
    p = p * r + cast_like(1, x)
    p = p * r + cast_like(1, x)
    return p * two_to_the(n)


def _high_terms(r):
    """The terms of the series of exp from r^7 / 7! on, over r^7."""


@overload(_high_terms, jit_options={"fastmath": {"contract"}})
def _high_terms_of(r):
    if r == types.float32:
        return lambda r: cast_like(1 / 5040, r)

    def terms(r):
        p = cast_like(1 / 6227020800, r)
        p = p * r + cast_like(1 / 479001600, r)
        p = p * r + cast_like(1 / 39916800, r)
        p = p * r + cast_like(1 / 3628800, r)
        p = p * r + cast_like(1 / 362880, r)
        p = p * r + cast_like(1 / 40320, r)
        return p * r + cast_like(1 / 5040, r)

    return terms
