"""What a run writes for TensorBoard, read by TensorBoard itself."""

import json
from pathlib import Path

import numpy as np
import pytest

from embedder.disk.workdir import Workdir
from embedder.vectors.export import read_vectors
from tests.commands import train_runs
from tests.encoders.image_cases import write_pngs

FAST = "--loader memory --vector-size 6 --min-count 1 --sample 0"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """Finished runs of tokens and of images, in one folder; tests only read them."""
    pytest.importorskip("tensorboard", reason="needs the extra `dev`")
    folder, rng = tmp_path_factory.mktemp("runs"), np.random.default_rng(0)
    words = [f"w{n}" for n in range(60)]
    text = [" ".join(rng.choice(words, 20)) for _ in range(60)]
    (folder / "text.txt").write_text("\n".join(text) + "\n")
    for name in ("dark", "bright"):
        write_pngs(folder / "photos" / name, rng.integers(256, size=(30, 4, 3, 3)))
    images = "photos --model encoder --loader memory --network mlp --epochs 1"
    train_runs(folder, tokens=f"text.txt {FAST} --epochs 2", images=images)
    return folder


def test_histograms_of_a_run(runs):
    from tensorboard.backend.event_processing import event_accumulator

    run = Workdir(runs / "tokens")
    found = event_accumulator.EventAccumulator(str(run.events))
    found.Reload()
    norms = np.linalg.norm(read_vectors(run.vectors).matrix.astype(np.float64), axis=1)
    last = found.Histograms("row_norms/tables.input")[-1]
    assert sum(last.histogram_value.bucket) == last.histogram_value.num == len(norms)
    assert last.histogram_value.max == pytest.approx(norms.max(), rel=1e-6)


def projector_of(folder: Path):
    """A function that has the answer of the projector's server to a route."""
    from tensorboard.backend.event_processing import data_provider
    from tensorboard.backend.event_processing import (
        plugin_event_multiplexer as multiplexers,
    )
    from tensorboard.plugins import base_plugin
    from tensorboard.plugins.projector.projector_plugin import ProjectorPlugin
    from werkzeug.test import Client

    events = multiplexers.EventMultiplexer().AddRunsFromDirectory(str(folder))
    events.Reload()
    context = base_plugin.TBContext(
        logdir=str(folder),
        data_provider=data_provider.MultiplexerDataProvider(events, str(folder)),
    )
    apps = ProjectorPlugin(context).get_plugin_apps()

    def get(route: str, **query: str) -> bytes:
        answer = Client(apps[route]).get("/", query_string=query)
        assert answer.status_code == 200, answer.text
        return answer.data

    return get


@pytest.mark.parametrize("name", ["tokens", "images"])
def test_the_projector_serves_vectors_and_their_texts(runs, name):
    get, run = projector_of(runs), Workdir(runs / name)
    assert f"{name}/tensorboard" in json.loads(get("/runs"))
    of_run = {"run": f"{name}/tensorboard"}
    (embedding,) = json.loads(get("/info", **of_run))["embeddings"]
    vectors = read_vectors(run.vectors)
    assert embedding["tensorShape"] == [*vectors.matrix.shape]
    of_tensor = {**of_run, "name": embedding["tensorName"]}
    tensor = np.frombuffer(get("/tensor", **of_tensor), np.float32)
    np.testing.assert_array_equal(tensor.reshape(vectors.matrix.shape), vectors.matrix)
    first, *rows = get("/metadata", **of_tensor).decode().splitlines()
    assert first.split("\t")[0] == ("token" if name == "tokens" else "key")
    assert [row.split("\t")[0] for row in rows] == vectors.keys
    if name == "images":
        assert get("/sprite_image", **of_tensor).startswith(b"\x89PNG")
        assert embedding["sprite"]["singleImageDim"] == [4, 4]
