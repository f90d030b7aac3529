"""Training of an encoder on examples in memory; it reads and writes no files."""

import dataclasses
import functools
import hashlib
import math
from collections.abc import Generator, Iterator, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax

from embedder.config import Config, replicas_of, with_options
from embedder.encoders.batches import (
    BatchSource,
    Updates,
    epoch_updates,
    split_validation,
    updates_per_call,
)
from embedder.encoders.examples import Examples
from embedder.encoders.loaders import choose_loader
from embedder.encoders.networks import (
    Array,
    Encoder,
    Network,
    initial_params,
    make_encoder,
    network_for,
)
from embedder.encoders.options import EncoderOptions, parse_arguments
from embedder.encoders.outputs import evaluate, evaluate_replicas
from embedder.encoders.own_rates import Varied, own_optimizer, own_rates
from embedder.encoders.update import (
    AXES,
    AXES_OF_IDS,
    Batches,
    initial_replicas,
    initial_state,
    pad_batches,
    replica_axes,
    updates_function,
)
from embedder.engine.compilation import avoid_slow_scatters, enable_compilation_cache
from embedder.engine.devices import Demand, capacity, pick_layout, replicas_text
from embedder.engine.epochs import Metrics
from embedder.engine.feed import local_blocks, sharded_batches
from embedder.engine.layout import Layout, mesh_of
from embedder.engine.loop import CallResult, run_calls
from embedder.engine.program import PlacedState, Placement, Program, place_updates
from embedder.engine.replicas import stack_states, vmap_updates
from embedder.engine.rules import optimizer_by_name
from embedder.engine.state import TrainState
from embedder.errors import InputError


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderProgram(Program):
    """The compiled updates of an encoder."""

    encoder: Encoder
    optimizer: optax.GradientTransformation


