"""A dry run: settings, data, devices and memory of a run."""

import tempfile
from pathlib import Path

from embedder.config import Config, to_toml
from embedder.engine.memory import memory_lines
from embedder.families import open_problem
from embedder.problem import Base, Training


def preview(
    config: Config,
    source: str | None,
    base: Base | None = None,
    *,
    cache: Path | None = None,
) -> str:
    """What `train` would do, as text; only `cache` is written to, if it is given.

    Raises:
      OSError, InputError: bad input.
    """
    with tempfile.TemporaryDirectory() as temporary:
        problem = open_problem(config, source, base)
        training: Training = problem.plan(config, cache or Path(temporary))
        devices = f"devices: {training.devices_line}"
        toml = to_toml(training.config)
        about = training.description
        return "\n".join([toml, *about, devices, *memory_lines(training)])
