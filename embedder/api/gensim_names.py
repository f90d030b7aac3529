"""Names of gensim's Word2Vec that an `EmbeddingTrainer` has by another name."""

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from embedder.errors import InputTypeError

_Self = TypeVar("_Self")
_Arguments = ParamSpec("_Arguments")
_OF_FIT = "the first argument of `fit`"
SUCCESSORS = {
    "batch_words": "not needed",
    "bucket": "`buckets`",
    "callbacks": "`callbacks` of `fit`",
    "comment": "not needed: keep it beside the trainer",
    "compute_loss": "not needed: `loss_history` has it",
    "corpus_file": _OF_FIT,
    "hashfxn": "not needed: `seed` alone counts",
    "iter": "`epochs`",
    "max_final_vocab": "`min_count`",
    "max_n": "`subwords`, (min_n, max_n)",
    "max_vocab_size": "not needed",
    "min_n": "`subwords`, (min_n, max_n)",
    "null_word": "a token of your own in the sequences",
    "sentences": _OF_FIT,
    "sg": "`architecture`: 'skipgram' for sg=1, 'cbow' for sg=0",
    "shrink_windows": "of `train_epochs`; `fit` draws the window of each token",
    "size": "`vector_size`",
    "sorted_vocab": "not needed: tokens are sorted by their counts",
    "trim_rule": "`min_count`",
    "word_ngrams": "not needed: it can only be 1",
}
"""Argument of gensim's Word2Vec or FastText -> what it is here."""

_OF_FASTTEXT = "bucket", "max_n", "min_n", "word_ngrams"
ATTRIBUTES = {
    "build_vocab": "`fit`, which makes the vocabulary, or `partial_fit` with `grow`",
    "get_latest_training_loss": "`loss_history`",
    "train": "`fit`, or `partial_fit` to go on",
    "wv": "the trainer itself, as in trainer['word'] and trainer.most_similar('word')",
}
"""Attribute of gensim's Word2Vec -> what it is here."""


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
    """Raises InputTypeError for a name, or a value of `hs`, that only gensim has."""
    hs = options.get("hs")
    if isinstance(hs, int) and not isinstance(hs, bool):
        error = InputTypeError(f"`hs` must be True or False, got {hs!r}.")
        error.add_note(f"gensim's hs={hs} is hs={hs > 0} here.")
        raise error
    for name in options:
        if name in SUCCESSORS:
            error = InputTypeError(
                f"{called}() got an unexpected keyword argument {name!r}"
            )
            error.add_note(_note(name, SUCCESSORS[name], "takes"))
            raise error


def missing_attribute(owner: Any, name: str) -> AttributeError:
    """The error for an attribute that `owner` has not."""
    error = AttributeError(
        f"{type(owner).__name__!r} object has no attribute {name!r}",
        name=name,
        obj=owner,
    )
    if successor := ATTRIBUTES.get(name) or SUCCESSORS.get(name):
        error.add_note(_note(name, successor, "has"))
    return error


def _note(name: str, successor: str, verb: str) -> str:
    kind = "FastText" if name in _OF_FASTTEXT else "Word2Vec"
    return f"gensim's `{name}` is {successor} here; embedder.gensim.{kind} {verb} it."
