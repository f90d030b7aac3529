"""What the verbs `evaluate` and `export` do with a run of an encoder."""

import json
from pathlib import Path
from typing import Literal

from embedder.disk.files import name_file_in_errors
from embedder.encoders.evaluation import as_json, evaluate_run, report
from embedder.encoders.export import export_predictions, export_replicas
from embedder.encoders.picture import check_picture, draw
from embedder.run.workdir import check_target
from embedder.terminal import say, say_done, shown


def evaluate(
    run: Path, examples: str | None, picture: Path | None, print_json: bool
) -> None:
    """Prints the evaluation of a run, or of an encoder file; draws it to `picture`.

    Raises:
      InputError: see `evaluate_run` and `check_picture`.
    """
    if picture is not None:
        check_target(picture, "`picture`")
        check_picture(picture)
    found = evaluate_run(run, examples)
    if picture is not None:
        draw(found, picture)
    lines = [json.dumps(as_json(found))] if print_json else report(found)
    for line in lines:
        say(shown(line))


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
