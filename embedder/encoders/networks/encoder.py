"""A network as pure functions of its parameters."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from embedder.encoders.networks.network import Array, Draws, Model, Network, Pass


class Outputs(NamedTuple):
    """What a network says of a batch, in the dtype of the encoder."""

    embeddings: jax.Array  # [B, E]
    scores: jax.Array  # [B, C], see `head_of`


@dataclass(frozen=True)
class Encoder:
    """A network as pure functions of its parameters.

    Functions are compiled once for all equal encoders.
    """

    network: Network
    dtype: np.dtype  # of parameters and outputs, float32 or float64; also its name
    seed: int = 0  # of the first parameters
    precision: str = "highest"  # of products, as of `jax.default_matmul_precision`
    compute_dtype: str = "same"  # of the arithmetic, such as bfloat16; same: `dtype`

    def __post_init__(self):
        object.__setattr__(self, "dtype", np.dtype(self.dtype))

    def init(self) -> Model:
        """The first parameters and averages, in NumPy."""
        values: dict[str, np.ndarray] = {}

        def create(_, shape, dtype, init, context):
            with jax.ensure_compile_time_eval():
                value = np.array(init(shape, dtype))
            values[context.full_name] = value
            return jnp.asarray(value)

        params, averages = (
            {
                module: {name: values[f"{module}/{name}"] for name in arrays}
                for module, arrays in shapes.items()
            }
            for shapes in self._shapes(create)
        )
        return Model(params, averages)

    def shapes(self) -> Model:
        """The shape and dtype of each array of `init`, without drawing any."""
        return self._shapes(
            lambda _, shape, dtype, init, context: jnp.zeros(shape, dtype)
        )

    def _shapes(self, create: Callable) -> Model:
        """The shapes of all arrays, each of which `create` has made once.

        The network is only traced: Haiku would use it on an example, one operation
        after the other, each of which is compiled.
        """

        def call(x: jax.Array):
            with (
                hk.custom_creator(create),
                hk.custom_creator(create, params=False, state=True),
            ):
                return self._build()(x, Pass())

        example = jax.ShapeDtypeStruct((1, *self.network.example_shape), self.dtype)
        with jax.enable_x64(True):  # else float64 becomes float32
            return Model(
                *jax.eval_shape(hk.transform_with_state(call).init, None, example)
            )

    def embed(self, model: Model, x: Array) -> jax.Array:
        """Embeddings [B, E] of features [B, ...]."""
        return self.outputs(model, x, Pass(), with_scores=False)[0].embeddings

    def scores(self, model: Model, x: Array) -> jax.Array:
        """Scores [B, C] of features [B, ...], see `head_of`."""
        return self.outputs(model, x, Pass())[0].scores

    def outputs(
        self, model: Model, x: Array, use: Pass, with_scores: bool = True
    ) -> tuple[Outputs, Any]:
        """Outputs for features [B, ...], and the moving averages after this use."""
        is_same = self.compute_dtype == "same"
        inner = self.dtype if is_same else jnp.dtype(self.compute_dtype)
        params = model.params
        if inner != self.dtype:
            params = jax.tree.map(lambda w: w.astype(inner), params)
        # Haiku transforms the function that builds the modules and calls them.
        call = hk.transform_with_state(lambda *batch: self._build()(*batch))
        with jax.default_matmul_precision(self.precision):
            outputs, averages = call.apply(
                params, model.averages, None, scaled(x, inner), use, with_scores
            )
        return jax.tree.map(lambda y: y.astype(self.dtype), outputs), averages

    def _build(self) -> Callable:
        embed, head = self.network.modules(Draws(self.seed))

        def outputs(x: jax.Array, use: Pass, with_scores: bool = True):
            hidden = embed(x, use)
            seen = jax.lax.stop_gradient(hidden) if use.is_detached else hidden
            return Outputs(hidden, head(seen, use) if with_scores else hidden[:, :0])

        return outputs


def scaled(x: Array, dtype: np.dtype) -> jax.Array:
    """Features [B, ...] in `dtype`; u8, such as pixels, becomes 0 to 1."""
    values = jnp.asarray(x)
    if values.dtype == np.uint8:
        return values.astype(dtype) / jnp.asarray(255, dtype)
    return values.astype(dtype)


@functools.lru_cache(maxsize=32)
def model_shapes(network: Network) -> Model:
    """The shape and dtype of each array of the model, in float32."""
    return Encoder(network, np.dtype("float32")).shapes()


def num_params(network: Network) -> int:
    """Number of all values of the parameters."""
    return sum(leaf.size for leaf in jax.tree.leaves(model_shapes(network).params))


@functools.lru_cache(maxsize=32)
def num_operations(network: Network) -> float:
    """Floating point operations to score one example, as XLA counts them."""
    encoder = Encoder(network, np.dtype("float32"))
    x = jax.ShapeDtypeStruct((1, *network.example_shape), np.float32)
    model = model_shapes(network)
    costs = jax.jit(encoder.scores).lower(model, x).cost_analysis()
    return float((costs or {}).get("flops", math.nan))
