"""Examples to train an encoder on, whatever format they are read from.

They are read once, before anything random: into memory or, decoded images, into a file
that is mapped into memory. A format is a module with a function from a `Source` to an
`ExampleSet`; formats.py lists them.
"""

import collections
import glob
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from embedder.base.limits import check_room
from embedder.config.encoder_options import EncoderOptions
from embedder.data.examples.images import ImageFile, decoded, decoded_folder, mode_of
from embedder.data.examples.lazy_images import LazyImages, is_too_large
from embedder.disk.files import watched_files
from embedder.errors import InputError

MAX_PACKING = 1032
"""Bytes that gzip packs into one, at most."""

UNLABELLED = "unlabelled"
"""The class of examples without a label."""

_CHUNK = 2**24  # bytes that are checked at once
_ROW_BYTES = 100  # of memory for the label and the key of an example
_MANY = 64  # features of an example of two axes that may be pixels
_BRIGHT = 128  # the largest of such features, at least
_SPLIT = re.compile("(train|test|val|valid|validation|dev|eval)(ing)?(?![a-z])")
_log = logging.getLogger(__name__)


class Examples(NamedTuple):
    """Examples with labels."""

    features: np.ndarray  # [n, ...], u8 (0 to 255, scaled to 0 to 1), f32 or f64
    labels: np.ndarray  # i32[n], indices into `classes`
    classes: list[str]  # sorted
    keys: list[str]  # [n], a name of each
    columns: tuple[str, ...] = ()  # [F], names of features [n, F]; (): none known


class ExampleSet(NamedTuple):
    """Examples that are found, but not read yet."""

    name: str
    source: str
    manifest: list[dict[str, Any]]  # describes the files, to notice changes
    read: Callable[[Path | None], Examples]  # given a folder for decoded images


class Source(NamedTuple):
    """What a user names as examples, and the settings to read it by."""

    name: str  # as the user gives it
    options: EncoderOptions
    workers: int  # threads that decode images
    needs_labels: bool = True  # else examples without labels are `UNLABELLED`
    columns: tuple[str, ...] = ()  # those that an encoder takes; (): all

    @property
    def path(self) -> Path:
        return Path(self.name)

    @property
    def stem(self) -> str:
        """A name of the data: that of the folder, or of the file up to a dot."""
        if self.path.is_dir():
            return self.path.resolve().name
        is_file = self.path.exists()
        path = self.path if is_file else self.path.parent.resolve()
        return path.name.split(".")[0] if is_file else path.name

    def files(self, ending: str | tuple[str, ...]) -> list[Path]:
        """The files with an ending that are named: one, those in a folder, or those
        that match a glob; of names that begin with "train" and with "test" or "val",
        the first only."""
        if self.path.is_dir():
            paths = sorted(self.path.iterdir())
        elif self.path.exists():
            paths = [self.path]
        else:
            paths = sorted(Path(each) for each in glob.glob(self.name, recursive=True))
        paths = [
            path
            for path in paths
            if path.name.lower().endswith(ending)
            and not path.name.startswith(".")
            and not path.is_dir()
        ]
        parts = [split_of(path.name) for path in paths]
        if "train" not in parts or {*parts} <= {"train", ""}:
            return paths
        train = [x for x, part in zip(paths, parts, strict=True) if part == "train"]
        if ending:
            others = [path.name for path in paths if path not in train]
            _log.warning(
                "%s: files beside those of train, left out: %d (%s).",
                *(self.name, len(others), ", ".join(others[:5])),
            )
        return train


def split_of(name: str) -> str:
    """The part of data that a file or folder of this name is, as "train"; "": none."""
    match = _SPLIT.match(name.lower())
    return match[1] if match else ""


def log_left_out(where: str, endings: Iterable[str]) -> None:
    """Logs how many files are no images that are read, given the endings of all."""
    counts = collections.Counter(endings)
    if counts:
        shown = [f"{end or 'no ending'} {num}" for end, num in counts.most_common(5)]
        _log.warning(
            "%s: files that are no images that are read, left out: %d (%s).",
            *(where, counts.total(), ", ".join(shown)),
        )


Decode = Callable[[Sequence[ImageFile]], np.ndarray]
"""Encoded images to u8[n, height, width] or u8[n, height, width, 3]."""


def image_decoder(
    source: Source,
    cache: Path | None,
    manifest: list[dict[str, Any]],
    check: Callable[[], None],
) -> Decode:
    """Decodes images as the settings of `source` say: `decoded`, or `LazyImages`."""
    options, workers = source.options, source.workers

    def decode(files: Sequence[ImageFile]) -> np.ndarray:
        size, channels = options.image_size, options.channels
        is_lazy = options.decode == "each"
        if options.decode == "auto" and cache is not None:
            is_cached = decoded_folder(cache, size, channels, manifest).exists()
            num = len(files)
            is_lazy = not is_cached and is_too_large(files[0], size, num, cache)
        if not is_lazy:
            return decoded(files, size, workers, cache, manifest, check, channels)
        if options.decode == "auto":
            _log.info("%d images are decoded each time they are used.", len(files))
        mode = mode_of(files, channels, workers)
        return cast(np.ndarray, LazyImages(files, size, mode, workers, check))

    return decode


def file_set(
    source: Source, paths: list[Path], read: Callable[[Decode], Examples]
) -> ExampleSet:
    """The examples that `read` reads from `paths`, which must not change meanwhile.
    Raises InputError if one of them is no regular file."""
    for path in paths:
        if not path.is_file():
            raise InputError(f"DATA {path} must be a regular file.")
    manifest, check = watched_files(paths)

    def read_unchanged(cache: Path | None) -> Examples:
        examples = read(image_decoder(source, cache, manifest, check))
        check()
        return examples

    return ExampleSet(source.stem, source.name, manifest, read_unchanged)


