"""`embedder evaluate` and `embedder export` of runs of an encoder."""

import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from safetensors.numpy import load_file

from embedder import read_ensemble, read_vectors
from embedder.cli import main
from embedder.disk.arrays import unpack_strings
from embedder.encoders.estimator import FeatureEncoder
from embedder.encoders.evaluation import make_evaluation
from embedder.encoders.picture import draw
from embedder.encoders.uncertainty import (
    accuracy_by_rejection,
    calibration_error,
    split_entropy,
)
from tests.commands import error_line

K = 3
NAMES = np.array(["blue", "green", "red"])  # sorted, as classes are
RNG = np.random.default_rng(0)
LABELS = RNG.integers(3, size=100)
X = (RNG.normal(size=(100, 4)) + 1.5 * np.eye(4)[LABELS]).astype(np.float32)
Y = NAMES[LABELS]
HELD = slice(60, 100)  # validation examples
FAST = [
    *("--model", "encoder", "--loader", "memory", "--layers", "4", "6", "3"),
    *("--epochs", "3", "--batch-size", "8"),
    *("--optimizer", "sgd", "--learning-rate", "0.1"),
]
SPLIT = ["--validation-fraction", "0.4"]
PICTURES = {".png": b"\x89PNG\r\n\x1a\n", ".svg": b"<?xml"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """points.npz, text.txt, and the runs `several`, `one`, `whole` and `tokens`."""
    folder = tmp_path_factory.mktemp("evaluate")
    np.savez(folder / "points.npz", X=X, y=Y)
    (folder / "text.txt").write_text("a b c d\n" * 20)
    text = ["--loader", "memory", "--epochs", "0", "--vector-size", "4"]
    for name, data, options in (
        ("several", "points.npz", [*FAST, *SPLIT, "--replicas", str(K)]),
        ("one", "points.npz", [*FAST, *SPLIT]),
        ("whole", "points.npz", FAST),
        ("tokens", "text.txt", [*text, "--min-count", "1"]),
    ):
        run = ["--workdir", str(folder / name)]
        assert main(["train", str(folder / data), *run, *options]) == 0
    return folder


@pytest.fixture
def runs(folder, tmp_path, monkeypatch) -> Path:
    """The folder of the runs, which tests only read; the working folder is new."""
    monkeypatch.chdir(tmp_path)
    return folder


def probabilities_of(runs: Path) -> np.ndarray:
    """Of all points by each network of the run `several`, [K, n, C]."""
    ensemble = FeatureEncoder.load(runs / "several/model.npz").ensemble_
    return ensemble.member_probabilities(X)


def printed_json(capsys, *arguments) -> dict:
    assert main(["evaluate", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def assert_measures(found: dict, probabilities: np.ndarray, labels: np.ndarray):
    """`found` is of the predictions [K, n, C]."""
    split = split_entropy(probabilities)
    p = split.probabilities
    assert (found["examples"], found["networks"]) == (len(labels), len(probabilities))
    assert found["accuracy"] == pytest.approx(np.mean(p.argmax(axis=1) == labels))
    likelihood = -np.log(p[range(len(labels)), labels]).mean()
    assert found["negative_log_likelihood"] == pytest.approx(likelihood, rel=1e-4)
    error = calibration_error(p, labels)
    assert found["calibration_error"] == pytest.approx(error, rel=1e-4)
    curve = accuracy_by_rejection(p, labels, split.total)
    shown = [(each["rejected"], each["accuracy"]) for each in found["rejection"]]
    assert shown == [
        (x / 100, curve.accuracy[len(labels) * x // 100]) for x in (0, 10, 20, 50)
    ]
    scores = [(found[name], each) for name, each in found["intervals"].items()]
    scores += [(each["accuracy"], each) for each in found["rejection"]]
    for value, each in scores[:2] + scores[3:]:  # a resample has a larger ECE
        assert each["lower"] <= value <= each["upper"]
    constant = found["baselines"]["most frequent class"]["accuracy"]["value"]
    assert constant == np.bincount(labels).max() / len(labels)
    bins = found["bins"]
    assert len(bins) == 15 and sum(each["examples"] for each in bins) == len(labels)
    assert [each["confidence"] is None for each in bins] == [
        each["examples"] == 0 for each in bins
    ]


# --- the measures


@pytest.mark.slow
def test_replicas_are_evaluated_on_the_validation_examples(runs, capsys):
    found = printed_json(capsys, runs / "several")
    assert_measures(found, probabilities_of(runs)[:, HELD], LABELS[HELD])
    assert 0.3 < found["accuracy"] < 1 and found["calibration_error"] > 0.01


@pytest.mark.slow
def test_one_network_is_evaluated_by_its_own_entropy(runs, capsys):
    found = printed_json(capsys, runs / "one")
    p = FeatureEncoder.load(runs / "one/model.npz").predict_proba(X[HELD])
    assert_measures(found, p[np.newaxis], LABELS[HELD])


@pytest.mark.slow
def test_the_report_has_the_numbers_of_the_json(runs, capsys):
    found = printed_json(capsys, runs / "several")
    assert main(["evaluate", str(runs / "several")]) == 0
    first, *lines = capsys.readouterr().out.splitlines()[:10]
    assert first == "40 validation examples, 3 networks"
    one, prior = found["baselines"].values()
    expected = [
        {"value": found[name]} | found["intervals"][name]
        for name in ("accuracy", "negative_log_likelihood", "calibration_error")
    ]
    expected[1:1], expected[3:3] = one.values(), prior.values()
    for line, each in zip(lines, expected, strict=False):
        value, lower, upper = (f"{each[x]:.4f}" for x in ("value", "lower", "upper"))
        assert line.endswith(f" {value} [{lower}, {upper}]")
    assert re.findall(r"(\d+) %", lines[5]) == ["0", "10", "20", "50"]
    names = "accuracy", "lower", "upper"
    for line, name in zip(lines[6:], names, strict=True):
        shown = [f"{each[name]:.4f}" for each in found["rejection"]]
        assert re.findall(r"[\d.]+", line) == shown


@pytest.mark.parametrize("which", ["several", "one"])
def test_given_examples_are_those_of_the_validation(runs, capsys, which):
    """In another order; classes are found by their names."""
    order = RNG.permutation(40)
    np.savez("held.npz", X=X[HELD][order], y=Y[HELD][order])
    given = printed_json(capsys, runs / which, "--examples", "held.npz")
    own = printed_json(capsys, runs / which)
    for name in ("accuracy", "negative_log_likelihood", "calibration_error"):
        assert given[name] == pytest.approx(own[name], rel=1e-5), name
    sizes = [[each["examples"] for each in found["bins"]] for found in (given, own)]
    assert sizes[0] == sizes[1]


def test_examples_of_some_classes_are_evaluated(runs, capsys):
    """Class 0 of the set alone is another class of the encoder."""
    is_red = Y == "red"
    np.savez("red.npz", X=X[is_red], y=Y[is_red])
    found = printed_json(capsys, runs / "several", "--examples", "red.npz")
    assert_measures(found, probabilities_of(runs)[:, is_red], LABELS[is_red])


def test_an_encoder_file_is_evaluated_on_given_examples(runs, capsys):
    data = ["--examples", runs / "points.npz"]
    found = printed_json(capsys, runs / "several/model.npz", *data)
    assert found == printed_json(capsys, runs / "several", *data)
    assert_measures(found, probabilities_of(runs), LABELS)


def test_columns_are_those_of_the_training(runs, capsys):
    columns = {f"x{i}": X[:, i] for i in range(4)}
    names = [f"n{i}" for i in range(100)]
    pl.DataFrame(columns | {"kind": Y, "name": names}).write_parquet("p.parquet")
    options = ["--label", "kind", "--key", "name", "--workdir", "run"]
    assert main(["train", "p.parquet", *FAST, *options]) == 0
    capsys.readouterr()
    found = printed_json(capsys, "run", "--examples", "p.parquet")
    assert found["examples"] == 100


def test_images_are_scaled_as_for_embed(runs, capsys):
    from PIL import Image

    for name, size in (("train", (4, 3)), ("test", (8, 6))):
        for label, least in (("dark", 0), ("bright", 156)):
            Path(name, label).mkdir(parents=True)
            for number in range(4):
                pixels = least + RNG.integers(100, size=(*size, 3))
                image = Image.fromarray(pixels.astype(np.uint8))
                image.save(f"{name}/{label}/{number}.png")
    options = ["--model", "encoder", "--loader", "memory", "--workdir", "run"]
    assert main(["train", "train", *options]) == 0
    capsys.readouterr()
    found = printed_json(capsys, "run", "--examples", "test")
    assert found["examples"] == 8 and 0 <= found["accuracy"] <= 1


def test_a_run_of_one_class_is_certain(runs, capsys):
    np.savez("red.npz", X=X[:20], y=np.full(20, "red"))
    layers = ["--layers", "4", "6", "1", "--workdir", "run"]
    assert main(["train", "red.npz", *FAST, *SPLIT, *layers]) == 0
    capsys.readouterr()
    found = printed_json(capsys, "run")
    assert found["accuracy"] == 1
    assert found["negative_log_likelihood"] == found["calibration_error"] == 0


# --- the picture


@pytest.mark.spread(1)
@pytest.mark.parametrize("suffix", PICTURES)
def test_a_picture_is_drawn(runs, capsys, suffix):
    pytest.importorskip("matplotlib", reason="needs the extra `plot`")
    path = Path(f"held{suffix}")
    assert main(["evaluate", str(runs / "several"), "--picture", str(path)]) == 0
    drawn = path.read_bytes()
    assert drawn.startswith(PICTURES[suffix])
    assert [*Path().iterdir()] == [path]
    assert "accuracy" in capsys.readouterr().out
    assert main(["evaluate", str(runs / "several"), "--picture", str(path)]) == 0
    assert path.read_bytes() == drawn


def test_the_picture_names_its_parts(tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra `plot`")
    certain = np.array([1.0, 0.9, 0.6])
    evaluation = make_evaluation(
        "examples",
        2,
        labels=np.array([0, 1, 1]),
        confidence=certain,
        is_correct=np.array([True, True, False]),
        log_likelihood=np.log(certain),
        entropy=1 - certain,
    )
    from matplotlib import rc_context

    with rc_context({"svg.fonttype": "none"}):  # text as text
        draw(evaluation, tmp_path / "picture.svg")
    text = (tmp_path / "picture.svg").read_text()
    for part in ("Calibration", "confidence", "rejected, %", "3 examples, 2 networks"):
        assert part in text, part


@pytest.mark.parametrize("number", [1, 2, 200])
def test_any_number_of_examples_can_be_drawn(tmp_path, number):
    pytest.importorskip("matplotlib", reason="needs the extra `plot`")
    evaluation = make_evaluation(
        "examples",
        1,
        labels=np.zeros(number),
        confidence=np.full(number, 1.0),
        is_correct=np.full(number, True),
        log_likelihood=np.zeros(number),
        entropy=np.zeros(number),
    )
    draw(evaluation, tmp_path / "p.png")
    assert (tmp_path / "p.png").stat().st_size > 1000


def test_a_picture_needs_a_folder(runs, capsys):
    pytest.importorskip("matplotlib", reason="needs the extra `plot`")
    assert main(["evaluate", str(runs / "several"), "--picture", "no/p.png"]) == 2
    assert re.search("Folder .*no does not exist", error_line(capsys))


@pytest.mark.row("B92")
def test_without_matplotlib_there_is_one_line(runs, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["evaluate", str(runs / "several"), "--picture", "p.png"]) == 2
    line = error_line(capsys)
    assert "`picture` needs matplotlib" in line
    assert "python -m pip install 'embedder-jax[plot]'" in line


# --- exports


@pytest.mark.parametrize("which", ["several", "one"])
def test_predictions_are_exported_to_parquet(runs, which):
    assert (
        main(["export", str(runs / which), "--to", "p.parquet", "--predictions"]) == 0
    )
    frame = pl.read_parquet("p.parquet")
    labels = pl.read_parquet(runs / which / "labels.parquet")
    assert [*labels.columns, *(f"probability_{c}" for c in NAMES)] == [
        *frame.columns[:5],
        "log_likelihood",
        *frame.columns[5:],
    ]
    for name in ("key", "label", "predicted", "trained"):
        assert frame[name].to_list() == labels[name].to_list()
    for name in {*frame.columns[5:]} & {*labels.columns}:
        np.testing.assert_allclose(frame[name], labels[name], rtol=1e-4, atol=1e-6)
    p = np.stack([frame[f"probability_{name}"] for name in NAMES], axis=1)
    np.testing.assert_allclose(p.max(axis=1), labels["probability"], rtol=1e-5)
    likelihood = np.log(p[range(100), LABELS])
    np.testing.assert_allclose(labels["log_likelihood"], likelihood, rtol=1e-4)


def test_predictions_are_exported_to_safetensors(runs):
    several = str(runs / "several")
    assert main(["export", several, "--to", "p.safetensors", "--predictions"]) == 0
    found = load_file("p.safetensors")
    split = split_entropy(probabilities_of(runs))
    for name, values in zip(
        ("probabilities", "entropy", "entropy_data", "entropy_model"),
        split,
        strict=True,
    ):
        np.testing.assert_allclose(found[name], values, rtol=1e-5, atol=1e-6)
    assert unpack_strings(found["classes"], found["class_ends"]) == NAMES.tolist()
    keys = unpack_strings(found["keys"], found["key_ends"])
    assert keys == [str(i) for i in range(100)]
    np.testing.assert_array_equal(found["label"], LABELS)
    np.testing.assert_array_equal(found["trained"], np.arange(100) < 60)
    best = split.probabilities.argmax(axis=1)
    np.testing.assert_array_equal(found["predicted"], best)


@pytest.mark.spread(1)
@pytest.mark.parametrize("suffix", [".safetensors", ".parquet"])
def test_the_embeddings_of_each_network_are_exported(runs, suffix):
    path = f"all{suffix}"
    assert main(["export", str(runs / "several"), "--to", path, "--replicas"]) == 0
    ensemble = FeatureEncoder.load(runs / "several/model.npz").ensemble_
    desired = ensemble.member_embeddings(X)
    if suffix == ".safetensors":
        found = read_ensemble(path)
        vectors, keys = found.vectors, found.tokens
        (near,) = found.neighbors(["7"], topn=2)
        assert near[0].similarity > 0.9
    else:
        frame = pl.read_parquet(path)
        vectors = frame["vector"].to_numpy().reshape(K, 100, -1)
        keys = frame["token"][:100].to_list()
        assert frame["replica"].to_list() == np.repeat(np.arange(K), 100).tolist()
    np.testing.assert_allclose(vectors, desired, rtol=1e-5, atol=1e-5)
    assert keys == [str(i) for i in range(100)]
    trained = read_vectors(runs / "several/vectors.safetensors").matrix
    np.testing.assert_allclose(np.mean(vectors, axis=0), trained, atol=1e-5)


# --- bad inputs


def written(name: str, features: np.ndarray, labels: np.ndarray) -> str:
    np.savez(name, X=features, y=labels)
    return name


BAD_EXAMPLES = {
    "other shape": (
        lambda: written("d.npz", X[:, :3], Y),
        r"--examples d\.npz must have features float32\[4\], .* got float32\[3\]",
    ),
    "bytes": (
        lambda: written("d.npz", X.astype(np.uint8), Y),
        r"must have features float32\[4\], .* got uint8\[4\]",
    ),
    "empty": (
        lambda: written("d.npz", X[:0], Y[:0]),
        r"features must be \[n, \.\.\.\] .* got \[0, 4\] and \[0\]",
    ),
    "not finite": (
        lambda: written("d.npz", np.where(X > 1, np.nan, X), Y),
        "features that are not finite",
    ),
    "missing": (lambda: "no.npz", r"DATA no\.npz does not exist"),
    "another format": (lambda: __file__, r"must be an idx file"),
}


@pytest.mark.row("B1", "B6")
@pytest.mark.parametrize("case", BAD_EXAMPLES)
def test_examples_that_do_not_fit_are_refused(runs, capsys, case):
    make, message = BAD_EXAMPLES[case]
    assert main(["evaluate", str(runs / "several"), "--examples", make()]) == 2
    assert re.search(message, error_line(capsys))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["whole"], "no validation examples: train with --validation-fraction, or"),
        (["several", "--picture", "p.pdf"], "`picture` must end in .png or .svg, got"),
        (["several", "--picture", "p"], "`picture` must end in .png or .svg, got p"),
        (["tokens", "--json"], "`json` applies only to a run of an encoder, got"),
        (["tokens", "--picture", "p.png"], "`picture` applies only to a run of an"),
        (["tokens", "--examples", "x"], "`examples` applies only to a run of an enc"),
        (["tokens/vectors.txt", "--json"], "`json` applies only to a run of an enc"),
        (["tokens/vectors.txt", "--examples", "x"], "not a whole encoder file"),
        (["tokens"], "Give at least one of --sessions, --edges, --labels, --pairs"),
        (["no", "--json"], "does not exist"),
        (
            ["several", "--examples", "x", "--analogies", "x"],
            "`examples` is for the evaluation of an encoder: leave out --analogies",
        ),
        *(
            (
                ["several", f"--{flag}", "x"],
                f"`{flag}` applies only to a run of tokens or to a file of vectors",
            )
            for flag in ("sessions", "edges", "labels", "text")
        ),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_evaluate_refuses(runs, capsys, arguments, message):
    run, *options = arguments
    assert main(["evaluate", str(runs / run), *options]) == 2
    assert message in error_line(capsys)
    assert [*Path().iterdir()] == []


@pytest.mark.row("B22")
def test_a_picture_is_no_file_of_a_run(runs, capsys):
    path = str(runs / "several/model.npz")
    assert main(["evaluate", str(runs / "several"), "--picture", path]) == 2
    assert "`picture` must not be a file of a run" in error_line(capsys)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["several", "p.csv", "--predictions"], "`to` must end in .parquet or .safet"),
        (["several", "p.npz", "--replicas"], "`to` must end in .parquet or .safeten"),
        (
            ["several", "p.parquet", "--predictions", "--replicas"],
            "Give one of --replicas, --stability N, --predictions and --parameters",
        ),
        (
            ["several", "p.parquet", "--predictions", "--stability", "3"],
            "Give one of --replicas, --stability N, --predictions and --parameters",
        ),
        (
            ["several", "p.parquet", "--stability", "3"],
            "`stability` applies only to a run of tokens with replicas, got",
        ),
        (
            ["one", "p.parquet", "--stability", "3", "--replicas"],
            "Give one of --replicas, --stability N, --predictions and --parameters",
        ),
        (["one", "p.parquet", "--replicas"], "`replicas` applies only to a run with r"),
        (["tokens", "p.parquet", "--predictions"], "`predictions` applies only to a r"),
        (["tokens", "p.parquet", "--replicas"], "`replicas` applies only to a run wit"),
        (["no", "p.parquet", "--predictions"], "does not exist"),
        (
            ["several", "p.parquet", "--replicas", "--names", "n.csv"],
            "`names` goes with neither --predictions, --replicas, --parameters nor",
        ),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_export_refuses(runs, capsys, arguments, message):
    run, path, *options = arguments
    assert main(["export", str(runs / run), "--to", path, *options]) == 2
    assert message in error_line(capsys)
    assert [*Path().iterdir()] == []


def test_json_of_neighbours_has_labels(runs, capsys):
    assert main(["neighbors", str(runs / "several"), "7", "--topn", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert main(["neighbors", str(runs / "several"), "7", "--topn", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    shown = [
        f"{near['similarity']:6.3f}  {near['key']} ({near['label']})"
        for near in found["found"]
    ]
    assert [line.removeprefix("  ") for line in lines[1:]] == shown
    assert lines[0] == f"7 ({found['query'][0]['label']})"


def test_stable_neighbours_are_of_tokens(runs, capsys):
    assert main(["neighbors", str(runs / "several"), "7", "--stable"]) == 2
    message = "`stable` applies only to a run of tokens with replicas"
    assert message in error_line(capsys)


@pytest.fixture
def copied(runs) -> Path:
    """A run of replicas in the working folder, whose data are there, too."""
    np.savez("points.npz", X=X, y=Y)
    options = [*FAST, *SPLIT, "--replicas", "2", "--workdir", "run"]
    assert main(["train", "points.npz", *options]) == 0
    return Path("run")


@pytest.mark.slow
@pytest.mark.row("B16")
@pytest.mark.parametrize("flag", ["--predictions", "--replicas"])
def test_exports_need_the_data_of_the_run(copied, capsys, flag):
    command = ["export", "run", "--to", "p.parquet", flag]
    assert main(command) == 0
    capsys.readouterr()
    np.savez("points.npz", X=X + 1, y=Y)
    assert main(command) == 2
    assert "points.npz has changed since RUN run was trained" in error_line(capsys)
    Path("points.npz").unlink()
    assert main(command) == 2
    assert "points.npz does not exist" in error_line(capsys)
    assert main(["evaluate", "run"]) == 0  # by its labels.parquet alone


def rewrite_labels(run: str, change) -> None:
    path = Path(run, "labels.parquet")
    change(pl.read_parquet(path)).write_parquet(path)
    Path(run, "SHA256SUMS").unlink()


def test_damaged_labels_are_refused(runs, capsys):
    shutil.copytree(runs / "several", "run")
    labels = Path("run/labels.parquet")
    labels.write_bytes(labels.read_bytes()[:-9])
    assert main(["evaluate", "run"]) == 2
    assert "labels.parquet is not a whole file of labels" in error_line(capsys)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda frame: frame.drop("entropy"),
            "no column `entropy`, .* give --examples",
        ),
        (lambda frame: frame.with_columns(entropy=pl.lit("x")), "`entropy` is String"),
        (lambda frame: frame.with_columns(trained=pl.lit(None)), "`trained` is Null"),
    ],
    ids=["former", "text", "null"],
)
def test_other_columns_of_labels_are_refused(runs, capsys, change, message):
    shutil.copytree(runs / "several", "run")
    rewrite_labels("run", change)
    assert main(["evaluate", "run"]) == 2
    assert re.search(message, error_line(capsys))
