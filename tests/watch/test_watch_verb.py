"""`embedder watch` on runs that are finished, that were stopped, and of each kind."""

import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from embedder.cli import main
from embedder.errors import InputKeyError
from embedder.run.checkpoints import Checkpoints
from embedder.run.workdir import Workdir
from embedder.vectors.export import read_vectors
from embedder.watch import probes as watch_probes
from embedder.watch.probes import NUM_NEIGHBORS, Probes
from tests.commands import error_line, run_python

FAST = ["--loader", "memory", "--vector-size", "8", "--min-count", "1", "--sample", "0"]
FAST += ["--block", "32", "--blocks-per-update", "2"]
WORDS = [f"w{n}" for n in range(60)]


def write_text(path: Path) -> str:
    rng = np.random.default_rng(0)
    share = 1 / np.arange(1, len(WORDS) + 1)
    text = rng.choice(WORDS, (200, 20), p=share / share.sum())
    path.write_text("\n".join(map(" ".join, text)) + "\n")
    return str(path)


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """Finished runs of tokens, of replicas and of features; tests only read them."""
    folder = tmp_path_factory.mktemp("runs")
    text, rng = write_text(folder / "text.txt"), np.random.default_rng(0)
    np.savez(folder / "x.npz", x=rng.normal(size=(60, 4)), y=np.arange(60) % 2)
    encoder = [str(folder / "x.npz"), "--model", "encoder", "--loader", "memory"]
    for name, command in {
        "tokens": [text, *FAST, "--save-every", "8", "--epochs", "3"],
        "replicas": [text, *FAST, "--replicas", "2", "--save-every", "40"],
        "features": [*encoder, "--epochs", "2", "--validation-fraction", "0.5"],
    }.items():
        assert main(["train", *command, "--workdir", str(folder / name)]) == 0
    return folder


@pytest.fixture
def run(runs, tmp_path) -> Workdir:
    """A copy of the run of tokens, which a test may change."""
    return Workdir(shutil.copytree(runs / "tokens", tmp_path / "run"))


@pytest.fixture
def unfinished(run) -> Workdir:
    """The run as if it had been stopped after its newest checkpoint."""
    run.vectors.unlink()
    return run


def shown(capsys, *arguments) -> str:
    assert main(["watch", *map(str, arguments)]) == 0
    out = capsys.readouterr()
    assert out.err == ""
    return out.out


def nearest(matrix: np.ndarray, keys: list[str], word: str) -> list[str]:
    unit = matrix / np.linalg.norm(matrix, axis=1, keepdims=True)
    cosines = unit @ unit[keys.index(word)]
    order = [keys[i] for i in np.argsort(-cosines, kind="stable")]
    return [key for key in order if key != word][:NUM_NEIGHBORS]


def found(read) -> dict[str, list[str]]:
    return {probe.word: [near.token for near in probe.near] for probe in read.probes}


def stamps(run: Workdir) -> dict[Path, tuple]:
    return {
        path: (path.stat().st_mtime_ns, path.stat().st_ino, path.stat().st_size)
        for path in [run.path, *run.path.rglob("*")]
    }


@pytest.mark.slow
def test_a_finished_run_is_shown_and_only_read(run, capsys):
    before = stamps(run)
    text = shown(capsys, run.path, "--once", "--probe", "w3", "w7")
    assert stamps(run) == before
    vectors = read_vectors(run.vectors)
    assert "Finished: 3 epochs" in text and "Neighbours at the end; +" in text
    for word in ("w3", "w7"):
        line = next(x for x in text.splitlines() if x.startswith(f"{word}: "))
        expected = [near for near, _ in vectors.most_similar(word, topn=NUM_NEIGHBORS)]
        near = line.replace("+", "").partition(": ")[2].split(", ")
        assert [each.split()[0] for each in near] == expected
        first = vectors.similarity(word, expected[0])
        assert near[0] == f"{expected[0]} {first:.2f}"
    assert "loss" in text and "alpha" in text and "words/s" in text


