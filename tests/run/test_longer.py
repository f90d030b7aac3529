"""A finished run that is given more epochs goes on in its own folder."""

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from embedder.cli import main
from embedder.config import read_toml
from embedder.engine.epochs import RunPosition, run_epochs
from embedder.run import longer
from embedder.run.workdir import Workdir
from embedder.tables.artefact import read_model
from embedder.tables.problem import TablesProblem
from embedder.vectors.ensemble_files import read_ensemble
from embedder.vectors.export import read_vectors
from tests.commands import error_line, run_python

FAST = ("--loader", "memory", "--vector-size", "4", "--min-count", "1", "--block", "32")
FAST += ("--blocks-per-update", "1")
TEXT = ("text.txt", *FAST)
ENCODER = ("examples.npz", "--model", "encoder", "--loader", "memory")
ENCODER += ("--optimizer", "adam", "--batch-size", "4", "--validation-fraction", "0.2")
KINDS = {
    "text, xla": (*TEXT, "--backend", "xla"),
    "text, numba, adagrad": (*TEXT, "--backend", "numba", "--optimizer", "adagrad"),
    "cbow": (*TEXT, "--architecture", "cbow"),
    "sessions": ("baskets.parquet", *FAST, "--window", "session"),
    "graph": ("edges.tsv", *FAST, "--walks", "4", "--walk-length", "9"),
    "frozen": (*TEXT, "--init-from", "start.txt", "--freeze", "known"),
}
SAVED = ("--save-every", "1epoch")
EVALUATED = ("--holdout", "0.1", "--best-by", "held-out", "--eval-every", "16")
EVALUATED += ("--sample", "0")


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    lines = [rng.choice([*"abcdefgh"], size=9) for _ in range(120)]
    Path("text.txt").write_text("\n".join(map(" ".join, lines)))
    rows = [(i, item) for i, line in enumerate(lines) for item in line]
    schema = ["session", "item"]
    pl.DataFrame(rows, schema=schema, orient="row").write_parquet("baskets.parquet")
    ends = rng.integers(30, size=(90, 2))
    Path("edges.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in ends))
    Path("start.txt").write_text("2 4\na 1 2 3 4\nb 4 3 2 1\n")
    X, y = rng.normal(size=(60, 4)), rng.integers(3, size=60)
    np.savez("examples.npz", X=X, y=y)


def train(*options: str, epochs: int, run: str = "run") -> int:
    return main(["train", *options, "--epochs", str(epochs), "--workdir", run])


def results(run: str) -> dict[str, bytes]:
    """The files of a run that do not tell the time."""
    timed = "metrics.jsonl", "progress.jsonl", "corpus.json", "SHA256SUMS", ".lock"
    timed += ("report.html",)
    paths = (path for path in Path(run).iterdir() if path.is_file())
    return {path.name: path.read_bytes() for path in paths if path.name not in timed}


def metrics(run: str) -> list[dict]:
    """The lines of metrics.jsonl without what tells the time."""
    lines = map(json.loads, Path(run, "metrics.jsonl").read_text().splitlines())
    timed = "seconds", "per_second"
    return [{k: x for k, x in line.items() if not k.endswith(timed)} for line in lines]


def parts(run: str = "run") -> list[int] | None:
    return json.loads(Path(run, "corpus.json").read_text()).get("epochs")


def expected_end(run: str, source: str, epochs: int):
    """The state after `epochs` epochs from the model file of a run, by the engine."""
    before = read_toml(Path(run, "config.toml"))
    problem = TablesProblem(source, None, before.tables, workdir=Path(run))
    config = type(before)(
        run=type(before.run)(**{**vars(before.run), "epochs": epochs}),
        **{name: getattr(before, name) for name in ("family", "devices", "save")},
    )
    training = problem.plan(config, None)
    model = read_model(Path(run, "model.npz"))
    state = training.initial_state()
    tables = state.params["tables"]
    tables["input"], tables["output"] = model.input, model.output
    rule = training.program.optimizer
    opt_state = rule.with_row_state(state.opt_state, dict(model.row_state))
    state = state._replace(opt_state=opt_state)
    done = before.run.epochs
    start = RunPosition(done, progress=done / epochs)
    return run_epochs(training, state, start=start)


@pytest.mark.spread(1)
@pytest.mark.parametrize("command", KINDS.values(), ids=KINDS)
def test_new_epochs_are_those_of_a_run_of_all_epochs(command, capsys):
    assert train(*command, epochs=2) == 0
    state, position = expected_end("run", command[0], 5)
    assert train(*command, epochs=5) == 0
    alpha = read_toml(Path("run/config.toml")).tables.alpha
    assert alpha is not None
    said = capsys.readouterr().err
    first = alpha + (1e-4 - alpha) * 2 / 5
    assert f"run goes on with epochs 3 to 5: alpha falls from {first:.4g} to" in said
    model = read_model(Path("run/model.npz"))
    np.testing.assert_array_equal(model.input, state.params["tables"]["input"])
    np.testing.assert_array_equal(model.output, state.params["tables"]["output"])
    assert model.loss_history[2:] == position.losses and len(model.loss_history) == 5
    lines = metrics("run")
    assert [line["epoch"] for line in lines] == [1, 2, 3, 4, 5]
    rates = [alpha + (1e-4 - alpha) * done / 5 for done in (3, 4, 5)]
    np.testing.assert_allclose([line["alpha"] for line in lines[2:]], rates)
    assert lines[4]["updates"] - lines[1]["updates"] == position.updates
    assert parts() == [2, 3] and not Path("run/longer").exists()
    assert main(["verify", "run"]) == 0


def test_after_no_epoch_it_is_a_run_of_all_epochs():
    """With the rate of the shorter run, which has a default of its own."""
    command = *TEXT, "--alpha", "0.03"
    assert train(*command, epochs=0) == train(*command, epochs=3) == 0
    assert train(*command, epochs=3, run="whole") == 0
    assert results("run") == results("whole") and metrics("run") == metrics("whole")


@pytest.mark.slow
def test_an_encoder_of_two_parts_is_that_of_one(capsys):
    assert train(*ENCODER, *SAVED, epochs=2) == train(*ENCODER, epochs=5) == 0
    assert "learning_rate is 0.001 as before" in capsys.readouterr().err
    assert train(*ENCODER, epochs=5, run="whole") == 0
    names = "model.npz", "vectors.safetensors", "labels.parquet"
    assert all(results("run")[name] == results("whole")[name] for name in names)
    assert metrics("run") == metrics("whole")


def test_replicas_go_on_as_runs_of_their_seeds():
    command = *TEXT, "--backend", "numba"
    replicas = *command, "--replicas", "2", *SAVED
    assert train(*replicas, epochs=2) == train(*replicas, epochs=3) == 0
    found = read_ensemble("run").vectors
    for replica, seed in enumerate("12"):
        alone = *command, "--seed", seed
        assert train(*alone, epochs=2, run=seed) == 0
        assert train(*alone, epochs=3, run=seed) == 0
        expected = read_vectors(f"{seed}/vectors.safetensors").matrix
        np.testing.assert_array_equal(found[replica], expected)


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
def test_an_update_is_made_longer_with_its_base(capsys):
    assert train(*TEXT, epochs=1, run="old") == 0
    Path("more.txt").write_text("a b c n m\n" * 20)
    update = "more.txt", "--resume", "old", "--grow"
    assert train(*update, epochs=1) == 0
    before = read_model(Path("run/model.npz"))
    shutil.rmtree("old")
    assert main(["train", "--workdir", "run", "--epochs", "2"]) == 0
    after = read_model(Path("run/model.npz"))
    assert after.loss_history[:2] == before.loss_history
    assert len(after.loss_history) == 3
    assert after.counts.tolist() == before.counts.tolist()
    row = after.tokens.index("e")  # the new text lacks it
    np.testing.assert_array_equal(after.input[row], before.input[row])
    assert not np.array_equal(after.input, before.input)


@pytest.mark.slow
def test_scores_go_on_and_the_best_is_one_of_the_new_part():
    assert train(*TEXT, *EVALUATED, epochs=2) == 0
    first = metrics("run")
    assert train(*TEXT, *EVALUATED, epochs=4) == 0
    both = metrics("run")
    assert both[: len(first)] == first
    updates = [line["updates"] for line in both]
    assert updates == sorted(updates)
    assert any("loss" not in line for line in both[len(first) :])


@pytest.mark.slow
def test_a_stopped_longer_run_leaves_the_finished_one_and_goes_on(stopped, capsys):
    command = *TEXT, *EVALUATED
    assert train(*command, epochs=2) == 0
    shutil.copytree("run", "whole")
    assert train(*command, epochs=5, run="whole") == 0
    before = results("run"), metrics("run")
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


@pytest.mark.slow
@pytest.mark.row("F46")
def test_a_move_that_was_interrupted_anywhere_goes_on(monkeypatch, capsys):
    """The files of the longer run replace the others one after the other."""
    assert train(*TEXT, *SAVED, epochs=1) == 0
    shutil.copytree("run", "short")
    shutil.copytree("run", "whole")
    assert train(*TEXT, *SAVED, epochs=2, run="whole") == 0
    num_moved = 0
    for stop in range(20):
        shutil.rmtree("run")
        shutil.copytree("short", "run")
        left = [stop]

        def move(source, target, left=left):
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            os.replace(source, target)

        with monkeypatch.context() as patch:
            patch.setattr(longer, "os", SimpleNamespace(replace=move, rename=move))
            code = train(*TEXT, *SAVED, epochs=2)
        if code == 0:
            break
        num_moved += 1
        capsys.readouterr()
        assert main(["verify", "run"]) == 1
        assert "longer: is finished, but its files are not" in capsys.readouterr().out
        same = (*TEXT, *SAVED, "--epochs", "2") if stop % 2 else ()
        assert main(["train", *same, "--workdir", "run"]) == 0
        assert "finished before" in capsys.readouterr().out
        assert results("run") == results("whole") and not Path("run/longer").exists()
        assert main(["verify", "run"]) == 0
    assert num_moved == 11  # two folders, nine files


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sharded", "pmap"])
def test_on_two_devices_as_on_one(mode):
    command = *TEXT, "--dtype", "float64", "--blocks-per-update", "2"
    many = *command, "--devices", "2", "--mode", mode
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    for epochs in ("1", "3"):
        arguments = "train", *many, "--epochs", epochs, "--workdir", "many"
        process = run_python(
            *("-m", "embedder.cli", *arguments), env=os.environ | flags
        )
        assert process.returncode == 0, process.stderr
    assert "many goes on with epochs 2 to 3" in process.stderr
    assert train(*command, epochs=1) == train(*command, epochs=3) == 0
    one, two = (read_model(Path(run, "model.npz")) for run in ("run", "many"))
    np.testing.assert_allclose(two.input, one.input, rtol=1e-9, atol=1e-12)
    assert parts("many") == [1, 2]


@pytest.mark.spread(1)
@pytest.mark.row("B43")
@pytest.mark.parametrize(
    ("before", "now", "epochs", "message"),
    [
        (TEXT, TEXT, 1, "`epochs` 2 there, 1 now. It was trained for 2 epochs: give"),
        (TEXT, (*TEXT, "--window", "3"), 4, "`window` 5 there, 3 now"),
        (TEXT, (*TEXT, "--step", "7"), 4, "`step` must be of a run that resumes, got"),
        (
            TEXT,
            (*TEXT, "--mirror", "mirror"),
            4,
            "`mirror` does not go with more epochs of the finished run run",
        ),
        (
            (*TEXT, *EVALUATED, "--result", "best"),
            (*TEXT, *EVALUATED, "--result", "best"),
            4,
            "run has the vectors of its best evaluation, not of its end",
        ),
        (
            (*TEXT, "--replicas", "2"),
            (*TEXT, "--replicas", "2"),
            4,
            "run has no checkpoint of its end, with which replicas and encoders go on",
        ),
        (ENCODER, ENCODER, 4, "run has no checkpoint of its end"),
    ],
)
def test_what_does_not_go_on_is_one_line(before, now, epochs, message, capsys):
    assert train(*before, epochs=2) == 0
    capsys.readouterr()
    kept = results("run"), metrics("run")
    assert train(*now, epochs=epochs) == 2
    assert message in error_line(capsys)
    assert (results("run"), metrics("run")) == kept
    assert not Path("run/longer").exists()


@pytest.mark.row("B43")
@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("text.txt", lambda text: text + b"\na b", "another corpus"),
        ("run/metrics.jsonl", lambda text: text[:9], "run is damaged: metrics.jsonl"),
        ("run/model.npz", lambda text: text[:-9], "run is damaged: model.npz"),
    ],
)
def test_changed_files_are_refused(name, damage, message, capsys):
    assert train(*TEXT, epochs=2) == 0
    Path(name).write_bytes(damage(Path(name).read_bytes()))
    capsys.readouterr()
    assert train(*TEXT, epochs=3) == 2
    assert message in error_line(capsys)


@pytest.mark.slow
@pytest.mark.row("B43")
def test_a_run_that_ended_early_is_refused(capsys):
    command = *TEXT, *EVALUATED, "--patience", "1"
    assert train(*command, epochs=9) == 0
    assert "Ends early" in capsys.readouterr().err
    assert train(*command, epochs=12) == 2
    assert "it ended early, and cannot go on: --resume it" in error_line(capsys)


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
