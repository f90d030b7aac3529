"""The stage of the objectives of an encoder: loss, gradients, and one update each."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from embedder.encoders.networks.encoder import Encoder, Outputs
from embedder.encoders.networks.mlp import MLP, layers_of, params_of
from embedder.encoders.networks.network import CLASSES, Model
from embedder.encoders.objectives import (
    ArcFace,
    Objective,
    SimCLR,
    Softmax,
    SupCon,
    Targets,
    Triplet,
)
from embedder.encoders.train_step import Draw, Learning, Part, initial_state, one_update
from embedder.engine.collectives import Collectives
from legacy import network
from legacy.network import Layer
from migration.parity import objectives as oracle
from migration.parity.difference import Difference, difference
from migration.parity.encoder_subject import (
    EncoderSubject,
    dtypes_of,
    layer_lines,
    numbers_of,
)
from migration.parity.tolerances import TOLERANCE

STAGE = "objectives"
_STEP = 1e-6  # of the finite differences
_DIRECTIONS = 5
_SIZE = 6  # values of the embeddings that losses are compared on
_MOST = 16  # examples: the oracle has three loops over them
_RATE = 0.1
_SMOOTHING = 0.2
_MARGIN, _SCALE, _TEMPERATURE = 0.5, 8.0, 0.3


class Case(NamedTuple):
    """A batch; the last example is padding if there are several."""

    x: np.ndarray  # [B, F], scaled
    labels: np.ndarray  # i32[B]
    weights: np.ndarray  # [B]
    num_classes: int


class Compared(NamedTuple):
    """An objective, and what the oracle has for it."""

    name: str
    objective: Objective
    loss: Callable[[np.ndarray, Case], oracle.Loss]  # of scores, or of embeddings
    views: int = 1


def compared(num_classes: int) -> tuple[Compared, ...]:
    """The objectives, with arguments that are not their defaults."""
    of_classes = tuple((1 + np.arange(num_classes)).tolist())
    shares = {"smoothing": _SMOOTHING, "class_weights": of_classes}
    angles = {"margin": _MARGIN, "scale": _SCALE}
    return (
        Compared(
            "softmax",
            Softmax(**shares),
            lambda s, case: oracle.softmax(s, *case[1:3], **shares),
        ),
        Compared(
            "arcface",
            ArcFace(**angles, **shares),
            lambda s, case: oracle.arcface(s, *case[1:3], **angles, **shares),
        ),
        Compared(
            "supcon",
            SupCon(temperature=_TEMPERATURE),
            lambda h, case: oracle.supcon(h, *case[1:3], _TEMPERATURE),
        ),
        Compared(
            "simclr",
            SimCLR(temperature=_TEMPERATURE),
            lambda h, case: oracle.simclr(h, case.weights, _TEMPERATURE),
            views=2,
        ),
        Compared(
            "triplet",
            Triplet(margin=_MARGIN),
            lambda h, case: oracle.triplet(h, *case[1:3], _MARGIN),
        ),
    )


def objectives_stage(subject: EncoderSubject) -> Iterator[Difference]:
    """Each objective by itself, with its gradient, and an update of an MLP on it."""
    for dtype in dtypes_of(subject):
        case = first_case(subject, dtype)
        for each in compared(case.num_classes):
            yield from objective_lines(each, case, subject.config.run.seed)


def objective_lines(each: Compared, case: Case, seed: int) -> Iterator[Difference]:
    """The differences of one objective on a batch; `seed` is that of the MLP."""
    yield from loss_lines(each, _inputs(each, case), _viewed(case, each.views))
    yield _update_line(each, case, seed)


def loss_lines(each: Compared, inputs: np.ndarray, case: Case) -> Iterator[Difference]:
    """Losses, counts and gradient by `inputs`, scores or embeddings of the batch."""
    dtype = inputs.dtype.name
    named = {"dtype": dtype, "tolerance": TOLERANCE["objectives", dtype]}
    theirs = each.loss(inputs, case)
    with jax.enable_x64(dtype == "float64"):
        slope, (losses, counts) = jax.device_get(
            jax.jit(jax.grad(_mean_loss, has_aux=True), static_argnums=1)(
                inputs, each.objective, case.labels, case.weights
            )
        )
    yield difference(STAGE, f"{each.name}, losses", losses, theirs.losses, **named)
    yield difference(STAGE, f"{each.name}, counts", counts, theirs.counts, **named)
    yield difference(STAGE, f"{each.name}, gradient", slope, theirs.slope, **named)
    if dtype == "float64":
        yield _finite_differences(each, inputs, case, theirs.slope)


def _mean_loss(inputs, objective: Objective, labels, weights):
    """The loss of a batch by the port; the losses and counts of its examples."""
    outputs = Outputs(embeddings=inputs, scores=inputs)
    places = jnp.arange(len(labels), dtype=np.int32)
    targets = Targets(jnp.asarray(labels), jnp.asarray(weights), places)
    terms = objective.terms(outputs, targets, Collectives())
    total = terms.counts.sum()
    return terms.losses.sum() / jnp.where(total > 0, total, 1), terms


def _finite_differences(
    each: Compared, inputs: np.ndarray, case: Case, slope: np.ndarray
) -> Difference:
    """Of the oracle's own loss, against its gradient by hand."""
    rng, found, expected = np.random.default_rng(1), [], []
    for _ in range(_DIRECTIONS):
        along = rng.standard_normal(inputs.shape)
        along /= np.sqrt((along**2).sum())
        up, down = (
            each.loss(inputs + sign * _STEP * along, case).mean for sign in (1, -1)
        )
        found.append((up - down) / (2 * _STEP))
        expected.append((slope * along).sum())
    return difference(
        STAGE,
        f"{each.name}, finite differences",
        np.array(found),
        np.array(expected),
        dtype="float64",
        tolerance=TOLERANCE["finite differences", "float64"],
    )


