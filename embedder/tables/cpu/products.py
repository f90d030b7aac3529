"""Matrix products, derivatives and losses of four tokens at a time.

Arrays have two axes; rows are padded with zeros to a multiple of LANES. `x` are rows of
tokens, `y` of positions, `z` of noise; `g` and `f` are the scores of tokens with
positions and with noise, or the derivatives of the loss by them. Rows and columns come
in fours. Numbers in brackets are equations of embedder/ALGORITHM.md.
"""

import math

import numpy as np

from embedder.tables.cpu.simd import (
    LANES,
    add_product,
    add_scaled,
    cast_like,
    compiled,
    load,
    store,
    store_sums,
    two_to_the,
    zeros,
)

_FACTORS = 512  # of at most 2 each, whose product is a float64


@compiled()
def scores(x, i, y, start, stop, out):
    """out[i : i + 4, start:stop] = x[i : i + 4] @ y[start:stop].T, in fours."""
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
        store_sums(out, i, j, upper + lower)


@compiled()
def combine_rows(out, o, i, terms, f, z):
    """out[o : o + 4] = g[i : i + 4, j:stop] @ y[j:stop] + f[i : i + 4] @ z, with
    `terms` = (g, y, j, stop)."""
    g, y, j, stop = terms
    for d in range(0, out.shape[1], LANES):
        a = b = c = e = zeros(out)
        for r in range(j, stop):
            v = load(y, r, d)
            a, b = add_scaled(a, g, i, r, v), add_scaled(b, g, i + 1, r, v)
            c, e = add_scaled(c, g, i + 2, r, v), add_scaled(e, g, i + 3, r, v)
        for r in range(len(z)):
            v = load(z, r, d)
            a, b = add_scaled(a, f, i, r, v), add_scaled(b, f, i + 1, r, v)
            c, e = add_scaled(c, f, i + 2, r, v), add_scaled(e, f, i + 3, r, v)
        store(out, o, d, a)
        store(out, o + 1, d, b)
        store(out, o + 2, d, c)
        store(out, o + 3, d, e)


@compiled()
def combine_columns(out, base, g, start, stop, reach, x):
    """out[base + j] = g[:, j].T @ x for j of start:stop, in fours. With a reach >= 0,
    column j is zero but in rows j - reach to j."""
    for j in range(start, stop, 4):
        first, last = 0, len(x)
        if reach >= 0:
            first, last = max(0, j - reach), min(len(x), j + 4)
        o = base + j
        for d in range(0, out.shape[1], LANES):
            a = b = c = e = zeros(out)
            for q in range(first, last):
                v = load(x, q, d)
                a, b = add_scaled(a, g, q, j, v), add_scaled(b, g, q, j + 1, v)
                c, e = add_scaled(c, g, q, j + 2, v), add_scaled(e, g, q, j + 3, v)
            store(out, o, d, a)
            store(out, o + 1, d, b)
            store(out, o + 2, d, c)
            store(out, o + 3, d, e)


@compiled()
def context_errors(g, i, first, last, window):
    """Replaces the scores g of four tokens by the derivatives of softplus(-g), (9):
    e_tj = -sigma(-g), and 0 where token t and position j are no pair, (32)."""
    for q in range(i, i + 4):
        low, high, itself = first[q], last[q], window + q
        for c in range(g.shape[1]):
            error = -sigmoid(-g[q, c])
            is_pair = (c >= low) & (c <= high) & (c != itself)
            g[q, c] = error if is_pair else cast_like(0, error)


@compiled()
def noise_errors(f, i, scale, num_noise):
    """Replaces the scores f of four tokens by the derivatives of scale softplus(f),
    (10): e_tk = scale sigma(f), (32) and (36)."""
    for q in range(i, i + 4):
        of_token = scale[q]  # read once: LLVM cannot know that f does not overlap it
        for k in range(f.shape[1]):
            error = of_token * sigmoid(f[q, k])
            f[q, k] = error if k < num_noise else cast_like(0, error)


@compiled()
def context_loss(scores, i, first, last, window):
    """Sum of softplus(-score) over the pairs of four tokens, (7); as `noise_loss`.

    A token has at most 254 contexts, so one product has room for all factors.
    """
    loss = 0.0
    for q in range(i, i + 4):
        product = 1.0
        for c in range(first[q], last[q] + 1):
            if c != window + q:
                score = scores[q, c]
                loss += max(-score, cast_like(0, score))
                product *= 1 + np.float64(exp(-abs(score)))
        loss += math.log(product)
    return loss


@compiled()
def noise_loss(scores, i, scale, num_noise):
    """Sum of scale softplus(score) over the noise of four tokens, (7) and (8).

    log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|)). The logarithms of factors up to 2
    add up to the logarithm of their product; a float64 has room for a thousand factors.
    """
    loss = 0.0
    for q in range(i, i + 4):
        for start in range(0, num_noise, _FACTORS):
            linear, product = 0.0, 1.0
            for k in range(start, min(start + _FACTORS, num_noise)):
                score = scores[q, k]
                linear += max(score, cast_like(0, score))
                product *= 1 + np.float64(exp(-abs(score)))
            loss += scale[q] * (linear + math.log(product))
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
    |r| <= ln(2) / 2, where 14 terms of the series are enough for float64. Numba itself
    does not vectorize exp.
    """
    x = min(max(x, cast_like(-87, x)), cast_like(87, x))
    n = np.floor(x * cast_like(1.4426950408889634, x) + cast_like(0.5, x))
    r = x - n * cast_like(0.693359375, x) + n * cast_like(2.1219444005469058e-4, x)
    p = cast_like(1 / 6227020800, x)
    p = p * r + cast_like(1 / 479001600, x)
    p = p * r + cast_like(1 / 39916800, x)
    p = p * r + cast_like(1 / 3628800, x)
    p = p * r + cast_like(1 / 362880, x)
    p = p * r + cast_like(1 / 40320, x)
    p = p * r + cast_like(1 / 5040, x)
    p = p * r + cast_like(1 / 720, x)
    p = p * r + cast_like(1 / 120, x)
    p = p * r + cast_like(1 / 24, x)
    p = p * r + cast_like(1 / 6, x)
    p = p * r + cast_like(1 / 2, x)
    p = p * r + cast_like(1, x)
    p = p * r + cast_like(1, x)
    return p * two_to_the(n)
