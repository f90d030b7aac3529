"""Runs behind URLs: local copies of the files that a use of a run needs."""

from pathlib import Path

from embedder.disk.copies import local_copy
from embedder.disk.urls import is_url
from embedder.run.workdir import Workdir

_RUN = Workdir("")  # names of the files of a run
_SETTINGS = frozenset({_RUN.config, _RUN.corpus})
_STARTS = frozenset({_RUN.base, _RUN.start})
_BASE = _SETTINGS | _STARTS | {_RUN.vocabulary, _RUN.model, _RUN.sums}
_VECTORS = _SETTINGS | {_RUN.vectors, _RUN.replicas, _RUN.labels}


def copy_of_base(resume: str | Path, cache: Path | None = None) -> Path:
    """The path of a run or model file to start from; of a URL that of its copy.

    Checkpoints are copied only if the run has no model file.

    Args:
      cache: folder of caches, for the copy; None: that of the user.

    Raises:
      OSError, InputError: see `local_copy`.
    """
    if isinstance(resume, Path) or not is_url(resume):
        return Path(resume)
    path = Path(local_copy(resume, cache, _is_of_base))
    if path.is_dir() and not Workdir(path).model.exists():
        path = Path(local_copy(resume, cache, _is_of_unfinished))
    return path


def _is_of_base(name: str) -> bool:
    """Whether starting from a finished run needs its file `name`."""
    return Path(name) in _BASE


def _is_of_unfinished(name: str) -> bool:
    """Whether starting from an unfinished run needs its file `name`."""
    return _is_of_base(name) or name.startswith("checkpoints/")


def copy_of_results(run: str, *, with_model: bool) -> Path:
    """The path of a copy of the finished run, or the file of vectors, at a URL.

    Args:
      with_model: the model file of a run is copied, too.

    Raises:
      OSError, InputError: see `local_copy`.
    """
    is_wanted = _is_of_model if with_model else _is_of_vectors
    return Path(local_copy(run, is_wanted=is_wanted, use=is_wanted.__name__))


def _is_of_vectors(name: str) -> bool:
    """Whether looking up vectors of a finished run needs its file `name`."""
    return Path(name) in _VECTORS


def _is_of_model(name: str) -> bool:
    """Whether using the model and the vectors of a run needs its file `name`."""
    return _is_of_vectors(name) or Path(name) == _RUN.model
