"""Scores of tables on held-out sequences, to compare settings by.

`log_likelihood` is the mean log probability that the model gives to held-out tokens.
The objective of negative sampling has its optimum at

    v_t.u_c = log( P(c | t) / (negative P_n(c)) )       (Levy and Goldberg 2014)

with P_n the noise distribution, and P(c | t) that of the contexts in the subsampled
text, in which a share keep_c of the occurrences of c is left. So the prediction for the
whole text is, ALGORITHM.md (58),

    P(c | t) = P_n(c) exp(v_t.u_c) / keep_c / (sum of the same over the vocabulary)

and for CBOW P(t | contexts) by h_t.u_t. It is a distribution over the vocabulary for
any `negative`, `ns_exponent`, `sample`, `window`, `alpha` and `vector_size`, so it
compares models of one vocabulary that differ in these.

`next_item` ranks the last item of a held-out session by the items before it, as a
recommender does.

Reference: Levy and Goldberg 2014, Neural Word Embedding as Implicit Matrix
Factorization, section 3.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import numpy as np

from embedder.tables.encoded import TokenSource
from embedder.tables.options import TablesOptions
from embedder.tables.split import Sequences, sequences
from embedder.tables.vocabulary import keep_limit
from embedder.vectors.evaluate import CHUNK_VALUES
from embedder.vectors.vectors import check_positive_integer, unit_rows


class LogLikelihood(NamedTuple):
    """Log likelihood of held-out tokens, in nats per prediction."""

    mean: float
    baseline: float  # of the unigram model: P(c) = count_c / total
    num_pairs: int  # predictions; 0: none, and the others are nan


class Ranking(NamedTuple):
    """Means over cases with one right item each, whose rank is from 1."""

    hit_rate: float  # of ranks up to `topn`
    ndcg: float  # of 1 / log2(1 + rank) for ranks up to `topn`, else 0
    mrr: float  # of 1 / rank


class NextItem(NamedTuple):
    """How well the last item of a session is found; see `Ranking`."""

    hit_rate: float
    ndcg: float
    mrr: float
    baseline: Ranking  # by popularity: items in the order of their counts
    num_cases: int  # 0: none, and the others are nan


def log_likelihood(
    options: TablesOptions,
    input: np.ndarray,
    output: np.ndarray,
    counts: np.ndarray,
    sequences: Sequences,
    window: int = 5,
    max_pairs: int = 10_000,
) -> LogLikelihood:
    """Log likelihood of held-out tokens by a model, ALGORITHM.md (58).

    Skip-gram predicts each context from a token, CBOW each token from its contexts: all
    tokens within `window`, for any window that the model was trained with. Computed in
    the dtype of the tables; -inf if its scores are not finite.

    Args:
      options: of the model.
      input, output: tables, [V, D].
      counts: of the corpus, held-out sequences included, i64[V].
      window: largest distance of a context.
      max_pairs: predictions at most, drawn from all of them. The draws depend only on
        the sequences and on `window`.
    """
    predictions = {"skipgram": _of_contexts, "cbow": _of_tokens}[options.architecture]
    hidden, rows, targets = predictions(input, sequences, window, max_pairs)
    num = len(targets)
    if not num:
        return LogLikelihood(np.nan, np.nan, 0)
    bias = _bias(options, counts).astype(output.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        scores = np.einsum("nd,nd->n", hidden[rows], output[targets]) + bias[targets]
        mean = float((scores - _log_sums(hidden, output, bias)[rows]).mean())
    baseline = float(np.log(counts[targets] / counts.sum()).mean())
    return LogLikelihood(mean if np.isfinite(mean) else -np.inf, baseline, num)


def scorer(
    options: TablesOptions, encoded: TokenSource
) -> Callable[[Mapping[str, np.ndarray]], float]:
    """Tables "input" and "output" -> `log_likelihood` of the held-out sequences, which
    the first call reads."""

    @functools.cache
    def held_out_sequences() -> Sequences:
        return sequences(encoded, options.holdout)

    def score(tables: Mapping[str, np.ndarray]) -> float:
        input, output = (np.asarray(tables[name]) for name in ("input", "output"))
        counts = encoded.vocabulary.counts
        return log_likelihood(options, input, output, counts, held_out_sequences()).mean

    return score


def _bias(options: TablesOptions, counts: np.ndarray) -> np.ndarray:
    """log(P_n(c) / keep_c) without its constant, f64[V]."""
    keep = (keep_limit(counts, options.sample) + 1.0) / 2**32
    bias = options.ns_exponent * np.log(counts) - np.log(keep)
    return bias - bias.max()


def _log_sums(hidden: np.ndarray, output: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """log sum_c exp(hidden . output_c + bias_c) of each row of `hidden`, [N]."""
    found = np.empty(len(hidden), hidden.dtype)
    size = max(1, CHUNK_VALUES // len(output))
    for start in range(0, len(hidden), size):
        scores = hidden[start : start + size] @ output.T
        scores += bias[np.newaxis]
        largest = scores.max(axis=1)
        np.exp(np.subtract(scores, largest[:, np.newaxis], out=scores), out=scores)
        found[start : start + size] = largest + np.log(scores.sum(axis=1))
    return found


_Predictions = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Hidden vectors [N, D]; of each prediction the row of its vector, and its target."""


