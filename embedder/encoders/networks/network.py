"""What a network is: modules of Haiku over features, and the facts that they need.

To add a network: write a file beside this one with a frozen dataclass like `ConvSmall`,
and list it in `registry.NETWORKS`. Nothing else knows which networks there are, except
`FeatureEncoder.layers_`, which knows the `MLP`, and the oracle, migration/parity.

Axis letters: B examples of a batch, E values of an embedding, C classes.
"""

import dataclasses
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from embedder.engine.exchange import Exchange

Array = jax.Array | np.ndarray
Params = Mapping[str, Mapping[str, Array]]
"""Parameters of a network as Haiku has them: {module: {name: array}}."""

Initializer = Callable[[Sequence[int], Any], jax.Array]
"""Shape and dtype to the first values of a parameter, as Haiku calls it."""


class Model(NamedTuple):
    """All that a network computes with, a pytree."""

    params: Params
    averages: Params = {}  # noqa: RUF012 - of batch normalisation, if there is any


class Pass(NamedTuple):
    """One use of a network on a batch."""

    is_training: bool = False
    keys: jax.Array | None = None  # [B], a key of random numbers of each example
    weights: jax.Array | None = None  # [B], 0 for padding; None: all are 1
    exchange: Exchange = Exchange()  # sums over the examples of all devices
    is_detached: bool = False  # whether the head learns without the layers before it


class Draws:
    """First values of parameters, drawn in order by one generator of NumPy.

    The fan-in, the number of inputs of an output, is the product of all axes but the
    last: of weights [in, out], of convolution kernels [height, width, in, out].
    """

    def __init__(self, seed: int):
        self._rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))

    def __call__(self, shape: Sequence[int], dtype: Any) -> jax.Array:
        """Uniform with variance 2 / fan-in, for ReLU (He et al. 2015,
        arXiv:1502.01852)."""
        return self._uniform(shape, dtype, 6 / math.prod(shape[:-1]))

    def linear(self, shape: Sequence[int], dtype: Any) -> jax.Array:
        """Uniform with variance 1 / fan-in, where no ReLU follows."""
        return self._uniform(shape, dtype, 3 / math.prod(shape[:-1]))

    def small(self, shape: Sequence[int], dtype: Any) -> jax.Array:
        """Uniform with standard deviation 0.02, of tokens and positions."""
        return self._uniform(shape, dtype, 3 * 0.02**2)

    def _uniform(self, shape: Sequence[int], dtype: Any, square: float) -> jax.Array:
        values = (2 * self._rng.random(tuple(shape)) - 1) * square**0.5
        return jnp.asarray(values.astype(dtype))


Forward = Callable[[jax.Array, Pass], jax.Array]

Head = float
"""How scores follow from an embedding: the scale of `head_of`."""


class Network(Hashable, Protocol):
    """An architecture without parameters, as a frozen dataclass.

    It is a key of caches: networks of two classes must not be equal.
    """

    @property
    def settings(self) -> dict[str, Any]:
        """The values of `EncoderOptions` that give this network; others have defaults.

        A run keeps them in its settings, and its encoder file stores them.
        """

    @property
    def example_shape(self) -> tuple[int, ...]:
        """Shape of the features of an example; those of a batch may be flattened."""

    @property
    def vector_size(self) -> int:
        """E, the number of values of an embedding."""

    @property
    def num_classes(self) -> int:
        """C, the number of scores."""

    @property
    def needs_keys(self) -> bool:
        """Whether training draws random numbers: dropout, or stochastic depth."""

    @property
    def cpu_overhead(self) -> float:
        """Memory of an update on a CPU over that of its values: room within layers."""

    def modules(self, draws: Draws) -> tuple[Forward, Forward]:
        """The functions [B, ...] -> [B, E] and [B, E] -> [B, C], of Haiku modules.

        Called inside a Haiku transform; features are scaled, see `scaled`.
        """

    def to_arrays(self, model: Model) -> dict[str, np.ndarray]:
        """The model as named arrays of an encoder file."""

    def to_model(self, arrays: Mapping[str, np.ndarray]) -> Model:
        """The model that `to_arrays` made `arrays` of."""


def head_of(scale: Head, num_classes: int, draws: Draws) -> Forward:
    """The last layer, [B, E] -> [B, C].

    Scores are h W + b if `scale` is 0, else `scale` times the cosines of h and the
    columns of W, as objectives with margins need them.
    """
    if not scale:
        linear = hk.Linear(num_classes, w_init=draws, name=CLASSES)
        return lambda h, use: linear(h)
    return _Cosine(num_classes, scale, draws, name=CLASSES)


