"""`embedder watch`: what the files of a run tell, in any width, while it trains."""

import contextlib
import io
import json
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embedder import read_vectors
from embedder.cli.main import main
from embedder.disk.lock import _boot_id, hold_lock
from embedder.disk.workdir import Workdir
from embedder.engine.checkpoints import Checkpoints
from embedder.report.chart import text_chart
from embedder.report.watch import probes as watch_probes
from tests.commands import SECONDS, flip, read_until, run_python, train_runs

FAST = "--loader memory --vector-size 8 --min-count 1 --sample 0 --block 32 "
FAST += "--blocks-per-update 2"
WORDS = [f"w{n}" for n in range(60)]
HOSTILE = ["\x1b[2J\x1b]0;x\x07", "[red]x[/]", "\u202eabc", "漢字" * 30, "x" * 90]
KNOWN = "w1", "w50"


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """Finished runs of tokens, of replicas and of features; tests only read them."""
    folder, rng = tmp_path_factory.mktemp("runs"), np.random.default_rng(0)
    share = 1 / np.arange(1, len(WORDS) + 1)
    text = rng.choice(WORDS, (200, 20), p=share / share.sum())
    (folder / "text.txt").write_text("\n".join(map(" ".join, text)) + "\n")
    hostile = [" ".join(rng.permutation(HOSTILE)) for _ in range(40)]
    (folder / "hostile.txt").write_text("\n".join(hostile))
    np.savez(folder / "x.npz", x=rng.normal(size=(60, 4)), y=np.arange(60) % 2)
    features = "x.npz --model encoder --loader memory --epochs 2"
    train_runs(
        folder,
        tokens=f"text.txt {FAST} --no-report --save-every 8 --epochs 3",
        replicas=f"text.txt {FAST} --no-report --replicas 2 --save-every 40",
        hostile=f"hostile.txt {FAST} --no-report --save-every 4 --holdout 0.1",
        features=f"{features} --no-report --validation-fraction 0.5",
    )
    return folder


