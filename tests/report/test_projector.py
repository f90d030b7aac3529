"""The vectors for TensorBoard's projector, read back as it reads them."""

import re
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from embedder.cli import main
from embedder.report import of_projector, projector
from embedder.report.projector import Points, metadata, sprite, write_projector
from embedder.run.verify import verify
from embedder.vectors.export import read_vectors
from tests.commands import run_python

FAST = ["--loader", "memory", "--vector-size", "6", "--min-count", "1", "--sample", "0"]
HOSTILE = ["<script>", "a\u202eb", "\x1b[31mred", "é", "x" * 500, '"', "\\", "a\u2028b"]
WORDS = [*HOSTILE, *(f"w{n}" for n in range(60))]
FILES = ("projector_tensors.bytes", "projector_metadata.tsv")


def config(folder: Path) -> dict[str, list[str]]:
    """The fields of projector_config.pbtxt, in the order they stand there."""
    text = (folder / "projector_config.pbtxt").read_text()
    assert text.count("{") == text.count("}")
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"(\w+): (.+)", text):
        found.setdefault(name, []).append(value.strip('"'))
    return found


def read(folder: Path) -> tuple[np.ndarray, list[list[str]]]:
    """The tensor and the rows of texts that the config names."""
    found = config(folder)
    shape = [int(x) for x in found["tensor_shape"]]
    tensor = np.fromfile(folder / found["tensor_path"][0], "<f4").reshape(shape)
    text = (folder / found["metadata_path"][0]).read_text(encoding="utf-8")
    return tensor, [line.split("\t") for line in text.split("\n")[:-1]]


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """Finished runs of tokens and of images; tests only read them."""
    folder, rng = tmp_path_factory.mktemp("runs"), np.random.default_rng(0)
    counts = np.arange(1, len(WORDS) + 1)
    text = np.repeat(WORDS, counts)
    rng.shuffle(text)
    (folder / "text.txt").write_text("\n".join(map(" ".join, text.reshape(-1, 2))))
    for number in range(60):
        path = folder / "photos" / ("<b>\tdark" if number % 2 else "bright")
        path.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 256, (4, 3, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(path / f"{number}.png")
    encoder = ["--model", "encoder", "--loader", "memory", "--network", "mlp"]
    commands = {
        "tokens": [str(folder / "text.txt"), *FAST, "--epochs", "2"],
        "images": [str(folder / "photos"), *encoder, "--epochs", "1"],
    }
    for name, command in commands.items():
        assert main(["train", *command, "--workdir", str(folder / name)]) == 0
    return folder


@pytest.fixture
def run(runs, tmp_path) -> Path:
    """A copy of the run of tokens, which a test may change."""
    return shutil.copytree(runs / "tokens", tmp_path / "run")


@pytest.mark.slow
@pytest.mark.row("B71")
def test_a_run_ends_with_the_vectors_of_its_tokens(runs):
    tensor, (names, *rows) = read(runs / "tokens/tensorboard")
    vectors = read_vectors(runs / "tokens/vectors.safetensors")
    np.testing.assert_array_equal(tensor, vectors.matrix)
    assert names == ["token", "count"]
    assert [int(count) for _, count in rows] == vectors.counts.tolist()
    tokens = [token for token, _ in rows]
    assert len(rows) == len(WORDS) and all(map(str.isprintable, tokens))
    assert {"<script>", "a\\u202eb", "\\x1b[31mred", f"{'x' * 79}…"} < {*tokens}


def test_the_report_adds_names_and_labels(run, tmp_path):
    table = tmp_path / "names.csv"
    table.write_text("token,title,kind\n<script>,<i>Fox,animal\n")
    options = ["--names", str(table), "--label", "kind"]
    assert main(["report", str(run), *options]) == 0
    _, (names, *rows) = read(run / "tensorboard")
    assert names == ["token", "count", "name", "kind"]
    texts = {token: (name, kind) for token, _, name, kind in rows}
    assert texts["<script>"] == ("<i>Fox", "animal")
    assert {*texts.values()} == {("<i>Fox", "animal"), (" ", " ")}


def test_labels_do_not_take_the_column_of_counts(run, tmp_path):
    table = tmp_path / "names.csv"
    table.write_text(f"key,count\n{WORDS[-1]},many\n")
    command = ["report", str(run), "--names", str(table), "--label", "count"]
    assert main(command) == 0
    _, (names, row, *_) = read(run / "tensorboard")
    assert names == ["token", "count", "name", "count (label)"]
    assert [int(row[1]), row[3]] == [len(WORDS), "many"]


@pytest.mark.row("B71", "B72")
def test_a_run_of_images_has_thumbnails_and_predictions(runs):
    folder = runs / "images/tensorboard"
    tensor, (names, *rows) = read(folder)
    vectors = read_vectors(runs / "images/vectors.safetensors")
    np.testing.assert_array_equal(tensor, vectors.matrix)
    assert names == ["key", "label", "predicted", "held_out"]
    assert {row[3] for row in rows} == {"0"}
    assert {row[1] for row in rows} == {"<b>\\tdark", "bright"}
    found = config(folder)
    assert found["single_image_dim"] == ["4", "4"]
    sheet = np.asarray(Image.open(folder / found["image_path"][0]))
    assert sheet.shape == (32, 32, 3)  # 8 x 8 tiles for 60 images
    for number in (0, 17, 59):
        pixels = np.asarray(
            Image.open(runs / "photos" / rows[number][0].replace("\\t", "\t"))
        )
        top, left = 4 * (number // 8), 4 * (number % 8)
        np.testing.assert_array_equal(sheet[top : top + 4, left : left + 3], pixels)


@pytest.mark.row("B72")
def test_images_that_are_gone_or_large_are_left_out(runs, tmp_path, caplog):
    run = shutil.copytree(runs / "images", tmp_path / "run")
    vectors = read_vectors(run / "vectors.safetensors")
    of_projector.write(run, vectors, image_bytes=10)
    assert "image_path" not in config(run / "tensorboard")
    assert not (run / "tensorboard/projector_sprite.png").exists()
    corpus = run / "corpus.json"
    corpus.write_text(corpus.read_text().replace("photos", "gone"))
    of_projector.write(run, vectors)
    assert "image_path" not in config(run / "tensorboard")
    assert len(read(run / "tensorboard")[0]) == 60


lines = st.text(st.characters(), max_size=100)


@pytest.mark.row("B71")
@given(st.lists(st.tuples(lines, lines), min_size=1, max_size=20))
def test_any_texts_are_a_table(texts):
    keys, labels = zip(*texts, strict=True)
    text = metadata({"key": keys, "label": labels})
    rows = [line.split("\t") for line in text.split("\n")]
    assert rows.pop() == [""] and rows[0] == ["key", "label"]
    assert len(rows) == len(texts) + 1 and {len(row) for row in rows} == {2}
    assert len(text.splitlines()) == len(rows)
    assert metadata({"key": keys}).count("\n") == len(keys)  # without names


@given(
    st.integers(1, 30), st.integers(1, 50), st.integers(1, 50), st.integers(0, 2**16)
)
def test_a_sprite_is_square_and_has_each_image(num, height, width, seed):
    rng = np.random.default_rng(seed)
    images = rng.integers(1, 256, (num, height, width, 3)).astype(np.uint8)
    sheet, edge = sprite(images)
    across = int(np.ceil(np.sqrt(num)))
    assert sheet.size == (across * edge,) * 2 and edge == min(32, max(height, width))
    pixels = np.asarray(sheet)
    tiles = pixels.reshape(across, edge, across, edge, -1).swapaxes(1, 2)
    sums = tiles.reshape(across**2, -1).astype(int).sum(axis=1)
    assert (sums[:num] > 0).all() and not sums[num:].any()


def test_sizes_are_bounded():
    assert projector.num_points(10**6, 100) == 20_000
    assert projector.num_points(10**6, 100, has_images=True) == 5_000
    assert projector.num_points(10**6, 1_000) == 8_388
    assert projector.num_points(7, 100) == 7
    images = np.zeros((5_000, 32, 32, 3), np.uint8)
    assert max(sprite(images)[0].size) <= 8_192  # what TensorBoard reads


@pytest.mark.slow
def test_no_report_trains_without_and_report_writes_them(runs, tmp_path):
    path = str(tmp_path / "run")
    text = str(runs / "text.txt")
    assert main(["train", text, *FAST, "--no-report", "--workdir", path]) == 0
    folder = tmp_path / "run/tensorboard"
    assert not [*folder.glob("*projector*")]
    assert main(["report", path, "--to", str(tmp_path / "page.html")]) == 0
    assert not [*folder.glob("*projector*")]
    assert main(["report", path]) == 0
    assert len(read(folder)[0]) == len(WORDS)


def test_a_longer_run_has_its_own_vectors(run):
    before = read(run / "tensorboard")[0]
    assert main(["train", "--workdir", str(run), "--epochs", "3"]) == 0
    after = read(run / "tensorboard")[0]
    matrix = read_vectors(run / "vectors.safetensors").matrix
    np.testing.assert_array_equal(after, matrix)
    assert (after != before).any()
    assert [str(x) for x in verify(run) if x.fault] == []


def test_a_finished_run_that_lost_its_vectors_stays_whole(run):
    """It resumes, and the files of before have no checksum."""
    (run / "vectors.safetensors").unlink()
    assert main(["train", "--workdir", str(run)]) == 0
    assert [str(x) for x in verify(run) if x.fault] == []
    assert len(read(run / "tensorboard")[0]) == len(WORDS)


def test_a_mirror_has_them(runs, tmp_path):
    text, mirror = str(runs / "text.txt"), tmp_path / "mirror"
    command = ["train", text, *FAST, "--mirror", str(mirror)]
    assert main([*command, "--workdir", str(tmp_path / "run")]) == 0
    for name in (*FILES, "projector_config.pbtxt"):
        own = tmp_path / "run/tensorboard" / name
        assert (mirror / "tensorboard" / name).read_bytes() == own.read_bytes()


@pytest.mark.row("F57")
def test_files_that_cannot_be_written_are_a_warning(
    runs, tmp_path, monkeypatch, capsys
):
    def fail(folder, points):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(of_projector, "write_projector", fail)
    path = str(tmp_path / "run")
    assert main(["train", str(runs / "text.txt"), *FAST, "--workdir", path]) == 0
    said = capsys.readouterr().err
    assert "The vectors for TensorBoard are not written: " in said
    assert "No space left on device. The run is finished; `embedder report" in said


KILLED = """
import os, sys
from pathlib import Path
from embedder.disk import files
sync, count = files.sync, 0
def killed(path):
    global count
    count += "projector_" in path.name
    if count == int(sys.argv[1]):
        os.kill(os.getpid(), 9)
    sync(path)
files.sync = killed
from embedder.cli import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.slow
@pytest.mark.row("F57")
@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_kill_meanwhile_leaves_a_finished_run(runs, tmp_path, at):
    """And a config that names what is there, or none."""
    path = tmp_path / "run"
    command = ["train", str(runs / "text.txt"), *FAST, "--workdir", str(path)]
    done = run_python("-c", KILLED, at, *command)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not (path / "tensorboard/projector_config.pbtxt").exists()
    assert [str(x) for x in verify(path) if x.fault] == []
    assert main(command) == 0  # it was finished before
    assert main(["report", str(path)]) == 0
    assert len(read(path / "tensorboard")[0]) == len(WORDS)
    assert not [*(path / "tensorboard").glob(".*")]


def test_writing_again_replaces_what_was_there(tmp_path):
    images = np.full((2, 5, 5, 3), 9, np.uint8)
    texts = {"key": ["a", "b"]}
    write_projector(tmp_path, Points(np.ones((2, 3)), texts, images))
    write_projector(tmp_path, Points(np.zeros((2, 4), np.float64), texts))
    tensor, rows = read(tmp_path)
    assert tensor.shape == (2, 4) and rows == [["a"], ["b"]]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [*FILES, "projector_config.pbtxt"]
    )
