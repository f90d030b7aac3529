"""Examples in a folder of images, with a folder for each class."""

from pathlib import Path
from typing import Any

import numpy as np

from embedder.encoders.examples import Examples, ExampleSet, Source, make_examples
from embedder.encoders.images import IMAGES, decoded
from embedder.errors import InputError


def open_image_folder(source: Source) -> ExampleSet | None:
    """The images in the folders of a folder, shuffled; folder names are the labels.

    Raises:
      InputError: an image is no regular file, or its name is not UTF-8.
    """
    if not source.path.is_dir():
        return None
    found = [
        (file, folder.name)
        for folder in sorted(p for p in source.path.iterdir() if p.is_dir())
        for file in sorted(folder.rglob("*"))
        if file.suffix.lower() in IMAGES
    ]
    if not found:
        return None
    for file, _ in found:
        if file.exists() and not file.is_file():
            raise InputError(f"DATA {source.name}: {file} must be a regular file.")
    # Else the classes would be in order, and the last ones validate.
    order = np.random.default_rng(0).permutation(len(found))
    files = [found[i][0] for i in order]
    labels = np.array([found[i][1] for i in order])
    keys = [str(file.relative_to(source.path)) for file in files]
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
        size, workers = source.options.image_size, source.workers
        images = decoded(files, size, workers, cache, manifest, check)
        return make_examples(images, labels, source.name, keys)

    return ExampleSet(source.path.resolve().name, source.name, manifest, read)


def _described(keys: list[str], files: list[Path]) -> list[dict[str, Any]]:
    stats = [file.stat() for file in files]
    return [
        {"file": key, "bytes": stat.st_size, "mtime_ns": stat.st_mtime_ns}
        for key, stat in zip(keys, stats, strict=True)
    ]
