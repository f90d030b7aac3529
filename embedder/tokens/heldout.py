"""Scores of tables on held-out sequences, to compare settings by.

The score is the mean log probability that the model gives to held-out tokens.
The objective of negative sampling has its optimum at

    v_t.u_c = log( P(c | t) / (negative P_n(c)) )       (Levy and Goldberg 2014)

with P_n the noise distribution, and P(c | t) that of the contexts in the subsampled
text, in which a share keep_c of the occurrences of c is left. So the prediction for the
whole text is, ALGORITHM.md (58),

    P(c | t) = P_n(c) exp(v_t.u_c) / keep_c / (sum of the same over the vocabulary)

and for CBOW P(t | contexts) by h_t.u_t; without P_n(c) for a sampled softmax.
Hierarchical softmax has P(c | t) of the subsampled text without a sum over the
vocabulary, (92). It is a distribution over the vocabulary for any `negative`,
`ns_exponent`, `sample`, `window`, `alpha`, `hs` and `vector_size`, so it compares
models of one vocabulary that differ in these.

Reference: Levy and Goldberg 2014, Neural Word Embedding as Implicit Matrix
Factorization, section 3.
"""

from typing import NamedTuple

import numpy as np

from embedder.base.threads import map_on_cores
from embedder.config.token_objectives import Architecture
from embedder.config.token_options import TokensOptions
from embedder.data.huffman import descending, huffman_tree
from embedder.data.split import Sequences
from embedder.data.vocabulary import keep_limit
from embedder.metrics.ranking import MOST_THREADS
from embedder.metrics.words import CHUNK_VALUES

MOST_PAIRS = 10_000
"""Predictions that are scored, at most."""


class Predictions(NamedTuple):
    """Log likelihoods of predictions, in nats."""

    model: np.ndarray  # f[n]; not finite where the scores are not
    baseline: np.ndarray  # f64[n], of the unigram model
    sequence: np.ndarray  # i64[n], the number of the sequence of each


def predictions(
    options: TokensOptions,
    input: np.ndarray,
    output: np.ndarray,
    counts: np.ndarray,
    sequences: Sequences,
    window: int = 5,
    max_pairs: int = MOST_PAIRS,
) -> Predictions:
    """Log likelihoods of held-out tokens by a model, ALGORITHM.md (58).

    Skip-gram predicts each context from a token, CBOW each token from its contexts: all
    tokens within `window`, for any window that the model was trained with. Computed in
    the dtype of the tables.

    Args:
      options: of the model.
      input, output: tables, [V, D]; with `hs` the last V of `output` are inner nodes.
      counts: of the corpus, held-out sequences included, i64[V].
      window: largest distance of a context.
      max_pairs: predictions at most, drawn from all of them. The draws depend only on
        the sequences and on `window`.
    """
    drawn = _drawn(options, input, sequences, window, max_pairs)
    hidden, rows, targets, positions = drawn
    baseline, sequence = _unigram(counts, sequences, targets, positions)
    if not len(targets):
        return Predictions(np.empty(0), baseline, sequence)
    if options.has_node_output:
        nodes, bias = output[-len(counts) :], -_log_keep(options, counts)
        with np.errstate(over="ignore", invalid="ignore"):
            found = _log_paths(
                *(hidden, nodes, counts, bias.astype(output.dtype), rows, targets)
            )
        return Predictions(found, baseline, sequence)
    facts = options.architecture_facts
    exponent = 0 if facts.is_softmax else options.ns_exponent
    logs = exponent * np.log(counts) - _log_keep(options, counts)
    bias = (logs - logs.max()).astype(output.dtype)  # of P_n(c) / keep_c
    with np.errstate(over="ignore", invalid="ignore"):
        scores = np.einsum("nd,nd->n", hidden[rows], output[targets]) + bias[targets]
        found = scores - _log_sums(hidden, output, bias)[rows]
    return Predictions(found, baseline, sequence)


def unigram_predictions(
    options: TokensOptions,
    counts: np.ndarray,
    sequences: Sequences,
    max_pairs: int = MOST_PAIRS,
) -> tuple[np.ndarray, np.ndarray]:
    """The baseline and the sequences of `predictions`, which no table changes."""
    *_, targets, positions = _drawn(
        options, np.empty((len(counts), 0)), sequences, 5, max_pairs
    )
    return _unigram(counts, sequences, targets, positions)


def _drawn(
    options: TokensOptions,
    input: np.ndarray,
    sequences: Sequences,
    window: int,
    max_pairs: int,
) -> "_Predictions":
    facts = options.architecture_facts
    if facts.predicts == "contexts":
        return _of_contexts(input, sequences, window, max_pairs)
    return _of_tokens(input, sequences, window, max_pairs, facts)


