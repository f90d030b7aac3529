"""The plan of a training of an encoder: what every way to train makes before it trains.

`TrainingInputs` are the settings and the examples as they are given. `plan` checks them
and resolves the settings: `TrainingPlan` has all that a training depends on, its
compiled updates included, and draws no parameter.
"""

import dataclasses
import fnmatch
import functools
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import numpy as np
import optax

from embedder.base.limits import gib
from embedder.config import Config, replicas_of, with_options
from embedder.config.encoder_options import EncoderOptions
from embedder.data.examples.batches import (
    BatchSource,
    split_validation,
    updates_per_call,
)
from embedder.data.examples.examples import UNLABELLED, Examples
from embedder.encoders.augment import make_augment
from embedder.encoders.memory import choose_loader, memory_advice, update_bytes
from embedder.encoders.networks.encoder import (
    Encoder,
    model_shapes,
    num_operations,
    num_params,
)
from embedder.encoders.networks.network import Network
from embedder.encoders.networks.registry import network_for, network_kind, network_name
from embedder.encoders.objectives import Objective, objective_for
from embedder.encoders.optimizers import (
    Schedule,
    learning_rate,
    make_optimizer,
    varied_rates,
)
from embedder.encoders.outputs import group_bytes
from embedder.encoders.start import Start
from embedder.encoders.train_step import (
    EncoderProgram,
    Feeding,
    Learning,
    make_encoder_program,
)
from embedder.engine.compilation import prepare_devices
from embedder.engine.devices import Demand, capacity, pick_layout
from embedder.engine.feed import local_blocks
from embedder.engine.mesh_layout import MeshLayout
from embedder.errors import InputError

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class TrainingInputs:
    """What a training is planned from."""

    config: Config
    examples: Examples
    epochs: range | None = None  # None: all of `config`
    models: Sequence[Config] = ()  # as of `Task.plan`
    start: Start | None = None
    optimizer: optax.GradientTransformation | None = None  # in place of the settings'
    call_limit: float = math.inf  # updates of a call at most
    warn: Callable[[str], None] = _log.warning


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingPlan:
    """Resolved settings over examples, and all that follows from them."""

    config: Config  # resolved
    replicas: Sequence[Config]  # the settings of each network
    has_models: bool  # whether these were given, and may differ
    examples: Examples
    source: BatchSource  # of the training examples
    validation: np.ndarray  # i64[v], rows of the others
    network: Network
    start: Start | None
    layout: MeshLayout
    layout_reason: str
    loader: Literal["tfdata", "memory"]
    feeding: Feeding
    updates_per_call: int
    schedule: Schedule
    rates: np.ndarray | None  # f64[P, K], of `varied_rates`; None: none differ
    optimizer: optax.GradientTransformation | None  # in place of the settings'
    program: EncoderProgram

    def optimizer_of(self, replica: Config) -> optax.GradientTransformation:
        """The optimizer of one network, which may have rates of its own."""
        return make_optimizer(replica, self.schedule, custom=self.optimizer).rule()

    @property
    def is_unlabelled(self) -> bool:
        """Whether the examples have no labels."""
        return [*self.examples.classes] == [UNLABELLED]

    @functools.cached_property
    def memory(self) -> dict[str, int]:
        """Bytes on the host by purpose, at most, beside Python and JAX."""
        features, is_resident = self.examples.features, self.feeding.is_resident
        num_calls = 4 + self.config.run.workers  # those made ahead, and on the device
        call = self.updates_per_call * self.source.update_bytes
        num, size = len(self.replicas), self.network.vector_size
        itemsize = np.dtype(self.config.run.dtype).itemsize
        vectors, activations = len(features) * size * itemsize, 0
        if jax.default_backend() == "cpu":
            activations = _num_local(self.layout) * self._activations
        return {
            "parameters": 4 * num_params(self.network) * itemsize * num,
            "order of examples": self.source.train.nbytes * num,
            "features": 0 if isinstance(features, np.memmap) else features.nbytes,
            "features on the device": features.nbytes if is_resident else 0,
            "batches": 0 if is_resident else num_calls * call,
            "activations": activations,
            "rotations": 2 * size**2 * num * itemsize if num > 1 else 0,
            "vectors to write": (4 if num > 1 else 2) * vectors,
            "TensorFlow": 650 * 2**20 if self.config.run.loader == "tfdata" else 0,
        }

    @functools.cached_property
    def device_memory(self) -> dict[str, int]:
        """Bytes on each device by purpose."""
        needed, num_groups = self.memory, self.layout.replica_devices
        return {
            "parameters": needed["parameters"] // num_groups,
            "batches": needed["batches"] // num_groups,
            "features on the device": needed["features on the device"],
            "activations": self._activations,
        }

    @property
    def _activations(self) -> int:
        """Bytes of those of an update, or of a group that is evaluated, on a device."""
        features, program = self.examples.features, self.program
        num = -(-self.feeding.batch_size // self.layout.block_devices)
        shape = num, *features.shape[1:]
        each = update_bytes(program.learning, shape, features.dtype.name)
        replicas = -(-len(self.replicas) // self.layout.replica_devices)
        outputs = group_bytes(program.encoder, len(features), len(self.replicas))
        return max(replicas * each, outputs)


def plan(inputs: TrainingInputs) -> TrainingPlan:
    """The plan of a training.

    Raises:
      InputError: the settings do not fit each other, the examples, or the devices.
    """
    prepare_devices()
    examples, warn = inputs.examples, inputs.warn
    shape, num_classes = examples.features.shape[1:], len(examples.classes)
    _check_channels(inputs.config.encoder, shape, warn)
    config, *models = (_resolved(x, shape) for x in (inputs.config, *inputs.models))
    network = network_for(config.encoder, shape, num_classes)
    learning = make_learning(config, network, shape)
    _check_choice(config, examples)
    loader, is_resident = choose_loader(config.run, examples)
    config = with_options(config, **network.settings, loader=loader)
    options, start = config.encoder, inputs.start
    if start is not None:
        start = start.for_columns(examples.columns)
        start.check(model_shapes(network))
    replicas = models or replicas_of(config)
    varied = varied_rates(replicas)
    demand = Demand(options.batch_size, option="batch_size", replicas=len(replicas))
    layout, reason = pick_layout(config.devices, demand)
    num = len(examples.labels)
    train, validation = split_validation(num, options.validation_fraction)
    if not len(train):
        raise InputError(
            f"`validation_fraction` {options.validation_fraction} of {num} examples "
            "leaves none to train on."
        )
    if options.validation_fraction > 0 and not len(validation):
        raise InputError(
            f"`validation_fraction` {options.validation_fraction} holds out none of "
            f"{num} examples: give a larger one, or 0."
        )
    counts = np.bincount(examples.labels[train], minlength=num_classes)
    learning.objective.check_labels(counts)
    _check_split(config, examples, validation, counts, warn)
    if options.class_weights == "balanced":
        learning = _balanced(learning, counts)
    source = BatchSource(
        *(examples, train, options.batch_size),
        tuple(each.run.seed for each in replicas),
        range(config.run.epochs) if inputs.epochs is None else inputs.epochs,
        local_blocks(layout, options.batch_size),
        config.run.bootstrap,
        learning.augment is not None and learning.augment.mixup > 0,
    )
    limit = min(config.updates_per_call, inputs.call_limit)
    scored = options.batch_size * learning.objective.views * len(replicas)
    operations = 3 * scored * num_operations(network)  # of the gradients, too
    kind = jax.default_backend()
    _check_parts(options, learning.objective, layout)
    _check_frozen(options.freeze_modules, network)
    num_updates = len(source.epochs) * source.num_batches
    schedule = Schedule.of(options, num_updates, source.num_batches)
    feeding = Feeding(
        options.batch_size, is_resident, len(replicas) > 1, config.run.bootstrap
    )
    optimizer = make_optimizer(config, schedule, (*varied,), inputs.optimizer)
    if not varied:  # else it is checked already
        optimizer.rule()
    training = TrainingPlan(
        config=config,
        replicas=replicas,
        has_models=bool(models),
        examples=examples,
        source=source,
        validation=validation,
        network=network,
        start=start,
        layout=layout,
        layout_reason=reason,
        loader=loader,
        feeding=feeding,
        updates_per_call=updates_per_call(is_resident, source, limit, operations, kind),
        schedule=schedule,
        rates=np.array([*varied.values()], np.float64) if varied else None,
        optimizer=inputs.optimizer,
        program=make_encoder_program(learning, optimizer, layout, feeding),
    )
    _check_room(training)
    return training


def _resolved(config: Config, example_shape: tuple[int, ...]) -> Config:
    """`config` with open settings as they follow from the examples and the others."""
    options = config.encoder
    name, schedule = network_name(options, example_shape), str(options.rate_schedule)
    if schedule == "auto":
        schedule = network_kind(name).default_schedule
    rate = learning_rate(options, config.run.optimizer)
    settings = {"network": name, "rate_schedule": schedule, "learning_rate": rate}
    return with_options(config, **settings)


def make_learning(
    config: Config, network: Network, example_shape: tuple[int, ...]
) -> Learning:
    """What an update does by the settings; all weights of classes are 1.

    Raises:
      InputError: the settings do not fit each other, or the examples.
    """
    options = config.encoder
    augment, objective = make_augment(options.augment), objective_for(options)
    augment.check(example_shape)
    if objective.views > 1 and not augment.operations:
        raise InputError(
            f"`objective` {options.objective} compares views of an example: give "
            "`augment`, such as crop=4 flip."
        )
    encoder = Encoder(
        *(network, np.dtype(config.run.dtype)),
        precision=options.precision,
        compute_dtype=options.compute_dtype,
    )
    return Learning(
        *(encoder, objective, augment if options.augment else None),
        *(options.micro_batches, options.average, options.freeze_modules),
    )


def _balanced(learning: Learning, counts: np.ndarray) -> Learning:
    """`learning` with the weights of classes, of `counts` training examples each."""
    weights = counts.sum() / (len(counts) * np.maximum(counts, 1))
    objective: Any = learning.objective
    weighted = dataclasses.replace(objective, class_weights=tuple(weights.tolist()))
    return learning._replace(objective=weighted)


def _check_choice(config: Config, examples: Examples) -> None:
    """Checks that a best evaluation can be chosen: by the loss of classes."""
    best = config.save.result == "best" and "best"
    for name, value in (("patience", config.run.patience), ("result", best)):
        if value and [*examples.classes] == [UNLABELLED]:
            raise InputError(
                f"`{name}` goes by the loss of classes, and the examples have none, "
                f"got {value!r}."
            )


def _check_split(
    config: Config,
    examples: Examples,
    validation: np.ndarray,
    counts: np.ndarray,
    warn: Callable[[str], None],
) -> None:
    """Warns that the validation examples, the last, have other classes than the others.

    Args:
      validation: i64[v], rows of the examples.
      counts: i[C], training examples of each class.
    """
    if not len(validation):
        return
    labels, num = examples.labels, len(examples.classes)
    untrained = np.flatnonzero(counts == 0)
    num_changes = np.count_nonzero(np.diff(labels))
    is_sorted = 0 < num_changes < num <= len(labels) // 4  # hardly by chance
    if not len(untrained) and not is_sorted:
        return
    which = untrained if len(untrained) else np.unique(labels[validation])
    names = ", ".join(examples.classes[i] for i in which[:5])
    names += f" and {len(which) - 5} more" if len(which) > 5 else ""
    why = f" ({names}), as the data are sorted by class: shuffle their rows."
    if len(untrained):
        why = (
            f" without training examples ({names}): shuffle the rows of the data, or "
            "leave such classes out."
        )
    line = (
        f"The validation examples, the last {len(validation):,}, have {len(which)} "
        f"class{'es' if len(which) > 1 else ''}{why}"
    )
    is_chosen = config.run.patience or config.save.result == "best"
    if is_chosen and np.isin(labels[validation], untrained).mean() > 0.5:
        raise InputError(f"{line} `patience` and `result` best go by their loss.")
    warn(line)


def _check_channels(
    options: EncoderOptions, shape: tuple[int, ...], warn: Callable[[str], None]
) -> None:
    """Refuses images whose channels are the first axis, if a network needs images."""
    is_first = len(shape) == 3 and shape[0] in (1, 3, 4) and min(shape[1:]) >= 8
    name = network_name(options, shape)
    if not is_first or options.layers:
        return
    line = (
        f"needs images [height, width, channels], got examples {list(shape)}, with "
        "channels first: give np.moveaxis(X, 1, -1)"
    )
    if network_kind(name).needs_images:
        raise InputError(f"`network` {name} {line}.")
    if options.network == "auto":
        warn(f"`network` auto takes an {name}: a network of images {line}.")


def _check_frozen(pattern: str, network: Network) -> None:
    """Checks that a pattern of frozen modules is that of some, and not of all."""
    modules = [*model_shapes(network).params]
    frozen = fnmatch.filter(modules, pattern)
    if pattern and len(frozen) in (0, len(modules)):
        which = "all" if frozen else "none"
        raise InputError(
            f"`freeze` must be a pattern of some modules of the network, got "
            f"{pattern!r}, which is that of {which}: they are {', '.join(modules)}."
        )


def _check_parts(
    options: EncoderOptions, objective: Objective, layout: MeshLayout
) -> None:
    """Checks that the examples of an update can be cut into parts."""
    if (num := options.micro_batches) == 1:
        return
    if options.batch_size % (num * layout.block_devices):
        raise InputError(
            f"`micro_batches` {num} on {layout.block_devices} devices must divide "
            f"`batch_size` {options.batch_size}."
        )
    if objective.needs_whole_batch:
        raise InputError(
            f"`micro_batches` must be 1 for `objective` {options.objective}, which "
            f"compares the examples of a batch, got {num}."
        )


def _num_local(layout: MeshLayout) -> int:
    """Devices of this process that take part."""
    return max(1, layout.num_devices // jax.process_count())


def _check_room(plan: TrainingPlan) -> None:
    """Checks that what stays on the devices, and activations, fit there."""
    room = capacity(jax.local_devices()[0], _num_local(plan.layout))
    needed = plan.device_memory
    if (total := sum(needed.values())) > room:
        parts = ", ".join(f"{name} {gib(n)}" for name, n in needed.items() if n)
        raise InputError(
            f"The training needs {gib(total)} on each device ({parts}), and it has "
            f"{gib(room)}: {memory_advice()}"
        )
