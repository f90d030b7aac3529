"""What a training shows: stages, a bar with numbers below, or lines."""

import io
import logging
import time

import pytest
from rich.console import Console

from embedder import EmbeddingTrainer, every
from embedder.base.stages import report_stage, showing_stages
from embedder.run import progress
from embedder.run.progress import display, summary
from tests.commands import status, wait_until

TEXT = [[f"w{(i * j) % 23}" for j in range(40)] for i in range(60)]


def terminal(width: int) -> Console:
    return Console(
        file=io.StringIO(), force_terminal=True, width=width, color_system=None
    )


def shown_on(console: Console) -> str:
    return console.file.getvalue()


SCORES = {"held_out": -5.8075, "link_auc": 0.9123, "link_ap": None}


@pytest.mark.parametrize("width", [40, 80, 200])
def test_nothing_is_cut_at_any_width(width):
    console = terminal(width)
    with display(console) as show:
        show(status(0.25, scores=SCORES))
    last = "".join(shown_on(console).split("epoch 1/2")[-1].split("\n"))
    assert "25 %" in last and "…" not in shown_on(console)
    text = " ".join(shown_on(console).split())
    assert "1,000 words/s, loss 2.5000, held_out -5.8075, link_auc 0.9123" in text


def test_stages_are_shown_until_training_begins_and_below_the_bar():
    console = terminal(80)
    with display(console) as show:
        report_stage("reading a\x1b[31m.txt: 3,000 tokens")
        wait_until(lambda: "reading a\\x1b[31m.txt: 3,000 tokens" in shown_on(console))
        show(status(0.5))
        report_stage("writing the results")
        wait_until(lambda: "writing the results" in shown_on(console))
    text = shown_on(console)
    end = text[text.rindex("epoch 1/2") :]
    assert "writing" not in end and "loss 2.5000" in end


def test_the_bar_appears_after_the_delay_with_what_was_told_before():
    console = terminal(80)
    with display(console, after=60) as show:
        report_stage("reading")
        show(status(1.0))
    assert shown_on(console) == ""
    with display(console, after=0.05) as show:
        show(status(0.5))
        wait_until(lambda: "50 %" in shown_on(console))
    assert "epoch 1/2" in shown_on(console)


def test_the_bar_has_a_stage_after_the_last_call():
    """Else it stands still at 100 % for as long as scores take."""
    seen: list[str] = []

    def show(status) -> None:
        seen.append(f"{status.progress:.0%}")

    trainer = EmbeddingTrainer(vector_size=4, min_count=1, epochs=1)
    with showing_stages(seen.append):
        trainer.fit(TEXT, holdout=0.2, callbacks=[every(1, show)])
    before = ["reading sequences", "reading corpus", "reading corpus: 2,400 tokens"]
    assert seen[:4] == [*before, "compiling"]
    after = seen[seen.index("finishing the last epoch") :]
    assert after[1] == "measuring scores"
    assert after[-1] == "taking the result from the device"


def test_lines_where_there_is_no_terminal(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    console = Console(file=io.StringIO(), width=20)
    with display(console) as show:
        for now in (1, 11, 12, 70, 72):  # seconds
            clock[0] = now
            show(status(now / 100))
        show(status(0.75, scores={"held_out": -5.5}))
        show(status(1.0, is_epoch_end=True, metrics={"loss": 2.5}))
    assert shown_on(console).splitlines() == [
        "epoch 1/2: 11 % of the run, loss 2.2500, 1,000 words/s, 12 min left",
        "epoch 1/2: 72 % of the run, loss 2.2500, 1,000 words/s, 4 min left",
        "epoch 1/2, update 10: held_out -5.5000",
        "epoch 1/2: loss 2.5000, 1,000 words/s, 5.0 s (1.0 s to compile)",
    ]


def test_time_left():
    for items, left in (
        *((25_000, "16 s"), (1000, "7 min"), (50, "2 h 13 min"), (5, "22 h 13 min")),
    ):
        line = summary(status(0.5, items_per_second=float(items)))
        assert line.endswith(f", {left} left")
    line = summary(status(0.5, seconds=5.0, seconds_of={"compile": 5.0}))
    assert line == "epoch 1/2: 50 % of the run, loss 2.2500, 1,000 words/s"


def test_the_log_says_what_verbose_prints(caplog, capsys, monkeypatch):
    """Nothing where there is no terminal, but the log."""
    monkeypatch.setattr(progress, "WORK_AFTER", 0.01)
    with progress.working():
        report_stage("neighbours: 1 of 3 queries")
        time.sleep(0.2)
    trainer = EmbeddingTrainer(vector_size=4, min_count=1, epochs=2).fit(TEXT)
    assert capsys.readouterr() == ("", "")
    trainer.fit(TEXT, verbose=True)
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("epoch 1/2: loss ") and second.startswith("epoch 2/2: ")
    caplog.set_level(logging.INFO, "embedder")
    trainer.fit(TEXT, verbose=False)
    data, *lines = [x for x in caplog.messages if "epoch" in x]
    assert data == "vocabulary: 23 tokens, 2,400 of 2,400 occurrences; 2 epochs"
    assert [x[:16] for x in lines] == ["epoch 1/2: loss ", "epoch 2/2: loss "]


def test_the_log_has_lines_within_long_epochs(caplog, monkeypatch):
    clock = iter(range(0, 100_000, 30))  # seconds
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    caplog.set_level(logging.INFO, "embedder")
    trainer = EmbeddingTrainer(
        vector_size=4, min_count=1, epochs=1, block=16, blocks_per_update=1
    )
    trainer.fit(TEXT, verbose=False, callbacks=every(16, lambda status: None))
    lines = [x for x in caplog.messages if x.startswith("epoch 1/1: ")]
    within, end = [x for x in lines if " % of the run, loss " in x], lines[-1]
    assert len(within) == 1 and end.startswith("epoch 1/1: loss ")


def test_work_is_shown_once_it_takes_time(monkeypatch):
    console = terminal(80)
    monkeypatch.setattr(progress, "Console", lambda file: console)
    monkeypatch.setattr(progress, "WORK_AFTER", 1000)
    with progress.working():
        report_stage("at once")
    assert shown_on(console) == ""
    monkeypatch.setattr(progress, "WORK_AFTER", 0.01)
    with progress.working():
        report_stage("neighbours: 1 of 3 queries")
        wait_until(lambda: "neighbours: 1 of 3 queries" in shown_on(console))
    assert shown_on(console).endswith("\x1b[2K")  # nothing stays
