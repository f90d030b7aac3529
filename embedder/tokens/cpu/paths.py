"""Hierarchical softmax on one block, by hand: weights, gradients and loss.

Equations are those of `embedder/ALGORITHM.md`. `embedder/tokens/hierarchical.py` is the
same objective for XLA. A block has a slot for each inner node that is on a path of one
of its tokens, however often; the rows of one path are copied side by side for products.
"""

from typing import NamedTuple

import numpy as np

from embedder.tokens.cpu import cbow, skipgram
from embedder.tokens.cpu.block import (
    BlockBuffers,
    BlockIndex,
    Sizes,
    add_row,
    aligned_zeros,
    combine_positions,
    load_row,
    round_up,
)
from embedder.tokens.cpu.products import (
    combine_columns,
    combine_rows,
    scores,
    sigmoid,
    softplus,
)
from embedder.tokens.cpu.simd import (
    cast_like,
    compiled,
    fetch_add,
    prefetch_row,
)


class PathBuffers(NamedTuple):
    """The memory in which a thread computes the paths of a block.

    L' is the longest path, padded. `table` is a hash table of H entries, a power of
    two.
    """

    table: np.ndarray  # i32[H], number of the node, -1: empty
    nodes: np.ndarray  # i32[T L], inner node of each number
    weights: np.ndarray  # [T L], of each number
    num: np.ndarray  # i64[1], how many numbers there are
    numbers: np.ndarray  # i64[L], nodes on the path of a token, by number
    signs: np.ndarray  # [L], s_l of that path
    rows: np.ndarray  # [L', D], rows of that path
    gradients: np.ndarray  # [L', D]
    terms: np.ndarray  # [L', columns], scores with contexts, then errors
    inputs: np.ndarray  # [T', D], skip-gram: input rows by position
    errors: np.ndarray  # [T', D], skip-gram: dL/dv of hierarchical softmax, by position
    four: np.ndarray  # [4, D]


def new_buffers(size: Sizes, width: int, dtype: np.dtype) -> PathBuffers | None:
    """Empty buffers; `width` is D, padded. None: there are no paths."""
    if not size.depth:
        return None
    depth = round_up(size.depth, 4)
    columns = round_up(size.columns, 4)
    return PathBuffers(
        table=np.full(1 << (2 * size.num_nodes - 1).bit_length(), -1, np.int32),
        nodes=np.zeros(size.num_nodes, np.int32),
        weights=np.zeros(size.num_nodes, dtype),
        num=np.zeros(1, np.int64),
        numbers=np.zeros(size.depth, np.int64),
        signs=np.zeros(size.depth, dtype),
        rows=aligned_zeros((depth, width), dtype),
        gradients=aligned_zeros((depth, width), dtype),
        terms=aligned_zeros((depth, columns), dtype),
        inputs=aligned_zeros((size.positions, width), dtype),
        errors=aligned_zeros((size.positions, width), dtype),
        four=aligned_zeros((4, width), dtype),
    )


@compiled()
def of_skipgram(arguments, share, above, paths: PathBuffers):
    """Weights and gradients of a block of skip-gram, ALGORITHM.md (91), with those of
    negative sampling if `share` is above 0.

    Args:
      arguments: those of `skipgram.differentiate`.

    Returns:
      The number of pairs, each times m_t, and the loss (90) if it is reported.
    """
    at, report, tables, blocks, gathered, buffers = arguments
    gradients, num_tokens = gathered.gradients, len(buffers.row_of)
    pairs, loss = skipgram.weigh(at, share, buffers), 0.0
    is_sampled = share > 0
    if is_sampled:
        loss += skipgram.differentiate(at, report, tables, blocks, gathered, buffers)
    else:
        buffers.token_weights[:] = 0
        buffers.position_weights[:] = 0
        buffers.tile_weights[:] = 0
    for t in range(num_tokens):
        load_row(paths.inputs, t, buffers.tokens, buffers.row_of[t])
    paths.errors[:] = 0
    paths.table[:], paths.num[0] = -1, 0
    for t in range(num_tokens):
        row = buffers.row_of[t]
        first, last = buffers.first[row], buffers.last[row]
        each = buffers.multiplicity[row]
        if last <= first or each == 0:
            continue
        length = _find_path(at, t, tables, blocks, above, gathered, buffers, paths)
        count = each * cast_like(last - first, each)
        for i in range(length):
            paths.weights[paths.numbers[i]] += count
        for j in range(first, last + 1):
            if j != t:
                buffers.token_weights[buffers.row_of[j]] += each
        loss += _differentiate(at, t, length, each, report, gathered, buffers, paths)
    base = at.block * len(buffers.listed)
    for t in range(num_tokens):
        slot = base + buffers.row_of[t]
        if is_sampled:
            add_row(gradients, slot, paths.errors, t)
        else:
            load_row(gradients, slot, paths.errors, t)
    if not is_sampled:
        buffers.next_block[0] = fetch_add(at.taken, at.update)
    return pairs, loss


