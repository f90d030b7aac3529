"""Updates of an encoder, several of them in one compiled call."""

import fnmatch
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax

from embedder.encoders.augment import Augment, example_keys, mixup, mixup_weights
from embedder.encoders.networks.encoder import Encoder, Outputs, scaled
from embedder.encoders.networks.network import Array, Model, Params, Pass
from embedder.encoders.objectives import Objective, Softmax, Targets
from embedder.encoders.optimizers import Optimizer
from embedder.engine.collectives import Collectives
from embedder.engine.compilation import convolution_options, enable_compilation_cache
from embedder.engine.compiled_step import CompiledStep, Placement, place_updates
from embedder.engine.mesh_layout import MeshLayout
from embedder.engine.replicas import vmap_updates
from embedder.engine.state import TrainState

Leaf = TypeVar("Leaf")

_AUGMENT = 2**31 - 1  # folded into keys of `augment`: dropout folds the step there


class Batches(NamedTuple, Generic[Leaf]):
    """S updates of B examples each.

    Features and labels are either those of the batches; or they are those of the whole
    set of n examples, replicated on the devices, and `ids` are the rows of each batch.

    Batches of K replicas have K after B in `ids`, or in `features` and `labels` of
    batches; in `weights` where each has a bootstrap resample of its own. The whole set
    and `num` are the same for all replicas.

    With mixup `ids` or `features` and `labels`, and `rows`, have another axis, of 2: an
    example, and the one that it is mixed with.
    """

    features: Leaf  # [S, B, ...]; of the whole set [n, ...]
    labels: Leaf  # i32[S, B]; of the whole set i32[n]
    ids: Leaf | None  # i32[S, B]
    weights: Leaf  # [S, B], 1, or of a resample; 0 for padding
    num: Leaf  # i32[1]: how many of the S updates are real, the first ones
    rates: Leaf | None = None  # f[P] or f[P, K], of `varied_rates`; None: none differ
    rows: Leaf | None = None  # i32[S, B], of examples, for `augment`, without `ids`
    epoch: Leaf | None = None  # i32[1], for `augment`


class Feeding(NamedTuple):
    """How the arrays of `Batches` are made, and shared by devices and replicas."""

    batch_size: int
    is_resident: bool  # the whole set is replicated on the devices
    has_replicas: bool = False
    bootstrap: bool = False  # each replica has weights of its own

    @property
    def axes(self) -> Batches[int | None]:
        """For each array, the axis that is sharded over devices; None: replicated."""
        if self.is_resident:
            return Batches(None, None, 1, 1, None, None, 1)
        return Batches(1, 1, None, 1, None, None, 1)

    @property
    def replica_axes(self) -> Batches[int | None]:
        """For each array, the axis of replicas; None: all replicas share it."""
        weights = 2 if self.bootstrap else None
        if self.is_resident:
            return Batches(None, None, 2, weights, None, 1, 2)
        return Batches(2, 2, None, weights, None, 1, 2)

    def padded(self, batches: Batches[np.ndarray], size: int) -> Batches[np.ndarray]:
        """`batches` with examples of weight 0 added to each update, up to `size`."""
        missing = size - batches.weights.shape[1]

        def padded(x: np.ndarray | None, axis: int | None) -> Any:
            if x is None or axis is None or not missing:
                return x
            return np.pad(x, [(0, 0), (0, missing)] + [(0, 0)] * (x.ndim - 2))

        return Batches(*map(padded, batches, self.axes))


class Sums(NamedTuple):
    """Sums over the examples of an update, with the parameters before it."""

    loss: jax.Array  # the mean loss times `num_examples`
    num_examples: jax.Array
    num_correct: jax.Array


class Extras(NamedTuple):
    """What a state has besides parameters; {} and None: the network has no such."""

    averages: Params  # of batch normalisation
    seed: Any = None  # u32[2], of the random numbers of updates
    average: Any = None  # moving average of the parameters


class Learning(NamedTuple):
    """What an update does besides the rule of the optimizer. It is a key of caches."""

    encoder: Encoder
    objective: Objective = Softmax()
    augment: Augment | None = None
    micro_batches: int = 1
    average: float = 0.0  # decay of the moving average of the parameters; 0: none
    frozen: str = ""  # pattern of the modules that stay as they are


