"""Images that are decoded each time they are used, where all of them take too much."""

import math
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from embedder.data.examples.images import (
    ImageFile,
    Mode,
    image_shape,
    read_all,
    size_error,
)
from embedder.errors import InputError

_PART = 2  # decoded images take at most one part in so many of the free space


def is_too_large(file: ImageFile, size: tuple[int, ...], num: int, cache: Path) -> bool:
    """Whether `num` images as the one in `file` would take more than half of the free
    space where `cache` is."""
    folder = cache.absolute()
    while not folder.exists():
        folder = folder.parent
    needed = num * math.prod(image_shape(file, size, "RGB"))
    return needed > shutil.disk_usage(folder).free // _PART


class LazyImages:
    """Images in files as an array, u8[n, height, width] or u8[n, height, width, 3].

    Indexing decodes the images that are asked for; nothing is kept. So it has what
    `Examples.features` need of an array, and no arithmetic.

    Args:
      files: encoded images.
      size: height and width to scale to; (): all have the size of the first.
      mode: L of grey images, else RGB.
      workers: threads that decode.
      check: raises if one of the larger files that images are in has changed.

    Raises:
      InputError: the first is no image.
    """

    dtype = np.dtype(np.uint8)

    def __init__(
        self,
        files: Sequence[ImageFile],
        size: tuple[int, ...],
        mode: Mode,
        workers: int,
        check: Callable[[], None],
    ):
        self._files, self._size, self._mode = files, size, mode
        self._workers, self._check = workers, check
        self._stats = [_stat(file) for file in files]
        self.shape = (len(files), *image_shape(files[0], size, mode))
        self.ndim, self.size = len(self.shape), math.prod(self.shape)
        self.nbytes = self.size

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: slice | Sequence[int] | np.ndarray) -> np.ndarray:
        """The images of a slice, or of rows i[...]: u8[..., height, width(, 3)]. Raises
        InputError if an image is damaged, has another size than the first, or its file
        has changed."""
        rows = np.arange(len(self))[index]
        unique, inverse = np.unique(rows, return_inverse=True)
        self._check_unchanged(unique)
        files = [self._files[row] for row in unique]
        pixels = np.empty((len(files), *self.shape[1:]), np.uint8)
        size, shape = self._size, self.shape[1:]
        images = read_all(files, shape, size, self._mode, self._workers)
        for file, into, image in zip(files, pixels, images, strict=True):
            if image.shape != into.shape:
                raise size_error(file, image, self._files[0], into)
            into[...] = image
        return pixels[inverse.reshape(rows.shape)]

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        """All images; whoever asks must know that they fit."""
        return np.asarray(self[:], dtype)

    def _check_unchanged(self, rows: np.ndarray) -> None:
        if None in self._stats:
            self._check()
            return
        for row in rows:
            if _stat(file := self._files[row]) != self._stats[row]:
                raise InputError(
                    f"{file} changed since the training began: start again when "
                    "nothing writes to it, or copy it first."
                )


def _stat(file: ImageFile) -> tuple[int, int] | None:
    """Size and time of a file; of an image in a larger file None."""
    if not isinstance(file, Path):
        return None
    stat = os.stat(file)
    return stat.st_size, stat.st_mtime_ns