def make_examples(
    features: np.ndarray,
    labels: np.ndarray | None,
    where: str,
    keys: list[str] | None = None,
) -> Examples:
    """Examples from arrays of any numbers and labels, converted and checked.

    Args:
      features: [n, ...].
      labels: [n] or [n, 1], numbers or text; None: all are `UNLABELLED`. Floats of
        which each is whole are integers: 2.0 is the class 2.
      where: names the arrays in messages.
      keys: None: the numbers of the rows.

    Raises:
      InputError: the arrays do not fit each other or memory, or have values that
        cannot be trained on.
    """
    if not isinstance(features, LazyImages):
        features = np.asanyarray(features)  # keeps a memmap
    if labels is None:
        labels = np.full(len(features) if features.ndim else 0, UNLABELLED)
    labels = np.asarray(labels)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if features.ndim < 2 or labels.shape != features.shape[:1] or not features.size:
        raise InputError(
            f"{where}: features must be [n, ...] and labels [n], got "
            f"{list(features.shape)} and {list(labels.shape)}."
        )
    check_examples_fit(where, len(labels) * _ROW_BYTES)
    features = _numbers(features, where)
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise InputError(f"{where}: labels must be finite.")
    if labels.dtype.kind == "f" and (labels % 1 == 0).all():  # as programs make them
        whole = labels.astype(np.int64)
        labels = whole if (whole == labels).all() else labels
    if labels.dtype.kind == "O":
        labels = labels.astype(str)
    if labels.dtype.kind == "U":
        _check_text(labels, where)
    if labels.dtype.kind not in "iubfU":
        raise InputError(
            f"{where}: labels must be numbers or text, got {labels.dtype}."
        )
    classes, indices = np.unique(labels, return_inverse=True)
    names = keys if keys is not None else [str(i) for i in range(len(labels))]
    return Examples(features, indices.astype(np.int32), [*map(str, classes)], names)


def name_difference(expected: Sequence[str], actual: Sequence[str]) -> str:
    """How names differ, as "lack a and have b"; at most 20 of each."""
    parts = []
    for verb, some, others in (("lack", expected, actual), ("have", actual, expected)):
        names = [name for name in some if name not in {*others}]
        more = f" and {len(names) - 20} more" if len(names) > 20 else ""
        if names:
            parts.append(f"{verb} {', '.join(names[:20])}{more}")
    return " and ".join(parts)


def check_examples_fit(where: str | Path, needed: int) -> None:
    """Raises InputError if `needed` bytes do not fit in memory."""
    check_room(needed, f"{where}: reading it takes", "give a part of it")


def _check_text(labels: np.ndarray, where: str) -> None:
    """Checks before training that labels can be written: NumPy takes any code point."""
    try:
        labels.astype(labels.dtype.newbyteorder("<")).tobytes().decode("utf-32-le")
    except UnicodeDecodeError as error:
        row = error.start // labels.dtype.itemsize
        raise InputError(
            f"{where}: labels must be valid Unicode, got {error.reason} in row {row}."
        ) from error


def _numbers(features: np.ndarray, where: str) -> np.ndarray:
    """Features of u8, f32 and f64 unchanged; others as f32, or f64 if wider."""
    if features.dtype.kind not in "iubf":
        raise InputError(f"{where}: features must be numbers, got {features.dtype}.")
    if features.dtype == np.uint8:
        return features
    warn_of_pixels(features, where)
    wide = np.float64 if features.dtype.itemsize > 4 else np.float32
    with np.errstate(over="ignore"):  # infinity is refused below
        converted = np.ascontiguousarray(features, wide)
    for start, rows in _chunks(converted):
        finite = np.isfinite(rows.reshape(len(rows), -1)).all(axis=1)
        if not finite.all():
            row = start + int(np.flatnonzero(~finite)[0])
            raise InputError(f"{where}: row {row} has features that are not finite.")
    return converted


def may_be_pixels(features: np.ndarray) -> bool:
    """Whether features [n, ...] seem to be pixels in another dtype than u8: whole
    numbers from 0 to 255, some at least 128, and many to an example."""
    if features.dtype == np.uint8 or features.dtype.kind not in "iuf":
        return False
    if not features.size or (features.ndim < 3 and features.shape[1] < _MANY):
        return False
    largest = 0
    for _, rows in _chunks(features):
        if not (rows.min() >= 0 and rows.max() <= 255):  # NaN, too
            return False
        if rows.dtype.kind == "f" and (rows != np.floor(rows)).any():
            return False
        largest = max(largest, int(rows.max()))
    return largest >= _BRIGHT


def without_channel(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of an example, without the last axis of a grey image."""
    return shape[:2] if len(shape) == 3 and shape[2] == 1 else shape


def warn_of_pixels(features: np.ndarray, where: str) -> None:
    """Logs that features [n, ...] which may be pixels are not scaled, if so it is."""
    is_wide = features.dtype == np.uint16 and features.ndim > 2
    if is_wide or may_be_pixels(features):
        _log.warning(
            "%s: features are whole numbers from 0 to %s, and are taken as they are. "
            "If they are pixels, save them as uint8%s, which is scaled to 0 to 1.",
            *(where, 65535 if is_wide else 255, " (X >> 8)" if is_wide else ""),
        )


def _chunks(array: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Consecutive rows of `array`, with the number of the first."""
    rows = max(1, _CHUNK // max(1, array[:1].nbytes))
    for start in range(0, len(array), rows):
        yield start, array[start : start + rows]
