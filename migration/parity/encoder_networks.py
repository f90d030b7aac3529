"""The stage of networks of images: outputs, loss, gradients, averages, one update."""

import functools
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import jax
import numpy as np
import optax

from embedder.config import Config, with_options
from embedder.encoders.networks.encoder import Encoder, model_shapes
from embedder.encoders.networks.network import BaseNetwork, Model, Network, Pass
from embedder.encoders.networks.registry import network_for
from embedder.encoders.train_step import Draw, Learning, Part, initial_state, one_update
from embedder.engine.collectives import Collectives
from legacy import network as frozen
from migration.parity import networks
from migration.parity.difference import Difference, difference
from migration.parity.encoder_subject import EncoderSubject, dtypes_of, has_network
from migration.parity.steps import Keep, Use
from migration.parity.tolerances import TOLERANCE

STAGE = "networks"
_MOST = 6  # examples
_RATE = 0.1
_UPDATE = 3  # number of the update: random numbers depend on it
_CHANGE = 1e-6  # of the loss, about, between points of the finite differences
_DIRECTIONS = 3

_DEEP = "resnet, bottlenecks"
"""Compared in float64 alone: rounding of float32 grows in 50 layers. By three seeds
gradients differed by 3e-5 to 3e-3; the convolutions of float32, computed in float64,
agreed to 1e-12."""

Tree = Mapping[str, Mapping[str, np.ndarray]]


class NetworkCase(NamedTuple):
    """A network, and a batch whose last example is padding if there are several."""

    title: str
    network: BaseNetwork
    raw: np.ndarray  # [B, ...], as read
    labels: np.ndarray  # i32[B]
    weights: np.ndarray  # [B], float64


class Small(NamedTuple):
    """A network that is compared where the settings name none."""

    name: str
    shape: tuple[int, ...]  # of an example
    arguments: tuple[str, ...]
    projection: int = 0


SMALL = {
    "conv-small": Small(
        "conv-small", (17, 16, 2), ("width=3", "size=7", "dropout=0.3")
    ),
    "resnet": Small("resnet", (9, 8, 2), ("width=2", "drop_path=0.6"), projection=5),
    _DEEP: Small("resnet", (67, 40), ("depth=50", "width=2", "drop_path=0.2")),
    "wide-resnet": Small(
        "wide-resnet", (9, 8), ("depth=6", "groups=2", "width=2", "dropout=0.3")
    ),
    "vit": Small(
        *("vit", (8, 12, 2)),
        ("width=8", "depth=2", "heads=2", "dropout=0.2", "drop_path=0.4"),
        projection=3,
    ),
    "vit, mean": Small("vit", (8, 8), ("width=6", "depth=1", "heads=3", "pool=mean")),
}
"""By title. Strides of 2 meet lengths that are odd and even; images above 64 pixels
have the other stem of a resnet."""


def networks_stage(subject: EncoderSubject) -> Iterator[Difference]:
    """The network of the settings on the first examples; an mlp: each small network on
    random images."""
    if has_network(subject.config):
        found = iter([_given_case(subject)])
    else:
        found = (small_case(title) for title in SMALL)
    for case in found:
        for dtype in ("float64",) if case.title == _DEEP else dtypes_of(subject):
            yield from network_lines(case, dtype, subject.config.run.seed)


def _given_case(subject: EncoderSubject) -> NetworkCase:
    options, examples = subject.config.encoder, subject.examples
    num = min(options.batch_size, _MOST)
    shape, num_classes = examples.features.shape[1:], len(examples.classes)
    network = network_for(options, shape, num_classes)
    features = np.asarray(examples.features[:num])
    return _case(options.network, network, features, examples.labels[:num])


def small_case(title: str) -> NetworkCase:
    """A network of `SMALL` on random images of three classes."""
    name, shape, arguments, projection = SMALL[title]
    config = with_options(
        Config(),
        model="encoder",
        network=name,
        network_args=arguments,
        embedding_size=projection,
    )
    rng = np.random.default_rng(3)
    images = rng.integers(256, size=(_MOST, *shape)).astype(np.uint8)
    labels = rng.integers(3, size=_MOST).astype(np.int32)
    return _case(title, network_for(config.encoder, shape, 3), images, labels)


