"""CBOW on one block, by hand: weights, gradients and loss.

Equations are those of `embedder/ALGORITHM.md`. `embedder/tokens/cbow.py` is the
same objective for XLA.
"""

from embedder.data.blocks import Blocks
from embedder.tokens.cpu.block import (
    BlockBuffers,
    BlockIndex,
    band_of_four,
    load_rows,
    prefetch_four,
)
from embedder.tokens.cpu.products import (
    combine_columns,
    combine_rows,
    noise_errors,
    noise_loss,
    scores,
    sigmoid,
    softplus,
)
from embedder.tokens.cpu.rows import Gathered
from embedder.tokens.cpu.simd import cast_like, compiled


@compiled()
def weigh(at: BlockIndex, is_mean, share, buffers: BlockBuffers):
    """Weights of tokens, positions and noise, ALGORITHM.md (16), (17) and (56), and
    1/n_t in `buffers.context_terms`; of sums 1, (97). Returns the number of active
    tokens, each times m_t."""
    buffers.position_weights[:] = 0
    buffers.tile_weights[:] = 0
    buffers.context_terms[:] = 0
    num_active = 0.0
    for t in range(len(buffers.row_of)):
        row = buffers.row_of[t]
        first, last = buffers.first[row], buffers.last[row]
        is_active = last > first
        multiplicity = buffers.multiplicity[row] if is_active else cast_like(0, share)
        weight = share * multiplicity
        buffers.token_weights[row] = multiplicity
        buffers.noise_scale[row] = weight
        buffers.tile_weights[t // at.tile] += weight
        if is_active:
            num_active += multiplicity
            each = cast_like(1, share)
            if is_mean:
                each /= cast_like(last - first, share)
            for j in range(first, last + 1):
                if j != t:
                    buffers.context_terms[row, j - buffers.shift[t]] = each
                    buffers.position_weights[j] += multiplicity * each
    return num_active


@compiled()
def differentiate(
    at: BlockIndex,
    report,
    tables,
    blocks: Blocks,
    gathered: Gathered,
    buffers: BlockBuffers,
):
    """dL/dh_t, and gradients of the output rows of a block, ALGORITHM.md (36) to (40);
    returns the loss (8) if it is reported.

        h_t = (1 / n_t) sum_j v_j; of sums without 1 / n_t  (8), (97)
        e_t = -m_t sigma(-h_t . u_t);
        e_tk = m_t (negative / K) sigma(h_t . u_k)          (36), (56)
        dL/dh_t = e_t u_t + sum_k e_tk u_k                  (37)
        dL/du_t = e_t h_t                                   (39)
        dL/du_k = sum_t e_tk h_t                            (40)

    Those of input rows follow by `combine_positions` of dL/dh_t, (38):

        dL/dv_j = sum_t (1 / n_t) dL/dh_t; of sums without 1 / n_t, (97)
    """
    shares, negatives = buffers.context_terms, buffers.noise_terms
    positions, noise, scale = buffers.positions, buffers.noise, buffers.noise_scale
    means, errors = buffers.means, buffers.errors
    gradients, (num_tiles, num_noise) = gathered.gradients, blocks.noise.shape[2:]
    base = at.block * len(buffers.listed)
    noise_base = base + len(means) + len(positions)
    tile, loss = len(negatives), 0.0
    for g in range(num_tiles):
        load_rows(tables, gathered.keys, noise_base, num_noise, noise)
        for i in range(0, tile, 4):
            o, shift = g * tile + i, buffers.shift[g * at.tile + i]
            prefetch_four(at, o, noise_base, tables, blocks, gradients, buffers)
            start, stop = band_of_four(buffers, o)
            band = shares, o, shift, positions, start, stop
            combine_rows(means, o, band, negatives, i, noise[:0])
            scores(means, o, noise, 0, len(noise), negatives, i, 0)
            if report:
                loss += noise_loss(negatives, i, scale, o, num_noise)
            noise_errors(negatives, i, scale, o, num_noise)
            band = shares, o, shift, positions, 0, 0
            combine_rows(errors, o, band, negatives, i, noise)
            loss += _add_tokens(o, base + o, report, gradients, buffers)
        for k in range(0, len(noise), 4):
            combine_columns(gradients, noise_base + k, negatives, k, means, g * tile)
        noise_base += len(noise)
    return loss


@compiled()
def make_means(at: BlockIndex, buffers: BlockBuffers):
    """h_t of all tokens, (8) or (97), where there is no negative sampling, and dL/dh_t
    is 0."""
    tile, none = len(buffers.noise_terms), buffers.noise[:0]
    buffers.errors[:] = 0
    for o in range(0, len(buffers.means), 4):
        shift = buffers.shift[o // tile * at.tile + o % tile]
        start, stop = band_of_four(buffers, o)
        band = buffers.context_terms, o, shift, buffers.positions, start, stop
        combine_rows(buffers.means, o, band, buffers.noise_terms, 0, none)


@compiled()
def _add_tokens(row, slot, report, gradients, buffers: BlockBuffers):
    """The terms of the tokens themselves, of four rows: adds e_t u_t to dL/dh_t, (37),
    and writes dL/du_t, (39), from `slot` on; returns the loss if it is reported."""
    means, errors, tokens = buffers.means, buffers.errors, buffers.tokens
    loss = 0.0
    for q in range(4):
        t = row + q
        if buffers.last[t] > buffers.first[t]:
            score = cast_like(0, buffers.noise_scale[t])
            for d in range(means.shape[1]):
                score += means[t, d] * tokens[t, d]
            if report:
                loss += buffers.multiplicity[t] * softplus(-score)
            error = -buffers.multiplicity[t] * sigmoid(-score)
            for d in range(means.shape[1]):
                errors[t, d] += error * tokens[t, d]
                gradients[slot + q, d] = error * means[t, d]
    return loss
