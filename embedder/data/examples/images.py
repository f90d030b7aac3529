"""Images from untrusted files; many of them as one array, decoded once.

Files whose pixels have one channel are grey: u8[height, width]. Others are RGB:
u8[height, width, 3]. A file is grey by its format, not by its pixels. Images are turned
as their EXIF orientation says: cameras store those of a turned camera as it saw them.
"""

import hashlib
import io
import json
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.lib.format import open_memmap

from embedder.base.limits import check_room
from embedder.base.prefetch import parallel_map
from embedder.base.stages import report_stage
from embedder.disk.arrays import memory_map_npy
from embedder.disk.digests import check_digests, files_in, write_digests
from embedder.disk.files import name_file_in_errors, short_reason
from embedder.disk.folders import atomic_folder, remove_unfinished_folders
from embedder.errors import InputError, check_installed

if TYPE_CHECKING:
    from PIL import Image

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF")
"""Formats that are read, recognised by content: Pillow runs a program for others."""

Channels = Literal["auto", "1", "3"]
Mode = Literal["RGB", "L"]
Result = TypeVar("Result")

_FORMAT = 4  # version of the cache of decoded images
_GREY = ("1", "L", "LA", "La", "I;16", "I;16B", "I")  # modes of Pillow
_BATCH, _BATCH_BYTES = 64, 2**20  # images that a thread reads at once, at most
_log = logging.getLogger(__name__)


class StoredImage(NamedTuple):
    """An image in a larger file."""

    name: str  # for messages
    read: Callable[[], bytes]  # the encoded image

    def __str__(self) -> str:
        return self.name


ImageFile = Path | StoredImage


def decoded(
    files: Sequence[ImageFile],
    size: tuple[int, ...],
    workers: int,
    cache: Path | None,
    manifest: list[dict],
    check_unchanged: Callable[[], None] = lambda: None,
    channels: Channels = "auto",
) -> np.ndarray:
    """The images in `files`, u8[n, height, width], or u8[n, height, width, 3] of RGB.

    Args:
      size: height and width to scale to; (): all must have the size of the first.
      workers: threads that decode.
      cache: folder for the decoded images, mapped from a file there; None: in memory.
      manifest: describes the files, the key of the cache.
      check_unchanged: called when all are read; raises if `manifest` is outdated.
      channels: 1 or 3 of all images; auto: 1 if all files are grey, else 3.

    Raises:
      InputError: a file is no image or has another size, or the cache is damaged.
    """
    if cache is None:
        mode = mode_of(files, channels, workers)
        shape = (len(files), *image_shape(files[0], size, mode))
        needed = math.prod(shape)
        check_room(needed, f"{len(files)} images take", "give a smaller --image-size")
        images = _decode(files, size, mode, workers, np.empty(shape, np.uint8))
        check_unchanged()
        return images
    folder = decoded_folder(cache, size, channels, manifest)
    path = folder / "images.npy"
    remove_unfinished_folders(cache)
    if not folder.exists():
        mode = mode_of(files, channels, workers)
        shape = (len(files), *image_shape(files[0], size, mode))
        with atomic_folder(folder) as part:
            array = open_memmap(part / path.name, "w+", np.uint8, shape=shape)
            _decode(files, size, mode, workers, array)
            array.flush()
            del array
            check_unchanged()
            write_digests(part, files_in(part))
    try:
        check_digests(folder)  # reads all bytes once, as an epoch does
        return _mapped(path, len(files), size)
    except (FileNotFoundError, ValueError) as error:
        raise InputError(
            f"Cache file {path} is damaged ({error}): delete {folder} to make it anew."
        ) from error


def decoded_folder(
    cache: Path, size: tuple[int, ...], channels: Channels, manifest: list[dict]
) -> Path:
    """The folder of `cache` where `decoded` keeps images."""
    key = json.dumps([_FORMAT, size, channels, manifest]).encode()
    return cache / hashlib.sha256(key).hexdigest()[:16]


def _mapped(path: Path, num_images: int, size: tuple[int, ...]) -> np.ndarray:
    images = memory_map_npy(path)
    shape = images.shape[1:3]
    is_sized = images.ndim in (3, 4) and shape == (size or shape)
    if not is_sized or len(images) != num_images or images.dtype != np.uint8:
        raise InputError(
            f"it must hold {num_images} images of uint8, got {images.dtype}"
            f"{list(images.shape)}"
        )
    return images


def mode_of(files: Sequence[ImageFile], channels: Channels, workers: int) -> Mode:
    """The mode to read all files in; the log says so if they differ."""
    if channels != "auto":
        return "L" if channels == "1" else "RGB"
    num_grey = sum(parallel_map(is_grey, files, workers, _BATCH))
    if 0 < num_grey < len(files):
        _log.info(
            "%d of %d images are grey: all are read as RGB (--channels 1: as grey).",
            num_grey,
            len(files),
        )
    return "L" if num_grey == len(files) else "RGB"


def image_shape(file: ImageFile, size: tuple[int, ...], mode: Mode) -> tuple[int, ...]:
    """Shape of an image that `read_image` reads."""
    return read_image(file, size, mode).shape


