"""What the verb `export` does with a run of an encoder."""

from pathlib import Path
from typing import Literal

from embedder.disk.files import name_file_in_errors
from embedder.encoders.export import export_predictions, export_replicas
from embedder.terminal import say_done, shown


def export(run: Path, to: Path, what: Literal["predictions", "replicas"]) -> None:
    """Writes the predictions of a run, or the embeddings by each of its replicas.

    Raises:
      InputError: see `export_predictions` and `export_replicas`.
    """
    with name_file_in_errors(to):
        if what == "predictions":
            done = f"predictions of {export_predictions(run, to)} examples"
        else:
            num_networks, num_examples = export_replicas(run, to)
            done = f"{num_networks} x {num_examples} vectors"
    say_done(f"{done} in {shown(str(to))}")
