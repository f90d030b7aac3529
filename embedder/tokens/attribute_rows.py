"""Attributes of items in a training: what they go with, and those of a base."""

import logging
from collections.abc import Sequence

from embedder.config import Config
from embedder.config.token_objectives import OPTIMIZERS
from embedder.errors import InputError
from embedder.tokens.artefact import ModelFile
from embedder.tokens.initialization import Initialization
from embedder.vectors.attributes import Attributes

_FEW = 0.5  # of the vocabulary: fewer items with attributes are told
_log = logging.getLogger(__name__)


def attributes_with_base(
    new: Attributes | None, base: ModelFile | None
) -> Attributes | None:
    """The attributes of a training that starts from a model: those of keys in `new`,
    and of other keys those of the model.

    Raises:
      InputError: the model was trained without.
    """
    if base is None:
        return new
    if base.attributes is None and new is not None:
        raise InputError(
            "`attributes` need a base that was trained with attributes: leave them "
            "out, or train from the start."
        )
    if base.attributes is None or new is None:
        return base.attributes
    return base.attributes.updated(new)


def check_attributes(
    attributes: Attributes | None,
    config: Config,
    start: Initialization,
    is_update: bool,
) -> None:
    """Raises InputError for settings that do not go with rows that items share."""
    if attributes is None:
        return
    options, optimizer = config.tables, config.run.optimizer
    if not OPTIMIZERS[optimizer].limits_pairs:
        raise InputError(
            f"`optimizer` must be 'sgd' with `attributes`, got {optimizer!r}."
        )
    if is_update and options.schedule == "continue":
        raise InputError(
            "`schedule` must be 'restart' for an update of a model with `attributes`, "
            "got 'continue'."
        )
    others = {
        "subwords": options.subwords,
        "replay": options.replay,
        "init_from": start.vectors and start.vectors.shown,
        "freeze": start.freeze,
        "update": options.update if options.update != "rows" else "",
        "table_sharding": "rows" if options.table_sharding == "rows" else "",
    }
    for name, value in others.items():
        if value:
            raise InputError(f"`{name}` {value} does not go with `attributes`.")


def known_attributes(
    attributes: Attributes | None, tokens: Sequence[str], key_type: str = "text"
) -> Attributes | None:
    """`attributes`, of which those have rows that a token of the vocabulary has.

    Args:
      key_type: of the tokens; of "integer" other keys are left out.

    Raises:
      InputError: no token has one.
    """
    if attributes is None:
        return None
    if key_type == "integer":
        num_keys = len(attributes.keys)
        attributes = attributes.with_integer_keys()
        if others := num_keys - len(attributes.keys):
            _log.warning(
                "`attributes`: %d of %d keys are left out: they are no integers, as "
                "the items are.",
                *(others, num_keys),
            )
    share = len({*attributes.keys} & {*tokens}) / len(tokens)
    if 0 < share < _FEW:
        _log.warning(
            "`attributes`: only %.1f %% of the vocabulary has one; the first keys are "
            "%s, those of the vocabulary %s.",
            *(100 * share, ", ".join(attributes.keys[:3]), ", ".join(tokens[:3])),
        )
    if not share:
        raise InputError(
            "`attributes` has no key of the vocabulary: its first keys are "
            f"{', '.join(attributes.keys[:3])}, those of the vocabulary "
            f"{', '.join(tokens[:3])}."
        )
    return attributes.known(tokens)
