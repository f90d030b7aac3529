"""Intervals of the scores of vectors on the file of `best_by`, in reports."""

import re
from pathlib import Path

import numpy as np
import pytest

from embedder.cli import main
from embedder.report.file_scores import file_scores
from embedder.vectors.vectors import Vectors

KEYS = [f"{letter}{n}" for letter in "ab" for n in range(40)]


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def vectors() -> Vectors:
    rng = np.random.default_rng(0)
    of_a = rng.standard_normal((40, 6))
    of_b = of_a + [1, 1, 0, 0, 0, 0] + 0.3 * rng.standard_normal((40, 6))
    matrix = np.concatenate([of_a, of_b])
    return Vectors(KEYS, matrix.astype(np.float32), np.arange(len(KEYS), 0, -1))


def write_pairs(folder: Path = Path()) -> str:
    lines = [f"a{n}\tb{n}\t{n % 10}" for n in range(40)] + ["x\ty\t1"]
    (folder / "pairs.tsv").write_text("\n".join(lines) + "\n")
    return "pairs.tsv"


def write_questions() -> str:
    lines = [f"a{n} b{n} a{n + 1} b{n + 1}" for n in range(39)]
    Path("questions.txt").write_text("\n".join([": all", *lines, "x y a1 b1"]))
    return "questions.txt"


def numbers(text: str) -> list[str]:
    """Values and bounds, with as many digits as the verb prints."""
    return [f"{float(x):.3f}" for x in re.findall(r"-?\d+\.\d+", text)]


@pytest.mark.parametrize("write", [write_pairs, write_questions])
def test_scores_and_intervals_are_those_of_the_verb(vectors, capsys, write):
    from embedder.vectors.export import write_vectors

    path = write()
    rows, why = file_scores(vectors, path, 1e12)
    assert why == ""
    write_vectors(vectors, Path("v.safetensors"))
    flag = "--pairs" if write is write_pairs else "--analogies"
    assert main(["evaluate", "v.safetensors", flag, path]) == 0
    lines = capsys.readouterr().out.splitlines()
    _, own, *others = [line for line in lines if line.startswith("  ")]
    found = [x for _, value in rows for x in numbers(value)]
    if write is write_pairs:
        assert [name for name, _ in rows] == [
            "Spearman of 40 of 41 pairs",
            "Pearson of 40 of 41 pairs",
        ]
        assert found == numbers(own)
    else:
        nearest = next(line for line in others if "nearest to c" in line)
        assert found == numbers(own) + numbers(nearest)
        assert rows[0][0] == "accuracy of 39 of 40 questions"


def test_why_there_are_no_scores(vectors):
    rows, why = file_scores(vectors, write_questions(), 1e3)
    assert rows == [] and why.endswith("`embedder report RUN` computes them.")
    rows, why = file_scores(vectors, "gone.tsv", 1e12)
    assert rows == [] and "gone.tsv have no intervals here: " in why
    Path("labels.txt").write_text("a1 red\na2 blue\n")
    rows, why = file_scores(vectors, "labels.txt", 1e12)
    assert rows == []
    assert why.endswith("`embedder evaluate RUN --labels FILE` has them.")
    Path("other.tsv").write_text("x\ty\t1\n")
    rows, why = file_scores(vectors, "other.tsv", 1e12)
    assert rows == [] and "must have 2 pairs or more" in why
