"""Names of arguments in gensim that an `EmbeddingTrainer` has by another name."""

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from embedder.errors import InputTypeError

_Self = TypeVar("_Self")
_Arguments = ParamSpec("_Arguments")
_OF_FIT = "the first argument of `fit`"
SUCCESSORS = {
    "batch_words": "not needed",
    "callbacks": "`callbacks` of `fit`",
    "compute_loss": "not needed: `loss_history` has it",
    "corpus_file": _OF_FIT,
    "hashfxn": "not needed: `seed` alone counts",
    "iter": "`epochs`",
    "max_final_vocab": "`min_count`",
    "max_vocab_size": "not needed",
    "sentences": _OF_FIT,
    "sg": "`architecture`: 'skipgram' for sg=1, 'cbow' for sg=0",
    "size": "`vector_size`",
    "sorted_vocab": "not needed: tokens are sorted by their counts",
    "trim_rule": "`min_count`",
}
"""Argument of gensim's Word2Vec -> what it is here."""


def names_successors(
    constructor: Callable[Concatenate[_Self, _Arguments], None],
) -> Callable[Concatenate[_Self, _Arguments], None]:
    """`constructor`, whose error for an argument of gensim says what it is here."""

    @functools.wraps(constructor)
    def call(
        self: _Self, /, *arguments: _Arguments.args, **options: _Arguments.kwargs
    ) -> None:
        check_names(constructor.__qualname__, options)
        constructor(self, *arguments, **options)

    return call


def check_names(called: str, options: dict[str, Any]) -> None:
    """Raises InputTypeError for a name in `options` that only gensim has."""
    for name in options:
        if name in SUCCESSORS:
            error = InputTypeError(
                f"{called}() got an unexpected keyword argument {name!r}"
            )
            error.add_note(
                f"gensim's `{name}` is {SUCCESSORS[name]} here; "
                "embedder.gensim.Word2Vec takes it."
            )
            raise error