@pytest.mark.slow
def test_the_names_of_keys_are_shown(run, capsys, tmp_path):
    names = tmp_path / "names.csv"
    names.write_text("key,name\nw3,Red tea\n" + "w5,Blue\x1b[31m tea\n")
    command = (run.path, "--once", "--probe", "w3", "--names", names)
    text = " ".join(shown(capsys, *command).split())
    assert "w3 (Red tea): " in text
    wanted = ("--names", names, "--probe", *WORDS[:20])
    text = " ".join(shown(capsys, run.path, "--once", *wanted).split())
    assert "w5 (Blue\\x1b[31m tea)" in text and "\x1b[31m tea" not in text


@pytest.mark.row("B28")
def test_names_that_are_no_table(capsys, tmp_path):
    assert main(["watch", str(tmp_path), "--names", str(tmp_path / "no.csv")]) == 2
    assert "no.csv: No such file or directory." in error_line(capsys)
    (tmp_path / "x.csv").write_text("key\n1\n")
    assert main(["watch", str(tmp_path), "--names", str(tmp_path / "x.csv")]) == 2
    assert "`names` must be a table with the columns key" in error_line(capsys)


@pytest.mark.slow
def test_an_unfinished_run_has_the_neighbours_of_its_newest_checkpoint(
    unfinished, capsys
):
    text = shown(capsys, unfinished.path)  # standard output is no terminal
    newest, older, *_ = Checkpoints(unfinished.checkpoints).steps()
    assert "No process trains it: nothing was written for" in text
    assert f"at update {newest}; + is new since update {older}" in text
    checkpoint = Checkpoints(unfinished.checkpoints).read(newest)
    table = checkpoint.arrays["params.tables.input"]
    keys = read_vectors(unfinished.text_vectors).keys
    reader = Probes()
    neighbors = reader.read(unfinished, is_finished=False)
    assert [probe.word for probe in neighbors.probes] == keys[:5]
    for words in (["w1", "w50"], []):
        neighbors = Probes(words).read(unfinished, is_finished=False)
        for word, near in found(neighbors).items():
            assert near == nearest(table, keys, word)


def test_new_neighbours_are_those_that_were_not_there_before(unfinished):
    steps = Checkpoints(unfinished.checkpoints).steps()
    newest = unfinished.checkpoints / str(steps[0])
    aside = unfinished.path.parent / "aside"
    newest.rename(aside)
    reader = Probes(WORDS[:5])
    before = found(reader.read(unfinished, is_finished=False))
    assert reader.read(unfinished, is_finished=False).updates == steps[1]
    aside.rename(newest)
    after = reader.read(unfinished, is_finished=False)
    assert (after.updates, after.before) == (steps[0], steps[1])
    for probe in after.probes:
        for near in probe.near:
            assert near.is_new == (near.token not in before[probe.word])


def test_replicas_and_encoders_say_what_is_shown(runs, tmp_path, capsys):
    run = Workdir(shutil.copytree(runs / "replicas", tmp_path / "replicas"))
    run.vectors.unlink()
    assert "Neighbours are those of the first replica." in shown(capsys, run.path)
    first = Checkpoints(run.checkpoints).newest().arrays["params.tables.input"][0]
    keys = read_vectors(run.replicas.parent / "vectors.txt").keys
    neighbors = Probes(["w5"]).read(run, is_finished=False)
    assert found(neighbors)["w5"] == nearest(first, keys, "w5")
    text = shown(capsys, runs / "features")
    assert "Neighbours are not shown: they are of runs of tokens." in text
    assert "train_accuracy" in text and "examples/s" in text


def test_a_run_that_is_not_started_is_one_frame(tmp_path, capsys):
    assert main(["watch", str(tmp_path / "new"), "--once"]) == 2
    assert error_line(capsys) == f"embedder: RUN {tmp_path / 'new'} does not exist."
    assert not (tmp_path / "new").exists()
    (tmp_path / "new").mkdir()
    assert "waiting for its first file" in shown(capsys, tmp_path / "new", "--once")


