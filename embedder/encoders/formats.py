"""The formats of examples; to add one, write its module and list it here."""

import glob
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from embedder.disk.copies import local_copy
from embedder.disk.kinds import IMAGES
from embedder.encoders.examples import ExampleSet, Source
from embedder.encoders.idx import labels_name, open_idx
from embedder.encoders.image_folder import open_image_folder
from embedder.encoders.npz import open_npz
from embedder.encoders.options import EncoderOptions
from embedder.encoders.parquet import open_parquet
from embedder.encoders.tar import open_tar
from embedder.errors import InputError, InputNotFoundError


class Format(NamedTuple):
    """A format of examples."""

    description: str  # for messages
    open: Callable[[Source], ExampleSet | None]  # None: the source has another format


FORMATS = (
    Format("an idx file of images (...images-idx3-ubyte, .gz) or its folder", open_idx),
    Format("an .npz file", open_npz),
    Format(
        f"a folder with a folder of images ({', '.join(IMAGES)}) for each class",
        open_image_folder,
    ),
    Format(".parquet files", open_parquet),
    Format(".tar files of images with labels, as webdataset's", open_tar),
)
"""All formats; the first that knows a source opens it."""

DESCRIPTION = ", or ".join(each.description for each in FORMATS)
"""What a source of examples can be, for messages."""


def open_examples(
    source: str,
    options: EncoderOptions,
    workers: int = 2,
    cache: Path | None = None,
    *,
    needs_labels: bool = True,
) -> ExampleSet:
    """The examples at the path, glob or URL `source`, in any of the formats.

    Args:
      workers: threads that decode images.
      cache: folder of caches, for the copy of a URL; None: that of the user.
      needs_labels: False: examples without labels will do; all of them have the class
        `UNLABELLED`.

    Raises:
      InputNotFoundError: there is no such path, or a folder without examples.
      InputError: it has none of the formats.
    """
    source = local_copy(source, cache, _is_example_file, labels_name)
    where = Source(source, options, workers, needs_labels)
    exists = where.path.exists()
    if not exists and not (glob.has_magic(source) and where.files("")):
        raise InputNotFoundError(f"DATA {source} does not exist.")
    if exists and not where.path.is_dir() and not where.path.is_file():
        raise InputError(f"DATA {source} must be a regular file or a folder.")
    for each in FORMATS:
        found = each.open(where)
        if found is not None:
            return found
    error = InputNotFoundError if where.path.is_dir() else InputError
    raise error(f"DATA {source} must be {DESCRIPTION}.")


def _is_example_file(name: str) -> bool:
    """Whether a file of a remote folder is read: images, shards, and idx files."""
    return name.lower().endswith((*IMAGES, ".parquet", ".tar")) or "idx" in name
