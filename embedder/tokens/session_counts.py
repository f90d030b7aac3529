"""What a training keeps to say what comes next: counts of its sessions, and weights."""

import dataclasses
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy  # its parts are loaded at use: trainings import this

from embedder.base.stages import report_stage
from embedder.config import Config
from embedder.data.encoded import TokenSource
from embedder.data.split import held_out_sequences, sequences, trained_sequences
from embedder.disk.workdir import Workdir
from embedder.errors import InputError
from embedder.metrics.intervals import Estimate
from embedder.metrics.next_item_scores import (
    DEFAULT_WEIGHTS,
    BySeen,
    Mixture,
    NextItems,
    SessionCounts,
    fit_weights,
    read_weights,
    write_weights,
)
from embedder.metrics.ranking import (
    RankedItems,
    last_items,
    select,
    target_ranks,
)
from embedder.metrics.score_table import VECTORS, ScoreTable
from embedder.metrics.scores import TOPN, measured, scores_on
from embedder.tokens.artefact import ModelFile
from embedder.vectors.vectors import typed_keys

MIXTURE = "mixture"
"""The name of the mixture among the models of a score table."""
_GAIN = 0.005  # of the hit rate, below which counting alone does as well
_log = logging.getLogger(__name__)


def keeps_next_items(config: Config) -> bool:
    """Whether a training keeps them; a line says why not, where they are asked for."""
    if not config.tables.next_items:
        return False
    if config.run.replicas > 1:
        why = "replicas"
    elif not config.tables.has_token_output:
        why = "hierarchical softmax alone, which has no output rows of items"
    else:
        return True
    _log.info("Nothing is kept for `embedder next`: it does not go with %s.", why)
    return False


def next_items_of(
    model: ModelFile, counts: SessionCounts, weights: BySeen
) -> NextItems:
    """What comes next, by a model and what its training keeps; with attributes also
    items that no session has, which come after the vocabulary. Such an item stands as
    the mean of the items most alike, (105), in the vector of a session and in counts of
    pairs; its output row is that of its attributes, (104).

    Raises:
      InputError: the model has no output rows of items.
    """
    keys, input, output = model.tokens, model.input, model.token_output
    if output is None:
        raise InputError("The model has no output rows of items.")
    rows, means = model.attribute_rows, None
    unseen = [] if rows is None else rows.unseen_keys(keys)
    if rows is not None and unseen:
        alike = rows.alike(keys)
        own = scipy.sparse.eye_array(len(keys), dtype=np.float32)
        means = scipy.sparse.csr_array(scipy.sparse.vstack([own, alike]))
        input = np.concatenate([input, (alike @ input).astype(input.dtype)])
        output = np.concatenate([output, rows.unseen_output(keys, output)])
        keys = [*keys, *unseen]
    # By columns, since products of queries with all items are faster then.
    mixture = Mixture(input, np.asfortranarray(output), counts, means=means)
    return NextItems(typed_keys(keys, model.key_type), mixture, weights)


def count_sessions(
    encoded: TokenSource, base: SessionCounts | None = None
) -> SessionCounts:
    """The counts of all sessions, also of those held out, and those of `base` before.
    `choose_weights` leaves the held-out ones out again."""
    parts = trained_sequences(encoded, 0, with_replayed=False)
    counts = SessionCounts.fit(parts, len(encoded.vocabulary))
    return counts if base is None else base.plus(counts)


def begin_next_items(run: Workdir, encoded: TokenSource, base: Path | None) -> None:
    """Writes the counts of the sessions, after those of the run at `base`, and the
    weights of that one.

    Raises:
      OSError, InputError: files of the base are damaged.
    """
    before, weights = None, DEFAULT_WEIGHTS
    if base is not None:
        files = Workdir(base)
        if base.is_dir() and files.counts.exists() and files.mixture.exists():
            before = SessionCounts.read(files.counts)
            weights = read_weights(files.mixture)
        else:
            _log.info("%s has no counts of sessions to go on from.", base)
    report_stage("counting what follows what")
    counts = count_sessions(encoded, before)
    counts.write(run.counts, encoded.vocabulary.digest)
    write_weights(run.mixture, weights)


class Chosen(NamedTuple):
    """The weights of a mixture, and what it scores on held-out sessions."""

    weights: BySeen
    scores: ScoreTable  # of `MIXTURE` alone; {}: there is no case


