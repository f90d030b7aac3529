"""`EmbeddingTrainer`: skip-gram and CBOW with negative sampling or hierarchical
softmax, in NumPy."""

import inspect
import logging
import math
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from legacy.blocks import cut_shards, default_block
from legacy.hogwild import run_workers
from legacy.huffman import NO_TREE, huffman_tree
from legacy.model import (
    Model,
    adagrad_accumulators,
    check_settings,
    default_alpha,
    default_blocks_per_update,
    default_cap,
    num_output_tables,
    num_summed,
    read_model,
    write_model,
)
from legacy.noise import build_noise_table
from legacy.subwords import NO_SUBWORDS, Subwords, compose, initial_rows, subwords
from legacy.update import Arrays, LossSum, Plan, State, train_epochs
from legacy.vocabulary import (
    Text,
    build_vocabulary,
    encode,
    keep_limit,
    read_text,
    row_updates,
)

Source = Iterable[Iterable[str]] | str | os.PathLike

_logger = logging.getLogger(__name__)


class EmbeddingTrainer:
    """Trains a vector for each token of a corpus, so that tokens used alike are near.

    The constructor checks and stores the arguments, under their names; it does no work.
    They may be set anew before a training. An error during training leaves the trainer
    as it was.

    Args:
        vector_size: dimensions of a vector.
        window: largest distance of a context; each token draws its own from 1 to this.
        negative: negatives that a pair counts for; 0, only with `hs`: none.
        min_count: tokens that occur less often are dropped.
        sample: tokens above this share of the corpus are downsampled; 0 keeps all.
        ns_exponent: noise is drawn in proportion to count ** ns_exponent.
        alpha, min_alpha: learning rate at the start and the end; it falls linearly.
            None: by the updates that rows get, see `model.default_alpha`.
        epochs: passes over the corpus.
        architecture: "skipgram" predicts the contexts of a token, "cbow" a token from
            their mean, or their sum.
        seed: of the initial vectors and of every draw.
        workers: processes; more than 1 are faster, but not reproducible. A script that
            has them needs `if __name__ == "__main__":`.
        block: tokens in a block, a multiple of `tile`. None: 64, or the next one.
        tile: tokens that share noise ids. 1 is the classic form, with `noise=negative`.
        noise: noise ids of a tile.
        cap: pair steps by which an update of SGD may move a row. None: 1.6 / alpha, see
            `model.default_cap`; Adagrad has none.
        blocks_per_update: blocks whose gradients are summed into one update. None: by
            the size of the corpus, see `model.default_blocks_per_update`.
        dtype: of the tables and of all arithmetic on them.
        optimizer: "sgd", capped, or "adagrad" by rows; see `update.apply_update`.
        hs: hierarchical softmax, beside negative sampling if `negative` is not 0.
        subwords: () or the least and the most characters of the n-grams whose rows make
            the vectors of words, see `legacy/subwords.py`; by SGD and one worker.
        buckets: numbers of n-grams.
        cbow_mean: False: of CBOW, sums of contexts.

    Raises:
        TypeError, ValueError: an argument breaks its rule, which the message says.
    """

    def __init__(
        self,
        *,
        vector_size: int = 100,
        window: int = 5,
        negative: int = 5,
        min_count: int = 5,
        sample: float = 1e-3,
        ns_exponent: float = 0.75,
        alpha: float | None = None,
        min_alpha: float = 1e-4,
        epochs: int = 5,
        architecture: str = "skipgram",
        seed: int = 1,
        workers: int = 1,
        block: int | None = None,
        tile: int = 16,
        noise: int = 32,
        cap: float | None = None,
        blocks_per_update: int | None = None,
        dtype: str = "float32",
        optimizer: str = "sgd",
        hs: bool = False,
        subwords: Sequence[int] = (),
        buckets: int = 2_000_000,
        cbow_mean: bool = True,
    ):
        arguments = {name: value for name, value in locals().items() if name != "self"}
        vars(self).update(check_settings(arguments))
        self._model: Model | None = None
        self._index: dict[str, int] = {}

    def __repr__(self) -> str:
        arguments = ", ".join(f"{k}={v!r}" for k, v in self._settings().items())
        return f"EmbeddingTrainer({arguments})"

    def fit(self, sequences_or_path: Source) -> "EmbeddingTrainer":
        """Builds the vocabulary and trains `epochs` epochs from fresh tables.

        Args:
            sequences_or_path: token lists, read once, or the path of a text file with a
                sequence a line, tokens apart by white space; `.gz` is read as gzip.

        Raises:
            FileNotFoundError, ValueError, TypeError: as `vocabulary.read_text`.
            ValueError: no token occurs `min_count` times.
            FloatingPointError: training diverged.
            RuntimeError: a worker failed.
        """
        check_settings(self._settings())
        text = read_text(sequences_or_path)
        return self._keep(self._trained(self._fresh_model(text), text, self.epochs))

    def partial_fit(self, sequences_or_path: Source) -> "EmbeddingTrainer":
        """Trains one epoch more, with the vocabulary that it has, or builds it first.

        Tokens that are not in the vocabulary are dropped. The rate falls from `alpha`
        to `min_alpha` once more. Arguments and errors: as `fit`.
        """
        check_settings(self._settings())
        text = read_text(sequences_or_path)
        model = self._model or self._fresh_model(text)
        model = model._replace(tables=model.tables.copy())
        if model.subwords is not None:
            model = model._replace(subwords=model.subwords.copy())
        return self._keep(self._trained(model, text, 1))

    @property
    def vectors(self) -> np.ndarray:
        """The input table, [V, D] of `dtype`; a row is the vector of a token.

        It is read-only.
        """
        table = self._learned().tables[0]
        table.flags.writeable = False  # of this view; training changes a copy
        return table

    @property
    def index_to_key(self) -> list[str]:
        """The tokens, by descending count."""
        return self._learned().tokens

    @property
    def key_to_index(self) -> dict[str, int]:
        """The row of each token."""
        self._learned()
        return self._index

    @property
    def loss_history(self) -> list[float]:
        """Mean loss of a pair (CBOW: of a centre) in each epoch trained."""
        return self._model.loss_history if self._model else []

    def most_similar(
        self,
        positive: str | Sequence[str] | None = None,
        negative: str | Sequence[str] | None = None,
        topn: int = 10,
    ) -> list[tuple[str, float]]:
        """The `topn` tokens nearest to the mean of unit vectors, and their cosines.

        Args:
            positive, negative: tokens to add and to subtract; they are left out.

        Raises:
            KeyError: a token is not in the vocabulary.
        """
        if isinstance(topn, bool) or not hasattr(topn, "__index__"):
            raise TypeError(f"`topn` must be an integer >= 1, got {topn!r}.")
        if topn < 1:
            raise ValueError(f"`topn` must be an integer >= 1, got {topn!r}.")
        units = _unit(self.vectors)
        added, taken = self._rows(positive), self._rows(negative)
        if not added + taken:
            raise ValueError("`positive` or `negative` must have a token, got none.")
        query = units[added].sum(axis=0) - units[taken].sum(axis=0)
        cosines = units @ _unit(query)
        order = np.argsort(-cosines, kind="stable").tolist()
        asked = {*added, *taken}
        found = [row for row in order[: topn + len(asked)] if row not in asked]
        return [(self.index_to_key[i], float(cosines[i])) for i in found[:topn]]

    def similarity(self, a: str, b: str) -> float:
        """Cosine of the vectors of two tokens.

        Raises:
            KeyError: a token is not in the vocabulary.
        """
        first, second = _unit(self.vectors[self._rows([a, b])])
        return float(first @ second)

    def save(self, path: str | os.PathLike) -> None:
        """Writes arguments and all that training has made to `path`, an `.npz` file."""
        write_model(path, self._settings(), self._learned())

    @classmethod
    def load(cls, path: str | os.PathLike) -> "EmbeddingTrainer":
        """The trainer that `save` wrote; it goes on as if it had never stopped.

        Raises:
            ValueError: the file is not a whole model file.
        """
        settings, model = read_model(path)
        return cls(**settings)._keep(model)

    def _settings(self) -> dict[str, Any]:
        return {k: getattr(self, k) for k in inspect.signature(type(self)).parameters}

    def _keep(self, model: Model) -> "EmbeddingTrainer":
        self._model = model
        self._index = {token: row for row, token in enumerate(model.tokens)}
        return self

    def _learned(self) -> Model:
        if self._model is None:
            raise RuntimeError("The trainer is not trained yet: call `fit` first.")
        return self._model

    def _rows(self, tokens: str | Sequence[str] | None) -> list[int]:
        tokens = [tokens] if isinstance(tokens, str) else tokens or []
        for token in tokens:
            if token not in self._index:
                raise KeyError(f"Token {token!r} is not in the vocabulary.")
        return [self._index[token] for token in tokens]

    def _fresh_model(self, text: Text) -> Model:
        tokens, counts = build_vocabulary(text, self.min_count)
        block = self.block or default_block(self.tile)
        tables = initial_tables(
            len(tokens),
            self.vector_size,
            self.seed,
            self.dtype,
            1 + num_output_tables(self._settings()),
        )
        model = Model(tokens, counts, block, tables, loss_history=[])
        if not self.subwords:
            return model
        found = self._subwords(model)
        rows = initial_rows(found, tables[0], self.seed)
        tables[0] = compose(found, rows)
        return model._replace(subwords=rows)

    def _subwords(self, model: Model) -> Subwords:
        if not self.subwords:
            return NO_SUBWORDS
        return subwords(model.tokens, model.counts, self.subwords, self.buckets)

    def _trained(self, model: Model, text: Text, epochs: int) -> Model:
        """`model` after `epochs` more, its tables changed in place."""
        corpus = cut_shards(*encode(text, model.tokens))
        if not corpus.ids.size:
            _logger.warning("No token of the corpus is in the vocabulary.")
        noise_table = build_noise_table(model.counts, self.ns_exponent)
        keep = keep_limit(model.counts, self.sample)
        tree = huffman_tree(model.counts) if self.hs else NO_TREE
        found = self._subwords(model)
        arrays = Arrays(*corpus, keep, *noise_table, *tree, *found[:-1])
        model = model._replace(accumulators=self._accumulators(model))
        state = State(model.tables, model.accumulators, model.subwords)
        arguments = state.arrays, arrays, self._plan(model, epochs, found.scale)
        if self.workers == 1:
            losses = train_epochs(state, *arguments[1:], worker=0, num_workers=1)
        else:
            of_workers = run_workers(train_epochs, *arguments, self.workers)
            losses = [_total(parts) for parts in zip(*of_workers, strict=True)]
        means = [loss / terms if terms else 0.0 for loss, terms in losses]
        return model._replace(loss_history=model.loss_history + means)

    def _accumulators(self, model: Model) -> np.ndarray | None:
        """A copy of what Adagrad goes on with; none for SGD."""
        if self.optimizer == "sgd":
            return None
        return adagrad_accumulators(model).copy()

    def _plan(self, model: Model, epochs: int, scale: float) -> Plan:
        num_tokens = int(model.counts.sum())
        num_blocks = self.blocks_per_update or default_blocks_per_update(
            num_tokens, model.block
        )
        first_epoch = len(model.loss_history)
        alpha = self.alpha or default_alpha(
            self.architecture,
            row_updates(model.counts, self.sample),
            self.optimizer,
            first_epoch + epochs,
            num_blocks,
            num_summed(self._settings()),
        )
        cap = math.inf
        if self.optimizer == "sgd":
            cap = self.cap or default_cap(alpha, model.block * num_blocks)
        return Plan(
            seed=self.seed,
            first_epoch=first_epoch,
            epochs=epochs,
            architecture=self.architecture,
            window=self.window,
            negative=self.negative,
            block=model.block,
            tile=self.tile,
            noise=self.noise,
            blocks_per_update=num_blocks,
            cap=cap,
            alpha=alpha,
            min_alpha=self.min_alpha,
            hs=self.hs,
            scale=scale,
            cbow_mean=self.cbow_mean,
        )


def initial_tables(
    num_tokens: int, size: int, seed: int, dtype: str, num_tables: int = 2
) -> np.ndarray:
    """Tables [num_tables, V, D]: input uniform on (-0.5, 0.5) / D, the others 0."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))
    uniform = rng.random((num_tokens, size), dtype=np.float32)
    scalar = np.dtype(dtype).type
    tables = np.zeros((num_tables, num_tokens, size), dtype)
    tables[0] = (uniform.astype(dtype) - scalar(0.5)) / scalar(size)
    return tables


def _total(losses: Iterable[LossSum]) -> LossSum:
    return LossSum(*map(sum, zip(*losses, strict=True)))


def _unit(vectors: np.ndarray) -> np.ndarray:
    """The vectors [..., D] at length 1; zero vectors stay."""
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.maximum(length, np.finfo(vectors.dtype).tiny)
