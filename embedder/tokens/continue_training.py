"""Updates: training of a model on new text, so that it keeps what it has learned.

A training that starts anew at the full rate on a day's text unlearns all other text.
Three things keep a model, ALGORITHM.md (69) and (70): the rate of each row falls with
the text that it was trained on, noise is drawn from the new text, and the output of a
new row starts where that of an average row is. New rows learn better with replay, (78):
it shows them the contexts that they do not have.
"""

import dataclasses
import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from embedder.config import Config, options_of
from embedder.config.token_options import TokensOptions
from embedder.data.earlier import EarlierCorpus, without_held_out
from embedder.data.encode import BaseVocabulary, encode
from embedder.data.encoded import Encoded, TokenSource
from embedder.data.huffman import huffman_tree, node_sums
from embedder.errors import InputError
from embedder.tokens.artefact import ModelFile
from embedder.tokens.replay import Replay
from embedder.tokens.row_lr_multipliers import RowLrMultipliers

_OF_BASE = (
    *("architecture", "cbow_mean", "vector_size", "dtype", "hs"),
    *("subwords", "buckets"),
)
"""Settings in which a training is as its base."""
_KEEPS = 10  # new occurrences that weigh as much as an old one, (69)
_log = logging.getLogger(__name__)


class Update(NamedTuple):
    """What a training trains on, and from which model; of an update with `schedule`
    continue also how far."""

    encoded: TokenSource  # of an update: draws are by the counts of its text
    base: ModelFile | None  # of an update with output rows for new tokens
    row_multipliers: RowLrMultipliers | None = None


def row_factors(old_counts: np.ndarray, new_counts: np.ndarray) -> np.ndarray:
    """The factor of the rate of each row in an update, f32[V], ALGORITHM.md (69).

        factor_r = new_r / (10 old_r + new_r)

    A new row has the full rate, one that occurs a tenth as often as before a hundredth
    of it, and one that the update's text lacks stays as it is. At 1 in place of 10, as
    one linear schedule over all text would have it, ten daily updates lose more.

    Args:
      old_counts: occurrences that the model was trained on, [V]; 0: a new row.
      new_counts: occurrences in the text of the update, [V].
    """
    both = np.maximum(_KEEPS * old_counts + new_counts, 1)
    return (new_counts / both).astype(np.float32)


def plan_update(
    base: ModelFile, new: Encoded, earlier: list[Encoded], options: TokensOptions
) -> Update:
    """The update of `base` with `new`, of which each epoch replays `earlier`, too.

    Raises:
      InputError: `replay` is not possible with the other settings.
    """
    text = new.occurrences()
    num_old = len(base.tokens)
    old = np.zeros(len(text), np.int64)
    old[:num_old] = base.counts
    encoded: TokenSource = _drawn_by(new, text)
    if options.replay:
        if any(each.has_weights for each in (new, *earlier)):
            raise InputError("`replay` does not go with weights of sessions.")
        replay = Replay(new, earlier, options.replay, num_old)
        drawn = _drawn_by(replay.new, replay.counts())
        encoded = dataclasses.replace(replay, new=drawn)
    factors = row_factors(old, text)
    if options.has_node_output:
        tree = huffman_tree(base.counts)
        of_nodes = row_factors(node_sums(tree, old), node_sums(tree, text))
        of_tokens = factors[: len(factors) * options.has_token_output]
        of_output = np.concatenate([of_tokens, of_nodes])
        return Update(encoded, base, RowLrMultipliers(factors, of_output))
    # New output rows are the mean of the others: at 0, as in a new model, a token would
    # score higher than nearly all trained ones, whose mean score is below 0.
    mean = base.output.mean(axis=0, dtype=np.float64).astype(base.output.dtype)
    rows = np.repeat(mean[np.newaxis], len(text) - len(base.output), axis=0)
    base = base._replace(output=np.concatenate([base.output, rows]))
    return Update(encoded, base, RowLrMultipliers(factors, factors))


