"""Training of an encoder on examples in memory; it reads and writes no files."""

import fnmatch
import functools
import hashlib
import math
from collections.abc import Generator, Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import optax

from embedder.config import Config, replicas_of, with_options
from embedder.encoders.augment import Augment, make_augment
from embedder.encoders.batches import (
    BatchSource,
    Updates,
    epoch_updates,
    split_validation,
    updates_per_call,
)
from embedder.encoders.examples import UNLABELLED, Examples
from embedder.encoders.loaders import choose_loader, memory_advice
from embedder.encoders.memory import update_bytes
from embedder.encoders.networks.encoder import (
    make_encoder,
    model_shapes,
    num_operations,
    num_params,
)
from embedder.encoders.networks.network import Array, Network
from embedder.encoders.networks.registry import network_for, network_name
from embedder.encoders.objectives import objective_for
from embedder.encoders.optimizers import (
    Schedule,
    learning_rate,
)
from embedder.encoders.options import EncoderOptions
from embedder.encoders.outputs import evaluate, evaluate_replicas, group_bytes
from embedder.encoders.own_rates import own_optimizer, own_rates
from embedder.encoders.program import (
    make_encoder_program,
    without_rates,
)
from embedder.encoders.start import Start
from embedder.encoders.update import (
    AXES,
    AXES_OF_IDS,
    Batches,
    initial_state,
    model_of,
    replica_axes,
)
from embedder.engine.compilation import avoid_slow_scatters
from embedder.engine.devices import Demand, capacity, pick_layout, replicas_text
from embedder.engine.epochs import Metrics
from embedder.engine.feed import local_blocks, sharded_batches
from embedder.engine.layout import Layout, mesh_of
from embedder.engine.loop import CallResult, run_calls
from embedder.engine.program import PlacedState
from embedder.engine.replicas import stack_states
from embedder.engine.state import TrainState
from embedder.errors import InputError
from embedder.limits import gib