@pytest.mark.spread(3)
@pytest.mark.row("B67", "B68")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["RUN", "--every", "0"], "`every` must be > 0 and <= 86400 seconds, got 0.0."),
        (
            ["RUN", "--every", "nan"],
            "`every` must be > 0 and <= 86400 seconds, got nan",
        ),
        (["RUN", "--every", "1e9"], "`every` must be > 0 and <= 86400 seconds, got 10"),
        (["RUN", "--probe", "w1", "w1"], "`probe` must have each word once, got w1 w1"),
        (
            ["RUN", "--probe", "W1"],
            "`probe` 'W1' is not in the vocabulary: did you",
        ),
        (
            ["https://x.org/run"],
            "https://x.org/run is a URL, where a path on this",
        ),
        (["RUN/vectors.txt"], "RUN must be a folder, got the file"),
        (["RUN/cache"], "RUN must be a run, or empty, or new"),
    ],
)
def test_wrong_arguments_are_one_line(arguments, message, run, capsys):
    first, *others = arguments
    first = first.replace("RUN", str(run.path))
    assert main(["watch", first, *others]) == 2
    assert message in error_line(capsys)


def test_neither_jax_nor_tensorflow_is_loaded(run, capsys):
    """A watcher that takes memory of the device would disturb the training."""
    code = f"import sys; sys.argv = ['embedder', 'watch', {str(run.path)!r}]\n"
    code += "from embedder.cli import main\nassert main() == 0\n"
    code += "run = sys.argv[2]; import os; os.remove(run + '/vectors.safetensors')\n"
    code += "assert main() == 0\nprint(*sys.modules)"
    done = run_python("-c", code)
    assert done.returncode == 0, done.stderr
    names = done.stdout.splitlines()[-1].split()
    assert "tensorstore" in names and not {"jax", "tensorflow", "orbax"} & {*names}


# --- faults


