"""`embedder evaluate` on held-out sessions, edges, labels, pairs and text."""

import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from embedder.cli import main
from embedder.evaluation.counting import (
    first_tokens,
    followed_most_often,
    same_session,
)
from embedder.evaluation.ranking import (
    last_items,
    next_item,
    ranking,
    split_cases,
    target_ranks,
)
from embedder.limits import Limit
from embedder.scoring.training_data import training_sequences
from embedder.tables.artefact import read_model
from embedder.tables.heldout import log_likelihood
from embedder.tables.options import TablesOptions
from embedder.tables.split import Sequences
from embedder.vectors.export import read_vectors
from tests.commands import error_line

ITEMS = [f"{group}{i}" for group in "abc" for i in range(6)]
SMALL = ["--loader", "memory", "--vector-size", "8", "--min-count", "1"]
SMALL += ["--epochs", "2"]


def sessions(num: int, seed: int) -> pl.DataFrame:
    """Sessions of items of one group, three for each user, an hour apart."""
    rng = np.random.default_rng(seed)
    groups = rng.integers(3, size=num)
    return pl.DataFrame(
        {
            "user": np.repeat(np.arange(num) // 3, 5),
            "session": np.repeat(np.arange(num) + 1000 * seed, 5),
            "item": [
                ITEMS[6 * group + i]
                for group in groups
                for i in rng.choice(6, 5, replace=False)
            ],
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
    edges = [
        (10 * block + a, 10 * block + b)
        for block in range(4)
        for a in range(10)
        for b in range(a)
        if rng.random() < 0.7
    ]
    edges += [(0, 10), (10, 20), (20, 30)]
    order = rng.permutation(len(edges))
    lines = [f"n{edges[i][0]}\tn{edges[i][1]}\n" for i in order]
    (folder / "held.tsv").write_text("".join(lines[:20]))
    (folder / "graph.tsv").write_text("".join(lines[20:]))
    labels = [f"n{i}\tblock{i // 10}\todd{i % 2}\n" for i in range(40)]
    (folder / "labels.tsv").write_text("node\tlabels\n# a comment\n" + "".join(labels))
    with gzip.open(folder / "labels.tsv.gz", "wt") as file:
        file.write("".join(labels) + "n77,block1\n")
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


@pytest.mark.slow
def test_sessions(capsys):
    """The scores are those of the public functions, on what is read here otherwise."""
    found = evaluated(capsys, "items", "--sessions", "test.parquet", "--topn", "3")
    model = read_model(Path("items/model.npz"))
    table = pl.read_parquet("test.parquet").filter(pl.col("item") != "new")
    index = {token: i for i, token in enumerate(model.tokens)}
    ids = np.array([index[item] for item in table["item"]])
    lengths = table["session"].rle().struct.field("len").to_numpy().astype(np.int64)
    expected = next_item(
        model.input, model.counts, (ids, lengths), 3, output=model.output
    )
    values = [x["value"] for x in found["scores"].values()]
    np.testing.assert_allclose(values, expected[:3], rtol=1e-6)
    assert [*found["scores"]] == ["HR@3", "NDCG@3", "MRR"]
    assert found["counts"]["unknown_items"] == 300 - len(table) > 10
    assert found["counts"]["cases"] == expected.num_cases
    popular = [x["value"] for x in found["baselines"]["popularity"].values()]
    np.testing.assert_allclose(popular, expected.baseline[:3])
    counted = counts_of_training(model.tokens)
    cases = last_items((ids, lengths), "excluded")
    for name, of in (
        ("same session", same_session),
        ("followed most often", followed_most_often),
    ):
        scores = ranking(target_ranks(of(counted, 18), cases, 18), 3)
        values = [x["value"] for x in found["baselines"][name].values()]
        np.testing.assert_allclose(values, scores[:3])
    for each in (found["scores"], *found["baselines"].values()):
        assert all(0 <= x["lower"] <= x["value"] <= x["upper"] for x in each.values())
    assert found["missing"] == {} and found["settings"]["seen"] == "excluded"


def counts_of_training(tokens: list[str]) -> tuple[np.ndarray, np.ndarray]:
    ((ids, lengths),) = training_sequences(Path("items"))
    table = pl.read_csv("train.csv")
    whole = {
        tuple(part["item"].to_list()) for (_,), part in table.group_by(["session"])
    }
    trained = {
        tuple(tokens[i] for i in part)
        for part in np.split(ids, np.cumsum(lengths)[:-1])
    }
    assert trained < whole  # a tenth is held out
    assert 160 < len(lengths) < 195
    return ids, lengths


@pytest.mark.slow
def test_cosine_and_seen_items(capsys):
    arguments = ["items", "--sessions", "test.parquet"]
    cosine = evaluated(capsys, *arguments, "--score-by", "cosine")
    assert cosine["model"] == "vectors by cosine"
    vectors = evaluated(capsys, "items/vectors.txt", *arguments[1:])
    assert vectors["scores"].keys() == cosine["scores"].keys()
    for name, score in vectors["scores"].items():
        assert score["value"] == pytest.approx(
            cosine["scores"][name]["value"], abs=0.04
        )
    assert vectors["missing"] == {
        "popularity": "RUN has no counts",
        "same session": "RUN has no training data",
        "followed most often": "RUN has no training data",
    }
    output = evaluated(capsys, *arguments, "--score-by", "output")
    assert output["model"] == "vectors by output table"
    assert output["scores"] != cosine["scores"]
    seen = evaluated(capsys, *arguments, "--seen", "included")
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
    ids = np.array(
        [model.tokens.index(x) for x in table["item"].filter(pl.Series(known))]
    )
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
    counted = followed_most_often(counts_of_training(model.tokens), 18)
    expected = ranking(target_ranks(counted, cases, 18), 4)
    values = found["baselines"]["followed most often"].values()
    np.testing.assert_allclose([x["value"] for x in values], expected)
    assert [*found["scores"]] == ["HR@4", "NDCG@4", "MRR", "recall@4"]


def test_users_of_shuffled_rows_with_other_types(capsys):
    flags = ["--sessions", "test.parquet", "--user", "user", "--order", "time"]
    expected = evaluated(capsys, "items", *flags)
    table = pl.read_parquet("test.parquet").sample(fraction=1, shuffle=True, seed=3)
    empty = table.head(3).with_columns(item=pl.lit(None, pl.String))
    table = pl.concat([table, empty]).with_columns(
        pl.col("session").cast(pl.String), pl.col("user").cast(pl.Float64)
    )
    table.write_parquet("shuffled.parquet")
    flags[1] = "shuffled.parquet"
    found = evaluated(capsys, "items", *flags)
    assert found["counts"] == expected["counts"]
    for name, score in expected["scores"].items():  # the order of users is by text
        assert found["scores"][name]["value"] == pytest.approx(score["value"])


def test_the_cache_of_a_run_is_enough_and_so_is_an_unchanged_corpus(capsys, tmp_path):
    command = ["items", "--sessions", "test.parquet"]
    expected = evaluated(capsys, *command)
    run = tmp_path / "run"
    shutil.copytree("items", run)
    try:
        shutil.move("train.csv", tmp_path / "train.csv")
        assert evaluated(capsys, str(run), *command[1:]) == expected
        shutil.rmtree(run / "cache")
        found = evaluated(capsys, str(run), *command[1:])
        assert [*found["baselines"]] == ["popularity"]
        assert "train.csv does not exist" in found["missing"]["same session"]
        assert found["missing"].keys() == {"same session", "followed most often"}
    finally:
        shutil.move(tmp_path / "train.csv", "train.csv")
    assert evaluated(capsys, str(run), *command[1:]) == expected
    assert not (run / "cache").exists()
    text = Path("train.csv").read_text()
    try:
        Path("train.csv").write_text(text + "9,9,a1,9\n")
        found = evaluated(capsys, str(run), *command[1:])
        assert "has changed since the run" in found["missing"]["same session"]
    finally:
        Path("train.csv").write_text(text)


def test_a_damaged_cache_and_a_corpus_at_a_url_are_said(capsys, tmp_path, monkeypatch):
    run = tmp_path / "run"
    shutil.copytree("words", run)
    (shard,) = run.glob("cache/*/shard-*.npz")
    shard.write_bytes(shard.read_bytes()[:-1])
    found = evaluated(capsys, str(run), "--pairs", "pairs.tsv")
    assert "is damaged" in found["missing"]["co-occurrence"]
    assert [*found["baselines"]] == ["frequency"]
    shutil.rmtree(run / "cache")
    name = "embedder.scoring.training_data.source_of"
    monkeypatch.setattr(name, lambda run: "https://host.example/text.txt")
    found = evaluated(capsys, str(run), "--pairs", "pairs.tsv")
    assert "the corpus is at https://host.exam" in found["missing"]["co-occurrence"]


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
    for shards in (cached, [*training_sequences(run)]):
        ((ids, lengths),) = shards
        tokens = read_vectors(run / "vectors.safetensors").keys
        assert " ".join(tokens[i] for i in ids) == " ".join(lines.split())
        assert lengths.tolist() == [3] * 80 and tokens[-1] == "new"


def test_co_occurrences_are_counted_in_the_first_shards():
    shards = [(np.zeros(n, int), np.array([n])) for n in (3, 2, 4)]
    assert [len(ids) for ids, _ in first_tokens(iter(shards), 5)] == [3, 2]
    assert len([*first_tokens(iter(shards[:1]), 5)]) == 1


def test_a_better_baseline_is_named(capsys):
    """The text shows it under the table, in which each score has its interval."""
    found = evaluated(capsys, "items", "--sessions", "test.parquet")
    assert main(["evaluate", "items", "--sessions", "test.parquet"]) == 0
    title, head, *rows = capsys.readouterr().out.splitlines()
    assert title.startswith(f"test.parquet: {found['counts']['cases']} cases of 60 ses")
    assert head.split() == ["HR@10", "NDCG@10", "MRR"]
    assert [row[2:25].strip() for row in rows[:4]] == [
        *("vectors by output table", "popularity", "same session"),
        "followed most often",
    ]
    score = found["scores"]["MRR"]
    shown = f"{score['value']:.3f} [{score['lower']:.3f}, {score['upper']:.3f}]"
    assert rows[0].endswith(shown)
    expected = []
    for name, own in found["scores"].items():
        best = max(
            found["baselines"], key=lambda x: found["baselines"][x][name]["value"]
        )
        other = found["baselines"][best][name]
        if other["value"] > own["value"]:
            text = f"  counting is better: {name} of {best} {other['value']:.3f} > "
            text += f"{own['value']:.3f}"
            overlap = other["lower"] <= own["upper"]
            expected.append(text + ", but their intervals overlap" * overlap)
            assert found["better_baselines"][name] == best
    assert rows[4:] == expected


def test_edges(capsys):
    from sklearn import metrics

    found = evaluated(capsys, "nodes", "--edges", "held.tsv", "--non-edges", "300")
    counts = found["counts"]
    assert counts["edges"] + counts["unknown"] == 20 and counts["non_edges"] == 300
    assert found["scores"]["AUC"]["value"] > 0.7
    assert {*found["baselines"]} == {"common neighbours", "degree product"}
    known = {frozenset(x.split()) for x in Path("graph.tsv").read_text().splitlines()}
    held = {frozenset(x.split()) for x in Path("held.tsv").read_text().splitlines()}
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
    wanted = evaluated(
        *(capsys, "nodes", "--edges", "held.tsv"),
        *("--non-edges", str(len(labels) - sum(labels))),
    )
    for name, scores in zip(
        (wanted["baselines"]["degree product"], wanted["scores"]),
        zip(*everything.values(), strict=True),
        strict=True,
    ):
        auc = metrics.roc_auc_score(labels, scores)
        precision = metrics.average_precision_score(labels, scores)
        assert name["AUC"]["value"] == pytest.approx(auc, abs=1e-6)
        assert name["AP"]["value"] == pytest.approx(precision, abs=1e-3)
    dot = evaluated(capsys, "nodes", "--edges", "held.tsv", "--similarity", "dot")
    assert dot["scores"] != found["scores"]
    seeds = [
        evaluated(capsys, "nodes", "--edges", "held.tsv", "--seed", seed)["scores"]
        for seed in ("0", "0", "1")
    ]
    assert seeds[0] == seeds[1] != seeds[2]


def test_directed_edges(capsys):
    """The way back of an edge of the training is held out there, and only there."""
    run = ["train", "graph.tsv", "--walks", "2", *SMALL, "--alpha", "0.01"]
    assert main([*run, "--directed", "--workdir", "one-way"]) == 0
    capsys.readouterr()
    lines = Path("graph.tsv").read_text().splitlines()[:9]
    back = ["\t".join(line.split()[::-1]) + "\n" for line in lines]
    Path("back.tsv").write_text("".join(back))
    found = evaluated(capsys, "one-way", "--edges", "back.tsv")
    assert found["settings"]["directed"] and found["counts"]["edges"] == 9
    assert {*found["baselines"]} == {"common neighbours", "degree product"}
    assert main(["evaluate", "nodes", "--edges", "back.tsv"]) == 2
    assert "has no edge to predict: 9 are edges of the training" in error_line(capsys)


def test_edges_of_the_training_are_left_out_and_files_of_vectors_have_no_baseline(
    capsys,
):
    lines = Path("held.tsv").read_text() + Path("graph.tsv").read_text()[:80]
    Path("mixed.tsv").write_text("source\ttarget\n" + lines.rpartition("\n")[0] + "\n")
    alone = evaluated(capsys, "nodes", "--edges", "held.tsv")
    found = evaluated(capsys, "nodes", "--edges", "mixed.tsv")
    assert found["counts"]["in_training"] >= 5
    assert found["counts"]["edges"] == alone["counts"]["edges"]
    assert found["scores"] == alone["scores"]
    file = evaluated(capsys, "nodes/vectors.txt", "--edges", "held.tsv")
    assert file["baselines"] == {} and {*file["missing"]} == {*found["baselines"]}
    text = evaluated(capsys, "words", "--pairs", "pairs.tsv")
    assert text["missing"] == {}


def test_labels(capsys):
    from embedder.evaluation.labels import by_regression, f1_scores

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
    expected = f1_scores(
        by_regression(vectors.matrix, has_label), has_label, 0.6, 2, seed=5
    )
    for name, score in zip(("micro F1", "macro F1"), expected, strict=True):
        assert found["scores"][name] == pytest.approx(score._asdict())
    assert {*found["baselines"]} == {"most frequent labels", "degree"}


def test_pairs_and_analogies(capsys):
    found = evaluated(capsys, "words", "--pairs", "pairs.tsv")
    assert {*found["baselines"]} == {"frequency", "co-occurrence"}
    values = found["baselines"]["co-occurrence"]["Spearman"]
    assert values["value"] > 0.7  # only items of a group are ever together
    two = evaluated(capsys, "two", "--pairs", "pairs.tsv")
    assert two["baselines"] == found["baselines"]
    found = evaluated(capsys, "words", "--analogies", "questions.txt")
    assert found["sections"] == [
        {"name": "one", "num_correct": found["scores"]["accuracy"]["value"]}
        | {"num_used": 1, "num_unknown": 1}
    ]
    vectors = read_vectors("words/vectors.safetensors")
    nearest = vectors.most_similar("b1", topn=3)
    best = next(key for key, _ in nearest if key not in ("a1", "a2"))
    value = found["baselines"]["nearest to c"]["accuracy"]["value"]
    assert value == float(best == "b2")


def test_questions_of_unknown_words_have_no_accuracy(capsys):
    Path("other.txt").write_text(": one\na1 a2 b1 new\n")
    found = evaluated(capsys, "words", "--analogies", "other.txt")
    assert found["scores"]["accuracy"]["value"] is None
    assert main(["evaluate", "words", "--analogies", "other.txt"]) == 0
    line = capsys.readouterr().out.splitlines()[1]
    assert line == "other.txt: total: 0.0 %, 0 of 0 (1 out of vocabulary)"


@pytest.mark.row("B38")
def test_labels_that_do_not_fit_in_memory_are_refused(capsys, monkeypatch):
    limit = Limit(100, "its container (/sys/fs/cgroup/memory.max)")
    monkeypatch.setattr("embedder.limits.memory_limit", lambda: limit)
    assert main(["evaluate", "nodes", "--labels", "labels.tsv"]) == 2
    assert "6 labels of 40 nodes in labels.tsv take" in error_line(capsys)


def test_text(capsys):
    found = evaluated(capsys, "words", "--text", "held.txt")
    model = read_model(Path("words/model.npz"))
    index = {token: i for i, token in enumerate(model.tokens)}
    ids = np.array([index[x] for x in "a1 a2 a3 b1 b2".split()])
    given = Sequences(ids, np.array([3, 2]))
    expected = log_likelihood(
        TablesOptions(), model.input, model.output, model.counts, given
    )
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


BAD = {
    "empty.tsv": "",
    "unknown.csv": "session,item\n1,x\n1,y\n",
    "short.csv": "session,item\n1,a1\n2,a2\n",
    "again.csv": "session,item\n1,a1\n1,a1\n",
    "lists.jsonl": '{"session": 1, "items": ["a1", "a2"]}\n',
    "strangers.tsv": "x\ty\n",
    "one.tsv": "n1\tred\nn2\tred\n",
    "alone.tsv": "n1\tred\nn2\n",
    "known.tsv": "",  # an edge of the training, see the fixture
    "x.txt": "a1\n\nnew b1\n",
}


@pytest.fixture
def bad(folder):
    for name, text in BAD.items():
        (folder / name).write_text(text)
    (folder / "known.tsv").write_text((folder / "graph.tsv").read_text().split("\n")[0])
    (folder / "cut.gz").write_bytes(gzip.compress(b"n1\tred\n" * 999)[:-9])
    (folder / "latin.tsv").write_bytes(b"n1\tr\xe9d\n")
    (folder / "long.tsv").write_bytes(b"n1\t" + b"x" * 2**21)


@pytest.mark.spread(15)
@pytest.mark.row("B38")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("items --sessions none.csv", "none.csv does not exist"),
        ("items --sessions empty.tsv", "empty.tsv is empty"),
        ("items --sessions unknown.csv", "none of its 2 items is in the vocabulary of"),
        (
            "items --sessions short.csv",
            "`sessions` short.csv has no case: it needs ses",
        ),
        ("items --sessions again.csv", "of the vocabulary, and not seen before"),
        ("items --sessions test.parquet --item no", "`item` must be a column of the c"),
        (
            "items --sessions test.parquet --user no",
            "`user` must be a column besides those of session, item and order, got "
            "'no'; the others are: user",
        ),
        (
            "items --sessions test.parquet --user item",
            "`user` must be a column besides",
        ),
        (
            "items --sessions lists.jsonl --items items --user session",
            "`user` needs a table with a row",
        ),
        (
            "items --sessions text.txt --user user",
            "`user` needs a table with a row for",
        ),
        (
            "items --sessions short.csv --user session",
            "`user` must be a column besides",
        ),
        (
            "items --sessions test.parquet --topn 0",
            "`topn` must be an integer >= 1, got",
        ),
        (
            "items --sessions test.parquet --topn x",
            "`--topn` must be an integer, got 'x'",
        ),
        ("items --sessions test.parquet --seen no", "invalid choice"),
        ("items --sessions test.parquet --score-by no", "invalid choice"),
        (
            "items --sessions test.parquet --seed -1",
            "`seed` must be an integer >= 0, got",
        ),
        (
            "two --sessions text.txt --score-by output",
            "`score_by` 'output' needs the out",
        ),
        (
            "words/vectors.txt --sessions text.txt --score-by output",
            "`score_by` 'output'",
        ),
        ("nodes --edges none.tsv", "none.tsv does not exist"),
        ("nodes --edges empty.tsv", "empty.tsv has no edge"),
        (
            "nodes --edges strangers.tsv",
            "has no edge to predict: 0 are edges of the tr",
        ),
        ("nodes --edges known.tsv", "has no edge to predict: 1 are edges of the train"),
        ("nodes --edges held.tsv --non-edges 0", "`non_edges` must be an integer >= 1"),
        ("nodes --edges held.tsv --non-edges 9999", "`non_edges` must be at most"),
        (
            "nodes --edges held.tsv --source a --target b",
            "`source` must be a column of",
        ),
        ("nodes --edges held.tsv --similarity no", "invalid choice"),
        ("nodes --labels none.tsv", "none.tsv: No such file"),
        (
            "nodes --labels empty.tsv",
            "must have 2 labels or more of known nodes",
        ),
        (
            "nodes --labels one.tsv",
            "must have 2 labels or more of known nodes, g",
        ),
        ("nodes --labels strangers.tsv", "got 0; unknown nodes: 1"),
        ("nodes --labels alone.tsv", "alone.tsv line 2: must be a node and its labels"),
        ("nodes --labels cut.gz", "cut.gz is not a whole .gz file"),
        ("nodes --labels latin.tsv", "latin.tsv is not UTF-8 text"),
        ("nodes --labels long.tsv", "long.tsv line 1: is longer than 1048576 bytes"),
        (
            "nodes --labels labels.tsv --train-share 0",
            "`train_share` must be above 0 and",
        ),
        (
            "nodes --labels labels.tsv --train-share 1",
            "`train_share` must be above 0 and",
        ),
        (
            "nodes --labels labels.tsv --train-share nan",
            "`train_share` must be above 0",
        ),
        (
            "nodes --labels labels.tsv --splits 0",
            "`splits` must be an integer >= 1, got",
        ),
        ("words --text none.txt", "none.txt does not exist"),
        ("words --text x.txt", "`text` x.txt has no line of two tokens or more"),
        (
            "two --text held.txt",
            "`text` needs the output table, which a run of a single",
        ),
        ("words/vectors.txt --text held.txt", "`text` needs the output table"),
        (
            "words --topn 3 --pairs pairs.tsv",
            "`topn` applies only with --sessions FILE",
        ),
        ("words --user u", "`user` applies only with --sessions FILE"),
        ("words --session s --text held.txt", "`session` applies only with --sessions"),
        (
            "words --similarity dot --text held.txt",
            "`similarity` applies only with --edg",
        ),
        (
            "words --splits 2 --text held.txt",
            "`splits` applies only with --labels FILE",
        ),
        (
            "words --restrict-vocab 9 --text held.txt",
            "`restrict_vocab` applies only with",
        ),
        (
            "words --text held.txt --picture p.png",
            "`picture` is for the evaluation of an",
        ),
        ("none --text held.txt", "RUN none does not exist"),
    ],
)
def test_bad_input_is_refused_in_one_line(capsys, bad, arguments, message):
    assert main(["evaluate", *arguments.split()]) == 2
    assert message in error_line(capsys)
