"""Training of an encoder on examples in memory; it reads and writes no files."""

import dataclasses
import functools
import hashlib
from collections.abc import Generator, Iterator

import jax
import jax.numpy as jnp
import numpy as np

from embedder.config import Config
from embedder.data.examples.batches import StepBatches, epoch_updates
from embedder.encoders.memory import memory_advice
from embedder.encoders.networks.encoder import model_shapes, num_operations, num_params
from embedder.encoders.networks.network import Array, Model
from embedder.encoders.outputs import evaluate
from embedder.encoders.plan import TrainingPlan
from embedder.encoders.train_step import Batches, initial_state, model_of
from embedder.engine.compiled_step import PlacedState
from embedder.engine.devices import replicas_text
from embedder.engine.epochs import Metrics
from embedder.engine.feed import sharded_batches
from embedder.engine.loop import CallResult, run_calls
from embedder.engine.mesh_layout import mesh_of
from embedder.engine.replicas import stack_states
from embedder.engine.state import TrainState
from embedder.metrics.scores import scores_on

_SOME = 1024  # examples to measure the initial loss on


class EncoderTrainer:
    """A training of an encoder, without its state; see `Trainer`."""

    item_key = item_name = "examples"
    base_flag = "--init-from"
    rate_name = "learning_rate"
    divergence_message = "training diverged. Give a smaller `learning_rate`."
    zero_loss_message = "Every prediction is already certain: nothing is learned."
    backend = "xla"
    corpus_facts: dict[str, float] = {}  # files of the run have them

    def __init__(self, plan: TrainingPlan):
        self.plan = plan
        self.config, self.replicas = plan.config, plan.replicas
        self.may_diverge, self.has_replicas = plan.has_models, len(plan.replicas) > 1
        self.examples, self.validation = plan.examples, plan.validation
        self.source, self.epochs = plan.source, plan.source.epochs
        self.layout, self.program = plan.layout, plan.program
        self.network, self.updates_per_call = plan.network, plan.updates_per_call
        self.memory, self.device_memory = plan.memory, plan.device_memory
        self.memory_advice = memory_advice()
        self._scores = scores_on("validation")
        self.scores = tuple(name for score in self._scores for name in score.names)
        self.metrics = "train_loss", "train_accuracy", *self.scores
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
    def usual_loss(self) -> float:
        """What the loss of a network that knows nothing is at most, if the scores of
        classes are alike."""
        num = min(self.config.encoder.batch_size, self.items)
        objective = self.program.learning.objective
        return objective.most_loss(self.network.num_classes, num)

    @functools.cached_property
    def start_loss(self) -> float:
        """Loss of the initial parameters: of features that are not scaled the scores of
        classes are far apart."""
        if not self.program.learning.objective.trains_head:
            return self.usual_loss
        model, ids = self._initial_model(self.replicas[0]), self.source.train[:_SOME]
        data = self.examples.features, self.examples.labels, ids
        return max(self.usual_loss, evaluate(self.program.encoder, model, *data)[0])

    @property
    def devices_line(self) -> str:
        """The devices that take part and the reason, as one line."""
        kind = jax.devices()[0].device_kind
        if self.layout.mode == "jit":
            return f"1 ({kind}): {self.plan.layout_reason}"
        replicas = replicas_text(len(self.replicas), self.layout)
        where = f"{self.layout.num_devices} ({kind}) by {self.layout.mode}{replicas}"
        return f"{where}: {self.plan.layout_reason}"

    @functools.cached_property
    def baselines(self) -> dict[str, float]:
        """The accuracy of always the class that most training examples have."""
        if not len(self.validation) or self.plan.is_unlabelled:
            return {}
        labels, validation = self.examples.labels, self.validation
        most = np.bincount(labels[self.source.train]).argmax()
        share = float(np.mean(labels[validation] == most))
        return {"val_accuracy by the most frequent class": share}

    @property
    def description(self) -> list[str]:
        """Numbers of examples, classes and updates, as lines of text."""
        source, examples = self.source, self.examples
        num_classes = len(examples.classes)
        classes = f"of {num_classes:,} class{'' if num_classes == 1 else 'es'}"
        classes = "without labels" if self.plan.is_unlabelled else classes
        num, operations = num_params(self.network), num_operations(self.network)
        return [
            f"examples: {len(examples.labels):,} {classes}, "
            f"{len(source.train):,} to train on, in {source.num_batches:,} updates an "
            "epoch",
            f"network: {self.config.encoder.network}, {num:,} parameters, "
            f"{_shown_operations(operations)} to score an example",
            *self.start_lines,
        ]

    @property
    def start_lines(self) -> tuple[str, ...]:
        """How much of the network starts from another."""
        if self.plan.start is None:
            return ()
        return (self.plan.start.coverage(model_shapes(self.network)),)

    def rate(self, progress: float) -> float:
        """Learning rate at `progress` in [0, 1]."""
        rate, schedule = self.config.encoder.learning_rate, self.plan.schedule
        assert rate is not None, "it is resolved"
        if schedule.is_constant:
            return rate
        return rate * float(schedule.share(progress * schedule.num_updates))

    def initial_state(self) -> TrainState:
        """The state before the first update; of replicas with a first axis K."""
        states = [self._initial_state(each) for each in self.replicas]
        return stack_states(states) if self.has_replicas else states[0]

    def _initial_state(self, replica: Config) -> TrainState:
        learning = self.program.learning
        draws = self.network.needs_keys or learning.augment is not None
        return initial_state(
            self._initial_model(replica),
            self.plan.optimizer_of(replica),
            replica.run.seed if draws else None,
            learning.average > 0,
        )

    def _initial_model(self, replica: Config) -> Model:
        encoder = dataclasses.replace(self.program.encoder, seed=replica.run.seed)
        start = self.plan.start
        return encoder.init() if start is None else start.into(encoder.init())

    def calls(
        self, state: PlacedState, epoch: int, after: tuple[int, ...] = ()
    ) -> Iterator[CallResult]:
        """The calls of `epoch` after the update at position `after`; (): all of it."""
        host = self.host_batches(epoch, after)
        apply_updates, feeding = self.program.apply_updates, self.plan.feeding
        if self.layout.mode == "sharded":
            axes = feeding.axes, feeding.replica_axes
            sharded = sharded_batches(host, self.layout, feeding.batch_size, *axes)
            return run_calls(apply_updates, state, sharded)
        put = self.program.place_batch
        placed = ((updates, num, put(batches)) for updates, num, batches in host)
        return run_calls(apply_updates, state, placed)

    def host_batches(
        self, epoch: int, after: tuple[int, ...] = ()
    ) -> Generator[tuple[StepBatches, int, Batches[Array]]]:
        """The updates of each call, how many are real, and their batches in NumPy.

        Features and labels that stay on the devices are given as they are there.
        """
        data = self.config.run
        calls = epoch_updates(
            "resident" if self.plan.feeding.is_resident else self.plan.loader,
            *(self.source, epoch),
            size=self.updates_per_call,
            workers=data.workers,
            after=after,
        )
        is_augmented = self.program.learning.augment is not None
        rates = None if self.plan.rates is None else self.plan.rates.astype(data.dtype)
        for updates, num, gathered in calls:
            features, labels = gathered or self._resident_examples()
            batches = Batches(
                features=features,
                labels=labels,
                ids=updates.ids if gathered is None else None,
                weights=updates.weights.astype(data.dtype),
                num=np.array([num], np.int32),
                rates=rates,
                rows=updates.ids if is_augmented and gathered else None,
                epoch=np.array([epoch], np.int32) if is_augmented else None,
            )
            yield updates, num, batches

    def summary(self, sums: tuple[float, ...]) -> Metrics:
        """Loss and accuracy of an epoch on each batch before its update, of replicas
        their means; without labels there is no accuracy."""
        loss, num, correct = sums
        return loss / num, None if self.plan.is_unlabelled else correct / num

    def evaluate(self, state: PlacedState) -> Metrics:
        """Loss and accuracy on the validation examples, of replicas their means; None:
        there are none, or they have no labels."""
        if not len(self.validation) or self.plan.is_unlabelled:
            return (None,) * len(self.scores)
        data = self.examples.features, self.examples.labels, self.validation
        if self.has_replicas:  # devices may have some of them each
            model = model_of(self.program.whole_state(state))
            loss_and_accuracy = evaluate(self.program.encoder, model, *data, num=None)
        else:
            loss_and_accuracy = evaluate(self.program.encoder, model_of(state), *data)
        values = (each.measure(None, loss_and_accuracy, 0, 0) for each in self._scores)
        return tuple(value.value for each in values for value in each)

    def score(self, scores: Metrics) -> float | None:
        """The first of `scores`, minus the validation loss, if there is one."""
        return None if scores[0] is None else self._scores[0].sign * scores[0]

    def score_text(self, score: float) -> str:
        """The validation loss of a score."""
        best = self._scores[0]
        return best.shown(best.sign * score)

    def _resident_examples(self) -> tuple[jax.Array, jax.Array]:
        """Features and labels of all examples, replicated on the devices."""
        if self._resident is None:
            data = self.examples.features, self.examples.labels
            with jax.enable_x64(True):  # else float64 becomes float32
                self._resident = self._replicated(data[0]), self._replicated(data[1])
        return self._resident

    def _replicated(self, array: np.ndarray) -> jax.Array:
        if self.layout.mode != "sharded":
            return jnp.asarray(array)
        mesh = mesh_of(self.layout)
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
        return jax.make_array_from_callback(
            array.shape, sharding, data_callback=array.__getitem__
        )


def _shown_operations(num: float) -> str:
    """A number of floating point operations, as 1.5 MFLOP."""
    for unit in ("", "k", "M", "G"):
        if num < 1000:
            return f"{num:.3g} {unit}FLOP"
        num /= 1000
    return f"{num:.3g} TFLOP"
