"""The command line: what each verb prints, and one line for whatever is wrong."""

import io
import os
import pty
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from embedder import __version__, errors
from embedder.cli import doctor
from embedder.cli import main as cli
from embedder.cli.arguments import VERBS
from embedder.cli.main import main
from embedder.data import plain_text
from embedder.vectors.export import read_vectors
from tests.commands import SECONDS, error_line, json_lines, read_until, train_runs

ROOT = Path(__file__).parents[1]
KINDS = [value for value in vars(errors).values() if isinstance(value, type)]
ERROR = "`window` must be an integer, got 'x'."
FAST = ["--loader", "memory", "--vector-size", "4", "--epochs", "1"]
TEXT = "the quick brown fox jumps over the lazy dog\n" * 40


@pytest.fixture(autouse=True)
def own_folder(own_folder):
    Path("text.txt").write_text(TEXT)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A finished run, which tests only read."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "text.txt").write_text(TEXT)
    train_runs(folder, run=f"text.txt {' '.join(FAST)}")
    return folder / "run"


def train(*arguments: str) -> int:
    return main(["train", *FAST, *arguments])


def test_usage_errors_are_the_same_in_ascii(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), "ascii"))
    assert main(["train", "--window", "x"]) == 2
    message = "embedder: `--window` must be an integer or 'session', got 'x'."
    assert error_line(capsys) == message


def test_config_of_a_run_trains_the_same_again(run):
    config = str(run / "config.toml")
    assert main(["train", "text.txt", "--config", config, "--workdir", "r"]) == 0
    first, second = (path / "vectors.safetensors" for path in (run, Path("r")))
    assert first.read_bytes() == second.read_bytes()


def test_unfinished_run_is_started_anew_and_said_so(caplog):
    assert train("text.txt", "--workdir", "r", "--epochs", "0") == 0
    Path("r/vectors.safetensors").unlink()
    assert train("text.txt", "--workdir", "r", "--epochs", "0") == 0
    said = "r holds an unfinished run without a checkpoint: it starts anew"
    assert said in caplog.text
    assert Path("r/vectors.safetensors").exists()


