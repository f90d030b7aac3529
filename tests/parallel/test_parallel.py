"""N devices compute what one does, and what the oracle does, in every layout."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WITH_RANK_CHECKS = {"JAX_NUMPY_RANK_PROMOTION": "raise"}


def run(num_devices: int, part: str) -> list[dict]:
    """What `tests.parallel.child` finds out with so many devices of a CPU."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.parallel.child", str(num_devices), part],
        cwd=ROOT,
        env=os.environ | WITH_RANK_CHECKS,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def assert_updates_pass(cell: dict) -> None:
    assert cell["update"] and all(passed for _, passed in cell["update"]), cell


@pytest.mark.row("F23", "B9")
@pytest.mark.slow
@pytest.mark.parametrize("num_devices", [1, 2, 8])
def test_every_layout_computes_what_one_device_and_the_oracle_do(num_devices):
    cells = run(num_devices, "cells")
    assert len({each["cell"] for each in cells}) == len(cells)
    assert len(cells) == {1: 6, 2: 12, 8: 20}[num_devices]
    for each in cells:
        assert_updates_pass(each)
        assert each["epoch"] < 1e-13 and each["loss"] < 1e-13, each
        if num_devices > 1:
            assert each["moved"], each  # or the next line would see nothing
        tables = [shape for _, shape in each["moved"] if set(shape) & set(each["rows"])]
        assert tables == [], each


@pytest.mark.slow
def test_adagrad_is_the_same_on_any_devices():
    """Tables and accumulators, of every layout; 8 divides neither 97 nor 10."""
    cells = run(8, "adagrad")
    assert len(cells) == 10
    for each in cells:
        assert each["epoch"] < 1e-13 and each["loss"] < 1e-13, each
        assert each["opt_state"] < 1e-13, each
        tables = [shape for _, shape in each["moved"] if set(shape) & set(each["rows"])]
        assert tables == [], each


FEATURES = {  # part of the child -> devices, layouts, and largest difference of losses
    "bootstraps": (4, 4, 1e-13),
    "whole_sequences": (2, 3, 1e-13),  # of a bootstrap
    "hierarchical": (2, 3, 1e-12),
    "hierarchical_and_sampled": (4, 4, 1e-12),  # two output rows for each token
    "subwords": (4, 3, 1e-13),  # not with tables that are sharded by rows
    "sums_of_contexts": (2, 3, 1e-13),
    "weights": (2, 3, 1e-13),  # of sequences, with a bootstrap
}


@pytest.mark.slow
@pytest.mark.parametrize("part", FEATURES)
def test_a_feature_of_tables_is_the_same_on_any_devices(part):
    """Some layouts by skip-gram of one model, others by CBOW of two replicas: several
    features have each of them."""
    num_devices, num_layouts, loss = FEATURES[part]
    cells = run(num_devices, part)
    assert len({each["cell"] for each in cells}) == len(cells) == num_layouts
    for each in cells:
        assert each["epoch"] < 1e-13 and each["loss"] < loss, each


@pytest.mark.slow
def test_factors_of_rows_are_the_same_on_any_devices():
    """Skip-gram by SGD, or two replicas of CBOW by Adagrad. A third of the rows is
    frozen: equal to the last bit."""
    cells = run(4, "row_factors")
    assert len(cells) == 8
    for each in cells:
        assert each["frozen"] == [True, True], each
        assert each["epoch"] < 1e-13, each


@pytest.mark.row("F23")
@pytest.mark.slow
def test_an_update_of_a_model_is_the_same_on_two_devices():
    """With rows of new tokens, replayed sequences, and rates that go on: skip-gram by
    SGD, CBOW by Adagrad. Both tables, accumulators and losses."""
    cells = run(2, "model_updates")
    assert len({each["cell"] for each in cells}) == len(cells) == 6
    for each in cells:
        assert each["rows"] == 13 and each["moved"] > 1e-3, each
        assert each["epoch"] < 1e-12 and each["loss"] < 1e-12, each