@pytest.mark.row("F55")
@pytest.mark.parametrize("is_cut", [False, True], ids=["flipped", "cut"])
def test_a_damaged_checkpoint_is_named_and_passed_over(unfinished, is_cut):
    newest, older, *_ = Checkpoints(unfinished.checkpoints).steps()
    files = (unfinished.checkpoints / str(newest) / "state").rglob("*")
    path = max((x for x in files if x.is_file()), key=lambda x: x.stat().st_size)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data[: len(data) // 2] if is_cut else data)
    reader = Probes(["w1"])
    assert reader.read(unfinished, is_finished=False).updates == older
    assert reader.fault.startswith(f"Checkpoint {newest} is not read: state/")


@pytest.mark.row("F55")
def test_a_checkpoint_that_is_not_complete_is_not_read(unfinished):
    newest, older, *_ = Checkpoints(unfinished.checkpoints).steps()
    (unfinished.checkpoints / str(newest) / "SHA256SUMS").unlink()
    reader = Probes(["w1"])
    assert reader.read(unfinished, is_finished=False).updates == older
    assert reader.fault == ""
    shutil.rmtree(unfinished.checkpoints)
    assert Probes(["w1"]).read(unfinished, is_finished=False) is None


@pytest.mark.row("F55")
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_checkpoint_that_goes_meanwhile_is_passed_over(unfinished, when, monkeypatch):
    """The run removes it before, or after, its digests were compared."""
    newest, older, *_ = Checkpoints(unfinished.checkpoints).steps()
    check = watch_probes.check_digests

    def vanish(folder: Path) -> None:
        if when == "after":
            check(folder)
        if folder.name == str(newest):
            shutil.rmtree(folder)
        if when == "before":
            check(folder)

    monkeypatch.setattr(watch_probes, "check_digests", vanish)
    reader = Probes(["w1"])
    assert reader.read(unfinished, is_finished=False).updates == older
    assert reader.fault == ""


@pytest.mark.row("F56")
def test_a_run_that_is_started_anew_has_its_own_words(run, runs, tmp_path):
    reader = Probes()
    reader.read(run, is_finished=True)
    text = tmp_path / "other.txt"
    text.write_text("x y z x y x\n" * 50)
    command = ["train", str(text), *FAST, "--overwrite", "--workdir", str(run.path)]
    assert main(command) == 0
    assert {*found(reader.read(run, is_finished=True))} == {"x", "y", "z"}
    with pytest.raises(InputKeyError, match="`probe` 'w1' is not in the vocabulary"):
        Probes(["w1"]).read(run, is_finished=True)


@pytest.mark.slow
@pytest.mark.row("F56")
def test_a_run_that_was_killed_says_so_and_for_how_long(tmp_path):
    text, path = write_text(tmp_path / "text.txt"), tmp_path / "run"
    command = [sys.executable, "-m", "embedder.cli", "train", text, *FAST]
    command += ["--workdir", str(path), "--epochs", "1000000", "--save-every", "32"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        while not [*path.glob("checkpoints/*/SHA256SUMS")]:
            assert process.poll() is None
            time.sleep(0.1)
        during = run_python("-m", "embedder.cli", "watch", path, "--probe", "w1")
        process.kill()
    after = run_python("-m", "embedder.cli", "watch", path, "--probe", "w1")
    assert during.returncode == after.returncode == 0
    assert "Training: " in during.stdout and "has ended" not in during.stdout
    ended = f"Process {process.pid} has ended before the run was finished: nothing"
    assert "Unfinished: " in after.stdout and ended in after.stdout
    for shown_text in (during.stdout, after.stdout):
        assert "Neighbours at update " in shown_text and "\nw1: " in shown_text


def read_until(master: int, text: bytes, seconds: float = 60) -> bytes:
    """What a terminal has shown when `text` was in it, or when it was closed."""
    data, end = b"", time.monotonic() + seconds
    while text not in data:
        assert time.monotonic() < end, data
        try:
            more = os.read(master, 65536)
        except OSError:
            break
        data += more
    return data


def watching(path: Path, *arguments: str) -> tuple[subprocess.Popen, int]:
    """`embedder watch` on a terminal of 60 x 40, and the terminal."""
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "embedder.cli", "watch", str(path), *arguments]
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "60", "LINES": "40"}
    process = subprocess.Popen(command, env=env, stdout=slave, stderr=subprocess.PIPE)
    os.close(slave)
    return process, master


@pytest.mark.row("F56")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_one_line_and_the_cursor(tmp_path, number):
    process, master = watching(tmp_path / "new", "--every", "1000")
    read_until(master, b"waiting for its first file")
    process.send_signal(number)
    rest = read_until(master, b"\x1b[?25h")
    assert b"\x1b[?25h" in rest  # the cursor is shown again
    _, errors = process.communicate(timeout=30)
    os.close(master)
    assert process.returncode == 128 + number
    assert errors.decode() == "embedder: Interrupted.\n"


@pytest.mark.slow
@pytest.mark.row("F56")
def test_it_follows_a_run_from_before_its_start_to_its_end(tmp_path):
    path = tmp_path / "run"
    process, master = watching(path, "--every", "0.05", "--probe", "w1")
    data = read_until(master, b"waiting for its first file")
    text = write_text(tmp_path / "text.txt")
    command = ["-m", "embedder.cli", "train", text, *FAST, "--workdir", path]
    assert run_python(*command, "--save-every", "16").returncode == 0
    data += read_until(master, b"Neighbours at the end")
    _, errors = process.communicate(timeout=30)
    os.close(master)
    assert (process.returncode, errors) == (0, b"")
    assert b"Finished: 5 epochs" in data


@pytest.mark.parametrize("num", [3, 299, 300, 9_465, 70_000, 1_000_000])
def test_probes_are_of_the_most_frequent_tenth(num):
    ranks = watch_probes._frequent(range(num))
    assert len({*ranks}) == len(ranks) == min(5, num)
    assert ranks == sorted(ranks) and ranks[-1] <= min(7000, max(4, num // 10))
    assert num < 3000 or ranks[0] == 30
