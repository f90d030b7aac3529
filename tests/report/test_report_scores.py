"""Scores of vectors with intervals, and where the time of a run went."""

import json
import math
import re
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from embedder import EmbeddingTrainer
from embedder.cli.main import main
from embedder.disk.workdir import Workdir
from embedder.metrics.intervals import Estimate
from embedder.metrics.score_table import read_scores, write_scores
from embedder.report.metrics import Metrics, read_metrics
from embedder.report.timeline import (
    ACTIVITIES,
    UPDATES,
    read_progress,
    time_spent,
    timeline,
)
from tests.commands import error_line, json_lines
from tests.report import parsed
from tests.report.parsed import read as page

FAST = ("--vector-size", "8", "--epochs", "2", "--alpha", "0.1", "--loader", "memory")
CAPTION = "Scores of the vectors, with 95 % intervals"
WALKS = "edges.txt --walks 4 --walk-length 8 --block 32"
RUNS = {
    "pairs": "text.txt --best-by pairs.tsv",
    "held": "text.txt --holdout 0.2 --eval-every 1epoch",
    "best": "text.txt --holdout 0.2 --best-by next-item --eval-every 8 --result best",
    "graph": f"{WALKS} --holdout 0.2 --best-by labels.txt",
    "replicas": "text.txt --holdout 0.2 --replicas 2",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """Finished runs of a text of five topics, and what they can be scored by."""
    folder, rng = tmp_path_factory.mktemp("scored"), np.random.default_rng(0)
    topics, each = rng.integers(5, size=300), range(5)
    lines = [" ".join(f"{x}{i}" for x in rng.choice([*"abcd"], 6)) for i in topics]
    pairs = [f"a{i}\tb{j}\t{9 if i == j else i + j}" for i in each for j in each]
    edges = [f"n{i} n{j}" for i in range(30) for j in range(i) if (i - j) % 5 < 2]
    for name, found in {
        "text.txt": lines,
        "pairs.tsv": [*pairs, "x\ty\t1"],
        "edges.txt": edges,
        "labels.txt": [f"n{i} {'odd' if i % 2 else 'even'}" for i in range(30)],
    }.items():
        (folder / name).write_text("\n".join(found))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, command in RUNS.items():
            train(command, name)
    return folder


@pytest.fixture(autouse=True)
def own_folder(runs, tmp_path, monkeypatch):
    """Copies, which a test may change."""
    shutil.copytree(runs, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")


def train(command: str, run: str) -> None:
    assert main(["train", *command.split(), *FAST, "--workdir", run]) == 0


def scores(run: str) -> dict[str, dict[str, list[float]]]:
    return json.loads(Path(run, "scores.json").read_text())


def of_verb(capsys, run: str, *options: str) -> dict:
    capsys.readouterr()
    assert main(["evaluate", run, *options, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def assert_are(found: list[float], expected: dict[str, float]) -> None:
    assert found == pytest.approx([*expected.values()], abs=1e-6)


def test_pairs_are_scored_as_by_the_verb(capsys):
    expected = of_verb(capsys, "pairs", "--pairs", "pairs.tsv")
    found = scores("pairs")["spearman"]
    value, lower, upper = found["vectors"]
    assert_are(found.pop("vectors"), expected["scores"]["Spearman"])
    assert {*found} == {"frequency", "co-occurrence"}
    for model, values in found.items():
        assert_are(values, expected["baselines"][model]["Spearman"])
    assert lower < value < upper
    shown = parsed.table(page("pairs/report.html"), CAPTION)
    assert shown["spearman"] == [f"{value:.4f} [{lower:.4f}, {upper:.4f}]"]
    baselines = {f"spearman by {model}" for model in found}
    assert {*shown} == {"spearman", *baselines}
    results = parsed.table(page("pairs/report.html"), "Result")
    assert "spearman at the end" in results and not baselines & {*results}


def test_held_out_scores_are_of_the_vectors_that_are_kept(capsys):
    """With --result best not those of the last evaluation."""
    lines = json_lines("best/metrics.jsonl")
    (line, *_) = sorted(lines, key=lambda x: x["hr@10"] or 0, reverse=True)
    found = scores("best")
    assert [*found] == ["held_out", "hr@10", "ndcg@10", "mrr"]
    for name, by_model in found.items():
        for model, (value, lower, upper) in by_model.items():
            known = name if model == "vectors" else f"{name} by {model}"
            assert value == pytest.approx(line[known], rel=1e-5)
            assert lower < value < upper or value in (0, 1)
    assert {*found["mrr"]} > {"vectors", "popularity"}
    assert main(["export", "best", "--to", "v.txt", "--card"]) == 0
    card = Path("v.txt.README.md").read_text()
    value, lower, upper = found["held_out"]["vectors"]
    shown = f"{value:.4f} [{lower:.4f}, {upper:.4f}]"
    assert f"held-out score of the vectors: held_out {shown}" in card
    assert "baseline of a score of the vectors: held_out by frequencies alone" in card


def test_edges_that_were_held_out(capsys):
    found = scores("graph")
    assert [*found] == ["micro_f1", "macro_f1", "link_auc", "link_ap"]
    for by_model in found.values():
        assert len(by_model) == 3
        assert all(lower <= x <= upper for x, lower, upper in by_model.values())
    split = "--train-share", "0.5", "--splits", "1"
    expected = of_verb(capsys, "graph", "--labels", "labels.txt", *split)
    assert_are(found["micro_f1"]["vectors"], expected["scores"]["micro F1"])


def test_scores_and_times_in_python():
    found = []

    def slow(status) -> None:
        found.append(status.seconds_of)
        time.sleep(0.01)

    trainer = EmbeddingTrainer(vector_size=8, epochs=2, alpha=0.1)
    assert trainer.scores == {}
    trainer.fit("text.txt", holdout=0.2, callbacks=[slow])
    value, lower, upper = trainer.scores["held_out"]["vectors"]
    assert lower < value < upper
    assert value == pytest.approx(trainer.held_out_history[-1], rel=1e-6)
    shown = parsed.table(parsed.parse(trainer.report().html), CAPTION)
    assert "held_out" in shown
    first, second = found
    assert second["other"] - first["other"] >= 0.01  # of callbacks
    assert first["compile"] == second["compile"] > 0
    trainer.fit("text.txt")
    assert trainer.scores == {}


@pytest.mark.row("B91")
@pytest.mark.parametrize("text", ["", '{"a": {"vectors": [1]}}', "[" * 9**5])
def test_a_damaged_file_is_refused(text, capsys):
    before = Path("held/report.html").read_bytes()
    Path("held/scores.json").write_text(text)
    for verb in (["report", "held"], ["export", "held", "--to", "v.txt", "--card"]):
        capsys.readouterr()
        assert main(verb) == 2
        assert "scores.json is damaged: " in error_line(capsys)
    assert Path("held/report.html").read_bytes() == before


def test_numbers_that_are_not_finite_are_left_out():
    run, nothing = Workdir(Path()), Estimate(math.nan, math.nan, math.nan)
    write_scores(run, {"x": {"vectors": nothing, "y": Estimate(1.0, 0.5, math.inf)}})
    assert json.loads(run.scores.read_text())["x"]["vectors"] == [None] * 3
    assert read_scores(run)["x"]["y"][:2] == (1.0, 0.5)


def test_runs_side_by_side_and_replicas_that_have_no_scores():
    assert not Path("replicas/scores.json").exists()
    text = Path("replicas/report.html").read_text("utf-8")
    assert "the run has no scores.json" in text
    assert main(["report", "--compare", "held", "replicas"]) == 0
    rows = parsed.table(page("held/compare.html"), "Results")
    first, second = rows["held_out of the vectors"]
    assert "[" in first and second == "–"


# --- time


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
    _, found = timeline(metrics, [])
    assert sum(found.values()) == pytest.approx(1)
    assert found["waiting for input"] == 2.5 / 8
    lines = [line(10, 4.0, input=1.0), line(20, 3.0, input=2.0), line(30, 6.0, input=2)]
    seconds, spent = time_spent(Metrics(lines), [])  # it was resumed after the first
    np.testing.assert_array_equal(seconds, [0, 4, 7, 10])
    np.testing.assert_array_equal(spent["waiting for input"], [0, 1, 3, 3])
    bare = {"epoch": 1, "updates": 10, "seconds": 4.0, "compile_seconds": 1.0}
    assert timeline(Metrics([bare]), []) == (None, {})  # as of earlier versions
    assert timeline(Metrics([bare, line(20, None)]), []) == (None, {})


@pytest.mark.parametrize("count", [1, 7, 5000])
def test_columns_fill_the_picture(count):
    rng = np.random.default_rng(count)
    seconds = np.cumsum(rng.random(count) + 1e-3)
    waited = np.cumsum(rng.random(count) * np.diff(seconds, prepend=0))
    times = zip(seconds.tolist(), waited.tolist(), strict=True)
    lines = [line(i, end, input=wait) for i, (end, wait) in enumerate(times)]
    chart, _ = timeline(Metrics(lines), [])
    assert [name for name, _ in chart.layers] == [UPDATES, "waiting for input"]
    columns = list(zip(*(columns for _, columns in chart.layers), strict=True))
    assert len(columns) <= 80
    area = (chart.right - chart.left) * (chart.bottom - chart.top)
    found = sum(c.width * c.height for column in columns for c in column)
    assert found == pytest.approx(area, rel=0.01)
    for column in columns:
        assert sum(c.height for c in column) == pytest.approx(200 - 10, abs=0.1)


def test_a_run_says_where_its_time_went():
    last = json_lines("held/metrics.jsonl")[-1]
    spent = [last[name] for name in ACTIVITIES]
    assert all(x >= 0 for x in spent) and sum(spent) <= last["seconds"] + 0.01
    timed = "compile_seconds", "evaluation_seconds", "input_seconds"
    assert min(last[name] for name in timed) > 0
    metrics = read_metrics(Path("held/metrics.jsonl"))
    assert not {*ACTIVITIES} & {*metrics.scores, *metrics.others}
    assert timeline(metrics, read_progress(Path("held/progress.jsonl")))[1]
    found = Path("held/report.html").read_text()
    assert "time, % by activity" in found
    assert re.search(r'updates</th><td class="num"><bdi>[0-9.]+ %', found)
