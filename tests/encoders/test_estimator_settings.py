"""Settings of `FeatureEncoder` do what the flags of `embedder train` do."""

import logging
import re
from pathlib import Path

import jax
import numpy as np
import pytest
from sklearn.base import clone

from embedder.cli import main
from embedder.encoders.estimator import FeatureEncoder
from tests.commands import error_line

RNG = np.random.default_rng(4)
LABELS = RNG.integers(3, size=60)
X = RNG.normal(size=(60, 4)) + 0.5 * np.eye(4)[LABELS]
NAMES = np.array(["red", "green", "blue"])[LABELS]
SMALL = {
    "layers": (4, 6, 3),
    "optimizer": "adam",
    "learning_rate": 0.1,
    "batch_size": 8,
    "epochs": 8,
    "validation_fraction": 0.3,
}


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("points.npz", X=X, y=NAMES)
    jax.config.update("jax_disable_most_optimizations", True)  # a few calls each
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def fitted(**options) -> FeatureEncoder:
    return FeatureEncoder(**SMALL | options).fit(X, NAMES)


def train(*flags: str, run: str = "run") -> int:
    given = ["--model", "encoder", "--loader", "memory", "--layers", "4", "6", "3"]
    given += ["--optimizer", "adam", "--learning-rate", "0.1", "--batch-size", "8"]
    given += ["--epochs", "8", "--validation-fraction", "0.3"]
    return main(["train", "points.npz", "--workdir", run, *given, *flags])


def assert_same(encoder: FeatureEncoder, run: str = "run") -> None:
    """The parameters and metrics of `encoder` are those of a run, to the bit."""
    theirs = FeatureEncoder.load(Path(run, "model.npz"))
    np.testing.assert_array_equal(encoder.transform(X), theirs.transform(X))
    for ours, other in zip(encoder.layers_, theirs.layers_, strict=True):
        for a, b in zip(ours, other, strict=True):
            np.testing.assert_array_equal(a, b, strict=True)
    assert encoder.history_ == theirs.history_


CASES = {
    "step": (
        {"schedule": "step", "schedule_args": {"boundaries": (2, 5), "factor": 0.2}},
        ["--schedule", "step", "--schedule-args", "boundaries=2,5", "factor=0.2"],
    ),
    "bfloat16": ({"compute_dtype": "bfloat16"}, ["--compute-dtype", "bfloat16"]),
    "patience": ({"patience": 1}, ["--patience", "1"]),
    "updates": (
        {"eval_every": 4, "patience": 3, "result": "best"},
        ["--eval-every", "4", "--patience", "3", "--result", "best"],
    ),
    "best": ({"result": "best"}, ["--result", "best"]),
    "seldom": (
        {"eval_every": "3epochs", "result": "best"},
        ["--eval-every", "3epochs", "--result", "best"],
    ),
    "precision": ({"precision": "default"}, ["--precision", "default"]),
}


@pytest.mark.spread(2)
@pytest.mark.parametrize("case", CASES)
def test_each_setting_is_that_of_the_command(case):
    options, flags = CASES[case]
    assert train(*flags) == 0
    encoder = fitted(**options)
    assert_same(encoder)
    again = clone(encoder)
    assert again.get_params() == encoder.get_params()
    assert all(again.get_params()[name] == value for name, value in options.items())


@pytest.mark.spread(1)
@pytest.mark.parametrize("case", ["step", "bfloat16", "patience", "best"])
def test_each_setting_does_something(case):
    """Else two trainings that ignore it would be equal, too."""
    options, _ = CASES[case]
    plain, other = fitted(), fitted(**options)
    assert (plain.transform(X) != other.transform(X)).any()


def test_patience_ends_the_training_and_best_is_kept(caplog):
    caplog.set_level(logging.INFO)
    plain = fitted()
    losses = [line["val_loss"] for line in plain.history_]
    best = int(np.argmin(losses))
    assert best < 6  # else there is nothing to tell
    ended = fitted(patience=2)
    assert ended.history_ == plain.history_[: best + 3]
    assert any(line.startswith("Ends early, after ") for line in caplog.messages)
    kept = fitted(result="best")
    assert kept.history_ == plain.history_[: best + 1]
    line = f"The best is epoch {best + 1}, with validation loss {losses[best]:.4f}."
    assert line in caplog.messages


def test_a_callback_may_stop_a_training_that_keeps_the_best():
    whole = fitted(result="best")
    end = len(whole.history_)

    def stop(status) -> bool:
        return status.epoch == end  # one after the best

    encoder = FeatureEncoder(**SMALL, result="best")
    encoder.fit(X, NAMES, callbacks=stop)
    np.testing.assert_array_equal(encoder.transform(X), whole.transform(X))


@pytest.mark.slow
def test_the_best_of_an_ensemble_is_that_of_the_command():
    assert train("--replicas", "2", "--result", "best") == 0
    encoder = FeatureEncoder(**SMALL, result="best").fit_ensemble(X, NAMES, 2)
    theirs = FeatureEncoder.load("run/model.npz")
    ours, others = encoder.ensemble_.transform(X), theirs.ensemble_.transform(X)
    np.testing.assert_array_equal(ours, others)
    assert encoder.history_ == theirs.history_ and len(encoder.history_) < 8


