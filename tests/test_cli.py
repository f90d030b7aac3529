"""The command line: what each verb prints, and one line for whatever is wrong."""

import gzip
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from embedder import cli
from embedder.cli import main
from embedder.engine import epochs
from embedder.tables import plain_text
from embedder.vectors.export import read_vectors
from tests.commands import error_line

FAST = ["--loader", "memory", "--vector-size", "4", "--epochs", "1"]
TEXT = "the quick brown fox jumps over the lazy dog\n" * 40
CUT_GZIP = gzip.compress(TEXT.encode(), mtime=0)[:-9]  # the same in every process


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """Every test works in a folder of its own, where text.txt lies."""
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text(TEXT)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A finished run, which tests only read."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "text.txt").write_text(TEXT)
    path = folder / "run"
    assert main(["train", str(folder / "text.txt"), "--workdir", str(path), *FAST]) == 0
    return path


def train(*arguments: str) -> int:
    return main(["train", *FAST, *arguments])


def child(*arguments: str, **options) -> subprocess.Popen:
    command = [sys.executable, "-m", "embedder.cli", *arguments]
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    return subprocess.Popen(command, env=env, **options)


# --- wrong usage


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("--window", "x", "`--window` must be an integer or 'session', got 'x'."),
        ("--negative", "1.5", "`--negative` must be an integer, got '1.5'."),
        ("--block", "x", "`--block` must be an integer, got 'x'."),
        ("--alpha", "x", "`--alpha` must be a number, got 'x'."),
        ("--workdir", "", "`--workdir` must be a path, got ''."),
        ("--architecture", "skip", "invalid choice 'skip' for argument '--archi"),
        ("--loader", "tf", "invalid choice 'tf' for argument '--loader'"),
        ("--update", "row", "invalid choice 'row' for argument '--update'"),
        ("--windw", "3", "Unknown option `--windw`, did you mean `--window`?"),
        ("--xyzzy", "3", "Unknown option `--xyzzy`."),
        ("--corpus", "x", "Unknown option `--corpus`: give it without."),
        ("extra", "more", "Not understood: more"),
    ],
)
def test_wrong_flag_is_one_line_with_its_value(capsys, flag, value, message):
    assert main(["train", flag, value]) == 2
    assert message in error_line(capsys)
    assert os.listdir() == ["text.txt"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            [],
            "Expected one of {train, sweep, phrases, devices, neighbors, analogy, "
            "index, compare, evaluate, embed, export, report, watch, convert, verify, "
            "parity}.",
        ),
        (["trian"], "Unknown verb `trian`, did you mean `train`?"),
        (
            ["--window", "3"],
            "Unknown verb `--window`. The verbs are train, sweep, phrases",
        ),
        (["train", "--window"], "Missing value for argument '--window'."),
        (
            ["train", "--overwrite=no"],
            "`--overwrite` must be without a value, got 'no'",
        ),
        (
            ["train", "--no-bootstrap=1"],
            "`--no-bootstrap` must be without a value, got '1'",
        ),
        (["parity", "--bootstrap"], "`bootstrap` must be False for parity, got True."),
        (["parity", "--weights", "w"], "`weights` must be empty for parity, got 'w'"),
        (["parity", "--holdout", "0.1"], "`holdout` must be 0 for parity, got 0.1."),
        (["parity", "--replay", "0.1"], "`replay` must be 0 for parity, got 0.1."),
        (
            ["parity", "--patience", "2", "--best-by", "x.tsv"],
            "`patience` must be 0 for parity, got 2",
        ),
        (["parity", "--window", "session"], "`window` must be an integer for parity:"),
        (["neighbors"], "Missing from embedder neighbors: RUN"),
        (["analogy", "r", "a"], "Missing from embedder analogy: B C"),
        (["export", "r"], "Missing from embedder export: --to PATH"),
        (
            ["neighbors", "r", "x", "--topn", "y"],
            "`--topn` must be an integer, got 'y'",
        ),
        (["evaluate", "r", "--pair", "x"], "`--pair`, did you mean `--pairs`?"),
    ],
)
def test_wrong_usage_is_one_line(capsys, arguments, message):
    assert main(arguments) == 2
    assert message in error_line(capsys)


def test_usage_errors_are_the_same_in_ascii(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), "ascii"))
    assert main(["train", "--window", "x"]) == 2
    message = "embedder: `--window` must be an integer or 'session', got 'x'."
    assert error_line(capsys) == message


def test_long_value_is_not_broken(capsys):
    value = "long " * 100
    assert main(["train", "--window", value]) == 2
    assert repr(value) in error_line(capsys)


