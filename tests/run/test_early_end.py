"""Scores while a run trains: when, of what, which is best, and an end by them."""

import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from embedder import evaluate_analogies, evaluate_pairs, read_vectors
from embedder.cli.main import main
from embedder.config.settings import Interval
from embedder.data.corpus import sequences_corpus
from embedder.data.encode import encode
from embedder.data.split import sequences
from embedder.engine import epochs as module
from embedder.engine.checkpoints import CheckpointError, Checkpoints
from embedder.engine.epochs import Evaluations, Timer
from embedder.metrics.ranking import next_item
from tests.commands import json_lines

SMALL = ("--loader", "memory", "--vector-size", "4", "--min-count", "1", "--block")
SMALL += ("32", "--blocks-per-update", "1", "--sample", "0", "--epochs", "4")
HELD_OUT = (*SMALL, "--holdout", "0.1", "--best-by", "held-out")
NEXT = (*SMALL, "--holdout", "0.1", "--best-by", "next-item")
EVERY = ("--eval-every", "32")
PAIRS = (*SMALL, "--epochs", "6", "--keep", "1", "--best-by", "pairs.tsv")
ENCODER = ("--model", "encoder", "--loader", "memory", "--epochs", "6", "--keep", "1")
VALIDATED = (*ENCODER, "--learning-rate", "0.1", "--batch-size", "4")
VALIDATED += ("--validation-fraction", "0.3", "--no-report")
BEST = ("--result", "best")


def topics() -> list[list[str]]:
    """Sequences of tokens of one topic each, of which there are six."""
    rng = np.random.default_rng(0)
    return [
        [f"{topic}-{i}" for i in rng.integers(8, size=9)]
        for topic in rng.integers(6, size=400)
    ]


@pytest.fixture(autouse=True)
def own_folder(own_folder):
    Path("text.txt").write_text("\n".join(map(" ".join, topics())))
    pairs = ("0-1\t0-2\t9", "0-1\t1-1\t1", "2-2\t2-3\t8", "3-3\t4-4\t2", "5-1\t5-2\t7")
    Path("pairs.tsv").write_text("word1\tword2\tscore\n" + "\n".join(pairs))
    questions = (f"{i}-1 {i}-2 {j}-1 {j}-2\n" for i in range(6) for j in range(i))
    text = "\n: topics\n" + "".join(questions) + ": unknown\n0-1 0-2 x y\n"
    Path("questions.txt").write_text(text)
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 4)), rng.integers(3, size=60)
    np.savez("examples.npz", X=X, y=y)


def train(*options: str, source: str = "text.txt", run: str = "run") -> int:
    return main(["train", source, "--workdir", run, *options])


def lines(run: str = "run") -> list[dict]:
    return json_lines(Path(run, "metrics.jsonl"))


def measured(name: str) -> list[float]:
    return [line[name] for line in lines() if line[name] is not None]


# --- when, and what


def test_evaluations_are_lines_of_the_log_the_metrics_and_events(capsys, monkeypatch):
    added = []

    def add(self, step, metrics):
        if "alpha" in metrics:  # else it is a point of progress.jsonl
            added.append((step, metrics.get("held_out")))

    monkeypatch.setattr("embedder.run.curves.Events.add", add)
    assert train(*NEXT, *EVERY) == 0
    shown = capsys.readouterr().err
    found = lines()
    within = [line for line in found if "loss" not in line]
    updates = [line["updates"] for line in within]
    for before, after in zip([0, *updates], updates, strict=False):
        assert after // 32 > before // 32
    assert within[0]["epoch"] == 1
    for line in within:
        assert f"update {line['updates']}: held_out {line['held_out']:.4f}, " in shown
    ends = [line for line in found if "loss" in line]
    assert [line["epoch"] for line in ends] == [1, 2, 3, 4]
    assert ends[-1]["hr@10"] is not None  # the end is always evaluated
    assert shown.count("baselines from counts: held_out ") == 1
    assert [score for _, score in added] == [line["held_out"] for line in found]
    steps = [step for step, _ in added]
    assert steps == sorted(steps) and {*updates} < {*steps}
    assert train(*NEXT, run="without") == 0  # evaluations change no vector
    for name in ("vectors.safetensors", "model.npz"):
        assert Path("run", name).read_bytes() == Path("without", name).read_bytes()
    assert lines("without")[-1]["held_out"] == found[-1]["held_out"]


