"""Vectors are evaluated while they are trained, and the training may end early."""

import json
from pathlib import Path

import numpy as np
import pytest

from embedder.cli import main
from embedder.config import Config, resolve, with_options
from embedder.engine import evaluations as module
from embedder.engine.epochs import run_epochs
from embedder.engine.evaluations import Evaluations, Timer
from embedder.evaluation.ranking import next_item
from embedder.run.checkpoints import Checkpoints
from embedder.settings import Interval
from embedder.tables.corpus import sequences_corpus
from embedder.tables.encode import encode
from embedder.tables.split import sequences
from embedder.tables.training import Training
from embedder.vectors.export import read_vectors
from tests.commands import error_line

SMALL = ("--loader", "memory", "--vector-size", "4", "--min-count", "1", "--block")
SMALL += ("32", "--blocks-per-update", "1", "--sample", "0", "--epochs", "4")
HELD_OUT = (*SMALL, "--holdout", "0.1", "--best-by", "held-out")
NEXT = (*SMALL, "--holdout", "0.1", "--best-by", "next-item")
EVERY = ("--eval-every", "32")
ENCODER = ("--model", "encoder", "--loader", "memory", "--epochs", "6")
ENCODER += ("--learning-rate", "0.1", "--batch-size", "4")
VALIDATED = (*ENCODER, "--validation-fraction", "0.3")


def topics() -> list[list[str]]:
    """Sequences of tokens of one topic each, of which there are six."""
    rng = np.random.default_rng(0)
    return [
        [f"{topic}-{i}" for i in rng.integers(8, size=9)]
        for topic in rng.integers(6, size=400)
    ]


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("\n".join(map(" ".join, topics())))
    pairs = ("0-1\t0-2\t9", "0-1\t1-1\t1", "2-2\t2-3\t8", "3-3\t4-4\t2")
    Path("pairs.tsv").write_text("\n".join(pairs))
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 4)), rng.integers(3, size=60)
    np.savez("examples.npz", X=X, y=y)


def train(*options: str, source: str = "text.txt", run: str = "run") -> int:
    return main(["train", source, "--workdir", run, *options])


