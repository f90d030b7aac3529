"""Runs of several encoders by the command line: what they leave, what they answer."""

import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from embedder.cli import main
from embedder.encoders.alignment import aligned_mean
from embedder.encoders.artefact import EncoderFile, read_encoder
from embedder.encoders.estimator import FeatureEncoder
from embedder.encoders.outputs import embed, load_encoder, probabilities
from embedder.encoders.uncertainty import entropy, split_entropy
from embedder.errors import InputError
from embedder.vectors.export import read_vectors
from tests.commands import error_line

REPLICAS, SEED = 3, 7
RNG = np.random.default_rng(0)
Y = RNG.integers(3, size=60)
NAMES = np.array(["red", "green", "blue"])
INDICES = np.array([2, 1, 0])[Y]  # of the sorted classes
X = (RNG.normal(size=(60, 4)) + 2 * np.eye(4)[Y]).astype(np.float32)
OPTIONS = [
    *("--model", "encoder", "--loader", "memory", "--layers", "4", "6", "3"),
    *("--epochs", "3", "--batch-size", "8", "--learning-rate", "0.1"),
    *("--optimizer", "adam", "--validation-fraction", "0.2"),
]
SEVERAL = [*OPTIONS, "--seed", str(SEED), "--replicas", str(REPLICAS)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with points.npz, a run `several`, and a run `seed-SEED` of each seed."""
    folder = tmp_path_factory.mktemp("replicas")
    data = str(folder / "points.npz")
    np.savez(data, X=X, y=NAMES[Y])
    assert main(["train", data, "--workdir", str(folder / "several"), *SEVERAL]) == 0
    for seed in range(SEED, SEED + REPLICAS):
        own = ["--workdir", str(folder / f"seed-{seed}"), "--seed", str(seed)]
        assert main(["train", data, *own, *OPTIONS]) == 0
    return folder


@pytest.fixture
def several(folder, tmp_path, monkeypatch) -> Path:
    """The run of replicas, which tests only read; the working folder is a new one."""
    monkeypatch.chdir(tmp_path)
    return folder / "several"


def model_of(run: Path) -> EncoderFile:
    return read_encoder(run / "model.npz")


def outputs_of_singles(several: Path, function) -> np.ndarray:
    """What `function` returns for all points by the single run of each seed."""
    runs = (several.parent / f"seed-{SEED + k}" for k in range(REPLICAS))
    models = (model_of(run) for run in runs)
    return np.stack([function(*load_encoder(m.network, m.arrays), X) for m in models])


# --- what a run leaves


@pytest.mark.slow
def test_the_model_has_the_network_of_each_seed(several):
    model = model_of(several)
    assert model.settings["replicas"] == REPLICAS and len(model.replicas) == REPLICAS
    assert model.arrays["weights_0"].shape == (REPLICAS, 4, 6)
    for k, arrays in enumerate(model.replicas):
        one = model_of(several.parent / f"seed-{SEED + k}")
        for name, array in one.arrays.items():
            np.testing.assert_allclose(arrays[name], array, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_the_vectors_are_the_aligned_mean(several):
    desired = aligned_mean(outputs_of_singles(several, embed)).mean
    actual = read_vectors(several / "vectors.safetensors").matrix
    np.testing.assert_allclose(actual, desired, rtol=1e-3, atol=1e-4)
    mean = outputs_of_singles(several, embed).mean(axis=0)
    assert np.abs(actual - mean).max() > 0.1


def test_the_predictions_are_of_the_mean_probability(several):
    mean = outputs_of_singles(several, probabilities).mean(axis=0)
    frame = pl.read_parquet(several / "labels.parquet")
    np.testing.assert_allclose(frame["probability"], mean.max(axis=1), atol=1e-5)
    names = model_of(several).classes[mean.argmax(axis=1)]
    assert frame["predicted"].to_list() == names.tolist()
    single = pl.read_parquet(several.parent / f"seed-{SEED}/labels.parquet")
    parts = ["entropy_data", "entropy_model"]
    assert frame.columns == [*single.columns, *parts]


def test_labels_have_the_entropies_and_likelihoods_of_the_formulas(several):
    each = outputs_of_singles(several, probabilities).astype(np.float64)
    frame = pl.read_parquet(several / "labels.parquet")
    split = split_entropy(each)
    for name, values in (
        ("entropy", split.total),
        ("entropy_data", split.data),
        ("entropy_model", split.model),
        ("log_likelihood", np.log(each.mean(axis=0)[range(60), INDICES])),
    ):
        np.testing.assert_allclose(frame[name], values, rtol=1e-3, atol=1e-5)
    assert frame["entropy_model"].max() > 0.01
    assert frame["trained"].to_list() == [True] * 48 + [False] * 12


def test_a_single_run_has_the_entropy_of_its_network(several):
    frame = pl.read_parquet(several.parent / f"seed-{SEED}/labels.parquet")
    (p, *_) = outputs_of_singles(several, probabilities)
    np.testing.assert_allclose(frame["entropy"], entropy(p), rtol=1e-5, atol=1e-7)


def test_the_log_has_means(several):
    def metrics(run: Path) -> list[list[float]]:
        lines = (run / "metrics.jsonl").read_text().splitlines()
        names = ("train_loss", "train_accuracy", "val_loss", "val_accuracy")
        return [[json.loads(line)[name] for name in names] for line in lines]

    singles = [metrics(several.parent / f"seed-{SEED + k}") for k in range(REPLICAS)]
    np.testing.assert_allclose(metrics(several), np.mean(singles, axis=0), atol=1e-5)


def test_a_single_run_has_no_member_of_replicas(several):
    path = several.parent / f"seed-{SEED}/model.npz"
    with np.load(path) as members:
        assert "rotations" not in members.files
        assert b"replicas" not in members["settings"].tobytes()


def test_dry_run_counts_the_parameters_of_all(several, capsys):
    counted = []
    for replicas in ("10000", "20000"):
        data = str(several.parent / "points.npz")
        options = [*OPTIONS, "--workdir", "r", "--replicas", replicas, "--dry-run"]
        assert main(["train", data, *options]) == 0
        on_device = capsys.readouterr().out.splitlines()[-1]
        counted.append(float(re.search(r"parameters ([0-9.]+)", on_device)[1]))
    assert counted[0] > 7 and abs(counted[1] / counted[0] - 2) < 0.02


# --- resuming


@pytest.mark.slow
@pytest.mark.row("F37")
@pytest.mark.parametrize(
    "loader", ["memory", pytest.param("tfdata", marks=pytest.mark.slow)]
)
def test_a_stopped_run_goes_on_to_the_same_bits(several, stopped, capsys, loader):
    data = str(several.parent / "points.npz")
    options = [*SEVERAL, "--save-every", "2", "--loader", loader]
    stopped(data, "--workdir", "r", *options)
    assert not Path("r/model.npz").exists()
    assert main(["train", data, "--workdir", "r", *options]) == 0
    assert "Resumes after 8 updates" in capsys.readouterr().err
    for name in ("model.npz", "labels.parquet", "vectors.safetensors"):
        assert (Path("r") / name).read_bytes() == (several / name).read_bytes()


@pytest.mark.row("F37")
def test_another_number_of_replicas_is_refused(several, capsys):
    data, run = str(several.parent / "points.npz"), str(several)
    given = ["--workdir", run, *SEVERAL, "--replicas", "4"]
    assert main(["train", data, *given]) == 2
    assert "`replicas` 3 there, 4 now" in error_line(capsys)


# --- new examples


def test_embed_prints_the_split_of_the_entropy(several, capsys):
    np.save("new.npy", X[:5])
    assert main(["embed", str(several), "new.npy", "--topn", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    found = split_entropy(outputs_of_singles(several, probabilities)[:, :5])
    pattern = r": (\w+) \(([0-9.]+); entropy ([0-9.]+) = ([0-9.]+) data \+ ([0-9.]+) m"
    printed = [re.search(pattern, line).groups() for line in lines[::2]]
    best = found.probabilities.max(axis=1)
    desired = np.stack([best, found.total, found.data, found.model], axis=1)
    actual = [[float(x) for x in each[1:]] for each in printed]
    np.testing.assert_allclose(actual, desired, atol=6e-4)
    assert found.model.max() > 0.01
    for number, line in enumerate(lines[1::2]):  # the nearest is the example itself
        assert re.fullmatch(rf"   1\.000  {number} \(\w+\)", line)


def test_embed_aligns_new_examples_as_those_of_the_run(several):
    np.save("one.npy", X[3])
    assert main(["embed", str(several), "one.npy", "--to", "one.npz"]) == 0
    trained = read_vectors(several / "vectors.safetensors").matrix
    found = read_vectors("one.npz").matrix
    np.testing.assert_allclose(found, trained[3:4], rtol=1e-4, atol=1e-5)


def test_feature_encoder_loads_the_networks_of_a_run(several):
    ensemble = FeatureEncoder.load(several / "model.npz").ensemble_
    mean = outputs_of_singles(several, probabilities).mean(axis=0)
    np.testing.assert_allclose(ensemble.predict_proba(X), mean, atol=1e-5)
    trained = read_vectors(several / "vectors.safetensors").matrix
    np.testing.assert_allclose(ensemble.transform(X), trained, rtol=1e-4, atol=1e-5)


# --- damage


def settings_with(several: Path, replicas) -> np.ndarray:
    given = model_of(several).settings | {"replicas": replicas}
    return np.frombuffer(json.dumps(given).encode(), np.uint8)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"rotations": None}, "it has no 'rotations'"),
        (
            {"rotations": np.ones((3, 5, 6), "f4")},
            r"`rotations` is \(3, 5, 6\), of .* 6",
        ),
        ({"rotations": np.ones((2, 6, 6), "f4")}, "`rotations` is .*, of 3 replicas"),
        ({"rotations": np.full((3, 6, 6), np.nan, "f4")}, "`rotations` is not finite"),
        ({"rotations": np.ones((3, 6, 6))}, "`rotations` is not finite numbers of flo"),
        ({"biases_0": np.ones((4, 6), "f4")}, r"`biases_0` is \(4, 6\), of 3 replicas"),
        ({"biases_0": np.ones((), "f4")}, r"`biases_0` is \(\), of 3 replicas"),
        ({"biases_0": np.ones((3, 5), "f4")}, r"layer 0 is \(4, 6\) and \(5,\)"),
        ({"settings": 4}, r"is \(3, .*\), of 4 replicas"),
        ({"settings": 1}, "`replicas` is 1"),
        ({"settings": True}, "`replicas` is True"),
        ({"settings": "3"}, "`replicas` is '3'"),
        ({"settings": None}, "'rotations'. are not members of an encoder"),
    ],
    ids=lambda value: "_".join(map(str, value)) if isinstance(value, dict) else "",
)
def test_other_members_are_refused(several, changes, reason):
    if "settings" in changes:
        changes = {"settings": settings_with(several, changes["settings"])}
    with np.load(several / "model.npz") as members:
        given = dict(members) | changes
    np.savez("model.npz", **{name: x for name, x in given.items() if x is not None})
    with pytest.raises(InputError, match=f"not a whole encoder file: .*{reason}"):
        read_encoder(Path("model.npz"))
