"""`embedder export` of the parameters of an encoder, and of its network as ONNX."""

import json
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import haiku as hk
import jax
import numpy as np
import pytest
from safetensors import safe_open

from embedder import read_vectors
from embedder.cli import main
from embedder.encoders.artefact import read_encoder
from embedder.encoders.estimator import FeatureEncoder
from embedder.encoders.predictor import predictor_of
from tests.commands import error_line
from tests.encoders.image_cases import NETWORKS

K = 3
RNG = np.random.default_rng(0)
LABELS = np.arange(60) % 3
Y = np.array(["blue", "green", "red"])[LABELS]
X = (RNG.normal(size=(60, 4)) + 1.5 * np.eye(4)[LABELS]).astype(np.float32)
PIXELS = RNG.integers(256, size=(60, 3, 2)).astype(np.uint8)
FAST = [
    *("--model", "encoder", "--loader", "memory", "--epochs", "2"),
    *("--batch-size", "8", "--learning-rate", "0.1"),
]
RUNS = ["one", "several", "pixels", "wide"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Runs of an encoder, and one of tokens."""
    folder = tmp_path_factory.mktemp("weights")
    np.savez(folder / "points.npz", X=X, y=Y)
    np.savez(folder / "pixels.npz", X=PIXELS, y=Y)
    (folder / "text.txt").write_text("a b c d\n" * 20)
    text = ["--loader", "memory", "--epochs", "0", "--vector-size", "4"]
    deep = ["--layers", "4", "6", "5", "3"]
    for name, data, options in (
        ("one", "points.npz", [*FAST, *deep]),
        ("several", "points.npz", [*FAST, *deep, "--replicas", str(K)]),
        ("pixels", "pixels.npz", FAST),
        ("wide", "points.npz", [*FAST, *deep, "--dtype", "float64"]),
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


def export(run: Path, to: str, *options: str) -> int:
    return main(["export", str(run), "--to", to, *options])


def parameters(run: Path) -> tuple[dict[str, np.ndarray], dict]:
    """The arrays of a run that is exported, and the metadata."""
    assert export(run, "params.safetensors", "--parameters") == 0
    with safe_open("params.safetensors", "numpy") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}
        facts = file.metadata()
    facts.pop("sha256")
    return arrays, {name: json.loads(text) for name, text in facts.items()}


def embedded(params: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """The last hidden layer, by NumPy alone."""
    for name in sorted(name for name in params if name.startswith("hidden")):
        if name.endswith("/w"):
            x = np.maximum(0, x @ params[name] + params[name[:-1] + "b"])
    return x


# --- parameters


@pytest.mark.slow
def test_parameters_are_named_as_in_haiku(runs, capsys):
    arrays, facts = parameters(runs / "one")
    assert "83 parameters in params.safetensors" in capsys.readouterr().out
    hidden = "hidden/~/linear_"
    assert {name: array.shape for name, array in arrays.items()} == {
        f"{hidden}0/w": (4, 6),
        f"{hidden}0/b": (6,),
        f"{hidden}1/w": (6, 5),
        f"{hidden}1/b": (5,),
        "classes/w": (5, 3),
        "classes/b": (3,),
    }
    assert facts["classes"] == ["blue", "green", "red"]
    assert (facts["example_shape"], facts["example_dtype"]) == ([4], "float32")
    assert facts["settings"]["layers"] == [4, 6, 5, 3]
    assert facts["settings"]["learning_rate"] == 0.1


@pytest.mark.spread(1)
@pytest.mark.parametrize("run", ["one", "wide", "pixels"])
def test_parameters_give_the_vectors_in_numpy(runs, run):
    arrays, _ = parameters(runs / run)
    x = PIXELS.reshape(60, 6) / 255 if run == "pixels" else X
    vectors = read_vectors(runs / run / "vectors.safetensors").matrix
    assert arrays["classes/w"].dtype == vectors.dtype
    found = embedded(arrays, x.astype(vectors.dtype))
    np.testing.assert_allclose(found, vectors, rtol=1e-5, atol=1e-5)


def test_parameters_give_the_vectors_in_haiku(runs):
    arrays, _ = parameters(runs / "one")
    params: dict[str, dict[str, np.ndarray]] = {}
    for name, array in arrays.items():
        module, _, kind = name.rpartition("/")
        params.setdefault(module, {})[kind] = array
    mlp = hk.without_apply_rng(
        hk.transform(
            lambda x: hk.nets.MLP([6, 5], activate_final=True, name="hidden")(x)
        )
    )
    vectors = read_vectors(runs / "one/vectors.safetensors").matrix
    np.testing.assert_allclose(mlp.apply(params, X), vectors, rtol=1e-5, atol=1e-5)


def test_parameters_of_replicas_have_them_first(runs):
    arrays, facts = parameters(runs / "several")
    assert facts["settings"]["replicas"] == K
    assert arrays["classes/w"].shape == (K, 5, 3)
    assert arrays["rotations"].shape == (K, 5, 5)
    rotations = arrays.pop("rotations")
    each = [embedded({n: x[k] for n, x in arrays.items()}, X) for k in range(K)]
    vectors = read_vectors(runs / "several/vectors.safetensors").matrix
    found = np.mean(np.stack(each) @ rotations, axis=0)
    np.testing.assert_allclose(found, vectors, rtol=1e-5, atol=1e-5)


def test_parameters_of_an_encoder_file(runs):
    arrays, facts = parameters(runs / "one")
    encoder = FeatureEncoder((4, 6, 3), epochs=1).fit(X, Y)
    encoder.save("encoder.npz")
    found, facts = parameters(Path("encoder.npz"))
    assert facts["settings"]["layers"] == [4, 6, 3]
    np.testing.assert_allclose(
        embedded(found, X), encoder.transform(X), rtol=1e-5, atol=1e-5
    )
    again, _ = parameters(runs / "one/model.npz")
    for name, array in arrays.items():
        np.testing.assert_array_equal(again[name], array)


def test_without_the_flag_a_run_has_vectors(runs):
    assert export(runs / "one", "vectors.safetensors") == 0
    assert len(read_vectors("vectors.safetensors")) == 60


# --- ONNX


def inputs(run: str, num: int) -> np.ndarray:
    source = PIXELS if run == "pixels" else X
    return source[:num].astype(np.float64) if run == "wide" else source[:num]


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("is_file", [False, True], ids=["run", "file"])
def test_onnx_gives_the_outputs_of_the_encoder(runs, run, is_file):
    pytest.importorskip("jax2onnx", reason="needs the extra `onnx`")
    import onnx
    import onnxruntime

    path = runs / run / "model.npz" if is_file else runs / run
    assert export(path, "encoder.onnx") == 0
    assert {*map(str, Path().iterdir())} == {"encoder.onnx"}
    session = onnxruntime.InferenceSession("encoder.onnx")
    model = read_encoder(runs / run / "model.npz")
    predictor = predictor_of(model)
    for num in (1, 7, 60):  # any number of examples
        x = inputs(run, num)
        vectors, shares = session.run(["embeddings", "probabilities"], {"features": x})
        expected = predictor.vectors(x, model.rotations)
        np.testing.assert_allclose(vectors, expected, rtol=1e-5, atol=1e-5)
        expected = predictor.predict(x).probabilities
        np.testing.assert_allclose(shares, expected, rtol=1e-5, atol=1e-5)
        assert vectors.dtype == ("float64" if run == "wide" else "float32")
    props = {x.key: x.value for x in onnx.load("encoder.onnx").metadata_props}
    assert json.loads(props["classes"]) == ["blue", "green", "red"]


CONVERTED = [*NETWORKS, "resnet of large images", "projection"]


@pytest.mark.slow
@pytest.mark.parametrize("case", CONVERTED)
def test_onnx_of_each_network_gives_its_outputs(tmp_path, monkeypatch, case):
    pytest.importorskip("jax2onnx", reason="needs the extra `onnx`")
    import onnxruntime

    monkeypatch.chdir(tmp_path)
    size = (72, 66) if "large" in case else (16, 12)  # a stride and pooling first
    x = RNG.integers(256, size=(12, *size, 3), dtype=np.uint8)
    encoder = _any_encoder(case, x)
    encoder.save("encoder.npz")
    assert export(Path("encoder.npz"), "encoder.onnx") == 0
    session = onnxruntime.InferenceSession("encoder.onnx")
    for num in (1, 12):
        vectors, shares = session.run(None, {"features": x[:num]})
        for found, own in (
            (vectors, encoder.transform(x[:num])),
            (shares, encoder.predict_proba(x[:num])),
        ):
            np.testing.assert_allclose(found, own, rtol=1e-5, atol=1e-5)


def _any_encoder(case: str, x: np.ndarray) -> FeatureEncoder:
    """An encoder of `x`, whose parameters and averages are all random."""
    name = case.split(" ")[0]
    network = name if name in NETWORKS else "conv-small"
    encoder = FeatureEncoder(
        network=network,
        network_args=dict(each.split("=") for each in NETWORKS[network]),
        vector_size=6 if case == "projection" else 0,
        epochs=0,
    ).fit(x, Y[: len(x)])
    encoder._model = jax.tree.map(
        lambda w: (w + 0.1 * RNG.random(w.shape)).astype(w.dtype), encoder._model
    )
    return encoder


def fake_converter(monkeypatch, to_onnx, outputs=()) -> None:
    """Stands for jax2onnx, onnx and onnxruntime, whether they are installed or not."""
    modules = {name: ModuleType(name) for name in ("jax2onnx", "onnx", "onnx.helper")}
    modules["jax2onnx"].__spec__ = SimpleNamespace()  # find_spec asks for one
    modules["jax2onnx"].to_onnx = to_onnx
    modules["onnx.helper"].set_model_props = lambda model, facts: None
    modules["onnxruntime"] = ModuleType("onnxruntime")
    modules["onnxruntime"].SessionOptions = SimpleNamespace
    modules["onnxruntime"].InferenceSession = lambda *_: SimpleNamespace(
        run=lambda names, given: [x[: len(given["features"])] for x in outputs]
    )
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)


def test_without_the_converter_there_is_one_line(runs, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "jax2onnx", None)
    assert export(runs / "one", "encoder.onnx") == 2
    line = error_line(capsys)
    assert "`to` .onnx needs jax2onnx" in line
    assert "python -m pip install 'embedder-jax[onnx]'" in line


def test_a_network_that_cannot_be_converted_is_refused(runs, monkeypatch, capsys):
    def to_onnx(*arguments, **options):
        raise NotImplementedError("No plugin for\n'cumsum'")

    fake_converter(monkeypatch, to_onnx)
    assert export(runs / "one", "encoder.onnx") == 2
    message = r"RUN .*one cannot be converted to ONNX: .*No plugin for"
    assert re.search(message, error_line(capsys))
    assert not Path("encoder.onnx").exists()


@pytest.mark.parametrize("fault", ["values", "shape", "nan", "none"])
def test_onnx_that_computes_something_else_is_refused(runs, monkeypatch, capsys, fault):
    rng = np.random.default_rng(0)  # as the check draws them
    x = rng.integers(256, size=(1, 4), dtype=np.uint8)
    model = read_encoder(runs / "one/model.npz")
    predictor = predictor_of(model)
    features = (x / 255).astype(np.float32)
    vectors, shares = predictor.vectors(features, None), None
    shares = predictor.predict(features).probabilities
    wrong = {
        "values": shares + 1e-3,
        "shape": shares[:, :2],
        "nan": shares * np.nan,
        "none": shares,  # right for a batch of 1, and of 3 it has one row
    }
    found = SimpleNamespace(SerializeToString=lambda: b"onnx")
    fake_converter(monkeypatch, lambda *_, **__: found, (vectors, wrong[fault]))
    assert export(runs / "one", "encoder.onnx") == 2
    name = "embeddings" if fault == "none" else "probabilities"
    message = f"cannot be written as ONNX: its {name} are not those of the encoder."
    assert message in error_line(capsys)
    assert not Path("encoder.onnx").exists()


# --- bad inputs


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["one", "p.npz", "--parameters"],
            r"`to` must end in \.safetensors, got p\.n",
        ),
        (
            ["one", "p.onnx", "--parameters"],
            r"`to` must end in \.safetensors, got p\.",
        ),
        (
            ["tokens", "p.safetensors", "--parameters"],
            "`parameters` applies only to an",
        ),
        (["tokens", "p.onnx"], r"`to` \.onnx applies only to an encoder, got"),
        (["no", "p.onnx"], "no does not exist"),
        (
            ["one", "p.safetensors", "--parameters", "--predictions"],
            "Give one of --replicas, --stability N, --predictions and --parameters",
        ),
        (
            ["one", "p.safetensors", "--parameters", "--names", "n.csv"],
            "`names` goes with neither --predictions, --replicas, --parameters nor",
        ),
        (
            ["one", "p.onnx", "--names", "n.csv"],
            r"`names` goes with neither .* nor \.onnx",
        ),
        (
            ["tokens/vectors.txt", "p.safetensors", "--parameters"],
            r"vectors\.txt is not a whole encoder file",
        ),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_exports_are_refused(runs, capsys, arguments, message):
    run, to, *options = arguments
    assert export(runs / run, to, *options) == 2
    assert re.search(message, error_line(capsys))
    assert [*Path().iterdir()] == []


@pytest.mark.row("B22")
def test_parameters_do_not_replace_a_file_of_a_run(runs, capsys):
    target = str(runs / "one/vectors.safetensors")
    assert export(runs / "one", target, "--parameters") == 2
    assert "`to` must not be a file of a run" in error_line(capsys)
