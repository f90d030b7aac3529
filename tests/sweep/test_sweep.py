"""Sweeps: trials are runs of their own, also beside others, halved or killed."""

import json
import math
import shutil

import numpy as np
import polars as pl
import pytest

from embedder.config import Config, read_toml, with_options
from embedder.errors import InputError
from embedder.run.train import train
from embedder.sweep import sweep as module
from embedder.sweep.options import SweepOptions, largest_models, rungs
from embedder.sweep.space import Choices, Range, with_settings
from embedder.sweep.sweep import sweep
from embedder.sweep.trials import Result, newest

SMALL = {"vector_size": 6, "min_count": 1, "epochs": 4, "block": 16, "tile": 4}
SMALL |= {"blocks_per_update": 2, "save_every": "16", "dtype": "float64"}
NUMBA = with_options(Config(), backend="numba", **SMALL)
SPACE = {
    "alpha": Choices((0.02, 0.05)),
    "window": Choices((2, 7)),
    "vector_size": Choices((4, 6)),
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> str:
    """Sentences of twenty words with a successor that is likely."""
    rng = np.random.default_rng(0)
    lines = []
    for _ in range(300):
        word, line = int(rng.integers(20)), []
        for _ in range(int(rng.integers(4, 15))):
            line.append(f"w{word}")
            word = (word + 1) % 20 if rng.random() < 0.7 else int(rng.integers(20))
        lines.append(" ".join(line))
    path = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    path.write_text("\n".join(lines))
    return str(path)


def by_number(results: list[Result]) -> dict[int, Result]:
    return {each.trial.number: each for each in results}


@pytest.mark.slow
@pytest.mark.parametrize(
    "backend", ["numba", pytest.param("xla", marks=pytest.mark.slow)]
)
def test_a_trial_is_scored_as_a_run_of_its_own(corpus, tmp_path, backend):
    """By the metric of that run, for each trial, in groups of two sizes."""
    config = with_options(NUMBA, backend=backend)
    space = SPACE | {"window": Choices((2, "session"))}
    outcome = sweep(config, space, corpus, tmp_path / "sweep")
    assert len(outcome.results) == 9
    held_out = with_options(config, holdout=0.05)
    for result in outcome.results:
        number, settings = result.trial
        run = tmp_path / f"run{number}"
        train(with_settings(held_out, settings), run, corpus)
        last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
        tolerance = {"rel": 0, "abs": 0} if backend == "numba" else {"rel": 1e-12}
        assert result.score == pytest.approx(last["held_out"], **tolerance)
    scores = [result.score for result in outcome.results]
    assert scores == sorted(scores, reverse=True) and len({*scores}) == 9
    best = read_toml(tmp_path / "sweep" / "best.toml")
    assert best == with_settings(held_out, outcome.results[0].trial.settings)


def test_the_number_side_by_side_changes_nothing(corpus, tmp_path):
    one, eight = (
        sweep(NUMBA, SPACE, corpus, tmp_path / str(n), SweepOptions(side_by_side=n))
        for n in (1, 8)
    )
    pairs = zip(one.results, eight.results, strict=True)
    assert all(a.trial == b.trial and a.scores == b.scores for a, b in pairs)


def test_survivors_of_halving_go_on_to_the_last_bit(corpus, tmp_path):
    """They are scored as trials that were never stopped; others after fewer epochs."""
    whole = by_number(sweep(NUMBA, SPACE, corpus, tmp_path / "whole").results)
    options = SweepOptions(halving=2, side_by_side=3)
    halved = by_number(sweep(NUMBA, SPACE, corpus, tmp_path / "h", options).results)
    epochs = [each.epochs for each in halved.values()]
    assert {n: epochs.count(n) for n in epochs} in (
        {4: 3, 2: 2, 1: 4},  # 9 -> 5 -> 3
        {4: 4, 2: 2, 1: 3},  # and trial 0 beside them
        {4: 4, 2: 1, 1: 4},
    )
    assert halved[0].epochs == 4
    for number, result in halved.items():
        if result.epochs == 4:
            assert result.scores == whole[number].scores
    assert not (tmp_path / "h" / "states").exists()
    assert not (tmp_path / "h" / "running").exists()


def test_a_finished_sweep_trains_nothing(corpus, tmp_path, monkeypatch):
    before = sweep(NUMBA, SPACE, corpus, tmp_path / "sweep")
    monkeypatch.setattr(module, "run_epochs", None)
    again = sweep(NUMBA, SPACE, corpus, tmp_path / "sweep")
    assert again.results == before.results


class Killed(Exception):
    """Ends a sweep at a call of updates."""


@pytest.mark.spread(1)
@pytest.mark.row("F1")
@pytest.mark.parametrize("halving", [0, 2])
def test_a_sweep_goes_on_where_it_was(corpus, tmp_path, halving):
    """In the batch that was being trained: finished batches are not repeated."""
    options = SweepOptions(halving=halving, side_by_side=3)
    calls = []
    whole = sweep(
        *(NUMBA, SPACE, corpus, tmp_path / "whole", options), on_status=calls.append
    )
    seen = 0

    def kill(status) -> None:
        nonlocal seen
        seen += 1
        if seen % 20 == 0:
            raise Killed

    for _ in range(len(calls)):
        try:
            again = sweep(
                *(NUMBA, SPACE, corpus, tmp_path / "sweep", options), on_status=kill
            )
            break
        except Killed:
            continue
    assert [(r.trial, r.epochs, r.scores) for r in again.results] == [
        (r.trial, r.epochs, r.scores) for r in whole.results
    ]
    assert len(calls) <= seen < 2 * len(calls)


def test_replicas_give_a_mean_and_its_spread(corpus, tmp_path):
    config = with_options(NUMBA, replicas=3)
    space = {"window": Choices((2, 5))}
    outcome = sweep(config, space, corpus, tmp_path / "sweep")
    singles = [
        sweep(
            with_options(NUMBA, seed=NUMBA.run.seed + k),
            *(space, corpus, tmp_path / f"seed{k}"),
        )
        for k in range(3)
    ]
    for number, result in by_number(outcome.results).items():
        alone = [by_number(each.results)[number].score for each in singles]
        assert result.scores == tuple(alone)
        assert result.score == pytest.approx(np.mean(alone))
        assert result.spread == pytest.approx(np.std(alone, ddof=1))
    assert [*outcome.results] == newest(outcome.results)


@pytest.mark.spread(1)
@pytest.mark.row("F17")
@pytest.mark.parametrize("backend", ["numba", "xla"])
def test_a_trial_that_diverges_is_the_last_and_harms_no_other(
    corpus, tmp_path, backend
):
    config = with_options(NUMBA, backend=backend, max_pairs_per_row=math.inf)
    space = {"alpha": Choices((0.02, 1e160))}
    outcome = sweep(config, space, corpus, tmp_path / "sweep")
    assert outcome.results[-1].trial.settings == {"alpha": 1e160}
    assert outcome.results[-1].score is None
    alone = sweep(config, {"alpha": Choices((0.02,))}, corpus, tmp_path / "alone")
    one, other = (by_number(each.results)[1] for each in (outcome, alone))
    assert one.score == pytest.approx(other.score, rel=1e-12)
    last = pl.read_csv(tmp_path / "sweep" / "trials.csv").row(-1)
    assert last[:4] == (2, 1e160, 4, None)


@pytest.mark.row("F17")
def test_a_sweep_of_trials_that_diverge_says_so(corpus, tmp_path):
    config = with_options(NUMBA, max_pairs_per_row=math.inf, alpha=1e160)
    with pytest.raises(
        FloatingPointError, match="None of 2 trials has a score, since all diverged"
    ):
        sweep(config, {"window": Choices((2,))}, corpus, tmp_path / "sweep")


def test_a_search_by_optuna(corpus, tmp_path):
    space = {
        "alpha": Range(0.01, 0.1, is_log=True, is_integer=False),
        "architecture": Choices(("skipgram", "cbow")),
    }
    options = SweepOptions("next-item", trials=6, side_by_side=3)
    outcome = sweep(NUMBA, space, corpus, tmp_path / "sweep", options)
    assert outcome.score.name == "hr@10" and 0 < outcome.results[0].score <= 1
    assert {*by_number(outcome.results)} == {*range(6)}


@pytest.mark.row("B8")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trials": 0}, "`trials` must be an integer >= 1, got 0"),
        ({"side_by_side": 0}, "`side_by_side` must be an integer >= 1, got 0"),
        (
            {"score": "next-item", "halving": 1},
            "`halving` must be 0 or an integer >= 2, got 1",
        ),
        (
            {"score": "next-item", "halving": 2, "first_epochs": 9},
            "`first_epochs` must be from 1 to `epochs`",
        ),
        ({"score": "val-loss"}, "`score` must be 'held-out' or 'next-item' or 'pairs'"),
        ({"score": "held-out"}, "SPACE must not have `architecture` with `score` held"),
        ({"score": "pairs"}, "`score` pairs needs --pairs FILE"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_written(
    corpus, tmp_path, options, message
):
    space = SPACE | {"architecture": Choices(("skipgram", "cbow"))}
    with pytest.raises(InputError, match=message):
        sweep(NUMBA, space, corpus, tmp_path / "sweep", SweepOptions(**options))
    assert not (tmp_path / "sweep").exists()


@pytest.mark.row("B8")
def test_walks_over_a_graph_are_scored_by_pairs(corpus, tmp_path):
    config = with_options(NUMBA, walks=2)
    with pytest.raises(InputError, match="`score` must be 'pairs' with `walks`"):
        sweep(config, {"window": Choices((2,))}, corpus, tmp_path / "sweep")


def test_rungs():
    assert rungs(5, SweepOptions()) == [5]
    assert rungs(9, SweepOptions(halving=3)) == [1, 3, 9]
    assert rungs(10, SweepOptions(halving=2, first_epochs=3)) == [3, 6, 10]


@pytest.mark.row("F15", "F21")
def test_another_sweep_is_not_mixed_with_this_one(corpus, tmp_path):
    folder, space = tmp_path / "sweep", {"window": Choices((2,))}
    sweep(NUMBA, space, corpus, folder)
    before = (folder / "trials.jsonl").read_bytes()
    others = [
        (with_options(NUMBA, negative=7), space, "`negative` 5 there, 7 now"),
        (with_options(NUMBA, replicas=2), space, "`replicas` 1 there, 2 now"),
        (NUMBA, {"window": Choices((3,))}, "another space"),
    ]
    for config, tried, message in others:
        with pytest.raises(InputError, match=message):
            sweep(config, tried, corpus, folder)
    assert (folder / "trials.jsonl").read_bytes() == before
    sweep(NUMBA, others[-1][1], corpus, folder, overwrite=True)
    assert b'"window": 3' in (folder / "trials.jsonl").read_bytes()


@pytest.mark.row("F13")
@pytest.mark.parametrize("name", ["sweep.json", "trials.jsonl"])
def test_damaged_files_are_refused(corpus, tmp_path, name):
    folder, space = tmp_path / "sweep", {"window": Choices((2,))}
    sweep(NUMBA, space, corpus, folder)
    (folder / name).write_text('{"a": 1}\n')
    with pytest.raises(InputError, match=f"{name} is damaged"):
        sweep(NUMBA, space, corpus, folder)


def test_a_folder_with_other_files_is_refused(corpus, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="`workdir` must be a sweep, or empty, or new"):
        sweep(NUMBA, SPACE, corpus, tmp_path)


@pytest.mark.slow
def test_networks_are_swept(tmp_path):
    """Rates side by side, layers one group after the other; scored on validation."""
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=300)
    np.savez(tmp_path / "data.npz", X=rng.normal(size=(300, 5)) + np.eye(5)[y], y=y)
    config = with_options(
        *(Config(),),
        **{
            "model": "encoder",
            "label": "y",
            "epochs": 4,
            "optimizer": "sgd",
            "dtype": "float64",
        },
        **{"loader": "memory", "validation_fraction": 0.2, "learning_rate": 0.1},
    )
    space = {
        "learning_rate": Choices((0.01, 0.3)),
        "momentum": Choices((0.5, 0.9)),
        "layers": Choices(((5, 8, 3), (5, 4, 3))),
    }
    source, options = str(tmp_path / "data.npz"), SweepOptions(halving=2)
    outcome = sweep(config, space, source, tmp_path / "sweep", options)
    assert outcome.score.name == "val_loss"
    for result in outcome.results[:3]:
        run = tmp_path / f"run{result.trial.number}"
        train(with_settings(config, result.trial.settings), run, source)
        lines = (run / "metrics.jsonl").read_text().splitlines()
        loss = json.loads(lines[result.epochs - 1])["val_loss"]
        assert -result.score == pytest.approx(loss, rel=1e-9)


def flip(path) -> None:
    """Changes a byte of every large file of a checkpoint."""
    for file in path.rglob("*"):
        if file.is_file() and file.stat().st_size > 200:
            content = bytearray(file.read_bytes())
            content[len(content) // 2] ^= 1
            file.write_bytes(bytes(content))


@pytest.mark.spread(1)
@pytest.mark.row("F13", "F14")
@pytest.mark.parametrize("damage", [shutil.rmtree, flip])
def test_damaged_states_between_rungs_say_what_to_do(corpus, tmp_path, damage):
    options = SweepOptions(halving=2, side_by_side=3)

    def kill(status) -> None:
        if status.epoch:  # the second rung
            raise Killed

    with pytest.raises(Killed):
        sweep(*(NUMBA, SPACE, corpus, tmp_path / "s", options), on_status=kill)
    states = sorted((tmp_path / "s" / "states").iterdir())
    assert len(states) in (5, 6)  # trial 0 may be one more
    for path in states:
        damage(path)
    with pytest.raises(InputError, match="is damaged.*--overwrite to start anew"):
        sweep(NUMBA, SPACE, corpus, tmp_path / "s", options)


@pytest.mark.row("B16")
def test_changed_pairs_are_another_sweep(corpus, tmp_path):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("w1\tw2\t9\nw1\tw9\t1\nw3\tw4\t8\n")
    options, space = SweepOptions("pairs", pairs), {"window": Choices((2,))}
    sweep(NUMBA, space, corpus, tmp_path / "sweep", options)
    pairs.write_text("w1\tw2\t1\nw1\tw9\t9\nw3\tw4\t2\n")
    with pytest.raises(InputError, match="another sweep .`pairs`"):
        sweep(NUMBA, space, corpus, tmp_path / "sweep", options)


def test_a_trial_whose_settings_do_not_fit_together_has_no_score(corpus, tmp_path):
    space = {"alpha": Choices((0.01, 0.05)), "min_alpha": Choices((0.001, 0.02))}
    outcome = sweep(NUMBA, space, corpus, tmp_path / "sweep")
    bad = [each for each in outcome.results if each.score is None]
    assert [each.trial.settings for each in bad] == [{"alpha": 0.01, "min_alpha": 0.02}]
    again = sweep(NUMBA, space, corpus, tmp_path / "sweep")
    assert again.results == outcome.results


def test_whole_sessions_are_tried_where_blocks_are_short_enough(corpus, tmp_path):
    """A window of 2 is trained beside them, and with blocks that are too long."""
    space = {"block": Choices((16, 256)), "window": Choices((2, "session"))}
    outcome = sweep(NUMBA, space, corpus, tmp_path / "sweep")
    scored = {
        (each.values["block"], each.values["window"]): each.score is not None
        for each in outcome.results
        if each.trial.number
    }
    assert scored == {
        (16, 2): True,
        (16, "session"): True,
        (256, 2): True,
        (256, "session"): False,
    }


@pytest.mark.parametrize("given", [5, "session"])
def test_whole_sessions_are_tried_with_the_blocks_they_have_alone(
    corpus, tmp_path, given
):
    """Their default blocks are larger, so no window of numbers is trained beside."""
    config = with_options(NUMBA, block=None, window=given, epochs=1, holdout=0.05)
    space = {"window": Choices((2, 3, "session"))}
    outcome = sweep(config, space, corpus, tmp_path / "sweep")
    values = {each.values["window"] for each in outcome.results}
    assert values == {2, 3, "session", given}
    for number, result in by_number(outcome.results).items():
        run = tmp_path / f"run{number}"
        train(with_settings(config, result.trial.settings), run, corpus)
        last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
        assert result.score == last["held_out"]


def test_the_memory_of_whole_sessions_is_checked_before_training():
    space = {"window": Choices((2, "session"))}
    found = largest_models(Config(), space, SweepOptions(side_by_side=2), 3)
    sizes = {models[0].tables.block_or_default for models in found}
    assert sizes == {64, 128}


def test_a_group_whose_settings_do_not_fit_together_has_no_score(corpus, tmp_path):
    space = {"tile": Choices((4, 5)), "window": Choices((2,))}  # the block is 16
    outcome = sweep(NUMBA, space, corpus, tmp_path / "sweep")
    bad = [each for each in outcome.results if each.score is None]
    assert [each.trial.settings["tile"] for each in bad] == [5]


@pytest.mark.row("B7")
@pytest.mark.parametrize("score", ["held-out", "next-item"])
def test_nothing_to_score_on_is_said_before_training(tmp_path, score):
    path = tmp_path / "words.txt"
    path.write_text("a\nb\nc\n" * 50)
    options, space = SweepOptions(score), {"window": Choices((2,))}
    with pytest.raises(InputError, match="holds out no sequence of two tokens or more"):
        sweep(NUMBA, space, str(path), tmp_path / "sweep", options)


@pytest.mark.row("B8")
def test_a_corrected_command_is_not_another_sweep(corpus, tmp_path):
    space, folder = {"window": Choices((2,))}, tmp_path / "sweep"
    with pytest.raises(InputError, match="`holdout`"):
        sweep(with_options(NUMBA, holdout=0.0001), space, corpus, folder)
    assert len(sweep(NUMBA, space, corpus, folder).results) == 2


@pytest.mark.row("B8")
def test_replicas_and_halving_must_fit_side_by_side(corpus, tmp_path):
    space = {"alpha": Range(0.01, 0.1, is_log=True, is_integer=False)}
    config = with_options(NUMBA, replicas=3)
    for options, message in (
        (SweepOptions(side_by_side=2), "must hold the 3 `replicas` of a trial, got 2"),
        (SweepOptions(side_by_side=3, halving=2), "must hold `halving` trials"),
    ):
        with pytest.raises(InputError, match=message):
            sweep(config, space, corpus, tmp_path / "sweep", options)