class Part(NamedTuple):
    """Examples of one update: those of a device, or some of them."""

    features: jax.Array  # [B, ...]; with mixup [B, 2, ...]
    labels: jax.Array  # i32[B] or [B, 2]
    weights: jax.Array  # [B]
    places: jax.Array  # i32[B], in the batch of all devices
    rows: jax.Array | None  # i32[B] or [B, 2]

    @property
    def own_labels(self) -> jax.Array:
        """The labels without those of the examples that are mixed in, i32[B]."""
        return self.labels if self.labels.ndim == 1 else self.labels[:, 0]


class Draw(NamedTuple):
    """What the random numbers of an update follow from."""

    seed: jax.Array | None  # u32[2]; None: no random numbers
    step: jax.Array  # i32[]
    epoch: jax.Array | None  # i32[]

    @property
    def key(self) -> jax.Array:
        """The key of `seed`."""
        assert self.seed is not None
        return jax.random.wrap_key_data(self.seed, impl="threefry2x32")


@dataclass(frozen=True, kw_only=True)
class EncoderProgram(CompiledStep):
    """The compiled updates of an encoder."""

    learning: Learning

    @property
    def encoder(self) -> Encoder:
        """The network as functions."""
        return self.learning.encoder


@functools.lru_cache(maxsize=8)
def make_encoder_program(
    learning: Learning, optimizer: Optimizer, layout: MeshLayout, feeding: Feeding
) -> EncoderProgram:
    """The compiled updates; cached, so that they compile only once."""
    enable_compilation_cache()
    updates = updates_function(learning, optimizer, layout.exchange)
    placement = Placement(
        feeding.axes,
        0,  # all arrays of the state are replicated
        lambda state: state,
        lambda state: state,
        lambda batch: feeding.padded(batch, layout.num_blocks(feeding.batch_size)),
    )
    if feeding.has_replicas:
        axes = feeding.replica_axes
        updates, placement = vmap_updates(updates, placement, axes)
    program = place_updates(updates, layout, placement, convolution_options())
    return EncoderProgram(learning=learning, **vars(program))


def updates_function(
    learning: Learning, optimizer: Optimizer, exchange: Collectives
) -> Callable[[TrainState, Batches[jax.Array]], tuple[TrainState, Sums]]:
    """The function that applies the `num` real of S updates in order, to be compiled.

    It returns the state after them and the `Sums` of each update, [S]. It runs on each
    device, on the device's examples of every batch; gradients are of the mean loss over
    the examples of all devices.
    """

    def updates(state: TrainState, batches: Batches[jax.Array]):
        rates, num = batches.rates, batches.num[0]
        rule = optimizer.rule(() if rates is None else rates)
        first = state.step

        def body(number, carry):
            state, all_sums = carry
            part = batch_at(batches, number, exchange)
            epoch = None if batches.epoch is None else batches.epoch[0]
            draw = Draw(state.extras.seed, first + number, epoch)
            state, sums = one_update(learning, rule, exchange, state, part, draw)
            # Of K networks each array that is written takes kernels on a GPU: the sums
            # are one array, and the steps are counted after the loop.
            state = state._replace(step=first)
            return state, all_sums.at[number].set(jnp.stack(sums))

        shape = len(batches.weights), len(Sums._fields)
        carry = state, jnp.zeros(shape, batches.weights.dtype)
        state, all_sums = jax.lax.fori_loop(0, num, body, carry)
        return state._replace(step=first + num), Sums(*all_sums.T)

    return updates


def batch_at(
    batches: Batches[jax.Array],
    number: int | jax.Array,
    exchange: Collectives = Collectives(),  # noqa: B008 - it is immutable
) -> Part:
    """This device's examples of update `number`."""
    weights = batches.weights[number]
    places = jnp.arange(len(weights), dtype=np.int32)
    if exchange.blocks:
        places += jax.lax.axis_index(exchange.blocks) * len(weights)
    if batches.ids is None:
        features, labels = batches.features[number], batches.labels[number]
        rows = None if batches.rows is None else batches.rows[number]
        return Part(features, labels, weights, places, rows)
    ids = batches.ids[number]
    return Part(batches.features[ids], batches.labels[ids], weights, places, ids)


