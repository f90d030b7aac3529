"""Examples in a folder of images, with a folder for each class."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from embedder.data.examples.examples import (
    UNLABELLED,
    Examples,
    ExampleSet,
    Source,
    image_decoder,
    log_left_out,
    make_examples,
    split_of,
)
from embedder.disk.files import is_image_name, is_utf8
from embedder.errors import InputError, InputNotFoundError

_WINDOWS_FILES = ("Thumbs.db", "desktop.ini")
_log = logging.getLogger(__name__)


def open_image_folder(source: Source) -> ExampleSet | None:
    """The images in the folders of a folder, shuffled; folder names are the labels.

    Images beside these folders have no label. Links are followed. Hidden files and
    folders are left out, and other files with a line in the log.

    Raises:
      InputNotFoundError: all images are without a label, and need one.
      InputError: an image is no regular file, its name is not UTF-8, or the folders
        are not classes but train, val and so on, with folders of classes.
    """
    images = _images(source) if source.path.is_dir() else []
    if not images:
        return None
    # Else the classes would be in order, and the last ones validate.
    order = np.random.default_rng(0).permutation(len(images))
    files = [images[i] for i in order]
    names = [file.relative_to(source.path).parts for file in files]
    labels = np.array([name[0] if len(name) > 1 else UNLABELLED for name in names])
    keys = [os.path.join(*name) for name in names]
    others = [key for key in keys if not is_utf8(key)]
    if others:  # vectors are written by key
        raise InputError(f"DATA {source.name}: names must be UTF-8, got {others[0]!r}.")
    manifest = _file_facts(keys, files)

    def check() -> None:
        now = _file_facts(keys, files)
        if changed := [a["file"] for a, b in zip(manifest, now, strict=True) if a != b]:
            raise InputError(
                f"DATA {source.name}: {changed[0]} changed while it was read: start "
                "again when nothing writes to it, or copy it first."
            )

    def read(cache: Path | None) -> Examples:
        pixels = image_decoder(source, cache, manifest, check)(files)
        return make_examples(pixels, labels, source.name, keys)

    return ExampleSet(source.stem, source.name, manifest, read)


def _images(source: Source) -> list[Path]:
    """The images of a folder that are read, sorted; the log says what is left out."""
    folder = source.path
    every_file = sorted(_files(folder))
    all_images = [file for file in every_file if is_image_name(file.name)]
    of_classes = [file for file in all_images if file.parent != folder]
    images = of_classes if source.needs_labels else all_images
    if all_images and not images:
        raise InputNotFoundError(
            f"DATA {source.name} has {len(all_images)} images that are in no folder of "
            f"a class: put them in {Path(source.name) / 'CLASS' / all_images[0].name} "
            "and so on."
        )
    if not images:
        return []
    if source.needs_labels:
        _check_classes(source, [file.relative_to(folder).parts for file in images])
    others = [file for file in every_file if not is_image_name(file.name)]
    log_left_out(source.name, [file.suffix.lower() for file in others])
    for file in images:
        if file.exists() and not file.is_file():
            raise InputError(f"DATA {source.name}: {file} must be a regular file.")
    return images


def _files(folder: Path, above: frozenset[Path] = frozenset()) -> Iterator[Path]:
    """The files in a folder and its folders, also by links; without hidden ones.

    Args:
      above: real paths of the folders that this one is in: a link back ends there.
    """
    real = folder.resolve()
    if real in above:
        return
    try:
        entries = [*os.scandir(folder)]
    except PermissionError:
        _log.warning("%s may not be read, and is left out.", folder)
        return
    for entry in entries:
        if entry.name.startswith(".") or entry.name in _WINDOWS_FILES:
            continue
        if entry.is_dir():
            yield from _files(folder / entry.name, above | {real})
        else:
            yield folder / entry.name


def _check_classes(source: Source, names: list[tuple[str, ...]]) -> None:
    """Checks that folders are classes, given the parts of the paths of images."""
    folders = sorted({name[0] for name in names})
    if all(map(split_of, folders)) and any(len(name) > 2 for name in names):
        first = next((x for x in folders if split_of(x) == "train"), folders[0])
        raise InputError(
            f"DATA {source.name} has the folders {', '.join(folders)}, which are no "
            "classes but have folders of classes: give one, as "
            f"{Path(source.name) / first}."
        )


def _file_facts(keys: list[str], files: list[Path]) -> list[dict[str, Any]]:
    stats = [file.stat() for file in files]
    return [
        {"file": key, "bytes": stat.st_size, "mtime_ns": stat.st_mtime_ns}
        for key, stat in zip(keys, stats, strict=True)
    ]
