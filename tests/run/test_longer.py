"""A finished run that is given more epochs goes on in its own folder."""

import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from embedder import EmbeddingTrainer
from embedder.cli.main import main
from embedder.config import read_toml
from embedder.disk.workdir import Workdir
from tests.commands import error_line, json_lines
from tests.contract.test_features import TIMED

FAST = ("--loader", "memory", "--vector-size", "4", "--min-count", "1", "--block", "32")
FAST += ("--blocks-per-update", "1")
TEXT = ("text.txt", *FAST)
ENCODER = ("examples.npz", "--model", "encoder", "--loader", "memory")
ENCODER += ("--optimizer", "adam", "--batch-size", "4", "--validation-fraction", "0.2")
SAVED = ("--save-every", "1epoch", "--no-report")
CONSTANT = (*TEXT, "--alpha", "0.03", "--min-alpha", "0.03")
KINDS = {
    "text": (*CONSTANT, "--backend", "numba", "--optimizer", "adagrad"),
    "sessions": ("baskets.parquet", *CONSTANT[1:], "--window", "session"),
    "frozen": (*CONSTANT, "--init-from", "start.txt", "--freeze", "known"),
    "replicas": (*CONSTANT, "--replicas", "2", *SAVED),
    "encoder": (*ENCODER, *SAVED),
    "no epochs": (*TEXT, "--alpha", "0.03"),
}
EVALUATED = ("--holdout", "0.1", "--best-by", "held-out", "--eval-every", "16")
EVALUATED += ("--sample", "0")


@pytest.fixture(autouse=True)
def own_folder(own_folder):
    rng = np.random.default_rng(0)
    lines = [rng.choice([*"abcdefgh"], size=9) for _ in range(120)]
    Path("text.txt").write_text("\n".join(map(" ".join, lines)))
    rows = [(i, item) for i, line in enumerate(lines) for item in line]
    schema = ["session", "item"]
    pl.DataFrame(rows, schema=schema, orient="row").write_parquet("baskets.parquet")
    Path("start.txt").write_text("2 4\na 1 2 3 4\nb 4 3 2 1\n")
    X, y = rng.normal(size=(60, 4)), rng.integers(3, size=60)
    np.savez("examples.npz", X=X, y=y)


def train(*options: str, epochs: int, run: str = "run") -> int:
    return main(["train", *options, "--epochs", str(epochs), "--workdir", run])


def results(run: str) -> dict[str, bytes]:
    """The files of a run that do not tell the time."""
    paths = (path for path in Path(run).iterdir() if path.is_file())
    timed = *TIMED, "report.html"
    return {path.name: path.read_bytes() for path in paths if path.name not in timed}


def metrics(run: str) -> list[dict]:
    """The lines of metrics.jsonl without what tells the time."""
    lines, timed = json_lines(Path(run, "metrics.jsonl")), ("seconds", "per_second")
    return [{k: x for k, x in line.items() if not k.endswith(timed)} for line in lines]


def parts(run: str = "run") -> list[int] | None:
    return json.loads(Path(run, "corpus.json").read_text()).get("epochs")


@pytest.mark.spread(2)
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_of_two_parts_is_that_of_one(kind):
    """After no epochs, or where no schedule depends on their number."""
    command, before = KINDS[kind], 0 if kind == "no epochs" else 2
    assert train(*command, epochs=before) == train(*command, epochs=5) == 0
    assert train(*command, epochs=5, run="whole") == 0
    assert results("run") == results("whole") and metrics("run") == metrics("whole")
    assert not Path("run/longer").exists()
    assert main(["verify", "run"]) == 0


def test_the_rate_falls_to_the_new_end(capsys):
    assert train(*TEXT, epochs=2) == train(*TEXT, epochs=5) == 0
    alpha = read_toml(Path("run/config.toml")).tables.alpha
    first = alpha + (1e-4 - alpha) * 2 / 5
    said = f"run goes on with epochs 3 to 5: alpha falls from {first:.4g} to"
    assert said in capsys.readouterr().err
    rates = [alpha + (1e-4 - alpha) * done / 5 for done in (3, 4, 5)]
    np.testing.assert_allclose([line["alpha"] for line in metrics("run")[2:]], rates)
    assert parts() == [2, 3]


