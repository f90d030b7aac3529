"""The vectors for TensorBoard's projector, read back as it reads them."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from embedder.report import projector_files
from embedder.report.projector_files import metadata, sprite
from embedder.vectors.export import read_vectors
from tests.report.conftest import WORDS


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


@pytest.mark.row("B71", "B72")
def test_a_run_of_images_has_thumbnails_and_predictions(runs):
    folder = runs / "images/tensorboard"
    tensor, (names, *rows) = read(folder)
    vectors = read_vectors(runs / "images/vectors.safetensors")
    np.testing.assert_array_equal(tensor, vectors.matrix)
    assert names == ["key", "label", "predicted", "held_out"]
    assert [row[3] for row in rows].count("1") == 30
    assert {row[1] for row in rows} == {"<b>\\tbright", "dark"}
    found = config(folder)
    assert found["single_image_dim"] == ["4", "4"]
    sheet = np.asarray(Image.open(folder / found["image_path"][0]))
    assert sheet.shape == (32, 32, 3)  # 8 x 8 tiles for 60 images
    for number in (0, 17, 59):
        path = runs / "photos" / rows[number][0].replace("\\t", "\t")
        top, left = 4 * (number // 8), 4 * (number % 8)
        tile = sheet[top : top + 4, left : left + 3]
        np.testing.assert_array_equal(tile, np.asarray(Image.open(path)))


@pytest.mark.row("B72")
def test_images_that_are_gone_or_large_are_left_out(runs, tmp_path, caplog):
    run = shutil.copytree(runs / "images", tmp_path / "run")
    vectors = read_vectors(run / "vectors.safetensors")
    projector_files.write(run, vectors, image_bytes=10)
    assert "image_path" not in config(run / "tensorboard")
    assert not (run / "tensorboard/projector_sprite.png").exists()
    corpus = run / "corpus.json"
    corpus.write_text(corpus.read_text().replace("photos", "gone"))
    projector_files.write(run, vectors)
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
    assert projector_files.num_points(10**6, 100) == 20_000
    assert projector_files.num_points(10**6, 100, has_images=True) == 5_000
    assert projector_files.num_points(10**6, 1_000) == 8_388
    assert projector_files.num_points(7, 100) == 7
    images = np.zeros((5_000, 32, 32, 3), np.uint8)
    assert max(sprite(images)[0].size) <= 8_192  # what TensorBoard reads
