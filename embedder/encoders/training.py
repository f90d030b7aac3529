"""Training of an encoder, without files: a config over examples."""

import dataclasses
import functools
import hashlib
import itertools
import math
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import optax

from embedder.config import Config, with_options
from embedder.encoders import update as classify
from embedder.encoders.batches import (
    BatchSource,
    epoch_updates,
    split,
    updates_of_a_call,
)
from embedder.encoders.examples import Examples
from embedder.encoders.networks import Encoder, encoder, initial_params
from embedder.encoders.options import EncoderOptions, parse_arguments
from embedder.encoders.outputs import judged
from embedder.encoders.update import AXES, AXES_OF_IDS, Batches
from embedder.engine.compilation import avoid_slow_scatters, enable_compilation_cache
from embedder.engine.devices import Demand, capacity, pick_layout
from embedder.engine.epochs import Metrics
from embedder.engine.feed import local_blocks, sharded_batches
from embedder.engine.layout import Layout, mesh_of
from embedder.engine.loop import CallResult, run_calls
from embedder.engine.program import Placement, Program, place_updates
from embedder.engine.rules import optimizer_by_name
from embedder.engine.state import TrainState
from embedder.errors import InputError

_HIDDEN = 128  # width of the one hidden layer where no layers are given


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderProgram(Program):
    """The compiled part of a run of an encoder."""

    encoder: Encoder
    optimizer: optax.GradientTransformation


class EncoderTraining:
    """What a run is made of, but for its state: a config over examples.

    Raises:
      TypeError, ValueError: the config and the examples, or the devices, do not fit.
    """

    unit = "examples"
    rate_name = "learning_rate"
    metrics = ("train_loss", "train_accuracy", "val_loss", "val_accuracy")
    divergence_message = "training diverged. Give a smaller `learning_rate`."
    memory_advice = "give --loader tfdata, smaller `layers` or a smaller `batch_size`."
    zero_loss_message = "Every example is told for certain: nothing is learned."
    backend = "xla"

    def __init__(self, config: Config, examples: Examples, epochs: range):
        options = config.encoder
        self.widths = widths_of(options.layers, examples)
        self.config = with_options(config, layers=self.widths)
        self.examples = examples
        self.epochs = epochs
        avoid_slow_scatters()
        demand = Demand(
            num_blocks=options.batch_size,
            device_bytes=lambda layout: self.device_memory,
            option="batch_size",
        )
        self.layout, self._why = pick_layout(config.devices, demand)
        train, self._held = split(
            len(examples.labels), config.encoder.validation_fraction
        )
        if not len(train):
            raise InputError(
                f"`validation_fraction` {options.validation_fraction} of "
                f"{len(examples.labels)} examples leaves none to train on."
            )
        self.source = BatchSource(
            examples,
            train,
            options.batch_size,
            config.run.seed,
            epochs,
            local_blocks(self.layout, options.batch_size),
        )
        limit = config.save.interval.updates
        self.superblock_size = updates_of_a_call(config.run.loader, self.source, limit)
        self._is_resident = config.run.loader == "memory"
        self._check_device()
        self.program = make_encoder_program(
            self.widths,
            dataclasses.replace(options, layers=self.widths),
            config.run.optimizer,
            config.run.dtype,
            config.run.seed,
            self.layout,
            self._is_resident,
        )
        self._resident: tuple[jax.Array, jax.Array] | None = None

    @property
    def content(self) -> str:
        """Digest of the classes and labels."""
        digest = hashlib.sha256("\n".join(self.examples.classes).encode())
        digest.update(self.examples.labels.tobytes())
        return digest.hexdigest()

    @property
    def items(self) -> int:
        """Examples of an epoch."""
        return len(self.source.train)

    @property
    def start_loss(self) -> float:
        """Of a guess."""
        return math.log(max(2, self.widths[-1]))

    @property
    def devices_line(self) -> str:
        """Which devices take part, and why."""
        kind = jax.devices()[0].device_kind
        if self.layout.mode == "jit":
            return f"1 ({kind}): {self._why}"
        return f"{self.layout.num_devices} ({kind}) by {self.layout.mode}: {self._why}"

    @property
    def description(self) -> list[str]:
        """The examples, as lines of text."""
        source, examples = self.source, self.examples
        return [
            f"examples: {len(examples.labels)} of {len(examples.classes)} classes, "
            f"{len(source.train)} to train on, in {source.num_batches} updates an epoch"
        ]

    @property
    def memory(self) -> dict[str, int]:
        """Bytes that a run needs at most, by what needs them, beside Python and JAX."""
        features = self.examples.features
        call = self.superblock_size * self.source.batch_size * features[:1].nbytes
        is_mapped = isinstance(features, np.memmap)
        loader = self.config.run.loader
        return {
            "parameters": 4 * self._parameter_bytes,
            "features": 0 if is_mapped else features.nbytes,
            "features on the device": features.nbytes if self._is_resident else 0,
            "batches": 0 if self._is_resident else 6 * call,
            "vectors to write": 2 * len(features) * self.widths[-2] * self._itemsize,
            "TensorFlow": 650 * 2**20 if loader == "tfdata" else 0,
        }

    @property
    def device_memory(self) -> dict[str, int]:
        """Bytes that a run needs on each device, by what needs them."""
        names = "parameters", "features on the device", "batches"
        return {name: self.memory[name] for name in names}

    def rate(self, progress: float) -> float:
        """Learning rate."""
        return self.config.encoder.learning_rate

    def initial_state(self) -> TrainState:
        """The state before the first update."""
        params = initial_params(self.program.encoder)
        return classify.initial_state(params, self.program.optimizer)

    def calls(
        self, state: TrainState, epoch: int, after: tuple[int, ...] = ()
    ) -> Iterator[CallResult]:
        """The calls of one epoch; see `embedder.engine.loop.run_calls`."""
        batches = self.host_batches(epoch, after)
        axes = AXES_OF_IDS if self._is_resident else AXES
        if self.layout.mode == "sharded":
            size = self.config.encoder.batch_size
            batches = sharded_batches(batches, self.layout, size, axes)
        else:
            put = self.program.place_batch
            batches = ((*rest, put(batch)) for *rest, batch in batches)
        return run_calls(self.program.apply_updates, state, batches)

    def host_batches(self, epoch: int, after: tuple[int, ...] = ()):
        """Updates, how many are real, and their `Batches`."""
        data = self.config.run
        parts = epoch_updates(
            data.loader,
            self.source,
            epoch,
            size=self.superblock_size,
            workers=data.workers,
            after=after,
        )
        for updates, num, copied in parts:
            features, labels = copied or self._data()
            yield (
                updates,
                num,
                Batches(
                    features=features,
                    labels=labels,
                    ids=updates.ids if copied is None else None,
                    weights=updates.weights.astype(self.config.run.dtype),
                    num=np.array([num], np.int32),
                ),
            )

    def summary(self, sums: tuple[float, ...], state: TrainState) -> Metrics:
        """Loss and accuracy of an epoch, of training and of what validates."""
        loss, num, correct = sums
        if not len(self._held):
            return loss / num, correct / num, None, None
        features, labels = self.examples.features, self.examples.labels
        network = self.program.encoder
        held = judged(network, state.params, features, labels, self._held)
        return loss / num, correct / num, *held

    def score(self, metrics: Metrics) -> float | None:
        """How good an epoch was: more is better."""
        loss = dict(zip(self.metrics, metrics, strict=True))["val_loss"]
        return None if loss is None else -loss

    def _data(self) -> tuple[jax.Array, jax.Array]:
        """Features and labels of all examples, on every device."""
        if self._resident is None:
            arrays = self.examples.features, self.examples.labels
            if self.layout.mode == "sharded":
                mesh = mesh_of(self.layout)
                whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
                put = functools.partial(jax.make_array_from_callback, sharding=whole)
            with jax.enable_x64(True):
                if self.layout.mode == "sharded":
                    self._resident = tuple(
                        put(x.shape, data_callback=x.__getitem__) for x in arrays
                    )
                else:
                    self._resident = tuple(map(jnp.asarray, arrays))
        return self._resident

    def _check_device(self) -> None:
        """Refuses features that are to lie on a device and do not fit."""
        if not self._is_resident:
            return
        device = jax.local_devices()[0]
        room = capacity(device, len(jax.local_devices()))
        needed = self.examples.features.nbytes + 4 * self._parameter_bytes
        if needed > room:
            raise InputError(
                f"`loader` memory puts all features on each device, which needs "
                f"{needed / 2**30:.1f} GiB of {room / 2**30:.1f}: give --loader tfdata."
            )

    @property
    def _itemsize(self) -> int:
        return np.dtype(self.config.run.dtype).itemsize

    @property
    def _parameter_bytes(self) -> int:
        pairs = itertools.pairwise(self.widths)
        return sum((a + 1) * b for a, b in pairs) * self._itemsize


