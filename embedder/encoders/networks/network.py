"""What a network is: modules of Haiku over features, and the facts that they need.

To add a network: write a file beside this one with a frozen dataclass like `ConvSmall`,
and name it in `config.encoder_options.NETWORKS`. Nothing else knows which networks
there are, except the oracle, and `registry`, which knows that of `legacy`.

Axis letters: B examples of a batch, E values of an embedding, C classes.
"""

import dataclasses
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from embedder.config.encoder_options import EncoderOptions
from embedder.engine.collectives import Collectives
from embedder.errors import InputError

Array = jax.Array | np.ndarray
Params = Mapping[str, Mapping[str, Array]]
"""Parameters of a network as Haiku has them: {module: {name: array}}."""

Layer = tuple[np.ndarray, np.ndarray]
"""Weights [in, out] and biases [out] of a linear layer."""

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
    exchange: Collectives = Collectives()  # sums over the examples of all devices
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

    name: ClassVar[str]  # of `config.encoder_options.NETWORKS`
    default_schedule: ClassVar[str]  # the `rate_schedule` that auto is
    needs_images: ClassVar[bool]  # else it takes features of any shape
    head: Head  # a field, which the objective sets

    @classmethod
    def is_auto(cls, options: EncoderOptions, example_shape: tuple[int, ...]) -> bool:
        """Whether auto is this network, unless one after it in `NETWORKS` says so."""

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, np.ndarray]) -> "Network | None":
        """The network with these parameters, where its scores are linear; None: its
        settings have to tell it.

        Raises:
          InputError: there is none.
        """

    @classmethod
    def of_settings(
        cls, options: EncoderOptions, example_shape: tuple[int, ...], num_classes: int
    ) -> "Network":
        """The network of the settings for such examples, whose scores are linear.

        Raises:
          InputError: the settings do not fit it, or the examples.
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

    def linear_layers(self, model: Model) -> list[Layer] | None:
        """The layers from the features on; None: not all of them are linear."""

    def to_arrays(self, model: Model) -> dict[str, np.ndarray]:
        """The model as named arrays of an encoder file."""

    def to_model(self, arrays: Mapping[str, np.ndarray]) -> Model:
        """The model that `to_arrays` made `arrays` of."""

    def with_features(self, model: Model, rows: Sequence[int]) -> Model:
        """The model for features [B, F] in another order.

        Args:
          rows: [F], where each of them is among those of `model`.

        Raises:
          InputError: features of such a network have no order.
        """


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
    default_schedule: ClassVar[str] = "cosine"
    needs_images: ClassVar[bool] = True
    cpu_overhead: ClassVar[float] = 1.0

    example_shape: tuple[int, ...]
    num_classes: int
    projection: int = 0  # E, of a linear layer after `hidden`; 0: there is none
    head: Head = 0.0

    @classmethod
    def is_auto(cls, options: EncoderOptions, example_shape: tuple[int, ...]) -> bool:
        return False

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, np.ndarray]) -> "BaseNetwork | None":
        return None

    @classmethod
    def of_settings(
        cls, options: EncoderOptions, example_shape: tuple[int, ...], num_classes: int
    ) -> "BaseNetwork":
        if options.layers:
            raise InputError(
                f"`layers` is of `network` mlp, got it with {cls.name!r}: give "
                "--network-args."
            )
        return cls(
            example_shape=example_shape,
            num_classes=num_classes,
            projection=options.embedding_size,
            **_own_arguments(cls, options.network_args),
        )

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
    def arguments(self) -> dict[str, Any]:
        """The values of the fields that a network of this class has for its own."""
        return {name: getattr(self, name) for name in _own_fields(type(self))}

    @property
    def settings(self) -> dict[str, Any]:
        own = self.arguments
        for name, value in own.items():
            own[name] = str(value).lower() if isinstance(value, bool) else value
        return {
            "network": self.name,
            "network_args": tuple(f"{name}={x}" for name, x in own.items()),
            "embedding_size": self.projection,
        }

    def modules(self, draws: Draws) -> tuple[Forward, Forward]:
        hidden = self.hidden(draws)
        head = head_of(self.head, self.num_classes, draws)

        def embed(x: jax.Array, use: Pass) -> jax.Array:
            h = hidden(x.reshape(x.shape[0], *self.example_shape), use)
            if not self.projection:
                return h
            last = hk.Linear(self.projection, w_init=draws.linear, name="projection")
            return last(h)

        return embed, head

    def linear_layers(self, model: Model) -> list[Layer] | None:
        return None

    def to_arrays(self, model: Model) -> dict[str, np.ndarray]:
        return jax.tree.map(np.asarray, named_arrays(model))

    def to_model(self, arrays: Mapping[str, np.ndarray]) -> Model:
        return named_model(arrays)

    def with_features(self, model: Model, rows: Sequence[int]) -> Model:
        raise InputError(
            f"Features of `network` {self.name} have one order: give it as trained."
        )


def check_images(network: str, shape: tuple[int, ...]) -> None:
    """Refuses examples that are no images [H, W] or [H, W, C].

    Raises:
      InputError: they are none.
    """
    if len(shape) not in (2, 3):
        raise InputError(
            f"`network` {network} needs images [height, width] or [height, width, "
            f"channels], got examples {list(shape)}."
        )


def _own_fields(network: type[BaseNetwork]) -> dict[str, dataclasses.Field]:
    """The arguments of a class of networks, by their names."""
    shared = {f.name for f in dataclasses.fields(BaseNetwork)}
    fields = dataclasses.fields(network)
    return {f.name: f for f in fields if f.name not in shared}


def _own_arguments(network: type[BaseNetwork], texts: Iterable[str]) -> dict[str, Any]:
    """Values of `_own_fields`, of texts such as depth=28.

    Raises:
      InputError: there is no such field, or a value is not of its type.
    """
    fields, arguments = _own_fields(network), {}
    for text in texts:
        name, _, value = text.partition("=")
        name = name.replace("-", "_")
        if name not in fields:
            raise InputError(
                f"`network_args` of {network.name} must be of {', '.join(fields)}, got "
                f"{name!r}."
            )
        rule, read, is_valid = _RULES[type(fields[name].default)]
        try:
            arguments[name] = read(value)
            is_right = is_valid(arguments[name])
        except (KeyError, ValueError):
            is_right = False
        if not is_right:
            raise InputError(
                f"`network_args` of {network.name}: {name} must be {rule}, got "
                f"{value!r}."
            )
    return arguments


_RULES: dict[type, tuple[str, Callable[[str], Any], Callable[[Any], bool]]] = {
    bool: (
        *("true or false", lambda x: {"true": True, "false": False}[x.lower()]),
        lambda x: True,
    ),
    int: ("an integer >= 1", int, lambda x: x >= 1),
    float: ("a number in [0, 1)", float, lambda x: 0 <= x < 1),
    str: ("a text", str, lambda x: True),
}
"""Of each type: what a value must be, how it is read, and whether it is valid."""


def named_arrays(model: Model) -> dict[str, Any]:
    """The arrays of any model, or what stands for them, by KIND/MODULE/NAME: kinds are
    params and averages."""
    return {
        f"{kind}/{module}/{name}": value
        for kind, tree in zip(Model._fields, model, strict=True)
        for module, values in tree.items()
        for name, value in values.items()
    }


def named_model(arrays: Mapping[str, Any]) -> Model:
    """The model that `named_arrays` made `arrays` of."""
    trees: dict[str, dict[str, Any]] = {kind: {} for kind in Model._fields}
    for path, value in arrays.items():
        kind, _, rest = path.partition("/")
        module, _, name = rest.rpartition("/")
        trees[kind].setdefault(module, {})[name] = value
    return Model(**trees)
