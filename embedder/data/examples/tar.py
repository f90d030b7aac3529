"""Examples in tar archives, in the layout of webdataset (arXiv:2001.01858).

The files of an example have one name up to the first dot: KEY.jpg is its image, and
KEY.cls, KEY.json or KEY.txt its label. Archives are untrusted: nothing is unpacked to
disk, only regular files are read, and no more than an archive has.
"""

import functools
import io
import json
import logging
import math
import os
import re
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from embedder.config.encoder_options import EncoderOptions
from embedder.data.examples.examples import (
    UNLABELLED,
    Decode,
    Examples,
    ExampleSet,
    Source,
    check_examples_fit,
    file_set,
    log_left_out,
    make_examples,
)
from embedder.data.examples.images import StoredImage
from embedder.disk.files import (
    IMAGES,
    is_image_name,
    is_utf8,
    name_file_in_errors,
    short_reason,
)
from embedder.errors import InputError

_PACKED = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")
_LABELS = (".cls", ".json", ".txt")  # the first that an example has is its label
_LABEL_BYTES = 2**20  # of the file of a label, at most
_MEMBER_BYTES = 1000  # of memory for what is known of an example
_log = logging.getLogger(__name__)
_INTEGER = re.compile(r"-?\d{1,18}", re.ASCII)

Parts = dict[str, Callable[[], bytes]]
"""The files of an example by their endings, as functions that read them."""


class _Example(NamedTuple):
    path: Path  # of its archive
    key: str
    image: StoredImage
    kind: str  # the ending of the file of its label; "": it has none
    label: str | None


def open_tar(source: Source) -> ExampleSet | None:
    """The examples in .tar files: one, those in a folder, or those of a glob. Raises
    InputError if a file is packed, so that images cannot be read in any order."""
    if packed := [path for end in _PACKED for path in source.files(end)]:
        raise InputError(
            f"DATA {packed[0]} is a compressed archive: unpack it to .tar first. "
            "Images are compressed already."
        )
    paths = source.files(".tar")
    if not paths:
        return None
    label, needs_labels = source.options.label, source.needs_labels
    return file_set(
        source, paths, lambda decode: read_tar(paths, decode, label, needs_labels)
    )


def read_tar(
    paths: Sequence[Path], decode: Decode, label: str, needs_labels: bool = True
) -> Examples:
    """The examples in archives, shuffled in a fixed order.

    The key of an example is KEY; NAME/KEY, with the name of its archive, if several
    archives have one KEY.

    Args:
      label: field of KEY.json with the label, a number or text; if it is named, or some
        examples have it, all must.
      needs_labels: False: examples without a label will do.

    Raises:
      InputError: an archive is damaged, an example has several images or no label, or
        a key is twice in an archive or not UTF-8.
    """
    examples: list[_Example] = []
    for path in paths:
        examples += _examples(path, label)
        check_examples_fit(path, len(examples) * _MEMBER_BYTES)
    if not examples:
        raise InputError(f"{paths[0]} has no images ({', '.join(IMAGES)}).")
    if needs_labels:
        _check_labels(examples, label)
    # Archives may be in the order of the classes, and the last ones validate.
    order = np.random.default_rng(0).permutation(len(examples))
    examples = [examples[i] for i in order]
    keys = [each.key for each in examples]
    if len({*keys}) < len(keys):
        keys = [f"{each.path.stem}/{each.key}" for each in examples]
    images = decode([each.image for each in examples])
    labels = _as_labels([each.label for each in examples])
    return make_examples(images, labels, str(paths[0]), keys)


def _check_labels(examples: list[_Example], field: str) -> None:
    """Checks that all examples have a label, and that captions are not taken for it."""
    is_field = _is_named(field) or any(each.kind == ".json" for each in examples)
    for path, key, _, kind, _ in examples:
        if kind == "" and not is_field:
            raise InputError(
                f"{path}: {key!r} has no label: neither {key}.cls, nor {key}.txt, nor "
                f"{key}.json with the field {field!r}."
            )
        if is_field and kind != ".json":
            others = "" if _is_named(field) else ", as others have"
            raise InputError(
                f"{path}: {key!r} has no label: no {key}.json with the field "
                f"{field!r}{others}."
            )


def _is_named(field: str) -> bool:
    return field != EncoderOptions.label