def choose_weights(
    mixture: Mixture,
    encoded: TokenSource,
    holdout: float,
    earlier: BySeen = DEFAULT_WEIGHTS,
) -> Chosen:
    """The weights for the held-out sessions; `DEFAULT_WEIGHTS` if there are too few.
    An update keeps those of the run before it, which saw more kinds of sessions.

    The scores are of weights that are fitted to the other half of the sessions, and of
    counts without the held-out ones. These are of all times, so ages do not count.

    Args:
      mixture: of counts of all sessions, those of `encoded` last.
      earlier: of the run that this one updates.
    """
    if not holdout:
        return Chosen(earlier, {})
    counts = mixture.counts.without(held_out_sequences(encoded, holdout))
    mixture = dataclasses.replace(mixture, counts=counts, with_ages=False)
    held_out, num_items = sequences(encoded, holdout), len(mixture.input)
    cases = last_items(held_out, "excluded")
    weights, folds = dict(earlier), [(np.ones(cases.num, bool), earlier["excluded"])]
    if earlier == DEFAULT_WEIGHTS:
        fitted = fit_weights(mixture, last_items(held_out, "included"))
        weights |= fitted.weights
        folds = fitted.folds or folds
    if not cases.num:
        return Chosen(weights, {})
    ranks = np.empty(cases.num, np.int64)
    for is_in, of_others in folds:
        queries, targets = (select(x, is_in) for x in (cases.queries, cases.targets))
        mine = cases._replace(queries=queries, targets=targets)
        scorer = mixture.with_weights(of_others, counts.new_items)
        ranks[is_in] = target_ranks(scorer, mine, num_items)[0]
    data = RankedItems(cases, num_items, TOPN, len(scores_on("items")[0].names))
    values = measured("items", data, (ranks, cases.targets[1]), by="names")
    return Chosen(weights, {name: {MIXTURE: value} for name, value in values.items()})


def finish_next_items(
    run: Workdir,
    model: ModelFile,
    encoded: TokenSource,
    holdout: float,
    scores: ScoreTable,
    *,
    is_update: bool,
) -> ScoreTable:
    """Writes the weights, and the counts of the corpus if they are gone; returns
    `scores` with those of the mixture.

    Args:
      is_update: weights that `begin_next_items` took from the base are kept.
    """
    report_stage("weighing vectors and counts")
    try:
        digest = encoded.vocabulary.digest
        counts = SessionCounts.read(run.counts, len(model.tokens), digest)
        before = read_weights(run.mixture)
    except (OSError, InputError) as error:
        again = "Sessions are counted again, without those of earlier corpora."
        _log.warning("%s %s", error, again)
        begin_next_items(run, encoded, None)
        counts, before = SessionCounts.read(run.counts), DEFAULT_WEIGHTS
    assert model.token_output is not None, "`keeps_next_items`"
    mixture = Mixture(model.input, model.token_output, counts)
    earlier = before if is_update else DEFAULT_WEIGHTS
    chosen = choose_weights(mixture, encoded, holdout, earlier)
    write_weights(run.mixture, chosen.weights)
    return with_mixture(scores, chosen.scores)


def with_mixture(scores: ScoreTable, of_mixture: ScoreTable) -> ScoreTable:
    """The scores of vectors and counts, with those of the mixture; says whether it is
    worth it."""
    table = {
        name: {**by_model, **of_mixture.get(name, {})}
        for name, by_model in scores.items()
    }
    _log_worth(table.get(scores_on("items")[0].name, {}))
    return table


def _log_worth(by_model: Mapping[str, Estimate]) -> None:
    """Says whether counting alone would have done."""
    if MIXTURE not in by_model:
        return
    counted = {
        model: estimate.value
        for model, estimate in by_model.items()
        if model not in (VECTORS, MIXTURE)
    }
    best, of_best = max(counted.items(), key=lambda each: each[1])
    mixed = by_model[MIXTURE].value
    verdict = "counting alone would do"
    if mixed - of_best >= _GAIN:
        verdict = "it is better than counting alone"
    _log.info(
        "Next items: HR@%d is %.4f by the mixture, %.4f by the vectors alone, %.4f by "
        "%s, the best of counting: %s.",
        *(TOPN, mixed, by_model[VECTORS].value, of_best, best, verdict),
    )
