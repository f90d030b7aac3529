"""`embedder export` of the parameters of an encoder, and as ONNX and StableHLO."""

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import jax
import jax.export
import numpy as np
import pytest
from safetensors import safe_open

from embedder import FeatureEncoder, read_vectors
from embedder.cli.main import main
from embedder.encoders import weights
from tests.commands import error_line, train_runs
from tests.encoders.image_cases import NETWORKS

K = 3
RNG = np.random.default_rng(0)
LABELS = np.arange(60) % 3
Y = np.array(["blue", "green", "red"])[LABELS]
X = (RNG.normal(size=(60, 4)) + 1.5 * np.eye(4)[LABELS]).astype(np.float32)
PIXELS = RNG.integers(256, size=(60, 3, 2)).astype(np.uint8)
FAST = "--model encoder --loader memory --epochs 2 --batch-size 8 --no-report"
RUNS = {
    "one": "points.npz --layers 4 6 5 3",
    "several": f"points.npz --layers 4 6 5 3 --replicas {K}",
    "pixels": "pixels.npz",
    "wide": "points.npz --layers 4 6 5 3 --dtype float64",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The runs of RUNS."""
    folder = tmp_path_factory.mktemp("weights")
    np.savez(folder / "points.npz", X=X, y=Y)
    np.savez(folder / "pixels.npz", X=PIXELS, y=Y)
    train_runs(folder, **{name: f"{x} {FAST}" for name, x in RUNS.items()})
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


def vectors_of(runs: Path, run: str) -> np.ndarray:
    return read_vectors(runs / run / "vectors.safetensors").matrix


def features(run: str) -> np.ndarray:
    return {"pixels": PIXELS, "wide": X.astype(np.float64)}.get(run, X)


# --- parameters


@pytest.mark.parametrize("run", RUNS)
def test_parameters_give_the_vectors_in_numpy(runs, capsys, run):
    """Those of replicas have them first, and are rotated to the first."""
    arrays, facts = parameters(runs / run)
    assert facts["classes"] == ["blue", "green", "red"]
    if run == "one":
        assert "83 parameters in params.safetensors" in capsys.readouterr().out
        assert (facts["example_shape"], facts["example_dtype"]) == ([4], "float32")
        assert facts["settings"]["layers"] == [4, 6, 5, 3]
        modules = "hidden/~/linear_0", "hidden/~/linear_1", "classes"  # hk.nets.MLP
        assert {*arrays} == {f"{name}/{x}" for name in modules for x in "wb"}
        model, _ = parameters(runs / "one/model.npz")
        for name, array in arrays.items():
            np.testing.assert_array_equal(model[name], array)
    expected = vectors_of(runs, run)
    assert arrays["classes/w"].dtype == expected.dtype
    x = PIXELS.reshape(60, 6) / 255 if run == "pixels" else X
    x = x.astype(expected.dtype)
    if run == "several":
        assert facts["settings"]["replicas"] == K
        rotations = arrays.pop("rotations")
        each = [embedded({n: a[k] for n, a in arrays.items()}, x) for k in range(K)]
        found = np.mean(np.stack(each) @ rotations, axis=0)
    else:
        found = embedded(arrays, x)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


# --- networks


@pytest.mark.parametrize("run", RUNS)
def test_onnx_gives_the_outputs_of_the_encoder(runs, run):
    pytest.importorskip("jax2onnx", reason="needs the extra `onnx`")
    import onnx
    import onnxruntime

    encoder = FeatureEncoder.load(runs / run / "model.npz")
    encoder = encoder.ensemble_ if run == "several" else encoder
    close = {"rtol": 1e-5, "atol": 1e-5}
    for source in (runs / run, runs / run / "model.npz"):
        assert export(source, "encoder.onnx") == 0
        assert {*map(str, Path().iterdir())} == {"encoder.onnx"}
        session = onnxruntime.InferenceSession("encoder.onnx")
        for num in (1, 7, 60):  # any number of examples
            x, expected = features(run)[:num], vectors_of(runs, run)[:num]
            names = ["embeddings", "probabilities"]
            vectors, shares = session.run(names, {"features": x})
            np.testing.assert_allclose(vectors, expected, **close)
            np.testing.assert_allclose(shares, encoder.predict_proba(x), **close)
            assert vectors.dtype == expected.dtype
    props = {x.key: x.value for x in onnx.load("encoder.onnx").metadata_props}
    assert json.loads(props["classes"]) == ["blue", "green", "red"]


def any_encoder(case: str, x: np.ndarray) -> FeatureEncoder:
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


@pytest.mark.slow
@pytest.mark.parametrize("case", [*NETWORKS, "resnet of large images", "projection"])
@pytest.mark.usefixtures("own_folder")
def test_each_network_gives_its_outputs_in_onnx_and_stablehlo(case):
    size = (72, 66) if "large" in case else (16, 12)  # a stride and pooling first
    x = RNG.integers(256, size=(12, *size, 3), dtype=np.uint8)
    encoder = any_encoder(case, x)
    encoder.save("encoder.npz")
    own, shares = encoder.transform(x), encoder.predict_proba(x)
    close = {"rtol": 1e-5, "atol": 1e-5}
    assert export(Path("encoder.npz"), "net.stablehlo") == 0
    exported = jax.export.deserialize(bytearray(Path("net.stablehlo").read_bytes()))
    for num in (1, 5, 12):  # any number of examples
        found = np.asarray(exported.call(x[:num]))
        np.testing.assert_allclose(found, own[:num], **close)
    pytest.importorskip("jax2onnx", reason="needs the extra `onnx`")
    import onnxruntime

    assert export(Path("encoder.npz"), "encoder.onnx") == 0
    session = onnxruntime.InferenceSession("encoder.onnx")
    for num in (1, 12):
        found = session.run(None, {"features": x[:num]})
        np.testing.assert_allclose(found[0], own[:num], **close)
        np.testing.assert_allclose(found[1], shares[:num], **close)


@pytest.mark.slow
@pytest.mark.parametrize("run", ["several", "wide"])
def test_stablehlo_gives_the_vectors_of_a_run(runs, run):
    assert export(runs / run, "net.stablehlo", "--format", "stablehlo") == 0
    data, expected = Path("net.stablehlo").read_bytes(), vectors_of(runs, run)
    with jax.enable_x64(run == "wide"):
        exported = jax.export.deserialize(bytearray(data))
        found = np.asarray(exported.call(features(run)))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert found.dtype == expected.dtype
    assert {*exported.platforms} == {"cpu", "cuda", "tpu"}


# --- what cannot be written


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


def fail(*arguments, **options):
    raise NotImplementedError("No plugin for\n'cumsum'")


def test_without_the_converter_there_is_one_line(runs, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "jax2onnx", None)
    assert export(runs / "one", "encoder.onnx") == 2
    line = error_line(capsys)
    assert "`to` .onnx needs jax2onnx" in line
    assert "python -m pip install 'embedder-jax[onnx]'" in line


@pytest.mark.parametrize("fault", ["values", "nan", "none"])
def test_onnx_that_computes_something_else_is_refused(runs, monkeypatch, capsys, fault):
    rng = np.random.default_rng(0)  # as the check draws them
    x = (rng.integers(256, size=(1, 4), dtype=np.uint8) / 255).astype(np.float32)
    encoder = FeatureEncoder.load(runs / "one/model.npz")
    vectors, shares = encoder.transform(x), encoder.predict_proba(x)
    # The last is right for a batch of 1, and of 3 it has one row.
    wrong = {"values": shares + 1e-3, "nan": shares * np.nan, "none": shares}
    found = SimpleNamespace(SerializeToString=lambda: b"onnx")
    fake_converter(monkeypatch, lambda *_, **__: found, (vectors, wrong[fault]))
    assert export(runs / "one", "encoder.onnx") == 2
    name = "embeddings" if fault == "none" else "probabilities"
    message = f"cannot be written as ONNX: its {name} are not those of the encoder."
    assert message in error_line(capsys)
    assert not Path("encoder.onnx").exists()


FORWARD = weights.forward
REFUSED = {
    None: "one cannot be converted to ONNX: ",
    lambda model: lambda x: (x.reshape(24, -1),): "cannot be exported as StableHLO: ",
    lambda model: lambda x: [FORWARD(model)(x)[0] * 1.001]: "its embeddings are not th",
}


@pytest.mark.parametrize(("forward", "message"), REFUSED.items())
def test_a_network_that_cannot_be_exported_is_refused(
    runs, monkeypatch, capsys, forward, message
):
    if forward:
        monkeypatch.setattr(weights, "forward", forward)
    else:
        fake_converter(monkeypatch, fail)
    assert export(runs / "one", "x.stablehlo" if forward else "x.onnx") == 2
    line = error_line(capsys)
    assert message in line and ("No plugin for" in line or forward)
    assert [*Path().iterdir()] == []
