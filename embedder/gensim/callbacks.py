"""Callbacks of a training, as of `gensim.models.callbacks`."""

from typing import Any


class CallbackAny2Vec:
    """Base class of callbacks of `Word2Vec.train`; override the methods you need.

    `model` has the vectors at that time. A callback may change them, and the next
    epoch starts from what it left.
    """

    def on_train_begin(self, model: Any) -> None:
        """Called before the first epoch."""

    def on_epoch_begin(self, model: Any) -> None:
        """Called before each epoch."""

    def on_epoch_end(self, model: Any) -> None:
        """Called after each epoch."""

    def on_train_end(self, model: Any) -> None:
        """Called after the last epoch."""
