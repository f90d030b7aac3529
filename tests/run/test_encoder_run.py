"""Runs of encoders: what they leave, what the verbs say of it and of new examples."""

import json
import re
import shutil
import tarfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image
from safetensors.numpy import load_file

from embedder import FeatureEncoder, read_ensemble, read_vectors
from embedder.base.limits import Limit
from embedder.cli.main import main
from embedder.disk.arrays import unpack_strings
from embedder.errors import InputError
from embedder.metrics.retrieval import choose_queries, retrieval_scores
from tests.commands import error_line, json_lines, train_runs
from tests.encoders.image_cases import write_pngs
from tests.report import parsed

K, SEED = 2, 7
NAMES = np.array(["blue", "green", "red"])  # sorted, as classes are
RNG = np.random.default_rng(0)
LABELS = RNG.integers(3, size=100)
X = (RNG.normal(size=(100, 4)) + 1.5 * np.eye(4)[LABELS]).astype(np.float32)
Y = NAMES[LABELS]
HELD = slice(60, 100)  # validation examples
ENCODER = ["--model", "encoder", "--loader", "memory", "--batch-size", "8"]
FAST = [*ENCODER, "--layers", "4", "6", "3", "--epochs", "3", "--learning-rate", "0.1"]
FAST += ["--optimizer", "sgd", "--optimizer-args", "momentum=0.5"]
SPLIT = ["--validation-fraction", "0.4"]
PICTURES = [*ENCODER, "--epochs", "3", "--learning-rate", "0.1", "--no-report"]
OTHERS = np.array(["pink", "teal", "red", "one"])
NEW = np.repeat([0, 1, 2, 3], [12, 12, 12, 1])
NEW_X = (RNG.normal(size=(37, 4)) + np.eye(4)[NEW]).astype(np.float32)


