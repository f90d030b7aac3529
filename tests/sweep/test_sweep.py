"""Sweeps: trials are runs of their own, also beside others, halved or stopped."""

import re
import shutil
import signal
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest

from embedder.cli.main import main
from tests.commands import error_line, flip, json_lines
from tests.contract.events import at_each_event

TOKENS = "text.txt --min-count 1 --epochs 4 --block 16 --tile 4 --blocks-per-update 2"
TOKENS += " --save-every 64 --dtype float64 --loader memory --vector-size 6"
NUMBA = f"{TOKENS} --backend numba"
ENCODER = "data.npz --model encoder --label y --epochs 4 --optimizer sgd"
ENCODER += " --dtype float64"
ENCODER += " --loader memory --validation-fraction 0.2 --learning-rate 0.1"
ENCODER += " --optimizer-args nesterov=true --halving 2"
SPACE = "alpha = [0.02, 0.05]; window = [2, 7]; vector_size = [4, 6]"
RANGE = "alpha = { low = 0.01, high = 0.1, scale = 'log' }"
RANGE += "; window = {low = 2, high = 9}; architecture = ['skipgram', 'cbow']"


def write_text(folder: Path) -> None:
    """Sentences of twenty words with a successor that is likely."""
    rng = np.random.default_rng(0)
    lines = []
    for _ in range(300):
        word, line = int(rng.integers(20)), []
        for _ in range(int(rng.integers(4, 15))):
            line.append(f"w{word}")
            word = (word + 1) % 20 if rng.random() < 0.7 else int(rng.integers(20))
        lines.append(" ".join(line))
    (folder / "text.txt").write_text("\n".join(lines))


class Line(NamedTuple):
    """A trial after some epochs, but not its time."""

    trial: int
    settings: dict[str, Any]
    epochs: int
    scores: list[float]


@pytest.fixture(autouse=True)
def own_folder(own_folder):
    write_text(own_folder)


def start(space: str, flags: str, folder: str = "sweep") -> int:
    """The exit code of a sweep."""
    Path("space.toml").write_text(space.replace("; ", "\n"))
    return main(["sweep", "space.toml", *flags.split(), "--workdir", folder])


def lines(folder: str | Path = "sweep") -> list[Line]:
    found = json_lines(Path(folder, "trials.jsonl"))
    return [Line(*(each[name] for name in Line._fields)) for each in found]


def swept(space: str, flags: str = NUMBA, folder: str = "sweep") -> dict[int, Line]:
    """The last line of each trial of a sweep by its number, as in trials.csv."""
    assert start(space, flags, folder) == 0
    by_epochs = sorted(lines(folder), key=lambda line: line.epochs)
    found = {each.trial: each for each in by_epochs}
    table = pl.read_csv(f"{folder}/trials.csv")
    return {number: found[number] for number in table["trial"]}


