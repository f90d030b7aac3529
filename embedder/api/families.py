"""The families: which problem settings and a source name.

Only the family of a run is imported: each takes some tenths of a second.
"""

from pathlib import Path
from typing import Any

from embedder.config import Config
from embedder.engine.task import PretrainedRun, Task
from embedder.errors import InputError


def open_task(
    config: Config,
    source: str | None,
    base: PretrainedRun | None = None,
    cache: Path | None = None,
    workdir: Path | None = None,
) -> Task[Any]:
    """The problem of the family of `config`, over the data at `source`.

    Its type of training is its own matter: callers pass back what `plan` returned.

    Args:
      cache: folder of caches, for copies of remote data; None: that of the user.
      workdir: of the run, which may have kept what it started from; None: the default.

    Raises:
      OSError, InputError: there are no such data, or `base` is of another family.
    """
    match config.run.model:
        case "tokens":
            from embedder.tokens.task import TokensTask

            return TokensTask(source, base, config.tables, cache, workdir)
        case "encoder" if base is None:
            from embedder.encoders.task import EncoderTask

            return EncoderTask(config, source, cache, workdir)
    raise InputError(
        f"`resume` applies only to `model` = 'tokens', got {config.run.model!r} and "
        f"{base and base.path}."
    )
