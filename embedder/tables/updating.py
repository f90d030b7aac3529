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
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from embedder.config import Config
from embedder.errors import InputError
from embedder.tables.artefact import ModelFile
from embedder.tables.earlier import EarlierCorpus, without_held_out
from embedder.tables.encode import BaseVocabulary, encode, encode_cached
from embedder.tables.encoded import Encoded, TokenSource
from embedder.tables.huffman import huffman_tree, node_sums
from embedder.tables.options import TablesOptions
from embedder.tables.replay import Replay
from embedder.tables.row_factors import RowFactors

_KEEPS = 10  # new occurrences that weigh as much as an old one, (69)
_log = logging.getLogger(__name__)


class Update(NamedTuple):
    """What an update with `schedule` continue trains on, and how."""

    encoded: TokenSource  # noise and subsampling by the counts of its text
    base: ModelFile  # with output rows for new tokens
    factors: np.ndarray  # f32[V], of the rates of rows
    output_factors: np.ndarray | None = None  # of the output table; None: `factors`


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


def joined_factors(
    frozen: RowFactors | None,
    of_update: np.ndarray | None,
    of_output: np.ndarray | None = None,
) -> RowFactors | None:
    """Row factors of an update whose frozen rows stay frozen; None: all are 1.

    Args:
      of_update: of the rows of tokens, f32[V].
      of_output: of the rows of the output table; None: those of tokens.
    """
    if of_update is None:
        return frozen
    both = RowFactors(of_update, of_update if of_output is None else of_output)
    found = {} if frozen is None else frozen.arrays
    return both._replace(**{name: of_update * x for name, x in found.items()})


def plan_update(
    base: ModelFile,
    new: Encoded,
    earlier: list[Encoded],
    options: TablesOptions,
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
        encoded = _with_replay(Replay(new, earlier, options.replay, num_old))
    factors = row_factors(old, text)
    if options.hs:
        tree = huffman_tree(base.counts)
        of_nodes = row_factors(node_sums(tree, old), node_sums(tree, text))
        of_tokens = factors[: len(factors) * bool(options.negative)]
        of_output = np.concatenate([of_tokens, of_nodes])
        return Update(encoded, base, factors, of_output)
    return Update(encoded, with_output_rows(base, len(text)), factors)


def check_grow(grow: bool, options: TablesOptions) -> None:
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


def check_continues(options: TablesOptions, is_update: bool) -> None:
    """Raises InputError for an update of subwords with other rates for some rows."""
    if options.subwords and is_update and options.schedule == "continue":
        raise InputError(
            "`schedule` must be 'restart' for an update of a model with `subwords`, "
            "got 'continue'."
        )


def with_output_rows(base: ModelFile, num_rows: int) -> ModelFile:
    """`base` with its output table [num_rows, D]: new rows are the mean of the others.

    At 0, where those of a new model start, a token would score higher than nearly all
    trained ones, whose mean score is below 0.
    """
    mean = base.output.mean(axis=0, dtype=np.float64).astype(base.output.dtype)
    new = np.repeat(mean[np.newaxis], num_rows - len(base.output), axis=0)
    return base._replace(output=np.concatenate([base.output, new]))


def check_replay(config: Config) -> None:
    """Raises InputError if `replay` is given with a setting that excludes it."""
    options = config.tables
    others = {
        "`schedule` = 'restart'": options.schedule == "restart",
        "`bootstrap`": config.run.bootstrap,
        "`weights`": bool(options.weights),
    }
    if options.replay and (found := [name for name, is_on in others.items() if is_on]):
        raise InputError(
            f"`replay` does not go with {found[0]}, got {options.replay!r}."
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
    _log.info("%d distinct new tokens are dropped: %s.", encoded.dropped_types, why)


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


def _with_replay(replay: Replay) -> Replay:
    """`replay` with draws by the counts of an epoch."""
    for each in (replay.new, *replay.earlier):
        if each.has_weights:
            raise InputError("`replay` does not go with weights of sessions.")
    new = _drawn_by(replay.new, replay.counts())
    return dataclasses.replace(replay, new=new)


def with_earlier_counts(
    known: BaseVocabulary, earlier: Sequence[EarlierCorpus], cache: Path | None = None
) -> BaseVocabulary:
    """`known` with the occurrences of its new tokens in earlier corpora, which count
    for `min_count`."""
    every = encoded_earlier(known, earlier, cache)
    return known._replace(earlier=counts_in(every, len(known.vocabulary)))


def encoded_earlier(
    known: BaseVocabulary, earlier: Sequence[EarlierCorpus], cache: Path | None = None
) -> list[Encoded]:
    """Earlier corpora as ids of `known`, without the sequences that they held out;
    those without a token of it are left out."""
    found = []
    for each in earlier:
        encoded = (
            encode(each.corpus, 1, known)
            if cache is None
            else encode_cached(each.corpus, 1, cache, known)
        )
        if each.holdout:
            encoded = without_held_out(encoded, each.holdout, each.num_tokens)
        found.append(encoded)
    return [each for each in found if each.num_tokens]


def counts_in(earlier: Iterable[Encoded], num_old: int) -> dict[str, int]:
    """Occurrences in earlier corpora of the tokens that are new to a model.

    Args:
      earlier: encoded with a vocabulary of their own, in which the tokens of the model
        are the first `num_old`.
    """
    found: Counter[str] = Counter()
    for each in earlier:
        vocabulary = each.vocabulary
        counts = vocabulary.counts[num_old:].tolist()
        found.update(dict(zip(vocabulary.tokens[num_old:], counts, strict=True)))
    return dict(found)