class EncoderTraining:
    """A training of an encoder with settings on examples; see `Training`.

    Raises:
      InputError: the settings do not fit the examples, or the devices.
    """

    unit = noun = "examples"
    rate_name = "learning_rate"
    scores: tuple[str, ...] = ("val_loss", "val_accuracy")
    metrics: tuple[str, ...] = ("train_loss", "train_accuracy", *scores)
    divergence_message = "training diverged. Give a smaller `learning_rate`."
    zero_loss_message = "Every prediction is already certain: nothing is learned."
    backend = "xla"

    def __init__(
        self,
        config: Config,
        examples: Examples,
        epochs: range,
        models: Sequence[Config] = (),
        start: Start | None = None,
        optimizer: optax.GradientTransformation | None = None,
        call_limit: float = math.inf,
    ):
        avoid_slow_scatters()  # before the first use of a device
        shape, num_classes = examples.features.shape[1:], len(examples.classes)
        config = resolved(config, shape)
        models = [resolved(each, shape) for each in models]
        options = config.encoder
        self.network = network_for(options, shape, num_classes)
        augment = checked_augment(options, shape)
        _check_choice(config, examples)
        self.loader, self._is_resident = choose_loader(config.run, examples)
        self.config = with_options(config, **self.network.settings, loader=self.loader)
        self._start = start
        if start is not None:
            start.check(model_shapes(self.network))
        self.replicas = [*models] or replicas_of(self.config)
        self.may_diverge = bool(models)
        self._rates: np.ndarray | None
        varied, self._rates = own_rates(self.replicas)
        self.examples = examples
        self.epochs = epochs
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
            augment.mixup > 0,
        )
        limit = min(config.updates_per_call, call_limit)
        self.superblock_size = updates_per_call(self._is_resident, self.source, limit)
        self._check_parts()
        _check_frozen(options.freeze_modules, self.network)
        self.schedule = Schedule(
            options,
            len(epochs) * self.source.num_batches,
            self.source.num_batches,
        )
        self.program = make_encoder_program(
            self.network,
            without_rates(self.config.encoder) if varied else self.config.encoder,
            config.run.optimizer,
            config.run.dtype,
            1 if varied else config.run.seed,
            self.layout,
            self._is_resident,
            self.has_replicas,
            config.run.bootstrap,
            varied,
            self.schedule,
            self._class_weights(train),
            optimizer,
        )
        self.memory_advice = memory_advice()
        self._check_device()
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

    @functools.cached_property
    def baselines(self) -> dict[str, float]:
        """The accuracy of always the class that most training examples have."""
        if not len(self.validation) or self._is_unlabelled:
            return {}
        labels, validation = self.examples.labels, self.validation
        most = np.bincount(labels[self.source.train]).argmax()
        share = float(np.mean(labels[validation] == most))
        return {"val_accuracy by the most frequent class": share}

    @property
    def description(self) -> list[str]:
        """Numbers of examples, classes and updates, as lines of text."""
        source, examples = self.source, self.examples
        num, operations = num_params(self.network), num_operations(self.network)
        lines = [
            f"examples: {len(examples.labels):,} {self._classes_text}, "
            f"{len(source.train):,} to train on, in {source.num_batches:,} updates an "
            "epoch",
            f"network: {self.config.encoder.network}, {num:,} parameters, "
            f"{_shown_operations(operations)} to score an example",
        ]
        return [*lines, *self.start_lines]

    @property
    def start_lines(self) -> tuple[str, ...]:
        """How much of the network starts from another."""
        if self._start is None:
            return ()
        return (self._start.coverage(model_shapes(self.network)),)

    @property
    def corpus_facts(self) -> dict[str, float]:
        """None: files of the run have them, see `problem.Training`."""
        return {}

    @property
    def memory(self) -> dict[str, int]:
        """Bytes on the host by purpose, at most, beside Python and JAX."""
        features = self.examples.features
        call = self.superblock_size * self.source.update_bytes
        num_calls = 4 + self.config.run.workers  # those made ahead, and on the device
        is_mapped = isinstance(features, np.memmap)
        is_on_host = jax.default_backend() == "cpu"
        vectors = len(features) * self.network.vector_size * self._itemsize
        return {
            "parameters": 4 * self._parameter_bytes,
            "order of examples": self.source.train.nbytes * len(self.replicas),
            "features": 0 if is_mapped else features.nbytes,
            "features on the device": features.nbytes if self._is_resident else 0,
            "batches": 0 if self._is_resident else num_calls * call,
            "activations": self._num_local * self._activations if is_on_host else 0,
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
        both = of_replicas | {shared: self.memory[shared]}
        return both | {"activations": self._activations}

    @property
    def _num_local(self) -> int:
        """Devices of this process that take part."""
        return max(1, self.layout.num_devices // jax.process_count())

    @property
    def _activations(self) -> int:
        """Bytes of those of an update, or of a group that is evaluated, on a device."""
        features, options = self.examples.features, self.config.encoder
        num = -(-options.batch_size // self.layout.block_devices)
        shape = num, *features.shape[1:]
        each = update_bytes(self.program.learning, shape, features.dtype.name)
        replicas = -(-len(self.replicas) // self.layout.replica_devices)
        outputs = group_bytes(self.program.encoder, len(features), len(self.replicas))
        return max(replicas * each, outputs)

    def rate(self, progress: float) -> float:
        """Learning rate at `progress` in [0, 1]."""
        rate = learning_rate(self.config.encoder, self.config.run.optimizer)
        if self.schedule.is_constant:
            return rate
        return rate * float(self.schedule.share(progress * self.schedule.num_updates))

    def initial_state(self) -> TrainState:
        """The state before the first update; of replicas with a first axis K."""
        if not self.has_replicas:
            return self._initial_state(self.config, self.program.optimizer)
        states = []
        for each in self.replicas:
            optimizer = self.program.optimizer
            if self._rates is not None:  # their states may differ, too
                optimizer = own_optimizer(each, self.schedule)
            states.append(self._initial_state(each, optimizer))
        return stack_states(states)

    def _initial_state(
        self, config: Config, optimizer: optax.GradientTransformation
    ) -> TrainState:
        seed, learning = config.run.seed, self.program.learning
        encoder = make_encoder(self.network, dtype=config.run.dtype, seed=seed)
        model = encoder.init()
        if self._start is not None:
            model = self._start.into(model)
        draws = self.network.needs_keys or learning.augment is not None
        return initial_state(
            model, optimizer, seed if draws else None, learning.average > 0
        )

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

        Features and labels that stay on the devices are given as they are there.
        """
        data = self.config.run
        calls = epoch_updates(
            "resident" if self._is_resident else self.loader,
            self.source,
            epoch,
            size=self.superblock_size,
            workers=data.workers,
            after=after,
        )
        is_augmented = self.program.learning.augment is not None
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
                    rows=updates.ids if is_augmented and gathered else None,
                    epoch=np.array([epoch], np.int32) if is_augmented else None,
                ),
            )

    def summary(self, sums: tuple[float, ...]) -> Metrics:
        """Loss and accuracy of an epoch on each batch before its update, of replicas
        their means; without labels there is no accuracy."""
        loss, num, correct = sums
        return loss / num, None if self._is_unlabelled else correct / num

    def evaluate(self, state: PlacedState) -> Metrics:
        """Loss and accuracy on the validation examples, of replicas their means; None:
        there are none, or they have no labels."""
        if not len(self.validation) or self._is_unlabelled:
            return None, None
        evaluate_all, model = evaluate, model_of(state)
        if self.has_replicas:  # devices may have some of them each
            model = model_of(self.program.whole_state(state))
            evaluate_all = evaluate_replicas
        return evaluate_all(
            self.program.encoder,
            model,
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
        """Checks that what stays on the devices, and activations, fit there."""
        device = jax.local_devices()[0]
        room = capacity(device, self._num_local)
        found = self.device_memory
        if (total := sum(found.values())) > room:
            parts = ", ".join(f"{name} {gib(n)}" for name, n in found.items() if n)
            raise InputError(
                f"The training needs {gib(total)} on each device ({parts}), and it has "
                f"{gib(room)}: {self.memory_advice}"
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
        return num_params(self.network) * self._itemsize * len(self.replicas)

    def _check_parts(self) -> None:
        """Checks that the examples of an update can be cut into parts."""
        options, num = self.config.encoder, self.config.encoder.micro_batches
        if num == 1:
            return
        if options.batch_size % (num * self.layout.block_devices):
            raise InputError(
                f"`micro_batches` {num} on {self.layout.block_devices} devices must "
                f"divide `batch_size` {options.batch_size}."
            )
        if objective_for(options).needs_whole_batch:
            raise InputError(
                f"`micro_batches` must be 1 for `objective` {options.objective}, which "
                f"compares the examples of a batch, got {num}."
            )

    def _class_weights(self, train: np.ndarray) -> tuple[float, ...]:
        """The weight of each class in the loss; (): all are 1."""
        if self.config.encoder.class_weights == "equal":
            return ()
        counts = np.bincount(self.examples.labels[train], minlength=self._num_classes)
        weights = counts.sum() / (self._num_classes * np.maximum(counts, 1))
        return tuple(weights.tolist())

    @property
    def _classes_text(self) -> str:
        if self._is_unlabelled:
            return "without labels"
        num = len(self.examples.classes)
        return f"of {num:,} class{'' if num == 1 else 'es'}"

    @property
    def _is_unlabelled(self) -> bool:
        return [*self.examples.classes] == [UNLABELLED]

    @property
    def _num_classes(self) -> int:
        return self.network.num_classes


def checked_augment(options: EncoderOptions, example_shape: tuple[int, ...]) -> Augment:
    """The random changes of examples.

    Raises:
      InputError: they do not fit the examples or the objective.
    """
    augment = make_augment(options.augment)
    augment.check(example_shape)
    if augment.mixup and options.objective != "softmax":
        raise InputError(
            "`augment` mixup applies only to `objective` softmax, got "
            f"{options.objective}."
        )
    if objective_for(options).views > 1 and not augment.operations:
        raise InputError(
            f"`objective` {options.objective} compares views of an example: give "
            "`augment`, such as crop=4 flip."
        )
    return augment


def _check_choice(config: Config, examples: Examples) -> None:
    """Checks that a best evaluation can be chosen: by the loss of classes."""
    if [*examples.classes] != [UNLABELLED]:
        return
    for name, value in (
        ("patience", config.run.patience),
        ("result", config.save.result == "best" and "best"),
    ):
        if value:
            raise InputError(
                f"`{name}` goes by the loss of classes, and the examples have none, "
                f"got {value!r}."
            )


def _check_frozen(pattern: str, network: Network) -> None:
    """Checks that a pattern of frozen modules is that of some, and not of all.

    Raises:
      InputError: it is not.
    """
    modules = [*model_shapes(network).params]
    frozen = fnmatch.filter(modules, pattern)
    if pattern and len(frozen) in (0, len(modules)):
        which = "all" if frozen else "none"
        raise InputError(
            f"`freeze` must be a pattern of some modules of the network, got "
            f"{pattern!r}, which is that of {which}: they are {', '.join(modules)}."
        )


def _shown_operations(num: float) -> str:
    """A number of floating point operations, as 1.5 MFLOP."""
    for unit in ("", "k", "M", "G"):
        if num < 1000:
            return f"{num:.3g} {unit}FLOP"
        num /= 1000
    return f"{num:.3g} TFLOP"


def resolved(config: Config, example_shape: tuple[int, ...]) -> Config:
    """`config` with open settings as they follow from the examples and the others."""
    options = config.encoder
    name = network_name(options, example_shape)
    schedule = options.rate_schedule
    if schedule == "auto":
        schedule = "constant" if name == "mlp" else "cosine"
    return with_options(
        config,
        network=name,
        rate_schedule=schedule,
        learning_rate=learning_rate(options, config.run.optimizer),
    )