class EncoderTraining:
    """A training of an encoder with settings on examples; see `Training`.

    Raises:
      InputError: the settings do not fit the examples, or the devices.
    """

    unit = "examples"
    rate_name = "learning_rate"
    scores: tuple[str, ...] = ("val_loss", "val_accuracy")
    metrics: tuple[str, ...] = ("train_loss", "train_accuracy", *scores)
    divergence_message = "training diverged. Give a smaller `learning_rate`."
    memory_advice = "give --loader tfdata, a smaller network or `batch_size`."
    zero_loss_message = "Every prediction is already certain: nothing is learned."
    backend = "xla"

    def __init__(
        self,
        config: Config,
        examples: Examples,
        epochs: range,
        models: Sequence[Config] = (),
    ):
        options = config.encoder
        shape, num_classes = examples.features.shape[1:], len(examples.classes)
        self.network = network_for(options, shape, num_classes)
        self.loader: Literal["tfdata", "memory"] = choose_loader(config.run, examples)
        self.config = with_options(config, **self.network.settings, loader=self.loader)
        self.replicas = [*models] or replicas_of(self.config)
        self.may_diverge = bool(models)
        self._rates: np.ndarray | None
        varied, self._rates = own_rates(self.replicas)
        self.examples = examples
        self.epochs = epochs
        avoid_slow_scatters()
        demand = Demand(
            num_blocks=options.batch_size,
            device_bytes=self._device_bytes,
            option="batch_size",
            replicas=len(self.replicas),
        )
        self.layout, self._why = pick_layout(config.devices, demand)
        train, self.validation = split_validation(
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
            tuple(each.run.seed for each in self.replicas),
            epochs,
            local_blocks(self.layout, options.batch_size),
            config.run.bootstrap,
        )
        limit = config.updates_per_call
        self.superblock_size = updates_per_call(self.loader, self.source, limit)
        self._is_resident = self.loader == "memory"
        self._check_device()
        self.program = make_encoder_program(
            self.network,
            dataclasses.replace(self.config.encoder, **_READ_FROM_BATCHES)
            if varied
            else self.config.encoder,
            config.run.optimizer,
            config.run.dtype,
            1 if varied else config.run.seed,
            self.layout,
            self._is_resident,
            self.has_replicas,
            config.run.bootstrap,
            varied,
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
        """Number of training examples, all of which an epoch visits."""
        return len(self.source.train)

    @property
    def start_loss(self) -> float:
        """Cross entropy of a guess."""
        return math.log(max(2, self.network.num_classes))

    @property
    def devices_line(self) -> str:
        """The devices that take part and the reason, as one line."""
        kind = jax.devices()[0].device_kind
        if self.layout.mode == "jit":
            return f"1 ({kind}): {self._why}"
        replicas = replicas_text(len(self.replicas), self.layout)
        where = f"{self.layout.num_devices} ({kind}) by {self.layout.mode}{replicas}"
        return f"{where}: {self._why}"

    @property
    def description(self) -> list[str]:
        """Numbers of examples, classes and updates, as lines of text."""
        source, examples = self.source, self.examples
        return [
            f"examples: {len(examples.labels)} of {len(examples.classes)} classes, "
            f"{len(source.train)} to train on, in {source.num_batches} updates an epoch"
        ]

    @property
    def memory(self) -> dict[str, int]:
        """Bytes on the host by purpose, at most, beside Python and JAX."""
        features = self.examples.features
        call = self.superblock_size * self.source.update_bytes
        is_mapped = isinstance(features, np.memmap)
        vectors = len(features) * self.network.vector_size * self._itemsize
        return {
            "parameters": 4 * self._parameter_bytes,
            "order of examples": self.source.train.nbytes * len(self.replicas),
            "features": 0 if is_mapped else features.nbytes,
            "features on the device": features.nbytes if self._is_resident else 0,
            "batches": 0 if self._is_resident else 6 * call,
            "rotations": 2 * self._rotation_bytes,
            "vectors to write": (4 if self.has_replicas else 2) * vectors,
            "TensorFlow": 650 * 2**20 if self.loader == "tfdata" else 0,
        }

    @property
    def device_memory(self) -> dict[str, int]:
        """Bytes on each device by purpose."""
        return self._device_bytes(self.layout)

    def _device_bytes(self, layout: Layout) -> dict[str, int]:
        of_replicas = {
            name: self.memory[name] // layout.replica_devices
            for name in ("parameters", "batches")
        }
        shared = "features on the device"
        return of_replicas | {shared: self.memory[shared]}

    def rate(self, progress: float) -> float:
        """Learning rate, the same at any progress."""
        return self.config.encoder.learning_rate

    def initial_state(self) -> TrainState:
        """The state before the first update; of replicas with a first axis K."""
        optimizer = self.program.optimizer
        if not self.has_replicas:
            return initial_state(initial_params(self.program.encoder), optimizer)
        encoders = (
            make_encoder(self.network, dtype=each.run.dtype, seed=each.run.seed)
            for each in self.replicas
        )
        params = [*map(initial_params, encoders)]
        if self._rates is None:
            return initial_replicas(params, optimizer)
        optimizers = map(own_optimizer, self.replicas)  # their states may differ, too
        return stack_states([*map(initial_state, params, optimizers)])

    @property
    def has_replicas(self) -> bool:
        """Whether there are several networks."""
        return len(self.replicas) > 1

    def calls(
        self, state: PlacedState, epoch: int, after: tuple[int, ...] = ()
    ) -> Iterator[CallResult]:
        """The calls of `epoch` after the update at position `after`; (): all of it."""
        host, apply_updates = (
            self.host_batches(epoch, after),
            self.program.apply_updates,
        )
        if self.layout.mode == "sharded":
            axes = AXES_OF_IDS if self._is_resident else AXES
            replicas = replica_axes(self._is_resident, self.config.run.bootstrap)
            size = self.config.encoder.batch_size
            sharded = sharded_batches(host, self.layout, size, axes, replicas)
            return run_calls(apply_updates, state, sharded)
        put = self.program.place_batch
        placed = ((updates, num, put(batches)) for updates, num, batches in host)
        return run_calls(apply_updates, state, placed)

    def host_batches(
        self, epoch: int, after: tuple[int, ...] = ()
    ) -> Generator[tuple[Updates, int, Batches[Array]]]:
        """The updates of each call, how many are real, and their batches in NumPy.

        With the loader `memory`, features and labels are those on the devices.
        """
        data = self.config.run
        calls = epoch_updates(
            self.loader,
            self.source,
            epoch,
            size=self.superblock_size,
            workers=data.workers,
            after=after,
        )
        for updates, num, gathered in calls:
            features, labels = gathered or self._resident_examples()
            yield (
                updates,
                num,
                Batches(
                    features=features,
                    labels=labels,
                    ids=updates.ids if gathered is None else None,
                    weights=updates.weights.astype(data.dtype),
                    num=np.array([num], np.int32),
                    rates=None
                    if self._rates is None
                    else self._rates.astype(data.dtype),
                ),
            )

    def summary(self, sums: tuple[float, ...]) -> Metrics:
        """Loss and accuracy of an epoch on each batch before its update, of replicas
        their means."""
        loss, num, correct = sums
        return loss / num, correct / num

    def evaluate(self, state: PlacedState) -> Metrics:
        """Loss and accuracy on the validation examples, of replicas their means; None:
        there are none."""
        if not len(self.validation):
            return None, None
        evaluate_all, params = evaluate, state.params
        if self.has_replicas:  # devices may have some of them each
            params = self.program.whole_state(state).params
            evaluate_all = evaluate_replicas
        return evaluate_all(
            self.program.encoder,
            params,
            self.examples.features,
            self.examples.labels,
            self.validation,
        )

    def score(self, scores: Metrics) -> float | None:
        """Minus the validation loss, if there is one."""
        loss = dict(zip(self.scores, scores, strict=True))["val_loss"]
        return None if loss is None else -loss

    def score_text(self, score: float) -> str:
        """The validation loss of a score."""
        return f"validation loss {-score:.4f}"

    def _resident_examples(self) -> tuple[jax.Array, jax.Array]:
        """Features and labels of all examples, replicated on the devices."""
        if self._resident is None:
            with jax.enable_x64(True):  # else float64 becomes float32
                self._resident = (
                    self._replicated(self.examples.features),
                    self._replicated(self.examples.labels),
                )
        return self._resident

    def _replicated(self, array: np.ndarray) -> jax.Array:
        if self.layout.mode != "sharded":
            return jnp.asarray(array)
        mesh = mesh_of(self.layout)
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
        return jax.make_array_from_callback(
            array.shape, sharding, data_callback=array.__getitem__
        )

    def _check_device(self) -> None:
        """Checks that features which stay on the devices fit there."""
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
    def _rotation_bytes(self) -> int:
        """Of the matrices that align the embeddings of replicas."""
        matrix = self.network.vector_size**2 * self._itemsize
        return matrix * len(self.replicas) if self.has_replicas else 0

    @property
    def _parameter_bytes(self) -> int:
        """Of the parameters of all replicas."""
        return self.network.num_params * self._itemsize * len(self.replicas)


_READ_FROM_BATCHES: dict[str, Any] = {"learning_rate": 0.01, "optimizer_args": ()}
"""Settings that the program of networks with rates of their own does not read."""


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
) -> EncoderProgram:
    """The compiled updates of `network`; cached, so that they compile only once.

    Args:
      seed: of the first parameters that `encoder.init` draws.
      is_resident: whether all features stay on the devices, so that batches are ids.
      has_replicas: whether the program is of replicas, `engine.replicas`.
      bootstrap: whether these have weights of their own.
      varied: the numbers of the optimizer that these read from their batches; its
        `optimizer` then has others.
    """
    enable_compilation_cache()
    encoder = make_encoder(network, dtype=dtype, seed=seed, precision=options.precision)

    def optimizer_of(rates: Any = None) -> optax.GradientTransformation:
        if varied is not None and rates is not None:
            return varied.optimizer_of(rates)
        return optimizer_by_name(
            optimizer_name,
            options.learning_rate,
            parse_arguments(options.optimizer_args),
        )

    updates = updates_function(encoder, optimizer_of, layout.exchange)
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
    program = place_updates(updates, layout, placement)
    return EncoderProgram(encoder=encoder, optimizer=optimizer_of(), **vars(program))
