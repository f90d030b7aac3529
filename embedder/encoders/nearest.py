"""New images as queries, and a sheet of the images that are nearest to queries."""

from collections.abc import Container, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from embedder.disk.kinds import IMAGES
from embedder.encoders.images import read_image
from embedder.encoders.run_examples import read_examples
from embedder.encoders.sheet import Cell, as_pixels, check_sheet, write_sheet
from embedder.errors import InputError, InputNotFoundError


class Nearest(NamedTuple):
    """A query, and the examples nearest to it."""

    query: str  # a key, or the path of an image
    predicted: str | None
    """The class of an image by the encoder, empty without labels; None: an example."""
    found: list[tuple[str, float]]  # keys and similarities


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
    num_cells = 1 + max(len(each.found) for each in results)
    check_sheet(to, len(results), num_cells)
    config, examples = read_examples(run)
    keys = {key for each in results for key, _ in each.found}
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
        own = None
        if result.predicted is None:
            own, label = classes[result.query], labels.get(result.query, "")
            first = Cell(image[result.query], result.query, (label, "query"))
        else:
            mode: Literal["L", "RGB"] = "L" if len(shape) == 2 else "RGB"
            query = as_pixels(read_image(Path(result.query), shape[:2], mode)[None])
            assert query is not None, "images are read as images"
            about = [f"predicted: {result.predicted}"] if result.predicted else []
            first = Cell(query[0], result.query, (*about, "query"))
        return [first, *(near(each, own) for each in result.found)]

    def near(found: tuple[str, float], own: int | None) -> Cell:
        key, similarity = found
        is_same = None if own is None else classes[key] == own
        lines = labels.get(key, ""), f"{similarity:.3f}"
        return Cell(image[key], key, lines, is_same)

    cells = [row(each) for each in results]
    write_sheet(cells, to)
    return sum(map(len, cells))
