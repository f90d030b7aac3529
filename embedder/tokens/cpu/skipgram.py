"""Skip-gram on one block, by hand: weights, gradients and loss.

Equations are those of `embedder/ALGORITHM.md`. `embedder/tokens/skipgram.py` is the
same objective for XLA.
"""

from embedder.data.blocks import Blocks
from embedder.tokens.cpu.block import (
    BlockBuffers,
    BlockIndex,
    band_of_four,
    combine_positions,
    load_rows,
    prefetch_four,
)
from embedder.tokens.cpu.products import (
    combine_columns,
    combine_rows,
    context_errors,
    context_loss,
    noise_errors,
    noise_loss,
    scores,
)
from embedder.tokens.cpu.rows import Gathered
from embedder.tokens.cpu.simd import cast_like, compiled


@compiled()
def weigh(at: BlockIndex, share, buffers: BlockBuffers):
    """Weights of tokens, m_t n_t, and of positions and noise, ALGORITHM.md (14), (15)
    and (56); returns the number of pairs, each times m_t."""
    buffers.position_weights[:] = 0
    buffers.tile_weights[:] = 0
    pairs = 0.0
    for t in range(len(buffers.row_of)):
        row = buffers.row_of[t]
        first, last = buffers.first[row], buffers.last[row]
        each = buffers.multiplicity[row]
        count = each * cast_like(last - first, share)
        weight = share * count
        buffers.token_weights[row] = count
        buffers.noise_scale[row] = weight
        buffers.tile_weights[t // at.tile] += weight
        if count > 0:
            pairs += count
            for j in range(first, last + 1):
                buffers.position_weights[j] += each
            buffers.position_weights[t] -= each
    return pairs


@compiled()
def differentiate(
    at: BlockIndex,
    report,
    tables,
    blocks: Blocks,
    gathered: Gathered,
    buffers: BlockBuffers,
):
    """Gradients of the rows of a block, ALGORITHM.md (32) to (35); returns the loss (7)
    if it is reported.

        e_tj = -m_t sigma(-v_t . u_j) for a pair, else 0;
        e_tk = m_t (negative / K) n_t sigma(v_t . u_k)      (32), (56)
        dL/dv_t = sum_j e_tj u_j + sum_k e_tk u_k           (33)
        dL/du_j = sum_t e_tj v_t                            (34)
        dL/du_k = sum_t e_tk v_t                            (35)
    """
    contexts, negatives = buffers.context_terms, buffers.noise_terms
    tokens, positions, noise = buffers.tokens, buffers.positions, buffers.noise
    first, last, scale = buffers.first, buffers.last, buffers.noise_scale
    weight = buffers.multiplicity
    gradients, (num_tiles, num_noise) = gathered.gradients, blocks.noise.shape[2:]
    base = at.block * len(buffers.listed)
    noise_base = base + len(tokens) + len(positions)
    tile, loss = len(negatives), 0.0
    for g in range(num_tiles):
        load_rows(tables, gathered.keys, noise_base, num_noise, noise)
        for i in range(0, tile, 4):
            o, t = g * tile + i, g * at.tile + i
            prefetch_four(at, o, noise_base, tables, blocks, gradients, buffers)
            shift, (start, stop) = buffers.shift[t], band_of_four(buffers, o)
            scores(tokens, o, positions, start, stop, contexts, o, shift)
            scores(tokens, o, noise, 0, len(noise), negatives, i, 0)
            if report:
                loss += context_loss(contexts, weight, o, first, last, t, shift)
                loss += noise_loss(negatives, i, scale, o, num_noise)
            context_errors(contexts, weight, o, first, last, t, shift)
            noise_errors(negatives, i, scale, o, num_noise)
            band = contexts, o, shift, positions, start, stop
            combine_rows(gradients, base + o, band, negatives, i, noise)
        for k in range(0, len(noise), 4):
            combine_columns(gradients, noise_base + k, negatives, k, tokens, g * tile)
        noise_base += len(noise)
    combine_positions(at, gradients, buffers, tokens)
    return loss