@pytest.mark.slow
def test_a_switch_may_be_given_as_its_default_is(capsys):
    """The default is that of the command, of a file, or of a run."""
    Path("on.toml").write_text("[run]\nbootstrap = true\n")
    for flags, is_on in (
        ([], False),
        (["--bootstrap"], True),
        (["--no-bootstrap"], False),
        (["--config", "on.toml"], True),
        (["--config", "on.toml", "--bootstrap"], True),
        (["--config", "on.toml", "--no_bootstrap"], False),
    ):
        assert train("text.txt", *flags, "--dry-run") == 0
        expected = f"bootstrap = {str(is_on).lower()}"
        assert expected in capsys.readouterr().out.splitlines()
    assert train("text.txt", "--bootstrap", "--workdir", "r") == 0
    assert train("--workdir", "r", "--bootstrap") == 0
    capsys.readouterr()
    assert train("--workdir", "r", "--no-bootstrap") == 2
    assert "`bootstrap` True there, False now" in error_line(capsys)


def test_flags_may_have_underscores_and_equals_signs(capsys):
    assert train("text.txt", "--vector_size=3", "--workdir", "r") == 0
    assert "8 vectors of 3 numbers" in capsys.readouterr().out


def test_help_names_every_flag_of_gensim(capsys):
    assert main(["train", "--help"]) == 0
    text = capsys.readouterr().out
    names = "vector-size window min-count sample negative ns-exponent alpha min-alpha"
    assert all(f"--{name} " in text for name in [*names.split(), "epochs", "seed"])


# --- wrong corpora


@pytest.mark.row("B1", "B2", "B4")
@pytest.mark.parametrize(
    ("source", "data", "message"),
    [
        ("blank.txt", b" \n\t\r\n", "Corpus blank.txt: The corpus has no tokens."),
        ("nul.txt", b"a b\0", "nul.txt is not text: NUL byte at offset 3."),
        ("cut.gz", CUT_GZIP, "cut.gz is not a whole .gz file"),
        ("rare.txt", b"a a b", "No token occurs `min_count` = 5 times or more: the"),
        ("missing.txt", None, "Corpus missing.txt does not exist."),
        ("*.csv", None, "Corpus *.csv matches no file."),
        (".", b"", "Corpus . is a folder without .txt or .gz files."),
        ("", None, "`corpus` must be a file, a glob or a folder, got ''."),
    ],
)
def test_bad_corpus_is_one_line_and_leaves_nothing(capsys, source, data, message):
    Path("text.txt").unlink()
    if Path(source).suffix and data is not None:
        Path(source).write_bytes(data)
    before = os.listdir()
    assert train(source, "--workdir", "new/run", "--cache", "cache/deep") == 2
    assert message in error_line(capsys)
    assert os.listdir() == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_corpus_is_one_line(capsys):
    Path("text.txt").chmod(0)
    assert train("text.txt", "--workdir", "r") == 2
    assert "text.txt: Permission denied." in error_line(capsys)


@pytest.mark.row("F19")
@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("--ns-exponent", "400", "`ns_exponent` must leave"),
        ("--vector-size", str(10**12), "give a smaller `vector_size`"),
    ],
)
def test_run_that_cannot_be_is_one_line_and_leaves_nothing(
    capsys, flag, value, message
):
    assert train("text.txt", flag, value, "--workdir", "r") == 2
    assert message in error_line(capsys)
    assert not Path("r").exists()


# --- training


def test_train_says_what_it_left_where(run, capsys):
    assert train("text.txt", "--workdir", "a run") == 0
    printed = capsys.readouterr()
    report = "Report: a run/report.html"
    assert printed.out == f"a run: done. 8 vectors of 4 numbers. {report}\n"
    data, epoch = printed.err.splitlines()
    about = "vocabulary: 8 tokens, 360 of 360 occurrences; 1 epoch"
    assert data == f"text.txt (1.8 kB): {about}"
    assert epoch.startswith("epoch 1/1: loss 4.1589, ")


def test_verbose_says_what_the_run_takes(run, capsys):
    assert train("text.txt", "--workdir", "a run", "--verbose") == 0
    printed = capsys.readouterr().err.splitlines()
    names = [line.split(":")[0] for line in printed]
    for name in "updates", "learning rate at 0, 25, 50, 75, 100 %", "memory":
        assert name in names
    assert "on each device" in names
    assert "devices: 1 (cpu): there is one; compiled by xla" in printed
    assert any(line.startswith("The first call took ") for line in printed)


def test_version(capsys):
    assert main(["--version"]) == 0
    printed = capsys.readouterr().out
    assert re.match(r"embedder [0-9.]+ \(Python [0-9.]+, jax [0-9.]+, ", printed)


