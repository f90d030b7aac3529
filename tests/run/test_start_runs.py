"""Runs that start from the vectors of a file, and runs with frozen rows."""

import itertools
import json
import logging
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from embedder.cli import main
from embedder.config import read_toml
from embedder.run.verify import verify
from embedder.tables.artefact import ModelFile, read_model
from embedder.vectors.ensemble_files import read_ensemble
from embedder.vectors.export import read_vectors, write_vectors
from embedder.vectors.vectors import Vectors
from tests.commands import error_line

OPTIONS = ["--loader", "memory", "--vector-size", "5", "--min-count", "1"]
OPTIONS += ["--epochs", "2", "--blocks-per-update", "3", "--block", "32"]


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch, text_file):
    """Every test has a text, and vectors of 40 of its 60 tokens and of 3 others."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    keys = [f"w{i}" for i in range(40)] + ["x", "y", "z"]
    given = rng.normal(size=(43, 5)).astype(np.float32)
    given[:, 0] = -0.0
    write_vectors(Vectors(keys, given), "given.npz")


def train(*options: str, run: str = "run") -> int:
    return main(["train", "corpus.txt", "--workdir", run, *OPTIONS, *options])


def model(run: str = "run") -> ModelFile:
    return read_model(Path(run, "model.npz"))


def rows_of(run: str, keys: list[str], table: str = "input") -> np.ndarray:
    found = model(run)
    ids = [found.tokens.index(key) for key in keys]
    return getattr(found, table)[ids]


def given(keys: list[str]) -> np.ndarray:
    vectors = read_vectors("given.npz")
    return np.stack([vectors[key] for key in keys])


KNOWN = [f"w{i}" for i in range(40)]
MODES = {
    "rows": ["--backend", "xla"],
    "dense": ["--backend", "xla", "--update", "dense"],
    **{
        f"numba, {n} threads": ["--backend", "numba", "--threads", str(n)]
        for n in (1, 2, 3)
    },
}
CELLS = [
    pytest.param(
        [*mode, "--architecture", architecture, "--optimizer", optimizer],
        id=f"{name}-{architecture}-{optimizer}",
        marks=()
        if (architecture, optimizer) == ("skipgram", "sgd")
        else pytest.mark.slow,
    )
    for (name, mode), architecture, optimizer in itertools.product(
        MODES.items(), ("skipgram", "cbow"), ("sgd", "adagrad")
    )
]


@pytest.mark.slow
@pytest.mark.parametrize("options", CELLS)
def test_known_rows_are_frozen_to_the_last_bit_and_new_ones_learn(options):
    assert train("--init-from", "given.npz", "--epochs", "0", run="start") == 0
    assert train("--init-from", "given.npz", "--freeze", "known", *options) == 0
    assert rows_of("run", KNOWN).tobytes() == given(KNOWN).tobytes()
    new = [token for token in model().tokens if token not in KNOWN]
    assert len(new) > 10
    assert (rows_of("run", new) != rows_of("start", new)).any(axis=1).mean() > 0.9
    assert (model().output != model("start").output).any(axis=1).mean() > 0.9


@pytest.mark.slow
def test_replicas_all_start_there_and_are_frozen(capsys):
    options = "--init-from", "given.npz", "--freeze", "known", "--replicas", "2"
    for name in ("xla", "numba"):
        assert train(*options, "--backend", name, run=name) == 0
        ensemble = read_ensemble(Path(name, "replicas.safetensors"))
        ids = [ensemble.tokens.index(key) for key in KNOWN]
        for table in ensemble.vectors:
            assert table[ids].tobytes() == given(KNOWN).tobytes()
        others = np.delete(ensemble.vectors, ids, axis=1)
        assert (others[0] != others[1]).all(axis=1).mean() > 0.9


@pytest.mark.slow
def test_rows_start_from_a_file_or_a_run_and_others_as_they_would(caplog):
    caplog.set_level(logging.INFO)
    assert train("--epochs", "0", run="plain") == 0
    assert train("--init-from", "given.npz", "--epochs", "0") == 0
    assert rows_of("run", KNOWN).tobytes() == given(KNOWN).tobytes()
    assert not model().output.any()
    others = [token for token in model().tokens if token not in KNOWN]
    np.testing.assert_array_equal(rows_of("run", others), rows_of("plain", others))
    share = rows_count(model(), KNOWN) / model().counts.sum()
    path = Path("given.npz").absolute()
    line = (
        f"start: 40 of {len(model().tokens)} rows ({100 * share:.1f} % of the corpus's "
        f"tokens) start from {path}"
    )
    assert caplog.messages.count(line) == 1
    assert train("--init-from", "given.npz", run="trained") == 0
    for source in ("trained", "trained/model.npz"):
        assert train("--init-from", source, "--epochs", "0", run="again") == 0
        for name in ("input", "output"):
            ours, theirs = (getattr(model(run), name) for run in ("again", "trained"))
            np.testing.assert_array_equal(ours, theirs)
        shutil.rmtree("again")


def rows_count(found: ModelFile, keys: list[str]) -> int:
    return sum(found.counts[found.tokens.index(key)] for key in keys)


def test_training_on_from_there_is_another_training_than_from_the_draws():
    for run, options in (("far", ["--init-from", "given.npz"]), ("plain", [])):
        assert train(*options, run=run) == 0
    assert (model("far").input != model("plain").input).all(axis=1).mean() > 0.9


@pytest.mark.parametrize("freeze", ["all", "known"])
def test_a_dry_run_says_what_starts_and_what_is_frozen(capsys, freeze):
    assert train("--init-from", "given.npz", "--freeze", freeze, "--dry-run") == 0
    printed = capsys.readouterr().out
    num = len({*Path("corpus.txt").read_text().split()})
    frozen = {"all": num, "known": 40}[freeze]
    assert f"start: 40 of {num} rows (" in printed
    assert f"frozen: {frozen} of {num} rows of the input table\n" in printed
    assert "row factors" in printed and "vectors to start from" in printed
    assert not Path("run").exists()


def test_all_rows_or_those_of_a_file_are_frozen(caplog):
    caplog.set_level(logging.INFO)
    Path("keys.txt").write_text("w3\nw7\n\nnobody\nw3\r\n")
    assert train("--epochs", "0", run="start") == 0
    assert train("--freeze", "all", run="all") == 0
    np.testing.assert_array_equal(model("all").input, model("start").input)
    assert model("all").output.any()
    assert train("--freeze", "keys.txt", run="two") == 0
    moved = (model("two").input != model("start").input).any(axis=1)
    still = {
        token for token, x in zip(model("two").tokens, moved, strict=True) if not x
    }
    assert {"w3", "w7"} <= still and moved.mean() > 0.8
    path = Path("keys.txt").absolute()
    num = len(moved)
    assert (
        f"frozen: 2 of {num} rows of the input table; 1 of 3 keys of {path} are unknown"
        in caplog.messages
    )


@pytest.mark.slow
@pytest.mark.parametrize("grow", [True, False])
def test_old_rows_are_frozen_when_a_run_goes_on(grow):
    assert train(run="old") == 0
    Path("more.txt").write_text("w1 new w2 new w3 other\n" * 60)
    command = ["train", "more.txt", "--resume", "old", "--workdir", "run"]
    options = ["--freeze", "known", *["--grow"] * grow]
    assert main([*command, *options]) == 0
    old, new = model("old"), model()
    assert new.input[: len(old.tokens)].tobytes() == old.input.tobytes()
    assert (new.output[: len(old.tokens)] != old.output).any()
    if grow:
        assert new.tokens[len(old.tokens) :] == ["new", "other"]
        assert main([*command[:-1], "start", "--grow", "--epochs", "0"]) == 0
        fresh = model("start").input[len(old.tokens) :]
        assert (new.input[len(old.tokens) :] != fresh).all(axis=1).all()
    assert main([*command[:-1], "next"]) == 0  # it is not inherited
    assert read_toml(Path("next/config.toml")).tables.freeze == ""
    assert (
        main(["train", "--resume", "run", "--workdir", "after", "--epochs", "1"]) == 0
    )
    assert (model("after").input != new.input).any()


START = ["--init-from", "given.npz", "--freeze", "keys.txt", "--backend"]


@pytest.mark.spread(1)
@pytest.mark.parametrize("backend", ["xla", "numba"])
@pytest.mark.parametrize("same_command", [True, False])
def test_a_stopped_run_needs_the_files_no_more(stopped, backend, same_command):
    Path("keys.txt").write_text("\n".join(KNOWN[:9]))
    start = [*START, backend]
    assert train(*start, run="whole") == 0
    stopped("corpus.txt", "--workdir", "run", *OPTIONS, *start)
    for name in ("given.npz", "keys.txt"):
        Path(name).rename(f"moved-{name}")
    command = [*OPTIONS, *start] if same_command else []
    assert (
        main(["train", *["corpus.txt"] * same_command, "--workdir", "run", *command])
        == 0
    )
    for name in ("input", "output"):
        ours, theirs = (getattr(model(run), name) for run in ("run", "whole"))
        np.testing.assert_array_equal(ours, theirs)
    config = read_toml(Path("run/config.toml")).tables
    assert config.init_from == str(Path("given.npz").absolute())
    assert not [each for each in verify(Path("run")) if each.fault]


def test_a_run_without_start_has_no_such_file():
    assert train(run="plain") == 0
    assert not Path("plain/start.npz").exists()
    assert json.loads(Path("plain/corpus.json").read_text())["resume"] is None
    assert train("--freeze", "all") == 0
    assert not Path("run/start.npz").exists()


def test_the_same_vectors_in_another_file_are_the_same_run(capsys):
    assert train("--init-from", "given.npz") == 0
    Path("given.npz").rename("other.npz")
    assert train("--init-from", "other.npz") == 0
    assert "finished before" in capsys.readouterr().out


def change_files() -> None:
    vectors = read_vectors("given.npz")
    write_vectors(Vectors(vectors.keys, vectors.matrix * 2), "given.npz")
    Path("keys.txt").write_text("w2\n")


@pytest.mark.spread(1)
@pytest.mark.row("B36", "B16")
@pytest.mark.parametrize("is_stopped", [True, False])
@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--init-from", "given.npz"], "`init_from` of other vectors"),
        (["--freeze", "keys.txt"], "`freeze` of other rows"),
    ],
)
def test_a_changed_file_is_another_run(stopped, capsys, options, what, is_stopped):
    Path("keys.txt").write_text("w1\n")
    if is_stopped:
        stopped("corpus.txt", "--workdir", "run", *OPTIONS, *options)
    else:
        assert train(*options) == 0
    capsys.readouterr()
    change_files()
    for now in (options, []):
        assert train(*now) == 2
        assert f"{what} (--workdir alone resumes its own)" in error_line(capsys)
    assert main(["train", "--workdir", "run"]) == 0  # with what it has kept


@pytest.mark.row("B36", "B16")
def test_other_words_of_freeze_are_another_run(capsys):
    start = ["--init-from", "given.npz", "--freeze"]
    assert train(*start, "known") == 0
    capsys.readouterr()
    assert train(*start, "all") == 2
    assert "`freeze` of other rows" in error_line(capsys)


def write_bad_files() -> None:
    write_vectors(Vectors(["p", "q"], np.ones((2, 5))), "unknown.txt")
    write_vectors(Vectors(["w1", "q"], np.ones((2, 4))), "short.txt")
    nan = "2 5\nw1 1 2 3 4 5\nw2 1 nan 3 4 5\n"
    Path("nan.txt").write_text(nan)
    Path("glove.txt").write_text(nan.partition("\n")[2])
    with open("nan.npz", "wb") as file:
        tokens = np.frombuffer(b"w1", np.uint8)
        values = np.full((1, 5), np.nan)
        np.savez(file, vectors=values, tokens=tokens, token_ends=np.array([2]))
    write_vectors(Vectors(["w1", "q"], np.full((2, 5), 1e300)), "large.npz")
    Path("nobody.txt").write_text("nobody\nno one\n")
    Path("empty.txt").write_text("\n\n")
    Path("bytes.txt").write_bytes(b"w1\n\xff\n")
    Path("cut.npz").write_bytes(Path("given.npz").read_bytes()[:200])
    Path("folder").mkdir()


BAD_FILES = {  # of --init-from
    "missing.txt": "`init_from` must be a file of vectors, .* does not exist",
    "unknown.txt": "unknown.txt has no token of the corpus: its first keys are 'p', "
    "'q', those of the corpus 'w0', ",
    "short.txt": "has vectors of 4 numbers, and `vector_size` is 5: set it to 4",
    "nan.txt": "nan.txt line 3: column 3 must be a finite number, got 'nan'",
    "glove.txt": "glove.txt line 2: column 3 must be a finite number, got 'nan'",
    "nan.npz": "nan.npz .*`matrix` must be finite, got nan at row 0",
    "large.npz": r"large.npz has a value that float32 cannot hold, 1e\+300: give "
    "--dtype float64",
    "cut.npz": "cut.npz is not a whole vectors file",
    "corpus.txt": "corpus.txt line 1: must be the numbers of keys",
    "folder": "`init_from` must be a run of tables, or a model file",
    "run/given.npz": "`workdir` must be another folder than that of `init_from`",
}
BAD_FREEZE = {
    "known": "`freeze` known needs vectors to start from: give --init-from or --resume",
    "missing.txt": "`freeze` must be all, known, or a file with a key a line, got "
    ".*missing.txt', which does not exist",
    "nobody.txt": "nobody.txt has no token of the vocabulary: its first keys are "
    "'nobody', 'no one'",
    "empty.txt": "`freeze` .*empty.txt has no key",
    "bytes.txt": "`freeze` .*bytes.txt is not UTF-8 text",
    "folder": "`freeze` must be all, known, or a file",
}
BAD_FLAGS = {
    "--init-from given.npz --resume given.npz": "`init_from` and `resume` both name",
    "--resume given.npz": "`resume` must be a run of tables, or a model file, got "
    "given.npz: if it has vectors, give --init-from given.npz to start from them",
    "--resume short.txt": "got short.txt: if it has vectors, give --init-from",
}
BAD = {
    **{f"--init-from {name}": message for name, message in BAD_FILES.items()},
    **{f"--freeze {name}": message for name, message in BAD_FREEZE.items()},
    **BAD_FLAGS,
}


@pytest.mark.row("B36")
@pytest.mark.parametrize("options", BAD)
def test_bad_starts_are_refused_in_one_line(capsys, options):
    write_bad_files()
    if "run/" in options:
        Path("run").mkdir()
        shutil.copy("given.npz", "run")
    tokens = [] if "encoder" in options else OPTIONS
    command = ["train", "corpus.txt", "--workdir", "run", *tokens, *options.split()]
    assert main(command) == 2
    assert re.search(BAD[options], error_line(capsys))
    assert not Path("run/config.toml").exists()


@pytest.mark.row("B36")
def test_convert_says_what_it_reads(capsys):
    assert main(["convert", "given.npz", "run"]) == 2
    line = error_line(capsys)
    assert "SOURCE must be a run, or a file of EmbeddingTrainer.save" in line
    assert "`embedder train --init-from given.npz`" in line


@pytest.mark.row("B36")
@pytest.mark.parametrize("name", ["init-from", "freeze"])
def test_parity_and_sweeps_do_not_vary_the_start(capsys, name):
    assert main(["parity", f"--{name}", "all", "--words", "100"]) == 2
    assert f"`{name.replace('-', '_')}` must be empty for parity" in error_line(capsys)
    Path("space.toml").write_text(f'{name.replace("-", "_")} = ["all", "given.npz"]\n')
    assert main(["sweep", "space.toml", "corpus.txt"]) == 2
    assert "all trials" in error_line(capsys)


@pytest.mark.row("B36")
def test_a_damaged_start_file_is_found(stopped, capsys):
    stopped("corpus.txt", "--workdir", "run", *OPTIONS, "--init-from", "given.npz")
    data = bytearray(Path("run/start.npz").read_bytes())
    data[len(data) // 2] ^= 1
    Path("run/start.npz").write_bytes(data)
    assert main(["train", "--workdir", "run"]) == 2
    assert "start.npz" in error_line(capsys)
    assert [each.name for each in verify(Path("run")) if each.fault] == ["start.npz"]
