"""What an encoder learns: losses of embeddings and scores.

To add an objective: write a frozen dataclass like `Softmax`, and name it in
`config.encoder_options.OBJECTIVES`. Each is checked against plain NumPy:
migration/parity/objectives.py.

Axis letters: A examples of a device, each once for every view; N those of all devices;
E values of an embedding, C classes.
"""

import math
import pkgutil
from collections.abc import Hashable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax

from embedder.config.encoder_options import OBJECTIVES, EncoderOptions, parse_arguments
from embedder.encoders.networks.encoder import Outputs
from embedder.encoders.networks.network import unit
from embedder.engine.collectives import Collectives
from embedder.errors import InputError


class Targets(NamedTuple):
    """What the examples of a device are to become."""

    labels: jax.Array  # i32[A]
    weights: jax.Array  # [A], 0 for padding
    places: jax.Array  # i32[A], the place in the batch of all devices; views differ
    mixed: jax.Array | None = None  # [A, C], shares of classes after mixup


class Terms(NamedTuple):
    """The loss is the sum of losses of all devices over that of counts."""

    losses: jax.Array  # [A]
    counts: jax.Array  # [A]


class Objective(Hashable, Protocol):
    """A loss of the outputs of a batch."""

    @property
    def views(self) -> int:
        """How often an example is in the batch, each time augmented anew."""

    @property
    def trains_head(self) -> bool:
        """Whether the loss has scores; else a head is trained beside it."""

    @property
    def needs_whole_batch(self) -> bool:
        """Whether examples meet: a batch has no parts then."""

    @property
    def scale(self) -> float:
        """Scores are this times cosines; 0: they are linear in embeddings."""

    def most_loss(self, num_classes: int, num_examples: int) -> float:
        """A loss that no network has which knows nothing: of scores that are alike, or
        the bound of an objective that has one.

        Args:
          num_examples: of a batch.
        """

    def check_labels(self, counts: np.ndarray) -> None:
        """Checks that there are examples to compare.

        Args:
          counts: i[C], training examples of each class.

        Raises:
          InputError: there are none.
        """

    def counts(self, labels: jax.Array, weights: jax.Array) -> jax.Array:
        """The counts of `terms`, [A], of an objective that takes parts of a batch."""

    def terms(self, outputs: Outputs, targets: Targets, exchange: Collectives) -> Terms:
        """The losses of this device's examples."""


@dataclass(frozen=True)
class Softmax:
    """Cross entropy of the scores s: -sum_c t_c log softmax(s)_c, (23), with t the
    label, of which `smoothing` is spread over all classes (Szegedy et al. 2015,
    arXiv:1512.00567), (82)."""

    smoothing: float = 0.0
    class_weights: tuple[float, ...] = ()  # of each class; none: all are 1
    scale: ClassVar[float] = 0.0
    views: ClassVar[int] = 1
    trains_head: ClassVar[bool] = True
    needs_whole_batch: ClassVar[bool] = False

    def most_loss(self, num_classes: int, num_examples: int) -> float:
        return math.log(max(2, num_classes))

    def check_labels(self, counts: np.ndarray) -> None:
        """Any labels will do."""

    def terms(self, outputs: Outputs, targets: Targets, exchange: Collectives) -> Terms:
        return self._terms(outputs.scores, targets)

    def counts(self, labels: jax.Array, weights: jax.Array) -> jax.Array:
        if not self.class_weights:
            return weights
        return weights * jnp.asarray(self.class_weights, weights.dtype)[labels]

    def _terms(self, scores: jax.Array, targets: Targets) -> Terms:
        counts = self.counts(targets.labels, targets.weights)
        if not self.smoothing and targets.mixed is None:
            losses = optax.softmax_cross_entropy_with_integer_labels(
                scores, targets.labels
            )
            return Terms(losses * counts, counts)
        num_classes = scores.shape[-1]
        shares = targets.mixed
        if shares is None:
            shares = jax.nn.one_hot(targets.labels, num_classes, dtype=scores.dtype)
        shares = (1 - self.smoothing) * shares + self.smoothing / num_classes
        return Terms(optax.softmax_cross_entropy(scores, shares) * counts, counts)