def test_full_disk_is_one_line_and_fails_as_training(capsys, monkeypatch):
    def full(vectors, path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("embedder.tokens.task.write_vectors", full)
    assert train("text.txt", "--workdir", "r", "--epochs", "0") == 3
    assert error_line(capsys) == "embedder: r: No space left on device."


@pytest.mark.row("F6")
@pytest.mark.parametrize("during", ["reading", "training"])
def test_interrupt_is_one_line_and_130(capsys, monkeypatch, during):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    if during == "reading":
        monkeypatch.setattr(plain_text, "_split_lines", interrupt)
    else:
        monkeypatch.setattr("embedder.run.train_plan.run_epochs", interrupt)
    assert train("text.txt", "--workdir", "new/run") == 130
    assert error_line(capsys) == "embedder: Interrupted."
    assert Path("new").exists() == (during == "training")


def test_the_workdir_alone_goes_on_with_its_settings(stopped, capsys, monkeypatch):
    """The corpus was named from another folder."""
    stopped("text.txt", "--workdir", "r", *FAST, "--epochs", "9", "--sample", "0")
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert main(["train", "--workdir", "../r"]) == 0
    captured = capsys.readouterr()
    report = "Report: ../r/report.html"
    assert captured.out == f"../r: done. 8 vectors of 4 numbers. {report}\n"
    assert "Resumes after" in captured.err
    lines = json_lines("../r/metrics.jsonl")
    assert [line["epoch"] for line in lines] == [*range(1, 10)]


def test_debug_shows_where_an_error_was_raised(capsys):
    assert main(["neighbors", "--debug", "nowhere", "a"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("Traceback ")
    assert lines[-1] == "embedder: RUN nowhere does not exist."


@pytest.mark.slow
def test_a_switch_may_be_given_as_its_default_is(capsys):
    """The default is that of the command, or of a file."""
    Path("on.toml").write_text("[run]\nbootstrap = true\n")
    for flags, value in {
        "--bootstrap": "true",
        "--config on.toml": "true",
        "--config on.toml --no_bootstrap": "false",
    }.items():
        assert train("text.txt", *flags.split(), "--dry-run") == 0
        assert f"bootstrap = {value}" in capsys.readouterr().out.splitlines()


def test_help_has_the_options_of_a_verb_in_groups(capsys):
    for verb, parts in {
        "train": ["[CORPUS]", "most used:", "--window", "tokens: graphs:", "--walks"],
        "neighbors": ["WORD...", "options:", "--from STR", "--where COLUMN=VALUE"],
        "--help": ["Train:", "sweep", "Use vectors:", "neighbors", "--debug"],
    }.items():
        assert main([verb, "--help"]) == 0
        printed = capsys.readouterr().out
        places = [printed.index(part) for part in parts]
        assert places == sorted(places), verb
        assert len(max(printed.splitlines(), key=len)) <= 100


COMPLETE = {
    "bash": """
eval "$SCRIPT"
COMP_WORDS=($LINE); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_shtab_embedder
printf "%s\\n" "${COMPREPLY[@]}"
""",
    "zsh": """
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'autoload -Uz compinit; compinit -u -D; eval "$SCRIPT"
compadd() { [[ ${@[(I)-[OADb]]} = 0 ]] && {
    local -a words; builtin compadd -A words "$@"; print -rl -- $words >> words
}; builtin compadd "$@" }
all() { _main_complete; print END >> words }
zle -C all complete-word all; bindkey "^I" all; print BEG""IN'
zpty -r shell skipped "*BEGIN*"
zpty -w -n shell "${LINE%\'\'}"$'\\t'
until grep -qs END words; do sleep 0.05; done
grep -v END words; rm words
""",
    "fish": """
echo "$SCRIPT" | source
complete -C (string replace "''" "" "$LINE")
""",
}
"""What completes $LINE, which may end in an empty word, in each shell."""
COMPLETED = {
    "tr": "train",
    "train --mod": "--mode --model",
    "train text.txt --model ''": "encoder tokens",
    "train text.txt --layers 9 9 9 --no-rep": "--no-report",
    "neighbors run --metric d": "dot",
    "export run --to te": "text.txt",
}


@pytest.mark.parametrize("shell", COMPLETE)
def test_shells_complete_verbs_flags_words_and_files(capsys, shell):
    assert main(["--print-completion", shell]) == 0
    env = {**os.environ, "SCRIPT": capsys.readouterr().out, "PATH": f".:{os.defpath}"}
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    Path("embedder").touch(0o700)  # fish completes what there is
    for words, completed in COMPLETED.items():
        command = [shell, {"fish": "--no-config"}.get(shell, "-f"), "-c"]
        done = subprocess.run(
            [*command, COMPLETE[shell]],
            env={**env, "LINE": f"embedder {words}"},
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        found = {line.split("\t")[0] for line in done.stdout.splitlines()}
        assert {*completed.split()} == found, (words, done.stderr)


@pytest.mark.row("B1")
@pytest.mark.parametrize("source", ["blank.txt", "rare.txt", "missing.txt"])
def test_what_is_refused_leaves_nothing(source):
    Path("blank.txt").write_text("\n")
    Path("rare.txt").write_text("a a b")
    before = sorted(Path().rglob("*"))
    assert train(source, "--workdir", "new/run", "--cache", "cache/deep") == 2
    assert sorted(Path().rglob("*")) == before


@pytest.mark.usefixtures("usual_backend")
def test_train_says_what_it_has_and_what_it_left_where(capsys):
    """The run is named after its corpus; flags may have `_` and `=`."""
    assert train("./text.txt", "--vector_size=3", "--verbose") == 0
    printed = capsys.readouterr()
    report = "Report: embedder-text/report.html"
    done = f"embedder-text: done. 8 vectors of 3 numbers. {report}\n"
    assert printed.out == done and Path("embedder-text/vectors.txt").exists()
    lines = printed.err.splitlines()
    about = "vocabulary: 8 tokens, 360 of 360 occurrences; 1 epoch"
    assert f"./text.txt (1.8 kB): {about}" in lines
    assert [x for x in lines if x.startswith("epoch 1/1: loss 4.1589, ")]
    names = [line.split(":")[0] for line in lines]
    for name in "updates", "learning rate at 0, 25, 50, 75, 100 %", "memory":
        assert name in names
    assert "on each device" in names
    assert "devices: 1 (cpu): there is one; compiled by xla" in lines
    assert any(line.startswith("The first call took ") for line in lines)
    again = ["./text.txt", "--vector-size", "3"]
    assert train(*again) == 0
    printed = capsys.readouterr()
    assert "embedder-text: finished before" in printed.out and not printed.err


def test_devices_shows_what_a_run_would_take(capsys):
    for flags, line in {
        "": "a run uses: 1 (cpu): there is one",
        "--mode pmap": "a run uses: 1 as 1 x 1, by pmap, tables replicated",
        "--table-sharding rows": "a run uses: 1 as 1 x 1, by sharded, tables rows",
    }.items():
        assert main(["devices", "--vocabulary", "1000", *flags.split()]) == 0
        printed = capsys.readouterr().out.splitlines()
        assert printed[0].startswith("1 devices: cpu (cpu); ")
        assert printed[1].startswith(line)
        assert "a table, 1000 x 100:" in printed and "CPU 0" in "".join(printed)


@pytest.mark.usefixtures("usual_backend")
def test_dry_run_prints_the_plan_and_writes_nothing(capsys):
    assert train("text.txt", "--dry-run", "--sample", "0") == 0
    lines = capsys.readouterr().out.splitlines()
    assert {"block = 64", "alpha = 0.1", "max_pairs_per_row = 16.0"} < {*lines}
    assert "vocabulary: 8 tokens, 360 of 360 occurrences" in lines
    updates = "updates: 6 an epoch on average, 6 in all, of 64 tokens each, compiled by"
    assert f"{updates} xla; sample keeps 100.0%" in lines
    rates = "0.1, 0.07503, 0.05005, 0.02508, 0.0001"
    assert f"learning rate at 0, 25, 50, 75, 100 %: {rates}" in lines
    assert [line.split(":")[0] for line in lines[-2:]] == ["memory", "on each device"]
    assert os.listdir() == ["text.txt"]
    assert train("--dry-run") == 0  # of the demo
    assert "vocabulary: 1" in capsys.readouterr().out


def test_dry_run_says_how_long_longer_trainings_take(capsys, monkeypatch):
    """And no file is written."""
    monkeypatch.setattr("embedder.engine.estimate._FEW_ITEMS", 100)
    np.savez("x.npz", X=np.eye(80), y=np.arange(80) % 2)
    encoder = "x.npz --model encoder --batch-size 2 --epochs 3"
    for command in ("text.txt --epochs 9", encoder):
        assert train(*command.split(), "--dry-run") == 0
        *_, line = capsys.readouterr().out.splitlines()
        assert re.match(r"time: (about \d+|below 1) s on this machine, without", line)
    assert sorted(os.listdir()) == ["text.txt", "x.npz"]
    monkeypatch.setattr("embedder.engine.estimate.fits", lambda *_: False)
    assert train("text.txt", "--epochs", "9", "--dry-run") == 0
    assert "time: " not in capsys.readouterr().out


def test_overwrite_starts_anew_where_the_corpus_can_be_read():
    Path("empty.txt").touch()
    assert train("text.txt", "--workdir", "r", "--save-every", "1epoch") == 0
    before = sorted(Path("r").rglob("*"))
    assert [*Path("r").glob("checkpoints/*")]
    assert train("empty.txt", "--workdir", "r", "--overwrite") == 2
    assert sorted(Path("r").rglob("*")) == before
    again = ["--workdir", "r", "--epochs", "0", "--vector-size", "3", "--overwrite"]
    assert train("text.txt", *again) == 0
    assert read_vectors("r/vectors.txt").matrix.shape == (8, 3)
    assert not [*Path("r").glob("checkpoints/*")]


@pytest.mark.slow
def test_program_shows_a_bar_on_a_terminal():
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "embedder.cli.main", "train", "text.txt"]
    settings = ["--workdir", "r", *FAST, "--epochs", "3"]
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    pipes = {"stdout": slave, "stderr": slave, "env": env}
    with subprocess.Popen([*command, *settings], **pipes) as process:
        os.close(slave)
        text = read_until(master, b"which is never shown").decode()
    os.close(master)
    assert process.returncode == 0
    assert "epoch 3/3" in text and "100 %" in text and "words/s" in text
    assert "loss 4.1" in text and "r: done. 8 vectors of 4 numbers." in text


RAISED = [(kind(ERROR), 2, f"embedder: {ERROR}") for kind in KINDS]
RAISED += [(BrokenPipeError(32, "Broken pipe"), 141, "")]
RAISED += [
    (kind("surprise"), 70, "Traceback .*Please report the lines above.*")
    for kind in (ValueError, TypeError, KeyError, RuntimeError)
]


@pytest.mark.parametrize(("error", "code", "printed"), RAISED, ids=repr)
def test_an_error_of_input_is_one_line_and_any_other_is_a_bug(
    capsys, monkeypatch, error, code, printed
):
    """But that a reader has gone, which is no error."""

    def fail(verb):
        raise error

    monkeypatch.setattr(cli, "run_verb", fail)
    assert main(["neighbors", "run", "a"]) == code
    assert re.fullmatch(printed, capsys.readouterr().err.rstrip("\n"), re.DOTALL)


@pytest.mark.parametrize("kind", KINDS)
def test_errors_are_what_callers_in_python_expect(kind):
    """One prints as the exception of Python that it stands for."""
    builtin, *_ = (c for c in kind.__mro__ if c.__module__ == "builtins")
    assert issubclass(kind, ValueError) and str(kind("a 'b'")) == str(builtin("a 'b'"))


def test_alone_it_says_what_a_newcomer_can_do(capsys):
    assert main([]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 7 and first.startswith("Trains embeddings of words, items")
    assert {line.split()[1] for line in lines} < {*VERBS, "--help"}


def test_doctor_says_what_is_there_and_what_is_missing(capsys, monkeypatch):
    Path("embedder/jax").mkdir(parents=True)
    Path("embedder/jax/program").write_bytes(bytes(2**20))
    monkeypatch.setenv("XDG_CACHE_HOME", ".")
    before = doctor.metadata.version

    def version(name: str) -> str:
        if name == "Pillow":
            raise doctor.metadata.PackageNotFoundError(name)
        return before(name)

    required = ['Pillow>=11; extra == "images"', 'gcsfs>=2026.1; extra == "gs"', "jax"]
    monkeypatch.setattr(doctor.metadata, "version", version)
    monkeypatch.setattr(doctor.metadata, "requires", lambda name: required)
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"embedder {__version__}, Python 3.")
    assert f"jax {before('jax')}, " in lines[1] and "devices: 1: cpu (cpu)" in lines
    assert "caches in embedder, which may be deleted: jax 1.0 MiB" in lines
    line = "  images in files, and pictures in reports: python -m pip install "
    assert f"{line}'embedder-jax[images]' (Pillow)" in lines


def test_doctor_knows_what_each_extra_is_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    others = {"all", "bench", "cuda", "dev", "gpu-offline"}
    assert {*project["optional-dependencies"]} - others == {*doctor.PURPOSES}
