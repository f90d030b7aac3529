"""CBOW in which near contexts count more, by a sampled softmax.

    h_t = (1/n_t) sum_{j in ctx(t)} w_tj v_j,  w_tj = .5 ** (|t - j| - 1),
    n_t = sum_j w_tj                                                                (98)
    L = sum over t with n_t > 0 of
            [ log( exp(s_tt) + sum_k exp(s_tk) ) - s_tt ],
    s_tr = h_t.u_r - log q_r                                                        (99)

with the rows, ctx(t) and K noise ids of `cbow.py`, and q the weights that noise is
drawn by. So the optimum is h_t.u_c = log P(c | ctx(t)) and a constant for any K and any
q, and a query of `metrics.ranking.by_vectors` is h_t without the contexts after t. The
gradients are derived by JAX, by hand in the oracle; with p_tr the shares of the sum:

    dL/dh_t = sum_k p_tk u_k - (1 - p_tt) u_t                                      (100)
    dL/du_t = -(1 - p_tt) h_t,   dL/du_k = sum_t p_tk h_t

and dL/dv_j is that of CBOW with w_tj/n_t for 1/n_t. `negative` is not in it.

References: Jean et al. 2015, arXiv:1412.2007, section 3; Ma and Collins 2018,
arXiv:1809.01812, ranking NCE.
"""

import jax
import jax.numpy as jnp
import numpy as np

from embedder.config.token_objectives import DISTANCE_DECAY
from embedder.tokens import cbow
from embedder.tokens.objective import (
    Architecture,
    Pairs,
    Rows,
    SumColumns,
    all_columns,
)


def row_weights(pairs: Pairs, *, negative: int, num_noise: int) -> Rows:
    """Weight of the terms that each gathered row is in: [N, G, C] and [N, G, B + K].

    Those of CBOW with w_tj/n_t for 1/n_t, and of noise with 1/K for negative/K.
    """
    return cbow.row_weights(pairs, negative=1, num_noise=num_noise)


def loss(
    rows: Rows, pairs: Pairs, *, negative: int, sum_columns: SumColumns = all_columns
) -> jax.Array:
    """L of an update, (99), a scalar, from the gathered rows."""
    tile, num_rows = pairs.mask.shape[2], rows.output.shape[2]
    assert pairs.log_noise is not None, "prepared with the weights of noise"
    score_NGBR = cbow.scores(rows, pairs, sum_columns)
    score_NGBR = score_NGBR - pairs.log_noise[:, :, jnp.newaxis]
    is_own_BR = np.eye(tile, num_rows, dtype=bool)
    is_term_BR = is_own_BR | (np.arange(num_rows) >= tile)
    log_sum_NGB = jax.nn.logsumexp(score_NGBR, axis=-1, where=is_term_BR)
    own_NGB = jnp.where(is_own_BR, score_NGBR, 0).sum(axis=-1)
    return (cbow.active(pairs) * (log_sum_NGB - own_NGB)).sum()


CBOW_SOFTMAX = Architecture(
    *(cbow.row_ids, row_weights, loss, cbow.num_terms),
    *(cbow.path_weights, cbow.path_loss),
    distance_decay=DISTANCE_DECAY,
    is_softmax=True,
)