def _unigram(
    counts: np.ndarray, sequences: Sequences, targets: np.ndarray, positions: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    number = np.repeat(np.arange(len(sequences.lengths)), sequences.lengths)
    return np.log(counts[targets] / counts.sum()), number[positions]


def _log_keep(options: TokensOptions, counts: np.ndarray) -> np.ndarray:
    """log keep_c, f64[V]."""
    return np.log((keep_limit(counts, options.sample) + 1.0) / 2**32)


def _log_paths(
    hidden: np.ndarray,
    nodes: np.ndarray,
    counts: np.ndarray,
    bias: np.ndarray,
    rows: np.ndarray,
    targets: np.ndarray,
) -> np.ndarray:
    """Log probabilities by hierarchical softmax, (92), of `targets` by `hidden[rows]`.

    Args:
      nodes: rows of inner nodes, [V, D]; the last one is not used.
      bias: -log keep, [V].
    """
    tree, num_tokens = huffman_tree(counts), len(counts)
    levels = [*descending(tree)]
    found = np.empty(len(rows), hidden.dtype)
    size = max(1, CHUNK_VALUES // (2 * num_tokens))
    for start in range(0, len(hidden), size):
        chosen = np.flatnonzero((start <= rows) & (rows < start + size))
        scores = hidden[start : start + size] @ nodes[:-1].T
        first = np.minimum(scores, 0) - np.log1p(np.exp(-np.abs(scores)))
        both = np.stack([first, first - scores], axis=2)  # log sigma(x), log sigma(-x)
        of_child = both.reshape(len(scores), -1)  # by 2 p + c
        logs = np.zeros((len(scores), 2 * num_tokens - 1), hidden.dtype)
        for below, entry in levels:
            logs[:, below] = logs[:, num_tokens + (entry >> 1)] + of_child[:, entry]
        whole = logs[:, :num_tokens] + bias
        largest = whole.max(axis=1)
        sums = largest + np.log(np.exp(whole - largest[:, np.newaxis]).sum(axis=1))
        own = rows[chosen] - start
        found[chosen] = whole[own, targets[chosen]] - sums[own]
    return found


def _log_sums(hidden: np.ndarray, output: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """log sum_c exp(hidden . output_c + bias_c) of each row of `hidden`, [N]."""

    def of_chunk(rows: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore", invalid="ignore"):  # of this thread
            scores = rows @ output.T
            scores += bias[np.newaxis]
            largest = scores.max(axis=1)
            np.exp(np.subtract(scores, largest[:, np.newaxis], out=scores), out=scores)
            return largest + np.log(scores.sum(axis=1))

    size = max(1, CHUNK_VALUES // 4 // len(output))
    parts = [hidden[start : start + size] for start in range(0, len(hidden), size)]
    return np.concatenate([hidden[:0, 0], *map_on_cores(of_chunk, parts, MOST_THREADS)])


_Predictions = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Hidden vectors [N, D]; of each prediction the row of its vector, its target, and the
position that it is made from."""


def _of_contexts(
    input: np.ndarray, sequences: Sequences, window: int, at_most: int
) -> _Predictions:
    """Contexts by the input row of a token; a token has one hidden vector."""
    positions, columns = np.nonzero(_has_context(sequences, window))
    chosen = _choose(len(positions), at_most)
    positions, columns = positions[chosen], columns[chosen]
    tokens, rows = np.unique(sequences.ids[positions], return_inverse=True)
    targets = sequences.ids[positions + _offsets(window)[columns]]
    return input[tokens], rows, targets, positions


def _of_tokens(
    input: np.ndarray,
    sequences: Sequences,
    window: int,
    at_most: int,
    facts: Architecture,
) -> _Predictions:
    """Tokens by the mean, or the sum, of the input rows of their contexts."""
    has_context = _has_context(sequences, window)
    positions = np.flatnonzero(has_context.any(axis=1))
    positions = positions[_choose(len(positions), at_most)]
    sums = np.zeros((len(positions), input.shape[1]), input.dtype)
    weights = facts.distance_decay ** (np.abs(_offsets(window)) - 1.0)
    for column, offset in enumerate(_offsets(window)):
        here = has_context[positions, column]
        rows = input[sequences.ids[positions[here] + offset]]
        sums[here] += weights[column].astype(input.dtype) * rows
    if facts.is_mean:
        totals = has_context[positions] @ weights
        sums /= totals.astype(input.dtype)[:, np.newaxis]
    rows = np.arange(len(positions))
    return sums, rows, sequences.ids[positions], positions


def _offsets(window: int) -> np.ndarray:
    """-window .. -1, 1 .. window."""
    return np.array([*range(-window, 0), *range(1, window + 1)])


def _has_context(sequences: Sequences, window: int) -> np.ndarray:
    """Whether each position has a context at each of the offsets, bool[n, 2 W]."""
    lengths = sequences.lengths
    ends = np.repeat(np.cumsum(lengths), lengths)[:, np.newaxis]
    starts = ends - np.repeat(lengths, lengths)[:, np.newaxis]
    there = np.arange(len(sequences.ids))[:, np.newaxis] + _offsets(window)[np.newaxis]
    return (starts <= there) & (there < ends)


def _choose(num: int, at_most: int) -> np.ndarray:
    """The indices of `at_most` of `num` things, ascending; all if they are fewer."""
    if num <= at_most:
        return np.arange(num)
    return np.sort(np.random.default_rng(0).choice(num, at_most, replace=False))
