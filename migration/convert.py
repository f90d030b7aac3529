"""Converts model files of `legacy` to runs of `embedder train` and back, bit-exact."""

import os
import shutil
from pathlib import Path

from embedder.config import Config, resolve, with_options
from embedder.data.vocabulary import Vocabulary, write_vocabulary
from embedder.disk import workdir as folder
from embedder.disk.files import atomic_file, name_file_in_errors
from embedder.disk.run_record import RunInputs, check_has_one_model, write_inputs
from embedder.disk.workdir import Workdir
from embedder.errors import (
    InputError,
    InputExistsError,
    InputIsFolderError,
    InputNotFoundError,
)
from embedder.tokens.artefact import ModelFile, read_model
from embedder.tokens.pretrained import is_vectors_file
from embedder.tokens.task import write_results

Source = str | os.PathLike[str]


def model_to_run(
    model: Source, run: Source, *, overwrite: bool = False, force_lock: bool = False
) -> ModelFile:
    """Writes the finished run `run` from a model file; returns the file's content.

    The run has a copy of the file, with all that is needed to resume training. It does
    not know its corpus: `embedder train` into the same folder is refused.

    Args:
      force_lock: take over a lock file of `run` that names another host.

    Raises:
      LockedError: another process writes to `run`.
      InputExistsError: `run` has a run or other files, and `overwrite` is False.
      InputNotFoundError, InputError: `model` does not exist, or is damaged.
    """
    path, target = Path(model), Workdir(run)
    if path.exists() and is_vectors_file(path):
        raise InputError(
            f"SOURCE must be a run, or a file of EmbeddingTrainer.save, got {path}: if "
            f"it has vectors, `embedder train --init-from {path}` starts from them."
        )
    read = read_model(path)
    folder.check_target(target.path, "TARGET")
    folder.check_free(target, "TARGET")
    if target.is_started and not overwrite:
        raise InputExistsError(_taken(target.path))
    with folder.locked(target, force_lock), name_file_in_errors(target.path):
        folder.remove_parts(target)
        with folder.temporary_run(target) as made:
            _write_run(made, path, read)
            folder.clear(target)  # all that can fail has succeeded
            for file in made.files:
                os.replace(file, target.path / file.name)
    return read


def run_to_model(run: Source, model: Source, *, overwrite: bool = False) -> ModelFile:
    """Writes the model file of a finished run to `model`; returns its content.

    Raises:
      InputExistsError: `model` exists, and `overwrite` is False.
      InputIsFolderError: `model` is a folder.
      InputNotFoundError: `run` is not a finished run.
      InputError: the run has replicas, or its model file is damaged.
    """
    source, path = Workdir(run), Path(model)
    if not source.is_finished:
        raise InputNotFoundError(f"RUN {source.path} holds no finished run.")
    check_has_one_model(source, "SOURCE")
    folder.check_target(path, "TARGET")
    read = read_model(source.model)
    if path.is_dir():
        raise InputIsFolderError(f"TARGET must be a model file, got the folder {path}.")
    if path.exists() and not overwrite:
        raise InputExistsError(_taken(path))
    with name_file_in_errors(path), atomic_file(path) as part:
        shutil.copyfile(source.model, part)
    return read


def _write_run(run: Workdir, path: Path, model: ModelFile) -> None:
    config = with_options(Config(), **model.settings | {"block": model.block})
    vocabulary = Vocabulary(model.tokens, model.counts)
    num_tokens, epochs = int(model.counts.sum()), len(model.loss_history)
    resolved = resolve(config, num_tokens, epochs, vocabulary.row_updates)
    write_inputs(run, RunInputs(resolved, resolved, []))
    for epoch, loss in enumerate(model.loss_history, 1):
        folder.append_metrics(run, {"epoch": epoch, "loss": loss})
    write_vocabulary(vocabulary, run.vocabulary)
    shutil.copyfile(path, run.model)
    write_results(run, model)


def _taken(path: Path) -> str:
    return f"{path} exists: give another name, or --overwrite."
