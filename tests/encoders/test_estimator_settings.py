"""Settings of `FeatureEncoder` do what the flags of `embedder train` do."""

import logging
from pathlib import Path

import numpy as np
import pytest

from embedder.api.encoder_estimator import FeatureEncoder
from embedder.cli.main import main

pytestmark = pytest.mark.usefixtures("quick_compilation")
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
def own_folder(own_folder):
    np.savez("points.npz", X=X, y=NAMES)


def fitted(**options) -> FeatureEncoder:
    return FeatureEncoder(**SMALL | options).fit(X, NAMES)


def train(*flags: str, run: str = "run") -> int:
    given = "--model encoder --loader memory --layers 4 6 3 --optimizer adam --epochs 8"
    given += " --learning-rate 0.1 --batch-size 8 --validation-fraction 0.3"
    return main(["train", "points.npz", "--workdir", run, *given.split(), *flags])


def test_a_callback_may_stop_a_training_that_keeps_the_best():
    whole = fitted(result="best")
    end = len(whole.history_)

    def stop(status) -> bool:
        return status.epoch == end  # one after the best

    encoder = FeatureEncoder(**SMALL, result="best")
    encoder.fit(X, NAMES, callbacks=stop)
    np.testing.assert_array_equal(encoder.transform(X), whole.transform(X))


@pytest.mark.spread(1)
@pytest.mark.parametrize("source", ["base", Path("base/model.npz")])
def test_it_starts_from_a_run_or_a_file(source, caplog):
    caplog.set_level(logging.DEBUG)
    assert train("--seed", "9", run="base") == 0
    assert train("--init-from", str(source), "--freeze", "hidden*") == 0
    caplog.clear()
    encoder = fitted(init_from=source, freeze="hidden*")
    theirs = FeatureEncoder.load("run/model.npz")
    np.testing.assert_array_equal(encoder.predict_proba(X), theirs.predict_proba(X))
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


@pytest.mark.slow
def test_a_run_with_a_start_still_has_its_data(tmp_path):
    """Its manifest is compared, not what it started from."""
    images = RNG.integers(256, size=(8, 8, 8), dtype=np.uint8)
    np.savez("images.npz", X=images, y=np.arange(8) % 2)
    run = "train images.npz --model encoder --epochs 1 --layers 64 6 2"
    run += " --validation-fraction 0.25 --workdir"
    assert main(f"{run} base".split()) == 0
    assert main(f"{run} again --init-from base".split()) == 0
    assert main(["export", "again", "--to", "p.parquet", "--predictions"]) == 0
    assert main(["neighbors", "again", "0", "--to", "sheet.png"]) == 0
    assert (tmp_path / "sheet.png").stat().st_size > 1000