@pytest.mark.row("F23", "B9")
@pytest.mark.slow
@pytest.mark.parametrize("num_devices", [2, 8])
def test_an_encoder_is_the_same_on_any_devices(num_devices):
    """Batches of 10, of which the last has 7, do not divide by 8."""
    cells = run(num_devices, "encoders")
    assert len(cells) == (8 if num_devices == 2 else 4)
    for each in cells:
        assert each["passed"] and all(each["passed"]), each
        assert each["epoch"] < 1e-13 and each["history"] < 1e-13, each
        assert [4] in each["moved"] or [5, 4] in each["moved"], each


@pytest.mark.slow
@pytest.mark.row("F47")
def test_a_network_is_the_same_on_two_devices():
    """Parameters, averages of batch normalisation, moving average, and history; the
    last batch has padding. Statistics or random numbers of a device are noticed."""
    found, *planted = run(2, "one_network")
    assert found["updates"] == 8
    assert found["state"] < 1e-10 and found["history"] < 1e-10, found
    assert [each["planted"] for each in planted] == [
        "statistics of a device",
        "keys of a device",
    ]
    for each in planted:
        assert each["state"] > 1e-4, each


@pytest.mark.slow
@pytest.mark.row("F47")
def test_a_network_in_bfloat16_is_the_same_on_two_devices():
    """Up to its rounding: sums over devices and statistics are in float32."""
    (half,) = run(2, "half_network")
    assert 0 < half["params"] < 0.002 and half["moved"] > 0.01, half
    assert 0 < half["averages"] < 0.01, half
    assert half["dtypes"] == ["float32", "int32", "uint32"], half


@pytest.mark.row("F47")
@pytest.mark.slow
def test_each_network_is_the_same_on_any_devices():
    """By both modes and loaders; 4 devices do not divide batches of 6."""
    cells = run(4, "each_network")
    assert len(cells) == 4
    for each in cells:
        assert each["updates"] == 8
        assert each["state"] < 1e-10 and each["history"] < 1e-10, each


@pytest.mark.row("F47")
@pytest.mark.slow
def test_each_objective_is_the_same_on_any_devices():
    """The examples of all devices are compared, with padding in the last batch."""
    cells = run(4, "objectives")
    assert len(cells) == 9
    for each in cells:
        assert each["state"] < 1e-10 and each["history"] < 1e-10, each


@pytest.mark.row("F47")
@pytest.mark.slow
def test_random_changes_are_the_same_on_any_devices():
    cells = run(4, "augmented")
    assert len(cells) == 5
    for each in cells:
        assert each["state"] < 1e-10 and each["history"] < 1e-10, each


@pytest.mark.slow
@pytest.mark.row("F47")
def test_an_update_of_each_objective_is_the_same_on_any_devices():
    cells = run(4, "contrasts")
    assert len(cells) == 10
    for each in cells:
        assert each["state"] < 1e-12 and each["moved"] > 1e-3, each


@pytest.mark.slow
@pytest.mark.parametrize("num_devices", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_replicas_are_the_models_that_runs_of_their_seeds_train(num_devices):
    """Where devices have replicas of their own, and where they share all of them."""
    cells = run(num_devices, "replicas")
    assert [each["groups"] for each in cells] == {
        2: 2 * [2, 1, 1, 2, 1, 1],
        4: 2 * [2, 1, 2, 1, 1],
    }[num_devices]
    for each in cells:
        assert each["difference"] < 1e-12, each


@pytest.mark.slow
def test_models_with_own_settings_are_the_same_on_any_devices():
    """Four models of tables and two networks, by sharded and pmap."""
    cells = run(4, "own_settings")
    assert [each["groups"] for each in cells] == [4, 4, 2, 1]
    for each in cells:
        assert each["difference"] < 1e-12, each


@pytest.mark.slow
def test_a_dense_update_is_that_of_the_oracle():
    cells = run(2, "dense")
    assert len(cells) == 2
    for each in cells:
        assert_updates_pass(each)


def test_the_loader_reads_each_part_once_on_any_mesh():
    cells = run(8, "loading")
    assert len(cells) >= 12
    for each in cells:
        assert each["equal"] and each["placed"], each
        assert each["reads"] == each["different"], each
        assert each["elements"] == 2 * 8 * 6, each
