"""The gradients and the loss of a tile, by the equations of embedder/ALGORITHM.md."""

from embedder.tables.cpu.products import (
    combine_columns,
    combine_rows,
    context_errors,
    context_loss,
    noise_errors,
    noise_loss,
    scores,
    sigmoid,
    softplus,
)
from embedder.tables.cpu.simd import cast_like, compiled
from embedder.tables.cpu.tiles import TileBuffers, TileIndex


@compiled()
def differentiate_skipgram(
    at: TileIndex, band, gradients, num_noise, report, buffers: TileBuffers
):
    """Gradients of the rows of a tile by the loss (7) of ALGORITHM.md; returns the loss
    if it is reported.

        e_tj = -sigma(-v_t . u_j)                           (9), a pair
        e_tk = (negative / K) n_t sigma(v_t . u_k)          (10), noise
        dL/dv_t = sum_j e_tj u_j + sum_k e_tk u_k           (11)
        dL/du_r = sum over t of e_tr v_t                    (12)
    """
    num_tokens, num_positions = buffers.context_terms.shape
    num_noise_rows = len(buffers.noise)
    base = at.number * (num_tokens + num_positions + num_noise_rows)
    contexts, negatives = buffers.context_terms, buffers.noise_terms
    first, last, scale = buffers.first, buffers.last, buffers.noise_scale
    loss = 0.0
    for i in range(0, num_tokens, 4):
        start, stop = band_of_four(buffers, i)
        scores(buffers.tokens, i, buffers.positions, start, stop, contexts)
        scores(buffers.tokens, i, buffers.noise, 0, num_noise_rows, negatives)
        if report:
            loss += context_loss(contexts, i, first, last, at.window)
            loss += noise_loss(negatives, i, scale, num_noise)
        context_errors(contexts, i, first, last, at.window)
        noise_errors(negatives, i, scale, num_noise)
        terms = contexts, buffers.positions, start, stop
        combine_rows(gradients, base + i, i, terms, negatives, buffers.noise)
    base += num_tokens
    start, reach = band[0] - band[0] % 4, 2 * at.window
    combine_columns(gradients, base, contexts, start, band[1], reach, buffers.tokens)
    base += num_positions
    combine_columns(gradients, base, negatives, 0, num_noise_rows, -1, buffers.tokens)
    return loss


@compiled()
def differentiate_cbow(
    at: TileIndex, band, gradients, num_noise, report, buffers: TileBuffers
):
    """Gradients of the rows of a tile by the loss (8) of ALGORITHM.md; returns the loss
    if it is reported.

        h_t = (1 / n_t) sum_j v_j                           (8)
        e_t = -sigma(-h_t . u_t)                            (9)
        e_tk = (negative / K) sigma(h_t . u_k)              (10), noise
        dL/dh_t = e_t u_t + sum_k e_tk u_k                  (11)
        dL/du_t = e_t h_t,  dL/du_k = sum over t of e_tk h_t    (12)
        dL/dv_j = sum over t of (1 / n_t) dL/dh_t           (13)
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


@compiled()
def band_of_four(buffers: TileBuffers, i):
    """First position of the contexts of four tokens, and the one after the last."""
    start, stop = buffers.context_terms.shape[1], 0
    for q in range(i, i + 4):
        if buffers.last[q] > buffers.first[q]:
            start, stop = min(start, buffers.first[q]), max(stop, buffers.last[q] + 1)
    return start, stop