def _of_contexts(
    input: np.ndarray, sequences: Sequences, window: int, at_most: int
) -> _Predictions:
    """Contexts by the input row of a token; a token has one hidden vector."""
    positions, columns = np.nonzero(_has_context(sequences, window))
    chosen = _choose(len(positions), at_most)
    positions, columns = positions[chosen], columns[chosen]
    tokens, rows = np.unique(sequences.ids[positions], return_inverse=True)
    targets = sequences.ids[positions + _offsets(window)[columns]]
    return input[tokens], rows, targets


def _of_tokens(
    input: np.ndarray, sequences: Sequences, window: int, at_most: int
) -> _Predictions:
    """Tokens by the mean of the input rows of their contexts."""
    has_context = _has_context(sequences, window)
    positions = np.flatnonzero(has_context.any(axis=1))
    positions = positions[_choose(len(positions), at_most)]
    sums = np.zeros((len(positions), input.shape[1]), input.dtype)
    for column, offset in enumerate(_offsets(window)):
        here = has_context[positions, column]
        sums[here] += input[sequences.ids[positions[here] + offset]]
    num_contexts = has_context[positions].sum(axis=1, keepdims=True)
    hidden = sums / num_contexts.astype(input.dtype)
    return hidden, np.arange(len(positions)), sequences.ids[positions]


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


def next_item(
    input: np.ndarray,
    counts: np.ndarray,
    sequences: Sequences,
    topn: int = 10,
    *,
    output: np.ndarray | None = None,
    seen: Literal["excluded", "included"] = "excluded",
) -> NextItem:
    """How well the items of a session predict its last one, over sessions of two items
    or more. All V items are ranked. Ties count as ranked before the right item, so a
    model of equal scores finds nothing.

    Args:
      input: input table, [V, D].
      counts: of the corpus, i64[V].
      output: output table, [V, D]: scores are mean v_i.u_c over the items i of the
        session, as in training; None: the cosine of c with the mean of their unit
        vectors, as `most_similar` has it.
      seen: whether items of the session are candidates. If "excluded", sessions whose
        last item occurs before are left out.

    Raises:
      InputError: `topn` is not an integer >= 1.
    """
    check_positive_integer("topn", topn)
    cases = _cases(sequences, seen)
    with np.errstate(over="ignore", invalid="ignore"):
        unit = unit_rows(input) if output is None else input
        ranks = _ranks(unit, unit if output is None else output, cases)
    popularity = counts.astype(np.float64)[:, np.newaxis]
    popular = _ranks(np.ones_like(popularity), popularity, cases)
    baseline = ranking(popular, topn)
    return NextItem(*ranking(ranks, topn), baseline, len(cases.targets))


class _Cases(NamedTuple):
    queries: Sequences  # the items before the last
    targets: np.ndarray  # i32[N], the last items
    seen: Literal["excluded", "included"]


def _cases(given: Sequences, seen: Literal["excluded", "included"]) -> _Cases:
    given = _select(given, given.lengths >= 2)
    last = np.cumsum(given.lengths) - 1
    queries = Sequences(np.delete(given.ids, last), given.lengths - 1)
    targets = given.ids[last]
    if seen == "excluded" and len(targets):
        is_target = queries.ids == np.repeat(targets, queries.lengths)
        starts = np.cumsum(queries.lengths) - queries.lengths
        is_new = ~np.logical_or.reduceat(is_target, starts)
        queries, targets = _select(queries, is_new), targets[is_new]
    return _Cases(queries, targets, seen)


def _select(given: Sequences, mask: np.ndarray) -> Sequences:
    return Sequences(given.ids[np.repeat(mask, given.lengths)], given.lengths[mask])


def _ranks(rows: np.ndarray, items: np.ndarray, cases: _Cases) -> np.ndarray:
    """Rank of each target by the product of its row of `items` with the mean of `rows`
    over the query, i64[N]; of scores that are not finite the last."""
    ids, lengths = cases.queries
    starts = np.cumsum(lengths) - lengths
    ranks = np.empty(len(lengths), np.int64)
    size = max(1, CHUNK_VALUES // len(items))
    for first in range(0, len(lengths), size):
        chunk = slice(first, first + size)
        num, begin = lengths[chunk], starts[first]
        here = ids[begin : begin + num.sum()]
        sums = np.add.reduceat(rows[here], starts[chunk] - begin, axis=0)
        scores = sums / num[:, np.newaxis].astype(rows.dtype) @ items.T
        if cases.seen == "excluded":
            scores[np.repeat(np.arange(len(num)), num), here] = -np.inf
        own = np.take_along_axis(scores, cases.targets[chunk, np.newaxis], axis=1)
        ranks[chunk] = len(items) - (scores < own).sum(axis=1)
    return ranks


def ranking(ranks: np.ndarray, topn: int) -> Ranking:
    """The means over cases with these ranks, i64[N], from 1; nan if there are none."""
    if not len(ranks):
        return Ranking(np.nan, np.nan, np.nan)
    is_hit = ranks <= topn
    ndcg = np.where(is_hit, 1 / np.log2(1 + ranks), 0)
    return Ranking(*(float(x.mean()) for x in (is_hit, ndcg, 1 / ranks)))
