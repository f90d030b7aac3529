"""What a run would do, and on which devices, without doing it."""

import tempfile
from pathlib import Path

from embedder.config import Config, to_toml
from embedder.engine.memory import memory_lines
from embedder.families import open_problem
from embedder.problem import Base


def preview(
    config: Config,
    source: str | None,
    base: Base | None = None,
    *,
    cache: Path | None = None,
) -> str:
    """What `train` would do, as text; nothing is written but to `cache`, if given.

    Raises:
      OSError, ValueError: bad input.
    """
    with tempfile.TemporaryDirectory() as temporary:
        job = open_problem(config, source, base)
        training = job.plan(config, cache or Path(temporary))
        devices = f"devices: {training.devices_line}"
        toml = to_toml(training.config)
        about = training.description
        return "\n".join([toml, *about, devices, *memory_lines(training)])
