"""What the scores of a training of tokens are measured on: held-out data, or a file.

Each set comes with baselines: what counting has, or what another rule makes of the same
vectors.
"""

import functools
import logging
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from embedder.config.token_options import TokensOptions
from embedder.data.encoded import TokenSource
from embedder.data.graph import Walks
from embedder.data.label_files import read_labels
from embedder.data.split import Sequences, num_held_out, sequences, trained_sequences
from embedder.data.word_files import (
    is_analogies,
    looks_like_pairs,
    read_analogies,
    read_pairs,
)
from embedder.errors import InputError
from embedder.metrics.counting import (
    first_tokens,
    followed_most_often,
    log_ratios,
    num_products,
    positive_pmi,
    same_session,
)
from embedder.metrics.intervals import RESAMPLES, affordable
from embedder.metrics.ranking import (
    DECAY,
    STEPS,
    Cases,
    RankedItems,
    Scorer,
    by_popularity,
    by_vectors,
    last_items,
    select,
    target_ranks,
)
from embedder.metrics.scores import TOPN, Score, scores_on
from embedder.metrics.words import (
    AnalogyAnswers,
    AnalogyQuestions,
    ScoredPairs,
)
from embedder.tokens.heldout import MOST_PAIRS, predictions, unigram_predictions
from embedder.vectors.search import unit_rows

_HEAD = 1000  # lines that tell a similarity set from labels
_MOST_EDGES = 100_000  # held-out edges that are scored, the first by their hashes
_DRAWS = 1e7  # of edges in all resamples: about a second for each model
_COUNTED_TOKENS = 10_000_000  # of a training, that baselines count at most: 0.5 GB
_MOST_PRODUCTS = 10**9  # that counting for a baseline may take: some seconds
_MOST_SORTED = 3 * 10**7  # pairs of SR, or sessions of STAN: some seconds
_FEWEST_PAIRS = 1000  # of predictions beside another score
_MOST_LOGS = 4 * 10**7  # of all tokens for each of these: 0.1 s
_FEWEST_RANKED = 2000  # cases of next items in an evaluation
_MOST_RANKED = 10**8  # items in these cases: 0.2 s
_QUICK = 3 * 10**10  # products of numbers in an evaluation: some seconds
_log = logging.getLogger(__name__)

Tables = Mapping[str, Any]
"""The tables "input" and "output" of a model, [V, D], of NumPy or JAX."""


class EvalSet(NamedTuple):
    """What scores of one kind are measured on."""

    needs: str  # a key of `scores.NEEDS`
    data: Any  # what `Score.measure` reads
    answers: Callable[[TokensOptions, Tables], Any]  # of a model
    baselines: Callable[[], dict[str, Any]]  # answers that do not depend on vectors
    most_resamples: int = RESAMPLES
    sample: "EvalSet | None" = None
    """A part of the data, for evaluations while vectors are trained; None: all."""


def eval_set(
    score: Score,
    options: TokensOptions,
    encoded: TokenSource,
    by: str = "`best_by`",
    path: str = "",
) -> EvalSet:
    """The set that `score` needs.

    Args:
      by: what names the score, for messages.
      path: of a file of pairs.

    Raises:
      InputError, OSError: there is nothing to measure it on.
    """
    match score.needs:
        case "sequences":
            held_out_sequences(score, options, encoded)
            return sequences_set(options, encoded)
        case "items":
            return _items_set(score, options, encoded, by)
        case "edges":
            return edges_set(options, encoded)
    return _pairs_set(path, options, encoded)


def default_score(options: TokensOptions, encoded: TokenSource) -> Score:
    """The first score of what is held out of graphs, of items, or of texts."""
    if options.walks:
        return scores_on("edges")[0]
    is_of_items = encoded.item_name == "items" or options.has_whole_sequences
    return scores_on("items" if is_of_items and options.negative else "sequences")[0]


def held_out_sequences(
    score: Score, options: TokensOptions, encoded: TokenSource
) -> Sequences:
    """The held-out sequences.

    Raises:
      InputError: there is none, or none has two tokens.
    """
    num_held_out(encoded.own_sequences, options.sequence_holdout)
    found = sequences(encoded, options.sequence_holdout)
    if not (found.lengths >= 2).any():
        raise InputError(
            f"`holdout` {options.holdout} holds out no sequence of two tokens or more, "
            f"which the score {score.choice} needs: give a larger share."
        )
    return found