def first_case(subject: EncoderSubject, dtype: str) -> Case:
    """The first examples, as many as a batch has, but not many."""
    size = min(subject.config.encoder.batch_size, _MOST)
    x, labels = numbers_of(subject.examples)
    labels = labels[:size]
    weights = np.ones(len(labels), dtype)
    weights[1:][-1:] = 0
    num_classes = len(subject.examples.classes)
    return Case(network.scaled(x[:size], dtype), labels, weights, num_classes)


def _viewed(case: Case, views: int) -> Case:
    """`case` with each example as often, one after the other; see `Views`."""
    return Case(
        _views_of(np.repeat(case.x, views, axis=0), views),
        np.repeat(case.labels, views),
        np.repeat(case.weights, views),
        case.num_classes,
    )


def _views_of(x, views: int):
    """`x` [A, F] of views one after the other; the second of an example is halved."""
    factors = np.array([0.5**view for view in range(views)], x.dtype)
    return (x.reshape(-1, views, x.shape[1]) * factors[None, :, None]).reshape(x.shape)


class Views(NamedTuple):
    """Stands for random changes of examples, which have no oracle."""

    mixup: float = 0.0

    def __call__(self, images: jax.Array, keys: jax.Array | None) -> jax.Array:
        return _views_of(images, 2)


def _inputs(each: Compared, case: Case) -> np.ndarray:
    """Random scores or embeddings; views of an example have different ones."""
    rng, dtype = np.random.default_rng(0), case.x.dtype
    if not each.objective.trains_head:
        return rng.normal(size=(each.views * len(case.x), _SIZE)).astype(dtype)
    shape = len(case.x), case.num_classes
    if isinstance(each.objective, ArcFace):
        return (_SCALE * rng.uniform(-1, 1, shape)).astype(dtype)
    return rng.normal(size=shape).astype(dtype)


def _update_line(each: Compared, case: Case, seed: int) -> Difference:
    """All parameters of a small MLP after one update by SGD."""
    dtype, is_cosine = case.x.dtype.name, isinstance(each.objective, ArcFace)
    widths = (case.x.shape[1], 7, _SIZE, case.num_classes)
    encoder = Encoder(MLP(widths, _SCALE if is_cosine else 0.0), dtype=dtype, seed=seed)
    rng = np.random.default_rng(2)
    # Large biases: embeddings with one active unit each would have equal distances, and
    # rounding would choose between the negatives of a triplet.
    layers = [
        Layer(w, rng.uniform(1, 2, b.shape).astype(dtype))
        for w, b in network.initial_layers(widths, dtype, seed)
    ]
    ours = _updated(encoder, each.objective, case, layers, is_cosine)
    whole = _viewed(case, each.views)

    def loss(inputs: np.ndarray) -> oracle.Loss:
        return each.loss(inputs, whole)

    if is_cosine:
        theirs = oracle.update_by_cosines(layers, whole.x, loss, _SCALE, _RATE)
    elif each.objective.trains_head:
        theirs = oracle.update_by_scores(layers, whole.x, loss, _RATE)
    else:
        theirs = oracle.update_by_embeddings(layers, *whole[:3], loss, _RATE)
    return _worst_of_layers(f"{each.name}, one update", dtype, ours, theirs)


def _updated(
    encoder: Encoder,
    objective: Objective,
    case: Case,
    layers: list[Layer],
    is_cosine: bool,
) -> list[Layer]:
    """The layers after an update by the port."""
    params = params_of(layers)
    if is_cosine:
        params[CLASSES] = {"w": layers[-1].weights}
    optimizer = optax.sgd(_RATE)
    state = initial_state(Model(params), optimizer)
    places = np.arange(len(case.labels), dtype=np.int32)
    part = Part(case.x, case.labels, case.weights, places, None)
    draw = Draw(None, state.step, None)

    augment = Views() if objective.views > 1 else None
    learning = Learning(encoder, objective, augment)

    @jax.jit
    def update(state, part):
        return one_update(learning, optimizer, Collectives(), state, part, draw)[0]

    with jax.enable_x64(case.x.dtype == np.float64):
        found = jax.device_get(update(state, part)).params
    if is_cosine:
        found = found | {CLASSES: found[CLASSES] | {"b": layers[-1].biases}}
    return layers_of(found)


def _worst_of_layers(title: str, dtype: str, ours, theirs) -> Difference:
    lines = layer_lines(
        *(STAGE, title, dtype, ours, theirs), tolerance=TOLERANCE[STAGE, dtype]
    )
    return max(lines, key=lambda line: line.absolute)._replace(quantity=title)
