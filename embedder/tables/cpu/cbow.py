"""CBOW on one block, by hand: weights, gradients and loss.

Equations are those of `embedder/ALGORITHM.md`. `embedder/tables/cbow.py` is the
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
    noise_errors,
    noise_loss,
    scores,
    sigmoid,
    softplus,
)
from embedder.tables.cpu.rows import Destination, update_slots
from embedder.tables.cpu.simd import cast_like, compiled


@compiled()
def weigh(n, tile, share, contexts: Contexts, row_of):
    """Weights of tokens, positions and noise, ALGORITHM.md (16) and (17), and the
    number of active tokens, of block n."""
    position_weights = contexts.position_weights[n]
    position_weights[:] = 0
    contexts.tile_weights[n] = 0
    num_active = 0
    for t in range(len(row_of)):
        first, last = contexts.first[n, row_of[t]], contexts.last[n, row_of[t]]
        is_active = last > first
        weight = share if is_active else cast_like(0, share)
        contexts.token_weights[n, row_of[t]] = is_active
        contexts.noise_scale[n, row_of[t]] = weight
        contexts.tile_weights[n, t // tile] += weight
        if is_active:
            num_active += 1
            each = cast_like(1, share) / cast_like(last - first, share)
            for j in range(first, last + 1):
                if j != t:
                    position_weights[j] += each
    contexts.num_terms[n] = num_active


@compiled()
def differentiate(
    at: BlockIndex, report, contexts: Contexts, to: Destination, buffers: BlockBuffers
):
    """Gradients of the rows of a block, ALGORITHM.md (36) to (40); returns the loss (8)
    if it is reported.

        h_t = (1 / n_t) sum_j v_j                           (8)
        e_t = -sigma(-h_t . u_t);
        e_tk = (negative / K) sigma(h_t . u_k)              (36)
        dL/dh_t = e_t u_t + sum_k e_tk u_k                  (37)
        dL/dv_j = sum_t (1 / n_t) dL/dh_t                   (38)
        dL/du_t = e_t h_t                                   (39)
        dL/du_k = sum_t e_tk h_t                            (40)
    """
    shares, negatives = buffers.context_terms, buffers.noise_terms
    tokens, positions, noise = buffers.tokens, buffers.positions, buffers.noise
    means, errors, gradients = buffers.means, buffers.errors, buffers.gradients
    row_of, shifts, keys = buffers.row_of, buffers.shift, to.slots.keys
    n, num_tiles = at.block, contexts.tile_weights.shape[1]
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
            _share(shares, o, first, last, t, shift)
            band = shares, o, shift, positions, start, stop
            combine_rows(means, o, band, negatives, i, noise[:0])
            scores(means, o, noise, 0, len(noise), negatives, i, 0)
            if report:
                loss += noise_loss(negatives, i, scale, o, at.num_noise)
            noise_errors(negatives, i, scale, o, at.num_noise)
            band = shares, o, shift, positions, 0, 0
            combine_rows(errors, o, band, negatives, i, noise)
            loss += _add_tokens(o, first, last, report, buffers)
        for k in range(0, len(noise), 4):
            combine_columns(gradients, base + k, negatives, k, means, g * tile)
        update_slots(n, base, at.num_noise, to, gradients)
        base += len(noise)
    for j in range(0, len(row_of), 4):
        near = max(0, j - at.window), min(len(row_of), j + 4 + at.window)
        combine_band(
            gradients, position_base + j, shares, j, near, row_of, shifts, errors
        )
    update_slots(n, 0, position_base + len(row_of), to, gradients)
    return loss


@compiled()
def _share(shares, row, first, last, t, shift):
    """1/n_t for the contexts of four tokens, from token t on, else 0."""
    one = cast_like(1, shares[row, 0])
    for q in range(row, row + 4):
        shares[q] = 0
        if last[q] > first[q]:
            for j in range(first[q], last[q] + 1):
                if j != t + q - row:
                    shares[q, j - shift] = one / cast_like(last[q] - first[q], one)


@compiled()
def _add_tokens(row, first, last, report, buffers: BlockBuffers):
    """The terms of the tokens themselves, of four rows: adds e_t u_t to dL/dh_t, (37),
    and writes dL/du_t, (39); returns the loss if it is reported."""
    means, errors, tokens = buffers.means, buffers.errors, buffers.tokens
    loss = 0.0
    for t in range(row, row + 4):
        if last[t] > first[t]:
            score = cast_like(0, means[0, 0])
            for d in range(means.shape[1]):
                score += means[t, d] * tokens[t, d]
            if report:
                loss += softplus(-score)
            error = -sigmoid(-score)
            for d in range(means.shape[1]):
                errors[t, d] += error * tokens[t, d]
                buffers.gradients[t, d] = error * means[t, d]
    return loss
