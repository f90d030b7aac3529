"""Examples in .npz files of NumPy."""

import zipfile
import zlib
from pathlib import Path

from embedder.disk.arrays import read_npz_array
from embedder.disk.files import name_file_in_errors, short_reason
from embedder.encoders.examples import (
    MAX_PACKING,
    Examples,
    ExampleSet,
    Source,
    check_examples_fit,
    file_set,
    make_examples,
)
from embedder.errors import InputError
from embedder.limits import NoRoomError


def open_npz(source: Source) -> ExampleSet | None:
    """The examples in an .npz file."""
    path, options = source.path, source.options
    if path.suffix != ".npz" or path.is_dir():
        return None
    return file_set(
        *(source.stem, source, [path]),
        lambda _: read_npz(path, options.label, source.needs_labels),
    )


def read_npz(path: Path, label: str = "label", needs_labels: bool = True) -> Examples:
    """Examples from two arrays: x_train and y_train, X and y, or features and labels.

    Args:
      label: name of the array of labels, if it is none of these; the features are then
        the one other array, or one of these.
      needs_labels: False: features without labels will do, if there is no such pair.

    Raises:
      InputError: there are no two such arrays, or they do not hold examples.
    """
    pairs = [("x_train", "y_train"), ("X", "y"), ("x", "y"), ("features", "labels")]
    try:
        with name_file_in_errors(path), zipfile.ZipFile(path) as archive:
            names = [n.removesuffix(".npy") for n in archive.namelist()]
            others = [name for name in names if name != label]
            if label in names and len(others) == 1:
                pairs.insert(0, (others[0], label))
            elif label != "label":  # asked for: no other labels will do
                pairs = [(name, label) for name, _ in pairs]
            pair: tuple[str, ...] | None = next(
                (p for p in pairs if {*p} <= {*names}), None
            )
            if pair is None and not needs_labels:
                pair = _only_features(names, [name for name, _ in pairs])
            if pair is None:
                raise InputError(f"it has {names}, and no pair of {pairs}")
            members = [archive.getinfo(f"{name}.npy") for name in pair]
            bounds = [min(x.file_size, MAX_PACKING * x.compress_size) for x in members]
            check_examples_fit(path, 2 * sum(bounds))
            features, *labels = (read_npz_array(archive, name) for name in pair)
    except NoRoomError:
        raise
    except (
        *(zipfile.BadZipFile, KeyError, ValueError, EOFError, zlib.error),
        RuntimeError,  # encrypted
    ) as error:
        reason = short_reason(error)
        raise InputError(f"{path} has no features and labels: {reason}.") from error
    return make_examples(features, labels[0] if labels else None, str(path))


def _only_features(names: list[str], usual: list[str]) -> tuple[str] | None:
    """The one array of a file, or the first with a usual name of features."""
    if len(names) == 1:
        return (names[0],)
    return next(((name,) for name in usual if name in names), None)