def one_update(
    learning: Learning,
    optimizer: optax.GradientTransformation,
    exchange: Collectives,
    state: TrainState,
    part: Part,
    draw: Draw,
) -> tuple[TrainState, Sums]:
    """The state after one update on a batch, and the sums over all its examples."""
    extras: Extras = state.extras
    # A resample may have none of the examples of a small batch.
    num_examples = jnp.maximum(exchange.sum_blocks(part.weights.sum()), 1)
    total = None
    if learning.micro_batches > 1:  # the mean is over all parts
        counts = learning.objective.counts(part.own_labels, part.weights)
        total = exchange.sum_blocks(counts.sum())

    def gradients_of(averages: Params, part: Part):
        def loss(params):
            model = Model(params, averages)
            return _loss(learning, exchange, model, part, draw, num_examples, total)

        return jax.grad(loss, has_aux=True)(state.params)

    if learning.micro_batches == 1:
        gradients, (sums, averages) = gradients_of(extras.averages, part)
    else:
        gradients, sums, averages = _in_parts(
            gradients_of, learning.micro_batches, state.params, extras.averages, part
        )
    gradients = exchange.sum_blocks(gradients)
    deltas, opt_state = optimizer.update(gradients, state.opt_state, state.params)
    params = optax.apply_updates(state.params, deltas)
    if learning.frozen:
        params = _where_frozen(learning.frozen, state.params, params)
        averages = _where_frozen(learning.frozen, extras.averages, averages)
    average = extras.average
    if learning.average:
        average = _moved(learning.average, average, params, draw.step)
        if learning.frozen:  # the mean of equal numbers may be rounded
            average = _where_frozen(learning.frozen, extras.average, average)
    extras = Extras(averages, extras.seed, average)
    new = TrainState(params, opt_state, state.step + 1, extras)
    return new, exchange.sum_blocks(sums)


def _loss(
    learning: Learning,
    exchange: Collectives,
    model: Model,
    part: Part,
    draw: Draw,
    num_examples: jax.Array,
    total: jax.Array | None,
):
    """This device's part of the mean loss, its sums, and the averages after it.

    Args:
      total: of the counts of all parts; None: there is one part.
    """
    encoder, objective = learning.encoder, learning.objective
    views, keys = objective.views, None
    part, mixed = _changed(learning, _seen_often(part, views), draw)
    if encoder.network.needs_keys and draw.seed is not None:
        keys = place_keys(draw, part.places)
    use = Pass(True, keys, part.weights, exchange, not objective.trains_head)
    outputs, averages = encoder.outputs(model, part.features, use)
    targets = Targets(part.labels, part.weights, part.places, mixed)
    terms = objective.terms(outputs, targets, exchange)
    loss = terms.losses.sum()
    if terms.counts is not part.weights:  # the mean is of other counts
        if total is None:
            total = exchange.sum_blocks(terms.counts.sum())
        # Of a batch without any pair to compare the loss is 0.
        loss = loss * (num_examples / jnp.where(total > 0, total, jnp.inf))
    own = loss_sums_of(outputs, part.labels, part.weights)
    sums = Sums(loss, own.num_examples / views, own.num_correct / views)
    if not objective.trains_head:  # a classifier of embeddings, which it leaves alone
        loss = loss + own.loss / views
    return loss / num_examples, (sums, averages)


def _in_parts(gradients_of, num: int, params: Params, averages: Params, part: Part):
    """The sums of `gradients_of` over `num` parts of the examples, one by one."""
    # Examples are dealt to parts in turn, so that padding, the last, is spread.
    parts = jax.tree.map(
        lambda x: jnp.moveaxis(x.reshape(-1, num, *x.shape[1:]), 1, 0), part
    )
    zeros = jax.tree.map(jnp.zeros_like, params)
    dtype = part.weights.dtype
    none = Sums(*(jnp.zeros((), dtype) for _ in Sums._fields))

    def add(carry, part: Part):
        gradients, sums, averages = carry
        more, (new, averages) = gradients_of(averages, part)
        added = jax.tree.map(jnp.add, (gradients, sums), (more, new))
        return (*added, averages), None

    (gradients, sums, averages), _ = jax.lax.scan(add, (zeros, none, averages), parts)
    return gradients, sums, averages


def _seen_often(part: Part, views: int) -> Part:
    """`part` with each example `views` times, one after the other."""
    if views == 1:
        return part
    repeated = jax.tree.map(lambda x: jnp.repeat(x, views, axis=0), part)
    view = jnp.tile(jnp.arange(views, dtype=np.int32), len(part.places))
    return repeated._replace(places=repeated.places * views + view)