def sequences_set(
    options: TokensOptions, encoded: TokenSource, is_beside: bool = False
) -> EvalSet:
    """Predictions of held-out tokens, beside those of a unigram model.

    Args:
      is_beside: of another score, which tells the best evaluation: less is computed.
    """
    counts, most = encoded.vocabulary.counts, MOST_PAIRS
    if is_beside:
        most = min(most, max(_FEWEST_PAIRS, _MOST_LOGS // len(counts)))
    held_out = functools.cache(lambda: sequences(encoded, options.sequence_holdout))

    def answers(options: TokensOptions, tables: Tables) -> tuple:
        input, output = (np.asarray(tables[name]) for name in ("input", "output"))
        found = predictions(options, input, output, counts, held_out(), max_pairs=most)
        return found.model, found.sequence

    def baselines() -> dict[str, tuple]:
        found = unigram_predictions(options, counts, held_out(), most)
        return {"frequencies alone": found}

    return EvalSet("sequences", None, answers, functools.cache(baselines))


def _items_set(
    score: Score, options: TokensOptions, encoded: TokenSource, by: str
) -> EvalSet:
    """The last items of held-out sequences, as `ranking.next_item` ranks them."""
    if not options.negative:
        raise InputError(
            f"{by} {score.choice} needs output rows of items, which `hs` alone has "
            "not: give a `negative` above 0."
        )
    cases = last_items(held_out_sequences(score, options, encoded), "excluded")
    if not cases.num:
        raise InputError(
            f"`holdout` {options.holdout} holds out no sequence whose last item is new "
            f"in it, which the score {score.choice} needs: give a larger share."
        )
    return _ranked_set(options, encoded, cases)


def quick_items_set(options: TokensOptions, encoded: TokenSource) -> EvalSet | None:
    """The same where nobody asked for it; None: it takes long, or there is no case."""
    num = int(num_held_out(encoded.own_sequences, options.sequence_holdout).sum())
    if num * len(encoded.vocabulary) * options.vector_size > _QUICK:
        _log.info(
            "Next items are not ranked, which takes long here: `--best-by next-item` "
            "ranks them."
        )
        return None
    cases = last_items(sequences(encoded, options.sequence_holdout), "excluded")
    return _ranked_set(options, encoded, cases) if cases.num else None


def _ranked_set(options: TokensOptions, encoded: TokenSource, cases: Cases) -> EvalSet:
    num = len(encoded.vocabulary)

    def answers(options: TokensOptions, tables: Tables) -> Scorer:
        # Products with a table by columns are up to 1.25 times as fast.
        output = np.asfortranarray(np.asarray(tables["output"])[:num])
        return by_vectors(np.asarray(tables["input"]), output)

    @functools.cache
    def baselines() -> dict[str, tuple]:
        """The ranks of the targets by each, which are the same in all evaluations."""
        found = _item_counts(options, encoded, cases).items()
        return {name: target_ranks(scorer, cases, num) for name, scorer in found}

    whole = EvalSet("items", RankedItems(cases, num, TOPN, 3), answers, baselines)
    most = max(_FEWEST_RANKED, _MOST_RANKED // num)
    if cases.num <= most:
        return whole
    is_in = np.arange(cases.num) % math.ceil(cases.num / most) == 0
    queries, targets = (select(x, is_in) for x in (cases.queries, cases.targets))
    _log.info(
        "Evaluations rank the last items of %d of %d held-out sessions, the end of the "
        "training those of all.",
        *(is_in.sum(), cases.num),
    )

    def of_sample() -> dict[str, tuple]:
        return {name: select(ranks, is_in) for name, ranks in baselines().items()}

    data = whole.data._replace(cases=Cases(queries, targets, cases.seen))
    return whole._replace(sample=EvalSet("items", data, answers, of_sample))


def _item_counts(
    options: TokensOptions, encoded: TokenSource, cases: Cases
) -> dict[str, Scorer]:
    """Scorers that count in the sequences that are trained, by name.

    "same session" is left out where it would take long: on texts, whose sequences are
    long and have the same words. So are the others but popularity and followers.
    """
    from embedder.metrics import near_sessions
    from embedder.metrics import next_item_baselines as baselines

    counts = encoded.vocabulary.counts
    training = trained_sequences(encoded, options.sequence_holdout)
    parts = first_tokens(training, _COUNTED_TOKENS)
    ids, lengths = map(np.concatenate, zip(*parts, strict=True))
    counted = ids, lengths
    found = {
        "popularity": by_popularity(counts),
        "followed most often": followed_most_often(counted, len(counts)),
    }
    if len(ids) * STEPS <= _MOST_SORTED:
        found["SR"] = baselines.sequential_rules(counted, len(counts), DECAY)
        found["AR"] = baselines.association_rules(counted, len(counts), DECAY)
    num_having = np.bincount(ids, minlength=len(counts))
    of_queries = np.bincount(cases.queries[0], minlength=len(counts))
    sessions = functools.cache(lambda: near_sessions.Sessions.fit(counted, len(counts)))
    for model in near_sessions.VSKNN, near_sessions.STAN:
        if of_queries @ np.minimum(num_having, model.sample) <= _MOST_SORTED:
            found[model.__name__] = model(sessions())
    if "STAN" in found:
        found["STAN with idf"] = near_sessions.STAN.of_mixture(
            sessions(), with_ages=False
        )
    if num_products(counted, cases.queries, len(counts)) > _MOST_PRODUCTS:
        _log.info(
            'The baseline "same session" is left out: in sequences as long as these '
            "it takes minutes. `embedder evaluate --sessions` counts it."
        )
        return found
    return found | {"same session": same_session(counted, len(counts))}


def edges_set(options: TokensOptions, encoded: TokenSource) -> EvalSet:
    """Held-out edges, beside as many pairs without an edge, by the cosines of their
    ends, (73)."""
    from embedder.metrics import links

    assert isinstance(encoded, Walks), "walks are over a graph"
    edges, directed = encoded.held_out[:_MOST_EDGES], options.directed
    adjacency = functools.cache(encoded.graph.adjacency)

    @functools.cache
    def others() -> links.Pairs:
        known = np.stack(adjacency().nonzero(), axis=1).astype(np.int64)
        known = np.concatenate([encoded.held_out, known])
        num_nodes = len(encoded.vocabulary)
        return links.sample_non_edges(len(edges), num_nodes, known, directed=directed)

    def answers(options: TokensOptions, tables: Tables) -> Callable:
        matrix = np.asarray(tables["input"])
        return functools.partial(links.cosine_similarities, matrix)

    def baselines() -> dict[str, Callable]:
        counted = links.COUNTED.items()
        return {name: functools.partial(of, adjacency()) for name, of in counted}

    most = affordable(len(edges), _DRAWS)
    return EvalSet("edges", links.LinkCases(edges, others), answers, baselines, most)


def file_set(options: TokensOptions, encoded: TokenSource) -> EvalSet:
    """The file of `best_by`, by its content.

    A first line that starts with `:` makes analogy questions. On graphs other files are
    labels, unless all lines are two words and a number, as those of similarity sets.

    Raises:
      InputError, OSError: it has another format, or no known token.
    """
    path = options.best_by
    if os.path.exists(path) and not os.path.isfile(path):  # a pipe, say
        raise InputError(
            f"`best_by` must be a file on disk, got {path}: it is read more than once."
        )
    if isinstance(encoded, Walks):
        with open(path, "rb") as file:
            is_packed = file.read(2) == b"\x1f\x8b"
        if is_packed or not (is_analogies(path) or looks_like_pairs(path, _HEAD)):
            return _labels_set(path, encoded)
    if is_analogies(path):
        return _analogies_set(path, encoded)
    return _pairs_set(path, options, encoded)


def _pairs_set(path: str, options: TokensOptions, encoded: TokenSource) -> EvalSet:
    """A similarity set, by the cosines of its pairs."""
    vocabulary = encoded.vocabulary
    pairs = ScoredPairs(read_pairs(path), vocabulary.tokens)

    @functools.cache
    def baselines() -> dict[str, np.ndarray]:
        found = {"frequency": log_ratios(vocabulary.counts, pairs.rows)}
        if not isinstance(encoded, Walks):
            training = trained_sequences(encoded, options.sequence_holdout)
            found["co-occurrence"] = positive_pmi(
                first_tokens(training), pairs.rows, len(vocabulary)
            )
        return found

    def answers(options: TokensOptions, tables: Tables) -> np.ndarray:
        return pairs.cosines(np.asarray(tables["input"]))

    return EvalSet("pairs", pairs, answers, baselines)


def _analogies_set(path: str, encoded: TokenSource) -> EvalSet:
    """Analogy questions, by b - a + c."""
    questions = AnalogyQuestions(read_analogies(path), encoded.vocabulary.tokens)
    questions.check_known()

    def answers(options: TokensOptions, tables: Tables) -> AnalogyAnswers:
        return questions.answers(unit_rows(np.asarray(tables["input"])))

    return EvalSet("analogies", None, answers, dict)


def _labels_set(path: str, walks: Walks) -> EvalSet:
    """Labels, (74), of half of the nodes, from the vectors of the other half."""
    from embedder.metrics.label_scores import (
        LabelCases,
        Predictor,
        by_degree,
        by_frequency,
        by_regression,
    )

    labels = read_labels(Path(path), walks.vocabulary.tokens)
    has_label = labels.has_label

    def baselines() -> dict[str, Predictor]:
        return {
            "most frequent labels": by_frequency(has_label),
            "degree": by_degree(walks.graph.adjacency(), labels.rows, has_label),
        }

    def answers(options: TokensOptions, tables: Tables) -> Predictor | None:
        features = np.asarray(tables["input"])[labels.rows]
        is_finite = np.isfinite(features).all()
        return by_regression(features, has_label) if is_finite else None

    return EvalSet("labels", LabelCases(has_label, 0.5, 1), answers, baselines)
