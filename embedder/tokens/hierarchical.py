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

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from embedder.tokens.objective import (
    Architecture,
    Pairs,
    Rows,
    SumColumns,
    all_columns,
    halo,
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
class Objective:
    """What is minimised: the loss of an architecture by negative sampling, hierarchical
    softmax or both.

    The rows that a tile gathers are those of negative sampling, and after them those of
    hierarchical softmax: the input rows of its C positions and the output rows of the
    paths of its B tokens, B L.
    """

    architecture: Architecture
    is_sampled: bool = True
    """With negative sampling."""
    depth: int = 0
    """L; 0: without hierarchical softmax."""

    def paths(self, above, ids_NT, dtype) -> Paths:
        """The paths of tokens.

        Args:
          above: i32[2 V - 1], see `huffman.Tree`.
          dtype: of the signs.
        """
        num_tokens = (above.shape[0] + 1) // 2
        first_node = num_tokens if self.is_sampled else 0

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
        """Ids of the rows that each tile gathers, i32[N, G, R].

        Args:
          nodes_NTL: of `paths`; None: without hierarchical softmax.
        """
        if nodes_NTL is None:
            return self.architecture.row_ids(ids_NT, noise_NGK, window=window)
        tile = ids_NT.shape[1] // noise_NGK.shape[1]
        path_rows = Rows(
            halo(ids_NT, tile, window, fill=0),
            nodes_NTL.reshape(*noise_NGK.shape[:2], -1),
        )
        if not self.is_sampled:
            return path_rows
        sampled = self.architecture.row_ids(ids_NT, noise_NGK, window=window)
        return _joined(sampled, path_rows)

    def row_weights(self, pairs: Pairs, *, negative: int, num_noise: int) -> Rows:
        """Weight of the terms of the loss that each gathered row is in, [N, G, R].

        With hierarchical softmax, an input row: the tokens of the tile that have it as
        context; CBOW: the sum of 1/n_t over them, and of sums their number. Inner node:
        n_t; CBOW: 1 if the token is active. Each times m_t.
        """
        architecture = self.architecture
        by_name = {"negative": negative, "num_noise": num_noise}
        if not self.depth:
            return architecture.row_weights(pairs, **by_name)
        assert pairs.signs is not None, "prepared with the tree"
        shape = *pairs.mask.shape[:2], -1
        of_contexts, of_token = architecture.path_weights(pairs)
        path_weights = Rows(
            weighted(of_contexts, pairs).sum(axis=2),
            (of_token[..., jnp.newaxis] * jnp.abs(pairs.signs)).reshape(shape),
        )
        if not self.is_sampled:
            return path_weights
        return _joined(architecture.row_weights(pairs, **by_name), path_weights)

    def loss(
        self,
        rows: Rows,
        pairs: Pairs,
        *,
        negative: int,
        sum_columns: SumColumns = all_columns,
    ) -> jax.Array:
        """L of an update, a scalar, from the gathered rows [N, G, R, D]."""
        architecture = self.architecture
        by_name = {"negative": negative, "sum_columns": sum_columns}
        if not self.depth:
            return architecture.loss(rows, pairs, **by_name)
        assert pairs.signs is not None, "prepared with the tree"
        num_positions = pairs.mask.shape[3]
        num_nodes = pairs.signs.shape[2] * pairs.signs.shape[3]
        parts = [
            (x[:, :, :-num], x[:, :, -num:])
            for x, num in zip(rows, (num_positions, num_nodes), strict=True)
        ]
        sampled, path_rows = (Rows(*part) for part in zip(*parts, strict=True))
        total = architecture.path_loss(path_rows, pairs, sum_columns)
        if not self.is_sampled:
            return total
        return total + architecture.loss(sampled, pairs, **by_name)

    def num_terms(self, pairs: Pairs) -> jax.Array:
        """Weight of the positive terms, which the reported loss is a mean over: of
        pairs, or of active tokens, each times m_t."""
        return self.architecture.num_terms(pairs)

    def start_loss(self, negative: int, num_noise: int, path_length: float) -> float:
        """The reported loss of the initial vectors, whose scores are all 0.

        Args:
          path_length: nodes above a token, on average; 0: without hierarchical softmax.
        """
        terms = 1 + negative if self.is_sampled else 0
        if terms and self.architecture.is_softmax:
            return math.log(1 + num_noise) + path_length * math.log(2)
        return (terms + path_length) * math.log(2)


def _joined(first: Rows, second: Rows) -> Rows:
    """The rows of `first`, and after them those of `second`, [N, G, R]."""
    both = zip(first, second, strict=True)
    return Rows(*(jnp.concatenate(parts, axis=2) for parts in both))
