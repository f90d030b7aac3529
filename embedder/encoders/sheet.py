"""A contact sheet: a picture with a row of images for each query, which may be new,
and the images that are nearest to it."""

from collections.abc import Container, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from embedder.base.terminal import shown
from embedder.data.examples.images import read_image
from embedder.disk.files import IMAGES, atomic_file, name_file_in_errors
from embedder.encoders.new_examples import read_examples
from embedder.errors import InputError, InputNotFoundError, check_installed

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw
    from PIL.ImageFont import FreeTypeFont, ImageFont

    Font = FreeTypeFont | ImageFont

_IMAGE = 96  # pixels of the longer side of an image, at most
_TEXT = 11  # size of the font
_LINE = 14  # height of a line of text
_LINES = 3
_PAD = 8
_WIDTH, _HEIGHT = _IMAGE + 2 * _PAD, _IMAGE + _LINES * _LINE + 3 * _PAD
_GAP = 16  # after the query
_MAX_PIXELS = 2**27
_INK, _GREY, _RULE = "#1d1d1f", "#6b6b6b", "#c9cdd4"
_FRAMES = {True: "#3b6fb6", False: "#d98324", None: _RULE}
_FRAME = 3


class Cell(NamedTuple):
    """An image with text."""

    pixels: np.ndarray  # u8[h, w, 3]
    title: str  # long ones lose their start
    lines: tuple[str, ...]  # long ones lose their end
    is_same: bool | None = None  # whether it has the class of the query; None: unknown


def check_sheet(path: Path, num_rows: int, num_cells: int) -> None:
    """Checks that a sheet of rows of so many cells can be written to `path`.

    Raises:
      InputError: its suffix is not .png, the sheet is too large, or Pillow is missing.
    """
    check_installed("PIL", "`to` .png")
    if path.suffix.lower() != ".png":
        raise InputError(
            f"`to` must end in .png for images, or .parquet or .csv, got {path}."
        )
    if num_rows * _HEIGHT * (num_cells * _WIDTH + _GAP) > _MAX_PIXELS:
        raise InputError(
            f"`to` would have {num_rows} x {num_cells} images, more than "
            f"{_MAX_PIXELS >> 20} million pixels: give fewer WORDs or a smaller --topn."
        )


def write_sheet(rows: list[list[Cell]], path: Path) -> None:
    """Draws rows of cells, each a query and what is near it, atomically.

    Frames are blue where `is_same`, and orange where not.

    Raises:
      InputError: see `check_sheet`.
    """
    from PIL import Image, ImageDraw, ImageFont

    num_cells = max(map(len, rows))
    check_sheet(path, len(rows), num_cells)
    size = num_cells * _WIDTH + _GAP, len(rows) * _HEIGHT
    sheet, font = Image.new("RGB", size, "white"), ImageFont.load_default(_TEXT)
    draw = ImageDraw.Draw(sheet)
    for number, row in enumerate(rows):
        top = number * _HEIGHT
        for column, cell in enumerate(row):
            left = column * _WIDTH + (_GAP if column else 0)
            _draw_cell(sheet, draw, font, cell, (left, top))
    across = _WIDTH + _GAP // 2
    draw.line((across, _PAD, across, size[1] - _PAD), fill=_RULE)
    with name_file_in_errors(path), atomic_file(path) as part:
        sheet.save(part, format="PNG")


def _draw_cell(
    sheet: "Image", draw: "ImageDraw", font: "Font", cell: Cell, at: tuple[int, int]
) -> None:
    left, top = at
    image = _fitted(cell.pixels)
    x = left + (_WIDTH - image.width) // 2
    y = top + _PAD + (_IMAGE - image.height) // 2
    box = x - _FRAME, y - _FRAME, x + image.width + 2, y + image.height + 2
    draw.rectangle(box, fill=_FRAMES[cell.is_same])
    sheet.paste(image, (x, y))
    texts = [_fitting(cell.title, font, from_end=True), *cell.lines]
    for number, text in enumerate(texts[:_LINES]):
        place = left + _WIDTH / 2, top + _IMAGE + 2 * _PAD + (number + 0.5) * _LINE
        text = _fitting(text, font, from_end=False)
        draw.text(place, text, _GREY if number else _INK, font, anchor="mm")


