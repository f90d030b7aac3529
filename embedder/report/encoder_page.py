"""The report of a run of an encoder: predictions, images, the map of its examples."""

import numpy as np

from embedder.disk.files import short_reason
from embedder.disk.run_record import manifest_of
from embedder.disk.workdir import Workdir
from embedder.encoders.new_examples import read_examples
from embedder.encoders.predicted_labels import read_labels
from embedder.encoders.sheet import as_pixels
from embedder.errors import InputError, install_command, is_installed
from embedder.metrics.score_table import read_scores
from embedder.metrics.uncertainty import reliability
from embedder.report.page import Page
from embedder.report.points import Effort, map_of_examples
from embedder.report.predictions import Predicted, hardest, predictions
from embedder.report.text import number, short
from embedder.vectors.vectors import Vectors


def with_examples(
    page: Page, run: Workdir, vectors: Vectors, effort: Effort, notes: list[str]
) -> Page:
    """`page` with the parts of a run of an encoder, and `notes`."""
    page = page.with_scores(read_scores(run))
    names = ["key", "label", "predicted", "probability", "log_likelihood", "trained"]
    frame = read_labels(run.path, names)
    if frame["label"].n_unique() == 1:
        notes.append("The examples have no labels: there are no predictions.")
        map_ = map_of_examples(vectors.keys, vectors.matrix, None, effort)
        return page._replace(map=map_, notes=tuple(notes))
    is_held = ~frame["trained"].to_numpy()
    what = "validation examples"
    if not is_held.any():
        is_held, what = np.ones(len(frame), bool), "training examples"
        notes.append("No examples were held out: predictions are of those trained on.")
    held = {name: frame[name].to_numpy()[is_held] for name in names}
    keys = held["key"].tolist()
    wanted = [keys[row] for row in hardest(held["log_likelihood"])]
    images, why = pictures(run, wanted, effort.image_bytes)
    notes += [why] if why else []
    predicted = Predicted(
        what,
        keys,
        held["label"],
        held["predicted"],
        held["probability"],
        held["log_likelihood"],
        reliability(held["probability"], held["label"] == held["predicted"]),
        images,
    )
    facts = [*page.facts, ("examples held out", number(int((~frame["trained"]).sum())))]
    return page._replace(
        facts=facts,
        predictions=predictions(predicted),
        map=map_of_examples(
            vectors.keys, vectors.matrix, frame["label"].to_list(), effort
        ),
        notes=tuple(notes),
    )


def pictures(
    run: Workdir, keys: list[str], most_bytes: float
) -> tuple[dict[str, np.ndarray], str]:
    """The images u8[h, w, 3] of examples by key; and why there are none, a sentence, or
    "" if the examples are no images.

    Args:
      most_bytes: of the data, which are read again.
    """
    size = sum(x.get("bytes", 0) for x in manifest_of(run) if isinstance(x, dict))
    if size > most_bytes:
        return {}, (
            f"Images are left out after a training on {size:,} bytes: `embedder report "
            f"{short(str(run.path))}` adds them."
        )
    try:
        _, examples = read_examples(run.path)
    except (InputError, OSError) as error:
        return {}, f"Images are left out: {short_reason(error)}."
    wanted = {*keys}
    rows = {key: i for i, key in enumerate(examples.keys) if key in wanted}
    images = as_pixels(np.asarray(examples.features[[*rows.values()]]))
    if images is None:
        return {}, ""
    if not is_installed("PIL"):
        return {}, f"Images are left out: {install_command('images')} adds them."
    return dict(zip(rows, images, strict=True)), ""
