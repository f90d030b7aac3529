"""Skip-gram on one block, by hand: weights, gradients and loss.

Equations are those of `embedder/ALGORITHM.md`. `embedder/tables/skipgram.py` is the
same objective for XLA.
"""

from embedder.tables.cpu.block import (
    BlockBuffers,
    BlockIndex,
    Contexts,
    band_of_four,
    load_rows,
    prefetch,
)
from embedder.tables.cpu.products import (
    combine_band,
    combine_columns,
    combine_rows,
    context_errors,
    context_loss,
    noise_errors,
    noise_loss,
    scores,
)
from embedder.tables.cpu.rows import Destination, update_slots
from embedder.tables.cpu.simd import cast_like, compiled


@compiled()
def weigh(n, tile, share, contexts: Contexts, row_of):
    """Weights of tokens, n_t, and of positions and noise, ALGORITHM.md (14) and (15),
    and the number of pairs, of block n."""
    one = cast_like(1, share)
    position_weights = contexts.position_weights[n]
    position_weights[:] = 0
    contexts.tile_weights[n] = 0
    pairs = 0
    for t in range(len(row_of)):
        first, last = contexts.first[n, row_of[t]], contexts.last[n, row_of[t]]
        count = last - first
        weight = share * cast_like(count, share)
        contexts.token_weights[n, row_of[t]] = count
        contexts.noise_scale[n, row_of[t]] = weight
        contexts.tile_weights[n, t // tile] += weight
        if count > 0:
            pairs += count
            for j in range(first, last + 1):
                position_weights[j] += one
            position_weights[t] -= one
    contexts.num_terms[n] = pairs


@compiled()
def differentiate(
    at: BlockIndex, report, contexts: Contexts, to: Destination, buffers: BlockBuffers
):
    """Gradients of the rows of a block, ALGORITHM.md (32) to (35); returns the loss (7)
    if it is reported.

        e_tj = -sigma(-v_t . u_j) for a pair, else 0;
        e_tk = (negative / K) n_t sigma(v_t . u_k)          (32)
        dL/dv_t = sum_j e_tj u_j + sum_k e_tk u_k           (33)
        dL/du_j = sum_t e_tj v_t                            (34)
        dL/du_k = sum_t e_tk v_t                            (35)
    """
    pairs, negatives = buffers.context_terms, buffers.noise_terms
    tokens, positions, noise = buffers.tokens, buffers.positions, buffers.noise
    gradients, row_of, shifts = buffers.gradients, buffers.row_of, buffers.shift
    n, keys, num_tiles = at.block, to.slots.keys, contexts.tile_weights.shape[1]
    first, last, scale = contexts.first[n], contexts.last[n], contexts.noise_scale[n]
    position_base = len(tokens)
    base = position_base + len(positions)
    tile, loss = len(negatives), 0.0
    load_rows(to.tables, keys[n], 0, len(tokens), tokens)
    load_rows(to.tables, keys[n], position_base, len(row_of), positions)
    for g in range(num_tiles):
        load_rows(to.tables, keys[n], base, at.num_noise, noise)
        for i in range(0, tile, 4):
            o, t = g * tile + i, g * at.tile + i
            if at.next_block < len(keys):
                prefetch(to.tables, keys[at.next_block], o, len(tokens))
            shift, (start, stop) = shifts[t], band_of_four(first, last, o)
            scores(tokens, o, positions, start, stop, pairs, o, shift)
            scores(tokens, o, noise, 0, len(noise), negatives, i, 0)
            if report:
                loss += context_loss(pairs, o, first, last, t, shift)
                loss += noise_loss(negatives, i, scale, o, at.num_noise)
            context_errors(pairs, o, first, last, t, shift)
            noise_errors(negatives, i, scale, o, at.num_noise)
            band = pairs, o, shift, positions, start, stop
            combine_rows(gradients, o, band, negatives, i, noise)
        for k in range(0, len(noise), 4):
            combine_columns(gradients, base + k, negatives, k, tokens, g * tile)
        update_slots(n, base, at.num_noise, to, gradients)
        base += len(noise)
    for j in range(0, len(row_of), 4):
        near = max(0, j - at.window), min(len(row_of), j + 4 + at.window)
        combine_band(
            gradients, position_base + j, pairs, j, near, row_of, shifts, tokens
        )
    update_slots(n, 0, position_base + len(row_of), to, gradients)
    return loss