def _fitted(pixels: np.ndarray) -> "Image":
    """The image in the size of a cell: small ones by whole factors."""
    from PIL import Image

    image, longest = Image.fromarray(pixels), max(pixels.shape[:2])
    if longest <= _IMAGE:
        factor = _IMAGE // longest
        size = image.width * factor, image.height * factor
        return image.resize(size, Image.Resampling.NEAREST)
    size = (max(1, image.width * _IMAGE // longest), 1)
    size = size[0], max(1, image.height * _IMAGE // longest)
    return image.resize(size, Image.Resampling.LANCZOS)


def _fitting(text: str, font: "Font", *, from_end: bool) -> str:
    """`text` without control characters, cut where it is wider than a cell."""
    text = shown(text[:1000] if not from_end else text[-1000:])
    width = _WIDTH - 4
    if font.getlength(text) <= width:
        return text
    num = len(text)
    while (
        num and font.getlength(f"...{text[-num:] if from_end else text[:num]}") > width
    ):
        num -= 1
    return f"...{text[-num:]}" if from_end else f"{text[:num]}..."


def as_pixels(features: np.ndarray) -> np.ndarray | None:
    """Features [n, h, w] or [n, h, w, c] as u8[n, h, w, 3]; None: no images.

    c is 1, 3 or 4, of which the last is left out. Values of other dtypes than u8 are
    scaled, from the least of all to the largest.
    """
    if features.ndim == 3:
        features = features[..., np.newaxis]
    if features.ndim != 4 or features.shape[3] not in (1, 3, 4):
        return None
    features = features[..., :3]
    if features.dtype != np.uint8:
        values = features.astype(np.float64)
        least, largest = values.min(initial=np.inf), values.max(initial=-np.inf)
        span = largest - least if largest > least else 1.0
        features = np.rint((values - least) / span * 255).astype(np.uint8)
    return np.broadcast_to(features, (*features.shape[:3], 3))


class Nearest(NamedTuple):
    """A query, and the examples nearest to it."""

    query: str  # a key, or the path of an image
    predicted: str | None
    """The class of an image by the encoder, empty without labels; None: an example."""
    neighbors: list[tuple[str, float]]  # keys and similarities


def image_files(words: Sequence[str], keys: Container[str]) -> tuple[str, ...]:
    """The words that are no keys of examples, but names of image files, each once.

    Raises:
      InputNotFoundError: there is no such file.
    """
    files = tuple(
        dict.fromkeys(w for w in words if w not in keys and w.lower().endswith(IMAGES))
    )
    for each in files:
        if not Path(each).exists():
            raise InputNotFoundError(
                f"{each!r} is neither the key of an example nor an image file."
            )
    return files


def write_nearest(
    run: Path, results: Sequence[Nearest], labels: dict[str, str], to: Path
) -> int:
    """Writes a sheet with a row for each query: it, and its nearest examples.

    Args:
      labels: texts under the images of examples, by key.

    Returns:
      Number of images.

    Raises:
      InputError: examples of the run are no images, or have changed; see `write_sheet`.
      InputNotFoundError: they are gone.
    """
    num_cells = 1 + max(len(each.neighbors) for each in results)
    check_sheet(to, len(results), num_cells)
    config, examples = read_examples(run)
    keys = {key for each in results for key, _ in each.neighbors}
    keys |= {each.query for each in results if each.predicted is None}
    rows = {key: i for i, key in enumerate(examples.keys) if key in keys}
    shape, dtype = examples.features.shape[1:], examples.features.dtype
    pixels = as_pixels(np.asarray(examples.features[[*rows.values()]]))
    if pixels is None:
        raise InputError(
            f"`to` needs images: the examples of RUN {run} are {dtype}{list(shape)}."
        )
    image = dict(zip(rows, pixels, strict=True))
    classes = {key: int(examples.labels[i]) for key, i in rows.items()}

    def row(result: Nearest) -> list[Cell]:
        query_class = None
        if result.predicted is None:
            query_class, label = classes[result.query], labels.get(result.query, "")
            first = Cell(image[result.query], result.query, (label, "query"))
        else:
            mode: Literal["L", "RGB"] = "L" if len(shape) == 2 else "RGB"
            query = as_pixels(read_image(Path(result.query), shape[:2], mode)[None])
            assert query is not None, "images are read as images"
            about = [f"predicted: {result.predicted}"] if result.predicted else []
            first = Cell(query[0], result.query, (*about, "query"))
        return [first, *(near(each, query_class) for each in result.neighbors)]

    def near(example: tuple[str, float], query_class: int | None) -> Cell:
        key, similarity = example
        is_same = None if query_class is None else classes[key] == query_class
        lines = labels.get(key, ""), f"{similarity:.3f}"
        return Cell(image[key], key, lines, is_same)

    cells = [row(each) for each in results]
    write_sheet(cells, to)
    return sum(map(len, cells))