@pytest.mark.parametrize(
    ("every", "evaluated"),
    [("1epoch", 4), ("2epochs", 2), ("3epochs", 2), ("never", 1)],
)
def test_epochs_between_evaluations(every, evaluated):
    assert train(*HELD_OUT, "--eval-every", every) == 0
    given = [line["held_out"] is not None for line in lines()]
    assert len(given) == 4 and given.count(True) == evaluated and given[-1]


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


# --- scores of files


@pytest.mark.slow
def test_scores_of_analogies_and_their_baselines_are_those_of_the_verb(capsys):
    options = *SMALL, "--best-by", "questions.txt", *BEST, "--alpha", "0.3"
    assert train(*options, "--eval-every", "16") == 0
    shown, scores = capsys.readouterr().err, measured("analogies")
    total = evaluate_analogies(read_vectors("run"), "questions.txt").total
    assert total.accuracy == pytest.approx(max(scores)) and max(scores) > min(scores)
    assert f"analogies {total.accuracy:.4f}, nearest_to_c " in shown
    assert main(["evaluate", "run", "--analogies", "questions.txt"]) == 0
    nearest = re.search(r"nearest to c\s+([\d.]+)", capsys.readouterr().out)
    best = next(x for x in lines() if x["analogies"] == max(scores))
    assert best["nearest_to_c"] == pytest.approx(float(nearest[1]), abs=6e-4)
    assert f"{total.accuracy:.4f} [" in Path("run/report.html").read_text()
    found = json.loads(Path("run/scores.json").read_text())
    assert found["analogies"]["vectors"][0] == pytest.approx(total.accuracy)
    assert found["nearest_to_c"]["vectors"][0] == pytest.approx(best["nearest_to_c"])


# --- the best


@pytest.mark.spread(1)
@pytest.mark.parametrize("every", ["never", "1epoch"])
def test_the_best_stays_besides_the_newest_and_is_the_result(capsys, every):
    options = *PAIRS, "--alpha", "0.3", "--save-every", every
    assert train(*options, *BEST) == 0
    scores = measured("spearman")
    best = int(np.argmax(scores))
    assert max(scores) > scores[-1]  # else there is nothing to tell
    message = f"The best is epoch {best + 1}, with spearman {max(scores):.4f}."
    assert message in capsys.readouterr().err
    spearman = evaluate_pairs(read_vectors("run"), "pairs.tsv").spearman
    assert spearman == pytest.approx(max(scores), abs=1e-12)
    steps = Checkpoints(Path("run/checkpoints")).steps()
    place = Checkpoints(Path("run/checkpoints")).read(min(steps)).facts["place"]
    assert place["epoch"] == best + 1
    assert place["best"] == [scores[best], place["updates"]]
    assert len(steps) == (1 if every == "never" else 2)
    assert train(*options, "--overwrite") == 0
    spearman = evaluate_pairs(read_vectors("run"), "pairs.tsv").spearman
    assert spearman == pytest.approx(scores[-1], abs=1e-12)


def test_an_encoder_is_judged_by_its_loss_on_what_validates(capsys):
    options = *VALIDATED, *BEST, "--epochs", "60", "--patience", "1"
    assert train(*options, source="examples.npz") == 0
    losses = measured("val_loss")
    assert len(losses) < 60 and losses[-1] >= losses[-2]
    assert all(b < a for a, b in zip(losses[:-2], losses[1:-1], strict=True))
    shown = capsys.readouterr().err
    assert "The schedule is cut: learning_rate is" in shown
    assert f"evaluations was better than validation loss {losses[-2]:.4f}, " in shown
    best = len(losses) - 1
    message = f"The best is epoch {best}, with validation loss {losses[-2]:.4f}."
    assert message in shown
    with np.load("run/model.npz") as members:
        history = json.loads(members["history"].tobytes())
    assert [each["val_loss"] for each in history] == losses[:best]


def test_a_run_ends_without_a_better_score_and_the_best_is_the_result(capsys):
    """Of evaluations within epochs."""
    options = *NEXT, *EVERY, "--patience", "3", "--save-every", "never", *BEST
    assert train(*options) == 0
    shown, within = capsys.readouterr().err, [x for x in lines() if "loss" not in x]
    scores = {x["updates"]: x["hr@10"] for x in within}
    best = max(scores, key=lambda updates: scores[updates])
    (epoch,) = (x["epoch"] for x in within if x["updates"] == best)
    assert f"The best is update {best}, in epoch {epoch}, " in shown
    found = Checkpoints(Path("run/checkpoints")).read(best).arrays
    vectors = read_vectors("run").matrix
    np.testing.assert_array_equal(vectors, found["params.tables.input"])
    assert [*scores].index(best) == len(measured("hr@10")) - 1 - 3
    said = f"none of the last 3 evaluations was better than hr@10 {scores[best]:.4f}, "
    assert said in shown and "The schedule is cut: alpha is still " in shown
    assert lines()[-1]["updates"] < 4 * 100
    assert train(*options) == 0  # it is finished
    assert "epoch" not in capsys.readouterr().err