def test_train_without_a_workdir_names_it_after_the_corpus():
    assert train("./text.txt", "--epochs", "0") == 0
    assert Path("embedder-text/vectors.txt").exists()


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ([], "a run uses: 1 (cpu): there is one"),
        (
            ["--mode", "sharded"],
            "a run uses: 1 as 1 x 1, by sharded, tables replicated",
        ),
        (["--mode", "pmap"], "a run uses: 1 as 1 x 1, by pmap, tables replicated"),
        (
            ["--table-sharding", "rows"],
            "a run uses: 1 as 1 x 1, by sharded, tables rows",
        ),
    ],
)
def test_devices_shows_what_a_run_would_take(options, line, capsys):
    assert main(["devices", "--vocabulary", "1000", *options]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("1 devices: cpu (cpu); ")
    assert printed[1].startswith(line)
    assert "a table, 1000 x 100:" in printed and "CPU 0" in "".join(printed)


def test_train_without_a_corpus_takes_the_demo(capsys):
    assert train("--dry-run") == 0
    assert "vocabulary: 1" in capsys.readouterr().out


def test_dry_run_prints_the_plan_and_writes_nothing(capsys):
    assert train("text.txt", "--dry-run", "--sample", "0") == 0
    lines = capsys.readouterr().out.splitlines()
    assert (
        "block = 64" in lines
        and "alpha = 0.1" in lines
        and "max_pairs_per_row = 16.0" in lines
    )
    assert "vocabulary: 8 tokens, 360 of 360 occurrences" in lines
    updates = (
        "updates: 6 an epoch on average, 6 in all, of 64 tokens each, compiled by "
    )
    assert updates + "xla; sample keeps 100.0%" in lines
    rates = "0.1, 0.07503, 0.05005, 0.02508, 0.0001"
    assert f"learning rate at 0, 25, 50, 75, 100 %: {rates}" in lines
    assert [line.split(":")[0] for line in lines[-2:]] == ["memory", "on each device"]
    assert os.listdir() == ["text.txt"]


def test_flags_go_before_the_config_file(capsys):
    Path("my.toml").write_text("[data]\nwindow = 3\nnoise = 8\n")
    assert train("text.txt", "--config", "my.toml", "--noise", "9", "--dry-run") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "window = 3" in lines and "noise = 9" in lines


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[data]\nwindw = 3", "my.toml: unknown key `windw` in [data], did you mean"),
        ("[data]\nwindow = 'x'", "my.toml: `window` must be an integer from 1 to 127"),
        (None, "my.toml: No such file or directory."),
    ],
)
def test_bad_config_file_is_one_line(capsys, text, message):
    if text is not None:
        Path("my.toml").write_text(text)
    assert train("text.txt", "--config", "my.toml") == 2
    assert message in error_line(capsys)


def test_config_of_a_run_trains_the_same_again(run):
    config = str(run / "config.toml")
    assert main(["train", "text.txt", "--config", config, "--workdir", "r"]) == 0
    first, second = (path / "vectors.safetensors" for path in (run, Path("r")))
    assert first.read_bytes() == second.read_bytes()


# --- a workdir that is not new


def test_finished_run_is_said_to_be(run, capsys):
    text = str(run.parent / "text.txt")
    before = (run / "vectors.txt").stat().st_mtime_ns
    assert train(text, "--workdir", str(run)) == 0
    assert f"{run}: finished before" in capsys.readouterr().out
    assert (run / "vectors.txt").stat().st_mtime_ns == before


def test_other_settings_are_refused_with_the_difference(run, capsys):
    text = str(run.parent / "text.txt")
    for source in ([text], []):
        assert train(*source, "--workdir", str(run), "--window", "3") == 2
        assert "`window` 5 there, 3 now. Give another --workdir" in error_line(capsys)
    assert (run / "vectors.safetensors").exists()


def test_overwrite_starts_anew(capsys):
    assert train("text.txt", "--workdir", "r", "--epochs", "0") == 0
    again = ["--workdir", "r", "--epochs", "0", "--vector-size", "3", "--overwrite"]
    assert train("text.txt", *again) == 0
    assert read_vectors("r/vectors.txt").matrix.shape == (8, 3)


def test_overwrite_with_a_bad_corpus_loses_nothing(capsys):
    Path("empty.txt").touch()
    assert train("text.txt", "--workdir", "r", "--epochs", "0") == 0
    before = sorted(Path("r").rglob("*"))
    assert train("empty.txt", "--workdir", "r", "--overwrite") == 2
    assert sorted(Path("r").rglob("*")) == before


