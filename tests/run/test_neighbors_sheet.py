"""`embedder neighbors` of encoders: images as queries, and sheets of images."""

import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image, ImageDraw, ImageFont

from embedder.cli.main import main
from embedder.encoders import sheet
from embedder.encoders.sheet import Cell, write_sheet
from embedder.errors import InputError
from tests.commands import error_line, record_stages, train_runs

RNG = np.random.default_rng(0)
LABELS = np.arange(40) % 2
GREYS = np.sort(RNG.choice(256, 40, replace=False)).astype(np.uint8)
PIXELS = np.broadcast_to(GREYS[:, None, None, None], (40, 4, 6, 3)).copy()
PIXELS[..., 0] = RNG.integers(256, size=(40, 4, 6))  # red differs, so that vectors do
FAST = "--model encoder --loader memory --epochs 1 --network mlp --batch-size 8"
FAST = [*FAST.split(), "--optimizer", "sgd", "--learning-rate", "0.1", "--no-report"]
WIDTH, HEIGHT, GAP = sheet._WIDTH, sheet._HEIGHT, sheet._GAP


def save_png(name: str | Path, pixels: np.ndarray) -> str:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(name, format="PNG")
    return str(name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Data, and a run of each: images, several (replicas), scaled."""
    folder = tmp_path_factory.mktemp("sheets")
    np.savez(folder / "images.npz", X=PIXELS, y=LABELS)
    np.savez(folder / "scaled.npz", X=PIXELS[..., 0] / 255 - 0.5, y=LABELS)
    images, scaled = (f"{name}.npz {' '.join(FAST)}" for name in ("images", "scaled"))
    several = f"{images} --replicas 2"
    train_runs(folder, images=images, several=several, scaled=scaled)
    return folder


def neighbors(*arguments) -> int:
    return main(["neighbors", *map(str, arguments)])


def listed(capsys, *arguments) -> list[dict]:
    """The lines of JSON of a call."""
    capsys.readouterr()
    assert neighbors(*arguments, "--json") == 0
    return [*map(json.loads, capsys.readouterr().out.splitlines())]


def middle(picture: np.ndarray, row: int, column: int) -> np.ndarray:
    """The pixels [4, 6, 3] that the cell of a sheet shows, by whole factors."""
    factor = sheet._IMAGE // 6
    left = column * WIDTH + (GAP if column else 0) + (WIDTH - 6 * factor) // 2
    top = row * HEIGHT + sheet._PAD + (sheet._IMAGE - 4 * factor) // 2
    return picture[
        top + factor // 2 : top + 4 * factor : factor,
        left + factor // 2 : left + 6 * factor : factor,
    ]


def read(path: str) -> np.ndarray:
    with Image.open(path) as file:
        return np.asarray(file)


# --- images as queries


@pytest.mark.slow
def test_an_image_finds_the_example_that_it_is(runs, capsys):
    run = "several"
    save_png("seven.png", PIXELS[7])
    image, example = listed(capsys, runs / run, "seven.png", "7", "--topn", "5")
    assert image["query"] == [{"key": "seven.png", "label": None}]
    assert image["found"][0]["key"] == "7"
    assert image["found"][0]["similarity"] == pytest.approx(1, abs=1e-6)
    found, known = ([x["key"] for x in each["found"]] for each in (image, example))
    assert found[1:] == known[:4]
    assert main(["embed", str(runs / run), "seven.png", "--topn", "5"]) == 0
    first, *near = capsys.readouterr().out.splitlines()
    assert first.startswith(f"seven.png: {image['predicted']} ")
    assert f"({image['probability']:.3f}" in first
    assert neighbors(runs / run, "seven.png", "--topn", "5") == 0
    assert capsys.readouterr().out.splitlines()[1:] == near


@pytest.mark.slow
def test_a_key_that_is_also_a_file_is_the_example(runs, capsys):
    for number, label in enumerate(LABELS):
        save_png(f"photos/{label}/{number}.png", PIXELS[number])
    assert main(["train", "photos", *FAST, "--workdir", "run"]) == 0
    save_png("0/2.png", PIXELS[31])  # 0/2.png is a key, too
    (found,) = listed(capsys, "run", "0/2.png", "--topn", "39")
    assert found["query"] == [{"key": "0/2.png", "label": "0"}]
    assert "0/2.png" not in [each["key"] for each in found["found"]]
    (found,) = listed(capsys, "run", "photos/0/2.png", "--topn", "1")
    assert found["found"][0]["key"] == "0/2.png"


def test_conditions_hold_for_images(runs, capsys):
    save_png("seven.png", PIXELS[7])
    names = [str(i) for i in range(40)]
    pl.DataFrame({"key": names, "name": names, "odd": LABELS}).write_csv("names.csv")
    where = ["--names", "names.csv", "--where", "odd=0"]
    (found,) = listed(capsys, runs / "images", "seven.png", *where)
    assert len(found["found"]) == 10
    assert {int(each["key"]) % 2 for each in found["found"]} == {0}


# --- sheets


@pytest.fixture
def texts(monkeypatch) -> list[str]:
    """What is written on sheets."""
    found: list[str] = []
    draw = ImageDraw.ImageDraw.text

    def spy(self, place, text, *arguments, **options):
        found.append(text)
        return draw(self, place, text, *arguments, **options)

    monkeypatch.setattr(ImageDraw.ImageDraw, "text", spy)
    return found


def test_a_sheet_has_a_row_for_each_query(runs, capsys, texts, monkeypatch):
    """Images, with key, label and similarity under each."""
    save_png("seven.png", PIXELS[7])
    words = ["12", "seven.png"]
    found = listed(capsys, runs / "images", *words, "--topn", "3")
    seen = record_stages(monkeypatch)
    to = ["--topn", "3", "--to", "sheet.png"]
    assert neighbors(runs / "images", *words, *to) == 0
    assert seen[0] == "neighbours" and "the images of sheet.png" in seen
    assert capsys.readouterr().out == "8 images in sheet.png\n"
    picture, expected = read("sheet.png"), []
    assert picture.shape == (2 * HEIGHT, 4 * WIDTH + GAP, 3)
    for row, (query, each) in enumerate(zip((12, 7), found, strict=True)):
        label = f"predicted: {each['predicted']}" if row else "0"
        expected += [words[row], label, "query"]
        for near in each["found"]:
            expected += [near["key"], near["label"], f"{near['similarity']:.3f}"]
        shown = [query, *(int(near["key"]) for near in each["found"])]
        for column, number in enumerate(shown):
            np.testing.assert_array_equal(middle(picture, row, column), PIXELS[number])
    assert texts == expected
    assert {*map(str, Path().iterdir())} == {"seven.png", "sheet.png"}
    again = Path("sheet.png").read_bytes()
    assert neighbors(runs / "images", *words, *to) == 0
    assert Path("sheet.png").read_bytes() == again


def test_frames_tell_the_class_of_the_query(runs, capsys, texts):
    """Also where names are shown in place of labels."""
    (found,) = listed(capsys, runs / "images", "12")
    assert neighbors(runs / "images", "12", "--to", "s.png") == 0
    save_png("twelve.png", PIXELS[12])
    assert neighbors(runs / "images", "twelve.png", "--to", "t.png") == 0
    colours = {True: (59, 111, 182), False: (217, 131, 36)}
    seen = set()
    for name in ("s.png", "t.png"):
        picture = read(name)
        for column, near in enumerate(found["found"], 1):
            left = column * WIDTH + GAP + (WIDTH - 96) // 2 - 2
            frame = tuple(picture[sheet._PAD + 48, left].tolist())
            is_same = near["label"] == "0"
            if name == "s.png":
                assert frame == colours[is_same]
                seen.add(is_same)
            else:  # the class of a new image is not known
                assert frame not in colours.values()
    assert seen == {True, False}
    texts.clear()
    keys, names = [*map(str, range(40))], [f"name {i}" for i in range(40)]
    pl.DataFrame({"key": keys, "name": names}).write_csv("names.csv")
    to = ["--names", "names.csv", "--to", "s.png", "--topn", "39"]
    assert neighbors(runs / "images", "12", *to) == 0
    assert {*names} <= {*texts}
    assert (read("s.png") == colours[True]).all(axis=2).any()


def test_arrays_of_numbers_are_scaled(runs, capsys):
    (found,) = listed(capsys, runs / "scaled", "12", "--topn", "39")
    assert neighbors(runs / "scaled", "12", "--topn", "39", "--to", "s.png") == 0
    picture = read("s.png")
    values = PIXELS[..., 0].astype(float)
    scaled = np.rint((values - values.min()) / np.ptp(values) * 255)
    for column, number in enumerate([12, *(int(x["key"]) for x in found["found"])]):
        shown = middle(picture, 0, column)
        np.testing.assert_allclose(shown, scaled[number][..., None].repeat(3, 2))


@pytest.mark.parametrize("shape", [(1, 300), (300, 1), (1, 1), (97, 96), (500, 700)])
def test_images_of_any_shape_fit(tmp_path, shape):
    cell = Cell(np.full((*shape, 3), 9, np.uint8), "key", ("label", "1.000"), True)
    write_sheet([[cell, cell], [cell]], tmp_path / "s.png")
    picture = read(str(tmp_path / "s.png"))
    assert picture.shape == (2 * HEIGHT, 2 * WIDTH + GAP, 3)
    image = (picture[:HEIGHT, :WIDTH] == 9).all(axis=2)
    assert image.any() and image.any(axis=0).sum() <= 96 >= image.any(axis=1).sum()


# --- bad inputs


@pytest.mark.row("B50")
def test_hostile_keys_stay_text(runs, texts):
    """Newlines, control characters, marks of direction, long names, other scripts."""
    names = [
        "a\nb",
        "\x1b[2J",
        "\u202egnp",
        "x" * 200,
        "画像",
        "%s{}<b>",
        "  ",
        "é" * 99,
    ]
    for number, name in enumerate(names):
        save_png(f"photos/tea \x07{number % 2}/{name}.png", PIXELS[number])
    assert main(["train", "photos", *FAST, "--workdir", "run"]) == 0
    key = f"tea \x070/{names[0]}.png"
    assert neighbors("run", key, "--to", "s.png") == 0
    assert read("s.png").shape[0] == HEIGHT
    assert all(text.isprintable() for text in texts)
    assert "tea \\x070/a\\nb.png" in texts
    font = ImageFont.load_default(sheet._TEXT)
    assert max(map(font.getlength, texts)) <= WIDTH
    assert any(re.fullmatch(r"\.\.\.x+\.png", text) for text in texts)


@pytest.mark.row("B50")
def test_data_that_changed_or_are_gone_have_no_sheet(runs, capsys):
    np.savez("images.npz", X=PIXELS, y=LABELS)
    assert main(["train", "images.npz", *FAST, "--workdir", "run"]) == 0
    capsys.readouterr()
    np.savez("images.npz", X=PIXELS[::-1], y=LABELS)
    assert neighbors("run", "12", "--to", "s.png") == 2
    assert "images.npz has changed since RUN run was trained" in error_line(capsys)
    Path("images.npz").unlink()
    assert neighbors("run", "12", "--to", "s.png") == 2
    assert "images.npz does not exist" in error_line(capsys)
    assert not Path("s.png").exists()
    assert neighbors("run", "12") == 0  # without the data


@pytest.mark.row("B50")
def test_sheets_are_refused(runs, capsys, monkeypatch):
    Path("bad.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"x" * 50)
    monkeypatch.setattr(sheet, "_MAX_PIXELS", 2**20)
    large = "`to` would have 10 x 11 images, more than 1 million pixels: give fewer"
    for options, message in {
        "12 --to no/s.png": "no does not exist",
        "bad.png": "bad.png is not a whole image",
        "0 1 2 3 4 5 6 7 8 9": large,
    }.items():
        assert neighbors(runs / "images", "--to", "s.png", *options.split()) == 2
        assert message in error_line(capsys)
    cell = Cell(PIXELS[0], "key", ())
    with pytest.raises(InputError, match="would have 50 x 50 images"):
        write_sheet([[cell] * 50] * 50, Path("s.png"))
    assert [*map(str, Path().iterdir())] == ["bad.png"]
