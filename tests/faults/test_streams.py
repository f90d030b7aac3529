"""Standard output and standard error that fail, and terminals that are closed."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from embedder.cli.main import main
from tests.commands import SECONDS, json_lines

pytestmark = pytest.mark.slow
TRAIN = ["train", "text.txt", "--workdir", "run", "--loader", "memory"]
TRAIN += ["--vector-size", "4", "--min-count", "1", "--sample", "0"]
ENDLESS = ["--epochs", "100000"]


@pytest.fixture(autouse=True)
def own_folder(own_folder):
    Path("text.txt").write_text("a b c d a c\n" * 100)
    yield
    while started:
        started.pop().kill()


started: list[subprocess.Popen] = []


def program(*arguments: str, streams: str = "", **pipes) -> subprocess.Popen:
    """`embedder`, with its streams redirected as a shell does."""
    command = [sys.executable, "-m", "embedder.cli.main", *arguments]
    shell = ["sh", "-c", f'exec "$@" {streams}', "sh"]
    started.append(subprocess.Popen([*shell, *command], text=True, **pipes))
    return started[-1]


@pytest.mark.row("F26")
@pytest.mark.parametrize(
    ("streams", "said"),
    [
        ("2>/dev/full", "The log has gaps: standard error failed (No space left"),
        ("<&- >&- 2>&-", ""),
        (">/dev/full 2>/dev/full", ""),
    ],
)
def test_training_does_not_need_its_log(streams, said):
    process = program(*TRAIN, "--epochs", "3", streams=streams, stdout=subprocess.PIPE)
    out, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0
    assert out.startswith(said)
    assert [line["epoch"] for line in json_lines("run/metrics.jsonl")] == [1, 2, 3]
    assert main(["verify", "run"]) == 0


@pytest.mark.row("F26", "F27")
@pytest.mark.parametrize("number", [signal.SIGPIPE, signal.SIGHUP])
def test_a_log_without_a_reader_and_a_closed_terminal_stop_the_run(sighup, number):
    """What it has trained is saved."""
    process = program(*TRAIN, *ENDLESS, streams="2>&1", stdout=subprocess.PIPE)
    process.stdout.readline()
    path = Path("run/metrics.jsonl")
    while not (path.exists() and len(path.read_text().splitlines()) >= 3):
        assert process.poll() is None
        time.sleep(0.02)
    if number == signal.SIGPIPE:
        process.stdout.close()
        process.wait(timeout=SECONDS)
    else:
        process.send_signal(number)
        *_, last = process.communicate(timeout=SECONDS)[0].splitlines()
        assert last.startswith("embedder: Stopped after ")
    assert process.returncode == 128 + number
    assert [*Path("run/checkpoints").iterdir()]


@pytest.mark.row("F26")
def test_answers_that_cannot_be_written_are_an_error():
    """Where the output is the result."""
    assert main([*TRAIN, "--epochs", "1"]) == 0
    command = ["neighbors", "run", "a"]
    for streams, code in ((">/dev/full", 3), (">&-", 3), (">/dev/null 2>&-", 0)):
        process = program(*command, streams=streams, stderr=subprocess.PIPE)
        _, errors = process.communicate(timeout=SECONDS)
        assert process.returncode == code
        assert errors.startswith("embedder: standard output: " if code else "")
        assert len(errors.splitlines()) == bool(code)
