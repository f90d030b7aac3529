"""What comes next: the score by plain loops, its weights, its files and the verb."""

import dataclasses
import json
import re
import shutil
from math import log
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import optimize

from embedder import EmbeddingTrainer, read_next_items
from embedder.cli.main import main
from embedder.config import read_toml
from embedder.data.corpus import text_corpus
from embedder.data.encode import encode
from embedder.data.split import held_out_sequences, sequences
from embedder.metrics import next_item_scores as module
from embedder.metrics.near_sessions import STAN, Sessions
from embedder.metrics.next_item_baselines import (
    SecondOrder,
    association_rules,
    markov,
    sequential_rules,
)
from embedder.metrics.next_item_scores import (
    DEFAULT_WEIGHTS,
    PARTS,
    Mixture,
    NextItems,
    SessionCounts,
    Weights,
    fit_weights,
    read_weights,
    write_weights,
)
from embedder.metrics.ranking import Cases, last_items, select, target_ranks
from embedder.tokens import eval_sets
from embedder.tokens.artefact import read_model
from embedder.tokens.session_counts import choose_weights, count_sessions
from embedder.vectors import search
from tests.metrics.test_next_item_baselines import flat

NUM, SIZE = 15, 4
RNG = np.random.default_rng(0)
LISTS = [
    RNG.integers(10 + number // 30, size=size).tolist()
    for number, size in enumerate(RNG.integers(1, 9, 150))
]
"""Items 10 to 13 are in later and later ones, 14 in none."""
QUERIES = [[3], [1, 2, 1], [14], [5, 14, 0]]
TABLES = RNG.normal(size=(2, NUM, SIZE)).astype(np.float32)


COUNTS = SessionCounts.fit([flat(LISTS)], NUM)
MIXTURE = Mixture(*TABLES, COUNTS)


def shares_by_loops(query: list[int]) -> dict[str, np.ndarray]:
    """The share of each item by each part."""
    training, one = flat(LISTS), flat([query])
    second_order = SecondOrder(association_rules(training, NUM).counts, 0.5)
    found = {
        "rules": sequential_rules(training, NUM, 0.5)(one).toarray()[0],
        "associations": association_rules(training, NUM, 0.5)(one).toarray()[0],
        "second_order": second_order(one).toarray()[0],
        "followers": markov(training, NUM)(one).toarray()[0],
        "neighbors": STAN.of_mixture(Sessions.fit(training, NUM))(one).toarray()[0],
        "own": np.zeros(NUM),
    }
    for age, item in enumerate(reversed(query)):
        found["own"][item] += 0.8**age
    return {name: x / max(x.sum(), 1e-30) for name, x in found.items()}


ONES = np.ones(NUM)


def score_by_loops(
    query: list[int], weights: Weights, factors: np.ndarray = ONES
) -> np.ndarray:
    ages = range(len(query) - 1, -1, -1)
    factors = factors / weights.floor
    hidden = np.average(TABLES[0][query], axis=0, weights=[0.5**age for age in ages])
    shares = shares_by_loops(query)
    return np.array(
        [
            weights.vectors * float(hidden @ TABLES[1][item])
            + sum(
                getattr(weights, name) * log(1 + factors[item] * share[item])
                for name, share in shares.items()
            )
            for item in range(NUM)
        ]
    )


WEIGHTS = [
    Weights(1.5, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.01),
    Weights(rules=1, vectors=0, followers=0, neighbors=0, floor=1e-5),
    Weights(vectors=2, rules=0, followers=0, neighbors=0, floor=1e-3),
]


@pytest.mark.parametrize("weights", WEIGHTS)
def test_scores_are_those_of_loops(weights):
    counts = dataclasses.replace(COUNTS, num_old=9)
    mixture = dataclasses.replace(MIXTURE, counts=counts).with_weights(weights, 3)
    factors = np.append(np.ones(NUM - 1), 3)
    for item in range(9, 14):
        since = next(n for n, each in enumerate(LISTS) if item in each)
        factors[item] = min(3, len(LISTS) / (len(LISTS) - since))
    assert 1 < factors[10] < factors[11] < factors[13] == 3
    for query, scores in zip(QUERIES, mixture(flat(QUERIES)), strict=True):
        expected = score_by_loops(query, weights, factors)
        np.testing.assert_allclose(scores, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("topn", [1, 4, NUM, 99])
@pytest.mark.parametrize("seen", ["excluded", "included"])
def test_the_best_are_the_first_of_a_sort(topn, seen, monkeypatch):
    monkeypatch.setattr(search, "_GROUPS", 1)  # several items in a group
    hidden = np.arange(NUM) % 5 == 4
    items, scores = MIXTURE.top(flat(QUERIES), topn, seen, hidden)
    assert items.shape == scores.shape == (len(QUERIES), min(topn, NUM))
    every = MIXTURE(flat(QUERIES))
    for query, row, best, found in zip(QUERIES, every, items, scores, strict=True):
        left_out = {*np.flatnonzero(hidden), *(query if seen == "excluded" else [])}
        order = sorted({*range(NUM)} - left_out, key=lambda i: (-row[i], i))[:topn]
        assert best[: len(order)].tolist() == order
        assert (found[: len(order)] == row[order]).all()
        assert (found[len(order) :] == -np.inf).all()


def test_of_equal_scores_the_first_items_are_the_best():
    flat_mixture = Mixture(np.zeros((NUM, 2), "f4"), np.zeros((NUM, 2), "f4"), COUNTS)
    items, _ = flat_mixture.with_weights(Weights(1, 0, 0, 0, 0, 0)).top(
        flat([[0], [3]]), 3
    )
    assert items.tolist() == [[1, 2, 3], [0, 1, 2]]


@pytest.mark.slow
def test_weights_are_of_the_largest_likelihood(monkeypatch):
    """Beside Nelder and Mead's method, without a gradient, over plain loops."""
    monkeypatch.setattr(module, "_FLOORS", (0.01,))
    cases = last_items(flat(LISTS), "excluded")
    monkeypatch.setattr(module, "FEWEST_CASES", 1)
    found = fit_weights(MIXTURE, last_items(flat(LISTS), "included"))
    found = found.weights["excluded"]
    ids, lengths = cases.queries
    queries = np.split(ids, np.cumsum(lengths)[:-1])
    features = []
    for query in queries:
        unit = [Weights(*(float(x == name) for x in PARTS), 0.01) for name in PARTS]
        rows = np.stack([score_by_loops(query.tolist(), w) for w in unit], axis=1)
        features.append((rows, [i for i in range(NUM) if i not in query]))

    def loss(weights: np.ndarray) -> float:
        total = 0.0
        for (rows, kept), target in zip(features, cases.targets[0], strict=True):
            scores = rows @ np.abs(weights)
            total += np.log(np.exp(scores[kept]).sum()) - scores[target]
        return total / len(features) + 1e-4 * float(weights @ weights)

    slow = optimize.minimize(
        loss, np.full(len(PARTS), 0.3), method="Nelder-Mead", options={"maxiter": 9000}
    )
    assert loss(np.array(found[:-1])) <= slow.fun + 1e-4
    assert loss(np.array(found[:-1])) < loss(np.array(Weights()[:-1]))
    assert found.own == 0, "items of the session are no candidates"


def test_a_part_without_use_has_no_weight_and_the_mixture_is_above_all_parts():
    """Sessions follow a cycle; the vectors are noise."""
    rng = np.random.default_rng(1)
    cycle = [[(s + i) % 12 for i in range(4)] for s in rng.integers(12, size=400)]
    mixture = Mixture(*TABLES, SessionCounts.fit([flat(cycle)], NUM))
    cases = last_items(flat(cycle[:200]), "excluded")
    fitted = fit_weights(mixture, cases._replace(seen="included")).weights["excluded"]
    fitted = mixture.with_weights(fitted)
    assert fitted.weights.vectors < 0.05 * fitted.weights.followers
    assert (target_ranks(fitted, cases, NUM)[0] == 1).all()


def test_each_half_of_the_cases_has_the_weights_of_the_other(monkeypatch):
    monkeypatch.setattr(module, "FEWEST_CASES", 1)
    cases = last_items(flat(LISTS), "excluded")._replace(seen="included")
    for is_in, weights in fit_weights(MIXTURE, cases).folds:
        queries, targets = (select(x, ~is_in) for x in cases[:2])
        others = fit_weights(MIXTURE, Cases(queries, targets, "included"))
        assert others.weights["excluded"] == pytest.approx(weights, rel=0.01, abs=0.001)


def test_counts_of_parts_add_up_also_of_more_items():
    half = len(LISTS) // 2
    small = [[item % 9 for item in ids] for ids in LISTS[:half]]
    before = SessionCounts.fit([flat(small)], 9)
    both = before.plus(SessionCounts.fit([flat(LISTS[half:])], NUM))
    whole = SessionCounts.fit([flat(small + LISTS[half:])], NUM)
    for name in "rules", "followers":
        found, expected = (getattr(x, name).toarray() for x in (both, whole))
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    for found, expected in zip(both.sessions, whole.sessions, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_the_newest_sessions_are_kept(monkeypatch):
    monkeypatch.setattr(module, "NEWEST_SESSIONS", 3)
    counts = SessionCounts.fit([flat(LISTS[:9]), flat(LISTS[9:11])], NUM)
    ids, lengths = flat(LISTS[8:11])
    assert counts.sessions[0].tolist() == ids.tolist()
    assert counts.sessions[1].tolist() == lengths.tolist()


def test_files_hold_counts_and_weights(tmp_path):
    COUNTS.write(tmp_path / "counts.npz", "digest")
    read = SessionCounts.read(tmp_path / "counts.npz", NUM, "digest")
    found = Mixture(*TABLES, read)(flat(QUERIES))
    np.testing.assert_array_equal(found, MIXTURE(flat(QUERIES)))
    weights = {"excluded": WEIGHTS[0], "included": WEIGHTS[1]}
    write_weights(tmp_path / "mixture.json", weights)
    assert read_weights(tmp_path / "mixture.json") == weights
    # What an older run does not name has no weight.
    by_name = {seen: each._asdict() for seen, each in weights.items()}
    for each in by_name.values():
        del each["second_order"]
    (tmp_path / "mixture.json").write_text(json.dumps(by_name))
    expected = {seen: x._replace(second_order=0) for seen, x in weights.items()}
    assert read_weights(tmp_path / "mixture.json") == expected


# --- the program


SHOP = [[(s * 7 + i * (1 + s % 2)) % 40 for i in range(5)] for s in range(700)]
TRAIN = "train shop.txt --preset items --vector-size 8 --epochs 2 --min-count 1"
TRAIN += " --loader memory --no-report"


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> Path:
    """A folder with sessions, and the finished run `run` on them."""
    folder = tmp_path_factory.mktemp("shop")
    lines = (" ".join(f"i{item}" for item in ids) for ids in SHOP)
    (folder / "shop.txt").write_text("\n".join(lines) + "\n")
    command = TRAIN.replace("shop.txt", str(folder / "shop.txt"))
    assert main([*command.split(), "--workdir", str(folder / "run")]) == 0
    return folder


def test_the_preset_holds_sessions_out_and_tells_what_the_mixture_is_worth(
    shop, own_folder, capsys
):
    command = TRAIN.replace("shop.txt", str(shop / "shop.txt")).split()
    assert main([*command, "--workdir", "run"]) == 0
    said = capsys.readouterr().err
    assert re.search(r"Next items: HR@10 is [\d.]+ by the mixture, [\d.]+ by the", said)
    scores = json.loads(Path("run/scores.json").read_text())["hr@10"]
    assert {"mixture", "vectors", "SR", "AR", "STAN", "popularity"} <= scores.keys()
    values = {model: value for model, (value, *_) in scores.items()}
    assert values["mixture"] >= values["popularity"]
    settings = Path("run/config.toml").read_text()
    share = float(re.search(r"holdout = ([\d.]+)", settings)[1])
    assert share == 0.05 and 'result = "best"' in settings
    counted = SessionCounts.read(Path("run/counts.npz")).sessions[1]
    assert len(counted) == len(SHOP)


def test_held_out_sessions_are_counted_when_the_weights_are_chosen(own_folder):
    """No item follows from others here: who counts a session has its target first."""
    rng = np.random.default_rng(0)
    sessions = [" ".join(map(str, rng.choice(400, 4, False))) for _ in range(900)]
    Path("shop.txt").write_text("\n".join(sessions))
    assert main([*TRAIN.split(), "--holdout", "0.2", "--workdir", "run"]) == 0
    scores = json.loads(Path("run/scores.json").read_text())["hr@10"]
    assert scores["mixture"][0] < 0.3
    found = read_next_items("run")
    weights = Weights(0, 1.0, 0, 0, 0, 1.0, 0, 1e-3)
    counted = found.mixtures["excluded"].with_weights(weights)
    ids = [[found.ids[key] for key in session.split()] for session in sessions]
    best, _ = counted.top(flat([each[:3] for each in ids]), 10)
    hits = sum(each[3] in items for each, items in zip(ids, best, strict=True))
    assert hits > 0.95 * len(sessions)


def test_weights_are_chosen_without_the_sessions_that_ask_and_without_ages(own_folder):
    lines = (" ".join(map(str, ids)) for ids in SHOP)
    Path("shop.txt").write_text("\n".join(lines) + "\n")
    encoded = encode(text_corpus("shop.txt"), 1)
    tables = RNG.normal(size=(2, 40, SIZE)).astype(np.float32)
    mixture = Mixture(*tables, count_sessions(encoded))
    chosen = choose_weights(mixture, encoded, 0.5).weights["included"]
    left = mixture.counts.without(held_out_sequences(encoded, 0.5))
    cases = last_items(sequences(encoded, 0.5), "included")

    def fitted(**changes) -> Weights:
        changed = dataclasses.replace(mixture, **changes)
        return fit_weights(changed, cases).weights["included"]

    assert chosen == fitted(counts=left, with_ages=False)
    assert chosen not in (fitted(counts=left), fitted(with_ages=False))


def test_counts_can_do_without_some_of_the_last_sessions():
    half = len(LISTS) // 2
    which = np.arange(len(LISTS) - half) % 3 == 1
    out = [ids for ids, is_out in zip(LISTS[half:], which, strict=True) if is_out]
    kept = [ids for ids, is_out in zip(LISTS[half:], which, strict=True) if not is_out]
    found = COUNTS.without([(flat(out), which)])
    expected = SessionCounts.fit([flat(LISTS[:half] + kept)], NUM)
    for name in "rules", "followers":
        values = [getattr(x, name) for x in (found, expected)]
        assert values[0].nnz == values[1].nnz
        np.testing.assert_allclose(values[0].toarray(), values[1].toarray(), rtol=1e-5)
    for mine, others in zip(found.sessions, expected.sessions, strict=True):
        np.testing.assert_array_equal(mine, others)


def test_few_sessions_are_all_trained(own_folder, capsys):
    Path("shop.txt").write_text("a b c\nb c d\n" * 20)
    assert main([*TRAIN.split(), "--workdir", "run"]) == 0
    settings = Path("run/config.toml").read_text()
    assert "holdout = 0.0" in settings and 'result = "last"' in settings
    assert main(["next", "run", "a", "--topn", "1"]) == 0
    assert "  b\n" in capsys.readouterr().out


def test_the_command_says_what_python_says(shop, capsys):
    run = read_next_items(shop / "run")
    vocabulary = pl.read_parquet(shop / "run/vocab.parquet")
    frequent = vocabulary.filter(pl.col("count") >= 95)["token"].to_list()
    assert 0 < len(frequent) < len(vocabulary)
    for flags, options in {
        "": {},
        "--seen include": {"seen": "included"},
        "--min-count 95": {"among": frequent},
    }.items():
        command = f"next {shop / 'run'} i3 i4 --topn 3 --json {flags}".split()
        assert main(command) == 0
        found = json.loads(capsys.readouterr().out)["found"]
        expected = run.next_items(["i3", "i4"], 3, **options)
        assert [(each["key"], each["score"]) for each in found] == expected
    assert main(["next", str(shop / "run"), "i3", "i4", "--topn", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "after i3, i4"
    assert [line.split()[1] for line in lines[1:]] == [
        key for key, _ in run.next_items(["i3", "i4"], 3)
    ]


def test_unknown_items_of_a_session_are_left_out(shop, capsys, caplog):
    run = str(shop / "run")
    for verb in (["next", run], ["neighbors", run, "--session"]):
        assert main([*verb, "i1", "i2"]) == 0
        expected = capsys.readouterr().out
        assert main([*verb, "i1", "other", "i2"]) == 0
        assert capsys.readouterr().out == expected
        warning = "Not in the vocabulary, left out of the session: 'other'."
        assert caplog.messages[-1] == warning
        assert main([*verb, "other"]) == 2
        assert "'other' is not in the vocabulary" in capsys.readouterr().err


def test_evaluate_scores_the_mixture_beside_its_parts(shop, capsys):
    command = f"evaluate {shop / 'run'} --sessions {shop / 'shop.txt'} --json".split()
    assert main(command) == 0
    found = json.loads(capsys.readouterr().out)
    parts = [found["scores"], *found["baselines"].values()]
    best = max(each["HR@10"]["value"] for each in parts)
    assert found["mixture"]["HR@10"]["value"] >= best - 0.02
    assert "mixture" not in found["baselines"]
    assert main(command[:-1]) == 0
    assert "\n  mixture " in capsys.readouterr().out


def test_a_file_of_sessions_gets_the_items_of_each(shop, tmp_path, capsys):
    Path(tmp_path, "asked.txt").write_text("i1 i2 new\nnew\n\ni5\n")
    command = ["next", str(shop / "run"), "--topn", "2"]
    to = str(tmp_path / "text.parquet")
    assert main([*command, "--from", str(tmp_path / "asked.txt"), "--to", to]) == 0
    said = "next items of 2 sessions; 2 of 5 items are unknown"
    assert said in "".join(capsys.readouterr())
    run = read_next_items(shop / "run")
    expected = [
        (session, key, rank, score)
        for session, query in ((1, ["i1", "i2"]), (4, ["i5"]))
        for rank, (key, score) in enumerate(run.next_items(query, 2), 1)
    ]
    found = pl.read_parquet(to)
    assert found.drop("score").rows() == [row[:3] for row in expected]
    np.testing.assert_allclose(found["score"], [row[3] for row in expected], rtol=1e-5)
    table = {"order": [2, 1, 1], "user": ["x", "x", "a"], "item": ["i2", "i1", "i5"]}
    pl.DataFrame(table).write_csv(tmp_path / "asked.csv")
    to = str(tmp_path / "table.csv")
    columns = "--session user --item item --order order".split()
    asked = ["--from", str(tmp_path / "asked.csv"), "--to", to]
    assert main([*command, *asked, *columns]) == 0
    found = pl.read_csv(to)
    assert found["session"].to_list() == ["a", "a", "x", "x"]
    assert found["item"].to_list() == [row[1] for row in expected[2:] + expected[:2]]


CHOSEN = {"excluded": WEIGHTS[0], "included": WEIGHTS[1]}


@pytest.mark.parametrize("weights", [CHOSEN, dict(DEFAULT_WEIGHTS)])
def test_an_update_adds_its_counts(shop, tmp_path, capsys, weights):
    """It keeps the weights that were chosen before, and chooses where none were."""
    new, old = tmp_path / "new.txt", tmp_path / "old"
    shutil.copytree(shop / "run", old)
    write_weights(old / "mixture.json", weights)
    new.write_text("i1 fresh\ni2 i1 fresh\n" * 300)
    flags = "--grow --epochs 1 --min-count 1 --loader memory --no-report --next-items"
    command = ["train", str(new), "--resume", str(old), *flags.split()]
    command += ["--holdout", "0.3", "--workdir", str(tmp_path / "grown")]
    assert main(command) == 0
    before, after = (
        SessionCounts.read(folder / "counts.npz", size)
        for folder, size in ((shop / "run", 40), (tmp_path / "grown", 41))
    )
    vocabulary = pl.read_parquet(tmp_path / "grown/vocab.parquet")["token"].to_list()
    one, fresh = vocabulary.index("i1"), vocabulary.index("fresh")
    added = after.followers.toarray()
    assert added[one, fresh] == 600
    added[one, fresh] -= 600
    added[vocabulary.index("i2"), one] -= 300
    np.testing.assert_array_equal(added[:40, :40], before.followers.toarray())
    found = read_weights(tmp_path / "grown/mixture.json")
    assert (found == weights) == (weights == CHOSEN)
    assert (before.num_old, after.num_old) == (40, 40)


def test_updates_add_items_that_can_come_up_more_often(shop, grown, capsys):
    command, found = ["next", str(grown), "i1", "--topn", "41"], []
    for factor in ("1", "5"):
        assert main([*command, "--new-items", factor]) == 0
        rows = map(str.split, capsys.readouterr().out.splitlines()[1:])
        found.append({key: float(score) for score, key in rows})
    change = {key: score - found[0][key] for key, score in found[1].items()}
    assert change.pop("fresh") > 0.1
    assert len(change) == 39 and not any(change.values())
    asked = grown.parent / "asked.txt"
    asked.write_text("i3 i1 fresh\n" * 3 + "i1 i2 i3\n" * 5)
    command = ["evaluate", str(grown), "--sessions", str(asked), "--json", "--topn"]
    flags = "1 --targets new --new-items 1e-9".split()
    assert main([*command, *flags]) == 0
    every, new, others = map(json.loads, capsys.readouterr().out.splitlines())
    assert [x["counts"]["cases"] for x in (every, new, others)] == [8, 3, 5]
    assert new["settings"]["targets"] == "items that updates added"
    for model in ("mixture", "scores"):
        mean, of_new, of_others = (
            x[model]["HR@1"]["value"] for x in (every, new, others)
        )
        assert mean == pytest.approx((3 * of_new + 5 * of_others) / 8)
    assert new["mixture"]["HR@1"]["value"] == 0, "of a billionth"
    counted = others["baselines"]["followed most often"]["HR@1"]["value"]
    assert counted == 1, "i3 comes after i2 in the first corpus alone"
    assert main([*command[:-2], "--targets", "count"]) == 0
    titles = [x for x in capsys.readouterr().out.splitlines() if "cases" in x]
    assert titles[1:] == [
        f"{asked}: 8 cases whose targets are items that occur more than 20 times"
    ]


def test_fewer_predictions_are_made_beside_the_score_that_chooses(shop, monkeypatch):
    monkeypatch.setattr(eval_sets, "_FEWEST_PAIRS", 50)
    monkeypatch.setattr(eval_sets, "_MOST_LOGS", 1)
    options = read_toml(shop / "run/config.toml").tables
    model, encoded = (
        read_model(shop / "run/model.npz"),
        encode(text_corpus(shop / "shop.txt"), 1),
    )
    tables = {"input": model.input, "output": model.output}
    sizes = []
    for is_beside in True, False:
        found = eval_sets.sequences_set(options, encoded, is_beside)
        ((counted, _),) = found.baselines().values()
        sizes.append((len(found.answers(options, tables)[0]), len(counted)))
    assert sizes[0] == (50, 50) and sizes[1][0] == sizes[1][1] > 50


@pytest.fixture(scope="module")
def grown(shop, tmp_path_factory) -> Path:
    """A finished update of the run with sessions of a new item."""
    folder = tmp_path_factory.mktemp("grown")
    (folder / "new.txt").write_text("i1 fresh\ni2 i1 fresh\n" * 30)
    command = f"train {folder / 'new.txt'} --resume {shop / 'run'} --grow --epochs 1"
    command += f" --min-count 1 --loader memory --no-report --workdir {folder / 'run'}"
    assert main([*command.split(), "--next-items"]) == 0
    return folder / "run"


@pytest.mark.parametrize("flags", ["--replicas 2", "--hs --negative 0"])
def test_what_has_no_mixture_says_so_and_trains(flags, shop, tmp_path, capsys):
    command = TRAIN.replace("shop.txt", str(shop / "shop.txt"))
    command = f"{command} --window 5 --workdir {tmp_path / 'run'} {flags}"
    assert main(command.split()) == 0
    assert "Nothing is kept for `embedder next`" in capsys.readouterr().err
    assert not (tmp_path / "run/counts.npz").exists()
    assert "holdout = 0.0" in (tmp_path / "run/config.toml").read_text()


def test_a_trainer_has_the_next_items_of_its_run(shop):
    options = {"vector_size": 8, "epochs": 2, "min_count": 1}
    trainer = EmbeddingTrainer.preset("items", **options)
    trainer.fit(shop / "shop.txt", next_items=True)
    run = read_next_items(shop / "run")
    assert trainer.next_items(["i3", "i4"]) == run.next_items(["i3", "i4"])
    integers = EmbeddingTrainer.preset("items", **options)
    integers.fit(SHOP[:200], next_items=True, holdout=0.0)
    assert {type(key) for key, _ in integers.next_items([3, 4])} == {int}
    before = integers.next_items([3, 4], 1, seen="included")
    integers.partial_fit([[3, 4, 17]] * 100)
    after = integers.next_items([3, 4], 1, seen="included")
    assert before != after and after[0][0] == 17
    integers.partial_fit([[3, 99]] * 100, grow=True)
    once, more = (integers.next_items([3], among=[99], new_items=x) for x in (1, 2))
    assert more[0][1] > once[0][1] + 0.1


def test_next_items_are_of_the_keys_given():
    keys = [f"k{i}" for i in range(NUM)]
    default = {"excluded": Weights(), "included": Weights()}
    found = NextItems(keys, MIXTURE, default)
    items, scores = MIXTURE.top(flat([[1, 2]]), 3)
    expected = [(keys[i], float(x)) for i, x in zip(items[0], scores[0], strict=True)]
    assert found.next_items(["k1", "k2"], 3) == expected
    only = found.next_items(["k1"], 9, among=["k3", "k1", "unknown"])
    assert [key for key, _ in only] == ["k3"]
