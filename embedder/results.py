"""What a finished run, or a file of vectors, has for the verbs that look things up."""

import contextlib
import dataclasses
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from embedder.disk.urls import is_url, without_secrets
from embedder.errors import InputError, InputNotFoundError
from embedder.terminal import LogStream, say, showing_log

if TYPE_CHECKING:
    from embedder.run.workdir import Workdir
    from embedder.vectors.ensemble import Ensemble
    from embedder.vectors.subwords import Ngrams
    from embedder.vectors.vectors import KeyType, Vectors


@contextlib.contextmanager
def opened_run(run: str, *, with_model: bool = False) -> Iterator[Path]:
    """The path of RUN, a run or a file of vectors; of a URL that of its copy.

    Input errors of the body name the URL in place of the copy.

    Args:
      with_model: of a run at a URL the model file is copied, too.

    Raises:
      OSError, InputError: `run` is empty, or its URL cannot be copied.
    """
    if not run:
        raise InputError("`RUN` must be a path or a URL, got ''.")
    if not is_url(run) or Path(run).exists():
        yield Path(run)
        return
    from embedder.run.remote_run import copy_of_results

    with showing_log(lambda message: say(message, LogStream(sys.stderr))):
        path = copy_of_results(run, with_model=with_model)
    try:
        yield path
    except InputError as error:
        text = str(error.args[0])
        if run.endswith(str(path)) or str(path) not in text:  # file:// has no copy
            raise
        text = text.replace(str(path), without_secrets(run))
        raise type(error)(text) from error


def finished_run(path: Path) -> "Workdir | None":
    """The run at `path`; None if that is a file.

    Raises:
      InputNotFoundError: there is no file, and no finished run.
    """
    from embedder.run.workdir import Workdir

    if not path.exists():
        raise InputNotFoundError(f"RUN {path} does not exist.")
    if not path.is_dir():
        return None
    run = Workdir(path)
    if not run.is_finished:
        raise InputNotFoundError(
            f"RUN {path} holds no finished run: {run.vectors} is missing."
        )
    return run


def vectors_of(path: Path) -> "Vectors":
    """The vectors of a run, or of a file.

    Raises:
      InputError: see `finished_run` and `read_vectors`.
    """
    from embedder.vectors.export import read_vectors

    run = finished_run(path)
    if run is None:
        return read_vectors(path)
    vectors = read_vectors(run.vectors)
    if not run.model.exists() or not _has_subwords(run):
        return vectors
    return dataclasses.replace(vectors, ngrams=lambda: _ngrams_of(run))


def _has_subwords(run: "Workdir") -> bool:
    """Whether unknown words have vectors."""
    from embedder.config import read_toml

    return run.is_started and bool(
        getattr(read_toml(run.config).family, "subwords", ())
    )


def _ngrams_of(run: "Workdir") -> "Ngrams":
    from embedder.tables.artefact import read_model

    found = read_model(run.model).ngrams
    if found is None:
        raise InputError(f"{run.model} has no rows of n-grams.")
    return found


def read_vectors(
    path: str | os.PathLike[str], *, index: Literal["auto", "none"] | None = None
) -> "Vectors":
    """The vectors of a finished run, by its folder, or in a file that `write_vectors`,
    gensim, word2vec.c or GloVe wrote.

    Args:
      index: "auto": queries use the index of the run or the file where that is there
        and fresh, see `Vectors.use_index`; "none": queries are exact. None: "auto" of
        a folder, "none" of a file.

    Raises:
      InputNotFoundError: there is no such file, or no finished run in the folder.
      InputEndError: a word2vec file ends too early.
      InputError: the ending or `index` is unknown, or a file is damaged.
    """
    from embedder.run.workdir import Workdir
    from embedder.vectors.export import read_vectors as read_file

    path = Path(path)
    is_folder = path.is_dir()
    if index not in ("auto", "none", None):
        raise InputError(f"`index` must be 'auto' or 'none', got {index!r}.")
    if is_folder and not Workdir(path).is_finished:
        raise InputNotFoundError(
            f"`path` must be a file of vectors or a finished run, got the folder {path}"
            "."
        )
    found = with_key_type(vectors_of(path), path) if is_folder else read_file(path)
    if index == "auto" or (index is None and is_folder):
        found.use_index(path)
    return found


def indexed_vectors_of(path: Path) -> "Vectors":
    """The vectors of a run, or of a file, which use its index if that is fresh.

    An index that cannot be used is named in one line.
    """
    vectors = vectors_of(path)
    with showing_log(lambda message: say(message, LogStream(sys.stderr))):
        vectors.use_index(path)
    return vectors


def ensemble_of(path: Path, key_type: "KeyType" = "text") -> "Ensemble | None":
    """The ensemble of a run with replicas; None for other runs, and files."""
    from embedder.vectors.ensemble_files import read_ensemble

    run = finished_run(path)
    if run is None or not run.replicas.exists():
        return None
    return read_ensemble(run.replicas, key_type)


def key_type_of(path: Path) -> "KeyType":
    """The type that the keys of a run had in the data; of a file "text"."""
    from embedder.run.inputs import has_integer_keys

    run = finished_run(path)
    is_integer = run is not None and run.is_started and has_integer_keys(run)
    return "integer" if is_integer else "text"


def with_key_type(vectors: "Vectors", path: Path) -> "Vectors":
    """The vectors of a run, with the type that its keys had in the data."""
    if key_type_of(path) == "text":
        return vectors
    return dataclasses.replace(vectors, key_type="integer")


def needs_replicas(argument: str, run: Path) -> InputError:
    """The error of an argument that applies only to runs with replicas."""
    tokens = " of tokens" if is_encoder_run(run) else ""
    return InputError(
        f"{argument} applies only to a run{tokens} with replicas, got {run}."
    )


def is_encoder_run(run: Path) -> bool:
    """Whether `run` is the folder of a finished run of an encoder."""
    from embedder.run.workdir import Workdir

    return Workdir(run).labels.exists()


def labels_of(run: Path) -> dict[str, str]:
    """Example -> label, of a run of an encoder; empty for a run of tables, or without
    labels."""
    if not is_encoder_run(run):
        return {}
    from embedder.encoders.examples import UNLABELLED
    from embedder.encoders.labels import read_labels

    frame = read_labels(run, ["key", "label"])
    if (frame["label"] == UNLABELLED).all():
        return {}
    return dict(zip(frame["key"], frame["label"], strict=True))
