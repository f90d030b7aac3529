"""A run that goes on from another one's tables, on other text, and perhaps grows."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from embedder.cli import main
from embedder.config import read_toml, with_options
from embedder.run.train import train as train_run
from embedder.tables.artefact import ModelFile, read_model
from embedder.tables.estimator import EmbeddingTrainer
from embedder.tables.options import ADAGRAD_ALPHA, default_max_pairs_per_row
from tests.commands import error_line

OLD = "a b c d a c a b\n" * 30
NEW = "e a f b e a z c\n" * 30 + "q\n"
OPTIONS = ["--loader", "memory", "--vector-size", "4", "--min-count", "2"]
OPTIONS += ["--sample", "0", "--epochs", "2"]


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch, made):
    """Every test has a copy of the finished run `old`, and more text."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    Path("more.txt").write_text(NEW)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    (folder / "old.txt").write_text(OLD)
    command = ["train", str(folder / "old.txt"), "--workdir", str(folder / "old")]
    assert main([*command, *OPTIONS]) == 0
    return folder


def resume(*options: str, run: str = "new") -> int:
    command = ["train", "more.txt", "--workdir", run, "--resume", "old"]
    return main([*command, *options])


def model(run: str) -> ModelFile:
    return read_model(Path(run, "model.npz"))


@pytest.mark.spread(1)
@pytest.mark.parametrize("schedule", ["continue", "restart"])
def test_no_epochs_leave_old_rows_and_add_new_ones(schedule):
    assert resume("--grow", "--epochs", "0", "--schedule", schedule) == 0
    old, new = model("old"), model("new")
    assert new.tokens == [*old.tokens, "e", "f", "z"]  # by count; q occurs once
    assert (new.input[:4] == old.input).all() and (new.output[:4] == old.output).all()
    fresh = EmbeddingTrainer(vector_size=4, min_count=1, epochs=0, sample=0)
    fresh.fit([["a"] * 9, ["b"] * 8, ["c"] * 7, ["d"] * 6, [*"efz"]])
    assert (new.input[4:] == fresh.vectors[4:]).all()
    start = old.output.mean(axis=0) if schedule == "continue" else np.zeros(4)
    np.testing.assert_allclose(new.output[4:], [start] * 3, rtol=1e-6)
    counts = dict(zip(new.tokens, new.counts.tolist(), strict=True))
    assert counts == {"a": 150, "b": 90, "c": 90, "d": 30, "e": 60, "f": 30, "z": 30}


@pytest.mark.spread(1)
@pytest.mark.parametrize("grow", [False, True], ids=["known", "grows"])
@pytest.mark.parametrize("schedule", ["continue", "restart"])
def test_one_epoch_is_partial_fit(grow, schedule):
    """Of the same draws: equal to the last bit."""
    flags = ["--grow"] * grow
    assert resume("--epochs", "1", "--schedule", schedule, *flags) == 0
    trainer = EmbeddingTrainer.load("old/model.npz")
    trainer.partial_fit("more.txt", grow=grow, schedule=schedule)
    new = model("new")
    assert new.tokens == trainer.index_to_key
    assert (new.input == trainer.vectors).all()
    assert new.loss_history == trainer.loss_history


def test_without_a_corpus_it_is_that_of_the_run(capsys):
    """Not the demo corpus; and not in the folder of the run itself."""
    assert main(["train", "--resume", "old", "--workdir", "new", "--epochs", "1"]) == 0
    corpora = [
        json.loads(Path(run, "corpus.json").read_text()) for run in ("old", "new")
    ]
    assert corpora[0]["source"] == corpora[1]["source"] is not None
    assert corpora[0]["manifest"] == corpora[1]["manifest"]
    assert model("new").loss_history[:2] == model("old").loss_history