def _case(title: str, network: Network, features, labels) -> NetworkCase:
    """A batch in which an example counts twice, as in a resample, and the last not."""
    assert isinstance(network, BaseNetwork)
    weights = np.ones(len(labels))
    weights[1:2] = 2
    weights[1:][-1:] = 0
    return NetworkCase(title, network, features, labels, weights)


class Learned(NamedTuple):
    """What a program makes of a batch; trees are {module: {name: array}}."""

    embeddings: np.ndarray  # by the moving averages before the update
    scores: np.ndarray
    loss: np.ndarray
    gradients: Tree
    averages: Tree  # after the update
    params: Tree


def network_lines(case: NetworkCase, dtype: str, seed: int) -> Iterator[Difference]:
    """The differences of one network on a batch."""
    encoder = Encoder(case.network, dtype=dtype, seed=seed)
    model = _drawn(case, dtype)
    with jax.enable_x64(dtype == "float64"):
        ours = _by_port(encoder, model, case, seed)
        keep = masks(seed, len(case.labels))
        theirs = _by_oracle(model, case, dtype, keep)
    if dtype == "float64":  # the masks are those that are drawn already
        yield _finite_differences(model, case, keep, theirs.gradients)
    for name, mine, other in zip(Learned._fields, ours, theirs, strict=True):
        if not isinstance(other, Mapping) or other:  # some have no averages
            yield _line(f"{case.title}, {name}", dtype, mine, other)


def _by_port(encoder: Encoder, model: Model, case: NetworkCase, seed: int) -> Learned:
    # The first rule of the optimizer keeps the gradients.
    optimizer = optax.chain(optax.trace(0.0), optax.sgd(_RATE))
    weights = case.weights.astype(encoder.dtype)
    places = np.arange(len(weights), dtype=np.int32)
    part = Part(case.raw, case.labels, weights, places, None)

    @jax.jit
    def learn(model, state, part):
        seen = encoder.outputs(model, part.features, Pass())[0]
        draw = Draw(state.extras.seed, state.step, None)
        learning = Learning(encoder)
        return seen, one_update(learning, optimizer, Collectives(), state, part, draw)

    state = initial_state(model, optimizer, seed)
    state = state._replace(step=np.full((), _UPDATE, np.int32))
    seen, (after, sums) = jax.device_get(learn(model, state, part))
    loss = sums.loss / sums.num_examples
    gradients = after.opt_state[0].trace
    return Learned(*seen, loss, gradients, after.extras.averages, after.params)


def _by_oracle(model: Model, case: NetworkCase, dtype: str, keep: Keep) -> Learned:
    """In float64, of the numbers that the port has in `dtype`."""
    params, averages = _float64(model.params), _float64(model.averages)
    name, arguments = case.network.name, case.network.arguments
    x = _features(case, dtype)
    seen = networks.outputs(name, arguments, Use(params, averages), x)
    use = Use(params, averages, case.weights, keep)
    loss = np.array(networks.learn(name, arguments, use, x, case.labels))
    return Learned(*seen, loss, use.gradients, use.moved, networks.stepped(use, _RATE))


def _features(case: NetworkCase, dtype: str) -> np.ndarray:
    return frozen.scaled(case.raw, dtype).astype(np.float64)


def _drawn(case: NetworkCase, dtype: str) -> Model:
    """Random parameters and averages, none of which is 0 or 1 as at the start of a
    training: no layer is without effect."""
    rng = np.random.default_rng(5)

    def values(name: str, shape: tuple[int, ...]) -> np.ndarray:
        if name == "w":
            return rng.uniform(-1, 1, shape) * np.sqrt(6 / np.prod(shape[:-1]))
        low = 0.5 if name in ("scale", "variance") else -0.5
        return rng.uniform(low, low + 1, shape)

    return Model(
        *(
            {
                module: {n: values(n, x.shape).astype(dtype) for n, x in own.items()}
                for module, own in tree.items()
            }
            for tree in model_shapes(case.network)
        )
    )