def _changed(
    learning: Learning, part: Part, draw: Draw
) -> tuple[Part, jax.Array | None]:
    """The examples after their random changes; after mixup also their shares of the
    classes, [A, C]."""
    augment, encoder = learning.augment, learning.encoder
    if augment is None:
        return part, None
    features = scaled(part.features, encoder.dtype)
    if not augment.mixup:
        rows, keys, views = part.rows, None, learning.objective.views
        if rows is not None:
            keys = _augment_keys(draw, rows, part.places % views)
        return part._replace(features=augment(features, keys)), None
    assert part.rows is not None
    keys = _augment_keys(draw, part.rows.reshape(-1), jnp.zeros((), np.int32))
    flat = features.reshape(-1, *features.shape[2:])
    pairs = augment(flat, keys).reshape(features.shape)
    num_classes = encoder.network.num_classes
    labels = jax.nn.one_hot(part.labels, num_classes, dtype=encoder.dtype)
    weights = mixup_weights(augment.mixup, keys[::2])
    images, labels = (mixup(x[:, 0], x[:, 1], weights) for x in (pairs, labels))
    return part._replace(features=images, labels=part.own_labels), labels


def _augment_keys(draw: Draw, rows: jax.Array, views: jax.Array) -> jax.Array:
    """A key for each view of an example, [A], folded from (seed, epoch, row, view)."""
    assert draw.epoch is not None
    keys = example_keys(jax.random.fold_in(draw.key, _AUGMENT), draw.epoch, rows)
    return jax.vmap(jax.random.fold_in)(keys, jnp.broadcast_to(views, rows.shape))


def place_keys(draw: Draw, places: jax.Array) -> jax.Array:
    """A key for each place of a batch, [B], folded from (seed, step, place)."""
    key = jax.random.fold_in(draw.key, draw.step)
    return jax.vmap(lambda place: jax.random.fold_in(key, place))(places)


def _where_frozen(pattern: str, before: Params, after: Params) -> Params:
    """`after`, with the modules whose names fit `pattern` as `before`."""
    return {
        module: before[module] if fnmatch.fnmatchcase(module, pattern) else values
        for module, values in after.items()
    }


def _moved(decay: float, average: Params, params: Params, step: jax.Array) -> Params:
    """The moving average after an update; the first updates weigh more."""

    def moved(a, p):
        count = step.astype(a.dtype)
        share = jnp.minimum(decay, (1 + count) / (10 + count))
        return (share * a + (1 - share) * p).astype(a.dtype)

    return jax.tree.map(moved, average, params)


def loss_sums(
    encoder: Encoder, model: Model, features: Array, labels: Array, weights: Array
) -> Sums:
    """Weighted sums over examples of their cross entropy, and of those predicted right.

    The cross entropy of scores s and label y is log(sum_c exp(s_c)) - s_y.
    """
    outputs, _ = encoder.outputs(model, features, Pass())
    return loss_sums_of(outputs, labels, weights)


def loss_sums_of(outputs: Outputs, labels: Array, weights: Array) -> Sums:
    """`loss_sums` of outputs."""
    scores = outputs.scores
    losses = optax.softmax_cross_entropy_with_integer_labels(scores, labels)
    correct = (scores.argmax(axis=1) == labels).astype(weights.dtype)
    return Sums((losses * weights).sum(), weights.sum(), (correct * weights).sum())


def model_of(state: TrainState) -> Model:
    """What a state predicts with: its parameters, or their moving average."""
    extras: Extras = state.extras
    params = state.params if extras.average is None else extras.average
    return Model(params, extras.averages)


def initial_state(
    model: Model,
    optimizer: optax.GradientTransformation,
    seed: int | None = None,
    has_average: bool = False,
) -> TrainState:
    """The state with these parameters before the first update; arrays of NumPy.

    Args:
      seed: of the random numbers of updates, if they draw any.
      has_average: whether it keeps a moving average of the parameters.
    """
    with jax.enable_x64(True):
        opt_state = jax.tree.map(np.asarray, optimizer.init(model.params))
    key = None if seed is None else np.array([seed >> 32, seed % 2**32], np.uint32)
    average = jax.tree.map(np.copy, model.params) if has_average else None
    extras = Extras(model.averages, key, average)
    return TrainState(model.params, opt_state, np.zeros((), np.int32), extras)
