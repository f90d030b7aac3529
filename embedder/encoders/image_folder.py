"""Examples in a folder of images, with a folder for each class."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from embedder.disk.kinds import is_image_name
from embedder.encoders.examples import (
    UNLABELLED,
    Examples,
    ExampleSet,
    Source,
    image_decoder,
    make_examples,
)
from embedder.errors import InputError, InputNotFoundError


def open_image_folder(source: Source) -> ExampleSet | None:
    """The images in the folders of a folder, shuffled; folder names are the labels.

    Images beside these folders have no label. Hidden files and folders are left out.

    Raises:
      InputNotFoundError: all images are without a label, and need one.
      InputError: an image is no regular file, or its name is not UTF-8.
    """
    folder = source.path
    if not folder.is_dir():
        return None
    everything = _images(folder)
    found = [each for each in everything if each.parent != folder]
    if not source.needs_labels:
        found = everything
    elif everything and not found:
        raise InputNotFoundError(
            f"DATA {source.name} has {len(everything)} images that are in no folder of "
            f"a class: put them in {Path(source.name) / 'CLASS' / everything[0].name} "
            "and so on."
        )
    if not found:
        return None
    for file in found:
        if file.exists() and not file.is_file():
            raise InputError(f"DATA {source.name}: {file} must be a regular file.")
    # Else the classes would be in order, and the last ones validate.
    order = np.random.default_rng(0).permutation(len(found))
    files = [found[i] for i in order]
    names = [file.relative_to(folder).parts for file in files]
    labels = np.array([name[0] if len(name) > 1 else UNLABELLED for name in names])
    keys = [os.path.join(*name) for name in names]
    others = [key for key in keys if key.encode(errors="ignore").decode() != key]
    if others:  # vectors are written by key
        raise InputError(f"DATA {source.name}: names must be UTF-8, got {others[0]!r}.")
    manifest = _described(keys, files)

    def check() -> None:
        now = _described(keys, files)
        if changed := [a["file"] for a, b in zip(manifest, now, strict=True) if a != b]:
            raise InputError(
                f"DATA {source.name}: {changed[0]} changed while it was read: start "
                "again when nothing writes to it, or copy it first."
            )

    def read(cache: Path | None) -> Examples:
        images = image_decoder(source, cache, manifest, check)(files)
        return make_examples(images, labels, source.name, keys)

    return ExampleSet(source.stem, source.name, manifest, read)


def _images(folder: Path) -> list[Path]:
    """The image files in a folder and its folders, sorted; without hidden ones."""
    return [
        file
        for file in sorted(folder.rglob("*"))
        if is_image_name(file.name)
        and not any(part.startswith(".") for part in file.relative_to(folder).parts)
    ]


def _described(keys: list[str], files: list[Path]) -> list[dict[str, Any]]:
    stats = [file.stat() for file in files]
    return [
        {"file": key, "bytes": stat.st_size, "mtime_ns": stat.st_mtime_ns}
        for key, stat in zip(keys, stats, strict=True)
    ]