def widths_of(layers: tuple[int, ...], examples: Examples) -> tuple[int, ...]:
    """Widths of all layers; ValueError where `layers` do not fit the examples."""
    num_features = math.prod(examples.features.shape[1:])
    num_classes = len(examples.classes)
    if not layers:
        return num_features, _HIDDEN, num_classes
    if (layers[0], layers[-1]) != (num_features, num_classes):
        raise InputError(
            f"`layers` must go from {num_features} features to {num_classes} classes, "
            f"got {' '.join(map(str, layers))}."
        )
    return layers


@functools.lru_cache(maxsize=8)
def make_encoder_program(
    widths: tuple[int, ...],
    options: EncoderOptions,
    optimizer_name: str,
    dtype: str,
    seed: int,
    layout: Layout,
    is_resident: bool,
) -> EncoderProgram:
    """The compiled part of a run, kept so that the same again is not compiled again."""
    enable_compilation_cache()
    network = encoder(widths, dtype=dtype, seed=seed, precision=options.precision)
    optimizer = optimizer_by_name(
        optimizer_name,
        options.learning_rate,
        parse_arguments(options.optimizer_args),
    )
    updates = classify.updates_function(network, optimizer, layout.exchange)
    placement = Placement(
        AXES_OF_IDS if is_resident else AXES,
        0,  # all arrays of the state are replicated
        lambda state: state,
        lambda state: state,
        lambda batch: classify.fill(batch, layout.num_blocks(options.batch_size)),
    )
    placed = place_updates(updates, layout, placement)
    return EncoderProgram(encoder=network, optimizer=optimizer, **vars(placed))
