"""Scores of vectors with intervals: scores.json, and where it is shown."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from embedder import EmbeddingTrainer
from embedder.cli import main
from embedder.evaluation.intervals import Estimate
from embedder.run.score_file import read_scores, write_scores
from embedder.run.workdir import Workdir
from tests.commands import error_line
from tests.report import parsed

FAST = ("--vector-size", "8", "--epochs", "2", "--alpha", "0.1", "--loader", "memory")


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """A text of five topics, and what it can be scored by."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    topics = rng.integers(5, size=300)
    lines = [" ".join(f"{x}{i}" for x in rng.choice([*"abcd"], 6)) for i in topics]
    Path("text.txt").write_text("\n".join(lines))
    pairs = [
        f"a{i}\tb{j}\t{9 if i == j else i + j}" for i in range(5) for j in range(5)
    ]
    Path("pairs.tsv").write_text("\n".join([*pairs, "x\ty\t1"]))
    questions = [f"a{i} b{i} a{j} b{j}" for i in range(5) for j in range(5) if i != j]
    Path("questions.txt").write_text("\n".join([": all", *questions, "x y a1 b1"]))
    edges = [f"n{i} n{j}" for i in range(30) for j in range(i) if (i - j) % 5 < 2]
    Path("edges.txt").write_text("\n".join(edges))
    labels = [f"n{i} {'odd' if i % 2 else 'even'}" for i in range(30)]
    Path("labels.txt").write_text("\n".join(labels))


def train(*options: str, source: str = "text.txt", run: str = "run") -> None:
    assert main(["train", source, *FAST, *options, "--workdir", run]) == 0


def train_graph(*options: str) -> None:
    walks = "--walks", "4", "--walk-length", "8", "--block", "32"
    train(*walks, *options, source="edges.txt")


def scores() -> dict[str, dict[str, list[float]]]:
    return json.loads(Path("run/scores.json").read_text())


def in_report() -> dict[str, list[str]]:
    found = parsed.parse(Path("run/report.html").read_text("utf-8"))
    return parsed.table(found, "Scores of the vectors, with 95 % intervals")