def _examples(path: Path, label: str) -> Iterator[_Example]:
    """The examples of an archive, in its order; the log says what is left out."""
    without = 0
    for key, parts in _parts(path).items():
        images = [end for end in IMAGES if end in parts]
        without += not images
        if len(images) > 1:
            both = " and ".join(images)
            raise InputError(f"{path}: {key!r} has several images, {both}.")
        if images:
            image = StoredImage(f"{path}: {key}{images[0]}", parts[images[0]])
            yield _Example(path, key, image, *_label(path, key, parts, label))
    if without:
        _log.warning("%s: examples without an image, left out: %d.", path, without)


def _parts(path: Path) -> dict[str, Parts]:
    """The files of an archive that belong to each key."""
    parts_of_key: dict[str, Parts] = {}
    others: list[str] = []
    dotted: list[str] = []
    for member in _members(path):
        folder, slash, name = member.name.rpartition("/")
        start, dot, end = name.partition(".")
        ending = (dot + end).lower()
        if not start or ending not in (*IMAGES, *_LABELS):
            if start and dot and is_image_name(name):
                dotted.append(name)
            elif start and dot:
                others.append(Path(name).suffix.lower())
            continue
        key = folder + slash + start
        if not is_utf8(key):
            raise InputError(f"{path}: names must be UTF-8, got {member.name!r}.")
        parts = parts_of_key.setdefault(key, {})
        if ending in parts:
            raise InputError(f"{path}: {member.name!r} is in it twice.")
        check_examples_fit(path, len(parts_of_key) * _MEMBER_BYTES)
        limit = member.size if ending in IMAGES else min(member.size, _LABEL_BYTES + 1)
        parts[ending] = functools.partial(_read_part, path, member.offset_data, limit)
    log_left_out(str(path), others)
    if dotted:
        _log.warning(
            "%s: %d images are left out, as %s: the key of an example ends at the "
            "first dot, and the rest must be the ending of an image.",
            *(path, len(dotted), dotted[0]),
        )
    return parts_of_key


def _members(path: Path) -> Iterator[tarfile.TarInfo]:
    """The regular files in an archive."""
    size = os.path.getsize(path)
    try:
        with (
            name_file_in_errors(path),
            _Bounded(io.FileIO(path)) as file,
            tarfile.open(fileobj=file, mode="r:") as archive,
        ):
            while member := archive.next():
                if member.sparse is not None or member.offset_data + member.size > size:
                    raise InputError(f"{member.name!r} claims {member.size} bytes")
                if member.isreg():
                    yield member
                archive.members.clear()  # type: ignore[attr-defined]  # it keeps all
    except (tarfile.TarError, ValueError, EOFError, OverflowError) as error:
        reason = short_reason(error)
        raise InputError(f"{path} is not a whole .tar file: {reason}.") from error


class _Bounded(io.BufferedReader):
    """A file for tarfile, which else asks for as many bytes as a header claims."""

    def read(self, size: int | None = -1) -> bytes:
        rest = os.fstat(self.fileno()).st_size - self.tell()
        most = rest if size is None or size < 0 else min(size, rest)
        return super().read(max(0, most))


def _read_part(path: Path, offset: int, size: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(size)


def _label(path: Path, key: str, parts: Parts, field: str) -> tuple[str, str | None]:
    """The label of an example and the ending of its file; None: it has none."""
    for ending in (".json",) if _is_named(field) else _LABELS:
        if ending not in parts:
            continue
        data = parts[ending]()
        name = f"{path}: {key}{ending}"
        if len(data) > _LABEL_BYTES:
            raise InputError(f"{name} has more than {_LABEL_BYTES} bytes.")
        try:
            text = data.decode()
            if ending != ".json":
                return ending, text.strip()
            fields = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{name} is damaged: {short_reason(error)}.") from error
        value = fields.get(field) if isinstance(fields, dict) else None
        if isinstance(value, float) and math.isfinite(value):
            value = int(value) if value.is_integer() else str(value)
        if isinstance(value, str | int):
            return ending, str(value)
    return "", None


def _as_labels(texts: list[str | None]) -> np.ndarray | None:
    """Labels [n], as numbers if all are integers; None: no example has one."""
    if all(text is None for text in texts):
        return None
    named = [UNLABELLED if text is None else text for text in texts]
    are_integers = all(map(_INTEGER.fullmatch, named))
    return np.array([*map(int, named)] if are_integers else named)