@dataclass(frozen=True)
class ArcFace(Softmax):
    """Additive angular margin (Deng et al. 2018, arXiv:1801.07698, eq. 3), (83).

    Scores are `scale` times cosines; that of the label is scale cos(theta + margin).
    Past theta = pi - margin it is cos(theta) - margin sin(margin), which still falls.
    A margin of 0 is normalised softmax.
    """

    margin: float = 0.3
    scale: float = 16.0  # type: ignore[misc]

    def most_loss(self, num_classes: int, num_examples: int) -> float:
        # Past theta = pi - margin the score of the label may be below -scale.
        return 2 * self.scale * (1 + self.margin) + math.log(max(2, num_classes))

    def terms(self, outputs: Outputs, targets: Targets, exchange: Collectives) -> Terms:
        cosines = outputs.scores / self.scale
        own = jnp.take_along_axis(cosines, targets.labels[:, None], axis=1)
        limit = 1 - 2 * jnp.finfo(own.dtype).eps  # the root has no slope at 1
        bounded = jnp.clip(own, -limit, limit)
        sine = jnp.sqrt(1 - bounded**2)
        turned = bounded * math.cos(self.margin) - sine * math.sin(self.margin)
        past = own - self.margin * math.sin(self.margin)
        turned = jnp.where(own > -math.cos(self.margin), turned, past)
        is_own = jax.nn.one_hot(targets.labels, cosines.shape[1], dtype=bool, axis=-1)
        return self._terms(self.scale * jnp.where(is_own, turned, cosines), targets)


class _OfPairs:
    """An objective that compares the examples of a whole batch."""

    scale: ClassVar[float] = 0.0
    trains_head: ClassVar[bool] = False
    needs_whole_batch: ClassVar[bool] = True

    def counts(self, labels: jax.Array, weights: jax.Array) -> jax.Array:
        raise NotImplementedError("a batch has no parts")

    def check_labels(self, counts: np.ndarray) -> None:
        if counts.max() < 2:
            name = type(self).__name__.lower()
            raise InputError(
                f"`objective` {name} compares examples of a class, and none of the "
                f"{counts.sum():,} training examples has another of its class: give "
                "labels that repeat."
            )


class _Pairs(NamedTuple):
    """This device's examples beside those of all devices."""

    products: jax.Array  # [A, N] of embeddings of length 1
    is_positive: jax.Array  # bool[A, N]: another example of the same label
    is_negative: jax.Array  # bool[A, N]: an example of another label
    weights: jax.Array  # [N]


def _pairs(
    outputs: Outputs, labels: jax.Array, targets: Targets, exchange: Collectives
) -> _Pairs:
    own = unit(outputs.embeddings)
    every, all_labels, weights, places = exchange.all_blocks(
        (own, labels, targets.weights, targets.places)
    )
    is_other = targets.places[:, None] != places[None]
    is_same = labels[:, None] == all_labels[None]
    counts = (weights > 0)[None]
    return _Pairs(
        own @ every.T, is_same & is_other & counts, ~is_same & counts, weights
    )


@dataclass(frozen=True)
class SupCon(_OfPairs):
    """Supervised contrastive loss (Khosla et al. 2020, arXiv:2004.11362, eq. 2), (84):

        L_i = -1 / |P(i)| sum_{p in P(i)} log( exp(z_i z_p / t) /
                                               sum_{a != i} exp(z_i z_a / t) )

    with z of length 1, P(i) the other examples of the label of i, and temperature t.
    Examples without another of their label do not count.
    """

    temperature: float = 0.1
    views: int = 1

    def most_loss(self, num_classes: int, num_examples: int) -> float:
        return 2 / self.temperature + math.log(max(2, self.views * num_examples))

    def check_labels(self, counts: np.ndarray) -> None:
        if self.views == 1:  # else the other view is of its class
            super().check_labels(counts)

    def labels(self, targets: Targets) -> jax.Array:
        """What examples that are near have in common, i32[A]."""
        return targets.labels

    def terms(self, outputs: Outputs, targets: Targets, exchange: Collectives) -> Terms:
        pairs = _pairs(outputs, self.labels(targets), targets, exchange)
        scores = pairs.products / self.temperature
        is_candidate = pairs.is_positive | pairs.is_negative
        log_sums = jax.nn.logsumexp(
            jnp.where(is_candidate, scores, -jnp.inf), axis=1, where=is_candidate
        )
        weights = jnp.where(pairs.is_positive, pairs.weights[None], 0)
        totals = weights.sum(1)
        log_sums = jnp.where(totals > 0, log_sums, 0)  # else it may be of nothing
        means = (weights * scores).sum(1) / jnp.maximum(totals, 1e-30)
        counts = jnp.where(totals > 0, targets.weights, 0)
        return Terms((log_sums - means) * counts, counts)


