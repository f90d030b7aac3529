"""The formats of examples; to add one, write its module and an entry of `FORMATS`."""

import glob
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from embedder.config.encoder_options import EncoderOptions
from embedder.data.examples.array_files import labels_name, open_idx, open_npz
from embedder.data.examples.example_tables import TABLES, open_table_of_examples
from embedder.data.examples.examples import ExampleSet, Source
from embedder.data.examples.image_folder import open_image_folder
from embedder.data.examples.tar import open_tar
from embedder.data.table_files import check_no_lake
from embedder.disk.copies import local_copy
from embedder.disk.files import IMAGES
from embedder.errors import InputError, InputNotFoundError


class Format(NamedTuple):
    """A format of examples."""

    description: str  # for messages
    open: Callable[[Source], ExampleSet | None]  # None: the source has another format
    endings: tuple[str, ...] = ()  # of its files in remote folders, in lower case
    part: str = ""  # of the names of such files; "": none


FORMATS = (
    Format(
        "an idx file of images (...images-idx3-ubyte, .gz) or its folder",
        open_idx,
        part="idx",
    ),
    Format("an .npz file", open_npz),
    Format(
        "a folder with a folder of images for each class", open_image_folder, IMAGES
    ),
    Format(
        "tables (.parquet, .arrow, .csv, .tsv, .jsonl)", open_table_of_examples, TABLES
    ),
    Format(".tar files of images with labels, as webdataset's", open_tar, (".tar",)),
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
    columns: tuple[str, ...] = (),
) -> ExampleSet:
    """The examples at the path, glob or URL `source`, in any of the formats.

    Args:
      workers: threads that decode images.
      cache: folder of caches, for the copy of a URL; None: that of the user.
      needs_labels: False: examples without labels will do; all of them have the class
        `UNLABELLED`.
      columns: names of the features to read, in this order, of a format that has them;
        (): all.

    Raises:
      InputNotFoundError: there is no such path, or a folder without examples.
      InputError: it has none of the formats.
    """
    source = local_copy(source, cache, _is_example_file, labels_name)
    where = Source(source, options, workers, needs_labels, columns)
    exists = where.path.exists()
    if not exists and not (glob.has_magic(source) and where.files("")):
        raise InputNotFoundError(f"DATA {source} does not exist.")
    if exists and not where.path.is_dir() and not where.path.is_file():
        raise InputError(f"DATA {source} must be a regular file or a folder.")
    if where.path.is_dir():
        check_no_lake(where.path, "DATA")
    for each in FORMATS:
        examples = each.open(where)
        if examples is not None:
            return examples
    error = InputNotFoundError if where.path.is_dir() else InputError
    raise error(f"DATA {source} must be {DESCRIPTION}.")


def _is_example_file(name: str) -> bool:
    """Whether a file of a remote folder is read."""
    return any(
        name.lower().endswith(each.endings) or (each.part and each.part in name)
        for each in FORMATS
    )