@pytest.fixture(scope="module")
def known(tmp_path_factory) -> Path:
    """Finished sweeps, three trials side by side; tests only read them."""
    folder = tmp_path_factory.mktemp("known")
    write_text(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, (space, flags) in SWEEPS.items():
            assert start(space, flags, name) == 0
    return folder


SWEEPS = {
    "whole": (SPACE, f"{NUMBA} --side-by-side 3"),
    "halved": (SPACE, f"{NUMBA} --side-by-side 3 --halving 2"),
    "search": (RANGE, f"{NUMBA} --score next-item --trials 11 --side-by-side 4"),
}


def flags_of(settings: dict[str, Any]) -> str:
    found = [
        f"--optimizer-args nesterov=true momentum={value}"
        if name == "momentum"
        else f"--{name.replace('_', '-')} {re.sub(r'[^a-z0-9. -]', '', str(value))}"
        for name, value in settings.items()
    ]
    return " ".join(found)


SESSIONS = SPACE.replace("7", "'session'")
NETWORKS = "learning_rate = [0.01, 0.3]; momentum = [0.5, 0.9]; layers = [[5, 8, 3], "
NETWORKS += "[5, 4, 3]]"
GRAPH = NUMBA.replace("text.txt --min-count 1", "edges.tsv --walks 2")
ALONE = NUMBA.replace("--block 16 --tile 4", "").replace("--epochs 4", "--epochs 1")
"""With the blocks that windows have by default: those of whole sessions are larger."""


@pytest.mark.spread(2)
@pytest.mark.parametrize(
    ("space", "flags", "score", "tolerance"),
    [
        ("window = [2, 3, 'session']", f"{ALONE} --window 5", "held_out", 0),
        (SESSIONS, NUMBA, "held_out", 0),
        (SESSIONS, f"{TOKENS} --backend xla", "held_out", 1e-12),
        (NETWORKS, ENCODER, "val_loss", 1e-9),
        ("p = [0.5, 2.0]; alpha = [0.02, 0.05]", GRAPH, "link_auc", 0),
        ("window = [2, 3, 'session']", f"{ALONE} --window session", "held_out", 0),
    ],
)
def test_a_trial_is_scored_as_a_run_of_its_own(space, flags, score, tolerance):
    """By the metric of that run, also in groups of two sizes; the best is repeated."""
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=300)
    ring = (f"n{i}\tn{(i + j) % 60}\n" for i in range(60) for j in (1, 2, 3))
    Path("edges.tsv").write_text("".join(ring))
    np.savez("data.npz", X=rng.normal(size=(300, 5)) + np.eye(5)[y], y=y)
    found = swept(space, flags)
    assert len(found) in (3, 4, 5, 9)
    alone = flags.replace(" --halving 2", "")
    alone += " --holdout 0.05" * (score != "val_loss")
    for place, line in enumerate(found.values()):
        given = f"{alone} {flags_of(line.settings)}"
        if place == 0:
            given = f"{flags.split()[0]} --config sweep/best.toml"
        command = [*given.split(), "--workdir", f"run{line.trial}", "--no-report"]
        assert main(["train", *command]) == 0
        last = json_lines(Path(command[-2], "metrics.jsonl"))[line.epochs - 1]
        value = last[score] * (-1) ** (score == "val_loss")
        assert line.scores == [pytest.approx(value, rel=tolerance, abs=0)]
    best = [np.mean(line.scores) for line in found.values() if line.epochs == 4]
    assert best == sorted(best, reverse=True)


def test_the_number_side_by_side_and_halving_change_no_score(known):
    """Those that go on are scored as if they never stopped; others after fewer."""
    whole, halved = lines(known / "whole"), lines(known / "halved")
    one = swept(SPACE, f"{NUMBA} --side-by-side 1")
    assert [one[each.trial] for each in whole] == whole and len(one) == 9
    last = {each.trial: each for each in sorted(halved, key=lambda x: x.epochs)}
    epochs = [each.epochs for each in last.values()]
    assert {n: epochs.count(n) for n in epochs} in (
        {4: 3, 2: 2, 1: 4},  # 9 -> 5 -> 3
        {4: 4, 2: 2, 1: 3},  # and trial 0 beside them
        {4: 4, 2: 1, 1: 4},
    )
    assert last[0].epochs == 4
    assert all(one[each.trial] == each for each in halved if each.epochs == 4)
    names = {path.name for path in (known / "halved").iterdir()}
    assert not names & {"states", "running"}
    table = pl.read_csv(known / "halved/trials.csv")
    assert table["epochs"].is_sorted(descending=True)


@pytest.mark.spread(2)
@pytest.mark.row("F4")
@pytest.mark.parametrize("name", ["whole", "search", "halved"])
def test_a_sweep_that_was_stopped_goes_on_where_it_was(known, name):
    """In the batch that was being trained: what was finished is not repeated."""
    count, code, before, stops = 0, 143, "", 0

    def event() -> None:
        nonlocal count
        count += 1
        if count in (8, 20, 36):
            signal.raise_signal(signal.SIGTERM)

    while code:
        with at_each_event(Path("sweep"), event):
            code = start(*SWEEPS[name])
        assert code in (0, 143)
        stops += code != 0
        after = Path("sweep/trials.jsonl")
        text = after.read_text() if after.exists() else ""
        assert text.startswith(before)
        before = text
    assert stops == 3 and lines() == lines(known / name)


def test_a_search_proposes_trials_within_the_ranges(known):
    """Trial 0 is as given, and no trial is proposed twice."""
    found = {each.trial: each for each in lines(known / "search")}
    assert [*sorted(found)] == [*range(11)] and found[0].settings == {}
    tried = [each.settings for number, each in found.items() if number]
    assert all(0.01 <= each["alpha"] <= 0.1 for each in tried)
    assert all(each["window"] in range(2, 10) for each in tried)
    assert {each["architecture"] for each in tried} == {"skipgram", "cbow"}
    assert len({each["alpha"] for each in tried}) == 10
    assert pl.read_csv(known / "search/trials.csv")["hr@10"].is_between(0, 1).all()


