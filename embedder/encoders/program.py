"""The compiled updates of a network."""

import dataclasses
import functools
from typing import Any

import optax

from embedder.encoders.augment import make_augment
from embedder.encoders.networks.encoder import Encoder, make_encoder
from embedder.encoders.networks.network import Network
from embedder.encoders.objectives import objective_for
from embedder.encoders.optimizers import (
    Schedule,
    after_options,
    arguments_of,
    learning_rate,
    make_optimizer,
)
from embedder.encoders.options import EncoderOptions
from embedder.encoders.own_rates import Varied
from embedder.encoders.update import (
    AXES,
    AXES_OF_IDS,
    Learning,
    pad_batches,
    replica_axes,
    updates_function,
)
from embedder.engine.compilation import convolution_options, enable_compilation_cache
from embedder.engine.layout import Layout
from embedder.engine.program import Placement, Program, place_updates
from embedder.engine.replicas import vmap_updates


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderProgram(Program):
    """The compiled updates of an encoder."""

    learning: Learning
    optimizer: optax.GradientTransformation

    @property
    def encoder(self) -> Encoder:
        """The network as functions."""
        return self.learning.encoder


def without_rates(options: EncoderOptions) -> EncoderOptions:
    """`options` of networks that read their rates from batches: one program for all."""
    return dataclasses.replace(options, learning_rate=0.01, optimizer_args=())


@functools.lru_cache(maxsize=8)
def make_encoder_program(
    network: Network,
    options: EncoderOptions,
    optimizer_name: str,
    dtype: str,
    seed: int,
    layout: Layout,
    is_resident: bool,
    has_replicas: bool = False,
    bootstrap: bool = False,
    varied: Varied | None = None,
    schedule: Schedule | None = None,
    class_weights: tuple[float, ...] = (),
    optimizer: optax.GradientTransformation | None = None,
) -> EncoderProgram:
    """The compiled updates of `network`; cached, so that they compile only once.

    Args:
      seed: of the first parameters that `encoder.init` draws.
      is_resident: whether all features stay on the devices, so that batches are ids.
      has_replicas: whether the program is of replicas, `engine.replicas`.
      bootstrap: whether these have weights of their own.
      varied: the numbers of the optimizer that these read from their batches; its
        `optimizer` then has others.
      schedule: None: the learning rate is constant.
      class_weights: as of `objective_for`.
      optimizer: in place of the one that the settings name.
    """
    enable_compilation_cache()
    inner = None if options.compute_dtype == "same" else options.compute_dtype
    learning = Learning(
        make_encoder(
            network,
            dtype=dtype,
            seed=seed,
            precision=options.precision,
            compute_dtype=inner,
        ),
        objective_for(options, class_weights),
        make_augment(options.augment) if options.augment else None,
        options.micro_batches,
        options.average,
        options.freeze_modules,
    )

    def optimizer_of(rates: Any = None) -> optax.GradientTransformation:
        if varied is not None and rates is not None:
            return varied.optimizer_of(rates, options, schedule)
        if optimizer is not None:
            return after_options(optimizer, options)
        rate = learning_rate(options, optimizer_name)
        arguments = arguments_of(options)
        return make_optimizer(optimizer_name, rate, arguments, options, schedule)

    updates = updates_function(learning, optimizer_of, layout.exchange)
    placement = Placement(
        AXES_OF_IDS if is_resident else AXES,
        0,  # all arrays of the state are replicated
        lambda state: state,
        lambda state: state,
        lambda batch: pad_batches(batch, layout.num_blocks(options.batch_size)),
    )
    if has_replicas:
        axes = replica_axes(is_resident, bootstrap)
        updates, placement = vmap_updates(updates, placement, axes)
    program = place_updates(updates, layout, placement, convolution_options())
    return EncoderProgram(learning=learning, optimizer=optimizer_of(), **vars(program))