def test_unfinished_run_is_started_anew_and_said_so(caplog):
    assert train("text.txt", "--workdir", "r", "--epochs", "0") == 0
    Path("r/vectors.safetensors").unlink()
    assert train("text.txt", "--workdir", "r", "--epochs", "0") == 0
    assert (
        "r holds an unfinished run without a checkpoint: it starts anew" in caplog.text
    )
    assert Path("r/vectors.safetensors").exists()


@pytest.mark.parametrize("flags", [[], ["--overwrite"]])
def test_folder_of_other_files_is_refused(capsys, flags):
    assert train("text.txt", "--workdir", ".", *flags) == 2
    assert "`workdir` must be a run, or empty, or new: . holds" in error_line(capsys)
    assert os.listdir() == ["text.txt"]


# --- faults


@pytest.mark.parametrize(
    "loader", ["memory", pytest.param("tfdata", marks=pytest.mark.slow)]
)
def test_damaged_shard_is_one_line(capsys, loader):
    settings = ["text.txt", "--workdir", "r", "--overwrite", "--loader", loader]
    assert train(*settings, "--epochs", "0") == 0
    (shard,) = Path("r/cache").rglob("shard-*")
    data = bytearray(shard.read_bytes())
    data[200] ^= 255
    shard.write_bytes(data)
    capsys.readouterr()
    assert train(*settings) == 2
    assert f"Cache file {shard} is damaged" in error_line(capsys)