def test_a_search_ends_where_all_settings_are_tried(caplog):
    space = "window = { low = 4, high = 6 }; negative = { low = 5, high = 6 }"
    found = swept(space, f"{NUMBA} --trials 11 --side-by-side 3")
    tried = sorted(tuple(found[n].settings.values()) for n in range(1, 6))
    assert tried == [(4, 5), (4, 6), (5, 6), (6, 5), (6, 6)]  # (5, 5) is given
    assert len(found) == 6
    assert "All settings of SPACE are tried: 6 trials, not 11." in caplog.text


def test_a_search_goes_on_with_more_trials(capsys):
    """Those that are done are compared with no new ones: one alone is trained to its
    end."""
    flags = f"{NUMBA} --side-by-side 4 --halving 4"
    space = "alpha = { low = 0.01, high = 0.1 }"
    assert start(space, f"{flags} --trials 5") == 0
    for trials in (6, 7):
        before = lines()
        assert start(space, f"{flags} --trials {trials}") == 0
        after = lines()
        assert after[: len(before)] == before
        new = [(each.trial, each.epochs) for each in after[len(before) :]]
        assert new == [(trials - 1, 1), (trials - 1, 4)]
    capsys.readouterr()
    assert start(space, f"{flags} --trials 6") == 2
    assert "`trials` 7 there, 6 now" in capsys.readouterr().err


@pytest.mark.slow
def test_a_search_learns_from_results():
    space = "alpha = { low = 1e-6, high = 1.0, scale = 'log' }"
    found = swept(space, f"{NUMBA} --trials 41 --side-by-side 5 --min-alpha 0")
    scores = [found[number].scores[0] for number in range(1, 41)]
    assert sorted(scores[20:])[-5] > max(scores[:10])


def test_a_grid_is_all_combinations_with_the_given_settings_first():
    space = "window = [2, 5]; negative = {low = 5, high = 6, steps = 9}; "
    space += "sample = {low = 1e-5, high = 1e-2, scale = 'log', steps = 2}"
    found = swept(space, f"{NUMBA} --sample 0.01")
    expected = [
        {"window": window, "negative": negative, "sample": sample}
        for window in (2, 5)
        for negative in (5, 6)
        for sample in (1e-5, 1e-2)
    ]
    expected.remove({"window": 5, "negative": 5, "sample": 1e-2})  # which are given
    settings = [found[n].settings for n in sorted(found)]
    assert settings == [{}, *map(pytest.approx, expected)]


def test_replicas_give_a_mean_and_its_spread():
    space = "window = [2, 5]"
    found = swept(space, f"{NUMBA} --replicas 2")
    alone = [swept(space, f"{NUMBA} --seed {seed}", f"seed{seed}") for seed in (1, 2)]
    for number, line in found.items():
        assert line.scores == [each[number].scores[0] for each in alone]
    table = pl.read_csv("sweep/trials.csv")
    for number, spread in table.select("trial", "standard deviation").iter_rows():
        assert spread == pytest.approx(np.std(found[number].scores, ddof=1))


@pytest.mark.slow
def test_replicas_tell_how_much_is_chance(capsys):
    Path("text.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 40)
    flags = f"{NUMBA} --alpha 0.0002 --replicas 2"  # it hardly learns
    assert start("alpha = [0.05]", flags) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert re.fullmatch(r"Trial 1 is the best: .* standard error.*\.", last)


@pytest.mark.spread(1)
@pytest.mark.row("F17")
@pytest.mark.parametrize("backend", ["numba", "xla"])
def test_a_trial_that_diverges_is_the_last_and_harms_no_other(backend, capsys):
    flags = f"{TOKENS} --backend {backend} --max-pairs-per-row inf"
    found = [*swept("alpha = [0.02, 1e160]", flags).values()]
    assert (found[-1].settings, found[-1].scores) == ({"alpha": 1e160}, [])
    assert pl.read_csv("sweep/trials.csv").row(-1)[:4] == (2, 1e160, 4, None)
    (alone,) = swept("alpha = [0.02]", flags, "alone")[1].scores
    (beside,) = {each.trial: each for each in found}[1].scores
    assert beside == pytest.approx(alone, rel=1e-12)
    assert start("window = [2]", f"{flags} --alpha 1e160", "all") == 3
    message = "None of 2 trials has a score, since all diverged"
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("space", "unscored"),
    [
        ("alpha = [0.01, 0.05]; min_alpha = [0.001, 0.02]", [0.01, 0.02]),
        ("tile = [4, 8]; block = [16, 20]", [8, 20]),
        ("block = [16, 256]; window = [2, 'session']", [256, "session"]),
    ],
)
def test_a_trial_whose_settings_do_not_fit_together_has_no_score(space, unscored):
    """Others of its group have, and the same command does not try it again."""
    found = swept(space)
    bad = [each.settings.values() for each in found.values() if not each.scores]
    assert [[*each] for each in bad] == [unscored] and len(found) in (4, 5)
    before = Path("sweep/trials.jsonl").read_bytes()
    assert swept(space) == found
    assert Path("sweep/trials.jsonl").read_bytes() == before


