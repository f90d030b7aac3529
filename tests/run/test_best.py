"""The pass that is best by evaluation is kept, and can be the result."""

import json
from pathlib import Path

import numpy as np
import pytest

from embedder.cli import main
from embedder.run.checkpoints import CheckpointError, Checkpoints
from embedder.vectors.evaluate import evaluate_pairs
from embedder.vectors.export import read_vectors
from tests.commands import error_line

TABLES = ["--loader", "memory", "--vector-size", "4", "--min-count", "1"]
TABLES += [
    "--alpha",
    "0.05",
    "--sample",
    "0",
    "--epochs",
    "6",
    "--keep",
    "1",
    "--best-by",
    "pairs.tsv",
]
ENCODER = ["--model", "encoder", "--loader", "memory", "--epochs", "6", "--keep", "1"]
ENCODER += ["--learning-rate", "0.1", "--batch-size", "4"]
VALIDATED = [*ENCODER, "--validation-fraction", "0.3"]


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    lines = (" ".join(rng.choice([*"abcdefgh"], size=9)) for _ in range(60))
    Path("text.txt").write_text("\n".join(lines))
    pairs = ("ab", "bc", "cd", "de", "ef", "fg", "gh", "ah", "bg")
    Path("pairs.tsv").write_text(
        "".join(f"{a}\t{b}\t{i}\n" for i, (a, b) in enumerate(pairs))
    )
    X, y = rng.normal(size=(60, 4)), rng.integers(3, size=60)
    np.savez("examples.npz", X=X, y=y)


def train(source: str, *options: str, run: str = "run") -> int:
    return main(["train", source, "--workdir", run, *options])


def metrics(name: str) -> list[float]:
    lines = Path("run/metrics.jsonl").read_text().splitlines()
    return [json.loads(line)[name] for line in lines]


def steps() -> list[int]:
    return Checkpoints(Path("run/checkpoints")).steps()


@pytest.mark.spread(1)
@pytest.mark.parametrize("every", ["never", "1epoch"])
def test_the_best_stays_besides_the_newest(every):
    assert train("text.txt", *TABLES, "--save-every", every) == 0
    scores = metrics("spearman")
    best = int(np.argmax(scores))
    place = Checkpoints(Path("run/checkpoints")).read(min(steps())).facts["place"]
    assert best < 5  # else there is nothing to tell
    assert place["epoch"] == best + 1
    assert place["best"] == [scores[best], place["updates"]]
    assert len(steps()) == (1 if every == "never" else 2)


def test_the_result_is_that_of_the_best(capsys):
    assert train("text.txt", *TABLES, "--result", "best") == 0
    scores = metrics("spearman")
    message = f"The best is epoch {scores.index(max(scores)) + 1}, with spearman "
    assert f"{message}{max(scores):.4f}." in capsys.readouterr().err
    found = read_vectors("run/vectors.safetensors")
    assert evaluate_pairs(found, "pairs.tsv").spearman == max(scores)
    assert max(scores) > scores[-1]
    last = ["--result", "last", "--overwrite"]
    assert train("text.txt", *TABLES, *last) == 0
    found = read_vectors("run/vectors.safetensors")
    assert evaluate_pairs(found, "pairs.tsv").spearman == scores[-1]


@pytest.mark.slow
def test_an_encoder_is_judged_by_its_loss_on_what_validates(capsys):
    assert train("examples.npz", *VALIDATED, "--result", "best") == 0
    losses = metrics("val_loss")
    best = int(np.argmin(losses))
    message = f"The best is epoch {best + 1}, with validation loss {losses[best]:.4f}."
    assert message in capsys.readouterr().err
    assert best < 5
    with np.load("run/model.npz") as members:
        history = json.loads(members["history"].tobytes())
    assert [each["val_loss"] for each in history] == losses[: best + 1]


def test_the_last_is_the_result_where_the_best_is_lost(monkeypatch, capsys):
    """The disk was full when it was to be written, say."""

    def lost(self, step):
        raise CheckpointError(f"Checkpoint {step} is damaged (by a test)")

    monkeypatch.setattr(Checkpoints, "read", lost)
    assert train("text.txt", *TABLES, "--result", "best") == 0
    assert "the last epoch is the result, not the best." in capsys.readouterr().err
    found = read_vectors("run/vectors.safetensors")
    assert evaluate_pairs(found, "pairs.tsv").spearman == metrics("spearman")[-1]


@pytest.mark.spread(1)
@pytest.mark.parametrize(("alpha", "best"), [("0.05", 3), ("0.028", 5)])
def test_a_stopped_run_remembers_the_best(stopped, capsys, alpha, best):
    """It stops after the last update of epoch 5, before that epoch is scored."""
    options = [*TABLES, "--result", "best", "--alpha", alpha]
    assert train("text.txt", *options, run="whole") == 0
    stopped("text.txt", "--workdir", "run", *options, epoch=4)
    assert main(["train", "--workdir", "run"]) == 0
    assert f"The best is epoch {best}, " in capsys.readouterr().err
    for name in ("model.npz", "vectors.safetensors"):
        assert Path("run", name).read_bytes() == Path("whole", name).read_bytes()


def test_a_best_that_could_not_be_written_is_tried_again(monkeypatch, capsys):
    before, failed = Checkpoints._write, []

    def write(self, step, *rest):
        if not failed:
            failed.append(step)
            raise OSError(28, "No space left on device", "run")
        before(self, step, *rest)

    monkeypatch.setattr(Checkpoints, "_write", write)
    assert train("examples.npz", *VALIDATED, "--result", "best") == 0
    losses = metrics("val_loss")
    said = capsys.readouterr().err
    assert f"The best is epoch {int(np.argmin(losses)) + 1}, " in said
    assert len(failed) == 1


def test_a_best_that_was_not_kept_is_said_at_the_start(stopped, capsys):
    stopped("examples.npz", "--workdir", "run", *VALIDATED, "--save-every", "never")
    assert train("examples.npz", *VALIDATED, "--result", "best") == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert "of the best epoch so far, which was not kept: give --result last" in line
    assert train("examples.npz", *VALIDATED) == 0


@pytest.mark.spread(4)
@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("text.txt", ["--result", "best"], "`result` best needs `best_by`"),
        (
            "examples.npz",
            [*ENCODER, "--result", "best"],
            "`result` best needs `validation_fraction`",
        ),
        (
            "examples.npz",
            [*VALIDATED, "--best-by", "pairs.tsv"],
            "`best_by` applies only to `model` = 'tokens'",
        ),
        ("text.txt", ["--best-by", "nothing.tsv"], "nothing.tsv: No such file"),
        ("text.txt", ["--best-by", "text.txt"], "text.txt line 1"),
        (
            "text.txt",
            ["--result", "worst"],
            "invalid choice 'worst' for argument '--result'",
        ),
    ],
)
def test_wrong_use_is_one_line_and_leaves_nothing(capsys, source, options, message):
    assert train(source, *options) == 2
    assert message in error_line(capsys)
    assert not Path("run").exists()


def test_pairs_of_no_word_are_refused_before_training(capsys):
    Path("pairs.tsv").write_text("x\ty\t1\nz\ta\t2\n")
    assert train("text.txt", *TABLES) == 2
    message = "pairs.tsv must have 2 pairs or more with both words in the vocabulary"
    assert message in error_line(capsys)
    assert not Path("run").exists()
