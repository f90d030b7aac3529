"""Runs behind URLs: local copies of the files that a use of a run needs."""

from pathlib import Path

from embedder.disk.copies import local_copy
from embedder.disk.urls import is_url
from embedder.disk.workdir import Workdir

_RUN = Workdir("")  # names of the files of a run
_SETTINGS = frozenset({_RUN.config, _RUN.corpus})
_BASE = _SETTINGS | {
    *(_RUN.base, _RUN.start, _RUN.attributes, _RUN.vocabulary, _RUN.model),
    *(_RUN.names, _RUN.sums, _RUN.counts, _RUN.mixture),
}
_VECTORS = _SETTINGS | {_RUN.vectors, _RUN.replicas, _RUN.labels, _RUN.names}


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
    path = Path(local_copy(resume, cache, lambda name: Path(name) in _BASE))
    if path.is_dir() and not Workdir(path).model.exists():

        def is_wanted(name: str) -> bool:
            return Path(name) in _BASE or name.startswith("checkpoints/")

        path = Path(local_copy(resume, cache, is_wanted))
    return path


def copy_of_results(run: str, *, with_model: bool) -> Path:
    """The path of a copy of the finished run, or the file of vectors, at a URL.

    Args:
      with_model: the model file of a run is copied, too.

    Raises:
      OSError, InputError: see `local_copy`.
    """
    wanted, use = _VECTORS, "_is_of_vectors"
    if with_model:
        wanted, use = _VECTORS | {_RUN.model, _RUN.counts, _RUN.mixture}, "_is_of_model"
    return Path(local_copy(run, None, lambda name: Path(name) in wanted, use=use))
