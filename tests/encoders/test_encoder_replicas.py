"""K encoders side by side: rates of their own, seeds, and resamples."""

from typing import Any

import jax
import numpy as np
import pytest

from embedder.config import Config, common_config
from embedder.data.examples.examples import Examples
from embedder.encoders.plan import TrainingInputs, plan
from embedder.encoders.trainer import EncoderTrainer
from embedder.engine.epochs import Checkpoint, run_epochs
from embedder.engine.replicas import unstack_states
from embedder.errors import InputError
from tests.encoders import image_cases
from tests.encoders.image_cases import largest_difference

EPOCHS = 17  # of 6 updates: 102
TOLERANCE = 1e-12  # float64
RNG = np.random.default_rng(0)
LABELS = RNG.integers(3, size=50).astype(np.int32)
POINTS = RNG.normal(size=(50, 4)) + 2 * np.eye(4)[LABELS]


def examples() -> Examples:
    """50 points around three corners."""
    keys = [str(number) for number in range(50)]
    return Examples(POINTS.copy(), LABELS.copy(), [*"abc"], keys)


def make_config(**options: Any) -> Config:
    """Batches of 7 of 40 examples, by Adam in float64."""
    given = {"optimizer": "adam", "optimizer_args": (), "learning_rate": 0.01}
    given |= {"layers": (4, 6, 5, 3), "batch_size": 7, "average": 0.0}
    return image_cases.make_config("mlp", **given | options)


def make_training(data: Examples | None = None, **options: Any) -> EncoderTrainer:
    return side_by_side(make_config(**options), data or examples())


def side_by_side(config: Config, data: Examples, models=()) -> EncoderTrainer:
    return EncoderTrainer(plan(TrainingInputs(config, data, range(EPOCHS), models)))


def trained(training: EncoderTrainer) -> Checkpoint:
    return run_epochs(training, training.initial_state())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("optimizer", "arguments", "values"),
    [
        ("sgd", "momentum={} nesterov=true", (0.9, 0.5)),
        ("adamw", "weight_decay={}", (0.1, 0.0)),
        ("adam", "b1={}", (0.9, 0.7)),
        ("adagrad", "initial_accumulator_value={}", (0.1, 0.3)),
        ("rprop", "eta_plus=1.2", (0, 0)),
        ("rmsprop", "initial_scale={}", (0.0, 1.0)),
    ],
)
def test_networks_with_own_rates_are_those_of_runs_of_their_own(
    optimizer, arguments, values
):
    shared = {"rate_schedule": "linear", "warmup": "3", "clip_norm": 1.0}
    own: list[dict] = [
        (shared if optimizer == "sgd" else {})
        | {"learning_rate": 0.01 * (k + 1), "seed": 3 + 4 * k, "optimizer": optimizer}
        | {"optimizer_args": arguments.format(value).split()}
        for k, value in enumerate(values)
    ]
    models = [make_config(**each) for each in own]
    together = trained(side_by_side(common_config(models), examples(), models))
    for each, found in zip(own, unstack_states(together.state), strict=True):
        alone = trained(make_training(**each)).state
        assert largest_difference(found.params, alone.params) < TOLERANCE
        assert largest_difference(found.opt_state, alone.opt_state) < TOLERANCE


def test_networks_side_by_side_must_have_the_same_arguments():
    models = [make_config(optimizer_args=[each]) for each in ("b1=0.9", "b2=0.9")]
    message = "`optimizer_args` .* must have the same names"
    with pytest.raises(InputError, match=message):
        side_by_side(common_config(models), examples(), models)


def test_seeds_start_at_0_after_the_largest():
    training = make_training(replicas=2, seed=2**64 - 1)
    first = unstack_states(training.initial_state())[1]
    desired = make_training(seed=0).program.encoder.init().params
    assert largest_difference(first.params, desired) == 0


def test_the_loop_over_updates_is_not_masked():
    """A loop of one condition for each replica computes updates that it leaves out."""
    training = make_training(replicas=3)
    _, _, batches = next(training.host_batches(0))
    updates, state = training.program.apply_updates, training.initial_state()
    with jax.enable_x64(True):
        equations = updates.trace(state, batches).jaxpr.eqns
    loops = [x.params for x in equations if x.primitive.name == "while"]
    assert [x["cond_jaxpr"].out_avals[0].shape for x in loops] == [()]


def test_validation_examples_are_not_resampled():
    times = make_training(bootstrap=True, replicas=2).source.multiplicity
    assert times.shape == (50, 2) and (times[40:] == 0).all()
    assert (times.sum(axis=0) == 40).all()


def test_a_batch_without_any_drawn_example_changes_nothing():
    options = {"bootstrap": True, "batch_size": 1, "optimizer": "sgd"}
    training = make_training(**options)
    is_out = training.source.multiplicity == 0
    assert is_out[:40].any()
    other = examples()
    other.features[is_out], other.labels[is_out] = 1e3, 0
    ends = [trained(training), trained(make_training(other, **options))]
    assert largest_difference(*(end.state.params for end in ends)) == 0
    assert np.isfinite(ends[0].position.losses).all()
