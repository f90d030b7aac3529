"""An encoder: from its batches to an epoch and its files, against the oracle."""

import numpy as np
import pytest

from embedder.config import Config, with_options
from migration.parity.encoder import ENCODER_STAGES, encoder_ladder
from migration.parity.encoder_subject import encoder_subject as subject_of
from tests.parity.cases import assert_pass
from tests.parity.encoder_cases import subject

STAGES = [stage for stage in ENCODER_STAGES if stage != "networks"]
"""Of an mlp; the networks of images do not depend on the examples: test_19."""
CASES = {
    "images": {"shape": (5, 4), "kind": np.uint8, "batch_size": 8},
    "features": {"shape": (7,), "kind": np.float32, "batch_size": 10},
    "doubles": {"shape": (7,), "kind": np.float64, "batch_size": 96},
    "one at a time": {"shape": (3,), "kind": np.float64, "batch_size": 1, "num": 30},
    "two classes": {"shape": (6,), "classes": 2, "seed": 2**64 - 1},
    "deep": {"shape": (6,), "kind": np.float32, "hidden": (9, 8, 7, 6)},
}


@pytest.mark.spread(2)
@pytest.mark.parametrize("stage", sorted(STAGES, key="whole epoch".__ne__))
def test_port_is_the_oracle(stage):
    assert_pass(encoder_ladder(subject(**CASES["features"]), [stage]))


SOME = {
    "images": STAGES,
    "doubles": ["batches", "gradients", "whole epoch"],
    "one at a time": ["batches", "one update", "bootstrap"],
    "two classes": ["loss", "whole epoch", "files"],
    "deep": ["gradients", "100 updates", "replicas"],
}
"""Stages for each other case: where its batches, classes or layers matter most."""


@pytest.mark.slow
@pytest.mark.parametrize("case", SOME)
def test_port_is_the_oracle_in_every_case(case):
    lines = list(encoder_ladder(subject(**CASES[case]), SOME[case]))
    assert {line.stage for line in lines} == {*SOME[case]}
    assert_pass(lines)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": "adam", "learning_rate": 0.01},
        {"optimizer_args": ("momentum=0.9",)},
    ],
    ids=["adam", "momentum"],
)
def test_an_epoch_by_each_optimizer_is_the_oracles(options):
    lines = [
        line
        for line in encoder_ladder(subject(**options), ["whole epoch"])
        if line.dtype == "float64"  # what Adam does in float32: see the ladder
    ]
    assert len(lines) == 7
    assert_pass(lines)


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["replicas", "bootstrap"])
@pytest.mark.parametrize(
    "options",
    [{"optimizer": "adam"}, {"optimizer_args": ("momentum=0.9",)}],
    ids=["adam", "momentum"],
)
def test_replicas_by_each_optimizer_are_the_oracles(options, stage):
    given = CASES["features"] | {"learning_rate": 0.01, "dtype": "float64"} | options
    assert_pass(encoder_ladder(subject(**given), [stage]))


@pytest.mark.slow
def test_an_epoch_of_images_is_the_oracles(data_folder):
    config = with_options(
        Config(),
        model="encoder",
        loader="memory",
        layers=(784, 512, 10),
        validation_fraction=0.2,
        dtype="float64",
    )
    whole = subject_of(config, str(data_folder / "fashion-mnist"), 0)
    assert len(whole.examples.labels) == 60_000
    lines = list(encoder_ladder(whole, ["whole epoch"]))
    assert_pass(lines)
    accuracies = [line for line in lines if line.quantity.endswith("accuracy")]
    assert [line.absolute for line in accuracies] == [0, 0]


def test_optimizers_that_the_oracle_has_not_are_refused():
    config = with_options(Config(), model="encoder", optimizer="lion")
    with pytest.raises(ValueError, match="`optimizer` must be one of .* got 'lion'"):
        subject_of(config, "data.npz", 0)


@pytest.mark.row("B51")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rate_schedule", "cosine"),
        ("objective", "supcon"),
        ("objective_args", ("smoothing=0.1",)),
        ("class_weights", "balanced"),
        ("weight_decay", 0.1),
        ("average", 0.9),
        ("compute_dtype", "bfloat16"),
    ],
)
def test_settings_that_the_oracle_has_not_are_refused(name, value):
    given = {"model": "encoder", "optimizer": "sgd", name: value}
    config = with_options(Config(), **given)
    with pytest.raises(ValueError, match=f"`{name}` must be .*, got "):
        subject_of(config, "data.npz", 0)


@pytest.mark.slow
def test_images_are_compared_on_an_mlp(tmp_path):
    """Where `embedder train` would take another network."""
    images = np.zeros((4, 8, 8), np.uint8)
    np.savez(tmp_path / "images.npz", X=images, y=np.arange(4) % 2)
    config = with_options(Config(), model="encoder", optimizer="sgd")
    found = subject_of(config, str(tmp_path / "images.npz"), 0)
    assert found.training().config.encoder.network == "mlp"
    assert list(encoder_ladder(found, ["loss"]))


def test_an_encoder_has_no_demo_corpus():
    config = with_options(Config(), model="encoder")
    with pytest.raises(ValueError, match="`corpus` must be given for an encoder"):
        subject_of(config, None, 0)
