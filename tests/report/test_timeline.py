"""Where the time of a run went, by the lines of its files."""

import json
import re
import time
from typing import NamedTuple

import numpy as np
import pytest

from embedder import EmbeddingTrainer
from embedder.cli import main
from embedder.engine.loop import run_calls
from embedder.engine.program import PlacedState
from embedder.engine.state import TrainState
from embedder.engine.stopwatch import ACTIVITIES as TIMED
from embedder.report.metrics import Metrics, read_metrics
from embedder.report.timeline import (
    ACTIVITIES,
    UPDATES,
    read_progress,
    shares,
    time_spent,
    timeline,
)


def line(updates: int, seconds: float, **spent: float) -> dict:
    times = {name: 0.0 for name in ACTIVITIES}
    more = {f"{name}_seconds": value for name, value in spent.items()}
    return {"epoch": 1, "updates": updates, "seconds": seconds} | times | more


def test_the_rest_of_the_time_are_updates():
    metrics = Metrics([line(10, 4.0, compile=1.0, input=0.5), line(20, 8.0, input=2.5)])
    seconds, spent = time_spent(metrics, [line(15, 5.0, compile=1.0, input=1.0)])
    np.testing.assert_array_equal(seconds, [0, 4, 5, 8])
    np.testing.assert_array_equal(spent["waiting for input"], [0, 0.5, 1, 2.5])
    np.testing.assert_array_equal(spent[UPDATES], [0, 2.5, 3, 4.5])
    found = shares(metrics, [])
    assert sum(found.values()) == pytest.approx(1)
    assert found["waiting for input"] == 2.5 / 8


def test_parts_of_a_resumed_run_come_one_after_the_other():
    lines = [
        line(10, 4.0, input=1.0),
        line(20, 3.0, input=2.0),
        line(30, 6.0, input=2.0),
    ]
    seconds, spent = time_spent(Metrics(lines), [])
    np.testing.assert_array_equal(seconds, [0, 4, 7, 10])
    np.testing.assert_array_equal(spent["waiting for input"], [0, 1, 3, 3])


@pytest.mark.parametrize("count", [1, 7, 5000])
def test_columns_fill_the_picture(count):
    rng = np.random.default_rng(count)
    seconds = np.cumsum(rng.random(count) + 1e-3)
    waited = np.cumsum(rng.random(count) * np.diff(seconds, prepend=0))
    lines = [line(i, *x) for i, x in enumerate(zip(seconds.tolist(), strict=True))]
    for each, value in zip(lines, waited.tolist(), strict=True):
        each["input_seconds"] = value
    chart = timeline(Metrics(lines), [])
    names = [name for name, _ in chart.layers]
    assert names == [UPDATES, "waiting for input"]
    columns = list(zip(*(columns for _, columns in chart.layers), strict=True))
    assert len(columns) <= 80
    area = (chart.right - chart.left) * (chart.bottom - chart.top)
    found = sum(c.width * c.height for column in columns for c in column)
    assert found == pytest.approx(area, rel=0.01)
    for column in columns:
        assert sum(c.height for c in column) == pytest.approx(200 - 10, abs=0.1)


def test_without_times_of_activities_there_is_no_picture():
    """As in files of earlier versions, and where a line lacks one or is damaged."""
    bare = {"epoch": 1, "updates": 10, "seconds": 4.0, "compile_seconds": 1.0}
    assert timeline(Metrics([bare]), []) is None
    assert shares(Metrics([bare, line(20, None)]), []) == {}


def test_a_run_says_where_its_time_went(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("a b c d a c\n" * 200)
    run = tmp_path / "run"
    options = ["--min-count", "1", "--epochs", "2", "--vector-size", "4"]
    options += ["--holdout", "0.1", "--eval-every", "1epoch", "--loader", "memory"]
    assert main(["train", str(text), "--workdir", str(run), *options]) == 0
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    spent = [last[name] for name in ACTIVITIES]
    assert len(TIMED) == len(spent) and all(x >= 0 for x in spent)
    assert last["compile_seconds"] > 0 and last["evaluation_seconds"] > 0
    assert sum(spent) <= last["seconds"] + 0.01
    metrics = read_metrics(run / "metrics.jsonl")
    progress = read_progress(run / "progress.jsonl")
    assert not {*ACTIVITIES} & {*metrics.scores, *metrics.others}
    assert timeline(metrics, progress) is not None
    page = (run / "report.html").read_text()
    assert "time, % by activity" in page
    share = r'time: updates</th><td class="num"><bdi>[0-9.]+ %'
    assert re.search(share, page)
    assert "Scores of the vectors, with 95 % intervals" in page


def test_the_wait_for_input_is_timed():
    class Updates(NamedTuple):
        position: np.ndarray
        progress: np.ndarray

    def slow_batches():
        for _ in range(2):
            time.sleep(0.02)
            yield Updates(np.zeros((1, 2), int), np.zeros(1)), 1, None

    state = PlacedState(TrainState({"table": np.zeros(1, np.float32)}, (), np.int32(0)))
    calls = list(run_calls(lambda state, batch: (state, ()), state, slow_batches()))
    assert [call.input_seconds >= 0.02 for call in calls] == [True, True]
    assert all(call.call_seconds < 0.02 for call in calls)


def test_callbacks_are_other_time():
    found = []

    def slow(status):
        found.append(status.seconds_of)
        time.sleep(0.01)

    trainer = EmbeddingTrainer(vector_size=4, min_count=1, epochs=2)
    trainer.fit([["a", "b", "c", "d"] * 5] * 50, callbacks=[slow])
    first, second = found
    assert second["other"] - first["other"] >= 0.01
    assert first["compile"] == second["compile"] > 0