@pytest.mark.row("F13", "F15", "F21", "B16")
def test_another_sweep_is_not_mixed_with_this_one(capsys):
    Path("pairs.tsv").write_text("w1\tw2\t9\nw1\tw9\t1\nw3\tw4\t8\n")
    flags = f"{NUMBA} --score pairs --pairs pairs.tsv"
    assert start("window = [2]", flags) == 0
    path = Path("sweep/trials.jsonl")
    before = path.read_bytes()
    for space, more, message in (
        ("window = [2]", "--negative 7", "`negative` 5 there, 7 now"),
        ("window = [2]", "--replicas 2", "`replicas` 1 there, 2 now"),
        ("window = [3]", "", "another space"),
        ("window = [2]", "", "another sweep (`pairs` "),
    ):
        if message.endswith("`pairs` "):
            Path("pairs.tsv").write_text("w1\tw2\t1\nw1\tw9\t9\nw3\tw4\t2\n")
        capsys.readouterr()
        assert start(space, f"{flags} {more}") == 2
        assert message in capsys.readouterr().err
    assert path.read_bytes() == before
    assert start("window = [3]", f"{flags} --overwrite") == 0
    assert b'"window": 3' in path.read_bytes()
    path.write_text('{"a": 1}\n')
    capsys.readouterr()
    assert start("window = [3]", flags) == 2
    assert "trials.jsonl is damaged" in error_line(capsys)


@pytest.mark.row("B7", "B8", "F19")
def test_a_command_that_was_corrected_is_not_another_sweep(capsys):
    for wrong, message in (
        ("--holdout 0.0001", "`holdout` = 0.0001 holds out none of the 300 sequences"),
        ("--vector-size 2000000000 --backend xla", "20 x 2000000000 need 36358.8 GiB"),
    ):
        assert start("window = [2]", f"{NUMBA} {wrong}") == 2
        assert message in capsys.readouterr().err
        assert not Path("sweep").exists()
    assert len(swept("window = [2]")) == 2


@pytest.mark.spread(1)
@pytest.mark.row("F13", "F14")
@pytest.mark.parametrize("damage", ["removed", "flipped"])
def test_damaged_states_between_rungs_say_what_to_do(damage, capsys):
    is_stopped = False

    def event() -> None:
        """Stops within the second rung."""
        nonlocal is_stopped
        path = Path("sweep/trials.jsonl")
        found = lines() if path.exists() else []
        left = len([*Path("sweep/states").iterdir()]) if len(found) == 9 else 9
        if left < 7 and not is_stopped:  # trial 0 may be one more than five
            is_stopped = True
            signal.raise_signal(signal.SIGTERM)

    with at_each_event(Path("sweep"), event):
        assert start(*SWEEPS["halved"]) == 143
    for state in Path("sweep/states").iterdir():
        for path in [x for x in state.rglob("*") if x.is_file()]:
            if damage == "flipped" and path.stat().st_size > 200:
                flip(path)
        if damage == "removed":
            shutil.rmtree(state)
    capsys.readouterr()
    assert start(*SWEEPS["halved"]) == 2
    said = capsys.readouterr().err
    assert re.search("is damaged.*--overwrite to start anew", said)