def _float64(tree: Tree) -> dict[str, dict[str, np.ndarray]]:
    return {
        module: {name: np.asarray(x, np.float64) for name, x in own.items()}
        for module, own in tree.items()
    }


def masks(seed: int, num: int) -> Keep:
    """The masks of the port: of an example by (seed, update, place in the batch), and
    by the layer. Draws depend on whether JAX has float64."""
    key = jax.random.wrap_key_data(
        np.array([seed >> 32, seed % 2**32], np.uint32), impl="threefry2x32"
    )
    key = jax.random.fold_in(key, _UPDATE)

    @functools.cache
    def keep(layer: int, rate: float, shape: tuple[int, ...]) -> np.ndarray:
        found = []
        for place in range(num):
            own = jax.random.fold_in(jax.random.fold_in(key, place), layer)
            found.append(jax.random.bernoulli(own, 1 - rate, shape))
        return np.stack(jax.device_get(found))

    return keep


def _line(quantity: str, dtype: str, ours, theirs) -> Difference:
    """Of all values as one array."""
    if isinstance(theirs, Mapping):
        names = _names(theirs)
        assert names == _names(ours)
        ours, theirs = (
            np.concatenate([np.ravel(tree[module][name]) for module, name in names])
            for tree in (ours, theirs)
        )
    ours, theirs = _over_largest(ours, theirs)
    return difference(
        *(STAGE, quantity, ours, theirs.astype(dtype)),
        **{"dtype": dtype, "tolerance": TOLERANCE[STAGE, dtype]},
    )


def _names(tree: Tree) -> list[tuple[str, str]]:
    return sorted((module, name) for module, own in tree.items() for name in own)


def _over_largest(ours, theirs) -> tuple[np.ndarray, np.ndarray]:
    """Both over the largest of `theirs`: gradients may be small."""
    scale = float(np.abs(theirs).max()) or 1.0  # float: float32 stays float32
    return np.asarray(ours / scale), np.asarray(theirs / scale)


def _finite_differences(
    model: Model, case: NetworkCase, keep: Keep, gradients: Tree
) -> Difference:
    """Of the oracle's own loss along random directions, against its gradient by
    hand."""
    params, averages = _float64(model.params), _float64(model.averages)
    x, rng = _features(case, "float64"), np.random.default_rng(1)

    def loss(params: Tree) -> float:
        use = Use(params, averages, case.weights, keep)
        name, arguments = case.network.name, case.network.arguments
        return networks.loss(name, arguments, use, x, case.labels)

    # By larger steps units of deep networks, with their large gradients, would change
    # from active to not.
    step = _CHANGE / _length(gradients)
    found, expected = [], []
    for _ in range(_DIRECTIONS):
        along = _direction(gradients, rng)
        up, down = (loss(_moved(params, along, by)) for by in (step, -step))
        found.append((up - down) / (2 * step))
        expected.append(
            sum((gradients[m][n] * along[m][n]).sum() for m, n in _names(along))
        )
    return difference(
        *(STAGE, f"{case.title}, finite differences"),
        *_over_largest(np.array(found), np.array(expected)),
        **{"dtype": "float64", "tolerance": TOLERANCE["finite differences", "float64"]},
    )


def _direction(gradients: Tree, rng: np.random.Generator) -> Tree:
    """A random one and that of the gradient, each of length 1. By a random one alone
    the loss of a network of a million parameters hardly changes."""
    drawn = jax.tree.map(lambda g: rng.standard_normal(g.shape), gradients)
    return _moved(_unit(drawn), _unit(gradients), 1)


def _unit(tree: Tree) -> Tree:
    length = _length(tree)
    return jax.tree.map(lambda each: each / length, tree)


def _length(tree: Tree) -> float:
    return float(np.sqrt(sum((each**2).sum() for each in jax.tree.leaves(tree))))


def _moved(params: Tree, along: Tree, step: float) -> Tree:
    return jax.tree.map(lambda p, each: p + step * each, params, along)
