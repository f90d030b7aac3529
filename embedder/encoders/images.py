"""Images from untrusted files; many of them as one array, decoded once."""

import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np

from embedder.disk.arrays import memory_map_npy
from embedder.disk.digests import check_digests, files_in, write_digests
from embedder.disk.files import name_file_in_errors, short_reason
from embedder.disk.folders import atomic_folder, remove_unfinished_folders
from embedder.engine.prefetch import parallel_map
from embedder.errors import InputError
from embedder.limits import check_room

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")
"""Suffixes of the names of image files."""

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP")
"""Formats that are read, recognised by content: Pillow runs a program for others."""

_FORMAT = 2  # version of the cache of decoded images


def decoded(
    files: list[Path],
    size: tuple[int, ...],
    workers: int,
    cache: Path | None,
    manifest: list[dict],
    check_unchanged: Callable[[], None] = lambda: None,
) -> np.ndarray:
    """The images in `files`, u8[n, height, width, 3].

    Args:
      size: height and width to scale to; (): all must have the size of the first.
      workers: threads that decode.
      cache: folder for the decoded images, mapped from a file there; None: in memory.
      manifest: describes the files, the key of the cache.
      check_unchanged: called when all are read; raises if `manifest` is outdated.

    Raises:
      InputError: a file is no image or has another size, or the cache is damaged.
    """
    first = read_image(files[0], size)
    shape = (len(files), *first.shape)
    if cache is None:
        needed = math.prod(shape)
        check_room(needed, f"{len(files)} images take", "give a smaller --image-size")
        images = _decode(files, size, workers, np.empty(shape, np.uint8))
        check_unchanged()
        return images
    key = json.dumps([_FORMAT, size, manifest]).encode()
    folder = cache / hashlib.sha256(key).hexdigest()[:16]
    path = folder / "images.npy"
    remove_unfinished_folders(cache)
    if not folder.exists():
        with atomic_folder(folder) as part:
            array = np.lib.format.open_memmap(
                part / path.name, "w+", np.uint8, shape=shape
            )
            _decode(files, size, workers, array)
            array.flush()
            del array
            check_unchanged()
            write_digests(part, files_in(part))
    try:
        check_digests(folder)  # reads all bytes once, as an epoch does
        return _mapped(path, shape)
    except (FileNotFoundError, ValueError) as error:
        raise InputError(
            f"Cache file {path} is damaged ({error}): delete {folder} to make it anew."
        ) from error


def _mapped(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    found = memory_map_npy(path)
    if found.shape != shape or found.dtype != np.uint8:
        raise InputError(
            f"it must hold uint8{list(shape)}, got {found.dtype}{list(found.shape)}"
        )
    return found


def _decode(
    files: list[Path], size: tuple[int, ...], workers: int, into: np.ndarray
) -> np.ndarray:
    images = parallel_map(lambda file: read_image(file, size), files, workers)
    for number, image in enumerate(images):
        if image.shape != into.shape[1:]:
            raise InputError(
                f"{files[number]} is {_size(image)}, and {files[0]} {_size(into[0])}: "
                "give --image-size HEIGHT WIDTH."
            )
        into[number] = image
    return into


def read_image(
    path: Path, size: tuple[int, ...] = (), mode: Literal["RGB", "L"] = "RGB"
) -> np.ndarray:
    """The image in a file, u8[height, width, 3], or u8[height, width] of mode "L".

    Args:
      size: height and width to scale to; (): as it is.

    Raises:
      FileNotFoundError: there is no such file.
      InputError: it is damaged, too large, or has none of `FORMATS`.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with name_file_in_errors(path), Image.open(path, formats=FORMATS) as file:
            limit = Image.MAX_IMAGE_PIXELS or math.inf  # Pillow refuses twice as many
            if file.width * file.height > limit:
                raise InputError(
                    f"its {file.height} x {file.width} pixels are more than {limit}"
                )
            image: Image.Image = file
            if image.mode == "I;16":  # Pillow would clip its values at 255
                image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
            image = image.convert(mode)
            if size:
                height, width = size
                image = image.resize((width, height), Image.Resampling.BILINEAR)
            return np.asarray(image)
    except FileNotFoundError:
        raise
    except UnidentifiedImageError:
        raise InputError(
            f"{path} is not a whole image: it must be {', '.join(FORMATS[:-1])} or "
            f"{FORMATS[-1]}, whatever its name says."
        ) from None
    except Exception as error:  # a damaged image raises nearly anything
        reason = short_reason(error)
        raise InputError(f"{path} is not a whole image: {reason}.") from error


def _size(image: np.ndarray) -> str:
    return f"{image.shape[0]} x {image.shape[1]}"