def test_a_run_is_made_longer_again_by_its_folder_alone(capsys):
    assert train(*TEXT, epochs=1) == 0
    assert main(["train", "--workdir", "run", "--epochs", "3"]) == 0
    assert train(*TEXT, epochs=4) == 0
    assert parts() == [1, 2, 1] and len(metrics("run")) == 4
    capsys.readouterr()
    for again in (main(["train", "--workdir", "run"]), train(*TEXT, epochs=4)):
        assert again == 0
    assert capsys.readouterr().out.count("finished before") == 2


@pytest.mark.slow
def test_an_update_is_made_longer_with_its_base():
    assert train(*TEXT, epochs=1, run="old") == 0
    Path("more.txt").write_text("a b c n m\n" * 20)
    assert train("more.txt", "--resume", "old", "--grow", epochs=1) == 0
    before = EmbeddingTrainer.load("run/model.npz")
    shutil.rmtree("old")
    assert main(["train", "--workdir", "run", "--epochs", "2"]) == 0
    after = EmbeddingTrainer.load("run/model.npz")
    assert after.loss_history[:2] == before.loss_history
    assert len(after.loss_history) == 3
    np.testing.assert_array_equal(after["e"], before["e"])  # the new text lacks it
    assert not np.array_equal(after.vectors, before.vectors)


@pytest.mark.slow
def test_a_stopped_longer_run_leaves_the_finished_one_and_goes_on(stopped, capsys):
    command = *TEXT, *EVALUATED
    assert train(*command, epochs=2) == 0
    shutil.copytree("run", "whole")
    assert train(*command, epochs=5, run="whole") == 0
    before = results("run"), metrics("run")
    num, both = len(before[1]), metrics("whole")
    assert both[:num] == before[1] and any("loss" not in x for x in both[num:])
    updates = [line["updates"] for line in both]
    assert updates == sorted(updates)
    stopped(*command, "--epochs", "5", "--workdir", "run", epoch=3)
    assert before == (results("run"), metrics("run"))
    capsys.readouterr()
    assert main(["verify", "run"]) == 0
    shown = capsys.readouterr().out
    assert "vectors.safetensors: whole" in shown and "longer/checkpoints/" in shown
    assert train(*command, epochs=6) == 2
    line = error_line(capsys)
    assert "run is being trained to 5 epochs, got `epochs` = 6" in line
    assert train(*command, epochs=2) == 0
    assert "finished before" in capsys.readouterr().out
    assert main(["train", "--workdir", "run"]) == 0
    assert "Resumes after " in capsys.readouterr().err
    assert results("run") == results("whole") and metrics("run") == metrics("whole")


def test_an_unfinished_run_is_ended_first(stopped, capsys):
    stopped(*TEXT, "--epochs", "3", "--workdir", "run")
    assert train(*TEXT, epochs=5) == 2
    assert "First end it (--workdir run alone), then give" in error_line(capsys)
    assert main(["train", "--workdir", "run"]) == train(*TEXT, epochs=5) == 0


def test_overwrite_starts_anew_and_removes_the_longer_run(stopped):
    assert train(*TEXT, epochs=1) == 0
    stopped(*TEXT, "--epochs", "4", "--workdir", "run", epoch=2)
    assert Workdir(Workdir("run").longer).is_started
    assert train(*TEXT, "--overwrite", epochs=3) == 0
    assert not Path("run/longer").exists() and parts() is None
    assert train(*TEXT, epochs=3, run="anew") == 0
    assert results("run") == results("anew")


@pytest.mark.spread(2)
@pytest.mark.row("B43")
@pytest.mark.parametrize(
    ("options", "damaged", "message"),
    [
        (("--result", "best"), "", "run has the vectors of its best evaluation, not"),
        (("--patience", "1"), "", "it ended early, and cannot go on: --resume it"),
        ((), "text.txt", "another corpus"),
        ((), "run/metrics.jsonl", "run is damaged: metrics.jsonl"),
        ((), "run/model.npz", "run is damaged: model.npz"),
    ],
)
def test_what_does_not_go_on_is_one_line(options, damaged, message, capsys):
    command = *TEXT, *EVALUATED, *options
    assert train(*command, epochs=9 if options else 2) == 0
    if damaged:
        Path(damaged).write_bytes(Path(damaged).read_bytes()[:-9])
    capsys.readouterr()
    kept = results("run")
    assert train(*command, epochs=12) == 2
    assert message in error_line(capsys)
    assert results("run") == kept and not Path("run/longer").exists()
