"""Networks and objectives on all devices of this process, next to one of them."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import jax
import numpy as np
import optax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from embedder.encoders import program as encoder_program
from embedder.encoders import update
from embedder.encoders.networks import layers
from embedder.encoders.networks.encoder import make_encoder
from embedder.encoders.networks.mlp import MLP
from embedder.engine.epochs import run_epochs
from embedder.engine.exchange import Exchange
from migration.parity.encoder_objectives import Views, compared
from tests.encoders.image_cases import largest_difference, make_training, trained
from tests.parallel.compiling import do_not_optimize

BOTH = (("sharded", "memory"), ("pmap", "tfdata"))
OTHERS = (("sharded", "tfdata"), ("pmap", "memory"))
OBJECTIVES: dict[str, dict[str, Any]] = {
    "softmax": {"objective_args": ("smoothing=0.1",), "class_weights": "balanced"},
    "arcface": {},
    "supcon": {"objective_args": ("temperature=0.5",)},
    "triplet": {},
}


def each_network() -> Iterator[dict]:
    """Each network; the modes and loaders are shared out among them."""
    do_not_optimize()
    for network, where in (
        ("conv-small", OTHERS[1:]),
        ("vit", OTHERS[:1]),
        ("resnet", BOTH[1:]),
        ("wide-resnet", BOTH[:1]),
    ):
        yield from cells(network, where)


def one_network() -> Iterator[dict]:
    """conv-small by sharded, and with planted faults of two kinds."""
    yield from cells("conv-small", BOTH[:1])
    for name, planted in (
        ("statistics of a device", local_statistics()),
        ("keys of a device", local_keys()),
    ):
        with planted:
            encoder_program.make_encoder_program.cache_clear()
            for cell in cells("conv-small", BOTH[:1]):
                yield cell | {"planted": name}
    encoder_program.make_encoder_program.cache_clear()


def half_network() -> Iterator[dict]:
    """conv-small in bfloat16 by sharded: how far its parameters and averages are."""
    half = {"dtype": "float32", "compute_dtype": "bfloat16"}
    whole = trained("conv-small", **half).state
    places = {"mode": "sharded", "loader": "memory", "devices": jax.device_count()}
    training = make_training("conv-small", **places, **half)
    first = training.initial_state()
    found = run_epochs(training, first).state
    yield {
        "params": largest_difference(found.params, whole.params),
        "moved": largest_difference(found.params, first.params),
        "averages": largest_difference(found.extras.averages, whole.extras.averages),
        "dtypes": sorted({x.dtype.name for x in jax.tree.leaves(found)}),
    }


def objectives() -> Iterator[dict]:
    """Each objective that needs no augmentation, by an MLP; one network beside it."""
    do_not_optimize()
    for objective, options in OBJECTIVES.items():
        yield from cells("mlp", BOTH, objective=objective, **options)
    yield from cells("conv-small", BOTH[:1], objective="supcon")


def augmented() -> Iterator[dict]:
    """Random changes of images, mixup, and objectives of two views."""
    do_not_optimize()
    crop = {"augment": ("crop=1", "flip")}
    yield from cells("mlp", BOTH, augment=("flip", "mixup=0.4"))
    yield from cells("mlp", BOTH, objective="simclr", **crop)
    supcon = {"objective": "supcon", "objective_args": ("views=2",)}
    yield from cells("conv-small", BOTH[:1], **supcon, **crop)


def cells(network: str, where, **options: Any) -> Iterator[dict]:
    """Two epochs by each mode and loader, compared with one device."""
    whole = trained(network, **options)
    for mode, loader in where:
        places = {"mode": mode, "loader": loader, "devices": jax.device_count()}
        training = make_training(network, **places, **options)
        assert training.layout.num_devices == jax.device_count()
        end = run_epochs(training, training.initial_state())
        yield {
            "cell": f"{network} {mode} {loader} {options.get('objective', '')}",
            "updates": end.position.updates,
            "state": largest_difference(end.state, whole.state),
            "history": float(
                np.abs(np.subtract(end.position.history, whole.position.history)).max()
            ),
        }


@contextlib.contextmanager
def local_statistics():
    """Batch normalisation by the examples of each device."""
    original = layers._moments

    def local(x, use):
        return original(x, use._replace(exchange=Exchange()))

    with mock.patch.object(layers, "_moments", local):
        yield


@contextlib.contextmanager
def local_keys():
    """Random numbers by the place of an example on its device."""
    original = update.place_keys

    def local(draw, places):
        return original(draw, places - places[0])

    with mock.patch.object(update, "place_keys", local):
        yield


def contrasts() -> Iterator[dict]:
    """An update of each objective, simclr too, by `shard_map` and by `pmap`."""
    rng, num = np.random.default_rng(0), 4 * jax.device_count()
    features, labels = rng.normal(size=(num, 5)), rng.integers(3, size=num)
    weights = np.ones(num)
    weights[-1] = 0
    places = np.arange(num, dtype=np.int32)
    part = update.Part(features, labels.astype(np.int32), weights, places, None)
    optimizer = optax.sgd(0.1)
    for each in compared(3):
        scale = getattr(each.objective, "scale", 0.0)
        encoder = make_encoder(MLP((5, 7, 6, 3), scale), dtype="float64", seed=1)
        augment = Views() if each.views > 1 else None
        learning = update.Learning(encoder, each.objective, augment)
        state = update.initial_state(encoder.init(), optimizer)

        with jax.enable_x64(True):
            whole = jax.device_get(jax.jit(update_of(learning, optimizer))(state, part))
            for mode, apply in (("sharded", by_mesh), ("pmap", by_pmap)):
                found = apply(update_of(learning, optimizer, "d"), state, part)
                yield {
                    "cell": f"{each.name} {mode}",
                    "state": largest_difference(found, whole),
                    "moved": largest_difference(whole[0].params, state.params),
                }


def update_of(
    learning: update.Learning, optimizer: optax.GradientTransformation, *axes: str
) -> Callable:
    """One update of a device, whose examples are sharded along `axes`."""

    def updated(state, part):
        draw = update.Draw(None, state.step, None)
        return update.one_update(learning, optimizer, Exchange(axes), state, part, draw)

    return updated


def by_mesh(updated: Callable, state, part):
    mesh = Mesh(np.array(jax.devices()), ("d",))
    specs = jax.tree.map(lambda _: P("d"), part)
    mapped = jax.shard_map(
        updated, mesh=mesh, in_specs=(P(), specs), out_specs=P(), check_vma=False
    )
    return jax.device_get(jax.jit(mapped)(state, part))


def by_pmap(updated: Callable, state, part):
    num = jax.device_count()
    parts = jax.tree.map(lambda x: x.reshape(num, -1, *x.shape[1:]), part)
    mapped = jax.pmap(updated, axis_name="d", in_axes=(None, 0), out_axes=None)
    return jax.device_get(mapped(state, parts))
