"""The vectors of a finished run for TensorBoard's projector, beside its events.

    projector_config.pbtxt   which files there are, as text of a protocol buffer
    projector_tensors.bytes  the vectors, float32, row by row
    projector_metadata.tsv   a line of texts for each vector, below their names
    projector_sprite.png     thumbnails in a square grid, row by row

The format is that of TensorBoard: "The Embedding Projector", tensorflow.org.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from embedder.data.kept_names import kept_names
from embedder.disk.files import atomic_file, short_reason
from embedder.disk.workdir import Workdir
from embedder.report.nearest import by_frequency
from embedder.report.text import short
from embedder.report.tokens import NO_EXTRAS, Extras, with_names
from embedder.vectors.vectors import Vectors

if TYPE_CHECKING:
    from PIL.Image import Image

MOST = 20_000
"""Vectors at most."""
MOST_IMAGES = 5_000
"""Vectors at most, where they have thumbnails."""
_FEWEST = 50  # vectors after a training: with fewer there is little to see
_IMAGE_BYTES = 2**26  # of data that are read again for thumbnails after a training
_NUMBERS = 2**23  # of all vectors: 32 MiB
_EDGE = 32  # pixels of a thumbnail, at most
_CONFIG, _TENSORS = "projector_config.pbtxt", "projector_tensors.bytes"
_METADATA, _SPRITE = "projector_metadata.tsv", "projector_sprite.png"
_log = logging.getLogger(__name__)


class Points(NamedTuple):
    """Vectors with texts, and with images if they have any."""

    matrix: np.ndarray  # f[P, D]
    columns: Mapping[str, Sequence[str]]  # name -> texts [P]; the first are the keys
    images: np.ndarray | None = None  # u8[P, h, w, 3]


def num_points(num: int, size: int, *, has_images: bool = False) -> int:
    """How many of `num` vectors of `size` numbers the projector gets."""
    most = MOST_IMAGES if has_images else MOST
    return min(num, most, max(1, _NUMBERS // size))


def write_after_training(path: Path, vectors: Vectors) -> None:
    """Writes the files into the folder of a finished run with these vectors.

    A failure is a warning: the run is finished without them.
    """
    try:
        if len(vectors) >= _FEWEST:
            extras = with_names(kept_names(path))
            write(path, vectors, _IMAGE_BYTES, extras)
    except Exception as error:  # also a bug: nothing that was trained may be lost
        _log.warning(
            "The vectors for TensorBoard are not written: %s. The run is finished; "
            "`embedder report %s` tries again.",
            *(short_reason(error), path),
        )


def write(
    path: Path,
    vectors: Vectors,
    image_bytes: float = np.inf,
    extras: Extras = NO_EXTRAS,
) -> None:
    """Writes the files beside the TensorBoard events of a run; see `write_projector`.

    It writes the most frequent tokens, or a random sample of examples, whose images are
    read again if the data have at most `image_bytes`. A run without events was not
    trained: nothing is written.

    Args:
      extras: names and labels of tokens, columns of the texts.

    Raises:
      OSError, InputError: a file of the run is damaged, or nothing can be written.
    """
    run = Workdir(path)
    if not run.events.is_dir():
        return
    points = (
        _of_examples(run, vectors, image_bytes)
        if run.labels.exists()
        else _of_tokens(vectors, extras)
    )
    write_projector(run.events, points)


def _of_tokens(vectors: Vectors, extras: Extras) -> Points:
    rows = by_frequency(vectors)[: num_points(*vectors.matrix.shape)]
    columns = {"token": [vectors.keys[row] for row in rows.tolist()]}
    if vectors.counts is not None:
        columns["count"] = [*map(str, vectors.counts[rows].tolist())]
    return Points(vectors.matrix[rows], columns | extras.columns(columns["token"]))


def _of_examples(run: Workdir, vectors: Vectors, image_bytes: float) -> Points:
    from embedder.encoders.predicted_labels import read_labels
    from embedder.report.encoder_page import pictures

    names = ["label", "predicted"]
    frame = read_labels(run.path, ["key", *names, "trained"])
    rows, keys = _sample(vectors, has_images=True)
    images_by_key, why = pictures(run, keys, image_bytes)
    if why:
        _log.debug("No thumbnails for TensorBoard: %s", why)
    images = None
    if images_by_key and images_by_key.keys() >= {*keys}:
        images = np.stack([images_by_key[key] for key in keys])
    else:
        rows, keys = _sample(vectors, has_images=False)
    row_of = {key: row for row, key in enumerate(frame["key"].to_list())}
    of_keys = frame[[row_of[key] for key in keys]]
    columns = {"key": keys} | {name: of_keys[name].to_list() for name in names}
    columns["held_out"] = (~of_keys["trained"]).cast(int).to_list()
    texts = {name: [str(x) for x in column] for name, column in columns.items()}
    return Points(vectors.matrix[rows], texts, images)


def _sample(vectors: Vectors, *, has_images: bool) -> tuple[np.ndarray, list[str]]:
    """Rows and keys of a random sample, ascending, the same each time."""
    num, size = vectors.matrix.shape
    most = num_points(num, size, has_images=has_images)
    rows = np.sort(np.random.default_rng(0).choice(num, most, replace=False))
    return rows, [vectors.keys[row] for row in rows.tolist()]


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
