"""The classes of two spirals: one network's certainty beside that of a hundred.

A single network has a sharp boundary. The boundaries of networks that were trained on
bootstrap resamples differ, so their mean is uncertain along it.
"""

from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from bench.replicas import spirals
from bench.results import Results, Table, write_picture, write_results
from embedder.config import Config, with_options
from embedder.data.examples.examples import Examples
from embedder.encoders.plan import TrainingInputs, plan
from embedder.encoders.train_step import model_of
from embedder.encoders.trainer import EncoderTrainer
from embedder.engine.epochs import run_epochs
from embedder.engine.replicas import unstack_states
from embedder.metrics.uncertainty import split_entropy

_SIDE, _REACH = 160, 1.3  # points of the grid along an axis, and how far it reaches
_NEAR, _FAR = 0.1, 0.5  # distances to the nearest point


class Predictions(NamedTuple):
    """Of the points of a grid."""

    points: np.ndarray  # f32[n, 2]
    one: np.ndarray  # f32[n], probability of class 1 by the first network
    mean: np.ndarray  # f32[n], the mean over networks
    total: np.ndarray  # f64[n], entropy in nats
    model: np.ndarray  # f64[n], the part that networks disagree on


def run(networks: int = 100, steps: int = 2000) -> Table:
    """The certainty of one network beside that of many, on two spirals.

    Args:
      networks: trained side by side, each on its bootstrap resample.
      steps: of Adam on all points.
    """
    features, labels = spirals()
    keys = [str(i) for i in range(len(labels))]
    config = with_options(
        Config(),
        model="encoder",
        layers=(2, 32, 2),
        batch_size=len(labels),
        optimizer="adam",
        learning_rate=0.02,
        loader="memory",
        replicas=networks,
        bootstrap=True,
    )
    examples = Examples(features, labels, ["0", "1"], keys)
    training = EncoderTrainer(plan(TrainingInputs(config, examples, range(steps))))
    end = run_epochs(training, training.initial_state())
    found = _predictions(training, end.state)
    write_picture("spirals", lambda path: _draw(path, features, labels, found))
    distances = np.linalg.norm(found.points[:, np.newaxis] - features, axis=2).min(1)
    samples = {
        name: {
            "first network certain": _certain(found.one[at]),
            "mean of networks certain": _certain(found.mean[at]),
            "entropy": float(found.total[at].mean()),
            "of it disagreement": float(found.model[at].mean()),
        }
        for name, at in (
            (f"within {_NEAR} of a point", distances < _NEAR),
            (f"farther than {_FAR} from all points", distances > _FAR),
        )
    }
    settings = {"networks": networks, "steps": steps}
    return table(write_results("spirals", settings=settings, samples=samples))


def table(results: Results) -> Table:
    """A row for the points of the grid near the spirals, and far from them."""
    samples = results["samples"]
    names = list(next(iter(samples.values())))
    rows = [
        [where, *(f"{found[name]:.2f}" for name in names)]
        for where, found in samples.items()
    ]
    return Table(["points of the plane", *names], rows)


def _certain(probabilities: np.ndarray) -> float:
    """Share of points where one class has a probability above .95."""
    return float(np.mean(abs(probabilities - 0.5) > 0.45))


def _predictions(training: EncoderTrainer, state) -> Predictions:
    axis = np.linspace(-_REACH, _REACH, _SIDE, dtype=np.float32)
    points = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    encoder = training.program.encoder
    found = [
        np.asarray(jax.nn.softmax(encoder.scores(model_of(each), points)))
        for each in unstack_states(state)
    ]
    split = split_entropy(found)
    mean = split.probabilities[:, 1]
    return Predictions(points, found[0][:, 1], mean, split.total, split.model)


def _draw(path: Path, features, labels, found: Predictions) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = (
        ("one network: probability of a class", found.one, "coolwarm", 1.0),
        ("mean of all networks", found.mean, "coolwarm", 1.0),
        ("entropy that networks disagree on, nats", found.model, "viridis", None),
    )
    figure, axes = pyplot.subplots(1, len(panels), figsize=(10.5, 3.4), dpi=66)
    reach = -_REACH, _REACH, -_REACH, _REACH
    for axis, (title, values, colors, top) in zip(axes, panels, strict=True):
        shown = axis.imshow(
            values.reshape(_SIDE, _SIDE),
            extent=reach,
            origin="lower",
            cmap=colors,
            vmin=0,
            vmax=top,
        )
        for label, color in enumerate(("white", "black")):
            own = features[labels == label]
            axis.plot(*own.T, "o", color=color, markersize=2, markeredgewidth=0)
        axis.set_title(title, fontsize=9)
        axis.set_xticks([])
        axis.set_yticks([])
        figure.colorbar(shown, ax=axis, fraction=0.046, pad=0.03)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


BENCHES = {"spirals": run}
TABLES = {"spirals": table}