def test_all_rows_learn():
    assert resume("--grow") == 0
    old, new = model("old"), model("new")
    known = [new.tokens.index(token) for token in "abc"]
    assert (new.input[known] != old.input[known]).any(axis=1).all()
    assert new.output[4:].any(axis=1).all()
    assert len(new.loss_history) == 4
    lines = Path("new/metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [3, 4]


@pytest.mark.spread(1)
@pytest.mark.parametrize("grow", [[], ["--grow"]], ids=["known", "grows"])
@pytest.mark.parametrize("loader", ["memory", "tfdata"])
def test_the_same_again_has_it_done_already(capsys, grow, loader):
    assert resume(*grow, "--loader", loader) == 0
    before = Path("new/model.npz").read_bytes()
    capsys.readouterr()
    for again in (
        lambda: resume(*grow, "--loader", loader),
        lambda: main(["train", "--workdir", "new"]),
    ):
        assert again() == 0
        assert "new: finished before" in capsys.readouterr().out
    assert Path("new/model.npz").read_bytes() == before


@pytest.fixture
def old_adagrad() -> None:
    """The run `old`, by Adagrad."""
    command = ["train", "old.txt", "--workdir", "old", "--overwrite", *OPTIONS]
    assert main([*command, "--optimizer", "adagrad"]) == 0


@pytest.mark.slow
def test_accumulators_go_on_and_those_of_new_rows_start_at_0(old_adagrad):
    assert resume("--grow", "--epochs", "0") == 0
    old, new = model("old"), model("new")
    assert new.settings["optimizer"] == "adagrad"
    assert {*new.row_state} == {"input_accumulator", "output_accumulator"}
    for name, accumulator in old.row_state.items():
        assert (accumulator > 0).all()
        np.testing.assert_array_equal(new.row_state[name], [*accumulator, 0, 0, 0])


@pytest.mark.slow
def test_adagrad_without_grow_is_partial_fit(old_adagrad):
    assert resume("--epochs", "1") == 0
    trainer = EmbeddingTrainer.load("old/model.npz")
    trainer.partial_fit("more.txt", schedule="continue")
    trainer.save("partial.npz")
    new, partial = model("new"), read_model(Path("partial.npz"))
    np.testing.assert_array_equal(new.input, partial.input)
    for name, accumulator in partial.row_state.items():
        np.testing.assert_array_equal(new.row_state[name], accumulator)


def test_another_optimizer_starts_with_accumulators_of_0(capsys):
    assert resume("--epochs", "0", "--optimizer", "adagrad") == 0
    message = "The optimizer is adagrad, that of the base sgd: the state of that"
    assert message in capsys.readouterr().err
    assert not any(x.any() for x in model("new").row_state.values())
    settings = model("new").settings
    assert settings["cap"] is None
    assert settings["alpha"] == ADAGRAD_ALPHA  # not of the base


@pytest.mark.spread(1)
@pytest.mark.parametrize("rates", [[], ["--min-alpha", "0.1"]], ids=["", "given"])
def test_rates_of_another_optimizer_are_not_those_of_the_run(rates):
    """`min_alpha` of the run is above the default `alpha` of SGD, and not asked for."""
    command = ["train", "more.txt", "--workdir", "new", "--resume", "old", *rates]
    assert main([*command, "--optimizer", "adagrad"]) == 0
    settings = model("new").settings
    assert settings["min_alpha"] == (0.1 if rates else 1e-4)
    assert settings["alpha"] == ADAGRAD_ALPHA


def test_sgd_goes_on_from_the_tables_of_adagrad(old_adagrad, capsys):
    assert resume("--epochs", "0", "--optimizer", "sgd") == 0
    assert "The optimizer is sgd, that of the base adagrad" in capsys.readouterr().err
    np.testing.assert_array_equal(model("new").input, model("old").input)
    assert not model("new").row_state


def test_an_unfinished_run_of_adagrad_will_do(stopped):
    command = ["old.txt", "--workdir", "half", *OPTIONS, "--optimizer", "adagrad"]
    stopped(*command)
    more = ["train", "more.txt", "--workdir", "new", "--resume", "half"]
    assert main([*more, "--epochs", "0", "--optimizer", "adagrad"]) == 0
    kept = model("new").row_state
    assert len(kept) == 2 and all(x.any() for x in kept.values())


def test_a_stopped_run_of_adagrad_goes_on_to_the_same_bits(old_adagrad, stopped):
    stopped("old.txt", "--workdir", "cut", *OPTIONS, "--optimizer", "adagrad")
    assert main(["train", "--workdir", "cut"]) == 0
    assert Path("cut/model.npz").read_bytes() == Path("old/model.npz").read_bytes()


def test_a_stopped_one_goes_on_to_the_same_bits(stopped, capsys):
    assert resume("--grow") == 0
    stopped("more.txt", "--workdir", "cut", "--resume", "old", "--grow", epoch=3)
    assert main(["train", "--workdir", "cut"]) == 0
    assert "Resumes after" in capsys.readouterr().err
    assert Path("cut/model.npz").read_bytes() == Path("new/model.npz").read_bytes()


def test_a_model_file_will_do():
    shutil.move("old/model.npz", "model.npz")
    command = ["train", "more.txt", "--workdir", "new", "--resume", "model.npz"]
    assert main([*command, *OPTIONS]) == 0
    assert len(model("new").loss_history) == 4


@pytest.mark.slow
def test_settings_are_those_of_the_run():
    assert resume("--window", "3") == 0
    old, new = model("old").settings, model("new").settings
    assert new == old | {"window": 3}


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [["--window", "session"], ["--preset", "items"], ["--preset=items"]]
)
def test_whole_sessions_have_blocks_and_limits_of_their_own(options):
    """Not those that the run with a window of numbers was not given; and back."""
    assert resume(*options, "--epochs", "1") == 0
    new = read_toml(Path("new/config.toml")).tables
    assert (new.window, new.block, new.noise) == ("session", 128, 256)
    expected = default_max_pairs_per_row(new.alpha, 128, 127)
    assert new.max_pairs_per_row == pytest.approx(expected)
    back = ["train", "more.txt", "--resume", "new", "--window", "5"]
    assert main([*back, "--workdir", "back"]) == 0
    old = read_toml(Path("back/config.toml")).tables
    assert (old.window, old.block, old.noise) == (5, 64, 32)