CLASSES = "classes"
"""Name of the module of the last layer."""


class _Cosine(hk.Module):
    def __init__(self, num_classes: int, scale: float, draws: Draws, name: str):
        super().__init__(name=name)
        self.num_classes, self.scale, self.draws = num_classes, scale, draws

    def __call__(self, h: jax.Array, use: Pass) -> jax.Array:
        shape = h.shape[-1], self.num_classes
        weights = hk.get_parameter("w", shape, h.dtype, init=self.draws)
        return self.scale * (unit(h) @ unit(weights, axis=0))


def unit(x: jax.Array, axis: int = -1) -> jax.Array:
    """`x` with vectors of length 1 along `axis`; a vector of zeros stays, with gradient
    0: it has no direction."""
    squares = (x * x).sum(axis, keepdims=True)
    has_length = squares >= jnp.finfo(x.dtype).tiny
    inverse = jax.lax.rsqrt(jnp.where(has_length, squares, 1))
    return x * jnp.where(has_length, inverse, 0)


@dataclass(frozen=True, kw_only=True)
class BaseNetwork:
    """What networks of images have in common; their own fields are `network_args`."""

    name: ClassVar[str]
    cpu_overhead: ClassVar[float] = 1.0

    example_shape: tuple[int, ...]
    num_classes: int
    projection: int = 0  # E, of a linear layer after `hidden`; 0: there is none
    head: Head = 0.0

    @property
    def hidden_size(self) -> int:
        """Number of values that `hidden` returns for an example."""
        raise NotImplementedError

    @property
    def needs_keys(self) -> bool:
        raise NotImplementedError

    def hidden(self, draws: Draws) -> Forward:
        """The function [B, ...] -> [B, hidden_size], of Haiku modules."""
        raise NotImplementedError

    @property
    def vector_size(self) -> int:
        return self.projection or self.hidden_size

    @property
    def settings(self) -> dict[str, Any]:
        texts = (f"{name}={_text(value)}" for name, value in self.arguments.items())
        return {
            "network": self.name,
            "network_args": tuple(texts),
            "embedding_size": self.projection,
        }

    @property
    def arguments(self) -> dict[str, Any]:
        """The values of the fields that a network of this class has for its own."""
        return {name: getattr(self, name) for name in own_fields(type(self))}

    def modules(self, draws: Draws) -> tuple[Forward, Forward]:
        hidden = self.hidden(draws)
        head = head_of(self.head, self.num_classes, draws)

        def embed(x: jax.Array, use: Pass) -> jax.Array:
            found = hidden(x.reshape(x.shape[0], *self.example_shape), use)
            if not self.projection:
                return found
            return hk.Linear(self.projection, w_init=draws.linear, name="projection")(
                found
            )

        return embed, head

    def to_arrays(self, model: Model) -> dict[str, np.ndarray]:
        return named_arrays(model)

    def to_model(self, arrays: Mapping[str, np.ndarray]) -> Model:
        return named_model(arrays)


def own_fields(network: type[BaseNetwork]) -> dict[str, dataclasses.Field]:
    """The arguments of a class of networks, by their names."""
    shared = {f.name for f in dataclasses.fields(BaseNetwork)}
    fields = dataclasses.fields(network)
    return {f.name: f for f in fields if f.name not in shared}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_PARAMS, _AVERAGES = "params", "averages"


def named_arrays(model: Model) -> dict[str, np.ndarray]:
    """The arrays of any model, named params/MODULE/NAME and averages/MODULE/NAME."""
    return {
        f"{kind}/{module}/{name}": np.asarray(value)
        for kind, tree in ((_PARAMS, model.params), (_AVERAGES, model.averages))
        for module, values in tree.items()
        for name, value in values.items()
    }


def named_model(arrays: Mapping[str, np.ndarray]) -> Model:
    """The model that `named_arrays` made `arrays` of."""
    trees: dict[str, dict[str, dict[str, np.ndarray]]] = {_PARAMS: {}, _AVERAGES: {}}
    for path, value in arrays.items():
        kind, _, rest = path.partition("/")
        module, _, name = rest.rpartition("/")
        trees[kind].setdefault(module, {})[name] = value
    return Model(trees[_PARAMS], trees[_AVERAGES])