def test_the_last_is_the_result_where_the_best_is_lost(monkeypatch, capsys):
    """The disk was full when it was to be written, say."""

    def lost(self, step):
        raise CheckpointError(f"Checkpoint {step} is damaged (by a test)")

    monkeypatch.setattr(Checkpoints, "read", lost)
    assert train(*PAIRS, *BEST) == 0
    assert "the last epoch is the result, not the best." in capsys.readouterr().err
    found = evaluate_pairs(read_vectors("run"), "pairs.tsv").spearman
    assert found == pytest.approx(measured("spearman")[-1], abs=1e-12)


def test_a_best_that_was_not_kept_is_said_at_the_start(stopped, capsys):
    stopped("examples.npz", "--workdir", "run", *VALIDATED, "--save-every", "never")
    assert train(*VALIDATED, *BEST, source="examples.npz") == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert "of the best epoch so far, which was not kept: give --result last" in line
    assert train(*VALIDATED, source="examples.npz") == 0


# --- the end
KINDS = {
    "items": ("hr@10", "--window", "session"),
    "a table": ("hr@10", "--window", "5"),
    "a text": ("held_out", "--window", "5"),
    "a tree": ("held_out", "--window", "session", "--hs", "--negative", "0"),
    "a graph": ("link_auc", "--walks", "2"),
}
"""What is trained on, and the score that tells the best evaluation of it."""


@pytest.mark.spread(3)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_held_out_tells_the_best_evaluation(kind, capsys):
    """Without --best-by; a run with --patience ends by the same score."""
    score, *flags = KINDS[kind]
    source = {"a table": "t.parquet", "a graph": "edges.tsv"}.get(kind, "text.txt")
    rows = [(str(i), item) for i, line in enumerate(topics()) for item in line]
    table = pl.DataFrame(rows, ["session", "item"], orient="row")
    table.write_parquet("t.parquet")
    ring = (f"n{i}\tn{(i + j) % 40}\n" for i in range(40) for j in (1, 2, 3))
    Path("edges.tsv").write_text("".join(ring))
    options = [*SMALL, "--holdout", "0.1", *flags, "--alpha", "0.1", "--epochs", "9"]
    assert train(*options, "--patience", "1", "--result", "best", source=source) == 0
    found = measured(score)
    best = f"The best is epoch {np.argmax(found) + 1}, with {score} {max(found):.4f}."
    assert best in capsys.readouterr().err
    assert len(found) == min(np.argmax(found) + 2, 9)


def test_scores_of_next_items_are_shown_unless_they_take_long(monkeypatch, capsys):
    flags = [*SMALL, "--epochs", "1", "--holdout", "0.1", "--window", "session"]
    assert train(*flags) == train(*flags, "--best-by", "next-item", run="asked") == 0
    found, asked = lines()[-1], lines("asked")[-1]
    assert all(found[name] == asked[name] for name in asked if "@" in name)
    assert 0 < found["hr@10"] and found["mrr by popularity"] > 0
    assert train(*flags, "--best-by", "held-out", run="other") == 0
    assert "hr@10" not in lines("other")[-1]
    monkeypatch.setattr("embedder.tokens.eval_sets._FEWEST_RANKED", 5)
    monkeypatch.setattr("embedder.tokens.eval_sets._MOST_RANKED", 1)
    capsys.readouterr()
    assert train(*flags, run="sample") == 0
    sizes = re.search(r"last items of (\d+) of (\d+) held-out", capsys.readouterr().err)
    assert sizes and int(sizes[1]) <= 5 < int(sizes[2])
    for name in "mrr", "mrr by popularity":
        assert lines("sample")[-1][name] != found[name]
    ends = {Path(run, "scores.json").read_text() for run in ("run", "sample")}
    assert len(ends) == 1, "at the end those of all"
    monkeypatch.setattr("embedder.tokens.eval_sets._QUICK", 10)
    capsys.readouterr()
    assert train(*flags, run="large") == 0
    assert "Next items are not ranked, which takes long here" in capsys.readouterr().err
    assert "hr@10" not in lines("large")[-1] and "held_out" in lines("large")[-1]