def check_grow(grow: bool, options: TokensOptions) -> None:
    """Raises InputError for new rows of a model with hierarchical softmax, whose tree
    would be another one, or with subwords."""
    if grow and options.subwords:
        raise InputError(
            "`grow` does not go with `subwords`: new tokens have vectors of their "
            "n-grams. Leave out `grow`."
        )
    if grow and options.hs:
        raise InputError(
            "`grow` does not go with `hs`: new tokens make another Huffman tree. Train "
            "anew, or leave out `grow`."
        )


def check_continues(options: TokensOptions, is_update: bool) -> None:
    """Raises InputError for an update of subwords with other rates for some rows."""
    if options.subwords and is_update and options.schedule == "continue":
        raise InputError(
            "`schedule` must be 'restart' for an update of a model with `subwords`, "
            "got 'continue'."
        )


def check_base(config: Config, base: ModelFile) -> None:
    """Raises InputError if `base` has another architecture, objective, vector size or
    dtype."""
    options = options_of(config)
    for name in _OF_BASE:
        if (there := base.settings[name]) != (here := options[name]):
            raise InputError(
                f"`{name}` must be that of the run to start from, {there!r}, got "
                f"{here!r}."
            )
    there, here = base.settings["negative"], config.tables.negative
    if bool(there) != bool(here):
        rule = "above 0" if there else "0"
        raise InputError(
            f"`negative` must be {rule}, as that of the run to start from, {there}, "
            f"got {here}."
        )


def log_dropped(encoded: TokenSource, grows: bool, flag: str) -> None:
    """Logs how many distinct tokens have no row, and how to keep them.

    Args:
      grows: whether new tokens get rows if they occur `min_count` times.
      flag: what makes a model grow.
    """
    if not isinstance(encoded, Encoded | Replay) or not encoded.dropped_types:
        return
    why = f"{flag} adds rows for them"
    if grows:
        why = "they occur less than `min_count` times in this text"
        if isinstance(encoded, Replay):
            why += " and the earlier ones"
    _log.info(
        "%d new %s are dropped: %s.", encoded.dropped_types, encoded.item_name, why
    )


def log_restart(option: str) -> None:
    """Logs that a training restarts on a trained model, and what keeps it.

    Args:
      option: the setting, as the user writes it.
    """
    _log.info(
        "The learning rate restarts for all rows, which unlearns what this text lacks: "
        "%s keeps what it has learned.",
        option,
    )


def _drawn_by(encoded: Encoded, counts: np.ndarray) -> Encoded:
    vocabulary = dataclasses.replace(encoded.vocabulary, text_counts=counts)
    return dataclasses.replace(encoded, vocabulary=vocabulary)


def with_earlier_counts(
    known: BaseVocabulary, earlier: Sequence[EarlierCorpus], cache: Path | None = None
) -> BaseVocabulary:
    """`known` with the occurrences of its new tokens in earlier corpora, which count
    for `min_count`."""
    occurrences: Counter[str] = Counter()
    num_old = len(known.vocabulary)
    for each in encoded_earlier(known, earlier, cache):
        vocabulary = each.vocabulary
        counts = vocabulary.counts[num_old:].tolist()
        occurrences.update(dict(zip(vocabulary.tokens[num_old:], counts, strict=True)))
    return known._replace(earlier=dict(occurrences))


def encoded_earlier(
    known: BaseVocabulary, earlier: Sequence[EarlierCorpus], cache: Path | None = None
) -> list[Encoded]:
    """Earlier corpora as ids of `known`, without the sequences that they held out;
    those without a token of it are left out."""
    corpora = []
    for each in earlier:
        encoded = encode(each.corpus, 1, known, cache)
        if each.holdout:
            encoded = without_held_out(encoded, each.holdout, each.num_tokens)
        corpora.append(encoded)
    return [each for each in corpora if each.num_tokens]