@dataclass(frozen=True)
class SimCLR(SupCon):
    """NT-Xent (Chen et al. 2020, arXiv:2002.05709, eq. 1), (85): (84) of two views of
    each example, without labels; the other view is the one positive example."""

    temperature: float = 0.5
    views: ClassVar[int] = 2  # type: ignore[misc]

    def labels(self, targets: Targets) -> jax.Array:
        return targets.places // 2


@dataclass(frozen=True)
class Triplet(_OfPairs):
    """Triplet loss with semi-hard negatives (Schroff et al. 2015, arXiv:1503.03832,
    section 3.2), (86).

    For each anchor a and positive p: max(0, d_ap - d_an + margin), of squared distances
    between embeddings of length 1. n is the nearest negative that is farther than p; if
    there is none, the farthest negative.
    """

    margin: float = 0.5
    views: ClassVar[int] = 1

    def most_loss(self, num_classes: int, num_examples: int) -> float:
        return 4 + self.margin

    def check_labels(self, counts: np.ndarray) -> None:
        super().check_labels(counts)
        if np.count_nonzero(counts) < 2:
            raise InputError(
                "`objective` triplet compares examples of two classes, and all "
                "training examples have one."
            )

    def terms(self, outputs: Outputs, targets: Targets, exchange: Collectives) -> Terms:
        pairs = _pairs(outputs, targets.labels, targets, exchange)
        distances = 2 - 2 * pairs.products

        def of_anchor(distance, is_positive, is_negative):
            # [positive p, negative n], both over all N
            is_farther = is_negative[None] & (distance[None] > distance[:, None])
            nearest = jnp.where(is_farther, distance[None], jnp.inf).min(1)
            farthest = jnp.where(is_negative, distance, -jnp.inf).max()
            chosen = jnp.where(is_farther.any(1), nearest, farthest)
            is_pair = is_positive & is_negative.any()
            losses = jnp.maximum(0, distance - chosen + self.margin)
            weights = jnp.where(is_pair, pairs.weights, 0)
            return (jnp.where(is_pair, losses, 0) * weights).sum(), weights.sum()

        losses, counts = jax.lax.map(
            lambda each: of_anchor(*each),
            (distances, pairs.is_positive, pairs.is_negative),
            batch_size=16,
        )
        return Terms(losses * targets.weights, counts * targets.weights)


def objective_for(options: EncoderOptions) -> Objective:
    """The objective of the settings; all weights of classes are 1.

    Raises:
      InputError: it has no such argument, or a value is out of bounds.
    """
    kind = pkgutil.resolve_name(OBJECTIVES[options.objective].implementation)
    names = [f.name for f in fields(kind)]
    if "class_weights" in names:
        names.remove("class_weights")
    elif options.class_weights != "equal":
        raise InputError(
            "`class_weights` applies to `objective` softmax and arcface, got "
            f"{options.class_weights!r} with {options.objective}."
        )
    texts = options.objective_args
    arguments: dict[str, Any] = {**parse_arguments(texts, "objective_args")}
    for name, value in arguments.items():
        if name not in names:
            raise InputError(
                f"`objective_args` of {options.objective} must be of "
                f"{', '.join(names)}, got {name!r}."
            )
        rule, is_valid = _BOUNDS.get(name, _POSITIVE)
        if isinstance(value, bool) or not is_valid(value):
            raise InputError(
                f"`objective_args` of {options.objective}: {name} must be {rule}, got "
                f"{value!r}."
            )
    if "views" in arguments:
        arguments["views"] = int(arguments["views"])
    return kind(**arguments)


_BOUNDS: dict[str, tuple[str, Any]] = {
    "smoothing": ("a number in [0, 1)", lambda x: 0 <= x < 1),
    "margin": ("a number in [0, 2]", lambda x: 0 <= x <= 2),
    "views": ("1 or 2", lambda x: x in (1, 2)),
}
_POSITIVE = "a number > 0", lambda x: 0 < x < math.inf