# --- starts


@pytest.mark.spread(1)
@pytest.mark.parametrize("kind", ["run", "file", "path"])
def test_it_starts_from_a_run_or_a_file(kind, caplog):
    caplog.set_level(logging.DEBUG)
    assert train("--seed", "9", run="base") == 0
    source = {"run": "base", "file": "base/model.npz", "path": Path("base")}[kind]
    flags = ["--init-from", str(source), "--freeze", "hidden*"]
    assert train(*flags) == 0
    caplog.clear()
    encoder = fitted(init_from=source, freeze="hidden*")
    assert_same(encoder)
    base = FeatureEncoder.load("base/model.npz")
    np.testing.assert_array_equal(encoder.transform(X), base.transform(X))
    assert (encoder.layers_[1][0] != base.layers_[1][0]).any()
    line = f"start: 51 of 51 parameters are those of {source}; the others are drawn"
    assert line in caplog.messages


def test_other_classes_start_from_a_file_of_save():
    fitted().save("base.npz")
    base = FeatureEncoder.load("base.npz")
    two = np.where(LABELS == 0, "red", "other")
    options = SMALL | {"layers": (4, 6, 2), "epochs": 0}
    encoder = FeatureEncoder(**options, init_from="base.npz").fit(X, two)
    np.testing.assert_array_equal(encoder.transform(X), base.transform(X))


def test_all_networks_of_an_ensemble_start_there():
    fitted().save("base.npz")
    encoder = FeatureEncoder(**SMALL | {"epochs": 0}, init_from="base.npz")
    members = encoder.fit_ensemble(X, NAMES, 2).ensemble_.members
    first, second = (each.transform(X) for each in members)
    np.testing.assert_array_equal(first, second)


# --- wrong values

REFUSED = {
    "no start": (
        {"init_from": "gone.npz"},
        ["--init-from", "gone.npz"],
        "`init_from` gone.npz does not exist.",
    ),
    "another network": (
        {"init_from": "other.npz"},
        ["--init-from", "other.npz"],
        "`init_from` other.npz has no module with parameters of the same names and "
        "shapes as the network",
    ),
    "no module": (
        {"freeze": "stem*"},
        ["--freeze", "stem*"],
        "`freeze` must be a pattern of some modules of the network, got 'stem*', which "
        "is that of none: they are classes, hidden/~/linear_0.",
    ),
    "patience": (
        {"patience": 2, "validation_fraction": 0.0},
        ["--patience", "2", "--validation-fraction", "0"],
        "`patience` needs `validation_fraction`, got 2.",
    ),
    "best": (
        {"result": "best", "validation_fraction": 0.0},
        ["--result", "best", "--validation-fraction", "0"],
        "`result` best needs `validation_fraction`, got 'best'.",
    ),
    "boundaries": (
        {"schedule": "step", "schedule_args": {"boundaries": [5, 2]}},
        ["--schedule", "step", "--schedule-args", "boundaries=5,2"],
        "`schedule_args` must be boundaries=, rising epochs above 0 such as 30,60, or "
        "factor=, a number in (0, 1), got 'boundaries=5,2'.",
    ),
    "constant": (
        {"schedule_args": {"factor": 0.5}},
        ["--schedule-args", "factor=0.5"],
        "`schedule_args` applies only to `rate_schedule` step, got factor=0.5 with "
        "auto.",
    ),
    "never": (
        {"eval_every": "never", "patience": 1},
        ["--eval-every", "never", "--patience", "1"],
        "`patience` counts evaluations, got 1 with `eval_every` = 'never'.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_values_have_the_line_of_the_command(case, capsys):
    FeatureEncoder((3, 5, 2), epochs=0).fit(X[:, :3], LABELS > 0).save("other.npz")
    options, flags, message = REFUSED[case]
    with pytest.raises((ValueError, OSError), match=re.escape(message)):
        fitted(**options)
    capsys.readouterr()
    assert train(*flags) == 2
    assert message in error_line(capsys)
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"init_from": 3}, "`init_from` must be the path .* encoder file, got 3"),
        ({"compute_dtype": "half"}, "`compute_dtype` must be .*bfloat16.* got 'half'"),
        ({"precision": "low"}, "`precision` must be .*'highest', got 'low'"),
        ({"result": "first"}, "`result` must be 'last' or 'best', got 'first'"),
        ({"schedule_args": "factor=1"}, "`schedule_args` must be a dict .*got 'factor"),
        ({"freeze": 5}, "`freeze_modules` must be .* got 5"),
    ],
)
def test_wrong_types_are_one_line(options, message):
    with pytest.raises((ValueError, TypeError), match=message) as found:
        fitted(**options)
    assert "\n" not in str(found.value)


def test_examples_without_labels_have_no_best():
    images = RNG.integers(256, size=(12, 8, 8), dtype=np.uint8)
    encoder = FeatureEncoder(
        **{"network": "conv-small", "network_args": {"width": 2, "size": 4}},
        **{"objective": "simclr", "augment": ("flip",), "validation_fraction": 0.5},
        result="best",
    )
    with pytest.raises(ValueError, match="`result` goes by the loss of classes"):
        encoder.fit(images)
