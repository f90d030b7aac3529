"""Similarity sets and analogy questions that score a run while it trains."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from embedder.cli import main
from embedder.tables.file_measures import _HEAD
from embedder.vectors.evaluate import evaluate_analogies, looks_like_pairs
from embedder.vectors.export import read_vectors
from tests.commands import error_line

FAST = ("text.txt", "--loader", "memory", "--vector-size", "8", "--min-count", "1")
FAST += ("--sample", "0", "--epochs", "4", "--alpha", "0.1")


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """Lines of five pairs of words that come together, `a1 b1` say."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    lines = []
    for topic in rng.integers(5, size=400):
        kinds = "abc" if topic > 2 else "ab"
        words = [f"{kind}{topic}" for kind in kinds]
        lines.append(" ".join(rng.choice(words, size=8)))
    Path("text.txt").write_text("\n".join(lines))
    pairs = ("a1\tb1\t9", "a1\tb2\t1", "a2\tb2\t8", "a3\tb4\t2", "a4\tb4\t9")
    Path("pairs.tsv").write_text("word1\tword2\tscore\n" + "\n".join(pairs))
    Path("questions.txt").write_text(
        "\n: topics\n"
        + "".join(f"a{i} b{i} a{j} b{j}\n" for i in range(5) for j in range(i))
        + ": unknown\na1 b1 x y\n"
    )


def train(*options: str) -> int:
    return main(["train", *FAST, "--workdir", "run", *options])


def last() -> dict:
    return json.loads(Path("run/metrics.jsonl").read_text().splitlines()[-1])


def reports(capsys, *options: str) -> str:
    capsys.readouterr()
    assert main(["evaluate", "run", *options]) == 0
    return capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("holdout", [(), ("--holdout", "0.2")])
def test_baselines_of_pairs_are_those_of_the_verb(capsys, holdout):
    assert train("--best-by", "pairs.tsv", *holdout) == 0
    shown = capsys.readouterr().err
    assert shown.count("baselines from counts: spearman ") == 1
    found = dict(
        (model, float(x))
        for x, model in re.findall(r"spearman (-?[\d.]+) \(([a-z-]+)\)", shown)
    )
    printed = reports(capsys, "--pairs", "pairs.tsv")
    expected = dict(
        (model, float(x))
        for model, x in re.findall(r"(frequency|co-occurrence)\s+(-?[\d.]+)", printed)
    )
    assert {*found} == {*expected} == {"frequency", "co-occurrence"}
    for model, score in expected.items():
        assert abs(found[model] - score) < 6e-4, (model, printed)
    assert len({*expected.values()}) == 2


@pytest.mark.slow
def test_analogies_stand_beside_the_nearest_neighbour_of_c(capsys):
    assert train("--best-by", "questions.txt", "--eval-every", "16") == 0
    vectors = read_vectors("run/vectors.safetensors")
    found = evaluate_analogies(vectors, "questions.txt").total
    line = last()
    assert line["analogies"] == pytest.approx(found.accuracy) and found.num_used == 10
    shown = capsys.readouterr().err
    assert f"analogies {found.accuracy:.4f}, nearest_to_c " in shown
    nearest = re.search(
        r"nearest to c\s+([\d.]+)", reports(capsys, "--analogies", "questions.txt")
    )
    assert nearest is not None
    assert line["nearest_to_c"] == pytest.approx(float(nearest[1]), abs=6e-4)
    assert line["nearest_to_c"] > 0  # its words come together
    page = Path("run/report.html").read_text()
    assert "Scores of the vectors, with 95 % intervals" in page
    assert f"{found.accuracy:.4f} [" in page


@pytest.mark.slow
def test_the_best_is_that_of_the_analogies(capsys):
    options = "--best-by", "questions.txt", "--result", "best", "--alpha", "0.3"
    assert train(*options, "--eval-every", "16") == 0
    lines = Path("run/metrics.jsonl").read_text().splitlines()
    scores = [
        x["analogies"] for x in map(json.loads, lines) if x["analogies"] is not None
    ]
    vectors = read_vectors("run/vectors.safetensors")
    found = evaluate_analogies(vectors, "questions.txt").total
    assert found.accuracy == pytest.approx(max(scores)) and max(scores) > min(scores)


@pytest.mark.row("B39")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (": s\nx y z w\n", "must have a question of four words in the vocabulary, got"),
        (": s\na1 b1 a2\n", "questions.txt line 2: must be four words, got 'a1 b1 a2'"),
        (": s\n", "got none of 0."),
        ("a1 b1 a2 b2\n", "questions.txt line 1: must be two words and a finite score"),
    ],
)
def test_wrong_questions_are_one_line(capsys, text, message):
    Path("questions.txt").write_text(text)
    assert train("--best-by", "questions.txt") == 2
    assert message in error_line(capsys)
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("text", "is_pairs"),
    [
        ("a\tb\t1.5\nc\td\t2\n", True),
        ("word1 word2 score\na b 1\n", True),
        ("# of 1998\na b 1\n", True),
        ("a 1\nb 2\n", False),
        ("a 1 2\nb 2\n", False),
        ("node label\na x\n", False),
        ("a,x\nb,y\n", False),
        ("", False),
    ],
)
def test_pairs_are_told_from_labels(tmp_path, text, is_pairs):
    path = tmp_path / "file"
    path.write_text(text)
    assert looks_like_pairs(path, _HEAD) == is_pairs