def of_verb(capsys, *options: str) -> dict:
    capsys.readouterr()
    assert main(["evaluate", "run", *options, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def assert_are(found: list[float], expected: dict[str, float]) -> None:
    assert found == pytest.approx([*expected.values()], abs=1e-6)


def test_pairs_are_scored_as_by_the_verb(capsys):
    train("--best-by", "pairs.tsv")
    expected, found = of_verb(capsys, "--pairs", "pairs.tsv"), scores()["spearman"]
    assert_are(found.pop("vectors"), expected["scores"]["Spearman"])
    assert {*found} == {"frequency", "co-occurrence"}
    for model, values in found.items():
        assert_are(values, expected["baselines"][model]["Spearman"])
    value, lower, upper = scores()["spearman"]["vectors"]
    assert lower < value < upper
    shown = in_report()
    assert shown["spearman"] == [f"{value:.4f} [{lower:.4f}, {upper:.4f}]"]
    baselines = {f"spearman by {model}" for model in found}
    assert {*shown} == {"spearman", *baselines}
    page = parsed.parse(Path("run/report.html").read_text("utf-8"))
    results = parsed.table(page, "Result")
    assert "spearman at the end" in results and not baselines & {*results}


@pytest.mark.slow
def test_analogies_are_scored_as_by_the_verb(capsys):
    train("--best-by", "questions.txt")
    expected, found = of_verb(capsys, "--analogies", "questions.txt"), scores()
    assert_are(found["analogies"]["vectors"], expected["scores"]["accuracy"])
    nearest = expected["baselines"]["nearest to c"]["accuracy"]
    assert_are(found["nearest_to_c"]["vectors"], nearest)


def test_held_out_scores_are_of_the_vectors_that_are_kept(capsys):
    """With --result best not those of the last evaluation."""
    best = "--best-by", "next-item", "--eval-every", "8", "--result", "best"
    train("--holdout", "0.2", *best)
    lines = map(json.loads, Path("run/metrics.jsonl").read_text().splitlines())
    (line, *_) = sorted(lines, key=lambda x: x["hr@10"] or 0, reverse=True)
    found = scores()
    assert [*found] == ["held_out", "hr@10", "ndcg@10", "mrr"]
    for name, by_model in found.items():
        for model, (value, lower, upper) in by_model.items():
            known = name if model == "vectors" else f"{name} by {model}"
            assert value == pytest.approx(line[known], rel=1e-5)
            assert lower < value < upper or value in (0, 1)
    assert {*found["mrr"]} > {"vectors", "popularity"}
    assert main(["export", "run", "--to", "v.txt", "--card"]) == 0
    card = Path("v.txt.README.md").read_text()
    value, lower, upper = found["held_out"]["vectors"]
    shown = f"{value:.4f} [{lower:.4f}, {upper:.4f}]"
    assert f"held-out score of the vectors: held_out {shown}" in card
    assert "baseline of a score of the vectors: held_out by frequencies alone" in card


def test_edges_that_were_held_out(capsys):
    train_graph("--holdout", "0.2", "--best-by", "labels.txt")
    found = scores()
    assert [*found] == ["micro_f1", "macro_f1", "link_auc", "link_ap"]
    for by_model in found.values():
        assert len(by_model) == 3
        assert all(lower <= x <= upper for x, lower, upper in by_model.values())
    split = "--train-share", "0.5", "--splits", "1"
    expected = of_verb(capsys, "--labels", "labels.txt", *split)
    assert_are(found["micro_f1"]["vectors"], expected["scores"]["micro F1"])


def test_in_python():
    trainer = EmbeddingTrainer(vector_size=8, epochs=2, alpha=0.1)
    assert trainer.scores == {}
    trainer.fit("text.txt", holdout=0.2)
    value, lower, upper = trainer.scores["held_out"]["vectors"]
    assert lower < value < upper
    assert value == pytest.approx(trainer.held_out_history[-1], rel=1e-6)
    page = parsed.parse(trainer.report().html)
    assert "held_out" in parsed.table(
        page, "Scores of the vectors, with 95 % intervals"
    )
    trainer.fit("text.txt")
    assert trainer.scores == {}


def test_replicas_have_a_line_in_their_place():
    train("--holdout", "0.2", "--replicas", "2")
    assert not Path("run/scores.json").exists()
    page = Path("run/report.html").read_text("utf-8")
    assert "the run has no scores.json" in page


@pytest.mark.row("B91")
@pytest.mark.parametrize(
    "text", ["", "[1]", '{"held_out": 1}', '{"a": {"vectors": [1]}}', "[" * 9**5]
)
def test_a_damaged_file_is_refused(text, capsys):
    train("--holdout", "0.2")
    before = Path("run/report.html").read_bytes()
    Path("run/scores.json").write_text(text)
    for verb in (["report", "run"], ["export", "run", "--to", "v.txt", "--card"]):
        capsys.readouterr()
        assert main(verb) == 2
        assert "scores.json is damaged: " in error_line(capsys)
    assert Path("run/report.html").read_bytes() == before


def test_numbers_that_are_not_finite_are_left_out():
    run = Workdir(Path())
    nothing = Estimate(math.nan, math.nan, math.nan)
    write_scores(run, {"x": {"vectors": nothing, "y": Estimate(1.0, 0.5, math.inf)}})
    assert json.loads(run.scores.read_text())["x"]["vectors"] == [None] * 3
    assert read_scores(run)["x"]["y"][:2] == (1.0, 0.5)


@pytest.mark.row("B63")
def test_runs_side_by_side(capsys):
    train("--holdout", "0.2")
    train(run="other")
    assert main(["report", "--compare", "run", "other"]) == 0
    page = Path("run/compare.html").read_text("utf-8")
    rows = parsed.table(parsed.parse(page), "Results")
    first, second = rows["held_out of the vectors"]
    assert "[" in first and second == "–"
    assert main(["report", "run", "--compare", "other", "--to", "c.html"]) == 0
    again = parsed.parse(Path("c.html").read_text("utf-8"))
    assert parsed.table(again, "Results") == rows
    for runs in ([], ["--compare", "run"]):
        capsys.readouterr()
        assert main(["report", *runs]) == 2
        assert "`RUN` must be the folder of a run, got none: " in error_line(capsys)