@compiled()
def of_cbow(arguments, is_mean, share, above, paths: PathBuffers):
    """The same for CBOW; returns the number of active tokens, each times m_t, and the
    loss (90) if it is reported.

        e_l = m_t s_l sigma(s_l h_t . a_l);  dL/dh_t += sum_l e_l a_l;
        dL/da_l += e_l h_t                                 (91)
    """
    at, report, tables, blocks, gathered, buffers = arguments
    gradients, means, errors = gathered.gradients, buffers.means, buffers.errors
    num_active, loss = cbow.weigh(at, is_mean, share, buffers), 0.0
    is_sampled = share > 0
    if is_sampled:
        loss += cbow.differentiate(at, report, tables, blocks, gathered, buffers)
        for j in range(len(buffers.position_weights)):
            buffers.position_weights[j] *= 2
    else:
        cbow.make_means(at, buffers)
        buffers.token_weights[:] = 0
    paths.table[:], paths.num[0] = -1, 0
    nodes = _first_slot(at, buffers, paths)
    for t in range(len(buffers.row_of)):
        row = buffers.row_of[t]
        each = buffers.multiplicity[row]
        if buffers.last[row] <= buffers.first[row] or each == 0:
            continue
        length = _find_path(at, t, tables, blocks, above, gathered, buffers, paths)
        for i in range(length):
            slot, sign = nodes + paths.numbers[i], paths.signs[i]
            paths.weights[paths.numbers[i]] += each
            score = cast_like(0, each)
            for d in range(means.shape[1]):
                score += means[row, d] * paths.rows[i, d]
            if report:
                loss += each * softplus(sign * score)
            error = each * sign * sigmoid(sign * score)
            for d in range(means.shape[1]):
                errors[row, d] += error * paths.rows[i, d]
                gradients[slot, d] += error * means[row, d]
    combine_positions(at, gradients, buffers, errors)
    if not is_sampled:
        buffers.next_block[0] = fetch_add(at.taken, at.update)
    return num_active, loss


@compiled()
def _first_slot(at: BlockIndex, buffers: BlockBuffers, paths: PathBuffers):
    """The slot of the first inner node of a block."""
    return (at.block + 1) * len(buffers.listed) - len(paths.nodes)


@compiled()
def _find_path(
    at: BlockIndex, t, tables, blocks, above, gathered, buffers, paths: PathBuffers
):
    """Copies the rows on the path of token t, and finds their numbers and signs;
    returns the length of the path. The gradient of a new node of the block is 0."""
    num_keys, first_slot = at.num_keys, _first_slot(at, buffers, paths)
    first_key = len(tables) - num_keys  # the last V rows
    mask, length = len(paths.table) - 1, 0
    if t + 1 < len(buffers.row_of):
        _prefetch_path(at, t + 1, tables, blocks, above)
    entry = above[int(blocks.ids[at.update, at.block, t])]
    while entry >= 0:
        node = entry >> 1
        position = (node * 0x9E3779B1 >> 12) & mask
        number = paths.table[position]
        while number >= 0 and paths.nodes[number] != node:
            position = (position + 1) & mask
            number = paths.table[position]
        if number < 0:
            number = np.int32(paths.num[0])
            paths.num[0] += 1
            paths.table[position] = number
            paths.nodes[number] = node
            paths.weights[number] = 0
            gathered.keys[first_slot + number] = first_key + node
            gathered.gradients[first_slot + number] = 0
        paths.numbers[length] = number
        paths.signs[length] = 2 * (entry & 1) - 1
        load_row(paths.rows, length, tables, first_key + node)
        length += 1
        entry = above[num_keys + node]
    return length


@compiled()
def _prefetch_path(at: BlockIndex, t, tables, blocks, above):
    """Prefetches the rows on the path of token t."""
    first_key = len(tables) - at.num_keys
    entry = above[int(blocks.ids[at.update, at.block, t])]
    while entry >= 0:
        prefetch_row(tables, first_key + (entry >> 1))
        entry = above[at.num_keys + (entry >> 1)]


@compiled()
def _differentiate(
    at: BlockIndex, t, length, weight, report, gathered, buffers, paths: PathBuffers
):
    """Adds the gradients of the path of token t, and those of its contexts.

    e_lj = m_t s_l sigma(s_l v_j . a_l);  dL/da_l += sum_j e_lj v_j;
    dL/dv_j += sum_l e_lj a_l                          (91)
    """
    row, terms, signs = buffers.row_of[t], paths.terms, paths.signs
    start, stop = buffers.first[row], buffers.last[row] + 1
    padded, loss = (length + 3) // 4 * 4, 0.0
    for i in range(length, padded):
        paths.rows[i] = 0
    for i in range(0, padded, 4):
        scores(paths.rows, i, paths.inputs, start, stop, terms, i, start)
    for i in range(length):
        sign = signs[i]
        if report:
            for j in range(start, stop):
                if j != t:
                    loss += weight * softplus(sign * terms[i, j - start])
        scale = weight * sign
        for c in range(stop - start):
            terms[i, c] = scale * sigmoid(sign * terms[i, c])
        terms[i, t - start] = 0
    for i in range(length, padded):
        terms[i] = 0
    first_slot, gradients = _first_slot(at, buffers, paths), gathered.gradients
    for i in range(0, padded, 4):
        band = terms, i, start, paths.inputs, start, stop
        combine_rows(paths.gradients, i, band, terms, i, paths.rows[:0])
    for i in range(length):
        add_row(gradients, first_slot + paths.numbers[i], paths.gradients, i)
    for j in range(start, stop, 4):
        combine_columns(paths.four, 0, terms[:padded], j - start, paths.rows, 0)
        for q in range(min(4, stop - j)):
            add_row(paths.errors, j + q, paths.four, q)
    return loss