@pytest.fixture(autouse=True)
def own_folder(own_folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def run(runs) -> Path:
    """A copy of the run of tokens, which a test may change."""
    return Path(shutil.copytree(runs / "tokens", "run"))


@pytest.fixture
def unfinished(run) -> Path:
    """The run as if it had been stopped after its newest checkpoint."""
    (run / "vectors.safetensors").unlink()
    return run


def shown(capsys, *arguments) -> str:
    capsys.readouterr()
    assert main(["watch", *map(str, arguments)]) == 0
    out = capsys.readouterr()
    assert out.err == ""
    return out.out


def near(text: str) -> dict[str, list[str]]:
    """The neighbours that are shown of each word; + begins a new one."""
    lines = re.findall(r"^(w\d+): ((?:.|\n(?!w\d+:))*)", text, re.MULTILINE)
    found = {word: re.findall(r"\+?w\d+(?= )", others) for word, others in lines}
    assert all(len(each) == 8 for each in found.values())
    return found


def of_words(capsys, run: Path, *words: str) -> dict[str, list[str]]:
    """Their neighbours, without what is new."""
    found = near(shown(capsys, run, "--probe", *(words or KNOWN)))
    return {word: [x.lstrip("+") for x in each] for word, each in found.items()}


def expected(matrix: np.ndarray, keys: list[str], word: str) -> list[str]:
    unit = matrix / np.linalg.norm(matrix, axis=1, keepdims=True)
    order = np.argsort(-(unit @ unit[keys.index(word)]), kind="stable")
    return [keys[i] for i in order if keys[i] != word][:8]


def stamps(run: Path) -> dict[Path, tuple]:
    paths = [run, *run.rglob("*")]
    stats = {path: path.stat() for path in paths}
    return {path: (x.st_mtime_ns, x.st_ino, x.st_size) for path, x in stats.items()}


def steps(run: Path) -> list[int]:
    """The updates of its checkpoints, the newest first."""
    return Checkpoints(run / "checkpoints").steps()


def test_a_finished_run_is_shown_and_only_read(run, capsys):
    before = stamps(run)
    Path("names.csv").write_text("key,name\nw3,Red tea\nw5,Blue\x1b[31m tea\n")
    text = shown(capsys, run, "--once", "--probe", "w3", "w7")
    assert stamps(run) == before
    assert "Finished: 3 epochs" in text and "Neighbours at the end; +" in text
    assert "loss" in text and "alpha" in text and "words/s" in text
    vectors, found = read_vectors(run), near(text)
    for word in ("w3", "w7"):
        best = [x for x, _ in vectors.most_similar(word, topn=8)]
        assert [x.lstrip("+") for x in found[word]] == best
        assert f"{word}: " in text.replace("+", "")
        first = f"{word}: {best[0]} {vectors.similarity(word, best[0]):.2f}"
        assert first in text.replace("+", "")
    wanted = ("--names", "names.csv", "--probe", *WORDS[:20])
    text = " ".join(shown(capsys, run, *wanted).split())
    assert "w3 (Red tea): " in text
    assert "w5 (Blue\\x1b[31m tea)" in text and "\x1b[31m tea" not in text


def test_an_unfinished_run_has_the_neighbours_of_its_newest_checkpoint(
    unfinished, capsys
):
    newest, older, *_ = steps(unfinished)
    text = shown(capsys, unfinished)  # standard output is no terminal
    assert "No process trains it: nothing was written for" in text
    assert f"at update {newest}; + is new since update {older}" in text
    keys = read_vectors(unfinished / "vectors.txt").keys
    table = Checkpoints(unfinished / "checkpoints").read(newest).arrays
    table = table["params.tables.input"]
    assert [*near(text)] == keys[:5]
    found = near(shown(capsys, unfinished, "--probe", *KNOWN))
    aside = unfinished / "checkpoints" / str(newest)
    aside.rename("aside")
    before = of_words(capsys, unfinished)
    for word in KNOWN:
        assert [x.lstrip("+") for x in found[word]] == expected(table, keys, word)
        new = [x[1:] for x in found[word] if x.startswith("+")]
        assert new == [x for x in expected(table, keys, word) if x not in before[word]]


def test_replicas_and_encoders_say_what_is_shown(runs, capsys):
    run = Path(shutil.copytree(runs / "replicas", "run"))
    (run / "vectors.safetensors").unlink()
    keys = read_vectors(runs / "tokens/vectors.txt").keys
    text = shown(capsys, run)
    assert "Neighbours are those of the first replica." in text
    arrays = Checkpoints(run / "checkpoints").newest().arrays
    first = arrays["params.tables.input"][0]
    assert of_words(capsys, run, "w5")["w5"] == expected(first, keys, "w5")
    text = shown(capsys, runs / "features")
    assert "Neighbours are not shown: they are of runs of tokens." in text
    assert "train_accuracy" in text and "examples/s" in text


def test_neither_jax_nor_tensorflow_is_loaded(run):
    """A watcher that takes memory of the device would disturb the training."""
    code = "import os, sys; sys.argv = ['embedder', 'watch', 'run']\n"
    code += "from embedder.cli.main import main\nassert main() == 0\n"
    code += "os.remove('run/vectors.safetensors')\n"
    code += "assert main() == 0\nprint(*sys.modules)"
    done = run_python("-c", code)
    assert done.returncode == 0, done.stderr
    names = done.stdout.splitlines()[-1].split()
    assert "tensorstore" in names and not {"jax", "tensorflow", "orbax"} & {*names}


@pytest.mark.row("F55")
@pytest.mark.parametrize("fault", ["flipped", "cut", "incomplete", "goes before"])
def test_a_faulty_checkpoint_is_passed_over(unfinished, capsys, monkeypatch, fault):
    """Damage is named; a run may remove one before, or after, it was compared."""
    newest, older, *_ = steps(unfinished)
    folder = unfinished / "checkpoints" / str(newest)
    check = watch_probes.check_digests
    if fault == "incomplete":
        (folder / "SHA256SUMS").unlink()
    elif fault == "goes before":

        def vanish(each: Path) -> None:
            if each.name == str(newest):
                shutil.rmtree(each)
            check(each)

        monkeypatch.setattr(watch_probes, "check_digests", vanish)
    else:
        files = [x for x in (folder / "state").rglob("*") if x.is_file()]
        path = max(files, key=lambda x: x.stat().st_size)
        flip(path)
        if fault == "cut":
            path.write_bytes(path.read_bytes()[:-9])
    text = " ".join(shown(capsys, unfinished).split())
    assert f"Neighbours at update {older}" in text
    is_damaged = fault in ("flipped", "cut")
    assert (f"Checkpoint {newest} is not read: state/" in text) == is_damaged
    shutil.rmtree(unfinished / "checkpoints")
    assert "Neighbours come with the first checkpoint" in shown(capsys, unfinished)


def test_checkpoints_that_a_run_replaces_meanwhile_are_followed(
    unfinished, capsys, monkeypatch
):
    newest, *_ = steps(unfinished)
    check, folder = watch_probes.check_digests, unfinished / "checkpoints"

    def replace(each: Path) -> None:
        for step in steps(unfinished):
            if step <= newest:
                (folder / str(step)).rename(folder / str(newest + step))
        check(each)

    monkeypatch.setattr(watch_probes, "check_digests", replace)
    text = " ".join(shown(capsys, unfinished).split())
    assert f"Neighbours at update {2 * newest}" in text


@pytest.mark.row("F56")
def test_a_run_that_is_started_anew_has_its_own_words(run, runs):
    reader = watch_probes.Probes()
    reader.read(Workdir(run), is_finished=True)
    command = f"{runs}/hostile.txt {FAST} --no-report --overwrite --workdir run"
    assert main(["train", *command.split()]) == 0
    found = reader.read(Workdir(run), is_finished=True)
    assert {probe.word for probe in found.probes} == {*HOSTILE}


# --- what the files tell


def start(path: str = "run", config: str = "epochs = 4") -> Path:
    """The folder of a run that has its settings."""
    run = Path(path)
    run.mkdir(parents=True, exist_ok=True)
    (run / "config.toml").write_text(f"[run]\n{config}\n")
    return run


def point(updates: float, **values) -> str:
    at = {"epoch": 1, "updates": updates, "progress": updates / 100}
    return json.dumps({**at, "seconds": updates * 2.0, **values}) + "\n"


def metrics(epoch: int, **values) -> str:
    return json.dumps({"epoch": epoch, "updates": 25 * epoch, **values}) + "\n"


def told(capsys, path="run") -> str:
    return " ".join(shown(capsys, path).split())


@pytest.mark.row("B67")
def test_a_run_that_is_not_started_is_waited_for(capsys):
    Path("new").mkdir()
    assert "waiting for its first file" in told(capsys, "new")
    with hold_lock(Path("new/.lock")):
        assert "a process prepares it" in told(capsys, "new")
    start("new")
    assert "no update is done yet" in told(capsys, "new")


def test_curves_are_of_the_file_with_more_points(capsys):
    run = start()
    lines = metrics(1, loss=3.0, held_out=0.5) + metrics(2, loss=2.0, held_out=0.75)
    (run / "metrics.jsonl").write_text(lines)
    (run / "progress.jsonl").write_text(point(10))
    text = told(capsys)
    assert ": loss 2, held_out 0.75. loss 2 held_out 0.75 3 " in text
    assert "50 updates" in text and "update 25 50" in text
    points = "".join(point(x, loss=x / 10) for x in (10, 30, 60))
    (run / "progress.jsonl").write_text(points)
    text = told(capsys)
    assert "loss 6 held_out 0.75 6 " in text and "update 10 60 update 25" in text
    assert "60.0 % of 4 epochs, 60 updates" in text


def test_the_time_left_is_told_by_lines_since_the_run_was_resumed(capsys):
    run, lines = start(), ""
    with hold_lock(run / ".lock"):
        for more, left in (
            (point(10, seconds=900.0) + point(20, seconds=1000.0), "13 min 20 s left"),
            (point(21, seconds=1.0), None),
            (point(31, seconds=11.0), "1 min 09 s left"),
        ):
            lines += more
            (run / "progress.jsonl").write_text(lines)
            text = told(capsys)
            assert left in text if left else " left." not in text


@pytest.mark.row("B69")
@settings(max_examples=40)
@given(data=st.binary(max_size=200), cut=st.integers(0, 200))
def test_any_bytes_are_read(data, cut, tmp_path_factory):
    run = start(str(tmp_path_factory.mktemp("run")))
    lines = point(10, loss=1.0) + point(20, loss=float("nan")) + point(30, loss=2.0)
    part = point(40, loss=3.0)[:cut].encode()
    (run / "progress.jsonl").write_bytes(lines.encode() + data + b"\n" + part)
    (run / "metrics.jsonl").write_bytes(data)
    with contextlib.redirect_stdout(io.StringIO()) as text:
        assert main(["watch", str(run)]) == 0
    assert re.search(r"Unfinished: [\d.]+ % of 4 epochs(?s:.*)\nloss ", text.getvalue())


@pytest.mark.row("B69")
def test_half_written_and_damaged_lines_are_left_out(capsys):
    run = start()
    bad = f'[1]\n{{"updates": "x"}}\n{point(15, loss=1e301)}{point(20)[:9]}'
    (run / "progress.jsonl").write_text(point(5, loss=9.0) + point(10, loss=1.0) + bad)
    lines = metrics(1, loss=3.0) + "}\n" + metrics(2, loss=2.0)[:7]
    (run / "metrics.jsonl").write_text(lines)
    text = told(capsys)
    assert "loss 1 9 " in text and "update 5 10 " in text
    assert "2 damaged lines of metrics.jsonl are left out." in text


def test_the_longer_run_is_shown_until_it_is_finished(capsys):
    run = start()
    (run / "vectors.npz").write_bytes(b"")
    longer = start("run/longer")
    (longer / "progress.jsonl").write_text(point(70))
    assert "Unfinished: 70.0 % of 4 epochs, 70 updates." in told(capsys)


@pytest.fixture(scope="module")
def ended() -> int:
    """The id of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def write_lock(pid: int, **values) -> None:
    owner = {"pid": pid, "host": socket.gethostname(), "boot": _boot_id()}
    Path("run/.lock").write_text(json.dumps(owner | values))


@pytest.mark.row("F56")
def test_a_killed_run_is_told_by_its_lock(ended, capsys):
    run = start()
    (run / "progress.jsonl").write_text(point(10))
    write_lock(os.getpid())
    text = told(capsys)
    assert "Training: 10.0 % of 4 epochs, 10 updates" in text
    assert "written" not in text
    write_lock(ended)
    past = time.time() - 125
    for path in run.iterdir():
        os.utime(path, (past, past))
    text = told(capsys)
    said = f"Process {ended} has ended before the run was finished: nothing was written"
    assert "Unfinished" in text and f"{said} for 2 min 0" in text
    write_lock(ended, host="elsewhere")
    os.utime(run / ".lock", (past, past))
    assert "Nothing was written for 2 min" in told(capsys)
    for damaged in ("", "{", '{"pid": -1, "host": "x"}', "[1]", "\0", None):
        Path("run/.lock").unlink()
        if damaged is not None:
            Path("run/.lock").write_text(damaged)
        assert "Process" not in told(capsys).replace("No process", "")
    assert "No process trains it: nothing" in told(capsys)


def test_why_a_run_ended_is_told_until_it_is_trained_again(ended, capsys):
    run = start()
    for text, said in (
        ('{"how": "diverged", "message": "x."}', ["Diverged: x."]),
        ('{"how": "stopped", "message": "x\\u001b[2J."}', ["Stopped: x\\x1b[2J."]),
        ('{"how": "won", "message": "x"}', []),
        ('{"how": "failed"', []),
    ):
        (run / "ended.json").write_text(text)
        ends = r"(?:Diverged|Stopped|Won|Failed): \S+"
        assert re.findall(ends, told(capsys)) == said
    (run / "ended.json").write_text('{"how": "failed", "message": "No space"}')
    write_lock(os.getpid())  # a process resumes it
    assert "Failed" not in told(capsys)
    write_lock(ended)
    assert "Failed: No space" in told(capsys)


@pytest.mark.parametrize(
    ("manifest", "unit"),
    [
        ([{"columns": {"session": "s", "item": "i"}, "keys": "text"}], "items/s"),
        ([{"columns": {"source": "a", "target": "b"}}], "words/s"),
        ([{"file": "x.txt", "columns": 3}, 7], "words/s"),
        (None, "words/s"),
    ],
)
def test_speed_counts_what_the_progress_line_counts(manifest, unit, capsys):
    """Files name the items of sessions `words`, too."""
    run = start()
    if manifest is not None:
        (run / "corpus.json").write_text(json.dumps({"manifest": manifest}))
    lines = (metrics(i, loss=1.0, words=9, words_per_second=5.0 + i) for i in (1, 2))
    (run / "metrics.jsonl").write_text("".join(lines))
    assert f"{unit} 7" in told(capsys)


def test_a_run_that_ended_early_says_why(run, capsys):
    best = "patience = 2\n[tokens]\nholdout = 0.1\nbest_by = 'held-out'"
    start(config=f"epochs = 4\n{best}")
    said = "early: 2 evaluations in a row were no better (patience)."
    assert f"Finished: 3 of 4 epochs, 189 updates; {said}" in told(capsys)
    start(config="epochs = 3")
    assert "Finished: 3 epochs, 189 updates. " in told(capsys)


# --- what is seen


@pytest.mark.row("B70")
@pytest.mark.parametrize("width", [24, 40, 80, 200])
def test_nothing_is_cut_and_nothing_controls_the_terminal(
    runs, width, capsys, monkeypatch
):
    from rich.cells import cell_len

    monkeypatch.setenv("COLUMNS", str(width))
    run = Path(shutil.copytree(runs / "hostile", "r\x1bun"))
    (run / "vectors.safetensors").unlink()
    lines = shown(capsys, run).splitlines()
    assert max(map(cell_len, lines)) <= width
    text = "".join(line.strip() for line in lines)
    assert text.isprintable()
    whole = re.sub(r"\s", "", text)
    for part in (r"r\x1bun", r"\x1b[2J\x1b]0;x\x07", "[red]x[/]", "\\u202eabc"):
        assert part in whole
    assert whole.count("漢字" * 30) >= 5 and "x" * 79 in whole


def test_a_rising_line_goes_from_the_lower_left_to_the_upper_right():
    rising = text_chart([(0, 1.0), (10, 4.0)], 4, 4, dots=False)
    assert rising == ["   *", "  *", " *", "*"]
    fall = text_chart([(0, 9.0), (1, 0.0), (2, 0.0)], 3, 3, dots=False)
    assert fall == ["*", " *", " **"]
    low, high = text_chart([(0, 0.0), (1, 1.0)], 1, 2)[::-1]  # 2 x 4 dots of Braille
    left, right = 0x40, 0x08 + 0x10 + 0x20
    assert (low, high) == (chr(0x2800 + left + right), chr(0x2800 + right + 0x80))
    points = [(x, float(x % 2)) for x in range(1000)] + [(1000.0, 5.0)]
    *_, lowest = text_chart(points, 10, 10, dots=False)
    assert lowest == "*" * 9  # the mean of zeros and ones, below 5
    for dots in (True, False):
        lines = text_chart([(0, 2.0), (5, 2.0)], 6, 3, dots=dots)
        assert lines[0] == lines[2] == (chr(0x2800) * 6 if dots else "") != lines[1]


numbers = st.floats(-1e300, 1e300)
curves = st.lists(st.tuples(st.floats(0, 1e12), numbers), min_size=1, max_size=60)
sizes = st.integers(1, 30)


@given(curves, sizes, sizes, st.booleans())
def test_any_curve_fills_its_columns_and_no_more(points, width, height, dots):
    lines = text_chart(sorted(points), width, height, dots=dots)
    assert len(lines) == height
    blank = chr(0x2800) if dots else " "
    used = {i for line in lines for i, each in enumerate(line) if each != blank}
    assert used == {*range(width)} and max(map(len, lines)) == width


# --- on a terminal


def watching(*arguments: str, **size: str) -> tuple[subprocess.Popen, int]:
    """`embedder watch` on a terminal of 60 x 40, and the terminal."""
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "embedder.cli.main", "watch", *arguments]
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "60", "LINES": "40", **size}
    process = subprocess.Popen(command, env=env, stdout=slave, stderr=subprocess.PIPE)
    os.close(slave)
    return process, master


@pytest.mark.parametrize("height", [50, 16, 9])
def test_a_low_window_shows_fewer_curves_and_names_the_others(
    runs, height, monkeypatch
):
    monkeypatch.chdir(runs)
    process, master = watching("features", LINES=str(height))
    text = read_until(master, b"\x1b[?25h").decode()
    process.communicate(timeout=SECONDS)
    os.close(master)
    last = re.sub(r"\x1b\[[0-9;?]*[a-z]", "", text.rpartition("\x1b[2K")[2])
    assert last.strip().count("\n") < height
    names = "loss", "train_accuracy", "val_loss", "val_accuracy", "learning_rate"
    drawn, _, named = last.partition("A taller window shows ")
    left = [name for name in names if not re.search(f"\n{name} [0-9.]+ *\r", drawn)]
    assert [name for name in names if re.search(f"\\b{name}[,.]", named)] == left
    assert len(left) == {50: 0, 16: 3, 9: 5}[height]


@pytest.mark.spread(1)
@pytest.mark.row("F56")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_one_line_and_the_cursor(number):
    process, master = watching("new", "--every", "1000")
    read_until(master, b"waiting for its first file")
    process.send_signal(number)
    rest = read_until(master, b"\x1b[?25h")
    assert b"\x1b[?25h" in rest  # the cursor is shown again
    _, errors = process.communicate(timeout=SECONDS)
    os.close(master)
    assert process.returncode == 128 + number
    assert errors.decode() == "embedder: Interrupted.\n"


@pytest.mark.slow
@pytest.mark.row("F56")
def test_it_follows_a_run_from_before_its_start_to_its_end(runs):
    process, master = watching("run", "--every", "0.05", "--probe", "w1")
    data = read_until(master, b"waiting for its first file")
    flags = [str(runs / "text.txt"), *FAST.split(), "--save-every", "16"]
    command = [sys.executable, "-m", "embedder.cli.main", "train", *flags]
    endless = [*command, "--workdir", "killed", "--epochs", "1000000"]
    with subprocess.Popen(endless, stderr=subprocess.DEVNULL) as other:
        while not [*Path().glob("killed/checkpoints/*/SHA256SUMS")]:
            assert other.poll() is None
            time.sleep(0.1)
        watch = "-m", "embedder.cli.main", "watch", "killed", "--probe", "w1"
        during = run_python(*watch)
        other.kill()
    after = run_python(*watch)
    assert "Training: " in during.stdout and "has ended" not in during.stdout
    assert "Unfinished: " in after.stdout and f"Process {other.pid} has" in after.stdout
    assert run_python(*command[1:], "--workdir", "run").returncode == 0
    data += read_until(master, b"Neighbours at the end")
    _, errors = process.communicate(timeout=SECONDS)
    os.close(master)
    assert (process.returncode, errors) == (0, b"")
    assert b"Finished: 5 epochs" in data
