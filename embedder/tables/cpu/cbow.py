"""CBOW on one tile, by hand: weights, gradients and loss.

Equations are those of `embedder/ALGORITHM.md`. `embedder/tables/cbow.py` is the
same objective for XLA.
"""

from embedder.tables.cpu.products import (
    combine_columns,
    combine_rows,
    noise_errors,
    noise_loss,
    scores,
    sigmoid,
    softplus,
)
from embedder.tables.cpu.simd import cast_like, compiled
from embedder.tables.cpu.tiles import TileBuffers, TileIndex, band_of_four


@compiled()
def weigh(at: TileIndex, share, buffers: TileBuffers):
    """Weights of tokens and positions, ALGORITHM.md (16) and (17), and 1/n_t in
    `buffers.context_terms`; returns the range of positions that are contexts, and the
    number of active tokens."""
    buffers.position_weights[:] = 0
    buffers.context_terms[:] = 0
    start, stop, active = len(buffers.position_weights), 0, 0
    for i in range(at.size):
        first, last = buffers.first[i], buffers.last[i]
        is_active = last > first
        buffers.token_weights[i] = is_active
        buffers.noise_scale[i] = share if is_active else cast_like(0, share)
        if is_active:
            start, stop = min(start, first), max(stop, last + 1)
            active += 1
            each = cast_like(1, share) / cast_like(last - first, share)
            for c in range(first, last + 1):
                if c != at.window + i:
                    buffers.context_terms[i, c] = each
                    buffers.position_weights[c] += each
    return (start, stop), active


@compiled()
def differentiate(
    at: TileIndex, band, gradients, num_noise, report, buffers: TileBuffers
):
    """Gradients of the rows of a tile, ALGORITHM.md (36) to (40); returns the loss (8)
    if it is reported.

        h_t = (1 / n_t) sum_j v_j                           (8)
        e_t = -sigma(-h_t . u_t);
        e_tk = (negative / K) sigma(h_t . u_k)              (36)
        dL/dh_t = e_t u_t + sum_k e_tk u_k                  (37)
        dL/dv_j = sum_t (1 / n_t) dL/dh_t                   (38)
        dL/du_t = e_t h_t                                   (39)
        dL/du_k = sum_t e_tk h_t                            (40)
    """
    num_tokens, num_positions = buffers.context_terms.shape
    num_noise_rows = len(buffers.noise)
    base = at.number * (num_tokens + num_positions + num_noise_rows)
    shares, negatives = buffers.context_terms, buffers.noise_terms
    means, errors, tokens = buffers.means, buffers.errors, buffers.tokens
    loss = 0.0
    for i in range(0, num_tokens, 4):
        start, stop = band_of_four(buffers, i)
        terms = shares, buffers.positions, start, stop
        combine_rows(means, i, i, terms, negatives, buffers.noise[:0])
        scores(means, i, buffers.noise, 0, num_noise_rows, negatives)
        if report:
            loss += noise_loss(negatives, i, buffers.noise_scale, num_noise)
        noise_errors(negatives, i, buffers.noise_scale, num_noise)
        terms = shares, buffers.positions, 0, 0
        combine_rows(errors, i, i, terms, negatives, buffers.noise)
    for i in range(at.size):
        if buffers.last[i] > buffers.first[i]:
            score = cast_like(0, buffers.noise_scale[i])
            for d in range(means.shape[1]):
                score += means[i, d] * tokens[i, d]
            if report:
                loss += softplus(-score)
            error = -sigmoid(-score)
            for d in range(means.shape[1]):
                errors[i, d] += error * tokens[i, d]
                gradients[base + i, d] = error * means[i, d]
    base += num_tokens
    start, reach = band[0] - band[0] % 4, 2 * at.window
    combine_columns(gradients, base, shares, start, band[1], reach, errors)
    base += num_positions
    combine_columns(gradients, base, negatives, 0, num_noise_rows, -1, means)
    return loss