def test_whole_sessions_keep_blocks_that_were_given():
    given = ["train", "more.txt", "--workdir", "given", *OPTIONS, "--noise", "8"]
    assert main([*given, "--epochs", "0"]) == 0
    resumed = ["train", "--resume", "given", "--window", "session", "--epochs", "0"]
    assert main([*resumed, "--workdir", "new", "--block", "32"]) == 0
    new = read_toml(Path("new/config.toml")).tables
    assert (new.block, new.noise) == (32, 8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--vector-size", "5"], "`vector_size` must be that of the run to start from"),
        (["--architecture", "cbow"], "run to start from, 'skipgram', got 'cbow'."),
        (["--no-cbow-mean"], "`cbow_mean` must be that of the run to start from, True"),
        (["--dtype", "float64"], "run to start from, 'float32', got 'float64'."),
        (
            ["--model", "encoder"],
            "`resume` applies only to `model` = 'tokens', got 'encoder' and",
        ),
    ],
)
def test_other_vectors_are_refused(capsys, options, message):
    defaults = ["--config", "empty.toml"] if options[0] == "--model" else []
    Path("empty.toml").touch()
    assert resume(*options, *defaults) == 2
    assert message in error_line(capsys)
    assert not Path("new").exists()


def test_it_needs_its_base_no_more(stopped, capsys):
    """Neither where the base has gone, nor where it has changed."""
    assert resume("--grow") == 0
    stopped("more.txt", "--workdir", "cut", "--resume", "old", "--grow", epoch=3)
    shutil.move("old", "elsewhere")
    for run in ("cut", "new"):
        assert main(["train", "--workdir", run]) == 0
    assert Path("cut/model.npz").read_bytes() == Path("new/model.npz").read_bytes()
    command = ["train", "more.txt", "--workdir", "new", "--resume", "elsewhere"]
    capsys.readouterr()
    assert main([*command, "--grow"]) == 0
    assert "new: finished before" in capsys.readouterr().out


