"""Examples in tar archives, in the layout of webdataset (arXiv:2001.01858).

The files of an example have one name up to the first dot: KEY.jpg is its image, and
KEY.cls, KEY.json or KEY.txt its label. Archives are untrusted: nothing is unpacked to
disk, only regular files are read, and no more than an archive has.
"""

import functools
import io
import json
import os
import re
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from embedder.disk.files import name_file_in_errors, short_reason
from embedder.disk.kinds import IMAGES
from embedder.encoders.examples import (
    UNLABELLED,
    Decode,
    Examples,
    ExampleSet,
    Source,
    check_examples_fit,
    file_set,
    make_examples,
)
from embedder.encoders.images import StoredImage
from embedder.errors import InputError

_PACKED = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")
_LABELS = (".cls", ".json", ".txt")  # the first that an example has is its label
_LABEL_BYTES = 2**20  # of the file of a label, at most
_MEMBER_BYTES = 1000  # of memory for what is known of an example
_INTEGER = re.compile(r"-?\d{1,18}", re.ASCII)

Parts = dict[str, Callable[[], bytes]]
"""The files of an example by their endings, as functions that read them."""


class _Example(NamedTuple):
    path: Path  # of its archive
    key: str
    image: StoredImage
    label: str | None


def open_tar(source: Source) -> ExampleSet | None:
    """The examples in .tar files: one, those in a folder, or those of a glob.

    Raises:
      InputError: a file is packed, so that images cannot be read in any order.
    """
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
        *(source.stem, source, paths),
        lambda decode: read_tar(paths, decode, label, needs_labels),
    )


def read_tar(
    paths: Sequence[Path], decode: Decode, label: str, needs_labels: bool = True
) -> Examples:
    """The examples in archives, shuffled in a fixed order.

    The key of an example is KEY; NAME/KEY, with the name of its archive, if several
    archives have one KEY.

    Args:
      label: field of KEY.json with the label, a number or text.
      needs_labels: False: examples without a label will do.

    Raises:
      InputError: an archive is damaged, an example has several images or no label, or
        a key is twice in an archive or not UTF-8.
    """
    found: list[_Example] = []
    for path in paths:
        found += _examples(path, label)
        check_examples_fit(path, len(found) * _MEMBER_BYTES)
    if not found:
        raise InputError(f"{paths[0]} has no images ({', '.join(IMAGES)}).")
    for path, key, _, text in found:
        if text is None and needs_labels:
            raise InputError(
                f"{path}: {key!r} has no label: neither {key}.cls, nor {key}.txt, nor "
                f"{key}.json with the field {label!r}."
            )
    # Archives may be in the order of the classes, and the last ones validate.
    order = np.random.default_rng(0).permutation(len(found))
    found = [found[i] for i in order]
    keys = [each.key for each in found]
    if len({*keys}) < len(keys):
        keys = [f"{each.path.stem}/{each.key}" for each in found]
    images = decode([each.image for each in found])
    labels = _as_labels([each.label for each in found])
    return make_examples(images, labels, str(paths[0]), keys)


def _examples(path: Path, label: str) -> Iterator[_Example]:
    """The examples of an archive, in its order."""
    for key, parts in _parts(path).items():
        images = [end for end in IMAGES if end in parts]
        if len(images) > 1:
            both = " and ".join(images)
            raise InputError(f"{path}: {key!r} has several images, {both}.")
        if images:
            image = StoredImage(f"{path}: {key}{images[0]}", parts[images[0]])
            yield _Example(path, key, image, _label(path, key, parts, label))


def _parts(path: Path) -> dict[str, Parts]:
    """The files of an archive that belong to each key."""
    found: dict[str, Parts] = {}
    for member in _members(path):
        folder, slash, name = member.name.rpartition("/")
        start, dot, end = name.partition(".")
        ending = (dot + end).lower()
        if not start or ending not in (*IMAGES, *_LABELS):
            continue
        key = folder + slash + start
        if key.encode(errors="ignore").decode() != key:
            raise InputError(f"{path}: names must be UTF-8, got {member.name!r}.")
        parts = found.setdefault(key, {})
        if ending in parts:
            raise InputError(f"{path}: {member.name!r} is in it twice.")
        check_examples_fit(path, len(found) * _MEMBER_BYTES)
        limit = member.size if ending in IMAGES else min(member.size, _LABEL_BYTES + 1)
        parts[ending] = functools.partial(_read_part, path, member.offset_data, limit)
    return found


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
        return super().read(
            max(0, rest if size is None or size < 0 else min(size, rest))
        )


def _read_part(path: Path, offset: int, size: int) -> bytes:
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(size)


def _label(path: Path, key: str, parts: Parts, field: str) -> str | None:
    """The label of an example; None: it has none."""
    for ending in _LABELS:
        if ending not in parts:
            continue
        data = parts[ending]()
        name = f"{path}: {key}{ending}"
        if len(data) > _LABEL_BYTES:
            raise InputError(f"{name} has more than {_LABEL_BYTES} bytes.")
        try:
            text = data.decode()
            if ending != ".json":
                return text.strip()
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{name} is damaged: {short_reason(error)}.") from error
        if isinstance(value, dict) and isinstance(value.get(field), str | int):
            return str(value[field])
    return None


def _as_labels(texts: list[str | None]) -> np.ndarray | None:
    """Labels [n], as numbers if all are integers; None: no example has one."""
    named = [UNLABELLED if text is None else text for text in texts]
    if all(text is None for text in texts):
        return None
    if all(map(_INTEGER.fullmatch, named)):
        return np.array([int(text) for text in named])
    return np.array(named)