def _decode(
    files: Sequence[ImageFile],
    size: tuple[int, ...],
    mode: Mode,
    workers: int,
    into: np.ndarray,
) -> np.ndarray:
    images = read_all(files, into.shape[1:], size, mode, workers)
    for number, image in enumerate(images):
        if image.shape != into.shape[1:]:
            raise size_error(files[number], image, files[0], into[0])
        into[number] = image
        if not number % 100:
            report_stage(f"reading {len(files):,} images: {number:,}")
    return into


def read_all(
    files: Sequence[ImageFile],
    shape: tuple[int, ...],
    size: tuple[int, ...],
    mode: Mode,
    workers: int,
) -> Iterator[np.ndarray]:
    """`read_image` of each file, in order, by threads; `shape` is that of an image.

    Small images are read by one thread: most of their time is Python's, in which two
    only wait for each other.
    """
    batch = min(_BATCH, max(1, _BATCH_BYTES // math.prod(shape)))
    workers = 1 if batch == _BATCH else workers
    return parallel_map(lambda x: read_image(x, size, mode), files, workers, batch)


def size_error(
    file: ImageFile, image: np.ndarray, first: ImageFile, of_first: np.ndarray
) -> InputError:
    """The error of an image with another size than the first one."""
    return InputError(
        f"{file} is {_size(image)}, and {first} {_size(of_first)}: give --image-size "
        "HEIGHT WIDTH."
    )


def read_image(
    file: ImageFile, size: tuple[int, ...] = (), mode: Mode = "RGB"
) -> np.ndarray:
    """The image in a file, u8[height, width, 3], or u8[height, width] of mode "L".

    Args:
      size: height and width to scale to; (): as it is.

    Raises:
      FileNotFoundError: there is no such file.
      InputError: it is damaged, too large, or has none of `FORMATS`.
    """

    def pixels(image: "Image.Image") -> np.ndarray:
        from PIL import Image

        limit = Image.MAX_IMAGE_PIXELS or math.inf  # Pillow refuses twice as many
        if image.width * image.height > limit:
            raise InputError(
                f"its {image.height} x {image.width} pixels are more than {limit}"
            )
        if image.mode == "F" or (image.mode == "I" and image.format == "TIFF"):
            raise InputError("its values have 32 bits: save it with 8 or 16")
        image = _upright(image)
        if image.mode in ("I;16", "I;16B"):  # Pillow would clip its values at 255
            image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        if image.mode != mode:
            image = image.convert(mode)
        if size and image.size != (size[1], size[0]):
            image = image.resize((size[1], size[0]), Image.Resampling.BILINEAR)
        return np.asarray(image)

    return _with_image(file, pixels)


def _upright(image: "Image.Image") -> "Image.Image":
    """The image as it is shown; without an orientation, or with a damaged one, it is
    `image`."""
    from PIL import ExifTags, Image

    image.load()  # raises what is wrong with the image
    try:
        orientation = image.getexif().get(ExifTags.Base.Orientation, 1)
    except Exception:  # nearly anything, as of a damaged image
        return image
    # `ImageOps.exif_transpose` writes the other tags anew, and fails if one is damaged.
    turns = Image.Transpose
    turn = {
        2: turns.FLIP_LEFT_RIGHT,
        3: turns.ROTATE_180,
        4: turns.FLIP_TOP_BOTTOM,
        5: turns.TRANSPOSE,
        6: turns.ROTATE_270,
        7: turns.TRANSVERSE,
        8: turns.ROTATE_90,
    }.get(orientation)
    return image if turn is None else image.transpose(turn)


def is_grey(file: ImageFile) -> bool:
    """Whether the format of an image has one channel, or a palette of greys.

    Raises:
      as `read_image`.
    """

    def has_one_channel(image: "Image.Image") -> bool:
        palette = image.getpalette("RGB") if image.mode == "P" else None
        if palette is None:
            return image.mode in _GREY
        colours = np.array(palette).reshape(-1, 3)
        return bool((colours == colours[:, :1]).all())

    return _with_image(file, has_one_channel)


def _with_image(file: ImageFile, function: "Callable[[Image.Image], Result]") -> Result:
    """`function` of the image in a file, whose pixels are read when they are used."""
    check_installed("PIL", f"The image {file}")
    from PIL import Image, UnidentifiedImageError

    try:
        path = Path(str(file))
        with name_file_in_errors(path):
            source = file if isinstance(file, Path) else io.BytesIO(file.read())
            with Image.open(source, formats=FORMATS) as image:
                return function(image)
    except FileNotFoundError:
        raise
    except UnidentifiedImageError:
        raise InputError(
            f"{file} is not a whole image: it must be {', '.join(FORMATS[:-1])} or "
            f"{FORMATS[-1]}, whatever its name says."
        ) from None
    except Exception as error:  # a damaged image raises nearly anything
        reason = short_reason(error)
        raise InputError(f"{file} is not a whole image: {reason}.") from error


def _size(image: np.ndarray) -> str:
    return f"{image.shape[0]} x {image.shape[1]}"
