"""Runs of an encoder, by the command line: what they leave, what they answer."""

import json
import re
import shutil
import tarfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image

from embedder.cli import main
from embedder.config import Config, options_of, read_toml, with_options
from embedder.encoders.artefact import read_encoder
from embedder.encoders.estimator import FeatureEncoder
from embedder.encoders.problem import model_settings
from embedder.vectors.export import read_vectors
from tests.commands import error_line

NAMES = np.array(["red", "green", "blue"])
ENCODER = ["--model", "encoder", "--loader", "memory"]
FAST = [*ENCODER, "--epochs", "3", "--batch-size", "8", "--learning-rate", "0.1"]
MOMENTUM = ["--optimizer", "sgd", "--optimizer-args", "momentum=0.5"]
MOMENTUM += ["--validation-fraction", "0.2"]


def points() -> tuple[np.ndarray, np.ndarray]:
    """60 points around three corners, f32[60, 4], and the names of these."""
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=60)
    return (rng.normal(size=(60, 4)) + 2 * np.eye(4)[y]).astype(np.float32), NAMES[y]


X, Y = points()


def write_images(folder: Path) -> None:
    """Eight dark and eight bright images of 4 x 3."""
    rng = np.random.default_rng(0)
    for name, least in (("dark", 0), ("bright", 156)):
        (folder / name).mkdir(parents=True)
        for number in range(8):
            pixels = least + rng.integers(100, size=(4, 3, 3))
            image = Image.fromarray(pixels.astype(np.uint8))
            image.save(folder / name / f"{number}.png")


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """Every test works in a folder of its own, where points.npz lies."""
    monkeypatch.chdir(tmp_path)
    np.savez("points.npz", X=X, y=Y)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A finished run over points, which tests only read."""
    folder = tmp_path_factory.mktemp("points")
    np.savez(folder / "points.npz", X=X, y=Y)
    assert train(str(folder / "points.npz"), folder / "run", *MOMENTUM) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> Path:
    """A finished run over images, which tests only read."""
    folder = tmp_path_factory.mktemp("images")
    write_images(folder / "data")
    assert train(str(folder / "data"), folder / "run") == 0
    return folder / "run"


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> Path:
    """A finished run of tables."""
    folder = tmp_path_factory.mktemp("tables")
    (folder / "text.txt").write_text("a b c d\n" * 20)
    options = ["--loader", "memory", "--epochs", "0", "--vector-size", "4"]
    text, run = str(folder / "text.txt"), folder / "run"
    assert main(["train", text, "--workdir", str(run), *options]) == 0
    return run


def train(data: str, workdir, *options: str) -> int:
    return main(["train", data, "--workdir", str(workdir), *FAST, *options])


def results(run: Path) -> list[bytes]:
    """What training has made, to the bit."""
    names = ("model.npz", "labels.parquet", "vectors.safetensors")
    return [(run / name).read_bytes() for name in names]


def metrics(run: Path) -> list[dict]:
    return [json.loads(x) for x in (run / "metrics.jsonl").read_text().splitlines()]


# --- what a run leaves


def test_train_leaves_every_file_it_names(run):
    names = {path.name for path in run.iterdir() if path.is_file()}
    assert names == {
        *("config.toml", "corpus.json", "labels.parquet", "metrics.jsonl"),
        *("SHA256SUMS", "progress.jsonl", "scores.json"),
        *("model.npz", "report.html", "vectors.safetensors"),
    }
    options = options_of(read_toml(run / "config.toml"))
    assert options["layers"] == (4, 128, 3)
    assert options["optimizer_args"] == ("momentum=0.5",)
    assert "window" not in (run / "config.toml").read_text()


def test_train_writes_a_line_of_metrics_an_epoch(run):
    lines = metrics(run)
    assert [line["epoch"] for line in lines] == [1, 2, 3]
    assert [line["examples"] for line in lines] == [48, 96, 144]
    assert [line["learning_rate"] for line in lines] == [0.1] * 3
    for kind in ("train", "val"):
        assert all(line[f"{kind}_loss"] > 0 for line in lines)
        assert all(0 <= line[f"{kind}_accuracy"] <= 1 for line in lines)
    assert lines[-1]["train_loss"] < lines[0]["train_loss"]


def test_train_writes_what_examples_are_taken_for(run):
    frame = pl.read_parquet(run / "labels.parquet")
    assert frame.columns == [
        *("key", "label", "predicted", "probability", "trained"),
        *("log_likelihood", "entropy"),
    ]
    assert frame["key"].to_list() == [str(number) for number in range(60)]
    assert frame["label"].to_list() == Y.tolist()
    assert frame["trained"].to_list() == [True] * 48 + [False] * 12
    assert frame["probability"].is_between(1 / 3, 1).all()
    held = frame.filter(~pl.col("trained"))
    accuracy = (held["label"] == held["predicted"]).mean()
    assert accuracy == pytest.approx(metrics(run)[-1]["val_accuracy"])
    assert 0.5 < accuracy < 1


def test_train_leaves_a_model_that_feature_encoder_reads(run):
    encoder = FeatureEncoder.load(run / "model.npz")
    vectors = read_vectors(run / "vectors.safetensors")
    np.testing.assert_array_equal(encoder.transform(X), vectors.matrix, strict=True)
    frame = pl.read_parquet(run / "labels.parquet")
    assert encoder.predict(X).tolist() == frame["predicted"].to_list()
    best = encoder.predict_proba(X).max(axis=1)
    np.testing.assert_allclose(frame["probability"], best, rtol=1e-6)
    again = FeatureEncoder(**encoder.get_params()).fit(X, Y)
    np.testing.assert_array_equal(again.transform(X), vectors.matrix, strict=True)
    assert again.history_ == encoder.history_


def test_settings_that_name_no_layers_are_taken_by_feature_encoder():
    config = with_options(Config(), model="encoder")
    assert FeatureEncoder(**model_settings(config)).layers is None


@pytest.mark.spread(1)
@pytest.mark.parametrize("loader", ["memory", "tfdata"])
def test_train_repeats_itself_to_the_bit(run, loader):
    assert train("points.npz", "again", *MOMENTUM, "--loader", loader) == 0
    assert results(Path("again")) == results(run)


def test_train_takes_names_and_labels_of_parquet(capsys):
    columns = {f"x{i}": X[:, i] for i in range(4)}
    names = {"colour": Y, "name": [f"p{i}" for i in range(60)]}
    pl.DataFrame(columns | names).write_parquet("points.parquet")
    options = "--label", "colour", "--key", "name", "--layers", "4", "5", "3"
    assert main(["train", "points.parquet", *FAST, *options, "--epochs", "0"]) == 0
    frame = pl.read_parquet("embedder-points/labels.parquet")
    assert frame["key"].to_list() == names["name"]
    assert frame["label"].to_list() == Y.tolist()
    assert read_encoder(Path("embedder-points/model.npz")).history == []
    line = "embedder-points: done. 60 vectors of 5 numbers"
    assert capsys.readouterr().out.startswith(line)


@pytest.mark.slow
def test_train_names_images_by_their_files(images):
    vectors = read_vectors(images / "vectors.safetensors")
    assert sorted(vectors.keys)[:2] == ["bright/0.png", "bright/1.png"]
    frame = pl.read_parquet(images / "labels.parquet")
    assert [key.partition("/")[0] for key in frame["key"]] == frame["label"].to_list()
    model = read_encoder(images / "model.npz")
    assert (model.example_shape, model.example_dtype) == ((4, 3, 3), "uint8")
    assert metrics(images)[-1]["val_loss"] is None


def test_images_of_two_sizes_need_one_to_be_given(capsys):
    write_images(Path("data"))
    Image.new("RGB", (9, 7)).save("data/dark/8.png")
    assert train("data", "r") == 2
    assert "give --image-size HEIGHT WIDTH." in error_line(capsys)
    assert train("data", "r", "--image-size", "2", "2", "--epochs", "0") == 0
    assert read_encoder(Path("r/model.npz")).example_shape == (2, 2, 3)


def test_dry_run_prints_the_plan_and_writes_nothing(capsys):
    assert train("points.npz", "r", "--dry-run", "--validation-fraction", "0.2") == 0
    out = capsys.readouterr().out
    line = "examples: 60 of 3 classes, 48 to train on, in 6 updates an epoch"
    assert line in out.splitlines()
    assert "layers = [" in out and "memory: " in out
    assert [path.name for path in Path().iterdir()] == ["points.npz"]


# --- the same command again


def test_finished_run_is_said_to_be(run, capsys):
    before = (run / "vectors.safetensors").stat().st_mtime_ns
    assert train(str(run.parent / "points.npz"), run, *MOMENTUM) == 0
    assert "finished before: --overwrite starts anew." in capsys.readouterr().out
    assert main(["train", "--workdir", str(run)]) == 0
    assert "60 vectors of 128 numbers." in capsys.readouterr().out
    assert (run / "vectors.safetensors").stat().st_mtime_ns == before


def test_other_settings_are_refused_with_the_difference(run, capsys):
    data, layers = str(run.parent / "points.npz"), ("--layers", "4", "5", "3")
    assert train(data, run, *MOMENTUM, "--batch-size", "9", *layers) == 2
    line = error_line(capsys)
    assert "`batch_size` 8 there, 9 now" in line
    assert "`layers` (4, 128, 3) there, (4, 5, 3) now" in line


def test_other_examples_are_refused(run, capsys):
    np.savez("points.npz", X=-X, y=Y)
    assert train("points.npz", run, *MOMENTUM) == 2
    assert "other settings: another corpus. " in error_line(capsys)


@pytest.mark.spread(1)
@pytest.mark.parametrize("again", ["command", "workdir"])
def test_a_stopped_run_goes_on_to_the_same_bits(run, stopped, capsys, again):
    options = *MOMENTUM, "--save-every", "2"
    stopped("points.npz", "--workdir", "r", *FAST, *options)
    assert not Path("r/model.npz").exists()
    if again == "workdir":
        assert main(["train", "--workdir", "r"]) == 0
    else:
        assert train("points.npz", "r", *options) == 0
    assert "Resumes after 8 updates" in capsys.readouterr().err
    assert results(Path("r")) == results(run)
    assert [line["epoch"] for line in metrics(Path("r"))] == [1, 2, 3]


def test_a_stopped_run_refuses_other_labels(stopped, capsys):
    stopped("points.npz", "--workdir", "r", *FAST, *MOMENTUM, "--save-every", "2")
    np.savez("points.npz", X=X, y=Y[::-1])
    assert main(["train", "--workdir", "r"]) == 2
    assert "another corpus" in error_line(capsys)


# --- what is refused


@pytest.mark.spread(7)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--window", "3"], "`window` applies only to .* 'tokens', got 3 with 'encod"),
        (
            ["--vector-size", "7", "--layers", "4", "6", "3"],
            "`vector_size` of an mlp is its last hidden layer, 6 of `layers`, got 7.",
        ),
        (["--network", "vit"], r"`network` vit needs images .*, got examples \[4\]."),
        (["--network", "lenet"], "invalid choice 'lenet' for argument '--network'"),
        (["--layers", "5", "6", "2"], "from 4 features to 3 classes, got 5 6 2."),
        (["--layers", "4", "3"], r"`layers` must be three widths .* got \(4, 3\)."),
        (["--layers", "x"], "`--layers` must be numbers, got 'x'."),
        (
            ["--validation-fraction", "0.999"],
            "`validation_fraction` 0.999 of 60 examples leaves none to train on.",
        ),
        (["--optimizer", "adm"], "`optimizer` .* got 'adm', did you mean 'adam'?"),
        (["--optimizer-args", "momentm=1"], "of 'adam' must be of .* got 'momentm'."),
        (["--optimizer-args", "momentum"], "NAME=VALUE, .* got 'momentum'."),
        (["--label", "z"], "points.npz has no features and labels: .*'z'"),
        (["--image-size", "3"], r"`image_size` must be height and width, got \(3,\)."),
        (["--precision", "x"], "invalid choice 'x' for argument '--precision'"),
    ],
    ids=lambda value: value[0].strip("-") if isinstance(value, list) else "",
)
def test_wrong_options_are_one_line_and_leave_nothing(capsys, options, message):
    assert train("points.npz", "r", *options) == 2
    assert re.search(message, error_line(capsys))
    assert [path.name for path in Path().iterdir()] == ["points.npz"]


def test_options_of_an_encoder_are_refused_by_tables(capsys):
    assert main(["train", "points.npz", "--layers", "4", "5", "3"]) == 2
    assert re.search(
        "`layers` applies only to `model` = 'encoder', .*'tokens'", error_line(capsys)
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "DATA must be given for an encoder: an idx file of images .*, or an .npz"),
        (["none.npz"], "DATA none.npz does not exist."),
        (
            ["text.txt"],
            "DATA text.txt must be an idx file of images .* .npz file, or a folder",
        ),
        (["folder"], "DATA folder must be an idx file of images .* or its folder"),
        (["text.npz"], "text.npz has no features and labels: File is not a zip file."),
        (["text.parquet"], "text.parquet is not a parquet file: "),
    ],
    ids=lambda value: "_".join(value) if isinstance(value, list) else "",
)
def test_wrong_data_is_one_line_and_leaves_nothing(capsys, data, message):
    for name in ("text.txt", "text.npz", "text.parquet"):
        Path(name).write_text("text")
    Path("folder").mkdir()
    before = sorted(Path().iterdir())
    assert main(["train", *data, *FAST, "--workdir", "r"]) == 2
    assert re.search(message, error_line(capsys))
    assert sorted(Path().iterdir()) == before


# --- vectors of examples


def test_neighbors_prints_labels(run, capsys):
    assert main(["neighbors", str(run), "0", "1", "--topn", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [lines[0], lines[3]] == [f"0 ({Y[0]})", f"1 ({Y[1]})"]
    ((key, cosine), _) = read_vectors(run / "vectors.safetensors").most_similar(
        "0", topn=2
    )
    assert lines[1] == f"  {cosine:6.3f}  {key} ({Y[int(key)]})"


def test_other_verbs_take_the_vectors_of_examples(run, images, capsys):
    assert main(["neighbors", str(run / "vectors.safetensors"), "0"]) == 0
    assert capsys.readouterr().out.startswith("0\n")  # a file has no labels
    assert main(["analogy", str(run), "0", "1", "2", "--topn", "1"]) == 0
    line = capsys.readouterr().out.splitlines()[0]
    assert re.fullmatch(r"0 \(\w+\) : 1 \(\w+\) = 2 \(\w+\) : \?", line)
    Path("pairs.tsv").write_text("0\t1\t3\n2\t3\t4\n0\tcat\t5\n")
    assert main(["evaluate", str(run), "--pairs", "pairs.tsv"]) == 0
    assert "2 of 3 pairs (1 out of vocabulary)" in capsys.readouterr().out
    assert main(["export", str(images), "--to", "out.txt"]) == 0
    assert capsys.readouterr().out == "16 vectors in out.txt\n"
    desired = read_vectors(images / "vectors.safetensors")
    actual = read_vectors("out.txt")
    assert actual.keys == desired.keys
    np.testing.assert_array_equal(actual.matrix, desired.matrix)


def test_convert_refuses_an_encoder(run, capsys):
    assert main(["convert", str(run), "out.npz"]) == 2
    assert "model.npz is not a whole model file: its format is" in error_line(capsys)


def test_embed_prints_class_probability_and_nearest(run, capsys):
    np.save("two.npy", X[:2])
    np.save("one.npy", X[2])
    assert main(["embed", str(run), "two.npy", "one.npy", "--topn", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    frame = pl.read_parquet(run / "labels.parquet")
    titles = [
        f"{name}: {predicted} ({probability:.3f})"
        for name, predicted, probability in zip(
            ("two.npy:0", "two.npy:1", "one.npy"),
            frame["predicted"],
            frame["probability"],
            strict=False,
        )
    ]
    assert lines[::3] == titles
    assert lines[1::3] == [f"   1.000  {i} ({Y[i]})" for i in range(3)]


def test_embed_writes_classes_to_parquet(run, capsys):
    """And to formats without columns the vectors alone."""
    np.save("two.npy", X[:2])
    assert main(["embed", str(run), "two.npy", "--to", "two.parquet"]) == 0
    assert main(["embed", str(run), "two.npy", "--to", "two.npz"]) == 0
    capsys.readouterr()
    assert main(["embed", str(run), "two.npy", "--topn", "1"]) == 0
    printed = [
        line for line in capsys.readouterr().out.splitlines() if line[:4] == "two."
    ]
    table = pl.read_parquet("two.parquet")
    assert {"key", "vector", "class", "probability"} <= {*table.columns}
    for line, row in zip(printed, table.iter_rows(named=True), strict=True):
        found = f"{row['key']}: {row['class']} ({row['probability']:.3f})"
        assert line.startswith(found)
    found = read_vectors("two.npz").matrix
    np.testing.assert_array_equal(
        found, np.array(table["vector"].to_list(), found.dtype)
    )


@pytest.mark.parametrize("name", ["two.xyz", "two"])
def test_embed_names_the_endings_before_it_reads(run, capsys, name):
    assert main(["embed", str(run), "no.npy", "--to", name]) == 2
    message = error_line(capsys)
    assert message.startswith("embedder: `to` must end in .txt, .vec, ")
    assert message.endswith(f"or .sql, got {name!r}.")


def test_embed_scales_images_to_those_of_the_run(images, capsys):
    Image.new("L", (90, 70), 250).save("new.png")
    assert main(["embed", str(images), "new.png", "--topn", "8"]) == 0
    title, *nearest = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"new.png: bright \(\d\.\d{3}\)", title)
    assert all("  bright/" in line and "(bright)" in line for line in nearest)


def test_embed_takes_the_file_of_a_model(run, capsys):
    np.save("one.npy", X[2])
    assert main(["embed", str(run / "model.npz"), "one.npy"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_embed_of_the_folder_of_training_gives_its_vectors(images, capsys):
    assert (
        main(["embed", str(images), str(images.parent / "data"), "--to", "v.txt"]) == 0
    )
    assert capsys.readouterr().out == "16 vectors in v.txt\n"
    known, found = read_vectors(images / "vectors.safetensors"), read_vectors("v.txt")
    assert found.keys == known.keys
    np.testing.assert_allclose(found.matrix, known.matrix, rtol=1e-5, atol=1e-6)


def test_embed_takes_what_training_takes_without_labels(images, capsys):
    """A flat folder in another size, an npz, a Parquet and a tar of one grey image."""
    Path("flat").mkdir()
    Image.new("L", (9, 8), 250).save("flat/new.png")
    data = Path("flat/new.png").read_bytes()
    np.savez("new.npz", x_test=np.full((1, 4, 3, 3), 250, np.uint8))
    pl.DataFrame({"image": [data]}).write_parquet("new.parquet")
    with tarfile.open("new.tar", "w") as archive:
        archive.add("flat/new.png", "new.png")
    sources = ["flat", "new.npz", "new.parquet", "new.tar", "flat/new.png"]
    assert main(["embed", str(images), *sources, "--to", "v.txt"]) == 0
    found = read_vectors("v.txt")
    keys = ["flat:new.png", "new.npz:0", "new.parquet:0", "new.tar:new"]
    assert found.keys == [*keys, "flat/new.png"]
    np.testing.assert_array_equal(found.matrix, found.matrix[:1].repeat(5, 0))
    assert main(["embed", str(images), "flat"]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("new.png: bright (")


@pytest.mark.slow
def test_an_encoder_of_grey_images_takes_grey_and_coloured_ones(capsys):
    write_images(Path("data"))
    for path in Path("data").rglob("*.png"):
        Image.open(path).convert("L").save(path)
    assert train("data", "grey", "--layers", "12", "5", "2") == 0
    assert read_encoder(Path("grey/model.npz")).example_shape == (4, 3)
    Image.new("RGB", (3, 4), (250, 250, 250)).save("new.png")
    np.save("new.npy", np.full((1, 4, 3, 1), 250, np.uint8))
    assert main(["embed", "grey", "new.png", "new.npy", "--to", "v.txt"]) == 0
    first, second = read_vectors("v.txt").matrix
    np.testing.assert_array_equal(first, second)


def test_embed_tells_pixels_that_are_not_scaled(caplog):
    x = np.random.default_rng(0).random((20, 4, 3)).astype("f4")
    np.savez("data.npz", X=x, y=np.arange(20) % 2)
    assert train("data.npz", "floats") == 0
    caplog.clear()
    np.save("new.npy", np.full((1, 4, 3), 255.0))
    assert main(["embed", "floats", "new.npy"]) == 0
    (line,) = caplog.messages
    assert line.startswith("new.npy: features are whole numbers from 0 to 255, and are")


def test_embed_writes_vectors(run, capsys):
    np.save("two.npy", X[:2].astype(np.float64))
    assert main(["embed", str(run), "two.npy", "--to", "out.safetensors"]) == 0
    assert capsys.readouterr().out == "2 vectors in out.safetensors\n"
    vectors, known = (
        read_vectors(p) for p in ("out.safetensors", run / "vectors.safetensors")
    )
    assert vectors.keys == ["two.npy:0", "two.npy:1"]
    np.testing.assert_array_equal(vectors.matrix, known.matrix[:2], strict=True)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (X[:, :3], r"FILE x.npy must be float32 of \[n, 4\], got float32\[60, 3\]."),
        (np.float32(3), r"FILE x.npy must be float32 of \[n, 4\], got float32\[\]."),
        (X.astype("U5"), r"FILE x.npy must be float32 of \[n, 4\], got <U5\[60, 4\]."),
        (np.zeros((2, 4), "u1"), "FILE x.npy must be of float32, .* got uint8."),
        (X[:0], r"FILE x.npy has no examples: it is \[0, 4\]."),
        (X * np.nan, "FILE x.npy has features that are not finite."),
    ],
    ids=["shape", "number", "text", "pixels", "none", "nan"],
)
def test_embed_refuses_other_features(run, capsys, array, message):
    np.save("x.npy", array)
    assert main(["embed", str(run), "x.npy"]) == 2
    assert re.search(message, error_line(capsys))


@pytest.mark.spread(8)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["RUN"], "FILE: give at least one image, .npy file or folder."),
        (["RUN", "none.npy"], "FILE none.npy does not exist."),
        (
            ["RUN", "a.csv"],
            r"FILE a.csv must be an image \(.png, .*, .npy of features,",
        ),
        (["IMAGES", "points.npz"], r"points.npz must be uint8 of \[n, 4, 3, 3\], got"),
        (
            ["IMAGES", "z.npy"],
            "z.npy must be of uint8 of 0 to 255, .* float32 of 0 to 1",
        ),
        (["RUN", "text.npy"], "FILE text.npy is not a whole .npy file: .*[^.]\\.$"),
        (["RUN", "empty.npy"], "FILE empty.npy is not a whole .npy file: "),
        (["RUN", "objects.npy"], "FILE objects.npy is not a whole .npy.*[^.]\\.$"),
        (
            ["RUN", "i.png"],
            r"i.png is an image, .* trained on float32 \[4\]: give .npy",
        ),
        (["RUN", "x.npy", "--topn", "0"], "`topn` must be an integer >= 1, got 0."),
        (["RUN", "x.npy", "--to", "x.foo"], "must end in .txt, .vec"),
        (["RUN", "x.npy", "--to", "none/x.txt"], "none does not exist."),
        (["RUN", "x.npy", "x.npy"], "must be unique, got 'x.npy:0' at rows 0 and 60."),
        (["IMAGES", "x.npy"], r"must be uint8 of \[n, 4, 3, 3\], got float32\[60, 4\]"),
        (["IMAGES", "text.png"], "text.png is not a whole image: "),
        (["none", "x.npy"], "RUN none does not exist."),
        ([".", "x.npy"], "Model file model.npz does not exist."),
        (["points.npz", "x.npy"], "points.npz is not a whole encoder file: "),
        (["TABLES", "x.npy"], "model.npz is not a whole encoder file: its format is"),
    ],
    ids=lambda value: "_".join(value).replace("/", "") if type(value) is list else "",
)
def test_embed_refuses_in_one_line(run, images, tables, capsys, arguments, message):
    np.save("x.npy", X)
    np.save("objects.npy", np.array([{}]), allow_pickle=True)
    for name, text in (("text.npy", "text"), ("text.png", "text"), ("empty.npy", "")):
        Path(name).write_text(text)
    Image.new("L", (3, 4)).save("i.png")
    Path("a.csv").touch()
    np.save("z.npy", np.array([[0.0, 1]], "f4").repeat(18, 0).reshape(1, 4, 3, 3))
    runs = {"RUN": str(run), "IMAGES": str(images), "TABLES": str(tables)}
    assert main(["embed", *(runs.get(x, x) for x in arguments)]) == 2
    assert re.search(message, error_line(capsys))


def test_damaged_labels_are_one_line(run, capsys):
    np.save("x.npy", X[:1])
    shutil.copytree(run, "copy")
    Path("copy/labels.parquet").write_text("text")
    message = "labels.parquet is not a whole file of labels: "
    assert main(["embed", "copy", "x.npy"]) == 2
    assert message in error_line(capsys)
    pl.DataFrame({"key": ["0"]}).write_parquet("copy/labels.parquet")
    assert main(["neighbors", "copy", "0"]) == 2
    assert message in error_line(capsys)


def test_damaged_model_is_one_line(run, capsys):
    np.save("x.npy", X[:1])
    shutil.copytree(run, "copy")
    Path("copy/model.npz").write_bytes((run / "model.npz").read_bytes()[:-9])
    assert main(["embed", "copy", "x.npy"]) == 2
    assert "model.npz is not a whole encoder file: " in error_line(capsys)