def test_full_disk_is_one_line_and_fails_as_training(capsys, monkeypatch):
    def full(vectors, path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("embedder.tables.problem.write_vectors", full)
    assert train("text.txt", "--workdir", "r", "--epochs", "0") == 3
    assert error_line(capsys) == "embedder: r: No space left on device."


def test_reader_that_goes_away_is_no_error(capsys, monkeypatch):
    def broken(verb):
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(cli, "run_verb", broken)
    assert main(["neighbors", "r", "x"]) == 141
    assert capsys.readouterr().err == ""


@pytest.mark.row("F6")
@pytest.mark.parametrize("during", ["reading", "training"])
def test_interrupt_is_one_line_and_130(capsys, monkeypatch, during):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    if during == "reading":
        monkeypatch.setattr(plain_text, "_split_lines", interrupt)
    else:
        monkeypatch.setattr("embedder.run.loop.run_epochs", interrupt)
    assert train("text.txt", "--workdir", "new/run") == 130
    assert error_line(capsys) == "embedder: Interrupted."
    assert Path("new").exists() == (during == "training")


def test_interrupt_that_python_loses_still_stops(capsys, monkeypatch):
    class Deaf:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    def run_epochs(*arguments):
        Deaf()  # what is raised in here is only printed
        time.sleep(30)  # the signal that comes again ends this
        return epochs.run_epochs(*arguments)

    monkeypatch.setattr("embedder.run.loop.run_epochs", run_epochs)
    monkeypatch.setattr(sys, "unraisablehook", lambda args: None)
    assert train("text.txt", "--workdir", "r") == 130
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


LONG = ("--loader", "memory", "--vector-size", "4", "--epochs", "9", "--sample", "0")


def test_the_workdir_alone_goes_on_with_its_settings(stopped, capsys, monkeypatch):
    stopped("text.txt", "--workdir", "r", *LONG)
    assert not Path("r/vectors.txt").exists()
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")  # the corpus was named from another folder
    assert main(["train", "--workdir", "../r"]) == 0
    captured = capsys.readouterr()
    report = "Report: ../r/report.html"
    assert captured.out == f"../r: done. 8 vectors of 4 numbers. {report}\n"
    assert "Resumes after" in captured.err
    assert train("../text.txt", "--workdir", "whole", *LONG) == 0
    again, whole = Path("../r/model.npz"), Path("whole/model.npz")
    assert again.read_bytes() == whole.read_bytes()
    metrics = Path("../r/metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in metrics] == [*range(1, 10)]


def test_overwrite_leaves_no_checkpoint_of_before():
    assert train("text.txt", "--workdir", "r", *LONG, "--save-every", "1epoch") == 0
    assert len(list(Path("r/checkpoints").iterdir())) == 2
    assert train("text.txt", "--workdir", "r", *LONG, "--overwrite") == 0
    assert not list(Path("r").glob("checkpoints/*"))


# --- the other verbs


def test_neighbors_prints_each_word_with_its_nearest(run, capsys):
    assert main(["neighbors", str(run), "the", "dog", "--topn", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == ["the", "dog"]
    ((token, cosine), _) = read_vectors(run / "vectors.txt").most_similar("the", topn=2)
    assert lines[1] == f"  {cosine:6.3f}  {token}"
    assert len(lines) == 6
    assert main(["neighbors", str(run / "vectors.txt"), "the"]) == 0
    assert capsys.readouterr().out.startswith("the\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["neighbors", "RUN", "cat"], "Token 'cat' is not in the vocabulary."),
        (["neighbors", "RUN", "the", "--topn", "0"], "`topn` must be an integer >= 1"),
        (["neighbors", "none", "the"], "RUN none does not exist."),
        (["neighbors", ".", "the"], "RUN . holds no finished run"),
        (["neighbors", "text.txt", "the"], "text.txt line 1: must be the numbers of"),
        (["analogy", "RUN", "the", "dog", "cat"], "Token 'cat' is not in the voc"),
        (["devices", "--vocabulary", "0"], "`vocabulary` must be an integer >= 1, got"),
        (
            ["evaluate", "RUN"],
            "Give at least one of --sessions, --edges, --labels, --p",
        ),
        (["evaluate", "RUN", "--pairs", "none.tsv"], "none.tsv: No such file"),
        (["evaluate", "RUN", "--pairs", "bad.tsv"], "bad.tsv is not UTF-8 text"),
        (["evaluate", "RUN", "--pairs", "text.txt"], "text.txt line 1: must be two"),
        (["export", "RUN", "--to", "x.foo"], "must end in .txt, .vec"),
        (["export", "RUN", "--to", "none/x.txt"], "none does not exist."),
    ],
)
def test_other_verbs_refuse_in_one_line(run, capsys, arguments, message):
    Path("bad.tsv").write_bytes(b"the\tdog\xff\t3\n")
    assert main([str(run) if x == "RUN" else x for x in arguments]) == 2
    assert message in error_line(capsys)


def test_analogy_prints_the_question_and_answers(run, capsys):
    assert main(["analogy", str(run), "the", "fox", "dog", "--topn", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "the : fox = dog : ?" and len(lines) == 4


def test_evaluate_prints_pairs_and_analogies(run, capsys):
    Path("pairs.tsv").write_text("the\tfox\t3\nfox\tdog\t4\ncat\tdog\t5\n")
    Path("questions.txt").write_text(": one\nthe fox dog lazy\n")
    files = ["--pairs", "pairs.tsv", "--analogies", "questions.txt"]
    assert main(["evaluate", str(run), *files]) == 0
    lines = capsys.readouterr().out.splitlines()
    pairs, section, total = [line for line in lines if not line.startswith(" ")]
    assert pairs.startswith("pairs.tsv: Spearman ")
    assert pairs.endswith("2 of 3 pairs (1 out of vocabulary)")
    assert section.startswith("questions.txt: one: ") and "of 1 (0 out" in section
    assert total.startswith("questions.txt: total: ")


def test_export_writes_the_vectors_of_the_run(run, capsys):
    assert main(["export", str(run), "--to", "out.bin"]) == 0
    assert capsys.readouterr().out == "8 vectors in out.bin\n"
    assert read_vectors("out.bin").keys == read_vectors(run / "vectors.txt").keys


# --- as a program


def test_program_shows_a_bar_on_a_terminal():
    master, slave = pty.openpty()
    settings = ["text.txt", "--workdir", "r", *FAST, "--epochs", "3"]
    with child("train", *settings, stdout=slave, stderr=slave) as process:
        os.close(slave)
        shown = b""
        while data := _read_terminal(master):
            shown += data
    os.close(master)
    assert process.returncode == 0
    text = shown.decode()
    assert "epoch 3/3" in text and "100 %" in text and "words/s" in text
    assert "loss 4.1" in text and "r: done. 8 vectors of 4 numbers." in text


def _read_terminal(master: int) -> bytes:
    try:
        return os.read(master, 65536)
    except OSError:  # how Linux says that the other end is closed
        return b""


@pytest.mark.slow  # in this process: `test_interrupt_is_one_line_and_130`
@pytest.mark.row("F6")
def test_program_stops_at_ctrl_c_in_training():
    settings = ["text.txt", "--workdir", "r", *FAST, "--epochs", "1000000"]
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with child("train", *settings, **pipes) as process:
        while not Path("r/metrics.jsonl").exists():
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and out == ""
    assert re.fullmatch(
        "embedder: Stopped after [0-9]+ updates, which are saved.",
        errors.splitlines()[-1],
    )
    assert json.loads(Path("r/metrics.jsonl").read_text().splitlines()[0])["epoch"] == 1
    assert not Path("r/vectors.safetensors").exists()
