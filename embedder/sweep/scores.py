"""Scores of trials: each is a function of a trained model, and more is better."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from embedder.config import Config, with_options
from embedder.encoders.outputs import evaluate
from embedder.encoders.training import EncoderTraining
from embedder.encoders.update import model_of
from embedder.engine.state import TrainState
from embedder.errors import InputError
from embedder.evaluation.ranking import next_item
from embedder.tables import heldout
from embedder.tables.file_measures import PAIRS
from embedder.tables.measures import (
    HELD_OUT,
    NEXT_ITEM,
    TOPN,
    check_ranks_items,
    held_out_sequences,
)
from embedder.tables.training import Training
from embedder.vectors.evaluate import ScoredPairs

Choice = Literal["auto", "held-out", "next-item", "pairs", "val-loss", "val-accuracy"]
_HOLDOUT, _VALIDATION = 0.05, 0.1  # shares, where none is given

Scorer = Callable[[Any, TrainState], float]
"""The score of a model, from its config and its state."""


class Score(NamedTuple):
    """What trials are compared by."""

    name: str
    sign: int  # -1: less is better, so its negative is compared
    scorer: Callable[[Any], Scorer]  # of a training


def score_of(choice: Choice, config: Config, pairs: Path | None) -> Score:
    """The score of that name; auto: held-out, of an encoder val-loss.

    Raises:
      InputError: it is of another family, or lacks the file of pairs.
    """
    family = config.run.model
    if choice == "auto":
        choice = "val-loss" if family == "encoder" else "held-out"
    if (choice == "pairs") != (pairs is not None):
        raise InputError(
            "`score` pairs needs --pairs FILE, which applies only to it, got `score` "
            f"{choice!r} and `pairs` {pairs and str(pairs)!r}."
        )
    scores = {
        "tokens": {
            "held-out": Score(HELD_OUT, 1, _held_out),
            "next-item": Score(NEXT_ITEM, 1, _next_item),
            "pairs": Score(PAIRS, 1, lambda training: _spearman(training, pairs)),
        },
        "encoder": {
            "val-loss": Score(
                "val_loss", -1, lambda training: _validation(training, 0)
            ),
            "val-accuracy": Score(
                "val_accuracy", 1, lambda training: _validation(training, 1)
            ),
        },
    }[family]
    if choice not in scores:
        raise InputError(
            f"`score` must be {' or '.join(map(repr, scores))} with `model` = "
            f"{family!r}, got {choice!r}."
        )
    if family == "tokens" and config.tables.walks and choice != "pairs":
        raise InputError(
            f"`score` must be 'pairs' with `walks`, which hold out nothing, got "
            f"{choice!r}."
        )
    return scores[choice]


def with_held_out(config: Config, score: Score) -> Config:
    """`config`, which holds out what `score` is measured on: 5 % of the sequences, or
    10 % of the examples, where it does not say how many."""
    if score.name in (HELD_OUT, NEXT_ITEM) and not config.tables.holdout:
        return with_options(config, holdout=_HOLDOUT)
    if score.name.startswith("val_") and not config.encoder.validation_fraction:
        return with_options(config, validation_fraction=_VALIDATION)
    return config


def _held_out(training: Training) -> Scorer:
    encoded = training.encoded
    share = training.config.tables.holdout
    sequences = held_out_sequences(encoded, share, "held-out")

    def score(config: Config, state: TrainState) -> float:
        tables = state.params["tables"]
        return heldout.log_likelihood(
            config.tables,
            np.asarray(tables["input"]),
            np.asarray(tables["output"]),
            encoded.vocabulary.counts,
            sequences,
        ).mean

    return score


def _next_item(training: Training) -> Scorer:
    encoded = training.encoded
    share = training.config.tables.holdout
    check_ranks_items(training.config.tables, "The score next-item")
    sequences = held_out_sequences(encoded, share, "next-item")

    def score(config: Config, state: TrainState) -> float:
        tables = {name: np.asarray(x) for name, x in state.params["tables"].items()}
        counts = encoded.vocabulary.counts
        return next_item(
            *(tables["input"], counts, sequences, TOPN),
            output=tables["output"][: len(counts)],
        ).hit_rate

    return score


def _spearman(training: Training, path: Path | None) -> Scorer:
    assert path is not None, "`score_of` checks it"
    pairs = ScoredPairs(str(path), training.encoded.vocabulary.tokens)

    def score(config: Config, state: TrainState) -> float:
        return pairs.score(np.asarray(state.params["tables"]["input"])).spearman

    return score


def _validation(training: EncoderTraining, which: int) -> Scorer:
    """Minus the loss (0), or the accuracy (1), on the validation examples."""
    examples, encoder = training.examples, training.program.encoder
    ids = training.validation
    if not len(ids):
        raise InputError(
            f"`validation_fraction` {training.config.encoder.validation_fraction} of "
            f"{len(examples.labels)} examples leaves none to score on: give a larger "
            "one."
        )

    def score(config: Config, state: TrainState) -> float:
        found = evaluate(
            encoder, model_of(state), examples.features, examples.labels, ids
        )
        return -found[0] if which == 0 else found[1]

    return score
