"""The vectors of a finished run for TensorBoard's projector, by its files."""

import logging
from pathlib import Path

import numpy as np

from embedder.disk.files import short_reason
from embedder.errors import InputError, install_command, is_installed
from embedder.report.projector import Points, num_points, write_projector
from embedder.report.tokens import NO_EXTRAS, Extras
from embedder.results import is_encoder_run
from embedder.run.inputs import manifest_of
from embedder.run.workdir import Workdir
from embedder.vectors.vectors import Vectors

_FEWEST = 50
"""Vectors that are written after a training: with fewer there is little to see."""
_IMAGE_BYTES = 2**26
"""Of data that are read again for thumbnails after a training."""
_log = logging.getLogger(__name__)


def write_after_training(path: Path, vectors: Vectors) -> None:
    """Writes the files into the folder of a finished run with these vectors.

    If that fails, a warning says so: the run is finished without them.
    """
    try:
        if len(vectors) >= _FEWEST:
            write(path, vectors, _IMAGE_BYTES)
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

    Tokens are the most frequent ones, examples a random sample, whose images are read
    again if the data have at most `image_bytes`. Of a run without events, which was not
    trained, nothing is written.

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
        if is_encoder_run(path)
        else _of_tokens(vectors, extras)
    )
    write_projector(run.events, points)


def _of_tokens(vectors: Vectors, extras: Extras) -> Points:
    num = num_points(*vectors.matrix.shape)
    if vectors.counts is None:
        keys = vectors.keys[:num]
        return Points(vectors.matrix[:num], {"token": keys, **extras.columns(keys)})
    rows = np.argsort(-vectors.counts, kind="stable")[:num]
    keys = [vectors.keys[row] for row in rows.tolist()]
    counts = [str(count) for count in vectors.counts[rows].tolist()]
    columns = {"token": keys, "count": counts, **extras.columns(keys)}
    return Points(vectors.matrix[rows], columns)


def _of_examples(run: Workdir, vectors: Vectors, image_bytes: float) -> Points:
    from embedder.encoders.labels import read_labels

    names = ["label", "predicted"]
    frame = read_labels(run.path, ["key", *names, "trained"])
    rows = _sample(*vectors.matrix.shape, has_images=True)
    keys = [vectors.keys[row] for row in rows.tolist()]
    images = _images(run, keys, image_bytes)
    if images is None:
        rows = _sample(*vectors.matrix.shape, has_images=False)
        keys = [vectors.keys[row] for row in rows.tolist()]
    row_of = {key: row for row, key in enumerate(frame["key"].to_list())}
    of_keys = frame[[row_of[key] for key in keys]]
    columns = {"key": keys} | {name: of_keys[name].to_list() for name in names}
    columns["held_out"] = (~of_keys["trained"]).cast(int).to_list()
    texts = {name: [str(x) for x in column] for name, column in columns.items()}
    return Points(vectors.matrix[rows], texts, images)


def _sample(num: int, size: int, *, has_images: bool) -> np.ndarray:
    """Rows of a random sample, ascending, the same each time."""
    most = num_points(num, size, has_images=has_images)
    return np.sort(np.random.default_rng(0).choice(num, most, replace=False))


def _images(run: Workdir, keys: list[str], image_bytes: float) -> np.ndarray | None:
    """Their images u8[P, h, w, 3]; None: they are none, or cannot be read again."""
    from embedder.encoders.run_examples import read_examples
    from embedder.encoders.sheet import as_pixels

    size = sum(x.get("bytes", 0) for x in manifest_of(run) if isinstance(x, dict))
    if size > image_bytes:
        return None
    try:
        _, examples = read_examples(run.path)
    except (InputError, OSError) as error:
        _log.debug("No thumbnails for TensorBoard: %s", error)
        return None
    if not is_installed("PIL"):
        _log.debug("No thumbnails for TensorBoard: %s.", install_command("images"))
        return None
    row_of = {key: row for row, key in enumerate(examples.keys)}
    if not row_of.keys() >= {*keys} or np.ndim(examples.features) not in (3, 4):
        return None
    return as_pixels(np.asarray(examples.features[[row_of[key] for key in keys]]))
