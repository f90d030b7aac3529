"""Embeddings and predictions of examples by one trained network, or by K replicas."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import jax
import numpy as np

from embedder.base.limits import check_room
from embedder.encoders.artefact import EncoderFile
from embedder.encoders.networks.encoder import Encoder
from embedder.encoders.networks.network import Model
from embedder.encoders.outputs import (
    embed,
    embed_groups,
    load_model,
    output_groups,
    score_groups,
    softmax,
)
from embedder.engine.replicas import stack_states
from embedder.metrics.uncertainty import (
    EntropySplit,
    join_splits,
    log_likelihood,
    split_entropy,
)
from embedder.vectors.ensemble import nearest_orthogonal


class Predictions(NamedTuple):
    """Predictions of n examples that have labels."""

    split: EntropySplit
    log_likelihood: np.ndarray  # f64[n], of the labels, without any f64[0]


class Predictor(NamedTuple):
    """One trained network, or K replicas, as functions of features [n, ...].

    Axis letters: K replicas, 1 for one network; n examples, m examples of a group, E
    values of an embedding, C classes.
    """

    encoder: Encoder
    model: Model  # of replicas with K first
    has_replicas: bool

    @property
    def num_networks(self) -> int:
        """K."""
        return len(jax.tree.leaves(self.model)[0]) if self.has_replicas else 1

    @property
    def _num(self) -> int | None:
        """As of `embed_groups`."""
        return None if self.has_replicas else 1

    def predict(self, features: np.ndarray) -> EntropySplit:
        """Mean class probabilities and entropies; of one network its own, model 0."""
        groups = self._scores(features)
        return join_splits(split_entropy(softmax(each)) for each in groups)

    def predict_labelled(self, features: np.ndarray, labels: np.ndarray) -> Predictions:
        """Predictions, and the likelihood of the labels, i[n]."""
        return _predictions(self._scores(features), labels)

    def predict_and_embed(
        self,
        features: np.ndarray,
        rotations: np.ndarray | None,
        labels: np.ndarray | None = None,
    ) -> tuple[Predictions, np.ndarray]:
        """`predict_labelled` and `vectors`, in one use of the network."""
        encoder = self.encoder
        kinds = [x.dtype for x in (encoder, rotations) if x is not None]
        shape = len(features), encoder.network.vector_size
        vectors = np.empty(shape, np.result_type(*kinds))

        def scores_of_groups() -> Iterator[np.ndarray]:
            start = 0
            for outputs in output_groups(encoder, self.model, features, self._num):
                aligned = outputs.embeddings[0]
                if rotations is not None:
                    aligned = rotated_mean(outputs.embeddings, rotations)
                vectors[start : start + len(aligned)] = aligned
                start += len(aligned)
                yield outputs.scores

        return _predictions(scores_of_groups(), labels), vectors

    def each_probabilities(self, features: np.ndarray) -> np.ndarray:
        """The class probabilities by each replica, [K, n, C]."""
        groups = self._scores(features)
        return np.concatenate([softmax(each) for each in groups], axis=1)

    def rotations(self, features: np.ndarray) -> np.ndarray | None:
        """What aligns embeddings of replicas, [K, E, E]; None: one network."""
        if not self.has_replicas:
            return None
        return rotations_to_first(embed_groups(self.encoder, self.model, features))

    def vectors(self, features: np.ndarray, rotations: np.ndarray | None) -> np.ndarray:
        """Embeddings, [n, E]; of replicas the mean of those that `rotations` align."""
        if rotations is None:
            return embed(self.encoder, self.model, features)
        groups = embed_groups(self.encoder, self.model, features)
        return np.concatenate([rotated_mean(each, rotations) for each in groups])

    def each_vectors(self, features: np.ndarray, rotations: np.ndarray) -> np.ndarray:
        """The embeddings by each replica, aligned by `rotations`, [K, n, E].

        Raises:
          InputError: they do not fit in memory.
        """
        network, num = self.encoder.network, len(rotations)
        shape = num, len(features), network.vector_size
        needed = int(np.prod(shape)) * self.encoder.dtype.itemsize
        check_room(needed, f"Embeddings of {num} networks take", "give fewer examples")
        vectors, start = np.empty(shape, self.encoder.dtype), 0
        for each in embed_groups(self.encoder, self.model, features):
            stop = start + each.shape[1]
            np.matmul(each, rotations, out=vectors[:, start:stop])
            start = stop
        return vectors

    def _scores(self, features: np.ndarray) -> Iterator[np.ndarray]:
        """Scores of one group of examples after the other, [K, m, C]."""
        return score_groups(self.encoder, self.model, features, self._num)


def _predictions(
    groups: Iterable[np.ndarray], labels: np.ndarray | None
) -> Predictions:
    """Of scores of one group after the other, [K, m, C]."""
    splits, logs, start = [], [np.empty(0)], 0
    for each in groups:
        splits.append(split_entropy(softmax(each)))
        if labels is not None:
            group_labels = labels[start : start + each.shape[1]]
            logs.append(log_likelihood(each, group_labels))
            start += len(group_labels)
    return Predictions(join_splits(splits), np.concatenate(logs))


def predictor_of(model: EncoderFile) -> Predictor:
    """The network or the replicas of an encoder file."""
    models, has_replicas = model.models, model.rotations is not None
    encoder, first = load_model(model.network, models[0])
    return Predictor(
        encoder, stack_states(models) if has_replicas else first, has_replicas
    )


def rotations_to_first(groups: Iterable[np.ndarray]) -> np.ndarray:
    """The orthogonal R_k that minimise |U_k R_k - U_0|, [K, E, E] in the dtype of U.

    The first is the identity. Orthogonal Procrustes: `nearest_orthogonal`.

    Args:
      groups: U [K, n, E], as groups of examples, [K, m, E] each; one or more.
    """
    products: np.ndarray | None = None
    for each in groups:
        product = (each.mT @ each[0]).astype(np.float64)
        products = product if products is None else products + product
        dtype = each.dtype
    assert products is not None, "there are examples"
    rotations = nearest_orthogonal(products).astype(dtype)
    rotations[0] = np.eye(len(rotations[0]))
    return rotations


def rotated_mean(vectors: np.ndarray, rotations: np.ndarray) -> np.ndarray:
    """The mean [n, E] over replicas of their vectors [K, n, E] by their rotations."""
    return (vectors @ rotations).mean(axis=0)