def test_a_sweep_prints_the_best_trials_and_writes_all(capsys):
    """The same command prints the same again, and trains nothing."""
    space = "alpha = [0.02, 0.05]; window = {low = 2, high = 8, steps = 3}; "
    space, flags = space + "vector_size = [4, 6]", f"{NUMBA} --best run"
    table = swept(space, flags)
    found = capsys.readouterr()
    *rows, last = found.out.splitlines()
    row = re.compile(r"trial \d+, 4 epochs, held_out -\d\.\d{4}: .*alpha 0\.\d")
    assert all(row.match(line) for line in rows)
    assert len(rows) in (10, 11)  # ten, and the given settings
    assert sum(": as given (" in line for line in rows) == 1
    assert last.startswith(("Trial ", "No trial is better"))
    trials = pl.read_csv("sweep/trials.csv")
    names = "trial", "alpha", "window", "vector_size", "epochs", "held_out", "seconds"
    assert trials.columns == [*names] and len(trials) == len(table) == 13
    assert trials["alpha"].null_count() == 0
    assert trials["held_out"].is_sorted(descending=True)
    assert trials["held_out"].to_list() == [each.scores[0] for each in table.values()]
    assert Path("sweep/trials.svg").read_text().count("<path") > 13
    assert f"window = {trials['window'][0]}" in Path("run/config.toml").read_text()
    assert main(["neighbors", "run", "w1", "--topn", "2"]) == 0
    capsys.readouterr()
    before = Path("sweep/trials.jsonl").read_bytes()
    assert start(space, flags) == 0
    assert capsys.readouterr().out == found.out
    assert Path("sweep/trials.jsonl").read_bytes() == before


def test_a_refused_sweep_leaves_the_one_that_it_would_overwrite(known):
    shutil.copytree(known / "whole", "sweep")
    assert start(SPACE, f"{NUMBA} --overwrite --holdout 1e-9") == 2
    assert lines() == lines(known / "whole")


def planned(capsys, space: str, flags: str = TOKENS) -> tuple[str, float]:
    """What a dry run says, and the MiB of a device."""
    assert start(space, f"{flags} --dry-run") == 0
    out = capsys.readouterr().out
    (found,) = re.findall(r"on each device: ([\d.,]+) MiB", out)
    assert not Path("sweep").exists()
    return out, float(found.replace(",", ""))


def test_a_sweep_warns_of_its_data_once(caplog):
    pixels = np.arange(4096, dtype=np.uint16).reshape(16, 4, 4, 16)
    np.savez("data.npz", X=pixels, y=[*"aaaabbbbccccdddd"])
    flags = "data.npz --model encoder --epochs 1 --loader memory --side-by-side 1"
    assert start("batch_size = [8, 16]", flags) == 0
    for line in ("sorted by class", "from 0 to 65535"):
        assert sum(line in each for each in caplog.messages) == 1


def test_a_dry_run_says_what_would_be_done(capsys):
    out, _ = planned(capsys, SPACE, f"{TOKENS} --side-by-side 6 --replicas 2")
    assert "trials: 9, compared by held_out after 4 epochs\n" in out
    assert "side by side: 6 models, at most" in out
    assert "memory: " in out and "tables" in out
    for flags, epochs in (
        ("--epochs 9 --halving 3", "9 epochs, of some after 1, 3"),
        ("--epochs 10 --halving 2 --first-epochs 3", "10 epochs, of some after 3, 6"),
    ):
        more = TOKENS.replace("--epochs 4", flags)
        assert f" after {epochs}\n" in planned(capsys, SPACE, more)[0]


def test_the_memory_of_a_sweep_is_that_of_its_largest_models_side_by_side(capsys):
    flags = f"{TOKENS} --side-by-side"
    one, nine = (planned(capsys, SPACE, f"{flags} {n}")[1] for n in (1, 9))
    assert nine == pytest.approx(9 * one, rel=0.1)
    large = planned(capsys, "vector_size = [8, 40000]")[1]
    assert large > 100 * planned(capsys, "vector_size = [8, 9]")[1]
    sessions = planned(capsys, "window = [2, 'session']", ALONE)[1]  # larger blocks
    assert sessions > planned(capsys, "window = [2]", ALONE)[1]


@pytest.mark.row("B8", "B92")
def test_without_the_packages_of_the_extra(monkeypatch, capsys):
    """Pictures are left out with a note, and ranges are refused."""
    for name in ("matplotlib", "optuna"):
        monkeypatch.setitem(sys.modules, name, None)
    assert start("window = [2]", NUMBA) == 0
    assert "pip install 'embedder-jax[sweep]'" in capsys.readouterr().err
    assert not Path("sweep/trials.svg").exists()
    assert start(RANGE, f"{NUMBA} --score next-item", "search") == 2
    said = capsys.readouterr().err
    assert re.search(r"`steps` .*Optuna.*'embedder-jax\[sweep\]'", said)