def lines(run: str = "run") -> list[dict]:
    text = Path(run, "metrics.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def untimed(run: str) -> list[dict]:
    """The lines of metrics.jsonl without what tells the time."""
    timed = "seconds", "per_second"
    return [
        {name: x for name, x in line.items() if not name.endswith(timed)}
        for line in lines(run)
    ]


def assert_same(first: str, second: str, *names: str) -> None:
    for name in names:
        assert Path(first, name).read_bytes() == Path(second, name).read_bytes()


MODES = {
    "xla": ("--backend", "xla"),
    "numba": ("--backend", "numba"),
    "cbow": ("--architecture", "cbow", "--optimizer", "adagrad"),
    "replicas": ("--backend", "numba", "--replicas", "2"),
}


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_evaluations_do_not_change_vectors(mode):
    options = *NEXT, *mode
    assert train(*options, run="without") == 0
    assert train(*options, *EVERY, run="with") == 0
    within = [line for line in lines("with") if "loss" not in line]
    assert len(within) > 6
    assert not any("loss" not in line for line in lines("without"))
    names = ("replicas.safetensors",) if "--replicas" in mode else ("model.npz",)
    assert_same("with", "without", "vectors.safetensors", *names)
    end = "held_out", "hr@10"
    last = [lines(run)[-1] for run in ("with", "without")]
    assert [last[0][name] for name in end] == [last[1][name] for name in end]


def test_evaluations_are_lines_of_the_log_and_of_the_metrics(capsys):
    assert train(*NEXT, *EVERY) == 0
    shown = capsys.readouterr().err
    found = lines()
    within = [line for line in found if "loss" not in line]
    updates = [line["updates"] for line in within]
    for before, after in zip([0, *updates], updates, strict=False):
        assert after // 32 > before // 32
    assert "loss" not in within[0] and within[0]["epoch"] == 1
    for line in within:
        assert f"update {line['updates']}: held_out {line['held_out']:.4f}, " in shown
    ends = [line for line in found if "loss" in line]
    assert [line["epoch"] for line in ends] == [1, 2, 3, 4]
    assert ends[-1]["hr@10"] is not None  # the end is always evaluated
    assert shown.count("baselines from counts: held_out ") == 1


@pytest.mark.parametrize(
    ("every", "evaluated"),
    [("1epoch", 4), ("2epochs", 2), ("3epochs", 2), ("never", 1)],
)
def test_epochs_between_evaluations(every, evaluated):
    assert train(*HELD_OUT, "--eval-every", every) == 0
    assert len(lines()) == 4
    given = [line["held_out"] is not None for line in lines()]
    assert given.count(True) == evaluated and given[-1]


def test_events_within_epochs_are_at_updates(monkeypatch):
    added = []

    def add(self, step, metrics):
        if "alpha" in metrics:  # else it is a point of progress.jsonl
            added.append((step, metrics.get("held_out")))

    monkeypatch.setattr("embedder.run.events.Events.add", add)
    assert train(*HELD_OUT, *EVERY) == 0
    found = lines()
    assert [score for _, score in added] == [line["held_out"] for line in found]
    steps = [step for step, _ in added]
    within = [line["updates"] for line in found if "loss" not in line]
    assert steps == sorted(steps) and {*within} < {*steps}


def test_the_hit_rate_is_that_of_the_ranking(capsys):
    assert train(*NEXT, "--epochs", "1") == 0
    encoded = encode(sequences_corpus(topics()), 1)
    with np.load("run/model.npz") as members:
        input, output = members["input"], members["output"]
    counts = encoded.vocabulary.counts
    found = next_item(input, counts, sequences(encoded, 0.1), output=output)
    last = lines()[-1]
    assert last["hr@10"] == found.hit_rate > 0
    assert (last["ndcg@10"], last["mrr"]) == (found.ndcg, found.mrr)
    assert last["mrr by popularity"] == found.baseline.mrr
    assert {"mrr by followed most often", "mrr by same session"} < {*last}
    baseline = f"hr@10 {found.baseline.hit_rate:.4f} (popularity)"
    assert baseline in capsys.readouterr().err


def after_best(name: str) -> int:
    """The number of evaluations after the best by a metric, the first of equals."""
    scores = [line[name] for line in lines() if line[name] is not None]
    return len(scores) - 1 - int(np.argmax(scores))


def test_a_run_ends_after_evaluations_without_a_better_score(capsys):
    assert train(*NEXT, *EVERY, "--patience", "3", "--save-every", "never") == 0
    shown = capsys.readouterr().err
    assert after_best("hr@10") == 3
    best = max(line["hr@10"] for line in lines() if line["hr@10"] is not None)
    message = f"none of the last 3 evaluations was better than hr@10 {best:.4f}, "
    assert message in shown and "The schedule is cut: alpha is still " in shown
    assert lines()[-1]["updates"] < 4 * 100
    assert train(*NEXT, *EVERY, "--patience", "3") == 0  # it is finished
    assert "epoch" not in capsys.readouterr().err


def test_a_run_whose_scores_rise_is_not_ended(capsys):
    assert train(*HELD_OUT, "--patience", "4") == 0
    assert len(lines()) == 4 and "Ends early" not in capsys.readouterr().err


def test_the_result_is_the_best_evaluation_within_an_epoch(capsys):
    options = *NEXT, *EVERY, "--patience", "3", "--result", "best"
    assert train(*options) == 0
    scores = {x["updates"]: x["hr@10"] for x in lines() if "loss" not in x}
    epochs = {x["updates"]: x["epoch"] for x in lines() if "loss" not in x}
    best = max(scores, key=lambda updates: scores[updates])
    assert (
        f"The best is update {best}, in epoch {epochs[best]}, "
        in capsys.readouterr().err
    )
    found = Checkpoints(Path("run/checkpoints")).read(best)
    vectors = read_vectors("run/vectors.safetensors")
    np.testing.assert_array_equal(vectors.matrix, found.arrays["params.tables.input"])
    last = [*options[:-1], "last", "--overwrite"]
    assert train(*last) == 0
    other = read_vectors("run/vectors.safetensors")
    assert not np.array_equal(other.matrix, vectors.matrix)


@pytest.mark.slow
@pytest.mark.parametrize("patience", ["0", "3", "100"])
def test_a_stopped_run_has_the_same_evaluations_and_end(stopped, capsys, patience):
    """Stopped after the second of three evaluations without a better score, say."""
    options = *NEXT, *EVERY, "--patience", patience, "--result", "best"
    options += ("--alpha", "0.3", "--save-every", "16")
    assert train(*options, run="whole") == 0
    assert ("Ends early" in capsys.readouterr().err) == (patience == "3")
    stopped("text.txt", "--workdir", "run", *options, epoch=1)
    assert train(*options) == 0
    assert_same("run", "whole", "model.npz", "vectors.safetensors")
    assert untimed("run") == untimed("whole")


def test_a_run_that_was_saved_at_its_end_does_not_train_on():
    encoded = encode(sequences_corpus(topics()), 1)
    given = with_options(
        Config(),
        **{"vector_size": 4, "min_count": 1, "loader": "memory", "sample": 0},
        **{"block": 32, "blocks_per_update": 1, "holdout": 0.1, "eval_every": 16},
        **{"best_by": "next-item", "patience": 2},
    )
    config = resolve(given, encoded.num_tokens)
    training = Training(config, encoded, range(5))
    seen, early = [], Evaluations(Interval(updates=16), 2)
    state = training.initial_state()
    arguments = (lambda status: seen.append(status.snapshot()), None, lambda: None)
    end = run_epochs(training, state, *arguments, None, early)
    assert 0 < end.position.progress < 1 and end.position.waits == 2
    assert seen[-1].position == end.position
    found = run_epochs(training, seen[-1].state, evaluations=early, start=end.position)
    assert found.position == end.position
    tables = end.state.params["tables"]
    for name, table in found.state.params["tables"].items():
        np.testing.assert_array_equal(table, tables[name])


@pytest.mark.slow
def test_an_encoder_is_evaluated_within_epochs_and_ends_early(capsys):
    options = *VALIDATED, "--eval-every", "16"
    encoder = {"source": "examples.npz"}
    assert train(*options, **encoder, run="all") == 0
    assert train(*VALIDATED, **encoder, run="without") == 0
    assert_same("all", "without", "vectors.safetensors")
    assert any("loss" not in line for line in lines("all"))
    capsys.readouterr()
    assert train(*VALIDATED, "--patience", "1", "--epochs", "60", **encoder) == 0
    losses = [line["val_loss"] for line in lines()]
    assert len(losses) < 60 and losses[-1] >= losses[-2]
    assert all(b < a for a, b in zip(losses[:-2], losses[1:-1], strict=True))
    shown = capsys.readouterr().err
    assert "The schedule is cut: learning_rate is" in shown
    assert f"evaluations was better than validation loss {losses[-2]:.4f}, " in shown


def test_time_between_evaluations(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    timer = Timer(Evaluations(Interval(seconds=10)))
    due = []
    for now[0] in (105.0, 110.0, 112.0, 119.0, 120.0):
        due.append(timer.is_due(0, 1))
        if due[-1]:
            timer.restart()
    assert due == [False, True, False, False, True]
    assert timer.is_due_at_end(4, of=4) and not timer.is_due_at_end(3, of=4)


def test_processes_agree_on_the_time_every_few_calls(monkeypatch):
    """The others follow the clock of the first."""
    asked = []

    def agree(value):
        asked.append(value)
        return True

    timer = Timer(Evaluations(Interval(seconds=1e9), agree=agree, meet_every=4))
    assert [timer.is_due(0, 1) for _ in range(8)] == 2 * [False, False, False, True]
    assert asked == [False, False]


REFUSED = {
    "patience": (SMALL, ["--patience", "3"], "`patience` needs `best_by`, got 3."),
    "encoder": (
        ENCODER,
        ["--patience", "3"],
        "`patience` needs `validation_fraction`, got 3.",
    ),
    "nothing to score": (
        SMALL,
        ["--eval-every", "100"],
        "`eval_every` needs `holdout` or `best_by`, by which vectors are scored, got "
        "'100'.",
    ),
    "never": (
        HELD_OUT,
        ["--patience", "3", "--eval-every", "never"],
        "`patience` counts evaluations, got 3 with `eval_every` = 'never'.",
    ),
    "no held-out sequence": (
        SMALL,
        ["--best-by", "held-out"],
        "`best_by` held-out needs `holdout`, such as 0.01, got 0.0.",
    ),
    "no such score": (
        SMALL,
        ["--best-by", "next_item", "--holdout", "0.1"],
        "next_item: No such file",
    ),
    "zero": (SMALL, ["--eval-every", "0"], "`eval_every` must be a number of updates"),
    "negative": (NEXT, ["--patience", "-1"], "`patience` must be an integer >= 0"),
    "text": (NEXT, ["--eval-every", "often"], "`eval_every` must be a number"),
    "no sequence": (
        SMALL,
        ["--best-by", "next-item", "--holdout", "1e-9"],
        "`holdout` = 1e-09 holds out none of the 400 sequences",
    ),
}


@pytest.mark.row("B39")
@pytest.mark.parametrize(("given", "options", "message"), REFUSED.values(), ids=REFUSED)
def test_wrong_use_is_one_line_and_leaves_nothing(capsys, given, options, message):
    source = "examples.npz" if given == ENCODER else "text.txt"
    assert train(*given, *options, source=source) == 2
    assert message in error_line(capsys)
    assert not Path("run").exists()


@pytest.mark.row("B39")
@pytest.mark.parametrize(
    ("text", "best", "message"),
    [
        ("a\nb\nc\n" * 20, "held-out", "no sequence of two tokens or more"),
        ("a\nb\nc\n" * 20, "next-item", "no sequence of two tokens or more"),
        ("a b a\n" * 30, "next-item", "no sequence whose last item is new in it"),
    ],
)
def test_held_out_sequences_without_a_case_are_refused(capsys, text, best, message):
    Path("text.txt").write_text(text)
    assert train(*SMALL, "--holdout", "0.3", "--best-by", best) == 2
    assert f"`holdout` 0.3 holds out {message}" in error_line(capsys)
    assert not Path("run").exists()


@pytest.mark.row("B39")
@pytest.mark.parametrize("options", [EVERY, ("--patience", "2")])
def test_a_sweep_has_no_evaluations(capsys, options):
    Path("space.toml").write_text("alpha = [0.02, 0.05]")
    command = ["sweep", "space.toml", "text.txt", "--workdir", "sweep"]
    assert main([*command, *HELD_OUT, *options]) == 2
    name = options[0].removeprefix("--").replace("-", "_")
    assert f"`{name}` applies only to train, got " in error_line(capsys)
