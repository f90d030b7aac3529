"""A dry run: settings, data, devices, memory and time of a run."""

import tempfile
from pathlib import Path

from embedder.api.families import open_task
from embedder.config import Config, to_toml
from embedder.engine.estimate import is_worth_timing, time_lines
from embedder.engine.memory import memory_lines
from embedder.engine.task import PretrainedRun, Trainer
from embedder.errors import InputError


def preview(
    config: Config,
    source: str | None,
    base: PretrainedRun | None = None,
    *,
    cache: Path | None = None,
) -> str:
    """What `train` would do, as text.

    Only `cache` is written to, if it is given, and copies of remote data are made.

    Raises:
      OSError, InputError: bad input.
    """
    if source == "-":
        raise InputError(
            "`dry_run` would read standard input, which can be read only once: write "
            "it to a file, or leave --dry-run out."
        )
    with tempfile.TemporaryDirectory() as temporary:
        task = open_task(config, source, base, cache)
        training: Trainer = task.plan(config, cache or Path(temporary))
        devices = f"devices: {training.devices_line}"
        toml = to_toml(training.config)
        about = training.description
        lines = [toml, *about, devices, *memory_lines(training)]
        if is_worth_timing(training):
            lines += time_lines(training)
        return "\n".join(lines)
