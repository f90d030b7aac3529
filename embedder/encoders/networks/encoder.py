"""A network as pure functions of its parameters."""

import functools
import math
from collections.abc import Callable
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


class Encoder(NamedTuple):
    """A network as pure functions of its parameters."""

    init: Callable[[], Model]  # draws the first parameters, in NumPy
    outputs: Callable[[Model, Array, Pass], tuple[Outputs, Any]]
    """Features [B, ...] -> outputs, and the moving averages after this use."""
    embed: Callable[[Model, Array], jax.Array]  # features [B, ...] -> [B, E]
    scores: Callable[[Model, Array], jax.Array]  # features [B, ...] -> [B, C]
    network: Network
    dtype: np.dtype


def make_encoder(
    network: Network,
    *,
    dtype: str | np.dtype,
    seed: int,
    precision: str = "highest",
    compute_dtype: str | np.dtype | None = None,
) -> Encoder:
    """The functions of `network`.

    Args:
      dtype: of parameters and outputs, float32 or float64.
      seed: of the first parameters.
      precision: of matrix products, as `jax.default_matmul_precision` takes it.
      compute_dtype: of the arithmetic, such as bfloat16; None: `dtype`.
    """
    dtype = np.dtype(dtype)
    inner = jnp.dtype(dtype if compute_dtype is None else compute_dtype)

    def build() -> Callable:
        embed, head = network.modules(Draws(seed))

        def outputs(x: jax.Array, use: Pass, with_scores: bool = True):
            hidden = embed(x, use)
            seen = jax.lax.stop_gradient(hidden) if use.is_detached else hidden
            return Outputs(hidden, head(seen, use) if with_scores else hidden[:, :0])

        return outputs

    transformed = hk.transform_with_state(build_call(build))

    def init() -> Model:
        example = jax.ShapeDtypeStruct((1, *network.example_shape), dtype)
        return _first_values(build, example)

    def apply(model: Model, x: Array, use: Pass, with_scores: bool = True):
        params = model.params
        if inner != dtype:
            params = jax.tree.map(lambda w: w.astype(inner), params)
        with jax.default_matmul_precision(precision):
            found, averages = transformed.apply(
                params, model.averages, None, scaled(x, inner), use, with_scores
            )
        return jax.tree.map(lambda y: y.astype(dtype), found), averages

    return Encoder(
        init,
        apply,
        lambda model, x: apply(model, x, Pass(), False)[0].embeddings,
        lambda model, x: apply(model, x, Pass())[0].scores,
        network,
        dtype,
    )


def build_call(build: Callable) -> Callable:
    """The function that builds the modules and calls them, as Haiku transforms it."""

    def call(*arguments):
        return build()(*arguments)

    return call


def scaled(x: Array, dtype: np.dtype) -> jax.Array:
    """Features [B, ...] in `dtype`; u8, such as pixels, becomes 0 to 1."""
    values = jnp.asarray(x)
    if values.dtype == np.uint8:
        return values.astype(dtype) / jnp.asarray(255, dtype)
    return values.astype(dtype)


def _first_values(build: Callable, example: jax.ShapeDtypeStruct) -> Model:
    """The parameters and averages that the network starts with.

    It is only traced: Haiku would use it on an example to find its parameters, one
    operation after the other, each of which is compiled.

    Args:
      example: shape and dtype of a batch of one example.
    """
    values: dict[str, dict[str, np.ndarray]] = {"params": {}, "averages": {}}

    def creator(kind: str) -> Callable:
        def create(_, shape, dtype, init, context):
            with jax.ensure_compile_time_eval():
                value = np.array(init(shape, dtype))
            values[kind][context.full_name] = value
            return jnp.asarray(value)

        return create

    def call(x: jax.Array):
        with (
            hk.custom_creator(creator("params")),
            hk.custom_creator(creator("averages"), params=False, state=True),
        ):
            return build()(x, Pass())

    with jax.enable_x64(True):  # else float64 becomes float32
        found = jax.eval_shape(hk.transform_with_state(call).init, None, example)

    def as_given(kind: str, shapes: dict) -> dict:
        return {
            module: {name: values[kind][f"{module}/{name}"] for name in arrays}
            for module, arrays in shapes.items()
        }

    params, averages = found
    return Model(as_given("params", params), as_given("averages", averages))


@functools.lru_cache(maxsize=32)
def model_shapes(network: Network) -> Model:
    """The shape and dtype of each array of the model, in float32."""
    model = make_encoder(network, dtype="float32", seed=0).init()
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), model)


def num_params(network: Network) -> int:
    """Number of all values of the parameters."""
    return sum(leaf.size for leaf in jax.tree.leaves(model_shapes(network).params))


@functools.lru_cache(maxsize=32)
def num_operations(network: Network) -> float:
    """Floating point operations to score one example, as XLA counts them."""
    encoder = make_encoder(network, dtype="float32", seed=0)
    x = jax.ShapeDtypeStruct((1, *network.example_shape), np.float32)
    model = model_shapes(network)
    costs = jax.jit(encoder.scores).lower(model, x).cost_analysis()
    return float((costs or {}).get("flops", math.nan))