@pytest.mark.parametrize("flags", [[], ["--overwrite"]])
@pytest.mark.parametrize("base", ["old", "old/model.npz", "link"])
def test_a_run_does_not_write_over_its_base(capsys, base, flags):
    Path("link").symlink_to("old")
    before = Path("old/model.npz").read_bytes()
    command = ["train", "old.txt", "--workdir", "old", "--resume", base, *flags]
    assert main(command) == 2
    assert "`workdir` must be another folder" in error_line(capsys)
    assert Path("old/model.npz").read_bytes() == before


def test_text_without_a_known_token_is_refused(capsys):
    Path("more.txt").write_text("x y z\n" * 9)
    for options in ([], ["--dry-run"]):
        assert resume(*options) == 2
        assert (
            "more.txt has no token of the vocabulary of `resume`: give"
            in error_line(capsys)
        )
    assert not Path("new").exists()


def test_another_base_is_refused(capsys):
    assert resume() == 0
    with np.load("old/model.npz") as members:
        arrays = dict(members)
    arrays["input"] = arrays["input"] + 1
    np.savez("old/model.npz", **arrays)
    capsys.readouterr()
    assert resume() == 2
    assert "`resume` of another run" in error_line(capsys)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--grow"], "`grow` needs `resume`"),
        (["--resume", "nowhere"], "nowhere does not exist"),
        (
            ["--resume", "more.txt"],
            "got more.txt: if it has vectors, give --init-from more.txt",
        ),
    ],
)
def test_wrong_use_is_one_line(capsys, arguments, message):
    assert main(["train", "more.txt", "--workdir", "new", *arguments]) == 2
    assert message in error_line(capsys)
    assert not Path("new").exists()


def test_an_unfinished_run_without_a_checkpoint_is_refused(capsys):
    for name in ("model.npz", "vectors.safetensors"):
        Path("old", name).unlink()
    assert resume() == 2
    assert "old, which is not finished and has no checkpoint" in error_line(capsys)


def test_dry_run_tells_of_both(capsys):
    assert resume("--grow", "--dry-run") == 0
    assert "vocabulary: 7 tokens, 240 of 241 occurrences" in capsys.readouterr().out
    assert not Path("new").exists()


def test_the_python_api_has_it(tmp_path):
    from embedder.config import Config

    config = with_options(
        Config(), loader="memory", vector_size=4, min_count=2, epochs=1
    )
    found = train_run(config, "api", "more.txt", resume="old", grow=True)
    assert found.keys == [*model("old").tokens, "e", "f", "z"]


def test_settings_that_follow_from_others_are_not_named(tmp_path, monkeypatch, capsys):
    """The automatic rate and limit change with the epochs; alone they are named."""
    monkeypatch.chdir(tmp_path)
    words = np.random.default_rng(0).choice(list("abcdefghij"), size=(300, 30))
    Path("text.txt").write_text("\n".join(" ".join(each) for each in words))
    run = ["train", "text.txt", "--vector-size", "8", "--workdir", "run"]
    assert main([*run, "--epochs", "3"]) == 0
    capsys.readouterr()
    assert main([*run, "--epochs", "1", "--window", "3"]) == 2
    line = error_line(capsys)
    assert "`epochs` 3 there, 1 now" in line and "`window` 5 there, 3 now" in line
    assert "`alpha`" not in line and "`max_pairs_per_row`" not in line
    assert main([*run, "--epochs", "3", "--alpha", "0.01"]) == 2
    assert "`alpha` 0." in error_line(capsys)
