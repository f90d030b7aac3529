"""The examples that an encoder was trained on, read again from where they were."""

from pathlib import Path

from embedder.config import Config, read_toml
from embedder.encoders.examples import Examples
from embedder.encoders.formats import open_examples
from embedder.errors import InputError
from embedder.run.inputs import manifest_of, source_of
from embedder.run.workdir import Workdir


def read_examples(run: Path) -> tuple[Config, Examples]:
    """The settings of a run, and its examples, which its manifest must describe.

    Raises:
      InputError: the examples have changed.
      InputNotFoundError: they are gone.
    """
    workdir = Workdir(run)
    config, source = read_toml(workdir.config), source_of(workdir)
    assert source is not None, "an encoder has no demo corpus"
    options = config.encoder
    found = open_examples(
        source, options, config.run.workers, needs_labels=options.needs_labels
    )
    if found.manifest != manifest_of(workdir):
        raise InputError(
            f"DATA {source} has changed since RUN {run} was trained: train again."
        )
    return config, found.read(workdir.cache if workdir.cache.is_dir() else None)
