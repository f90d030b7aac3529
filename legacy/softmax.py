"""Hierarchical softmax: loss, hand-derived gradients, weights.

Axis letters are those of `legacy/objective.py`, and

    L  inner nodes on the longest path of the Huffman tree

The input table gives `input_NTD`, one row a token, and the inner nodes `nodes_NTLD`,
those on the path of each token. Their signs s are 1 for a second child and -1 for a
first one, and 0 where a path has no more nodes. As in word2vec.c and gensim, a context
j of token t predicts the path of t.

Reference: Morin and Bengio 2005, AISTATS; Mikolov et al. 2013, arXiv:1310.4546,
section 2.1.
"""

from typing import NamedTuple

import numpy as np

from legacy.objective import (
    Pairs,
    active,
    context_shares,
    fold,
    folded,
    halo,
    softplus,
    tiles,
    transposed,
    untile,
)


class PathRows(NamedTuple):
    """One value for each gathered row: the row itself, its gradient, or its weight."""

    input: np.ndarray  # [N, T, ...]
    nodes: np.ndarray  # [N, T, L, ...]


class PathTerms(NamedTuple):
    """What hierarchical softmax says of an update."""

    scores: np.ndarray  # skip-gram v_j.a [N, G, C, B, L]; CBOW h_t.a [N, G, B, L]
    signs: np.ndarray  # of the scores, [N, G, B, L]
    gradients: PathRows  # of the loss, [..., D]
    weights: PathRows  # pair terms that touch each row


def skipgram(
    rows: PathRows, signs_NTL: np.ndarray, pairs: Pairs, *, window: int
) -> PathTerms:
    """Scores, row gradients and row weights of a skip-gram update.

        L = sum_t sum_{j in ctx(t)} sum_l softplus(s_tl v_j.a_tl)

    Weights. Input row: the centres that have it as context. Inner node: n_t, summed
    over the centres that have it on their path.
    """
    tile = pairs.mask.shape[2]
    num_blocks, num_tiles = pairs.mask.shape[:2]
    sign_NGBL = tiles(signs_NTL, tile).astype(rows.input.dtype)
    context_NGCD = halo(rows.input, tile, window, fill=0)
    size = context_NGCD.shape[3]
    nodes_NGRD = tiles(rows.nodes, tile).reshape(num_blocks, num_tiles, -1, size)
    flat_NGCR = context_NGCD @ transposed(nodes_NGRD)
    score_NGCBL = flat_NGCR.reshape(*flat_NGCR.shape[:3], *sign_NGBL.shape[2:])
    sign_NG1BL = sign_NGBL[:, :, np.newaxis]
    mask_NGCB1 = transposed(pairs.mask)[..., np.newaxis]
    error_NGCBL = mask_NGCB1 * sign_NG1BL * _sigmoid(sign_NG1BL * score_NGCBL)
    error_NGCR = error_NGCBL.reshape(flat_NGCR.shape)
    out_input = np.empty_like(rows.input)
    fold(error_NGCR @ nodes_NGRD, window, out=out_input)
    out_nodes = (transposed(error_NGCR) @ context_NGCD).reshape(rows.nodes.shape)
    contexts_NGC = np.ones(tile, pairs.mask.dtype) @ pairs.mask
    weights = PathRows(
        input=folded(contexts_NGC, rows.input.shape[:2], window),
        nodes=untile(pairs.count[..., np.newaxis] * np.abs(sign_NGBL)),
    )
    gradients = PathRows(out_input, out_nodes)
    return PathTerms(score_NGCBL, sign_NGBL, gradients, weights)


def cbow(
    rows: PathRows,
    signs_NTL: np.ndarray,
    pairs: Pairs,
    *,
    window: int,
    mean: bool = True,
) -> PathTerms:
    """Scores, row gradients and row weights of a CBOW update.

        L = sum over t with n_t > 0 of sum_l softplus(s_tl h_t.a_tl)

    with h_t the mean of v_j over ctx(t); their sum if `mean` is False.

    Weights. Input row: the sum of 1/n_t over the centres that it is a context of; their
    number for a sum. Inner node: the active centres that have it on their path.
    """
    tile = pairs.mask.shape[2]
    sign_NGBL = tiles(signs_NTL, tile).astype(rows.input.dtype)
    context_NGCD = halo(rows.input, tile, window, fill=0)
    nodes_NGBLD = tiles(rows.nodes, tile)
    share_NGBC = context_shares(pairs, mean)
    hidden_NGBD = share_NGBC @ context_NGCD
    score_NGBL = (nodes_NGBLD @ hidden_NGBD[..., np.newaxis])[..., 0]
    term_NGBL = active(pairs)[..., np.newaxis] * np.abs(sign_NGBL)
    error_NGBL = term_NGBL * sign_NGBL * _sigmoid(sign_NGBL * score_NGBL)
    of_hidden_NGBD = (error_NGBL[..., np.newaxis, :] @ nodes_NGBLD)[..., 0, :]
    out_input = np.empty_like(rows.input)
    fold(transposed(share_NGBC) @ of_hidden_NGBD, window, out=out_input)
    out_NGBLD = error_NGBL[..., np.newaxis] * hidden_NGBD[..., np.newaxis, :]
    shares_NGC = np.ones(tile, pairs.mask.dtype) @ share_NGBC
    weights = PathRows(
        input=folded(shares_NGC, rows.input.shape[:2], window), nodes=untile(term_NGBL)
    )
    gradients = PathRows(out_input, out_NGBLD.reshape(rows.nodes.shape))
    return PathTerms(score_NGBL, sign_NGBL, gradients, weights)


def skipgram_loss(terms: PathTerms, pairs: Pairs) -> float:
    """The loss of `skipgram`, summed in float64."""
    sign_NG1BL = terms.signs[:, :, np.newaxis]
    each_NGCBL = np.abs(sign_NG1BL) * softplus(sign_NG1BL * terms.scores)
    each_NGCB = each_NGCBL.sum(axis=-1, dtype=np.float64)
    return float((transposed(pairs.mask) * each_NGCB).sum())


def cbow_loss(terms: PathTerms, pairs: Pairs) -> float:
    """The loss of `cbow`, summed in float64."""
    each_NGBL = np.abs(terms.signs) * softplus(terms.signs * terms.scores)
    return float((active(pairs) * each_NGBL.sum(axis=-1, dtype=np.float64)).sum())


def _sigmoid(x):
    """1 / (1 + exp(-x)); where exp overflows 0, the right limit."""
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))
