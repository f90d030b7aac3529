"""What a finished run, or a file of vectors, has for the verbs that look things up."""

import contextlib
import dataclasses
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from embedder.base.terminal import LogStream, say, showing_log
from embedder.disk.urls import is_url, without_secrets
from embedder.errors import InputError, InputNotFoundError

if TYPE_CHECKING:
    from embedder.disk.workdir import Workdir
    from embedder.metrics.next_item_scores import NextItems
    from embedder.vectors.ensemble import Ensemble
    from embedder.vectors.key_rows import KeyErrors
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
    from embedder.disk.remote_run import copy_of_results

    with _showing_log():
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
    from embedder.disk.workdir import Workdir

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


def vectors_of(path: Path, key_errors: "KeyErrors" = "strict") -> "Vectors":
    """The vectors of a run, or of a file.

    Args:
      key_errors: of a file; what is left out is told in a line.

    Raises:
      InputError: see `finished_run` and `read_vectors`.
    """
    from embedder.vectors.export import read_vectors

    run = finished_run(path)
    if run is None:
        with _showing_log():
            return _vectors_of_file(path, key_errors)
    vectors = read_vectors(run.vectors)
    if not (run.model.exists() and run.is_started):
        return vectors
    from embedder.config import read_toml
    from embedder.disk.arrays import npz_has

    if npz_has(run.model, "attribute_keys"):  # see `tokens.artefact`
        return dataclasses.replace(vectors, attributes=lambda: _model_rows(run)[1])
    if getattr(read_toml(run.config).family, "subwords", ()):
        return dataclasses.replace(vectors, ngrams=lambda: _model_rows(run)[0])
    return vectors


def _vectors_of_file(path: Path, key_errors: "KeyErrors") -> "Vectors":
    """The vectors in a file, also of `EmbeddingTrainer.save`."""
    from embedder.disk.arrays import npz_has
    from embedder.vectors.export import read_vectors

    if path.suffix.lower() != ".npz" or not npz_has(path, "loss_history"):
        return read_vectors(path, key_errors)
    from embedder.tokens.artefact import read_model
    from embedder.vectors.vectors import Vectors

    model = read_model(path)
    vectors = Vectors(model.tokens, model.input, model.counts, model.key_type)
    if (attributes := model.attribute_rows) is not None:
        return dataclasses.replace(vectors, attributes=lambda: attributes)
    if (ngrams := model.ngrams) is not None:
        return dataclasses.replace(vectors, ngrams=lambda: ngrams)
    return vectors


def _model_rows(run: "Workdir") -> tuple[Any, Any]:
    """The rows of n-grams and of attributes in the model file of a run.

    Raises:
      InputError: it has neither.
    """
    from embedder.tokens.artefact import read_model

    model = read_model(run.model)
    if model.subwords is None:
        raise InputError(f"{run.model} has no rows that tokens share.")
    return model.ngrams, model.attribute_rows


def read_vectors(
    path: str | os.PathLike[str],
    *,
    index: Literal["auto", "none"] | None = None,
    key_errors: "KeyErrors" = "strict",
) -> "Vectors":
    """The vectors of a finished run, by its folder, or in a file that `write_vectors`,
    `EmbeddingTrainer.save`, gensim, word2vec.c or GloVe wrote.

    Args:
      index: "auto": queries use the index of the run or the file where that is there
        and fresh, see `Vectors.use_index`; "none": queries are exact. None: "auto" of
        a folder, "none" of a file.
      key_errors: of a file of word2vec or GloVe, for rows whose key is repeated, white
        space or not UTF-8. "strict": InputError. "skip": they are left out; of a
        repeated key the first row stays. "replace": as "skip", but bytes that are not
        UTF-8 become U+FFFD. How many is logged.

    Raises:
      InputNotFoundError: there is no such file, or no finished run in the folder.
      InputEndError: a word2vec file ends too early.
      InputError: the ending, `index` or `key_errors` is unknown, or a file is damaged.
    """
    from embedder.disk.workdir import Workdir

    path = Path(path)
    is_folder = path.is_dir()
    if index not in ("auto", "none", None):
        raise InputError(f"`index` must be 'auto' or 'none', got {index!r}.")
    if key_errors not in ("strict", "skip", "replace"):
        raise InputError(
            f"`key_errors` must be strict, skip or replace, got {key_errors!r}."
        )
    if is_folder and not Workdir(path).is_finished:
        raise InputNotFoundError(
            f"`path` must be a file of vectors or a finished run, got the folder {path}"
            "."
        )
    if is_folder:
        vectors = with_key_type(vectors_of(path), path)
    else:
        vectors = _vectors_of_file(path, key_errors)
    if index == "auto" or (index is None and is_folder):
        vectors.use_index(path)
    return vectors


def indexed_vectors_of(path: Path, key_errors: "KeyErrors" = "strict") -> "Vectors":
    """The vectors of a run, or of a file, which use its index if that is fresh.

    An index that cannot be used is named in one line.
    """
    vectors = vectors_of(path, key_errors)
    with _showing_log():
        vectors.use_index(path)
    return vectors


def _showing_log() -> contextlib.AbstractContextManager[None]:
    """Prints what the body logs, a line each."""
    return showing_log(lambda message: say(message, LogStream(sys.stderr)))


def ensemble_of(path: Path, key_type: "KeyType" = "text") -> "Ensemble | None":
    """The ensemble of a run with replicas; None for other runs, and files."""
    from embedder.vectors.ensemble_files import read_ensemble

    run = finished_run(path)
    if run is None or not run.replicas.exists():
        return None
    return read_ensemble(run.replicas, key_type)


def key_type_of(path: Path) -> "KeyType":
    """The type that the keys of a run had in the data; of a file "text"."""
    from embedder.disk.run_record import has_integer_keys

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
    from embedder.disk.workdir import Workdir

    return Workdir(run).labels.exists()


def labels_of(run: Path) -> dict[str, str]:
    """Example -> label, of a run of an encoder; empty for a run of tables, or without
    labels."""
    if not is_encoder_run(run):
        return {}
    from embedder.data.examples.examples import UNLABELLED
    from embedder.encoders.predicted_labels import read_labels

    frame = read_labels(run, ["key", "label"])
    if (frame["label"] == UNLABELLED).all():
        return {}
    return dict(zip(frame["key"], frame["label"], strict=True))


def read_next_items(run: str | os.PathLike[str]) -> "NextItems":
    """What comes next in a session, by a finished run that was trained with
    `next_items`, as --preset items does; `run` may be a URL.

    Raises:
      OSError, InputError: there is no such run, it keeps nothing for this, or a file of
        it is damaged.
    """
    from embedder.metrics.next_item_scores import SessionCounts, read_weights
    from embedder.tokens.artefact import read_model
    from embedder.tokens.session_counts import next_items_of

    with opened_run(os.fspath(run), with_model=True) as path:
        workdir = finished_run(path)
        if workdir is None or not (
            workdir.counts.exists() and workdir.mixture.exists()
        ):
            raise InputNotFoundError(
                f"RUN {path} has no counts of sessions: train it with --next-items, or "
                "with --preset items."
            )
        model = read_model(workdir.model)
        counts = SessionCounts.read(workdir.counts, len(model.tokens))
        weights = read_weights(workdir.mixture)
        return next_items_of(model, counts, weights)
