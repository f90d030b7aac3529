"""The report of a run of an encoder: predictions, images, the map of its examples."""

import numpy as np

from embedder.disk.files import short_reason
from embedder.encoders.labels import read_labels
from embedder.encoders.run_examples import read_examples
from embedder.encoders.sheet import as_pixels
from embedder.encoders.uncertainty import reliability
from embedder.errors import InputError, install_command, is_installed
from embedder.report.examples import map_of_examples
from embedder.report.page import Page
from embedder.report.points import Effort
from embedder.report.predictions import Predicted, hardest, predictions
from embedder.report.text import number, short
from embedder.run.inputs import manifest_of
from embedder.run.score_file import read_scores
from embedder.run.workdir import Workdir
from embedder.vectors.vectors import Vectors


def with_examples(
    page: Page,
    run: Workdir,
    vectors: Vectors,
    effort: Effort,
    notes: list[str],
) -> Page:
    """`page` with the parts of a run of an encoder, and `notes`."""
    page = page.with_scores(read_scores(run))
    names = ["key", "label", "predicted", "probability", "log_likelihood", "trained"]
    frame = read_labels(run.path, names)
    if frame["label"].n_unique() == 1:
        notes.append("The examples have no labels: there are no predictions.")
        found = map_of_examples(vectors.keys, vectors.matrix, None, effort)
        return page._replace(map=found, notes=tuple(notes))
    is_held = ~frame["trained"].to_numpy()
    what = "validation examples"
    if not is_held.any():
        is_held, what = np.ones(len(frame), bool), "training examples"
        notes.append("No examples were held out: predictions are of those trained on.")
    held = {name: frame[name].to_numpy()[is_held] for name in names}
    keys = held["key"].tolist()
    wanted = [keys[row] for row in hardest(held["log_likelihood"])]
    predicted = Predicted(
        what,
        keys,
        held["label"],
        held["predicted"],
        held["probability"],
        held["log_likelihood"],
        reliability(held["probability"], held["label"] == held["predicted"]),
        _pictures(run, wanted, effort, notes),
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


def _pictures(
    run: Workdir, keys: list[str], effort: Effort, notes: list[str]
) -> dict[str, np.ndarray]:
    """The images of examples by key; {}: they are none, or cannot be read again."""
    size = sum(x.get("bytes", 0) for x in manifest_of(run) if isinstance(x, dict))
    if size > effort.image_bytes:
        notes.append(
            f"Images are left out after a training on {size:,} bytes: `embedder report "
            f"{short(str(run.path))}` adds them."
        )
        return {}
    try:
        _, examples = read_examples(run.path)
    except (InputError, OSError) as error:
        notes.append(f"Images are left out: {short_reason(error)}.")
        return {}
    wanted = {*keys}
    rows = {key: i for i, key in enumerate(examples.keys) if key in wanted}
    pixels = as_pixels(np.asarray(examples.features[[*rows.values()]]))
    if pixels is not None and not is_installed("PIL"):
        notes.append(f"Images are left out: {install_command('images')} adds them.")
        return {}
    return {} if pixels is None else dict(zip(rows, pixels, strict=True))
