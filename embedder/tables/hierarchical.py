"""Hierarchical softmax: the way to a token in a Huffman tree, beside or instead of
negative sampling.

    skip-gram:  L = sum_t sum_{j in ctx(t)} sum_l softplus(s_tl v_j.a_tl)     (90)
    CBOW:       L = sum_t sum_l softplus(s_tl h_t.a_tl), over active tokens

with a_tl the output rows of the inner nodes above token t, and s_tl = 1 where the path
goes to a second child, else -1. As in gensim a context predicts the path of the token:
so a tile gathers the paths of its B tokens, not those of its C positions. The gradients
are derived by JAX, and by hand in the oracle and in `cpu/paths.py`:

    e_tl = s_tl sigmoid(s_tl x.a_tl)  for x = v_j, j in ctx(t), or x = h_t    (91)
    dL/dx = sum_l e_tl a_tl;  dL/da = sum of e_tl x

Axis letters are those of `objective.py`, numbers those of `embedder/ALGORITHM.md`, and

    L  inner nodes on the longest path; shorter ones are padded

References: Morin and Bengio 2005, AISTATS; Mikolov et al. 2013, arXiv:1310.4546,
section 2.1.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from embedder.tables import cbow
from embedder.tables.objective import (
    Objective,
    Pairs,
    Rows,
    SumColumns,
    all_columns,
    einsum,
    halo,
    softplus,
    weighted,
)

NO_ROW = 2**30
"""Id of a row that pads a path: above those of all rows, so that scatters drop it; a
gather takes some row, whose score has the sign 0."""


class Paths(NamedTuple):
    """The inner nodes above the tokens of an update, from the lowest to the root."""

    nodes: jax.Array  # i32[N, T, L], rows of the output table; NO_ROW: padding
    signs: jax.Array  # [N, T, L], s_tl; 0: padding


@dataclass(frozen=True)
class HierarchicalSoftmax:
    """The objective of hierarchical softmax; it is an `Objective`.

    The rows that a tile gathers are those of `sampled`, and after them the input rows
    of its C positions and the output rows of the paths of its B tokens, B L.
    """

    is_cbow: bool
    sampled: Objective | None
    """Negative sampling, whose loss is added; None: there is none."""
    depth: int
    """L."""
    is_mean: bool = True
    """Of CBOW: h_t is the mean of the contexts, (8); else their sum, (97)."""

    def paths(self, above, ids_NT, dtype) -> Paths:
        """The paths of tokens.

        Args:
          above: i32[2 V - 1], see `huffman.Tree`.
          dtype: of the signs.
        """
        num_tokens = (above.shape[0] + 1) // 2
        first_node = 0 if self.sampled is None else num_tokens

        def up(entry_NT, _):
            higher = above[num_tokens + (entry_NT >> 1)]
            return jnp.where(entry_NT >= 0, higher, -1), entry_NT

        _, entry_LNT = jax.lax.scan(up, above[ids_NT], length=self.depth)
        entry_NTL = jnp.moveaxis(entry_LNT, 0, -1)
        is_node = entry_NTL >= 0
        return Paths(
            jnp.where(is_node, first_node + (entry_NTL >> 1), NO_ROW),
            jnp.where(is_node, 2 * (entry_NTL & 1) - 1, 0).astype(dtype),
        )

    def row_ids(self, ids_NT, noise_NGK, nodes_NTL=None, *, window: int) -> Rows:
        """Ids of the gathered rows, i32[N, G, R], with the nodes of `paths`."""
        assert nodes_NTL is not None, "prepared with the tree"
        tile = ids_NT.shape[1] // noise_NGK.shape[1]
        own = Rows(
            halo(ids_NT, tile, window, fill=0),
            nodes_NTL.reshape(*noise_NGK.shape[:2], -1),
        )
        if self.sampled is None:
            return own
        return _joined(self.sampled.row_ids(ids_NT, noise_NGK, window=window), own)

    def row_weights(self, pairs: Pairs, *, negative: int, num_noise: int) -> Rows:
        """Weight of the terms that each gathered row is in.

        Input row: the tokens of the tile that have it as context; CBOW: the sum of
        1/n_t over them, and of sums their number. Inner node: n_t; CBOW: 1 if the
        token is active. Each times m_t.
        """
        assert pairs.signs is not None, "prepared with the tree"
        shape = *pairs.mask.shape[:2], -1
        if self.is_cbow:
            of_contexts = cbow.context_weights(pairs, self.is_mean)
            of_token = cbow.active(pairs)
        else:
            of_contexts = pairs.mask.astype(pairs.num_contexts.dtype)
            of_token = weighted(pairs.num_contexts, pairs)
        own = Rows(
            weighted(of_contexts, pairs).sum(axis=2),
            (of_token[..., jnp.newaxis] * jnp.abs(pairs.signs)).reshape(shape),
        )
        if self.sampled is None:
            return own
        of_sampled = self.sampled.row_weights(
            pairs, negative=negative, num_noise=num_noise
        )
        return _joined(of_sampled, own)

    def loss(
        self,
        rows: Rows,
        pairs: Pairs,
        *,
        negative: int,
        sum_columns: SumColumns = all_columns,
    ) -> jax.Array:
        """L of an update, a scalar, from the gathered rows."""
        assert pairs.signs is not None, "prepared with the tree"
        num_positions = pairs.mask.shape[3]
        num_nodes = pairs.signs.shape[2] * pairs.signs.shape[3]
        parts = [
            (x[:, :, :-num], x[:, :, -num:])
            for x, num in zip(rows, (num_positions, num_nodes), strict=True)
        ]
        sampled, own = (Rows(*part) for part in zip(*parts, strict=True))
        given = own, pairs, pairs.signs, sum_columns
        if self.is_cbow:
            total = _cbow_loss(*given, self.is_mean)
        else:
            total = _skipgram_loss(*given)
        if self.sampled is None:
            return total
        return total + self.sampled.loss(
            sampled, pairs, negative=negative, sum_columns=sum_columns
        )

    def num_terms(self, pairs: Pairs) -> jax.Array:
        """Number of pairs or of active tokens, each times m_t, a scalar."""
        if self.is_cbow:
            return cbow.num_terms(pairs)
        return weighted(pairs.num_contexts, pairs).sum()


def _joined(first: Rows, second: Rows) -> Rows:
    """The rows of `first`, and after them those of `second`, [N, G, R]."""
    both = zip(first, second, strict=True)
    return Rows(*(jnp.concatenate(parts, axis=2) for parts in both))


def _skipgram_loss(
    rows: Rows, pairs: Pairs, sign_NGBL, sum_columns: SumColumns
) -> jax.Array:
    score_NGCR = sum_columns(einsum("ngcd,ngrd->ngcr", rows.input, rows.output))
    sign_NG1R = sign_NGBL.reshape(*score_NGCR.shape[:2], 1, -1)
    mask_NGBC = weighted(pairs.mask.astype(score_NGCR.dtype), pairs)
    term_NGCR = jnp.repeat(mask_NGBC.swapaxes(2, 3), sign_NGBL.shape[3], axis=3)
    return (term_NGCR * jnp.abs(sign_NG1R) * softplus(sign_NG1R * score_NGCR)).sum()


def _cbow_loss(
    rows: Rows, pairs: Pairs, sign_NGBL, sum_columns: SumColumns, is_mean: bool
) -> jax.Array:
    of_contexts_NGBC = cbow.context_weights(pairs, is_mean)
    hidden_NGBD = einsum("ngbc,ngcd->ngbd", of_contexts_NGBC, rows.input)
    node_NGBLD = rows.output.reshape(*sign_NGBL.shape, -1)
    score_NGBL = sum_columns(einsum("ngbd,ngbld->ngbl", hidden_NGBD, node_NGBLD))
    term_NGBL = cbow.active(pairs)[..., jnp.newaxis] * jnp.abs(sign_NGBL)
    return (term_NGBL * softplus(sign_NGBL * score_NGBL)).sum()
