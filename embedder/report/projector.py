"""The files that TensorBoard's projector reads, beside the events of a run.

    projector_config.pbtxt   which files there are, as text of a protocol buffer
    projector_tensors.bytes  the vectors, float32, row by row
    projector_metadata.tsv   a line of texts for each vector, below their names
    projector_sprite.png     thumbnails in a square grid, row by row

The format is that of TensorBoard: "The Embedding Projector", tensorflow.org.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from embedder.disk.files import atomic_file
from embedder.report.text import short

if TYPE_CHECKING:
    from PIL.Image import Image

MOST = 20_000
"""Vectors at most."""
MOST_IMAGES = 5_000
"""Vectors at most, where they have thumbnails."""
_NUMBERS = 2**23  # of all vectors: 32 MiB
_EDGE = 32  # pixels of a thumbnail, at most
_CONFIG, _TENSORS = "projector_config.pbtxt", "projector_tensors.bytes"
_METADATA, _SPRITE = "projector_metadata.tsv", "projector_sprite.png"


class Points(NamedTuple):
    """Vectors with texts, and with images if they have any."""

    matrix: np.ndarray  # f[P, D]
    columns: Mapping[str, Sequence[str]]  # name -> texts [P]; the first are the keys
    images: np.ndarray | None = None  # u8[P, h, w, 3]


def num_points(num: int, size: int, *, has_images: bool = False) -> int:
    """How many of `num` vectors of `size` numbers the projector gets."""
    most = MOST_IMAGES if has_images else MOST
    return min(num, most, max(1, _NUMBERS // size))


def write_projector(folder: Path, points: Points) -> None:
    """Writes the files to `folder`, each whole; the config is the last.

    Texts lose control characters, tabs and ends of lines, and all after 80 characters.

    Raises:
      OSError: they cannot be written.
    """
    folder.mkdir(exist_ok=True)
    remove_projector(folder)
    with atomic_file(folder / _TENSORS) as part:
        np.ascontiguousarray(points.matrix, "<f4").tofile(part)
    with atomic_file(folder / _METADATA) as part:
        part.write_text(metadata(points.columns), encoding="utf-8")
    edge = None
    if points.images is not None:
        sheet, edge = sprite(points.images)
        with atomic_file(folder / _SPRITE) as part:
            sheet.save(part, format="PNG", compress_level=3)
    with atomic_file(folder / _CONFIG) as part:
        part.write_text(_config(points.matrix.shape, edge), encoding="utf-8")


def remove_projector(folder: Path) -> None:
    """Removes these files, and what a killed process left of them."""
    for name in (_CONFIG, _TENSORS, _METADATA, _SPRITE):  # the config first
        (folder / name).unlink(missing_ok=True)
        for path in folder.glob(f".{name}.*.tmp"):
            path.unlink(missing_ok=True)


def _config(shape: tuple[int, ...], edge: int | None) -> str:
    rows, size = shape
    lines = [
        "embeddings {",
        '  tensor_name: "vectors"',
        f'  tensor_path: "{_TENSORS}"',
        f"  tensor_shape: {rows}",
        f"  tensor_shape: {size}",
        f'  metadata_path: "{_METADATA}"',
    ]
    if edge is not None:
        lines += [
            f'  sprite {{\n    image_path: "{_SPRITE}"',
            f"    single_image_dim: {edge}\n    single_image_dim: {edge}\n  }}",
        ]
    return "\n".join([*lines, "}", ""])


def metadata(columns: Mapping[str, Sequence[str]]) -> str:
    """The texts as lines of columns; a single column has no line of names."""
    texts = [[short(text) or " " for text in column] for column in columns.values()]
    rows = ["\t".join(row) for row in zip(*texts, strict=True)]
    names = ["\t".join(map(short, columns))] if len(columns) > 1 else []
    return "\n".join([*names, *rows, ""])


def sprite(images: np.ndarray) -> "tuple[Image, int]":
    """Images u8[P, h, w, 3] as one square picture, and the edge of each in pixels.

    Images are made square by black beside them, and larger ones smaller.
    """
    from PIL import Image

    num, height, width, _ = images.shape
    edge, longest = min(_EDGE, max(height, width)), max(height, width)
    across = max(1, int(np.ceil(np.sqrt(num))))
    tiles = np.zeros((across * across, edge, edge, 3), np.uint8)
    if longest > edge:
        size = max(1, width * edge // longest), max(1, height * edge // longest)
        images = np.stack(
            [
                np.asarray(Image.fromarray(each).resize(size, Image.Resampling.BOX))
                for each in images
            ]
        )
        height, width = images.shape[1:3]
    top, left = (edge - height) // 2, (edge - width) // 2
    tiles[:num, top : top + height, left : left + width] = images
    grid = tiles.reshape(across, across, edge, edge, 3).swapaxes(1, 2)
    pixels = grid.reshape(across * edge, across * edge, 3)
    if (pixels == pixels[..., :1]).all():  # grey: a third of the bytes
        pixels = pixels[..., 0]
    return Image.fromarray(np.ascontiguousarray(pixels)), edge
