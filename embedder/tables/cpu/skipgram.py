"""Skip-gram on one tile, by hand: weights, gradients and loss.

Equations are those of `embedder/ALGORITHM.md`. `embedder/tables/skipgram.py` is the
same objective for XLA.
"""

from embedder.tables.cpu.products import (
    combine_columns,
    combine_rows,
    context_errors,
    context_loss,
    noise_errors,
    noise_loss,
    scores,
)
from embedder.tables.cpu.simd import cast_like, compiled
from embedder.tables.cpu.tiles import TileBuffers, TileIndex, band_of_four


@compiled()
def weigh(at: TileIndex, share, buffers: TileBuffers):
    """Weights of tokens, n_t, and of positions, ALGORITHM.md (14) and (15); returns the
    range of positions that are contexts, and the number of pairs."""
    one = cast_like(1, share)
    buffers.position_weights[:] = 0
    start, stop, pairs = len(buffers.position_weights), 0, 0
    for i in range(at.size):
        first, last = buffers.first[i], buffers.last[i]
        count = last - first
        buffers.token_weights[i] = count
        buffers.noise_scale[i] = share * cast_like(count, share)
        if count > 0:
            start, stop = min(start, first), max(stop, last + 1)
            pairs += count
            for c in range(first, last + 1):
                buffers.position_weights[c] += one
            buffers.position_weights[at.window + i] -= one
    return (start, stop), pairs


@compiled()
def differentiate(
    at: TileIndex, band, gradients, num_noise, report, buffers: TileBuffers
):
    """Gradients of the rows of a tile, ALGORITHM.md (32) to (35); returns the loss (7)
    if it is reported.

        e_tj = -sigma(-v_t . u_j) for a pair, else 0;
        e_tk = (negative / K) n_t sigma(v_t . u_k)          (32)
        dL/dv_t = sum_j e_tj u_j + sum_k e_tk u_k           (33)
        dL/du_j = sum_t e_tj v_t                            (34)
        dL/du_k = sum_t e_tk v_t                            (35)
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
