"""Embeddings and predictions of examples by one trained network, or by K replicas."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import jax
import numpy as np

from embedder.encoders.alignment import rotated_mean, rotations_to_first
from embedder.encoders.artefact import EncoderFile
from embedder.encoders.networks.encoder import Encoder
from embedder.encoders.networks.network import Model
from embedder.encoders.outputs import (
    embed,
    embed_replicas,
    load_encoder,
    network_outputs,
    replica_outputs,
    score_replicas,
    scores,
    softmax,
)
from embedder.encoders.uncertainty import (
    EntropySplit,
    join_splits,
    log_likelihood,
    split_entropy,
)
from embedder.engine.replicas import stack_states
from embedder.limits import check_room


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
        function = replica_outputs if self.has_replicas else network_outputs
        shape = len(features), self.encoder.network.vector_size
        dtype = self.encoder.dtype
        if rotations is not None:
            dtype = np.result_type(dtype, rotations.dtype)
        vectors = np.empty(shape, dtype)

        def scores_of_groups() -> Iterator[np.ndarray]:
            start = 0
            for found in function(self.encoder, self.model, features):
                aligned = _aligned(np.asarray(found.embeddings), rotations)
                vectors[start : start + len(aligned)] = aligned
                start += len(aligned)
                yield np.asarray(found.scores)

        return _predictions(scores_of_groups(), labels), vectors

    def each_probabilities(self, features: np.ndarray) -> np.ndarray:
        """The class probabilities by each replica, [K, n, C]."""
        groups = self._scores(features)
        return np.concatenate([softmax(each) for each in groups], axis=1)

    def rotations(self, features: np.ndarray) -> np.ndarray | None:
        """What aligns embeddings of replicas, [K, E, E]; None: one network."""
        if not self.has_replicas:
            return None
        return rotations_to_first(embed_replicas(self.encoder, self.model, features))

    def vectors(self, features: np.ndarray, rotations: np.ndarray | None) -> np.ndarray:
        """Embeddings, [n, E]; of replicas the mean of those that `rotations` align."""
        if rotations is None:
            return embed(self.encoder, self.model, features)
        groups = embed_replicas(self.encoder, self.model, features)
        return np.concatenate([_aligned(each, rotations) for each in groups])

    def each_vectors(self, features: np.ndarray, rotations: np.ndarray) -> np.ndarray:
        """The embeddings by each replica, aligned by `rotations`, [K, n, E].

        Raises:
          InputError: they do not fit in memory.
        """
        network, num = self.encoder.network, len(rotations)
        shape = num, len(features), network.vector_size
        needed = int(np.prod(shape)) * self.encoder.dtype.itemsize
        check_room(needed, f"Embeddings of {num} networks take", "give fewer examples")
        found, start = np.empty(shape, self.encoder.dtype), 0
        for each in embed_replicas(self.encoder, self.model, features):
            stop = start + each.shape[1]
            np.matmul(each, rotations, out=found[:, start:stop])
            start = stop
        return found

    def _scores(self, features: np.ndarray) -> Iterator[np.ndarray]:
        """Scores of one group of examples after the other, [K, m, C]."""
        if self.has_replicas:
            return score_replicas(self.encoder, self.model, features)
        return iter([scores(self.encoder, self.model, features)[np.newaxis]])


def _predictions(
    groups: Iterable[np.ndarray], labels: np.ndarray | None
) -> Predictions:
    """Of scores of one group after the other, [K, m, C]."""
    splits, logs, start = [], [np.empty(0)], 0
    for each in groups:
        splits.append(split_entropy(softmax(each)))
        if labels is not None:
            own = labels[start : start + each.shape[1]]
            logs.append(log_likelihood(each, own))
            start += len(own)
    return Predictions(join_splits(splits), np.concatenate(logs))


def _aligned(embeddings: np.ndarray, rotations: np.ndarray | None) -> np.ndarray:
    """The mean of those that `rotations` align, [m, E]; None: of one network."""
    return embeddings[0] if rotations is None else rotated_mean(embeddings, rotations)


def predictor_of(model: EncoderFile) -> Predictor:
    """The network or the replicas of an encoder file."""
    networks = [load_encoder(model.network, each) for each in model.replicas]
    if model.rotations is None:
        return Predictor(*networks[0], has_replicas=False)
    models = stack_states([model for _, model in networks])
    return Predictor(networks[0][0], models, has_replicas=True)
