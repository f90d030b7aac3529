"""Retrieval scores of `embedder evaluate` of encoders, also of untrained classes."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from embedder import read_vectors
from embedder.cli import main
from embedder.encoders.estimator import FeatureEncoder
from embedder.evaluation.retrieval import (
    SCORES,
    chance,
    choose_queries,
    retrieval_scores,
)
from embedder.limits import Limit
from tests.commands import error_line
from tests.report import parsed

NAMES = np.array(["blue", "green", "red"])
RNG = np.random.default_rng(0)
LABELS = RNG.integers(3, size=100)
X = (RNG.normal(size=(100, 4)) + 1.5 * np.eye(4)[LABELS]).astype(np.float32)
Y = NAMES[LABELS]
HELD = slice(60, 100)
FAST = [
    *("--model", "encoder", "--loader", "memory", "--layers", "4", "6", "3"),
    *("--epochs", "3", "--batch-size", "8", "--learning-rate", "0.1"),
    *("--validation-fraction", "0.4"),
]
OTHERS = np.array(["pink", "teal", "red", "one"])
NEW = np.repeat([0, 1, 2, 3], [12, 12, 12, 1])
NEW_X = (RNG.normal(size=(37, 4)) + np.eye(4)[NEW]).astype(np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """points.npz, and the runs `one` and `several`."""
    folder = tmp_path_factory.mktemp("retrieval")
    np.savez(folder / "points.npz", X=X, y=Y)
    for name, options in (("one", []), ("several", ["--replicas", "3"])):
        run = ["--workdir", str(folder / name)]
        assert main(["train", str(folder / "points.npz"), *FAST, *run, *options]) == 0
    return folder


@pytest.fixture
def runs(folder, tmp_path, monkeypatch) -> Path:
    """The folder of the runs, which tests only read; the working folder is new."""
    monkeypatch.chdir(tmp_path)
    return folder


def printed_json(capsys, *arguments) -> dict:
    assert main(["evaluate", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def printed(capsys, *arguments) -> list[str]:
    assert main(["evaluate", *map(str, arguments)]) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("name", ["one", "several"])
def test_a_training_writes_the_scores_of_its_validation_examples(runs, capsys, name):
    found = json.loads((runs / name / "scores.json").read_text())
    expected = printed_json(capsys, runs / name)["retrieval"]
    by_chance = expected["baselines"]["chance"]
    assert [*found] == [*SCORES]
    for score, by_model in found.items():
        ends = [*expected["scores"][score].values()]
        assert by_model["vectors"] == pytest.approx(ends, abs=1e-6)
        assert by_model["chance"] == pytest.approx([*by_chance[score].values()])
    page = parsed.parse((runs / name / "report.html").read_text("utf-8"))
    shown = parsed.table(page, "Scores of the vectors, with 95 % intervals")
    value, lower, upper = found["recall@1"]["vectors"]
    assert shown["recall@1"] == [f"{value:.4f} [{lower:.4f}, {upper:.4f}]"]
    assert shown["recall@1 by chance"] == [f"{found['recall@1']['chance'][0]:.4f}"]


@pytest.mark.row("B91")
def test_damaged_scores_are_refused(runs, capsys):
    shutil.copytree(runs / "one", "run")
    Path("run/scores.json").write_text('{"recall@1": 1}')
    assert main(["report", "run"]) == 2
    assert "scores.json is damaged: " in error_line(capsys)


def test_without_examples_of_several_classes_a_training_has_no_scores(tmp_path):
    np.savez(tmp_path / "points.npz", X=X, y=Y)
    source, run = str(tmp_path / "points.npz"), tmp_path / "run"
    none = *FAST, "--validation-fraction", "0", "--workdir", str(run)
    assert main(["train", source, *none]) == 0
    assert not (run / "scores.json").exists()


def test_the_report_of_an_estimator_has_the_scores_of_given_examples():
    encoder = FeatureEncoder(layers=[4, 6, 3], epochs=1).fit(X, Y)
    page = parsed.parse(encoder.report(X[HELD], Y[HELD]).html)
    shown = parsed.table(page, "Scores of the vectors, with 95 % intervals")
    expected = means(encoder.transform(X[HELD]), LABELS[HELD])
    for score, value in expected.items():
        assert shown[score][0].startswith(f"{value:.4f} [")


def means(vectors: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    found = retrieval_scores(vectors, labels, choose_queries(labels))
    return dict(zip(SCORES, found.mean(axis=0), strict=True))


def values(scores: dict) -> dict[str, float]:
    return {name: each["value"] for name, each in scores.items()}


@pytest.mark.slow
@pytest.mark.parametrize("which", ["one", "several"])
def test_validation_examples_are_scored_by_the_files_of_the_run(runs, capsys, which):
    found = printed_json(capsys, runs / which)["retrieval"]
    vectors = read_vectors(runs / which / "vectors.safetensors").matrix[HELD]
    assert values(found["scores"]) == pytest.approx(means(vectors, LABELS[HELD]))
    assert found["counts"] == {"examples": 40, "queries": 40, "alone_in_class": 0}
    queries = choose_queries(LABELS[HELD])
    expected = chance(LABELS[HELD], queries).mean(axis=0)
    assert [*values(found["baselines"]["chance"]).values()] == pytest.approx(expected)
    assert found["missing"] == {
        "input features": "which needs the data: --examples DATA"
    }
    for each in found["scores"].values():
        assert each["lower"] <= each["value"] <= each["upper"]


def test_given_examples_are_scored_beside_their_features(runs, capsys):
    np.savez("held.npz", X=X[HELD], y=Y[HELD])
    found = printed_json(capsys, runs / "one", "--examples", "held.npz")["retrieval"]
    own = printed_json(capsys, runs / "one")["retrieval"]
    assert values(found["scores"]) == pytest.approx(values(own["scores"]), rel=1e-4)
    baseline = found["baselines"]["input features"]
    assert values(baseline) == pytest.approx(means(X[HELD], LABELS[HELD]))
    assert baseline["mAP@R"]["lower"] < baseline["mAP@R"]["upper"]


@pytest.mark.slow
def test_images_are_compared_by_their_pixels(runs, capsys):
    pixels = RNG.integers(256, size=(30, 3, 2)).astype(np.uint8)
    labels = np.arange(30) % 2
    np.savez("images.npz", X=pixels, y=labels)
    layers = ["--layers", "6", "4", "2", "--workdir", "run"]
    assert main(["train", "images.npz", *FAST, *layers]) == 0
    capsys.readouterr()
    found = printed_json(capsys, "run", "--examples", "images.npz")["retrieval"]
    expected = means(pixels.reshape(30, 6), labels)
    assert values(found["baselines"]["input features"]) == pytest.approx(expected)


def test_the_report_has_the_numbers_of_the_json(runs, capsys):
    data = ["--examples", runs / "points.npz"]
    found = printed_json(capsys, runs / "several", *data)["retrieval"]
    lines = printed(capsys, runs / "several", *data)
    title = "examples of points.npz: nearest of 99 others to each of 100 examples"
    head, *rows = lines[lines.index(title) + 1 :]
    assert re.split("  +", head.strip()) == [*SCORES]
    for row, name, scores in zip(
        rows,
        ("embeddings, 3 networks", "input features", "chance"),
        (found["scores"], *found["baselines"].values()),
        strict=False,
    ):
        assert row.startswith(f"  {name}  ")
        shown = re.findall(r"  (\d\.\d{3})", row)
        assert shown == [f"{each['value']:.3f}" for each in scores.values()]


def test_a_better_baseline_is_named(runs, capsys):
    """An encoder that has learned nothing, of random projections of the features."""
    assert main(["train", str(runs / "points.npz"), *FAST, "--epochs", "0"]) == 0
    capsys.readouterr()
    run = Path("embedder-points")
    data = ["--examples", runs / "points.npz"]
    found = printed_json(capsys, run, *data)["retrieval"]
    assert found["better_baselines"]["mAP@R"] == "input features"
    own, other = (
        each["mAP@R"]["value"]
        for each in (found["scores"], found["baselines"]["input features"])
    )
    line = f"a baseline is better: mAP@R of input features {other:.3f} > {own:.3f}"
    assert any(line in each for each in printed(capsys, run, *data))


# --- classes that were not trained on


@pytest.fixture
def new(runs) -> str:
    """Examples of classes of which the encoder knows only red."""
    np.savez("new.npz", X=NEW_X, y=OTHERS[NEW])
    return "new.npz"


@pytest.mark.spread(1)
@pytest.mark.parametrize("which", ["one", "several", "several/model.npz"])
def test_classes_that_were_not_trained_on_have_retrieval_scores(
    runs, new, capsys, which
):
    found = printed_json(capsys, runs / which, "--examples", new)
    assert found["untrained_classes"] == ["one", "pink", "teal"]
    assert (found["examples"], found["networks"]) == (37, 1 if which == "one" else 3)
    assert {"accuracy", "calibration_error"}.isdisjoint(found)
    if which == "one":
        encoder = FeatureEncoder.load(runs / "one/model.npz")
        vectors = encoder.transform(NEW_X)
        expected = means(vectors, NEW)
        assert values(found["retrieval"]["scores"]) == pytest.approx(expected)
    assert values(found["retrieval"]["baselines"]["input features"]) == pytest.approx(
        means(NEW_X, NEW)
    )
    counts = {"examples": 37, "queries": 36, "alone_in_class": 1}
    assert found["retrieval"]["counts"] == counts


@pytest.mark.row("B49")
def test_one_line_says_which_classes_were_not_trained_on(runs, new, capsys):
    first, second, *_ = printed(capsys, runs / "one", "--examples", new)
    assert first == (
        "37 examples of new.npz: 3 classes (one, pink, teal) were not trained on, so "
        "there is no accuracy."
    )
    assert second.endswith("each of 36 examples; 1 left out, alone in their class")
    np.savez("pink.npz", X=NEW_X[:12], y=OTHERS[NEW][:12])
    first, *_ = printed(capsys, runs / "one", "--examples", "pink.npz")
    assert first.startswith("12 examples of pink.npz: class pink was not trained on")
    np.savez("many.npz", X=X, y=np.arange(100) // 2)
    first, *_ = printed(capsys, runs / "one", "--examples", "many.npz")
    assert "50 classes (0, 1, 2, 3, 4, ...) were not trained on" in first


@pytest.mark.row("B49")
def test_classes_of_one_example_have_no_scores(runs, capsys):
    np.savez("alone.npz", X=X[:5], y=np.arange(5))
    data = ["--examples", "alone.npz"]
    found = printed_json(capsys, runs / "one", *data)["retrieval"]
    assert found["counts"] == {"examples": 5, "queries": 0, "alone_in_class": 5}
    assert {*values(found["scores"]).values()} == {None}
    assert "nan" in printed(capsys, runs / "one", *data)[3]


@pytest.mark.row("B49")
def test_hostile_names_of_classes_stay_text(runs, capsys):
    names = np.array(["\x1b[2Jevil", "a\nb"])[LABELS % 2]
    np.savez("evil.npz", X=X, y=names)
    first, *_ = printed(capsys, runs / "one", "--examples", "evil.npz")
    assert "\x1b" not in first and "were not trained on, so" in first


def test_a_picture_is_of_accuracy(runs, new, capsys):
    pytest.importorskip("matplotlib", reason="needs the extra `plot`")
    command = ["evaluate", str(runs / "one"), "--examples", new]
    assert main([*command, "--picture", "p.png"]) == 2
    message = "`picture` is of accuracy, and 3 classes (one, pink, teal) were not tra"
    assert message in error_line(capsys)
    assert not Path("p.png").exists()


# --- bad inputs


@pytest.mark.row("B49")
def test_features_that_do_not_fit_in_memory_have_no_scores(runs, capsys, monkeypatch):
    limit = Limit(2**20, "a test")
    monkeypatch.setattr("embedder.limits.memory_limit", lambda: limit)
    monkeypatch.setattr("embedder.scoring.retrieval._COPIES", 1024)
    found = printed_json(capsys, runs / "one", "--examples", runs / "points.npz")
    (reason,) = found["retrieval"]["missing"].values()
    assert reason.startswith("they take 3.1 MiB, more than the 1.0 MiB of a test")
    assert [*found["retrieval"]["baselines"]] == ["chance"]


@pytest.mark.row("B49")
def test_labels_and_vectors_of_different_examples_are_refused(runs, capsys):
    shutil.copytree(runs / "one", "run")
    path = Path("run/labels.parquet")
    pl.read_parquet(path).reverse().write_parquet(path)
    Path("run/SHA256SUMS").unlink()
    assert main(["evaluate", "run"]) == 2
    message = "vectors.safetensors are not of the same examples: `embedder verify`"
    assert message in error_line(capsys)
