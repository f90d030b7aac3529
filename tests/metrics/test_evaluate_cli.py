"""`embedder evaluate` on held-out sessions, edges, labels, pairs and text."""

import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from sklearn import metrics

from embedder.base.limits import Limit
from embedder.cli.evaluate.training_data import training_sequences
from embedder.cli.main import main
from embedder.config.token_options import TokensOptions
from embedder.data.split import Sequences
from embedder.metrics.counting import first_tokens, followed_most_often, same_session
from embedder.metrics.label_scores import by_regression, f1_scores
from embedder.metrics.ranking import (
    last_items,
    next_item,
    ranking,
    split_cases,
    target_ranks,
)
from embedder.tokens.artefact import read_model
from embedder.vectors.export import read_vectors
from tests.commands import error_line
from tests.held_out import log_likelihood

ITEMS = [f"{group}{i}" for group in "abc" for i in range(6)]
COUNTED = {"same session", "followed most often", "SR", "AR", "VSKNN", "STAN"}
COUNTED |= {"STAN with idf"}
SMALL = ["--loader", "memory", "--vector-size", "8", "--min-count", "1"]
SMALL += ["--epochs", "2"]


def sessions(num: int, seed: int) -> pl.DataFrame:
    """Sessions of items of one group, three for each user, an hour apart."""
    rng = np.random.default_rng(seed)
    groups = rng.integers(3, size=num)
    chosen = [6 * x + i for x in groups for i in rng.choice(6, 5, replace=False)]
    return pl.DataFrame(
        {
            "user": np.repeat(np.arange(num) // 3, 5),
            "session": np.repeat(np.arange(num) + 1000 * seed, 5),
            "item": [ITEMS[i] for i in chosen],
            "time": np.arange(5 * num) * 720,
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluate")
    sessions(200, 0).write_csv(folder / "train.csv")
    test = sessions(60, 1)
    test.with_columns(
        item=pl.when(pl.col("time") % 11 == 0).then(pl.lit("new")).otherwise("item")
    ).write_parquet(folder / "test.parquet")
    rng = np.random.default_rng(0)
    pairs = [(a, b) for a in range(40) for b in range(a) if a // 10 == b // 10]
    edges = [pair for pair in pairs if rng.random() < 0.7]
    edges += [(0, 10), (10, 20), (20, 30)]
    order = rng.permutation(len(edges))
    lines = [f"n{edges[i][0]}\tn{edges[i][1]}\n" for i in order]
    (folder / "held.tsv").write_text("".join(lines[:20]))
    (folder / "graph.tsv").write_text("".join(lines[20:]))
    labels = [f"n{i}\tblock{i // 10}\todd{i % 2}\n" for i in range(40)]
    (folder / "labels.tsv").write_text("node\tlabels\n# a comment\n" + "".join(labels))
    with gzip.open(folder / "labels.tsv.gz", "wt") as file:
        file.write("".join(labels) + "n77\tblock1\n")
    text = [" ".join(x) for x in sessions(200, 0)["item"].to_numpy().reshape(-1, 5)]
    (folder / "text.txt").write_text("\n".join(text))
    (folder / "held.txt").write_text("a1 a2 new a3\nb1 b2\nb4\n")
    (folder / "pairs.tsv").write_text("a1\ta2\t9\na1\tb1\t1\nb2\tb3\t8\nc1\ta5\t2\n")
    (folder / "questions.txt").write_text(": one\na1 a2 b1 b2\na1 a2 c1 new\n")
    shared = ["--holdout", "0.1", *SMALL]
    for run, corpus, options in (
        ("items", "train.csv", ["--order", "time", *shared]),
        ("words", "text.txt", shared),
        ("two", "text.txt", [*shared, "--replicas", "2"]),
        ("nodes", "graph.tsv", ["--walks", "4", *SMALL, "--alpha", "0.01"]),
    ):
        command = ["train", f"{folder}/{corpus}", "--workdir", f"{folder}/{run}"]
        assert main([*command, *options]) == 0
    return folder


@pytest.fixture(autouse=True)
def own_folder(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    capsys.readouterr()


def evaluated(capsys, *arguments: str) -> dict:
    """The only report of a command, from --json."""
    assert main(["evaluate", *arguments, "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    return json.loads(line)


def values(scores: dict) -> list[float]:
    return [score["value"] for score in scores.values()]


def counts_of_training() -> tuple[tuple[np.ndarray, np.ndarray], int]:
    """The sessions that the run `items` trained on: nine tenths of them. And how many
    of the table are equal to one of them."""
    ((ids, lengths),) = training_sequences(Path("items"))
    tokens = np.array(read_model(Path("items/model.npz")).tokens)
    parts = pl.read_csv("train.csv").group_by(["session"])
    whole = [tuple(part["item"].to_list()) for _, part in parts]
    trained = {*map(tuple, np.split(tokens[ids], np.cumsum(lengths)[:-1]))}
    assert trained < {*whole} and 160 < len(lengths) < 195
    return (ids, lengths), sum(each in trained for each in whole)


@pytest.mark.slow
def test_sessions(capsys):
    """The scores are those of the public functions, on what is read here otherwise."""
    arguments = ["--sessions", "test.parquet", "--topn", "3"]
    found = evaluated(capsys, "items", *arguments)
    model = read_model(Path("items/model.npz"))
    table = pl.read_parquet("test.parquet").filter(pl.col("item") != "new")
    ids = np.array([model.tokens.index(item) for item in table["item"]])
    lengths = table["session"].rle().struct.field("len").to_numpy().astype(np.int64)
    expected = next_item(
        model.input, model.counts, (ids, lengths), 3, output=model.output
    )
    np.testing.assert_allclose(values(found["scores"]), expected[:3], rtol=1e-6)
    assert [*found["scores"]] == ["HR@3", "NDCG@3", "MRR"]
    assert found["counts"]["unknown_items"] == 300 - len(table) > 10
    assert found["counts"]["cases"] == expected.num_cases
    baselines = found["baselines"]
    np.testing.assert_allclose(values(baselines["popularity"]), expected.baseline[:3])
    counted, cases = counts_of_training()[0], last_items((ids, lengths), "excluded")
    for of in (same_session, followed_most_often):
        scores = ranking(target_ranks(of(counted, 18), cases, 18), 3)
        name = of.__name__.replace("_", " ")
        np.testing.assert_allclose(values(baselines[name]), scores[:3])
    for each in (found["scores"], *baselines.values()):
        assert all(0 <= x["lower"] <= x["value"] <= x["upper"] for x in each.values())
    assert found["missing"] == {} and found["settings"]["seen"] == "excluded"
    cosine = evaluated(capsys, "items", *arguments, "--score-by", "cosine")
    assert cosine["model"] == "vectors by cosine"
    vectors = evaluated(capsys, "items/vectors.txt", *arguments)
    assert vectors["scores"].keys() == cosine["scores"].keys()
    near = pytest.approx(values(cosine["scores"]), abs=0.04)
    assert values(vectors["scores"]) == near
    reasons = dict.fromkeys(COUNTED, "RUN has no training data")
    assert vectors["missing"] == {"popularity": "RUN has no counts"} | reasons
    output = evaluated(capsys, "items", *arguments, "--score-by", "output")
    assert output["model"] == "vectors by output table"
    assert output["scores"] == found["scores"] != cosine["scores"]
    seen = evaluated(capsys, "items", *arguments, "--seen", "included")
    assert seen["scores"]["MRR"]["value"] < output["scores"]["MRR"]["value"]


def test_users(capsys):
    """Three sessions for each user: the items of the third are found by the first two,
    but those that were seen before."""
    flags = ["--user", "user", "--topn", "4"]
    found = evaluated(capsys, "items", "--sessions", "test.parquet", *flags)
    model = read_model(Path("items/model.npz"))
    table = pl.read_parquet("test.parquet")
    is_last = (table["time"] // 3600 % 3 == 2).to_numpy()
    known = (table["item"] != "new").to_numpy()
    items = table["item"].filter(pl.Series(known))
    ids = np.array([model.tokens.index(x) for x in items])
    lengths = np.add.reduceat(known, np.arange(0, 300, 15))
    cases = split_cases((ids, lengths), is_last[known], "excluded")
    assert found["counts"] == {
        "users": 20,
        "cases": cases.num,
        "targets": len(cases.targets[0]),
        "items": 300,
        "unknown_items": int(np.count_nonzero(~known)),
    }
    assert cases.num > 5 and (cases.targets[1] > 1).any()
    counted = followed_most_often(counts_of_training()[0], 18)
    expected = ranking(target_ranks(counted, cases, 18), 4)
    followed = found["baselines"]["followed most often"]
    np.testing.assert_allclose(values(followed), expected)
    assert [*found["scores"]] == ["HR@4", "NDCG@4", "MRR", "recall@4"]


def test_sessions_that_were_trained_on_are_told(caplog):
    pl.read_csv("train.csv").filter(pl.col("session") < 100).write_csv("half.csv")
    _, num = counts_of_training()
    told = "sessions of 4 items or more are equal to ones that items was trained on"
    for source, flags, expected in (
        ("train.csv", [], f"train.csv: {num} of 200 {told}"),
        ("train.csv", ["--user", "user"], f" of 67 {told}"),
        ("half.csv", [], f" of 100 {told}"),
    ):
        flags = ["--order", "time", *flags]
        assert main(["evaluate", "items", "--sessions", source, *flags]) == 0
        assert expected in caplog.messages[-1]
    caplog.clear()
    assert main(["evaluate", "words", "--sessions", "held.txt"]) == 0
    assert caplog.messages == []


def test_users_of_shuffled_rows_with_other_types(capsys):
    flags = ["--sessions", "test.parquet", "--user", "user", "--order", "time"]
    expected = evaluated(capsys, "items", *flags)
    table = pl.read_parquet("test.parquet").sample(fraction=1, shuffle=True, seed=3)
    empty = table.head(3).with_columns(item=pl.lit(None, pl.String))
    types = pl.col("session").cast(pl.String), pl.col("user").cast(pl.Float64)
    pl.concat([table, empty]).with_columns(types).write_parquet("shuffled.parquet")
    flags[1] = "shuffled.parquet"
    found = evaluated(capsys, "items", *flags)
    assert found["counts"] == expected["counts"]  # the order of users is by text
    assert values(found["scores"]) == pytest.approx(values(expected["scores"]))


def test_counts_need_the_cache_of_a_run_or_its_unchanged_corpus(
    capsys, tmp_path, monkeypatch
):
    run, corpus, aside = tmp_path / "run", Path("train.csv"), tmp_path / "train.csv"
    shutil.copytree("items", run)

    def found(run: object = run) -> dict:
        return evaluated(capsys, str(run), "--sessions", "test.parquet")

    expected = found("items")
    try:
        corpus.rename(aside)
        assert found() == expected
        (shard,) = run.glob("cache/*/shard-*.npz")
        shard.write_bytes(shard.read_bytes()[:-1])
        assert "is damaged" in found()["missing"]["same session"]
        shutil.rmtree(run / "cache")
        without = found()
        assert [*without["baselines"]] == ["popularity"]
        assert "train.csv does not exist" in without["missing"]["same session"]
        assert without["missing"].keys() == COUNTED
        corpus.write_text(aside.read_text() + "9,9,a1,9\n")
        assert "has changed since the run" in found()["missing"]["same session"]
    finally:
        aside.rename(corpus)
    assert found() == expected
    assert not (run / "cache").exists()
    name = "embedder.cli.evaluate.training_data.source_of"
    monkeypatch.setattr(name, lambda run: "https://host.example/x.csv")
    assert "corpus is at https://host.exam" in found()["missing"]["same session"]


@pytest.mark.slow
def test_the_data_of_a_resumed_run_have_its_ids(tmp_path):
    """New tokens have the last ids; counts are those of both corpora."""
    lines = "a1 new a2\nnew new b1\n" * 40
    (tmp_path / "more.txt").write_text(lines)
    run = tmp_path / "run"
    command = ["train", str(tmp_path / "more.txt"), "--resume", "words", "--grow"]
    assert main([*command, "--workdir", str(run), "--holdout", "0"]) == 0
    cached = [*training_sequences(run)]
    shutil.rmtree(run / "cache")
    tokens = read_vectors(run / "vectors.safetensors").keys
    for ((ids, lengths),) in (cached, [*training_sequences(run)]):
        assert " ".join(tokens[i] for i in ids) == " ".join(lines.split())
        assert lengths.tolist() == [3] * 80 and tokens[-1] == "new"
    shards = [(np.zeros(n, int), np.array([n])) for n in (3, 2, 4)]
    assert [len(ids) for ids, _ in first_tokens(iter(shards), 5)] == [3, 2]
    assert len([*first_tokens(iter(shards[:1]), 5)]) == 1


@pytest.mark.parametrize(("data", "num"), [("test.parquet", 60), ("few.parquet", 15)])
def test_a_better_baseline_is_named(data, num, capsys):
    """The text shows it under the table, in which each score has its interval."""
    pl.read_parquet("test.parquet").head(5 * 15).write_parquet("few.parquet")
    found = evaluated(capsys, "items", "--sessions", data)
    assert main(["evaluate", "items", "--sessions", data]) == 0
    title, head, *rows = capsys.readouterr().out.splitlines()
    assert title.startswith(f"{data}: {found['counts']['cases']} cases of {num} ses")
    assert head.split() == ["HR@10", "NDCG@10", "MRR"]
    baselines, expected = found["baselines"], []
    names = ["vectors by output table", *baselines]
    assert [row[2:25].strip() for row in rows[: len(names)]] == names
    assert baselines.keys() == {"popularity", *COUNTED}
    score = found["scores"]["MRR"]
    shown = f"{score['value']:.3f} [{score['lower']:.3f}, {score['upper']:.3f}]"
    assert rows[0].endswith(shown)
    for name, own in found["scores"].items():
        best = max(baselines, key=lambda x: baselines[x][name]["value"])
        other = baselines[best][name]
        if other["value"] > own["value"]:
            text = f"  counting is better: {name} of {best} {other['value']:.3f} > "
            text += f"{own['value']:.3f}"
            overlap = other["lower"] <= own["upper"]
            expected.append(text + ", but their intervals overlap" * overlap)
            assert found["better_baselines"][name] == best
    assert rows[len(names) :] == expected
    assert any("overlap" in row for row in rows) == (num == 15)


def test_edges(capsys):
    """All pairs without an edge are ranked as by scikit-learn."""
    known, held = (
        {frozenset(x.split()) for x in Path(name).read_text().splitlines()}
        for name in ("graph.tsv", "held.tsv")
    )
    vectors = read_vectors("nodes/vectors.safetensors")
    nodes = vectors.keys
    degree = {x: sum(x in edge for edge in known) for x in nodes}
    everything = {
        frozenset((a, b)): (degree[a] * degree[b], vectors.similarity(a, b))
        for i, a in enumerate(nodes)
        for b in nodes[:i]
        if frozenset((a, b)) not in known
    }
    labels = [edge in held for edge in everything]
    command = ["nodes", "--edges", "held.tsv", "--non-edges"]
    wanted = evaluated(capsys, *command, str(len(labels) - sum(labels)))
    own = wanted["baselines"]["degree product"], wanted["scores"]
    for found, scores in zip(own, zip(*everything.values(), strict=True), strict=True):
        auc = metrics.roc_auc_score(labels, scores)
        precision = metrics.average_precision_score(labels, scores)
        assert found["AUC"]["value"] == pytest.approx(auc, abs=1e-6)
        assert found["AP"]["value"] == pytest.approx(precision, abs=1e-3)
    found = evaluated(capsys, *command, "300")
    counts = found["counts"]
    assert counts["edges"] + counts["unknown"] == 20 and counts["non_edges"] == 300
    assert found["scores"]["AUC"]["value"] > 0.7
    assert {*found["baselines"]} == {"common neighbours", "degree product"}
    others = ([], ["--similarity", "dot"], ["--seed", "1"])
    dot = [evaluated(capsys, *command, "300", *each)["scores"] for each in others]
    assert dot[0] == found["scores"] and dot[0] not in dot[1:]


def test_edges_of_the_training_are_left_out(capsys):
    """The way back of an edge is held out if the graph is directed, and only there."""
    known = Path("graph.tsv").read_text().splitlines(keepends=True)[:9]
    text = "source\ttarget\n" + Path("held.tsv").read_text() + "".join(known)
    Path("mixed.tsv").write_text(text)
    alone = evaluated(capsys, "nodes", "--edges", "held.tsv")
    found = evaluated(capsys, "nodes", "--edges", "mixed.tsv")
    assert found["counts"]["in_training"] == 9
    assert found["counts"]["edges"] == alone["counts"]["edges"]
    assert found["scores"] == alone["scores"]
    file = evaluated(capsys, "nodes/vectors.txt", "--edges", "held.tsv")
    assert file["baselines"] == {} and {*file["missing"]} == {*found["baselines"]}
    run = ["train", "graph.tsv", "--walks", "2", *SMALL, "--alpha", "0.01"]
    assert main([*run, "--directed", "--workdir", "one-way"]) == 0
    capsys.readouterr()
    back = ["\t".join(line.split()[::-1]) + "\n" for line in known]
    Path("back.tsv").write_text("".join(back))
    found = evaluated(capsys, "one-way", "--edges", "back.tsv")
    assert found["settings"]["directed"] and found["counts"]["edges"] == 9
    assert {*found["baselines"]} == {"common neighbours", "degree product"}
    assert main(["evaluate", "nodes", "--edges", "back.tsv"]) == 2
    assert "has no edge to predict: 9 are edges of the training" in error_line(capsys)


def test_labels(capsys):
    flags = ["--train-share", "0.6", "--splits", "2", "--seed", "5"]
    found = evaluated(capsys, "nodes", "--labels", "labels.tsv", *flags)
    packed = evaluated(capsys, "nodes", "--labels", "labels.tsv.gz", *flags)
    assert packed["scores"] == found["scores"]
    assert packed["counts"]["unknown"] == found["counts"]["unknown"] + 1
    assert found["counts"]["labels"] == 6
    vectors = read_vectors("nodes/vectors.safetensors")
    numbers = [int(key[1:]) for key in vectors.keys]
    has_label = np.array(
        [[n // 10 == b for b in range(4)] + [n % 2 == 0, n % 2 == 1] for n in numbers]
    )
    predict = by_regression(vectors.matrix, has_label)
    expected = f1_scores(predict, has_label, 0.6, 2, seed=5)
    for name, score in zip(("micro F1", "macro F1"), expected, strict=True):
        assert found["scores"][name] == pytest.approx(score._asdict())
    assert {*found["baselines"]} == {"most frequent labels", "degree"}


def test_pairs_and_analogies(capsys):
    found = evaluated(capsys, "words", "--pairs", "pairs.tsv")
    assert {*found["baselines"]} == {"frequency", "co-occurrence"}
    assert found["missing"] == {}
    counted = found["baselines"]["co-occurrence"]["Spearman"]
    assert counted["value"] > 0.7  # only items of a group are ever together
    two = evaluated(capsys, "two", "--pairs", "pairs.tsv")
    assert two["baselines"] == found["baselines"]
    found = evaluated(capsys, "words", "--analogies", "questions.txt")
    (accuracy,) = values(found["scores"])
    section = {"name": "one", "num_used": 1, "num_unknown": 1}
    assert found["sections"] == [section | {"num_correct": accuracy}]
    nearest = read_vectors("words/vectors.safetensors").most_similar("b1", topn=3)
    best = next(key for key, _ in nearest if key not in ("a1", "a2"))
    assert values(found["baselines"]["nearest to c"]) == [float(best == "b2")]
    Path("other.txt").write_text(": one\na1 a2 b1 new\n")
    found = evaluated(capsys, "words", "--analogies", "other.txt")
    assert values(found["scores"]) == [None]
    assert main(["evaluate", "words", "--analogies", "other.txt"]) == 0
    line = capsys.readouterr().out.splitlines()[1]
    assert line == "other.txt: total: 0.0 %, 0 of 0 (1 out of vocabulary)"


@pytest.mark.row("B38")
def test_labels_that_do_not_fit_in_memory_are_refused(capsys, monkeypatch):
    limit = Limit(100, "its container (/sys/fs/cgroup/memory.max)")
    monkeypatch.setattr("embedder.base.limits.memory_limit", lambda: limit)
    assert main(["evaluate", "nodes", "--labels", "labels.tsv"]) == 2
    assert "6 labels of 40 nodes in labels.tsv take" in error_line(capsys)


def test_text(capsys):
    found = evaluated(capsys, "words", "--text", "held.txt")
    model = read_model(Path("words/model.npz"))
    ids = np.array([model.tokens.index(x) for x in "a1 a2 a3 b1 b2".split()])
    tables = model.input, model.output, model.counts
    given = Sequences(ids, np.array([3, 2]))
    expected = log_likelihood(TokensOptions(), *tables, given)
    assert found["scores"]["log likelihood"]["value"] == pytest.approx(expected.mean)
    unigram = found["baselines"]["unigram"]["log likelihood"]
    assert unigram["value"] == pytest.approx(expected.baseline)
    assert unigram["lower"] < unigram["value"] < unigram["upper"]
    assert found["counts"] == {"predictions": 8, "lines": 2, "tokens": 7, "unknown": 1}


def test_reports_of_several_files(capsys):
    files = ["--pairs", "pairs.tsv", "--text", "held.txt", "--sessions", "text.txt"]
    assert main(["evaluate", "words", *files, "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["test"] for line in lines] == ["sessions", "pairs", "text"]
