"""What settings know of architectures and optimizers over tokens, without JAX.

A new one is a file and an entry here. What it computes is in `implementation`, a name
"MODULE:NAME" that `pkgutil.resolve_name` reads; what must be known to check and to
resolve settings is beside it.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple


class Architecture(NamedTuple):
    """What predicts what in a window of tokens, and its default learning rate."""

    implementation: str
    """Of a `tokens.objective.Architecture`."""
    predicts: Literal["contexts", "token"]
    """contexts: a token predicts each of its contexts; token: they predict it."""
    alpha_factor: Callable[[float], float]
    """Contexts of a token, on average -> its default rate over that of skip-gram."""
    is_mean: bool = True
    """Whether contexts that predict a token do so by their mean, not by their sum."""
    with_sums: "Architecture | None" = None
    """The same with sums, for `cbow_mean` False; None: this one."""
    distance_decay: float = 1.0
    """Weight of a context to that of one a position nearer."""
    is_softmax: bool = False
    """Whether scores are of a softmax over tokens, without the noise distribution."""


_CBOW_SUMS = Architecture(
    "embedder.tokens.cbow:CBOW_SUMS",
    predicts="token",
    # It moves all of its contexts by a gradient that is not divided by their number.
    alpha_factor=lambda num_contexts: min(6 / num_contexts, 1),
    is_mean=False,
)
DISTANCE_DECAY = 0.5
"""Of cbow-softmax: as `metrics.ranking.DECAY` weights the items of a query."""
ARCHITECTURES = {
    "skipgram": Architecture(
        "embedder.tokens.skipgram:SKIPGRAM", "contexts", lambda num_contexts: 1
    ),
    "cbow": Architecture(
        "embedder.tokens.cbow:CBOW",
        predicts="token",
        alpha_factor=lambda num_contexts: 4,  # the gradient is divided by their number
        with_sums=_CBOW_SUMS,
    ),
    "cbow-softmax": Architecture(
        "embedder.tokens.cbow_softmax:CBOW_SOFTMAX",
        predicts="token",
        alpha_factor=lambda num_contexts: 4,
        distance_decay=DISTANCE_DECAY,
        is_softmax=True,
    ),
}
"""The values of `architecture`."""


class Optimizer(NamedTuple):
    """What settings know of a rule for the rows of tables."""

    implementation: str
    """Of a function that returns a `train.rules.RowRule`; it takes
    `max_pairs_per_row`, if the rule has it."""
    limits_pairs: bool
    """Whether `max_pairs_per_row` applies."""
    alpha: float | None = None
    """Default learning rate for any corpus; None: `default_alpha` of the corpus."""


ADAGRAD_ALPHA = 0.2
"""Learning rate of Adagrad at the start, for any corpus, ALGORITHM.md (53)."""

OPTIMIZERS = {
    "sgd": Optimizer("embedder.engine.rules:capped_sgd", limits_pairs=True),
    "adagrad": Optimizer(
        "embedder.engine.rules:rowwise_adagrad",
        limits_pairs=False,
        alpha=ADAGRAD_ALPHA,
    ),
}
"""The values of `optimizer` for tables."""