def write_images(folder: Path) -> None:
    """Eight dark and eight bright images of 4 x 3."""
    for name, least in (("dark", 0), ("bright", 156)):
        write_pngs(folder / name, least + RNG.integers(100, size=(8, 4, 3, 3)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """points.npz, and the runs `several` of replicas, `one` and `two` of their seeds,
    and `pictures` of the folder `images`."""
    folder = tmp_path_factory.mktemp("encoders")
    np.savez(folder / "points.npz", X=X, y=Y)
    write_images(folder / "images")
    flags = " ".join([*FAST, *SPLIT])
    train_runs(
        folder,
        several=f"points.npz --seed {SEED} {flags} --replicas {K}",
        one=f"points.npz --seed {SEED} {flags}",
        two=f"points.npz --seed {SEED + 1} {flags} --no-report",
        pictures=f"images --seed {SEED} {' '.join(PICTURES)}",
    )
    return folder


def train(data: str, *options: str, run: str = "run") -> int:
    return main(["train", data, "--workdir", run, *FAST, "--no-report", *options])


def printed(capsys, *arguments) -> list[str]:
    capsys.readouterr()
    assert main([*map(str, arguments)]) == 0
    return capsys.readouterr().out.splitlines()


def evaluated(capsys, *arguments) -> dict:
    return json.loads("".join(printed(capsys, "evaluate", *arguments, "--json")))


def models(runs: Path) -> list[FeatureEncoder]:
    """Those of the replicas, each trained alone."""
    return [FeatureEncoder.load(runs / name / "model.npz") for name in ("one", "two")]


def probabilities(runs: Path, x: np.ndarray = X) -> np.ndarray:
    """f64[K, n, C]."""
    return np.stack([m.predict_proba(x).astype(np.float64) for m in models(runs)])


def entropy(p: np.ndarray) -> np.ndarray:
    return -(p * np.log(p)).sum(axis=-1)


def saved(name: str, features: np.ndarray, labels: np.ndarray) -> list[str]:
    """Options for examples that are written."""
    np.savez(name, X=features, y=labels)
    return ["--examples", name]


# --- what a run leaves


def test_a_run_leaves_its_files_and_a_line_of_metrics_an_epoch(runs, capsys):
    run = runs / "one"
    assert {path.name for path in run.iterdir() if path.is_file()} == {
        *("config.toml", "corpus.json", "labels.parquet", "metrics.jsonl"),
        *("SHA256SUMS", "progress.jsonl", "scores.json"),
        *("model.npz", "report.html", "vectors.safetensors"),
    }
    assert "window" not in (run / "config.toml").read_text()
    lines = json_lines(run / "metrics.jsonl")
    assert [line["epoch"] for line in lines] == [1, 2, 3]
    assert [line["examples"] for line in lines] == [60, 120, 180]
    assert [line["learning_rate"] for line in lines] == [0.1] * 3
    assert lines[-1]["train_loss"] < lines[0]["train_loss"]
    again = ["train", runs / "points.npz", *FAST, *SPLIT, "--seed", "7"]
    for command in (again, ["train"]):
        (line,) = printed(capsys, *command, "--workdir", run)
        assert "finished before" in line and "100 vectors of 6 numbers." in line
    assert json_lines(runs / "pictures/metrics.jsonl")[-1]["val_loss"] is None


def test_labels_have_what_examples_are_taken_for(runs):
    """Of replicas by the mean of their probabilities."""
    columns = "key", "label", "predicted", "probability", "trained"
    for run, p in (("several", probabilities(runs)), ("one", probabilities(runs)[:1])):
        frame, mean = pl.read_parquet(runs / run / "labels.parquet"), p.mean(axis=0)
        parts = ["entropy_data", "entropy_model"] if run == "several" else []
        assert frame.columns == [*columns, "log_likelihood", "entropy", *parts]
        assert frame["key"].to_list() == [str(number) for number in range(100)]
        assert frame["label"].to_list() == Y.tolist()
        assert frame["predicted"].to_list() == NAMES[mean.argmax(axis=1)].tolist()
        assert frame["trained"].to_list() == [True] * 60 + [False] * 40
        data = entropy(p).mean(axis=0)
        for name, values in {
            "probability": mean.max(axis=1),
            "log_likelihood": np.log(mean[range(100), LABELS]),
            "entropy": entropy(mean),
            **dict(zip(parts, (data, entropy(mean) - data), strict=False)),
        }.items():
            np.testing.assert_allclose(frame[name], values, rtol=1e-3, atol=1e-5)
        held = frame.filter(~pl.col("trained"))
        accuracy = (held["label"] == held["predicted"]).mean()
        if run == "one":
            found = json_lines(runs / "one/metrics.jsonl")[-1]["val_accuracy"]
            assert accuracy == pytest.approx(found) and 0.5 < accuracy < 1


def test_replicas_have_means_in_the_log(runs):
    names = "train_loss", "train_accuracy", "val_loss", "val_accuracy"
    logs = [
        [
            [line[name] for name in names]
            for line in json_lines(runs / run / "metrics.jsonl")
        ]
        for run in ("several", "one", "two")
    ]
    np.testing.assert_allclose(logs[0], np.mean(logs[1:], axis=0), atol=1e-5)


def test_columns_of_tables_and_files_of_images_are_keys_and_labels(runs, capsys):
    columns = {f"x{i}": X[:, i] for i in range(4)}
    names = {"colour": Y, "name": [f"p{i}" for i in range(100)]}
    pl.DataFrame(columns | names).write_parquet("points.parquet")
    options = "--label", "colour", "--key", "name", "--epochs", "0", "--no-report"
    (line,) = printed(capsys, "train", "points.parquet", *FAST, *options)
    assert line.startswith("embedder-points: done. 100 vectors of 6 numbers")
    frame = pl.read_parquet("embedder-points/labels.parquet")
    assert frame["key"].to_list() == names["name"]
    assert frame["label"].to_list() == Y.tolist()
    found = evaluated(capsys, "embedder-points", "--examples", "points.parquet")
    assert found["examples"] == 100
    write_images(Path("data"))  # are scaled to a size that is given
    Image.new("RGB", (9, 7)).save("data/dark/8.png")
    command = "train", "data", *ENCODER, "--image-size", "2", "2", "--epochs", "0"
    assert main([*command, "--no-report", "--workdir", "run"]) == 0
    found = evaluated(capsys, "run", "--examples", runs / "images")
    assert found["examples"] == 16
    frame = pl.read_parquet(runs / "pictures/labels.parquet")
    assert sorted(frame["key"])[:2] == ["bright/0.png", "bright/1.png"]
    assert [key.partition("/")[0] for key in frame["key"]] == frame["label"].to_list()


# --- measures


def assert_measures(found: dict, p: np.ndarray, labels: np.ndarray) -> None:
    """`found` is of the predictions [K, n, C]."""
    mean, number = p.mean(axis=0), len(labels)
    is_right, confidence = mean.argmax(axis=1) == labels, mean.max(axis=1)
    assert (found["examples"], found["networks"]) == (number, len(p))
    assert found["accuracy"] == pytest.approx(is_right.mean())
    likelihood = -np.log(mean[range(number), labels]).mean()
    assert found["negative_log_likelihood"] == pytest.approx(likelihood, rel=1e-4)
    error = 0.0
    for low, bin in zip(np.arange(15) / 15, found["bins"], strict=True):
        inside = (low < confidence) & (confidence <= low + 1 / 15)
        assert bin["examples"] == inside.sum()
        assert (bin["confidence"] is None) == (not inside.any())
        if inside.any():
            error += abs((is_right[inside] - confidence[inside]).sum()) / number
    assert found["calibration_error"] == pytest.approx(error, rel=1e-4)
    order = np.argsort(entropy(mean), kind="stable")
    assert [(each["rejected"], each["accuracy"]) for each in found["rejection"]] == [
        (x / 100, pytest.approx(is_right[order[: number - number * x // 100]].mean()))
        for x in (0, 10, 20, 50)
    ]
    within = [found["intervals"][x] | {"value": found[x]} for x in found["intervals"]]
    within = within[:2]  # a resample has a larger calibration error
    within += [each | {"value": each["accuracy"]} for each in found["rejection"]]
    assert all(each["lower"] <= each["value"] <= each["upper"] for each in within)
    constant = found["baselines"]["most frequent class"]["accuracy"]["value"]
    assert constant == np.bincount(labels).max() / number


@pytest.mark.parametrize("run", ["several", "one"])
def test_validation_examples_are_measured(runs, capsys, run):
    """By labels.parquet alone; given again in another order, nothing is another."""
    own = evaluated(capsys, runs / run)
    p = probabilities(runs)[: K if run == "several" else 1]
    assert_measures(own, p[:, HELD], LABELS[HELD])
    assert 0.3 < own["accuracy"] < 1 and own["calibration_error"] > 0.01
    order = RNG.permutation(40)
    held = saved("held.npz", X[HELD][order], Y[HELD][order])
    given = evaluated(capsys, runs / run, *held)
    assert_measures(given, p[:, HELD], LABELS[HELD])
    vectors = read_vectors(runs / run / "vectors.safetensors").matrix[HELD]
    expected = pytest.approx(scores(vectors, LABELS[HELD]), rel=1e-4)
    for found in (own["retrieval"], given["retrieval"]):
        assert values(found["scores"]) == expected
        assert found["counts"] == {"examples": 40, "queries": 40, "alone_in_class": 0}
        for each in found["scores"].values():
            assert each["lower"] <= each["value"] <= each["upper"]
    reason = "which needs the data: --examples DATA"
    assert own["retrieval"]["missing"] == {"input features": reason}
    features = given["retrieval"]["baselines"]["input features"]
    assert values(features) == pytest.approx(scores(X[HELD], LABELS[HELD]))
    assert features["mAP@R"]["lower"] < features["mAP@R"]["upper"]


def test_the_text_has_the_numbers_of_the_json(runs, capsys):
    data = ["--examples", runs / "points.npz"]
    found = evaluated(capsys, runs / "several", *data)
    assert_measures(found, probabilities(runs), LABELS)
    first, *lines = printed(capsys, "evaluate", runs / "several", *data)
    assert first == "100 examples of points.npz, 2 networks"
    text, near = "\n".join(lines), found["retrieval"]
    for name in ("accuracy", "negative_log_likelihood", "calibration_error"):
        each = {"value": found[name]} | found["intervals"][name]
        value, lower, upper = (f"{each[x]:.4f}" for x in ("value", "lower", "upper"))
        assert f" {value} [{lower}, {upper}]\n" in text
    assert re.findall(r"(\d+) %", lines[5]) == ["0", "10", "20", "50"]
    shown = [f"{each['accuracy']:.4f}" for each in found["rejection"]]
    assert re.findall(r"[\d.]+", lines[6]) == shown
    title = "examples of points.npz: nearest of 99 others to each of 100 examples"
    head, *rows = lines[lines.index(title) + 1 :]
    assert re.split("  +", head.strip()) == [*near["scores"]]
    rows_of = {"embeddings, 2 networks": near["scores"], **near["baselines"]}
    for row, (name, each) in zip(rows, rows_of.items(), strict=False):
        shown = [f"{value:.3f}" for value in values(each).values()]
        assert row.startswith(f"  {name}  ")
        assert re.findall(r"  (\d\.\d{3})", row) == shown
    assert found == evaluated(capsys, runs / "several/model.npz", *data)


# --- retrieval


def scores(vectors: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Means over the examples that have another one of their class."""
    queries = choose_queries(labels)
    found = retrieval_scores(vectors.reshape(len(vectors), -1), labels, queries)
    names = "recall@1", "recall@5", "recall@10", "mAP@R", "10-NN accuracy"
    return dict(zip(names, found.mean(axis=0), strict=True))


def values(scores: dict) -> dict[str, float]:
    return {name: each["value"] for name, each in scores.items()}


def test_a_training_writes_the_scores_of_its_validation_examples(runs, capsys):
    name = "several"
    found = json.loads((runs / name / "scores.json").read_text())
    expected = evaluated(capsys, runs / name)["retrieval"]
    by_chance = expected["baselines"]["chance"]
    for score, by_model in found.items():
        ends = [*expected["scores"][score].values()]
        assert by_model["vectors"] == pytest.approx(ends, abs=1e-6)
        assert by_model["chance"] == pytest.approx([*by_chance[score].values()])
    page = parsed.read(runs / name / "report.html")
    shown = parsed.table(page, "Scores of the vectors, with 95 % intervals")
    value, lower, upper = found["recall@1"]["vectors"]
    assert shown["recall@1"] == [f"{value:.4f} [{lower:.4f}, {upper:.4f}]"]
    assert shown["recall@1 by chance"] == [f"{found['recall@1']['chance'][0]:.4f}"]
    assert not (runs / "pictures/scores.json").exists()  # nothing is held out


def test_a_better_baseline_is_named_and_images_are_compared_by_pixels(runs, capsys):
    """An encoder that has learned nothing, of random projections of the pixels."""
    pixels = RNG.integers(256, size=(60, 3, 2)).astype(np.uint8)
    labels = np.arange(60) % 2
    data = saved("images.npz", pixels // 2 + 100 * labels[:, None, None], labels)
    assert train("images.npz", "--layers", "6", "4", "2", "--epochs", "0") == 0
    found = evaluated(capsys, "run", *data)["retrieval"]
    with np.load("images.npz") as file:
        expected = scores(file["X"], labels)
    assert values(found["baselines"]["input features"]) == pytest.approx(expected)
    assert found["better_baselines"]["mAP@R"] == "input features"
    own, other = found["scores"]["mAP@R"]["value"], expected["mAP@R"]
    line = f"a baseline is better: mAP@R of input features {other:.3f} > {own:.3f}"
    assert any(line in each for each in printed(capsys, "evaluate", "run", *data))


@pytest.mark.row("B49")
@pytest.mark.parametrize("which", ["one", "several/model.npz"])
def test_classes_that_were_not_trained_on_have_retrieval_scores(runs, capsys, which):
    data = saved("new.npz", NEW_X, OTHERS[NEW])
    found = evaluated(capsys, runs / which, *data)
    assert found["untrained_classes"] == ["one", "pink", "teal"]
    assert (found["examples"], found["networks"]) == (37, 1 if which == "one" else K)
    assert {"accuracy", "calibration_error"}.isdisjoint(found)
    if which == "one":
        expected = scores(models(runs)[0].transform(NEW_X), NEW)
        assert values(found["retrieval"]["scores"]) == pytest.approx(expected)
    features = found["retrieval"]["baselines"]["input features"]
    assert values(features) == pytest.approx(scores(NEW_X, NEW))
    counts = {"examples": 37, "queries": 36, "alone_in_class": 1}
    assert found["retrieval"]["counts"] == counts
    first, second, *_ = printed(capsys, "evaluate", runs / which, *data)
    assert first == (
        "37 examples of new.npz: 3 classes (one, pink, teal) were not trained on, so "
        "there is no accuracy."
    )
    assert second.endswith("each of 36 examples; 1 left out, alone in their class")
    pytest.importorskip("matplotlib", reason="needs the extra `plot`")
    command = ["evaluate", str(runs / which), *data, "--picture", "p.png"]
    assert main(command) == 2
    message = "`picture` is of accuracy, and 3 classes (one, pink, teal) were not tra"
    assert message in error_line(capsys)
    assert not Path("p.png").exists()


@pytest.mark.row("B49")
def test_some_of_the_classes_and_classes_of_one_example(runs, capsys):
    """Names of classes are said in one line. Class 0 of the examples alone is another
    class of the encoder."""
    for labels, said in (
        (["pink"] * 12, "12 examples of e.npz: class pink was not trained on"),
        (np.arange(100) // 2, "50 classes (0, 1, 2, 3, 4, ...) were not trained on"),
        (["\x1b[2Je", "a\nb"] * 5, r"2 classes (\x1b[2Je, a\nb) were not trained"),
    ):
        data = saved("e.npz", X[: len(labels)], np.array(labels))
        assert said in printed(capsys, "evaluate", runs / "one", *data)[0]
    is_red = Y == "red"
    found = evaluated(capsys, runs / "several", *saved("red.npz", X[is_red], Y[is_red]))
    assert_measures(found, probabilities(runs)[:, is_red], LABELS[is_red])
    data = saved("alone.npz", X[:5], np.arange(5))
    found = evaluated(capsys, runs / "one", *data)["retrieval"]
    assert found["counts"] == {"examples": 5, "queries": 0, "alone_in_class": 5}
    assert {*values(found["scores"]).values()} == {None}
    assert "nan" in printed(capsys, "evaluate", runs / "one", *data)[3]


@pytest.mark.row("B49")
def test_features_that_do_not_fit_in_memory_have_no_scores(runs, capsys, monkeypatch):
    limit = Limit(2**20, "a test")
    monkeypatch.setattr("embedder.base.limits.memory_limit", lambda: limit)
    monkeypatch.setattr("embedder.cli.evaluate.encoder._COPIES", 1024)
    found = evaluated(capsys, runs / "one", "--examples", runs / "points.npz")
    (reason,) = found["retrieval"]["missing"].values()
    assert reason.startswith("they take 3.1 MiB, more than the 1.0 MiB of a test")
    assert [*found["retrieval"]["baselines"]] == ["chance"]


# --- the picture


def test_a_picture_is_drawn(runs, capsys):
    """The same bytes each time; of text its parts can be read."""
    matplotlib = pytest.importorskip("matplotlib", reason="needs the extra `plot`")
    command = ["evaluate", str(runs / "several"), "--picture"]
    for suffix, start in {".png": b"\x89PNG\r\n\x1a\n", ".svg": b"<?xml"}.items():
        assert main([*command, f"p{suffix}"]) == main([*command, f"q{suffix}"]) == 0
        first, second = (Path(f"{x}{suffix}").read_bytes() for x in "pq")
        assert first == second and first.startswith(start)
    data = saved("one.npz", X[:1], Y[:1])  # of any number of examples
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        assert main(["evaluate", str(runs / "one"), *data, "--picture", "one.svg"]) == 0
    text = Path("one.svg").read_text()
    for part in ("Calibration", "confidence", "rejected, %", "1 example"):
        assert part in text, part


# --- exports


@pytest.mark.parametrize("which", ["several", "one"])
def test_predictions_are_exported_to_parquet(runs, which):
    command = ["export", str(runs / which), "--to", "p.parquet", "--predictions"]
    assert main(command) == 0
    frame = pl.read_parquet("p.parquet")
    labels = pl.read_parquet(runs / which / "labels.parquet")
    columns = [f"probability_{name}" for name in NAMES]
    assert [*labels.columns, *columns] == [
        *(*frame.columns[:5], "log_likelihood", *frame.columns[5:])
    ]
    for name in ("key", "label", "predicted", "trained"):
        assert frame[name].to_list() == labels[name].to_list()
    for name in {*frame.columns[5:]} & {*labels.columns}:
        np.testing.assert_allclose(frame[name], labels[name], rtol=1e-4, atol=1e-6)
    mean = probabilities(runs)[: K if which == "several" else 1].mean(axis=0)
    np.testing.assert_allclose(frame[columns].to_numpy(), mean, rtol=1e-4, atol=1e-6)


def test_predictions_are_exported_to_safetensors(runs):
    several = ["export", str(runs / "several"), "--predictions", "--to"]
    assert main([*several, "p.safetensors"]) == main([*several, "p.parquet"]) == 0
    found, table = load_file("p.safetensors"), pl.read_parquet("p.parquet")
    for name in ("entropy", "entropy_data", "entropy_model", "trained"):
        np.testing.assert_array_equal(found[name], table[name].to_numpy())
    classes = unpack_strings(found["classes"], found["class_ends"])
    assert classes == NAMES.tolist()
    keys = unpack_strings(found["keys"], found["key_ends"])
    assert keys == table["key"].to_list()
    for name in ("label", "predicted"):
        assert NAMES[found[name]].tolist() == table[name].to_list()
    columns = [f"probability_{name}" for name in NAMES]
    np.testing.assert_array_equal(found["probabilities"], table[columns].to_numpy())


def test_the_embeddings_of_each_network_are_exported(runs):
    for suffix in (".safetensors", ".parquet"):
        command = ["export", str(runs / "several"), "--replicas", "--to"]
        assert main([*command, f"all{suffix}"]) == 0
    found, table = read_ensemble("all.safetensors"), pl.read_parquet("all.parquet")
    assert found.tokens == table["token"][:100].to_list() == [*map(str, range(100))]
    assert table["replica"].to_list() == np.repeat(np.arange(K), 100).tolist()
    vectors = table["vector"].to_numpy().reshape(K, 100, -1)
    np.testing.assert_array_equal(found.vectors, vectors)
    trained = read_vectors(runs / "several/vectors.safetensors").matrix
    np.testing.assert_allclose(np.mean(vectors, axis=0), trained, atol=1e-5)
    for rotated, model in zip(vectors, models(runs), strict=True):
        own = model.transform(X)
        cosines = rotated @ rotated.T
        np.testing.assert_allclose(cosines, own @ own.T, rtol=1e-3, atol=1e-3)


# --- the other verbs


def test_other_verbs_take_the_vectors_of_examples(runs, capsys):
    file = runs / "one/vectors.safetensors"
    assert printed(capsys, "neighbors", file, "0")[0] == "0"  # a file has no labels
    found = read_vectors(file).most_similar("7", topn=2)
    shown = [f"  {cosine:6.3f}  {key} ({Y[int(key)]})" for key, cosine in found]
    command = "neighbors", runs / "one", "7", "--topn", "2"
    assert printed(capsys, *command) == [f"7 ({Y[7]})", *shown]
    (each,) = map(json.loads, printed(capsys, *command, "--json"))
    labels = [x["label"] for x in each["query"] + each["found"]]
    assert labels == [Y[7], *(Y[int(key)] for key, _ in found)]
    line = printed(capsys, "analogy", runs / "one", "0", "1", "2", "--topn", "1")[0]
    assert re.fullmatch(r"0 \(\w+\) : 1 \(\w+\) = 2 \(\w+\) : \?", line)
    Path("pairs.tsv").write_text("0\t1\t3\n2\t3\t4\n0\tcat\t5\n")
    text = "\n".join(printed(capsys, "evaluate", runs / "one", "--pairs", "pairs.tsv"))
    assert "2 of 3 pairs (1 out of vocabulary)" in text
    done = printed(capsys, "export", runs / "pictures", "--to", "out.txt")
    assert done == ["16 vectors in out.txt"] and len(read_vectors("out.txt")) == 16


def test_embed_prints_class_probability_and_nearest(runs, capsys):
    np.save("two.npy", X[:2])
    np.save("one.npy", X[2])
    Path("one.npy").rename("one.NPY")
    given = "two.npy", "one.NPY", "--topn", "2"
    lines = printed(capsys, "embed", runs / "one", *given)
    frame = pl.read_parquet(runs / "one/labels.parquet")
    names = "two.npy:0", "two.npy:1", "one.NPY"
    rows = zip(names, frame["predicted"], frame["probability"], strict=False)
    assert lines[::3] == [f"{name}: {label} ({p:.3f})" for name, label, p in rows]
    assert lines[1::3] == [f"   1.000  {i} ({Y[i]})" for i in range(3)]
    lines = printed(capsys, "embed", runs / "several", *given)
    p = probabilities(runs, X[:3])
    mean, data = p.mean(axis=0), entropy(p).mean(axis=0)
    desired = [mean.max(axis=1), entropy(mean), data, entropy(mean) - data]
    pattern = r": \w+ \(([0-9.]+); entropy ([0-9.]+) = ([0-9.]+) data \+ ([0-9.]+) m"
    actual = [[*map(float, re.search(pattern, line).groups())] for line in lines[::3]]
    np.testing.assert_allclose(actual, np.transpose(desired), atol=6e-4)
    assert lines[1::3] == [f"   1.000  {i} ({Y[i]})" for i in range(3)]
    (line,) = printed(capsys, "embed", runs / "one/model.npz", "one.NPY")
    assert line.startswith("one.NPY: ")


def test_embed_writes_vectors_and_classes(runs, capsys):
    np.save("two.npy", X[:2].astype(np.float64))
    run, keys = runs / "several", ["two.npy:0", "two.npy:1"]
    known = read_vectors(run / "vectors.safetensors").matrix[:2]
    titles = printed(capsys, "embed", run, "two.npy", "--topn", "1")[::2]
    for name in ("out.safetensors", "out.npz", "out.parquet"):
        shown = printed(capsys, "embed", run, "two.npy", "--to", name)
        assert shown == [f"2 vectors in {name}"]
        vectors = read_vectors(name)
        assert vectors.keys == keys
        np.testing.assert_allclose(vectors.matrix, known, rtol=1e-4, atol=1e-5)
    rows = pl.read_parquet("out.parquet").to_dicts()
    for line, row in zip(titles, rows, strict=True):
        found = f"{row['key']}: {row['class']} ({row['probability']:.3f}"
        assert line.startswith(found)


def test_embed_takes_what_training_takes_without_labels(runs, capsys):
    """A flat folder in another size, an npz, a Parquet and a tar of one grey image."""
    Path("flat").mkdir()
    Image.new("L", (9, 8), 250).save("flat/new.png")
    data = Path("flat/new.png").read_bytes()
    np.savez("new.npz", x_test=np.full((1, 4, 3, 3), 250, np.uint8))
    pl.DataFrame({"image": [data]}).write_parquet("new.parquet")
    with tarfile.open("new.tar", "w") as archive:
        archive.add("flat/new.png", "new.png")
    sources = ["flat", "new.npz", "new.parquet", "new.tar", "flat/new.png"]
    run = runs / "pictures"
    printed(capsys, "embed", run, *sources, "--to", "v.txt")
    found = read_vectors("v.txt")
    keys = ["flat:new.png", "new.npz:0", "new.parquet:0", "new.tar:new"]
    assert found.keys == [*keys, "flat/new.png"]
    np.testing.assert_array_equal(found.matrix, found.matrix[:1].repeat(5, 0))
    first, *nearest = printed(capsys, "embed", run, "flat/new.png", "--topn", "8")
    assert re.fullmatch(r"flat/new.png: bright \(\d\.\d{3}\)", first)
    assert all("  bright/" in line and "(bright)" in line for line in nearest)
    printed(capsys, "embed", run, runs / "images", "--to", "all.txt")
    known, found = read_vectors(run / "vectors.safetensors"), read_vectors("all.txt")
    assert found.keys == known.keys
    np.testing.assert_allclose(found.matrix, known.matrix, rtol=1e-5, atol=1e-6)


# --- damage


@pytest.mark.row("B49")
@pytest.mark.parametrize(
    ("verb", "change", "message"),
    [
        ("evaluate", None, "labels.parquet is not a whole file of labels"),
        ("neighbors", lambda x: x.select("key"), "no column"),
        ("evaluate", lambda x: x.drop("entropy"), "no column"),
        ("evaluate", lambda x: x.with_columns(entropy=pl.lit("x")), "`entropy` is Str"),
        ("evaluate", pl.DataFrame.reverse, "are not of the same examples: `embedder v"),
    ],
)
def test_damage_is_one_line(runs, capsys, verb, change, message):
    shutil.copytree(runs / "one", "run")
    path = Path("run/labels.parquet")
    if change is None:
        path.write_bytes(path.read_bytes()[:-9])
    else:  # as if no sum of it was known
        change(pl.read_parquet(path)).write_parquet(path)
        Path("run/SHA256SUMS").unlink()
    assert main([verb, "run", *["0"] * (verb == "neighbors")]) == 2
    assert message in error_line(capsys)


NOT_WHOLE = [
    ("rotations", None, "it has no 'rotations'"),
    ("rotations", np.ones((2, 5, 6), "f4"), "`rotations` is (2, 5, 6), of "),
    ("rotations", np.full((2, 6, 6), np.nan, "f4"), "`rotations` is not finite"),
    ("rotations", np.ones((2, 6, 6)), "`rotations` is not finite numbers of flo"),
    ("biases_0", np.ones((), "f4"), "`biases_0` is (), of 2 replicas"),
    ("biases_0", np.ones((2, 5), "f4"), "layer 0 is (4, 6) and (5,)"),
    ("replicas", 4, ", of 4 replicas"),
    ("replicas", "2", "`replicas` is '2'"),
    ("replicas", None, "'rotations'] are not members of an encoder"),
]


def test_a_model_of_replicas_whose_parts_do_not_fit_is_refused(runs):
    with np.load(runs / "several/model.npz") as members:
        whole = dict(members)
    for name, value, reason in NOT_WHOLE:
        if name == "replicas":
            settings = json.loads(whole["settings"].tobytes()) | {"replicas": value}
            text = json.dumps(settings).encode()
            name, value = "settings", np.frombuffer(text, np.uint8)
        given = whole | {name: value}
        np.savez("model.npz", **{key: x for key, x in given.items() if x is not None})
        message = f"not a whole encoder file: .*{re.escape(reason)}"
        with pytest.raises(InputError, match=message):
            FeatureEncoder.load("model.npz")
